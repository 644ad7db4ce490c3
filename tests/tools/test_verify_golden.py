"""Healthy stores have no finding: those the real RocketMQ wrote, and ours, closed, killed and live."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from gantrymq.fs.memory import MemoryFileSystem
from gantrymq.store.message_store import MessageStore
from gantrymq.tools.findings import Finding, Level
from gantrymq.tools.verify import verify_store
from golden_stores import NAMES, unpack
from store_cases import GEOMETRY_KEYS, ROOT, SMALL, await_dispatch, fill, open_store, tree

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
def test_a_golden_store_has_what_is_known_of_it_and_nothing_else(name: str, tmp_path: Path) -> None:
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
def test_a_store_of_ours_has_no_finding(rng: random.Random, messages: int) -> None:
    fs = MemoryFileSystem()
    with open_store(fs) as store:
        if messages:
            fill(store, messages, rng)
        await_dispatch(store)
        live = list(verify_store(ROOT, SMALL, given=GEOMETRY_KEYS, fs=fs))
        assert {finding.level for finding in live} <= {Level.NOTE}
    found = verify_store(ROOT, SMALL, given=GEOMETRY_KEYS, fs=fs)
    assert list(found) == []
    assert (found.summary.records, found.summary.findings) == (messages, 0)
    assert list(verify_store(ROOT, fs=fs)) == []  # also where nobody says how long the files are


def test_a_power_cut_leaves_notes_alone_once_it_is_recovered(rng: random.Random) -> None:
    fs = MemoryFileSystem()
    store = open_store(fs)
    fill(store, 200, rng)
    await_dispatch(store)
    after = fs.crash_clone(0.5, rng.randrange(1 << 30))
    store.close()
    open_store(after).close()
    found = [one for one in verify_store(ROOT, SMALL, given=GEOMETRY_KEYS, fs=after) if one.level is Level.DAMAGE]
    assert found == []
