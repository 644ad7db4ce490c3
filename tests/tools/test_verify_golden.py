"""Healthy stores have no finding: those the real RocketMQ wrote, and ours, closed, killed and live."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from gantrymq.model.message import Message
from gantrymq.store.message_store import MessageStore
from gantrymq.store.paths import StorePaths
from gantrymq.store.retention import CleanConsumeQueueService
from gantrymq.tools.findings import Finding, Severity
from gantrymq.tools.verify import STEP, verify_store
from golden_stores import NAMES, unpack
from memory_file_system import MemoryFileSystem
from store_cases import BARE, GEOMETRY_KEYS, ROOT, SMALL, await_dispatch, copy_files, fill, open_store, tree

# What a store holds that its broker did not close, or that was damaged for the purpose: (level, kind) and how often.
BEFORE_RECOVERY = {
    "bad-crc": {("damage", "record-crc"): 1, ("note", "queue-behind"): 6, ("note", "index-will-be-rebuilt"): 1},
    "direct-killed": {("note", "queue-behind"): 7, ("note", "index-will-be-rebuilt"): 1},
    "lost-queues": {("note", "queue-behind"): 7},
    "lost-queues-many-files": {("note", "queue-behind"): 7},
    "torn-tail": {("note", "log-tail"): 1, ("note", "queue-ahead"): 1, ("note", "index-will-be-rebuilt"): 1},
}
# Where a recovery cut the log, the index still points: as with RocketMQ.
AFTER_RECOVERY = {"bad-crc": {("note", "index-entry-nowhere"): 1}}


def kinds(findings: list[Finding]) -> dict[tuple[str, str], int]:
    return dict(Counter((finding.level.value, finding.kind.value) for finding in findings))


@pytest.mark.parametrize("name", NAMES)
def test_verify_of_golden_store_has_exactly_known_findings(name: str, tmp_path: Path) -> None:
    store = unpack(name, tmp_path) / "store"
    before = tree(store)
    assert kinds(list(verify_store(store))) == BEFORE_RECOVERY.get(name, {})
    assert tree(store) == before
    MessageStore.open(store, housekeeping=False).close()
    found = verify_store(store)
    assert kinds(list(found)) == AFTER_RECOVERY.get(name, {})
    assert found.summary.findings == 0
    assert found.summary.last_exit_ok


@pytest.mark.parametrize("messages", [0, 1, 60, 400])
def test_verify_of_own_store_has_no_finding(rng: random.Random, messages: int) -> None:
    fs = MemoryFileSystem()
    with open_store(fs) as store:
        if messages:
            fill(store, messages, rng)
        await_dispatch(store)
        live = list(verify_store(ROOT, SMALL, given=GEOMETRY_KEYS, fs=fs))
        assert {finding.level for finding in live} <= {Severity.NOTE}
    found = verify_store(ROOT, SMALL, given=GEOMETRY_KEYS, fs=fs)
    assert list(found) == []
    assert (found.summary.records, found.summary.findings) == (messages, 0)
    assert list(verify_store(ROOT, fs=fs)) == []  # also where nobody says how long the files are


def test_recovered_power_cut_leaves_only_notes(rng: random.Random) -> None:
    fs = MemoryFileSystem()
    store = open_store(fs)
    fill(store, 200, rng)
    await_dispatch(store)
    after = fs.crash_clone(0.5, rng.randrange(1 << 30))
    store.close()
    open_store(after).close()
    found = [one for one in verify_store(ROOT, SMALL, given=GEOMETRY_KEYS, fs=after) if one.level is Severity.DAMAGE]
    assert found == []


def light_store(fs: MemoryFileSystem) -> None:
    """A store as RocketMQ leaves it with enableLmq: what names a light queue stands in that one, too."""
    with open_store(fs, config=BARE) as store:
        for number in range(60):
            light = {"INNER_MULTI_DISPATCH": "%LMQ%other,%LMQ%client", "INNER_MULTI_QUEUE_OFFSET": f"7,{number}"}
            store.put(Message("parent", b"x" * 100, properties=light))
        await_dispatch(store)
    parent, client = (StorePaths(ROOT).consume_queue / topic / "0" for topic in ("parent", "%LMQ%client"))
    copy_files(fs, fs, parent, client)


def test_light_queue_may_name_records_of_other_queue_in_order(rng: random.Random) -> None:
    fs = MemoryFileSystem()
    light_store(fs)
    assert kinds(list(verify_store(ROOT, fs=fs))) == {("note", "not-honoured"): 1}
    name = fs.scan(StorePaths(ROOT).consume_queue / "%LMQ%client" / "0")[1].name
    unit = fs.open(StorePaths(ROOT).consume_queue / "parent" / "0" / name).read_at(0, 20)
    fs.open(StorePaths(ROOT).consume_queue / "%LMQ%client" / "0" / name, writable=True).write_at(20, unit)
    assert kinds(list(verify_store(ROOT, fs=fs))) == {("damage", "queue-entry-order"): 1, ("note", "not-honoured"): 1}


def test_recovery_leaves_light_queues_their_units() -> None:
    fs = MemoryFileSystem()
    light_store(fs)
    fs.open(StorePaths(ROOT).abort, writable=True, create=True)
    with open_store(fs, config=replace(BARE, accept_without_effect="enableLmq")) as store:
        assert store.queues() == [("%LMQ%client", 0, 0, 60), ("parent", 0, 0, 60)]


def test_retention_at_work_is_no_damage(rng: random.Random) -> None:
    """The writer removes files of the log, then those of queues and index, when the first of them have been read."""
    fs = MemoryFileSystem()
    with open_store(fs) as store:
        fill(store, 600, rng)
        await_dispatch(store)
        log = store._log.queue
        log.flush_all()
        files = len(log.files)

        def progress(step: str, done: int, total: int) -> None:
            if step == STEP and len(log.files) == files:
                while len(log.files) > files // 2:
                    assert log.remove_first(0, 0)
                CleanConsumeQueueService(store._log, store._queues, store._index, store.config).step(0)

        found = list(verify_store(ROOT, SMALL, given=GEOMETRY_KEYS, fs=fs, progress=progress))
        assert len(log.files) == files // 2
        assert [finding for finding in found if finding.level is Severity.DAMAGE] == []
