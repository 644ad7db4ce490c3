"""Many timer messages: all of one second are delivered, none early, and those that wait take no memory."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from store_cases import NOON_MS, await_dispatch
from timer_cases import HOUR_MS, TIMED, TimerCase

pytestmark = pytest.mark.slow
CONFIG = replace(
    TIMED,
    mapped_file_size_commit_log=64 << 20,
    mapped_file_size_consume_queue=600_000,
    mapped_file_size_timer_log=1 << 20,
)
QUEUES = 4
ROOT = Path(__file__).parents[2]


def test_100_000_timers_of_one_second_are_delivered_and_none_is_early(tmp_path: Path) -> None:
    count, due_ms = 100_000, NOON_MS + HOUR_MS
    case = TimerCase(RealFileSystem(), tmp_path / "store", config=CONFIG)
    properties = {"TIMER_OUT_MS": str(due_ms - 1000), "REAL_TOPIC": "orders"}
    for number in range(count):
        more = {**properties, "REAL_QID": str(number % QUEUES), "UNIQ_KEY": f"{number:032X}"}
        case.store.put(Message("rmq_sys_wheel_timer", b"%d" % number, properties=more))
    case.step()
    case.clock.advance(HOUR_MS - 1)
    case.step()
    assert [case.store.next_offset_in_queue("orders", queue_id) for queue_id in range(QUEUES)] == [0] * QUEUES
    case.clock.advance(1)
    case.step()
    await_dispatch(case.store)
    found = np.zeros(count, np.int64)
    for queue_id in range(QUEUES):
        for message in case.delivered(queue_id=queue_id):
            assert message.store_timestamp_ms >= due_ms
            found[int(message.body)] += 1
    assert (found == 1).all()
    case.close()


def test_million_waiting_timers_use_constant_memory() -> None:
    """A reference in a list for each would be 8 MB already; an object for each 50 MB or more."""
    words = [sys.executable, "-m", "benchmarks.timers", "--count", "1000000", "--waiting"]
    done = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["anonymousBytesWaiting"] - found["anonymousBytesBefore"] < 8_000_000
