"""RocketMQ's own client integration tests, run against three real brokers or against three of ours.

python -m tests.interop.integration_tests --at both [--only PART …] [--workers 3] [--json FILE]

The tests are in the jar that RocketMQ publishes; ``interop/it`` puts a base class of its own in front of it, which
names a name server outside. ``interop/it/left-out.toml`` says which tests are left out, and why.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .java import INTEROP, Line, Setting, java_program, setting_text
from .java_cluster import FOR_TESTS, JavaCluster

IT = INTEROP / "it"
MAIN = "org.gantrymq.interop.it.Main"
BROKERS = ("broker-a", "broker-b", "broker-c")  # RocketMQ's tests are compiled for three
SETTINGS: dict[str, Setting] = {"enablePropertyFilter": True, "timerWheelEnable": True, "recallMessageEnable": True}
MINUTES = 3  # for a test, at most
AT = {"java": "the real brokers", "ours": "ours"}


def build() -> None:
    """Build interop/it where its sources are newer than its jar."""
    jar = IT / "target" / "interop-it.jar"
    sources = [IT / "pom.xml", *(IT / "src").rglob("*.java")]
    if not jar.exists() or jar.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        subprocess.run(["mvn", "--batch-mode", "--quiet", "--file", str(IT / "pom.xml"), "package"], check=True)


def chosen(only: Sequence[str]) -> dict[str, str]:
    """Every test there is, with the reason why it is left out, or an empty text."""
    reasons: dict[str, str] = tomllib.loads((IT / "left-out.toml").read_text())
    names = [line["test"] for line in _java([], [])]
    for beginning in reasons:
        if not any(name.startswith(beginning) for name in names):
            raise SystemExit(f"interop/it/left-out.toml: no test's name begins with {beginning}")
    tests = {name: next((why for start, why in reasons.items() if name.startswith(start)), "") for name in names}
    return {name: why for name, why in tests.items() if not only or any(part in name for part in only)}


def run(tests: Sequence[str], at: str, workers: int) -> dict[str, Line]:
    """What became of each test at the real brokers (``at`` "java") or at ours; classes stay together in a process."""
    classes: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        classes[test.partition("#")[0]].append(test)
    hands = [[test for name in list(classes)[first::workers] for test in classes[name]] for first in range(workers)]
    found: dict[str, Line] = {}
    with three_brokers(at) as namesrv, ThreadPoolExecutor(workers) as pool:
        for lines in pool.map(lambda hand: _java([f"-Dit.namesrv={namesrv}"], hand, AT[at]), filter(None, hands)):
            found |= {line["test"]: line for line in lines}
    return found


@contextmanager
def three_brokers(at: str) -> Iterator[str]:
    """A name server and three brokers; the address of the former."""
    with tempfile.TemporaryDirectory(prefix="gantrymq-it-", ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        namesrv = None
        for name in BROKERS:
            store = Path(folder) / name
            if at == "java":
                namesrv = stack.enter_context(
                    JavaCluster(store, SETTINGS | {"brokerName": name}, namesrv=namesrv)
                ).namesrv
            else:
                namesrv = stack.enter_context(_ours(store, SETTINGS | {"brokerName": name}, namesrv))
        assert namesrv is not None
        yield namesrv


@contextmanager
def _ours(store: Path, settings: dict[str, Setting], namesrv: str | None) -> Iterator[str]:
    """``gantrymq serve``, or where a name server is there ``gantrymq broker``: the name server's address."""
    how = ["serve", "--namesrv-port", "0"] if namesrv is None else ["broker", "-n", namesrv]
    words = [
        str(Path(sys.executable).with_name("gantrymq")),
        *how,
        "--store",
        str(store),
        "--listen-port",
        "0",
        "--json",
    ]
    for key, value in (FOR_TESTS | settings).items():
        words += ["--set", f"{key}={setting_text(value)}"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        yield ready["namesrv"] if namesrv is None else namesrv
    finally:
        process.terminate()
        process.wait(60)


def _java(options: Sequence[str], tests: Sequence[str], told_of: str = "") -> list[Line]:
    """The lines of one process of interop/it; a test that it did not come to has failed."""
    target, lines = IT / "target", list[Line]()
    with tempfile.TemporaryDirectory(prefix="gantrymq-it-", ignore_cleanup_errors=True) as home:
        words = [java_program(), "-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={home}"]
        words += [f"-Duser.home={home}", *options, "-cp", f"{target}/interop-it.jar:{target}/lib/*", MAIN, *tests]
        with Path(home, "stderr").open("w") as stderr:
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=stderr, text=True)
        late = threading.Timer(60 * (2 + MINUTES * len(tests)), process.kill)
        late.start()
        assert process.stdout is not None
        for text in process.stdout:
            lines.append(json.loads(text))
            if told_of:
                verdict = "passed" if lines[-1]["ok"] else "FAILED"
                print(f"{told_of}: {verdict} {lines[-1]['test']}", file=sys.stderr, flush=True)
        process.wait()
        late.cancel()
        why = Path(home, "stderr").read_text()[-600:]
    done = {line["test"] for line in lines}
    return lines + [{"test": test, "ok": False, "ms": 0, "error": why} for test in tests if test not in done]


def report(tests: dict[str, str], found: dict[str, dict[str, Line]]) -> Table:
    """A row for each class: how many of its tests passed where, or why they are left out."""
    rows: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        rows[test.partition("#")[0]].append(test)
    table = Table("class", *(f"passed at {AT[at]}" for at in found), "left out")
    for name, members in rows.items():
        ran = [test for test in members if not tests[test]]
        passed = [f"{sum(found[at][test]['ok'] for test in ran)} of {len(ran)}" if ran else "" for at in found]
        reasons = {tests[test] for test in members} - {""}
        count = f"{len(members) - len(ran)}: " if ran and reasons else ""
        table.add_row(name, *passed, count + "; ".join(sorted(reasons)))
    return table


def main() -> int:
    """Run, print the table, and fail where a test that ran did not pass at ours (or anywhere, if ours did not run)."""
    parser = argparse.ArgumentParser(description="RocketMQ's own client integration tests against brokers outside.")
    parser.add_argument("--at", choices=["java", "ours", "both"], default="both", help="whose brokers")
    parser.add_argument("--only", action="append", default=[], metavar="PART", help="tests whose name has this in it")
    parser.add_argument("--workers", type=int, default=3, help="processes that run tests at once")
    parser.add_argument("--json", type=Path, metavar="FILE", help="what became of each test, as JSON lines")
    options = parser.parse_args()
    build()
    tests = chosen(options.only)
    ran = [test for test, why in tests.items() if not why]
    found = {at: run(ran, at, options.workers) for at in AT if options.at in (at, "both")}
    if options.json:
        lines = [{"at": at, **line} for at, of in found.items() for line in of.values()]
        options.json.write_text("".join(json.dumps(line) + "\n" for line in lines))
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(report(tests, found))
    for at, of in found.items():
        console.print(f"{AT[at]}: {sum(line['ok'] for line in of.values())} of {len(ran)} passed")
    judged = found.get("ours", found.get("java", {}))
    for line in judged.values():
        if not line["ok"]:
            console.print(f"\n{line['test']}\n{line['error']}", style="red", markup=False)
    return 0 if all(line["ok"] for line in judged.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
