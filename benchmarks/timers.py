"""How late timer messages are that are all due in the same second, and the memory that waiting ones take.

    .venv/bin/python -m benchmarks.timers --count 100000
    .venv/bin/python -m benchmarks.timers --count 1000000 --waiting

Prints one JSON line: the seconds from the due time to the first and to the last delivery (never negative: no message is
early), the processor time of the deliveries, and the anonymous memory before and after the messages wait. With
``--waiting`` the messages are due over a day, and the program ends while they wait.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.model.message import TIMER_TOPIC, Message
from gantrymq.store.message_store import MessageStore
from gantrymq.store.timer.timer_service import TimerMessageService

_QUEUES = 4
_TOPIC = "orders"


def anonymous_bytes() -> int:
    """The memory of this process that no file holds."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found is not None else 0


def timed(number: int, slot_ms: int, body: bytes) -> Message:
    """A timer message as the broker stores it."""
    properties = {
        "UNIQ_KEY": f"7F00000100002A139A55{number:012X}",
        "WAIT": "true",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
        "TIMER_DELIVER_MS": str(slot_ms + 1000),
        "TIMER_OUT_MS": str(slot_ms),
        "REAL_TOPIC": _TOPIC,
        "REAL_QID": str(number % _QUEUES),
    }
    return Message(TIMER_TOPIC, body, properties=properties)


def delivered(store: MessageStore) -> int:
    """How many messages have been given an offset in their topic."""
    return sum(store.next_offset_in_queue(_TOPIC, queue_id) for queue_id in range(_QUEUES))


def run(path: Path, count: int, ahead_s: float) -> dict[str, float]:
    """Let ``count`` messages wait until the same second, and watch their deliveries."""
    with opened(path) as (store, timers, before):
        slot_ms = int(time.time() + ahead_s) * 1000
        put(store, timers, (slot_ms for _ in range(count)))
        waiting = anonymous_bytes()
        due_s = slot_ms / 1000 + 1
        if time.time() >= due_s:
            raise SystemExit("the messages were due before all of them waited: set --ahead to more seconds")
        began_s = time.process_time()
        first_s = 0.0
        while (done := delivered(store)) < count:
            if done and not first_s:
                first_s = time.time()
            time.sleep(0.002)
        last_s = time.time()
        return {
            "count": count,
            "firstLateSeconds": round(first_s - due_s, 3),
            "lastLateSeconds": round(last_s - due_s, 3),
            "deliveryProcessorSeconds": round(time.process_time() - began_s, 3),
            "anonymousBytesBefore": before,
            "anonymousBytesWaiting": waiting,
        }


def wait(path: Path, count: int) -> dict[str, float]:
    """Let ``count`` messages wait that are due in an hour or later, in each second of a day."""
    with opened(path) as (store, timers, before):
        first_ms = int(time.time() + 3600) * 1000
        put(store, timers, (first_ms + number % 86_400 * 1000 for number in range(count)))
        return {"count": count, "anonymousBytesBefore": before, "anonymousBytesWaiting": anonymous_bytes()}


@contextmanager
def opened(path: Path) -> Iterator[tuple[MessageStore, TimerMessageService, int]]:
    """A store, its timers with one message that waits, and the anonymous memory then."""
    with MessageStore.open(path, MessageStoreConfig(mapped_file_size_commit_log=256 << 20)) as store:
        timers = store.timers
        assert timers is not None
        put(store, timers, [int(time.time() * 1000) + 3_600_000])
        yield store, timers, anonymous_bytes()


def put(store: MessageStore, timers: TimerMessageService, slots_ms: Iterable[int]) -> None:
    """Put a message for each slot; return once all are in the wheel."""
    body = bytes(200)
    for number, slot_ms in enumerate(slots_ms):
        store.put(timed(number, slot_ms, body))
    while timers.progress is None or timers.progress.behind_messages or store.dispatch_behind_bytes:
        time.sleep(0.01)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--ahead", type=float, default=30, help="seconds until the messages are due")
    parser.add_argument("--waiting", action="store_true", help="only let them wait")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "store"
        found = wait(place, options.count) if options.waiting else run(place, options.count, options.ahead)
        print(json.dumps(found))
