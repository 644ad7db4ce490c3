"""What is old goes: when, in what order, what never goes, and when a full disk refuses puts."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from faulty_file_system import FaultyFileSystem, broken_disk
from gantrymq.clock import ManualClock
from gantrymq.config.properties import read_settings
from gantrymq.config.settings import FlushDiskType, MessageStoreConfig
from gantrymq.errors import SyncFailedError
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.message_store import MessageStore
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queues import ConsumeQueues
from gantrymq.store.retention import CleanCommitLogService, CleanConsumeQueueService, DiskSpace, is_time_to_do
from gantrymq.store.slave_acks import SlaveAcks, SlowestSlave
from gated_file_system import GatedFileSystem
from memory_file_system import MemoryFileSystem
from store_cases import NOON_MS, ROOT, SMALL, await_dispatch, bodies, numbered, open_store

HOUR_MS = 3_600_000
FILE_SIZE = 4096
# NOON_MS is 22:13 in UTC.
ANY_HOUR = replace(SMALL, mapped_file_size_commit_log=FILE_SIZE, delete_when="22", file_reserved_time_hours=72)
ANOTHER_HOUR = replace(ANY_HOUR, delete_when="04")


pytestmark = pytest.mark.usefixtures("utc")


class Keeper:
    """A log of ``files`` full files and an empty last one, its cleaner, and a clock that begins at the first run."""

    def __init__(self, files: int, config: MessageStoreConfig = ANY_HOUR) -> None:
        self.clock = ManualClock(NOON_MS)
        self.fs = MemoryFileSystem(clock=self.clock)
        self.log = CommitLog(self.fs, StorePaths(ROOT), FILE_SIZE)
        self.fs.make_directory(StorePaths(ROOT).commit_log)
        for _ in range(files):
            self.log.queue.last_for_append().append(bytes(FILE_SIZE))
        self.log.queue.last_for_append().append(b"a record begins here")
        self.log.queue.flush_all()
        self.cleaned = 0
        space = DiskSpace(self.fs, StorePaths(ROOT), config)
        self.queues = ConsumeQueues(self.fs, StorePaths(ROOT), config)
        self.checkpoint = StoreCheckpoint(self.fs, StorePaths(ROOT).checkpoint)
        self.service = CleanCommitLogService(
            self.log, self.queues, self.checkpoint, space, config, self._note, start_ms=NOON_MS
        )
        self.clock.advance(60_000)

    def _note(self) -> None:
        self.cleaned += 1

    def step(self, after_ms: int = 0) -> None:
        self.clock.advance(after_ms)
        self.service.step(self.clock.now_ms())

    def steps(self, count: int, apart_ms: int = 100) -> None:
        for _ in range(count):
            self.step(apart_ms)

    @property
    def begins(self) -> list[int]:
        """Where the files on the disk begin, counted in files."""
        return [int(entry.name) // FILE_SIZE for entry in self.fs.scan(StorePaths(ROOT).commit_log)]


@pytest.mark.parametrize("vouched_for", [0, FILE_SIZE - 1, FILE_SIZE])
def test_log_file_is_deleted_only_after_its_units_are_durable(vouched_for: int) -> None:
    """And their names. What the checkpoint vouches for is; the units of messages behind the file need not be."""
    keeper = Keeper(2)
    keeper.checkpoint.page.logics_physical_offset = vouched_for
    queue = keeper.queues.get_or_create("orders", 0)
    queue.append_units(0, memoryview(bytes([7] * 20)), np.zeros(1, np.int64), 100)
    keeper.step(72 * HOUR_MS)
    assert keeper.begins == [1, 2]
    left = ConsumeQueues(keeper.fs.crash_clone(0.0, 0), StorePaths(ROOT), ANY_HOUR)
    left.load()
    kept = left.get("orders", 0)
    units = kept.read_bytes(0, 20) if kept is not None else b""
    assert units == (b"" if vouched_for == FILE_SIZE else bytes([7] * 20))


# The hour


@pytest.mark.parametrize(
    ("when", "hour", "is_time"),
    [
        ("04", 4, True),
        ("04", 5, False),
        ("4", 4, True),
        ("04;16", 16, True),
        ("04; 16", 16, True),
        ("04;16", 17, False),
    ],
)
def test_delete_when_matches_each_listed_hour(when: str, hour: int, is_time: bool) -> None:
    midnight = NOON_MS - NOON_MS % (24 * HOUR_MS)
    assert is_time_to_do(when, midnight + hour * HOUR_MS) is is_time
    assert is_time_to_do(when, midnight + (hour + 1) * HOUR_MS - 1) is is_time


# The disk


@pytest.mark.parametrize(
    ("used", "must_clean", "whatever_age"),
    [(0.75, False, False), (0.76, True, False), (0.85, True, False), (0.86, True, True), (1.0, True, True)],
)
def test_fuller_disk_deletes_more_eagerly(used: float, must_clean: bool, whatever_age: bool) -> None:
    keeper = Keeper(1)
    keeper.fs.simulated_used_ratio = used
    assert DiskSpace(keeper.fs, StorePaths(ROOT), ANY_HOUR).update() == (must_clean, whatever_age)


@pytest.mark.parametrize(
    ("key", "given", "used", "found"),
    [
        ("diskMaxUsedSpaceRatio", 5, 0.10, (False, False, False)),
        ("diskMaxUsedSpaceRatio", 5, 0.11, (True, False, False)),
        ("diskMaxUsedSpaceRatio", 98, 0.85, (False, False, False)),
        ("diskMaxUsedSpaceRatio", 98, 0.86, (True, True, False)),
        ("diskSpaceCleanForciblyRatio", 0, 0.30, (False, False, False)),
        ("diskSpaceCleanForciblyRatio", 0, 0.31, (True, True, False)),
        ("diskSpaceWarningLevelRatio", 110, 0.90, (True, True, False)),
        ("diskSpaceWarningLevelRatio", 110, 0.91, (True, True, True)),
    ],
)
def test_ratio_out_of_bounds_becomes_nearest_allowed(
    key: str, given: int, used: float, found: tuple[bool, bool, bool]
) -> None:
    keeper = Keeper(1)
    keeper.fs.simulated_used_ratio = used
    space = DiskSpace(keeper.fs, StorePaths(ROOT), read_settings({key: str(given)}, ANY_HOUR).config)
    assert (*space.update(), space.refuses_puts) == found


def test_puts_are_refused_above_90_and_taken_again_only_at_85() -> None:
    keeper = Keeper(1)
    space = DiskSpace(keeper.fs, StorePaths(ROOT), ANY_HOUR)
    refused = []
    for used in (0.86, 0.90, 0.91, 0.90, 0.86, 0.85, 0.90, 0.91):
        keeper.fs.simulated_used_ratio = used
        space.update()
        refused.append(space.refuses_puts)
    assert refused == [False, False, True, True, True, False, False, True]


def test_disk_of_queues_counts_like_disk_of_log(monkeypatch: pytest.MonkeyPatch) -> None:
    fs, paths = MemoryFileSystem(), StorePaths(ROOT)
    fs.make_directory(paths.commit_log)
    fs.make_directory(paths.consume_queue)

    def used_ratio(path: Path) -> float:
        return 0.91 if path == paths.consume_queue else 0.1

    monkeypatch.setattr(fs, "used_ratio", used_ratio)
    space = DiskSpace(fs, paths, ANY_HOUR)
    assert space.update() == (True, True)
    assert space.refuses_puts


def test_store_without_directories_uses_no_disk() -> None:
    fs = MemoryFileSystem()
    fs.simulated_used_ratio = 0.99
    assert DiskSpace(fs, StorePaths(ROOT), ANY_HOUR).used_percent() == 0


# The log


def test_first_retention_run_is_a_minute_after_start() -> None:
    keeper = Keeper(2, replace(ANY_HOUR, file_reserved_time_hours=0))
    keeper.service.step(NOON_MS + 59_999)
    assert keeper.begins == [0, 1, 2]
    keeper.service.step(NOON_MS + 60_000)
    assert keeper.begins == [1, 2]


def test_file_unmodified_for_reserved_time_is_deleted() -> None:
    keeper = Keeper(2)
    keeper.step(72 * HOUR_MS - 60_001)
    assert keeper.begins == [0, 1, 2]
    keeper.step(10_000)
    assert keeper.begins == [1, 2]
    assert keeper.cleaned == 1


def test_recently_modified_first_file_keeps_all_later_files() -> None:
    keeper = Keeper(2)
    keeper.clock.advance(72 * HOUR_MS)
    assert keeper.log.queue.first is not None
    keeper.log.queue.first.file.write_at(0, b"x")
    keeper.steps(3)
    assert keeper.begins == [0, 1, 2]


def test_expired_files_are_kept_outside_delete_hour() -> None:
    keeper = Keeper(2, ANOTHER_HOUR)
    keeper.steps(3, 72 * HOUR_MS)
    assert keeper.begins == [0, 1, 2]


def test_last_log_file_is_never_deleted() -> None:
    keeper = Keeper(2)
    keeper.steps(20, 72 * HOUR_MS)
    assert keeper.begins == [2]


def test_retention_run_deletes_at_most_ten_files() -> None:
    keeper = Keeper(15)
    keeper.step(72 * HOUR_MS)
    keeper.steps(30, 100)
    assert keeper.begins == list(range(10, 16))
    keeper.step(10_000)
    keeper.steps(30, 100)
    assert keeper.begins == [15]


def test_deletions_of_run_are_100_ms_apart() -> None:
    keeper = Keeper(3, replace(ANY_HOUR, delete_file_batch_max=2))
    assert keeper.service.interval_ms == 10_000
    keeper.step(72 * HOUR_MS)
    assert (keeper.begins, keeper.service.interval_ms) == ([1, 2, 3], 100)
    keeper.step(100)
    assert (keeper.begins, keeper.service.interval_ms) == ([2, 3], 10_000)


def test_expired_files_above_first_ratio_are_deleted_at_any_hour() -> None:
    keeper = Keeper(2, ANOTHER_HOUR)
    keeper.fs.simulated_used_ratio = 0.80
    keeper.step()
    assert keeper.begins == [0, 1, 2]
    keeper.step(72 * HOUR_MS)
    assert keeper.begins == [1, 2]


def test_disk_use_above_85_percent_deletes_files_of_any_age() -> None:
    keeper = Keeper(2, ANOTHER_HOUR)
    keeper.fs.simulated_used_ratio = 0.86
    keeper.steps(2)
    assert keeper.begins == [2]


def test_run_that_has_made_room_cuts_off_no_slave() -> None:
    keeper = Keeper(3, ANOTHER_HOUR)
    keeper.service.slaves = SlaveAcks(ANOTHER_HOUR)
    keeper.service.slaves.slowest_slave = lambda: SlowestSlave("10.0.0.2:4711", 0)
    keeper.fs.simulated_used_ratio = 0.86
    keeper.step()
    assert keeper.begins == [1, 2, 3]
    keeper.fs.simulated_used_ratio = 0.85
    keeper.steps(2)
    assert keeper.begins == [1, 2, 3]


def test_deletion_for_space_logs_usage_path_and_offsets(caplog: pytest.LogCaptureFixture) -> None:
    keeper = Keeper(2, ANOTHER_HOUR)
    keeper.fs.simulated_used_ratio = 0.86
    keeper.steps(2)
    lines = [one for one in caplog.records if "retention removed a file of the commit log" in one.getMessage()]
    assert [line.levelname for line in lines] == ["WARNING", "WARNING"]
    for number, line in enumerate(lines):
        text = line.getMessage()
        assert "disk use 86.0 %" in text
        assert f"{StorePaths(ROOT).commit_log}/{number * FILE_SIZE:020d}" in text
        assert f"offsets {number * FILE_SIZE} to {(number + 1) * FILE_SIZE - 1}" in text
        assert "disk use, whatever the age" in text


@pytest.mark.parametrize(
    ("used", "level", "reason"), [(0.80, "WARNING", "disk use, expired"), (0.10, "INFO", "expired")]
)
def test_deletion_of_expired_file_logs_warning_only_for_space(
    caplog: pytest.LogCaptureFixture, used: float, level: str, reason: str
) -> None:
    caplog.set_level("INFO", "gantrymq.store.retention")
    keeper = Keeper(1, ANOTHER_HOUR if used > 0.5 else ANY_HOUR)
    keeper.fs.simulated_used_ratio = used
    keeper.step(72 * HOUR_MS)
    assert keeper.begins == [1]
    [line] = [one for one in caplog.records if "retention removed a file" in one.getMessage()]
    assert line.levelname == level
    assert f"({reason}; disk use {used * 100:.1f} %)" in line.getMessage()


def test_full_disk_and_recovered_disk_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    keeper = Keeper(1)
    space = DiskSpace(keeper.fs, StorePaths(ROOT), ANY_HOUR)
    for used in (0.5, 0.91, 0.95, 0.88, 0.84, 0.5):
        keeper.fs.simulated_used_ratio = used
        space.update()
    full, room = caplog.messages
    assert "messages are rejected" in full
    assert "91.0 %" in full
    assert "messages are accepted again" in room
    assert "84.0 %" in room


def test_full_disk_keeps_unexpired_files_without_forced_cleaning() -> None:
    keeper = Keeper(2, replace(ANOTHER_HOUR, clean_file_forcibly_enable=False))
    keeper.fs.simulated_used_ratio = 0.86
    keeper.steps(2)
    assert keeper.begins == [0, 1, 2]


def test_by_hand_expired_files_go_at_any_hour_for_twenty_runs() -> None:
    keeper = Keeper(30, replace(ANOTHER_HOUR, delete_file_batch_max=1))
    keeper.clock.advance(72 * HOUR_MS)
    keeper.steps(1, 10_000)
    assert len(keeper.begins) == 31
    keeper.service.delete_manually()
    keeper.steps(25, 10_000)
    assert keeper.begins == list(range(20, 31))


def test_manual_deletion_keeps_unexpired_files() -> None:
    keeper = Keeper(2, ANOTHER_HOUR)
    keeper.service.delete_manually()
    keeper.steps(5, 10_000)
    assert keeper.begins == [0, 1, 2]


def test_held_file_and_later_files_are_kept_and_readable() -> None:
    keeper = Keeper(2)
    held = keeper.log.get_message(0, 10)
    assert held is not None
    keeper.step(72 * HOUR_MS)
    keeper.steps(3, 10_000)
    assert keeper.begins == [0, 1, 2]
    assert keeper.log.min_offset == FILE_SIZE, "what is going away is no longer offered"
    assert keeper.log.get_message(0, 10) is None
    assert held.array.tolist() == [0] * 10
    held.release()
    keeper.steps(3, 10_000)
    assert keeper.begins == [2]


def test_file_held_for_two_minutes_is_deleted_by_force() -> None:
    keeper = Keeper(2, replace(ANY_HOUR, delete_file_batch_max=1))
    held = keeper.log.get_message(0, 10)
    assert held is not None
    keeper.step(72 * HOUR_MS)
    keeper.step(119_999)
    assert keeper.begins == [0, 1, 2]
    keeper.step(10_000)
    assert keeper.begins == [1, 2]
    assert held.array.tolist() == [0] * 10, "the reader's view outlives the file"
    held.release()


def test_deletion_of_held_file_is_retried_outside_hour() -> None:
    keeper = Keeper(2)
    held = keeper.log.get_message(0, 10)
    assert held is not None
    keeper.step(72 * HOUR_MS)
    held.release()
    keeper.clock.advance(2 * HOUR_MS)  # now it is 00:14
    keeper.step()
    assert keeper.begins == [1, 2]
    assert keeper.cleaned == 1


# The queues and the index


def test_retention_deletes_queue_and_index_files_of_deleted_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(NOON_MS)
    fs = MemoryFileSystem(clock=clock)
    with open_store(fs, clock=clock) as store:
        results = [store.put(message) for message in numbered(600)]
        rare = store.put(Message("rare", b"first of its queue"))
        await_dispatch(store)
        log, queues, index = store._log, store._queues, store._index
        assert index is not None
        log.queue.flush_all()
        units = StorePaths(ROOT).consume_queue / "orders" / "0"
        before = len(fs.scan(units)), len(index.files)
        while log.queue.first is not log.queue.files[-2]:
            log.queue.remove_first(clock.now_ms(), 0)
        cleaner = CleanConsumeQueueService(log, queues, index, store.config, lambda: True)
        cleaner.step(clock.now_ms())
        told = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
        assert any(line.endswith(" of consume queues") for line in told)
        assert any(line.endswith(" of the index") for line in told)
        kept = [result for result in results if result.phy_offset >= log.min_offset]
        queue = queues.get("orders", 0)
        assert queue is not None
        assert queue.min_offset == kept[0].queue_offset > 0
        assert len(bodies(store)) == len(kept)
        assert store.get("rare", 0, 0).messages[0].phy_offset == rare.phy_offset
        assert len(fs.scan(units)) < before[0]
        assert int(fs.scan(units)[0].name) // 20 <= kept[0].queue_offset
        assert len(index.files) < before[1]
        assert index.files[0].header.end_phy_offset >= log.min_offset
        # With nothing new gone there is nothing to do.
        left = fs.scan(units)
        cleaner.step(clock.now_ms())
        assert fs.scan(units) == left
    with open_store(fs, clock=clock) as store:
        assert len(bodies(store)) == len(kept)


def test_queues_keep_units_of_files_not_durably_deleted() -> None:
    """The log's directory could not be synced, so its first file may come back, and its units must be there then."""
    clock = ManualClock(NOON_MS)
    disk = MemoryFileSystem(clock=clock)
    fs = FaultyFileSystem(disk, error=broken_disk)
    with open_store(fs, clock=clock) as store:
        for message in numbered(600):
            store.put(message)
        await_dispatch(store)
        log, queues = store._log, store._queues
        log.queue.flush_all()
        queues.flush()
        cleaner = CleanConsumeQueueService(log, queues, None, store.config)
        units = StorePaths(ROOT).consume_queue / "orders" / "0"
        before = len(fs.scan(units))
        fs.fail_at = len(fs.operations) + 2  # the first is the removal
        with pytest.raises(SyncFailedError):
            log.queue.remove_first(clock.now_ms(), 0)
        assert fs.operations[-1] == ("sync_directory", StorePaths(ROOT).commit_log)
        fs.fail_at = len(fs.operations) + 1
        with pytest.raises(SyncFailedError):
            cleaner.step(clock.now_ms())
        assert len(fs.scan(units)) == before
        for seed in range(10):
            with open_store(disk.crash_clone(0.5, seed), clock=clock) as left:
                oldest = left.message_at(left.min_phy_offset)
                assert oldest is not None
                assert len(bodies(left)) == 600 - oldest.queue_offset
        cleaner.step(clock.now_ms())  # now the disk is well
        assert len(fs.scan(units)) < before
        assert log.min_offset > 0


def test_failed_removal_is_retried() -> None:
    clock = ManualClock(NOON_MS)
    fs = GatedFileSystem("remove", "consumequeue")
    with open_store(fs, clock=clock) as store:
        for message in numbered(600):
            store.put(message)
        await_dispatch(store)
        log, queues = store._log, store._queues
        log.queue.flush_all()
        while log.queue.first is not log.queue.files[-2]:
            log.queue.remove_first(clock.now_ms(), 0)
        cleaner = CleanConsumeQueueService(log, queues, None, store.config)
        units = StorePaths(ROOT).consume_queue / "orders" / "0"
        before = len(fs.scan(units))
        fs.broken = True
        with pytest.raises(OSError, match="Input/output error"):
            cleaner.step(clock.now_ms())
        fs.broken = False
        assert len(fs.scan(units)) == before
        cleaner.step(clock.now_ms())
        assert len(fs.scan(units)) < before


def test_queues_keep_units_of_held_log_file() -> None:
    """Whoever closes and opens the store while a file waits for its reader finds every unit of it."""
    clock = ManualClock(NOON_MS)
    fs = MemoryFileSystem(clock=clock)
    with open_store(fs, clock=clock) as store:
        for message in numbered(600):
            store.put(message)
        await_dispatch(store)
        log, queues, index = store._log, store._queues, store._index
        log.queue.flush_all()
        queues.flush()
        cleaner = CleanConsumeQueueService(log, queues, index, store.config)
        held = log.queue.files[0].select(0, 100)
        assert held is not None
        assert not log.queue.remove_first(clock.now_ms(), 120_000)
        assert log.min_offset > 0
        units = StorePaths(ROOT).consume_queue / "orders" / "0"
        before = fs.scan(units)
        cleaner.step(clock.now_ms())
        assert fs.scan(units) == before
        with open_store(fs.kill_clone(), clock=clock) as left:
            assert left.min_phy_offset == 0
            assert len(bodies(left)) == 600
        held.release()
        assert log.queue.remove_first(clock.now_ms(), 120_000)
        cleaner.step(clock.now_ms())
        assert len(fs.scan(units)) < len(before)


# The whole store


def eventually(store: MessageStore, clock: ManualClock, status: PutMessageStatus) -> None:
    """Let the cleaner run until a put has this status."""
    deadline = time.monotonic() + 20
    while store.put(Message("orders", b"x")).status is not status:
        assert time.monotonic() < deadline, store.failures
        clock.advance(1)
        time.sleep(0.001)


def test_store_refuses_puts_on_full_disk_and_takes_them_again() -> None:
    clock = ManualClock(NOON_MS)
    fs = MemoryFileSystem(clock=clock)
    config = replace(SMALL, clean_resource_interval_ms=1, delete_commit_log_files_interval_ms=1)
    with open_store(fs, config=config, clock=clock, housekeeping=True) as store:
        store.put_batch(numbered(400))
        await_dispatch(store)
        clock.advance(60_000)
        fs.simulated_used_ratio = 0.91
        eventually(store, clock, PutMessageStatus.SERVICE_NOT_AVAILABLE)
        assert not store.is_writable
        assert store.put_batch(numbered(3)).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        fs.simulated_used_ratio = 0.85
        eventually(store, clock, PutMessageStatus.PUT_OK)
        assert store.is_writable
    assert not store.failures


def test_manual_deletion_removes_expired_files() -> None:
    clock = ManualClock(NOON_MS)
    fs = MemoryFileSystem(clock=clock)
    config = replace(
        SMALL,
        file_reserved_time_hours=0,
        clean_resource_interval_ms=1,
        delete_commit_log_files_interval_ms=1,
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
    )
    with open_store(fs, config=config, clock=clock, housekeeping=True) as store:
        store.put_batch(numbered(400))
        await_dispatch(store)
        clock.advance(60_000)
        store.delete_expired_files()
        deadline = time.monotonic() + 20
        while store.min_phy_offset < 2 * SMALL.mapped_file_size_commit_log or len(bodies(store)) > 200:
            assert time.monotonic() < deadline, store.failures
            clock.advance(1)
            time.sleep(0.001)
        assert bodies(store)[-1] == b"00000399"
    assert not store.failures


def test_manual_deletion_without_housekeeping_removes_nothing() -> None:
    with open_store(MemoryFileSystem(), housekeeping=False) as store:
        store.put_batch(numbered(100))
        store.delete_expired_files()
        assert store.min_phy_offset == 0
