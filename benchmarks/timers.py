"""How late timer messages are that are all due in the same second, and the memory that waiting ones take.

    .venv/bin/python -m benchmarks.timers --count 100000

Prints one JSON line: the seconds from the due time to the first and to the last delivery (never negative: no message is
early), the processor time of the deliveries, and the anonymous memory before and after the messages wait.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from pathlib import Path

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.model.message import TIMER_TOPIC, Message
from gantrymq.store.message_store import MessageStore

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
    body = bytes(200)
    with MessageStore.open(path, MessageStoreConfig(mapped_file_size_commit_log=256 << 20)) as store:
        store.put(timed(0, int(time.time() * 1000) + 600_000, body))
        timers = store.timers
        assert timers is not None
        while timers.progress is None or timers.progress.behind_messages:
            time.sleep(0.01)
        before = anonymous_bytes()
        slot_ms = int(time.time() + ahead_s) * 1000
        for number in range(count):
            store.put(timed(number, slot_ms, body))
        while timers.progress.behind_messages or store.dispatch_behind_bytes:
            time.sleep(0.01)
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--ahead", type=float, default=30, help="seconds until the messages are due")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run(Path(folder) / "store", options.count, options.ahead)))
