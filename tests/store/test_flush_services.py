"""Durability: when each service flushes, which calls wait for it, and the effect of a full or broken disk."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from unittest import mock

import pytest

from faulty_file_system import FaultyFileSystem
from gantrymq.clock import ManualClock
from gantrymq.config.settings import FlushDiskType, MessageStoreConfig
from gantrymq.errors import DiskFullError, SyncFailedError
from gantrymq.format.queue_entry import UNIT_SIZE, decode_entry
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.store import flush as group_commit
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.flush import (
    CommitRealTimeService,
    FlushConsumeQueueService,
    FlushRealTimeService,
    GroupCommitService,
)
from gantrymq.store.flush_policy import FlushPolicy
from gantrymq.store.flush_requests import FlushRequest
from gantrymq.store.log import batch as put_batch
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.file_allocation import AllocateMappedFileService, NoBufferError, TransientStorePool, lend_buffer
from gantrymq.store.message_store import MessageStore
from gantrymq.store.paths import StorePaths
from gated_file_system import GatedFileSystem
from memory_file_system import MemoryFileSystem
from store_cases import BARE, NOON_MS, ROOT, await_dispatch, bodies, files_of, memory_store, numbered, open_store

PAGE = 4096
FILE_SIZE = 16 * PAGE
PATHS = StorePaths(ROOT)
SYNC = replace(BARE, flush_disk_type=FlushDiskType.SYNC_FLUSH)
POOLED = replace(BARE, transient_store_pool_enable=True, transient_store_pool_size=1)
POLICY = FlushPolicy(MessageStoreConfig())


def new_log(fs: MemoryFileSystem | FaultyFileSystem, pool: TransientStorePool | None = None) -> CommitLog:
    fs.make_directory(PATHS.commit_log)
    on_new_file = (lambda file: lend_buffer(pool, file, fail_fast=True)) if pool else None
    return CommitLog(fs, PATHS, FILE_SIZE, on_new_file)


def write(log: CommitLog, length: int, store_timestamp_ms: int = NOON_MS) -> None:
    """Put bytes behind the last one as an append does."""
    file = log.queue.last_for_append()
    file.write_array[file.wrote_position : file.wrote_position + length] = 1
    file.advance(length)
    file.store_timestamp_ms = store_timestamp_ms


def eventually(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.001)


def names(log: CommitLog, fs: MemoryFileSystem) -> list[int]:
    """Where the files on the disk begin, counted in files."""
    return [int(entry.name) // log.file_size for entry in fs.scan(PATHS.commit_log)]


# In the background


def test_four_dirty_pages_are_flushed_and_fewer_wait_for_thorough_flush() -> None:
    fs = MemoryFileSystem()
    log, checkpoint = new_log(fs), StoreCheckpoint(fs, PATHS.checkpoint)
    service = FlushRealTimeService(log, checkpoint, POLICY)
    write(log, 3 * PAGE)
    service.step(500)
    assert log.queue.flushed_where == 0
    write(log, PAGE)
    service.step(1_000)
    assert log.queue.flushed_where == 4 * PAGE
    write(log, 1)
    service.step(9_999)
    assert log.queue.flushed_where == 4 * PAGE
    assert checkpoint.page.physic_msg_timestamp_ms == 0, "only a thorough flush vouches for the newest record"
    service.step(10_000)
    assert log.queue.flushed_where == 4 * PAGE + 1
    assert checkpoint.page.physic_msg_timestamp_ms == NOON_MS
    write(log, 1)
    service.step(19_999)
    assert log.queue.flushed_where == 4 * PAGE + 1


def test_full_file_is_flushed_however_few_pages_are_dirty() -> None:
    fs = MemoryFileSystem()
    log = new_log(fs)
    service = FlushRealTimeService(log, StoreCheckpoint(fs, PATHS.checkpoint), POLICY)
    write(log, FILE_SIZE - 1)
    service.step(1)
    write(log, 1)
    service.step(2)
    assert log.queue.flushed_where == FILE_SIZE


def test_close_flushes_all_files() -> None:
    fs = MemoryFileSystem()
    log = new_log(fs)
    for length in (FILE_SIZE, FILE_SIZE, 5):
        write(log, length)
    FlushRealTimeService(log, StoreCheckpoint(fs, PATHS.checkpoint), POLICY).drain()
    assert log.queue.flushed_where == 2 * FILE_SIZE + 5


# For waiting producers


def test_all_waiting_producers_share_one_sync() -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    log, checkpoint = new_log(fs), StoreCheckpoint(fs, PATHS.checkpoint)
    service = GroupCommitService(log, checkpoint)
    futures = []
    for _ in range(1_000):
        write(log, 10)
        futures.append(service.put_request(log.max_offset))
    before = len(fs.operations)
    assert not service.step(0)
    assert [operation for operation, _ in fs.operations[before:]] == ["sync"]
    assert {future.result(0) for future in futures} == {PutMessageStatus.PUT_OK}
    assert checkpoint.page.physic_msg_timestamp_ms == NOON_MS


def test_group_commit_waits_for_number_of_last_requests() -> None:
    fs = GatedFileSystem()
    log = new_log(fs)
    service = GroupCommitService(log, StoreCheckpoint(fs, PATHS.checkpoint))

    def ask() -> FlushRequest:
        write(log, 10)
        return service.put_request(log.max_offset)

    asked = [ask(), ask()]
    service.step(0)  # from here on two are expected
    service._sync_s, before = 20, fs.log_syncs
    with mock.patch.object(group_commit, "_LONGEST_WAIT_S", 20), ThreadPoolExecutor(1) as flushing:
        asked += [ask()]
        stepped = flushing.submit(service.step, 0)
        with pytest.raises(TimeoutError):
            stepped.result(0.05)
        asked += [ask()]
        stepped.result(20)
    assert [one.result(0) for one in asked] == [PutMessageStatus.PUT_OK] * 4
    assert fs.log_syncs - before == 1


def test_single_producer_waits_at_most_one_sync() -> None:
    fs = MemoryFileSystem()
    log = new_log(fs)
    service = GroupCommitService(log, StoreCheckpoint(fs, PATHS.checkpoint))
    for _ in range(50):
        service.put_request(0)
    service.step(0)
    for _ in range(group_commit._SYNCS_REMEMBERED):
        service._sync_s = 0.001
        request = service.put_request(0)
        service.step(0)
        assert request.result(0) is PutMessageStatus.PUT_OK
    assert service._wanted == 1


def test_log_without_waiting_producer_is_flushed_once_an_interval() -> None:
    fs = GatedFileSystem()
    log = new_log(fs)
    service = GroupCommitService(log, StoreCheckpoint(fs, PATHS.checkpoint))
    syncs = []
    for now_ms in (100, 109, 110, 50, 51, 60):  # the clock is set back once
        write(log, 10)
        service.step(now_ms)
        syncs.append(fs.log_syncs)
    assert syncs == [1, 1, 2, 3, 3, 4]
    write(log, 10)
    service.drain()
    assert (fs.log_syncs, log.queue.flushed_where) == (5, log.max_offset)


def test_failed_sync_reaches_store_before_waiting_producers() -> None:
    fs, heard = GatedFileSystem(), []
    log = new_log(fs)
    service = GroupCommitService(log, StoreCheckpoint(fs, PATHS.checkpoint), lambda error: heard.append("the store"))
    write(log, 10)
    for who in ("a producer", "another"):
        service.put_request(10).add_done_callback(lambda done, who=who: heard.append(who))
    fs.broken = True
    with pytest.raises(SyncFailedError):
        service.step(0)
    assert heard == ["the store", "a producer", "another"]
    fs.broken = False
    service.put_request(10).add_done_callback(lambda done: heard.append("a third"))
    service.step(0)
    assert heard[3:] == ["a third"]


def test_flush_request_across_files_is_served_in_one_step() -> None:
    fs = MemoryFileSystem()
    log = new_log(fs)
    service = GroupCommitService(log, StoreCheckpoint(fs, PATHS.checkpoint))
    write(log, FILE_SIZE)
    write(log, 10)
    future = service.put_request(FILE_SIZE + 10)
    service.step(0)
    assert future.result(0) is PutMessageStatus.PUT_OK


def test_flush_request_result_can_be_read_repeatedly() -> None:
    heard: list[PutMessageStatus] = []
    request = FlushRequest(100)
    request.add_done_callback(lambda done: heard.append(done.result(0)))
    assert request.result(0) is PutMessageStatus.FLUSH_DISK_TIMEOUT
    assert (request.done(), heard) == (False, [])
    request.finish(PutMessageStatus.PUT_OK)
    request.add_done_callback(lambda done: heard.append(done.result(0)))
    assert heard == [PutMessageStatus.PUT_OK] * 2
    assert [request.result(0), request.result(9)] == [PutMessageStatus.PUT_OK] * 2
    assert request.done()


def test_flush_request_after_close_is_answered_at_once() -> None:
    fs = MemoryFileSystem()
    log = new_log(fs)
    service = GroupCommitService(log, StoreCheckpoint(fs, PATHS.checkpoint))
    write(log, 100)
    service.drain()
    assert service.put_request(100).result(0) is PutMessageStatus.PUT_OK
    assert service.put_request(101).result(0) is PutMessageStatus.FLUSH_DISK_TIMEOUT


def test_waiting_for_unwritten_bytes_times_out() -> None:
    fs = MemoryFileSystem()
    service = GroupCommitService(new_log(fs), StoreCheckpoint(fs, PATHS.checkpoint))
    future = service.put_request(100)
    service.drain()
    assert future.result(0) is PutMessageStatus.FLUSH_DISK_TIMEOUT


def test_flush_request_during_sync_shares_next_sync_without_put_lock() -> None:
    fs = GatedFileSystem()
    with open_store(fs, config=SYNC) as store, ThreadPoolExecutor(21) as producers:
        with fs.shut():
            before = fs.log_syncs
            first = producers.submit(store.put, Message("orders", b"first"))
            assert fs.arrived.wait(60)
            others = [producers.submit(store.put, message) for message in numbered(20)]
            eventually(lambda: len(store._group_commit._requests) == 20, "a producer waits for the sync of another")
            assert not first.done()
        results = [first.result(20), *(other.result(20) for other in others)]
        assert {result.status for result in results} == {PutMessageStatus.PUT_OK}
        assert fs.log_syncs - before == 2


def test_acknowledged_put_is_on_disk() -> None:
    fs = MemoryFileSystem()
    with open_store(fs, config=SYNC) as store:
        for message in numbered(5):
            store.put(message)
        lost_power = fs.crash_clone(0.0, 0)
    with open_store(lost_power, config=SYNC) as store:
        assert bodies(store) == [message.body for message in numbered(5)]


def test_slow_sync_returns_flush_disk_timeout_and_stores_message() -> None:
    fs = GatedFileSystem()
    with open_store(fs, config=replace(SYNC, sync_flush_timeout_ms=20)) as store:
        with fs.shut():
            result = store.put(Message("orders", b"x"))
            assert result.status is PutMessageStatus.FLUSH_DISK_TIMEOUT
            assert result.is_stored
            batch = store.put_batch(numbered(2))
            assert batch.status is PutMessageStatus.FLUSH_DISK_TIMEOUT
        await_dispatch(store)
        assert len(bodies(store)) == 3


def test_put_without_flush_wait_returns_at_once() -> None:
    fs = GatedFileSystem()
    with open_store(fs, config=SYNC) as store, fs.shut():
        message = Message("orders", b"x", wait_store_msg_ok=False)
        assert store.put(message).status is PutMessageStatus.PUT_OK
        assert fs.arrived.wait(60), "it is flushed soon all the same"


def test_failed_sync_fails_put_and_all_later_puts() -> None:
    fs = GatedFileSystem()
    with open_store(fs, config=SYNC) as store:
        store.put(Message("orders", b"x"))
        fs.broken = True
        with pytest.raises(SyncFailedError, match="Input/output"):
            store.put(Message("orders", b"y"))
        eventually(lambda: bool(store.failures), "the failure is not reported")
        fs.broken = False
        assert store.put(Message("orders", b"z")).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert store.put_batch(numbered(2)).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert not store.is_writable
        assert store.failures[0][0] == "GroupCommitService"


def test_close_after_failed_sync_keeps_abort_file() -> None:
    fs = GatedFileSystem()
    with open_store(fs, config=SYNC) as store:
        store.put(Message("orders", b"x"))
        vouched = StoreCheckpoint(fs, PATHS.checkpoint).page
        fs.broken = True
        with pytest.raises(SyncFailedError, match="Input/output"):
            store.put(Message("orders", b"y"))
        fs.broken = False  # the next sync succeeds, but the pages of this one may be gone
    assert fs.exists(PATHS.abort)
    assert StoreCheckpoint(fs, PATHS.checkpoint).page == vouched
    with open_store(fs, config=SYNC) as store:
        assert not store.recovery.last_exit_ok
        assert store.put(Message("orders", b"z")).status is PutMessageStatus.PUT_OK


def test_failed_background_flush_ends_puts() -> None:
    fs = GatedFileSystem()
    clock = ManualClock(NOON_MS)
    config = replace(BARE, flush_interval_commit_log_ms=1, flush_commit_log_thorough_interval_ms=0)
    with open_store(fs, config=config, clock=clock) as store:
        fs.broken = True
        assert store.put(Message("orders", b"x")).status is PutMessageStatus.PUT_OK
        eventually(lambda: not store.is_writable, "puts are taken after a failed sync")
        fs.broken = False
        assert store.put(Message("orders", b"y")).status is PutMessageStatus.SERVICE_NOT_AVAILABLE


# Through the pool


def test_uncommitted_bytes_are_unreadable_and_commit_wakes_flush() -> None:
    fs, woken = MemoryFileSystem(), []
    pool = TransientStorePool(2, FILE_SIZE)
    log = new_log(fs, pool)
    service = CommitRealTimeService(log, POLICY, lambda: woken.append(log.max_offset))
    write(log, 100)
    assert (log.max_offset, log.get_message(0, 100), pool.available) == (0, None, 1)
    service.step(199)
    assert (log.max_offset, woken) == (0, [])
    service.step(200)
    assert (log.max_offset, woken) == (100, [100])
    held = log.get_message(0, 100)
    assert held is not None
    with held:
        assert held.array.tolist() == [1] * 100


def test_four_pages_are_committed_without_waiting_for_interval() -> None:
    log = new_log(MemoryFileSystem(), TransientStorePool(1, FILE_SIZE))
    service = CommitRealTimeService(log, POLICY, lambda: None)
    write(log, 4 * PAGE)
    service.step(1)
    assert log.max_offset == 4 * PAGE


def test_buffer_of_full_file_is_returned() -> None:
    pool = TransientStorePool(1, FILE_SIZE)
    log = new_log(MemoryFileSystem(), pool)
    write(log, FILE_SIZE)
    assert pool.available == 0
    with pytest.raises(NoBufferError):
        write(log, 1)
    CommitRealTimeService(log, POLICY, lambda: None).drain()
    assert pool.available == 1
    write(log, 1)
    assert pool.available == 0


def test_file_without_buffer_is_written_through_mapping_unless_forbidden() -> None:
    fs, pool = MemoryFileSystem(), TransientStorePool(1, FILE_SIZE)
    fs.make_directory(PATHS.commit_log)
    log = CommitLog(fs, PATHS, FILE_SIZE, lambda file: lend_buffer(pool, file, fail_fast=False))
    write(log, FILE_SIZE)
    write(log, 10)
    assert [file.is_buffered for file in log.queue.files] == [True, False]


def test_put_without_buffer_fails_with_fast_fail() -> None:
    fs = GatedFileSystem("write_at")
    with open_store(fs, config=replace(POOLED, fast_fail_if_no_buffer_in_store_pool=True)) as store:
        with fs.shut():
            results = [store.put(Message("orders", bytes(6_000))) for _ in range(4)]
            assert [result.status.name for result in results] == ["PUT_OK"] * 2 + ["CREATE_MAPPED_FILE_FAILED"] * 2
            assert not results[-1].is_stored
        eventually(lambda: store.put(Message("orders", b"x")).is_stored, "no buffer comes back")
        eventually(lambda: len(bodies(store)) == 3, "what was put is not dispatched")


@pytest.mark.parametrize("few", [1, 10], ids=["columns", "one by one"])
def test_batch_without_buffer_stores_messages_with_room(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(put_batch, "FEW_MESSAGES", few)
    fs = GatedFileSystem("write_at")
    with open_store(fs, config=replace(POOLED, fast_fail_if_no_buffer_in_store_pool=True)) as store:
        with fs.shut():
            result = store.put_batch([Message("orders", bytes(6_000))] * 4)
            assert result.rejected == dict.fromkeys((2, 3), PutMessageStatus.CREATE_MAPPED_FILE_FAILED)
            assert result.queue_offsets.tolist() == [0, 1, -1, -1]
        eventually(lambda: len(bodies(store)) == 2, "what was put is not dispatched")


@pytest.mark.parametrize("fraction", [0.0, 1.0])
def test_close_of_store_with_buffer_pool_writes_everything(fraction: float) -> None:
    fs = MemoryFileSystem()
    with open_store(fs, config=POOLED) as store:
        for message in numbered(500):
            store.put(message)
    with open_store(fs.crash_clone(fraction, 0), config=POOLED) as store:
        assert bodies(store) == [message.body for message in numbered(500)]


# The queues and the checkpoint


def queue_flusher(store: MessageStore) -> FlushConsumeQueueService:
    return FlushConsumeQueueService(store._queues, store._log, store._checkpoint, store.flush_policy)


def test_checkpoint_covers_queues_only_after_flush_of_queues_and_log() -> None:
    fs, store = memory_store(BARE)
    with store:
        last = [store.put(message) for message in numbered(30)][-1]
        await_dispatch(store)
        flusher = queue_flusher(store)
        flusher.drain()
        assert store._checkpoint.page.logics_physical_offset == 0
        store._log.queue.flush_all()
        flusher.step(59_999)
        assert store._checkpoint.page.logics_physical_offset == 0
        flusher.step(60_000)
        assert store._checkpoint.page.logics_physical_offset == last.phy_offset
        assert store._checkpoint.page.logics_msg_timestamp_ms == last.store_timestamp_ms
        # The page is on the disk by its name, and so are the units that it vouches for.
        left = fs.crash_clone(0.0, 0)
    assert StoreCheckpoint(left, PATHS.checkpoint).page.logics_physical_offset == last.phy_offset
    units = b"".join(files_of(left, PATHS.consume_queue / "orders" / "0").values())
    assert decode_entry(units, 29 * UNIT_SIZE).phy_offset == last.phy_offset


def test_failed_flush_of_queues_leaves_checkpoint_unchanged() -> None:
    fs = GatedFileSystem("sync", "consumequeue")
    with open_store(fs, config=BARE, clock=ManualClock(NOON_MS)) as store:
        for message in numbered(10):
            store.put(message)
        await_dispatch(store)
        fs.broken = True
        with pytest.raises(SyncFailedError, match="Input/output"):
            queue_flusher(store).drain()
        fs.broken = False
        assert store._checkpoint.page.logics_physical_offset == 0


# Files made ahead


@pytest.mark.parametrize("warm", [False, True])
def test_next_log_file_is_preallocated_and_unused_one_removed(warm: bool) -> None:
    fs = MemoryFileSystem()
    log = new_log(fs)
    service = AllocateMappedFileService(log, warm=warm)
    service.step(0)
    assert names(log, fs) == [], "nothing is made ahead of nothing"
    write(log, 10)
    service.step(0)
    service.step(0)
    assert names(log, fs) == [0, 1]
    assert len(log.queue.files) == 1
    fs.capacity_bytes = 0  # the disk is full, but the next file has its space
    write(log, FILE_SIZE - 10)
    write(log, 10)
    assert len(log.queue.files) == 2
    with pytest.raises(DiskFullError):
        service.step(0)
    fs.capacity_bytes = None
    service.step(0)
    assert names(log, fs) == [0, 1, 2]
    service.drain()
    assert names(log, fs) == [0, 1]
    again = AllocateMappedFileService(log, warm=warm)
    again.step(0)
    assert names(log, fs) == [0, 1], "whoever only opens a store needs no more files"
    write(log, 10)
    again.step(0)
    assert names(log, fs) == [0, 1, 2]


def test_close_removes_preallocated_file() -> None:
    fs = MemoryFileSystem()
    with open_store(fs, config=BARE) as store:
        store.put(Message("orders", b"x"))
        eventually(lambda: len(fs.scan(PATHS.commit_log)) == 2, "no file is made ahead")
    assert len(fs.scan(PATHS.commit_log)) == 1


# A full disk


def test_full_disk_refuses_puts_until_space_is_free() -> None:
    fs = MemoryFileSystem()
    with open_store(fs, config=BARE, clock=ManualClock(NOON_MS)) as store:
        messages = numbered(1_000)
        stored = [store.put(messages[0])]
        await_dispatch(store)
        eventually(lambda: len(fs.scan(PATHS.commit_log)) == 2, "no file is made ahead")
        fs.capacity_bytes = int(fs._used_bytes())
        with suppress(DiskFullError):
            while len(stored) < len(messages):
                stored.append(store.put(messages[len(stored)]))
        end = store.max_phy_offset
        for attempt in (store.put, lambda message: store.put_batch([message])):
            with pytest.raises(DiskFullError):
                attempt(messages[len(stored)])
        assert store.max_phy_offset == end
        fs.capacity_bytes = None
        stored.append(store.put(messages[len(stored)]))
        assert [result.queue_offset for result in stored] == list(range(len(stored)))
        await_dispatch(store)
        expected = [message.body for message in messages[: len(stored)]]
        assert bodies(store) == expected
    with open_store(fs, config=BARE) as store:
        assert store.recovery.last_exit_ok
        assert bodies(store) == expected
