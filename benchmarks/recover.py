"""Recovery after a kill, Java's beside ours, on copies of one store in one run.

    python benchmarks/recover.py [--messages 2000000] [--body-size 1024] [--rounds 3]

The store is written by the real RocketMQ and ended by Runtime.halt. Each round recovers one copy with Java (load(), in
milliseconds, without the start of the JVM) and one with ``gantrymq store recover`` (its steps, and the whole process);
what counts is the ratio of medians. Both copies are in the page cache.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from interop.java import JavaStore

CLOSING = "close"


def copy_of(store: Path) -> Path:
    """A sparse copy, its pages in the cache."""
    target = store.with_name(store.name + "-copy")
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-r", "--sparse=always", str(store), str(target)], check=True)
    return target


def java_ms(store: Path) -> tuple[float, int]:
    """(milliseconds of load(), where the log ended) of Java."""
    answer = JavaStore(copy_of(store)).run("recover-time")[0]
    return float(answer["loadMillis"]), int(answer["maxPhyOffset"])


def ours_ms(store: Path) -> tuple[float, float, int]:
    """(milliseconds of the open, of the whole process, where the log ended) of ours."""
    target = copy_of(store)
    began = time.perf_counter()
    command = [str(Path(sys.executable).with_name("gantrymq")), "store", "recover", str(target), "--json"]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    whole = (time.perf_counter() - began) * 1000
    opening = sum(took for step, took in answer["stepsMs"].items() if step != CLOSING)
    return opening, whole, int(answer["maxPhyOffset"])


def main() -> int:
    """Write the store, race, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--body-size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        JavaStore(store).run("put-bench", count=options.messages, body_size=options.body_size, threads=2, halt=True)
        java, ours, whole, ends = [], [], [], set()
        for _ in range(options.rounds):
            millis, end = java_ms(store)
            java.append(millis)
            ends.add(end)
            millis, process, end = ours_ms(store)
            ours.append(millis)
            whole.append(process)
            ends.add(end)
    assert len(ends) == 1, f"the two sides end the log at different places: {ends}"
    print(
        f"{options.messages} messages of {options.body_size} bytes, log of {ends.pop()} bytes, {options.rounds} rounds"
    )
    print(f"Java load()            median {statistics.median(java):8.0f} ms  {[round(x) for x in java]}")
    print(f"ours, opening          median {statistics.median(ours):8.0f} ms  {[round(x) for x in ours]}")
    print(f"ours, whole process    median {statistics.median(whole):8.0f} ms  {[round(x) for x in whole]}")
    print(
        f"ratio {statistics.median(java) / statistics.median(ours):.1f} (opening), "
        f"{statistics.median(java) / statistics.median(whole):.1f} (our whole process)"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
