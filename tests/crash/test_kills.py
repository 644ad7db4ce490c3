"""A real process is killed with SIGKILL while it opens, works, deletes or closes a store on the real disk.

SIGKILL loses nothing that was acknowledged, whatever the flush type; what else is delivered is a message that was put.
"""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crash_cases import TIMES
from lives import SEAL, Plan, is_whole, start

from gantrymq.config.properties import read_settings
from gantrymq.store.message_store import MessageStore
from gantrymq.store.reader import StoreReader
from gantrymq.tools.findings import FindingKind
from gantrymq.tools.verify import verify_store
from store_cases import SMALL_KEYS

CountUp = Callable[[str, int], None]
LIVES = 5
FAR_MS = 1 << 60  # the clock of retention runs ahead
QUICK = {"flushIntervalCommitLog": 5, "flushIntervalConsumeQueue": 5, "flushConsumeQueueThoroughInterval": 20}
KINDS: dict[str, dict[str, Any]] = {
    "ASYNC_FLUSH": {},
    "SYNC_FLUSH": {"flushDiskType": "SYNC_FLUSH"},
    "SYNC_FLUSH by 4 threads": {"flushDiskType": "SYNC_FLUSH"},
    "SYNC_FLUSH by 16 coroutines": {"flushDiskType": "SYNC_FLUSH"},
    "batches": {"flushCommitLogThoroughInterval": 10},
    "batches under SYNC_FLUSH": {"flushDiskType": "SYNC_FLUSH"},
    "extended units": {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 1024},
    "rule of 4.x": {"recoverRule": "4.x"},
    "retention": {"fileReservedTime": 0, "deleteWhen": ";".join(map(str, range(24))), "cleanResourceInterval": 50},
}


def draw_plan(kind: str, path: Path, rng: random.Random) -> Plan:
    settings = SMALL_KEYS | QUICK | KINDS[kind]
    as_coroutines = "coroutines" in kind
    threads = 16 if as_coroutines else 4 if "threads" in kind else rng.choice((1, 2))
    batch = rng.choice((8, 100)) if "batches" in kind else 1
    count = rng.choice((1 << 40, 1 << 40, 40))
    return Plan(str(path), settings, rng.randrange(1 << 30), threads, batch, count, kind == "retention", as_coroutines)


def check(store: MessageStore | StoreReader, acknowledged: dict[int, tuple[int, str]]) -> None:
    """What was said is there, at its place in the log and in its queue; everything that is there was put."""
    units = store._queues if isinstance(store, MessageStore) else store.consume_queues
    delivered = {}
    for queue in units:
        following = None
        for offset, entry in store.lookup.iterate(queue, queue.min_offset, queue.max_offset):
            if entry.phy_offset < store.min_phy_offset:
                continue
            message = store.message_at(entry.phy_offset)
            assert message is not None, f"{queue.topic}/{queue.queue_id}: {offset} points to nothing"
            assert (message.topic, message.queue_id, message.queue_offset) == (queue.topic, queue.queue_id, offset)
            assert is_whole(message), f"{entry.phy_offset} is not what was put: {message}"
            assert following in (None, offset), f"{queue.topic}/{queue.queue_id} has a hole at {following}"
            delivered[entry.phy_offset] = (offset, message.properties[SEAL])
            following = offset + 1
    for place, told in acknowledged.items():
        if place >= store.min_phy_offset:
            assert delivered.get(place) == told, f"{told} was acknowledged at {place}, there is {delivered.get(place)}"


@pytest.mark.parametrize("run", range(TIMES))
@pytest.mark.parametrize("kind", KINDS)
def test_killed_processes_lose_no_acknowledged_message(
    kind: str, run: int, tmp_path: Path, rng: random.Random, count_up: CountUp
) -> None:
    path, acknowledged, ends = tmp_path / "store", dict[int, tuple[int, str]](), Counter[str]()
    for _ in range(LIVES):
        plan = draw_plan(kind, path, rng)
        life = start(plan)
        ends[life.kill_after(rng.choice((0.06, 0.2, 0.5)) * rng.random() * 2, once_open=rng.random() < 0.6)] += 1
        for place, queue_offset, seal in life.acknowledged:
            acknowledged[place] = (queue_offset, seal)
        if path.exists() and any(path.iterdir()) and rng.random() < 0.3:
            with StoreReader.open(path, read_settings(_texts(plan)).config, given=SMALL_KEYS) as reader:
                check(reader, acknowledged)
    reading = read_settings(_texts(plan))
    with MessageStore.open(path, reading.config, given=reading.given, housekeeping=False) as store:
        check(store, acknowledged)
    findings = verify_store(path, reading.config, given=reading.given, now_ms=FAR_MS)
    # A kill between a file of the log and those of its queues leaves these to the next cleaning.
    assert [one for one in findings if one.kind is not FindingKind.QUEUE_MIN_OFFSET_STALE or kind != "retention"] == []
    with MessageStore.open(path, reading.config, given=reading.given, housekeeping=False) as store:
        assert store.recovery.last_exit_ok
        check(store, acknowledged)
    for end, times in ends.items():
        count_up(f"kills while {end}", times)
    count_up("messages acknowledged before a kill", len(acknowledged))


def _texts(plan: Plan) -> dict[str, str]:
    return {key: str(value) for key, value in plan.settings.items()}
