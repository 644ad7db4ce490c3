"""Where a log ends to be its master's: short logs, and logs that turn out to be the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gantrymq.clock import SystemClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import LogCopyError
from gantrymq.ha.copy import CopyState
from gantrymq.ha.divergence import DivergenceFile, DivergenceNotes, DivergenceSearch
from gantrymq.ha.held_tail import HeldTail
from gantrymq.model.message import Message
from gantrymq.store.message_store import MessageStore
from mirror_cases import FakeMaster, LogBytes

CONFIG = MessageStoreConfig(mapped_file_size_commit_log=1 << 16, max_hash_slot_num=50, max_index_num=200)


def two_logs(path: Path, common: Sequence[int], master: Sequence[int], slave: Sequence[int]) -> tuple[LogBytes, Path]:
    """A master's log and a slave's store, with bodies of these sizes: first the same messages, then their own."""
    for name in ("master", "slave"):
        with MessageStore.open(path / name, CONFIG) as store:
            for size in common:
                message = Message("T", bytes(size))
                message.born_timestamp_ms = 1
                store.put(message)
    if common:
        raw = (path / "master" / "commitlog" / f"{0:020d}").read_bytes()
        (path / "slave" / "commitlog" / f"{0:020d}").write_bytes(raw)  # the same store times, too
    for name, sizes, fill in (("master", master, b"m"), ("slave", slave, b"s")):
        with MessageStore.open(path / name, CONFIG) as store:
            for size in sizes:
                store.put(Message("T", fill * size))
    return LogBytes(path / "master"), path / "slave"


def test_logs_with_one_small_message_in_common_differ_after_it(tmp_path: Path) -> None:
    log, path = two_logs(tmp_path, [100], [300], [200, 200])
    with FakeMaster(log) as master, MessageStore.open(path, CONFIG) as store:
        first = store.commit_log.read(0)
        cut = DivergenceSearch(store.commit_log, master.find(), clock=SystemClock()).find()
    assert first is not None
    assert cut == first.size_bytes


def test_logs_without_a_message_in_common_are_of_other_brokers(tmp_path: Path) -> None:
    log, path = two_logs(tmp_path, [], [300], [200, 200])
    with (
        FakeMaster(log) as master,
        MessageStore.open(path, CONFIG) as store,
        pytest.raises(LogCopyError, match="nothing in common"),
    ):
        DivergenceSearch(store.commit_log, master.find(), clock=SystemClock()).find()


def test_log_that_the_master_has_by_now_is_not_noted_and_not_cut(tmp_path: Path) -> None:
    log, path = two_logs(tmp_path, [100, 200], [], [])
    cuts: list[str] = []
    config = replace(CONFIG, ha_truncate="auto")
    with FakeMaster(log) as master, MessageStore.open(path, config) as store:
        DivergenceNotes(store, SystemClock(), lambda: cuts.append("cut")).look(master.find())
        assert DivergenceFile(store.fs, path / "config").load() is None
    assert not cuts


def test_log_that_ends_where_the_masters_begins_is_not_continued(tmp_path: Path) -> None:
    log, path = two_logs(tmp_path, [], [300] * 3, [200, 200])
    with FakeMaster(log) as master, MessageStore.open(path, CONFIG) as store:
        end = store.max_phy_offset
        master.extent_of = (end, end + 1000)
        with pytest.raises(LogCopyError) as raised:
            HeldTail(store, master.find())
    assert raised.value.state is CopyState.BEHIND_RETENTION
