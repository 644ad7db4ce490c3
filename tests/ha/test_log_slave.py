"""A slave's copy of a served log: requests, acknowledgements, full disks, and the states in which it stands still."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gantrymq.clock import SystemClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import DiskFullError
from gantrymq.ha.copy import CopyState
from gantrymq.ha.frames import LogFrame
from gantrymq.ha.slave import LogSlave
from gantrymq.model.message import Message
from gantrymq.store.message_store import MessageStore
from mirror_cases import FakeMaster, LogBytes, copied

FILE = 1 << 16
CONFIG = MessageStoreConfig(mapped_file_size_commit_log=FILE, max_hash_slot_num=50, max_index_num=200)
SLAVE = replace(CONFIG, broker_role="SLAVE")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> LogBytes:
    path = tmp_path_factory.mktemp("master") / "store"
    with MessageStore.open(path, CONFIG) as store:
        for number in range(60):
            store.put(Message("T", bytes([number]) * 3_000))
    return LogBytes(path)


@contextmanager
def slave_of(
    master: FakeMaster, path: Path, config: MessageStoreConfig = SLAVE
) -> Iterator[tuple[LogSlave, MessageStore]]:
    with MessageStore.open(path, config) as store:
        slave = LogSlave(store, master, SystemClock())
        try:
            yield slave, store
        finally:
            slave.drain()


def step_until(slave: LogSlave, is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline, slave.view()
        if not slave.step(0):
            time.sleep(0.02)


def test_slave_copies_all_and_acknowledges_what_it_has(log: LogBytes, tmp_path: Path) -> None:
    with FakeMaster(log) as master, slave_of(master, tmp_path) as (slave, store):
        step_until(slave, lambda: slave.view().state is CopyState.IN_SYNC)
        step_until(slave, lambda: master.reports[0][-1] == log.end)
        assert master.reports[0][0] == 1  # RocketMQ's master sends its last file only for 0
        assert store.max_phy_offset == log.end
    assert copied(tmp_path, log) == log.data


def test_slave_goes_on_with_its_end_compared_first(log: LogBytes, tmp_path: Path) -> None:
    with FakeMaster(log) as master:
        master.closes_after = 100_000
        with slave_of(master, tmp_path) as (slave, store):
            step_until(slave, lambda: store.max_phy_offset > FILE)
            step_until(slave, lambda: store.max_phy_offset == log.end)
        assert len(master.reports) > 1
        assert 0 < master.reports[1][0] < FILE * 2
    assert copied(tmp_path, log) == log.data


def test_full_disk_stops_acknowledgements_until_there_is_room(
    log: LogBytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeMaster(log) as master, slave_of(master, tmp_path) as (slave, store):
        append, is_full = store.append_copied, [True]

        def fail(*of: object) -> None:
            if is_full[0] and store.max_phy_offset >= FILE:
                raise DiskFullError(tmp_path, FILE)
            append(*of)  # type: ignore[arg-type]

        monkeypatch.setattr(store, "append_copied", fail, raising=False)
        step_until(slave, lambda: slave.view().state is CopyState.DISK_FULL)
        for _ in range(5):
            slave.step(0)
        end = store.max_phy_offset
        assert slave.view().acked_offset == end < log.end
        assert max(master.reports[0]) <= end
        assert sum("stands still" in line for line in caplog.messages) == 1
        is_full[0] = False
        step_until(slave, lambda: slave.view().state is CopyState.IN_SYNC)
        assert len(master.reports) == 1  # over the same connection
    assert copied(tmp_path, log) == log.data


def test_durable_acknowledgements_wait_for_the_disk(
    log: LogBytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(SLAVE, ha_ack_durable=True, flush_interval_commit_log_ms=10)
    with FakeMaster(log) as master, slave_of(master, tmp_path, config) as (slave, store):
        monkeypatch.setattr(store, "flush_soon", lambda end: None, raising=False)
        monkeypatch.setattr(MessageStore, "flushed_offset", property(lambda self: 0))
        step_until(slave, lambda: store.max_phy_offset == log.end)
        assert max(master.reports[0]) == 1
        monkeypatch.undo()
        step_until(slave, lambda: master.reports[0][-1] == log.end)
        assert store.flushed_offset == log.end


@pytest.mark.parametrize("state", [CopyState.OTHER_FILE_SIZE, CopyState.BEHIND_RETENTION, CopyState.AHEAD])
def test_state_without_remedy_is_named_and_nothing_is_appended(
    log: LogBytes, tmp_path: Path, state: CopyState, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeMaster(log) as master, slave_of(master, tmp_path) as (slave, store):
        step_until(slave, lambda: store.max_phy_offset == log.end)
        slave.drain()
        if state is CopyState.OTHER_FILE_SIZE:
            master.file_size = 2 * FILE
        else:
            master.extent_of = (log.end + 1, log.end + 2) if state is CopyState.BEHIND_RETENTION else (0, log.end - 1)
        again = LogSlave(store, master, SystemClock())
        step_until(again, lambda: again.view().state is state)
        again.step(0)
        assert again.view().reason
        assert sum("stands still" in line for line in caplog.messages) == 1
        assert len(master.reports) == 1
        assert store.max_phy_offset == log.end


def test_record_with_wrong_crc_is_not_appended(log: LogBytes, tmp_path: Path) -> None:
    def flip(frame: LogFrame) -> LogFrame:
        body = bytearray(frame.body)
        if frame.offset <= 40_000 < frame.end_offset:
            body[40_000 - frame.offset] ^= 1
        return LogFrame(frame.offset, bytes(body))

    with FakeMaster(log, flip) as master, slave_of(master, tmp_path) as (slave, store):
        step_until(slave, lambda: slave.view().state is CopyState.BAD_RECORD)
        assert store.max_phy_offset <= 40_000
