"""The real RocketMQ store, called from tests: interop/ is built once, then each call is one Java process.

    store = JavaStore(tmp_path / "store", {"mappedFileSizeCommitLog": 65536})
    store.write(1000, profile="mixed", end="halt")
    lines = store.dump()

Nothing here needs pytest. A test without Java skips by name: see `java_available` and `java_required`.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

INTEROP = Path(__file__).resolve().parents[2] / "interop"
OLD_RELEASE, NEW_RELEASE = RELEASES = "5.5.0", "5.5.1"
RELEASE = "GANTRYMQ_ROCKETMQ"  # an environment variable: the release of the real broker, else OLD_RELEASE
MAIN = "org.gantrymq.interop.Main"
KILLED = 137  # what `write` with end="kill-while-writing" exits with
OLDEST_JAVA = 17
STDERR_LINES = 40
JVM_OPTIONS = "GANTRYMQ_JVM_OPTIONS"  # an environment variable: more options of the JVM, parted by blanks
USE_ARCHIVES = "GANTRYMQ_CLASS_ARCHIVES"  # an environment variable, set where the archives are made

Line = dict[str, Any]
Setting = str | int | float | bool


def release() -> str:
    """The release of RocketMQ that a call runs unless it names one."""
    named = os.environ.get(RELEASE, OLD_RELEASE)
    if named not in RELEASES:
        raise JavaError(f"{RELEASE} is {named}; known are {' and '.join(RELEASES)}")
    return named


def slow_down_idle_loop(broker: subprocess.Popen[str]) -> None:
    """Give the lowest priority to a thread of a real broker that never sleeps once it has ended a transaction.

    Each such broker takes a whole core from the tests: apache/rocketmq #10966, up to 5.5.1 at least.
    """
    for thread in Path(f"/proc/{broker.pid}/task").glob("*"):
        with suppress(OSError):  # the thread, or the process, has ended
            if (thread / "comm").read_text().startswith("TransactionalOp"):
                os.setpriority(os.PRIO_PROCESS, int(thread.name), 19)


# What the new release writes where the old one wrote something else of the same meaning.
_WORDS_OF_NEW_RELEASE = {
    "V5_5_1": "V5_5_0",
    "v5_5_1": "v5_5_0",
    "JAVA 515": "JAVA 513",
    "docs/faq/": "docs/bestPractice/06FAQ",
}


def as_by_old_release(text: str) -> str:
    """``text`` with the version and the link to the questions that OLD_RELEASE writes."""
    for new, old in _WORDS_OF_NEW_RELEASE.items():
        text = text.replace(new, old)
    return text


@dataclass(frozen=True)
class Build:
    """interop/ built with one release of RocketMQ's store and broker: its directory and the files there."""

    release: str

    @property
    def target(self) -> Path:
        """The directory; `make interop` makes the same ones."""
        return INTEROP / ("target" if self.release == OLD_RELEASE else f"target-{self.release}")

    @property
    def jar(self) -> Path:
        """The program. The jars that it needs are in lib/ beside it."""
        return self.target / "interop.jar"

    @property
    def stamp(self) -> Path:
        """A file as old as the build; `make interop` has the same one."""
        return self.target / ".built"

    def archive(self, command: str) -> Path:
        """What the JVM made of the classes that a command loads."""
        return self.target / ("cluster.jsa" if command == "cluster" else "classes.jsa")

    def is_current(self) -> bool:
        """Whether it is there, and not older than its sources."""
        if not (self.stamp.exists() and self.jar.exists() and (self.target / "lib").is_dir()):
            return False
        sources = [INTEROP / "pom.xml", *(path for path in (INTEROP / "src").rglob("*") if path.is_file())]
        return self.stamp.stat().st_mtime >= max(path.stat().st_mtime for path in sources)

    def make(self) -> None:
        """Build it if it is not current."""
        self.target.mkdir(exist_ok=True)
        with (self.target / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.is_current():
                words = ["mvn", "--batch-mode", "--quiet", "--file", str(INTEROP / "pom.xml")]
                words += [f"-Dbroker.version={self.release}", f"-Dinterop.target={self.target.name}", "package"]
                _checked(words, timeout=1200)
                self.stamp.touch()


class JavaError(RuntimeError):
    """The Java side, or its build, failed: the message holds the command and the end of its stderr."""


def java_available() -> str | None:
    """None if `run_java` can be expected to work here, else the reason why not, for people."""
    java = _java()
    if java is None:
        return "no java on this machine"
    version = _java_version(java)
    if version < OLDEST_JAVA:
        return f"{java} is version {version}; {OLDEST_JAVA} or newer is needed"
    if not Build(release()).is_current():
        if shutil.which("mvn") is None:
            return "no mvn on this machine, and interop/ is not built"
        if not Path(java).with_name("javac").exists() and shutil.which("javac") is None:
            return "no JDK on this machine (java is there, javac is not), and interop/ is not built"
    return None


def java_required() -> bool:
    """Whether a test without Java must fail (GANTRYMQ_REQUIRE_INTEROP=1, as in CI) and not skip."""
    return os.environ.get("GANTRYMQ_REQUIRE_INTEROP") == "1"


def build_jar() -> Path:
    """interop.jar of this run's release, with its lib/ beside it; built first if it is not current."""
    build = Build(release())
    build.make()
    return build.jar


def use_class_archives() -> None:
    """Let later calls start with what the JVM made of RocketMQ's classes: a start then costs a third less.

    Made after each build, by the JVM with the options of JVM_OPTIONS: one archive of a cluster, one for all else. A JVM
    that makes none goes without.
    """
    build = Build(release())
    build.make()
    with (build.target / ".archive-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _archive(build, "write", "--count", "100")
        _archive(build, "cluster")
    os.environ[USE_ARCHIVES] = "1"


def _archive(build: Build, command: str, *arguments: str) -> None:
    """Make the archive of the classes that a command loads, unless it is newer than the jar."""
    archive = build.archive(command)
    if archive.exists() and archive.stat().st_mtime >= build.jar.stat().st_mtime:
        return
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=build.target) as folder:
        fresh = Path(folder) / archive.name
        words = java_words(command, f"-XX:ArchiveClassesAtExit={fresh}", of=build.release)
        _checked([*words, "--store", f"{folder}/store", *arguments], timeout=600)
        if fresh.exists():
            fresh.replace(archive)


def run_java(
    command: str,
    store: Path | str | None,
    *arguments: str,
    settings: Mapping[str, Setting] | None = None,
    exit_codes: tuple[int, ...] = (0,),
    timeout: float = 600,
    cwd: Path | None = None,
    of: str | None = None,
    **options: Setting | Path | None,
) -> list[Line]:
    """Run one command of interop/ on a store directory and return the JSON lines it printed.

    `store` is None for a command that needs none. `settings` are RocketMQ's keys (`--set key=value`). An
    option `ack_file=path` becomes `--ack-file path`, `halt=True` becomes `--halt`; one that is None or False is left
    out. An exit code not in `exit_codes` is a JavaError. `cwd` is for a command that leaves files where it runs.
    `of` is a release of RocketMQ; None is this run's.
    """
    words = java_words(command, of=of)
    words += [] if store is None else ["--store", str(store)]
    for key, value in (settings or {}).items():
        words += ["--set", f"{key}={setting_text(value)}"]
    for name, option in options.items():
        if option is not None and option is not False:
            words += [f"--{name.replace('_', '-')}", *([] if option is True else [setting_text(option)])]
    done = _checked([*words, *arguments], timeout=timeout, exit_codes=exit_codes, cwd=cwd)
    return [json.loads(line) for line in done.splitlines()]


@dataclass(frozen=True)
class Look:
    """The lines of `dump`, the answers of `query` and `at`, the lines of `log`, of one look at a store."""

    dump: list[Line]
    answers: dict[tuple[str, str], list[int]]
    offsets: list[int]
    log: list[Line]


@dataclass(frozen=True)
class JavaStore:
    """A store directory as the real RocketMQ opens it. Every call loads it, recovers it, and changes it as RocketMQ
    does; with `halt=True` the process ends without a shutdown, which leaves `abort`.
    """

    path: Path
    settings: Mapping[str, Setting] = field(default_factory=dict)
    of: str | None = None  # a release of RocketMQ; None is this run's

    def run(self, command: str, *arguments: str, **options: Any) -> list[Line]:
        return run_java(command, self.path, *arguments, settings=self.settings, of=self.of, **options)

    def dump(self, *, halt: bool = False) -> list[Line]:
        """What RocketMQ recovers and reads, in the shape of `gantrymq store dump --json`.

        `[{"kind": "store", "loaded": False}]` if RocketMQ refuses to load it.
        """
        return self.run("dump", halt=halt, exit_codes=(0, 1))

    def log(self) -> list[Line]:
        """The physical records, in the shape of `gantrymq store log --json`; opens no store and changes nothing."""
        return run_java("log", self.path, of=self.of)

    def query(
        self, pairs: Iterable[tuple[str, str]], *, halt: bool = False, **options: Any
    ) -> dict[tuple[str, str], list[int]]:
        """The index's answers for each (topic, key): physical offsets in RocketMQ's order.

        Options: begin, end (ms), max, type.
        """
        with queries_file(pairs) as file:
            return answers(self.run("query", queries=file, halt=halt, **options))

    def at(self, questions: Iterable[tuple[str, int, int]], *, halt: bool = False, **options: Any) -> list[int]:
        """The queue offset for each (topic, queue, timestamp in ms). Options: boundary."""
        with questions_file(questions) as file:
            lines = self.run("at", questions=file, halt=halt, **options)
        return [line["queueOffset"] for line in lines]

    def look(
        self,
        pairs: Iterable[tuple[str, str]] = (),
        questions: Iterable[tuple[str, int, int]] = (),
        *,
        log: bool = False,
        halt: bool = False,
    ) -> "Look":
        """What `dump`, `query`, `at` and, if it is wanted, `log` say, with one start of Java and one recovery."""
        with queries_file(pairs) as queries, questions_file(questions) as times:
            lines = self.run("look", log=log, queries=queries, questions=times, halt=halt)
        parts: dict[str, list[Line]] = {}
        for line in lines:
            if "part" in line:
                part = parts.setdefault(line["part"], [])
            else:
                part.append(line)
        offsets = [line["queueOffset"] for line in parts["at"]]
        return Look(parts["dump"], answers(parts["query"]), offsets, parts.get("log", []))

    def write(self, count: int, *, end: str = "clean", **options: Any) -> Line | None:
        """Write generated messages; the summary, or None after end="kill-while-writing".

        Options: seed, threads, profile (mixed, plain, delay), body_size, topics ("name:queues,…"), long_topics,
        ack_file, kill_after, store_time, store_time_step.
        """
        codes = (KILLED,) if end == "kill-while-writing" else (0,)
        lines = self.run("write", count=count, end=end, exit_codes=codes, **options)
        return lines[0] if lines else None

    def ingest(self, messages: Iterable[Line], *, halt: bool = False, **options: Any) -> list[Line]:
        """Put messages given as `gantrymq store ingest` takes them; its result lines.

        Options: born_host, store_host (both "127.0.0.1:0" unless told), fixed_time (bornTimestamp), store_time,
        store_time_step: with these two RocketMQ's clock is ours, and the files' bytes can be compared.
        """
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            for message in messages:
                file.write(json.dumps(message) + "\n")
            file.flush()
            return self.run("ingest", file.name, halt=halt, exit_codes=(0, 1), **options)


@contextmanager
def queries_file(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """The name of a file with each (topic, key)."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({f"{topic}|{key}": None for topic, key in pairs}, file)
        file.flush()
        yield file.name


@contextmanager
def questions_file(questions: Iterable[tuple[str, int, int]]) -> Iterator[str]:
    """The name of a file with each (topic, queue, timestamp in ms)."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for topic, queue, timestamp in questions:
            file.write(json.dumps({"topic": topic, "queueId": queue, "timestamp": timestamp}) + "\n")
        file.flush()
        yield file.name


def answers(lines: Iterable[Line]) -> dict[tuple[str, str], list[int]]:
    return {(line["topic"], line["key"]): line["phyOffsets"] for line in lines}


def java_words(command: str, *options: str, of: str | None = None) -> list[str]:
    """The start of a command line of interop/; ``options`` are the JVM's. Builds it first if it must.

    ``of`` is a release of RocketMQ; None is this run's.
    """
    build = Build(of or release())
    build.make()
    options += tuple(os.environ.get(JVM_OPTIONS, "").split())
    archive = build.archive(command)
    if os.environ.get(USE_ARCHIVES) == "1" and archive.exists():
        options += (f"-XX:SharedArchiveFile={archive}",)
    return [java_program(), *options, "-cp", f"{build.jar}:{build.target}/lib/*", MAIN, command]


def java_program() -> str:
    """The java to run; raises JavaError where there is none."""
    java = _java()
    if java is None:
        raise JavaError("no java on this machine")
    return java


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin/java").exists():
        return str(Path(home) / "bin/java")
    return shutil.which("java")


def _java_version(java: str) -> int:
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(version.group(1)) if version else 0


def setting_text(value: Setting | Path) -> str:
    """A value as RocketMQ's properties and our options write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _checked(words: list[str], *, timeout: float, exit_codes: tuple[int, ...] = (0,), cwd: Path | None = None) -> str:
    """Stdout of a program that ended with one of the exit codes."""
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,  # at the end of its input a cluster stops
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env=os.environ | {"LC_ALL": "C.UTF-8"},  # Java takes the encoding of file names from it
        timeout=timeout,
        check=False,
        cwd=cwd,
    )
    if done.returncode not in exit_codes:
        tail = "\n".join((done.stderr or done.stdout).splitlines()[-STDERR_LINES:])
        raise JavaError(f"exit code {done.returncode} of {' '.join(map(str, words))}\n{tail}")
    return done.stdout
