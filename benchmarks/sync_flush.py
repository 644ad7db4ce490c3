"""Puts that wait for the disk (SYNC_FLUSH), Java's beside ours, on stores of their own in one run.

    python benchmarks/sync_flush.py [--messages 200000] [--producers 16] [--body-size 1024] [--rounds 3]

Each round runs both sides as fresh processes with as many producer threads; each producer waits for its message before
it makes the next one. A message has a tag, a key and a UNIQ_KEY, and making it is part of the time. What counts is the
ratio of medians, and how many messages share one sync.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from gantrymq import Message, MessageStore, MessageStoreConfig
from gantrymq.config.settings import FlushDiskType
from gantrymq.model.status import PutMessageStatus
from interop.java import JavaStore

QUEUES = 4
SYNC = MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH, sync_flush_timeout_ms=60_000)


def produce(store: MessageStore, numbers: range, body: bytes) -> None:
    """Put one message after the other."""
    for number in numbers:
        key = f"key-{number}"
        message = Message(
            "bench", body, queue_id=number % QUEUES, tags="tag", keys=[key], properties={"UNIQ_KEY": f"{number:032X}"}
        )
        assert store.put(message).status is PutMessageStatus.PUT_OK


def run_ours(path: str, messages: int, producers: int, body_size: int) -> dict[str, float]:
    """Put them all; puts a second, and messages a sync."""
    with MessageStore.open(path, SYNC) as store:
        produce(store, range(QUEUES), bytes(body_size))
        body = bytes(range(256)) * (body_size // 256 + 1)
        threads = [
            threading.Thread(target=produce, args=(store, range(first, messages, producers), body[:body_size]))
            for first in range(producers)
        ]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - began
        while store.dispatch_behind_bytes:
            time.sleep(0.001)
        dispatched = time.perf_counter() - began
    return {"putPerSecond": messages / seconds, "dispatchedPerSecond": messages / dispatched}


def ours(store: Path, options: argparse.Namespace) -> float:
    """Puts a second of ours, in a process of its own."""
    command = [sys.executable, __file__, "--ours", str(store)]
    for name in ("messages", "producers", "body_size"):
        command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return float(answer["putPerSecond"])


def java(store: Path, options: argparse.Namespace) -> float:
    """Puts a second of Java."""
    settings = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": 60_000}
    line = JavaStore(store, settings).run(
        "put-bench", count=options.messages, threads=options.producers, body_size=options.body_size, halt=True
    )[0]
    assert line["statuses"] == {"PUT_OK": options.messages}, line
    return float(line["putPerSecond"])


def main() -> int:
    """Race and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--producers", type=int, default=16)
    parser.add_argument("--body-size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ours", metavar="STORE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours:
        print(json.dumps(run_ours(options.ours, options.messages, options.producers, options.body_size)))
        return 0
    rates: dict[str, list[float]] = {"Java": [], "ours": []}
    for _ in range(options.rounds):
        for name, run in (("Java", java), ("ours", ours)):
            with tempfile.TemporaryDirectory() as folder:
                rates[name].append(run(Path(folder) / "store", options))
    print(f"{options.messages} messages of {options.body_size} bytes, {options.producers} producers, SYNC_FLUSH")
    for name, found in rates.items():
        print(f"{name:5} median {statistics.median(found):8.0f} puts/s  {[round(rate) for rate in found]}")
    print(f"ratio {statistics.median(rates['ours']) / statistics.median(rates['Java']):.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
