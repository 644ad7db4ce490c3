"""The message store for writing. It creates all parts of a store, and starts and stops their services in order.

    with MessageStore.open("/data/store") as store:
        store.put(Message("orders", b"body", tags="paid", keys=["4711"]))

Source: DefaultMessageStore.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary

from gantrymq.clock import Clock, SystemClock
from gantrymq.config.keys import require_same_at_start
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import DiskFullError, StoreBehindError, StoreClosedError, SyncFailedError
from gantrymq.format.names import DELAY_OFFSET, LOCK_TEXT
from gantrymq.fs.api import FileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.service.runner import Service, ServiceRunner
from gantrymq.store.config_files import ConfigFile
from gantrymq.store.delay import ScheduleMessageService
from gantrymq.store.geometry import find_file_sizes, require_store
from gantrymq.store.index.index_dispatch import IndexDispatcher
from gantrymq.store.log.append import MessageAppender, PutLock
from gantrymq.store.log.file_allocation import (
    AllocateMappedFileService,
    TransientStorePool,
    left_for_queues_bytes,
    lend_buffer,
)
from gantrymq.store.log.flush import (
    CommitRealTimeService,
    FlushConsumeQueueService,
    FlushRealTimeService,
    FlushRequest,
    GroupCommitService,
)
from gantrymq.store.log.flush_policy import FlushPolicy
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.log.retention import CleanCommitLogService, CleanConsumeQueueService, DiskSpace
from gantrymq.store.lookup import MessageLookup
from gantrymq.store.meter import NO_METER, StoreMeter
from gantrymq.store.opening import load_index, load_parts, require_own_queues, store_host_of
from gantrymq.store.paths import StorePaths
from gantrymq.store.put_result import PutMessageResult
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.queue.group_offsets import set_back
from gantrymq.store.queue.queue_dispatch import Arrival, QueueDispatcher
from gantrymq.store.recovery.missing_log import require_whole_log
from gantrymq.store.recovery.reader_views import require_ext_files
from gantrymq.store.recovery.recovery import Progress, Recovery, RecoveryReport
from gantrymq.store.recovery.swap_journal import ReadySwap
from gantrymq.store.reput import ReputMessageService
from gantrymq.store.store_watch import StoreWatch
from gantrymq.store.timer.timer_service import TimerMessageService
from gantrymq.store.writing import WritingStore

_LOGGER = logging.getLogger(__name__)
_FAILURES_KEPT = 63
_MAX_SET_BACK_MS = 60_000
_CATCH_UP_S = 5.0
_CATCH_UP_STEP_S = 0.001
_SYNCING_SERVICES = (
    FlushRealTimeService.name,
    GroupCommitService.name,
    CommitRealTimeService.name,
    FlushConsumeQueueService.name,
)


# Called with (service name, error, whether the store accepts no more puts).
OnFailure = Callable[[str, Exception, bool], None]


class DeletedQueues(NamedTuple):
    """How many queues a deletion removed, and how many messages they had."""

    queues: int
    messages: int


class _Configured(Protocol):
    """A part that reads ``config`` again at each use, so that it can be replaced."""

    config: MessageStoreConfig


class MessageStore(WritingStore):
    """An open store. Make one with :meth:`open`; close it, or use it as a context manager.

    ``put`` returns when the message is acknowledged as flushDiskType says. With SYNC_FLUSH its bytes are on the disk.
    With ASYNC_FLUSH they are in the page cache, so they survive the end of this process but not a power cut. A message
    can be read once it is dispatched, a moment later.

    Thread rule: every method may be called from any thread.
    """

    def __init__(
        self,
        path: Path,
        config: MessageStoreConfig,
        given: Collection[str],
        fs: FileSystem,
        clock: Clock,
        progress: Progress | None,
        on_arrival: Arrival | None,
        housekeeping: bool,
        *,
        on_failure: OnFailure | None = None,
        accepts_missing_end: bool = False,
        meter: StoreMeter = NO_METER,
    ) -> None:
        self._on_failure, self._meter = on_failure, meter
        self._paths = paths = StorePaths.of(path, config)
        self._fs = fs
        self._clock = clock
        self._put_lock = PutLock()
        self._closed = False
        self._flush_failed = False
        self._loop_flushes = WeakKeyDictionary()
        self._pool: TransientStorePool | None = None
        self._log_cleaner: CleanCommitLogService | None = None
        self.timers: TimerMessageService | None = None  # with housekeeping and timerWheelEnable
        self.failures: list[tuple[str, Exception]] = []
        paths.require_own_log(config)
        self._store_host = store_host_of(config)  # raises for a bad address before anything is touched
        fs.make_directory(path)
        self._lock = fs.lock(paths.lock, LOCK_TEXT)
        try:
            self._load(config, given, progress, on_arrival, accepts_missing_end=accepts_missing_end)
            self._start(housekeeping)
        except BaseException:
            self._lock.release()
            raise

    @classmethod
    def open(
        cls,
        path: str | Path,
        config: MessageStoreConfig | None = None,
        *,
        given: Collection[str] = (),
        create: bool = True,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        progress: Progress | None = None,
        on_arrival: Arrival | None = None,
        on_failure: OnFailure | None = None,
        housekeeping: bool = True,
        accepts_missing_end: bool = False,
        meter: StoreMeter = NO_METER,
    ) -> MessageStore:
        """Open the store at ``path`` for writing and recover it first. With ``create`` it is created if missing.

        File sizes are taken from the files of an existing store; ``given`` names RocketMQ keys whose value in
        ``config`` must hold instead. With ``housekeeping`` retention and the delivery of delayed messages run while the
        store is open. With ``accepts_missing_end`` a store opens although the newest files of its log are missing: the
        units that point there are cut, and the caller must report that.

        Callbacks: ``progress(step, done_bytes, total_bytes)`` during recovery. ``on_arrival(topic, queue_id,
        max_offset)`` for each queue that grew, from the dispatcher's thread. ``on_failure(service, error, is_final)``
        for each new entry of ``failures``, from the thread that failed; after a final one the store accepts no more
        puts. ``meter`` measures deliveries.

        Raises NotAStoreError, StoreLockedError, MissingLogError, MissingFileError, MisfiledQueueError,
        WrongFileSizeError, AmbiguousGeometryError, StorePermissionError, DiskFullError. After DiskFullError the store
        is as after a kill; after the others it is unchanged.
        """
        path = Path(path)
        files = fs or RealFileSystem()
        if not create or files.scan(path):
            require_store(files, StorePaths.of(path, config or MessageStoreConfig()), creates=create)
        clock = clock or SystemClock()
        return cls(
            path,
            config or MessageStoreConfig(),
            given,
            files,
            clock,
            progress,
            on_arrival,
            housekeeping,
            on_failure=on_failure,
            accepts_missing_end=accepts_missing_end,
            meter=meter,
        )

    # Start

    def _load(
        self,
        config: MessageStoreConfig,
        given: Collection[str],
        progress: Progress | None,
        on_arrival: Arrival | None,
        *,
        accepts_missing_end: bool,
    ) -> None:
        fs, paths = self._fs, self._paths
        sizes = find_file_sizes(fs, paths, config, given)
        now_ms = self._clock.now_ms()
        self.accepted, self.notes = require_whole_log(fs, paths, sizes, now_ms, accepts_end=accepts_missing_end)
        for directory in paths.writable_commit_logs[1:] and paths.writable_commit_logs:
            fs.make_directory(directory)  # DiskSpace measures its disk before it has a file
        ReadySwap(fs, paths).finish()
        parts = load_parts(fs, paths, config, given, self._clock.now_ms(), self._lend_buffer)
        require_own_queues(fs, parts)
        if config.enable_consume_queue_ext and parts.last_exit_ok:  # after a crash they may be missing
            require_ext_files(fs, paths, config.mapped_file_size_consume_queue_ext)
        self._log, self._queues, self._checkpoint = parts.log, parts.queues, parts.checkpoint
        index, dropped = (
            load_index(fs, paths, parts, given, streams=True) if config.message_index_enable else (None, [])
        )
        self._index, self.config = index, parts.config
        self.flush_policy = FlushPolicy(parts.config)
        self._write_abort()
        self._queue_dispatcher = QueueDispatcher(
            parts.queues,
            parts.config.delay_levels_ms,
            parts.checkpoint,
            on_arrival,
            deleted_ends=lambda: parts.deleted.ends,
        )
        self._deleted = parts.deleted
        self._delayed_ends: dict[str, int] = {}  # like delayed_ends, for all topics deleted since the start
        self._index_dispatcher = IndexDispatcher(index, index.end_phy_offset) if index is not None else None
        recovery = Recovery(
            parts.log,
            parts.queues,
            parts.checkpoint,
            self._queue_dispatcher,
            self._index_dispatcher,
            parts.config,
            self._clock,
            parts.last_exit_ok,
            dropped,
            parts.deleted.ends,
            progress,
        )
        try:
            self.recovery: RecoveryReport = recovery.run()
        except BaseException:
            if index is not None:
                index.close()  # a thread may still write into it, and the lock is released next
            raise
        if not parts.config.duplication_enable:  # unconfirmed records are not in the queues
            self._set_groups_back()
        self._log.queue.reserve_rest()
        self._log.queue.flush_all()
        self._confirm_offset = (
            parts.checkpoint.page.confirm_phy_offset if parts.config.duplication_enable else self._log.max_offset
        )

    def _set_groups_back(self) -> None:
        """Set groups that are ahead of their queue back to its end, before the next message gets an offset."""
        ahead = self.recovery.find_groups_ahead(self._fs, self._paths, self._queues)
        set_back(self._fs, self._paths, ahead)
        for one, end in ahead:
            text = "%s had committed offset %d of %s/%d, which ends at %d: it is set back to that"
            _LOGGER.warning(text, one.name, one.offset, one.topic, one.queue_id, end)

    def _write_abort(self) -> None:
        """Create the ``abort`` file. If a start finds it, the writer before did not end cleanly."""
        file = self._fs.open(self._paths.abort, writable=True, create=True)
        file.resize(0)
        with suppress(DiskFullError):  # only its existence counts, and a full disk still has room for a name
            file.write_at(0, str(os.getpid()).encode("ascii"))
        file.sync()
        file.close()
        self._fs.sync_directory(self._paths.root)

    def _lend_buffer(self, file: MappedFile) -> None:
        """Give a new commit log file a write buffer if transientStorePoolEnable is on."""
        if self._pool is not None:
            lend_buffer(self._pool, file, fail_fast=self.flush_policy.fails_without_buffer)

    def _start(self, housekeeping: bool) -> None:
        config, policy, log = self.config, self.flush_policy, self._log
        if policy.lends_buffers:
            self._pool = TransientStorePool(config.transient_store_pool_size, log.file_size)
        self._appender = MessageAppender(
            log,
            self._queues.next_offsets(),
            self._store_host,
            append_crc=config.enabled_append_prop_crc,
            last_timestamp_ms=self._last_timestamp_ms(),
        )
        self.lookup = MessageLookup(log, self._queues, lambda: self._index, config)
        self._group_commit = GroupCommitService(
            log, self._checkpoint, lambda error: self._note_failure(GroupCommitService.name, error)
        )
        self._reput = ReputMessageService(
            log, self._queue_dispatcher, self._index_dispatcher, self._dispatchable_end, self._confirm_offset
        )
        log.queue.leave_bytes = lambda: left_for_queues_bytes(
            max(self._dispatchable_end() - self._reput.queues_end_offset, 0), log.file_size
        )
        self._space = DiskSpace(self._fs, self._paths, config)
        log.queue.full_directories = lambda: self._space.full_directories
        self._flush_service = flush = FlushRealTimeService(log, self._checkpoint, policy)
        self._flush_runner = self._runner(self._group_commit if policy.is_sync else flush)
        commit = CommitRealTimeService(log, policy, self._flush_runner.wake)
        flush_queues = FlushConsumeQueueService(self._queues, log, self._checkpoint, policy)
        self._configured: list[_Configured] = [policy, self.lookup, self._space]
        self._reput_runner = self._runner(self._reput, rest_ms=self._reput.rest_ms, by_calendar=True)
        self._commit_runner = self._runner(commit)
        # The order of starting and stopping: a writer is drained before the service that flushes its data, and that
        # before the checkpoint. No put comes any more when they stop.
        self._runners = [
            self._runner(AllocateMappedFileService(log, warm=config.warm_maped_file_enable)),
            self._commit_runner,
            self._flush_runner,
            self._reput_runner,
            self._runner(flush_queues),
            self._runner(self._watch()),
            *(self._housekeepers() if housekeeping else ()),
        ]
        for runner in self._runners:
            runner.start()

    def _watch(self) -> StoreWatch:
        paths = self._paths
        directories = (*paths.writable_commit_logs, paths.consume_queue, paths.index)
        return StoreWatch(self._fs, directories, paths.lock, self._lock, self._log, lambda: self._index)

    def _last_timestamp_ms(self) -> int:
        """Return the store time (ms) of the newest dispatched message; 0 if there is none or it is a minute ahead.

        A time that far ahead comes from a wrong clock or a flipped bit. If it were continued, each message would get it
        for that long, and delayed messages were delivered at once, as after a clock set back (correctDeliverTimestamp).
        """
        message = self._log.read(self._queues.last_phy_offset)
        last_ms = message.store_timestamp_ms if message is not None else 0
        return last_ms if last_ms - self._clock.now_ms() <= _MAX_SET_BACK_MS else 0

    def _housekeepers(self) -> list[ServiceRunner]:
        log, config = self._log, self.config
        queue_cleaner = CleanConsumeQueueService(
            log, self._queues, self._index, config, lambda: bool(self._log_cleaner and self._log_cleaner.is_for_space)
        )
        queue_runner = self._runner(queue_cleaner, by_calendar=True)
        self._log_cleaner = CleanCommitLogService(
            log, self._queues, self._checkpoint, self._space, config, queue_runner.wake, start_ms=self._clock.now_ms()
        )
        self._schedule = ScheduleMessageService(
            log, self._queues, config, self._deliver, self._is_durable, self._is_deleted,
            ConfigFile(self._fs, self._paths.config / DELAY_OFFSET), self._meter,
        )  # fmt: skip
        self._configured += [self._schedule, self._log_cleaner, queue_cleaner]
        return [
            self._runner(self._schedule, by_calendar=True),
            *self._timer_runners(),
            self._runner(self._log_cleaner, by_calendar=True),
            queue_runner,
        ]

    def _timer_runners(self) -> list[ServiceRunner]:
        if not self.config.timer_wheel_enable:
            return []
        self.timers = timers = TimerMessageService(
            self._fs, self._paths, self._log, self._queues, self.config, self._deliver, self.append, self._is_durable,
            self._is_deleted, self.ask_for_flush, self._meter,
        )  # fmt: skip
        self._configured.append(timers)
        return [self._runner(timers, by_calendar=True)]

    def _deliver(self, message: Message) -> PutMessageResult:
        """Store a message whose delay is over."""
        return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE) if self._closed else self.put(message)

    def _is_deleted(self, topic: str, phy_offset: int) -> bool:
        """Whether the topic was deleted after the delayed message at ``phy_offset`` was put for it."""
        return phy_offset < max(self._deleted.delayed_ends.get(topic, 0), self._delayed_ends.get(topic, 0))

    def _is_durable(self, offset: int) -> bool:
        return self._log.queue.flushed_where >= offset and not self._flush_failed

    def _runner(
        self, service: Service, rest_ms: Callable[[], float] | None = None, *, by_calendar: bool = False
    ) -> ServiceRunner:
        return ServiceRunner(service, self._clock, self._note_failure, rest_ms=rest_ms, by_calendar=by_calendar)

    def _note_failure(self, name: str, error: Exception) -> None:
        """Record a failure. After a failed sync the state of the disk is unknown, so the store accepts no more puts.

        A later sync may succeed although the kernel has dropped the pages of the failed one. The checkpoint is
        therefore frozen too, and the next open must recover.
        """
        is_repeated = any(str(error) == str(other) for _, other in self.failures)
        if not self.failures or self.failures[-1][1] is not error:  # the service's runner reports it again
            self.failures = [*self.failures[-_FAILURES_KEPT:], (name, error)]
        syncing = name in _SYNCING_SERVICES and not isinstance(error, DiskFullError)  # a full disk is retried
        if syncing or isinstance(error, SyncFailedError):
            self._flush_failed = True
            self._checkpoint.freeze()
        if self._on_failure is not None and not is_repeated:
            self._on_failure(name, error, self._flush_failed)

    def _dispatchable_end(self) -> int:
        return self._confirm_offset if self.config.duplication_enable else self._log.max_offset

    def reconfigure(self, config: MessageStoreConfig) -> None:
        """Use other settings from now on. Raises ConfigError if one differs that is only read ``at_start``."""
        require_same_at_start(self.config, config)
        self.config = config
        for part in self._configured:
            part.config = config
        for runner in self._runners:
            runner.wake()  # it may sleep for its old interval

    # Stop

    def close(self) -> None:
        """Stop writing, dispatch and flush everything, write the checkpoint and remove ``abort``.

        A second call does nothing.

        If that fails, the error is raised and ``abort`` stays, so that the next open recovers. ``abort`` also stays if
        a sync has failed before (see ``failures``).
        """
        with self._put_lock:
            if self._closed:
                return
            self._closed = True
        try:
            for runner in self._runners:
                runner.stop()
            if self._index is not None:
                self._index.flush()
            self._checkpoint.page.confirm_phy_offset = self._dispatchable_end()
            self._checkpoint.flush()
            if not self._flush_failed:
                self._fs.remove(self._paths.abort)
            self._fs.sync_directory(self._paths.root)
        finally:
            # After a failed drain the later services still run. They must not outlive the lock.
            for runner in self._runners:
                runner.abandon()
            if self.timers is not None:
                self.timers.close()
            if self._index is not None:
                self._index.close()
            self._log.close()
            self._queues.close()
            self._lock.release()

    def __enter__(self) -> MessageStore:
        """Return the store."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()

    # Writing

    @property
    def is_writable(self) -> bool:
        """Whether puts are accepted: not while the disk is too full, nor after a sync has failed."""
        return not self._space.refuses_puts and not self._flush_failed

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosedError(self._paths.root, "is closed")

    def _wake_after_put(self, *, waits: bool = True) -> None:
        self._reput_runner.wake()
        if self.flush_policy.lends_buffers:
            self._commit_runner.wake()
        elif self.flush_policy.wakes_flush(waits=waits):
            self._flush_runner.wake()

    def _flush_request(self, end_offset: int) -> FlushRequest:
        request = self._group_commit.put_request(end_offset)
        self._flush_runner.wake()
        return request

    def delete_expired_files(self) -> None:
        """Let retention delete expired files at any hour in its next twenty runs. Without housekeeping nothing happens.

        Source: deleteFilesManually.
        """
        if self._log_cleaner is not None:
            self._log_cleaner.delete_manually()

    # Deleting

    def delete_topic(self, topic: str) -> DeletedQueues:
        """Remove the queues of a topic that have messages. The messages stay in the log until retention removes them.

        Waits until everything put so far is dispatched, finally under the put lock: a later unit would start the queue
        again at its old offset. If the topic has messages, the log is flushed before the deletion is recorded: after a
        power cut, a deletion whose last message is missing is ignored. Delayed messages for the topic are not delivered
        any more. Raises StoreBehindError if dispatch or flush takes too long.
        """
        deadline_s = self._clock.monotonic_s() + _CATCH_UP_S
        self._catch_up(deadline_s)
        if self._queues_with_messages(topic):
            self._make_durable(self._reput.queues_end_offset, deadline_s)  # most of it before the lock is taken
        with self._put_lock:
            self._catch_up(deadline_s)
            if self.dispatch_behind_bytes:
                raise StoreBehindError(self._paths.root, "the dispatch is behind, so no queue is deleted: try again")
            gone = self._queues_with_messages(topic)
            if gone:  # recorded first: after a kill in between some queues would stay
                newest, end = max(gone, key=lambda queue: queue.max_physic_offset), self._log.wrote_offset
                self._make_durable(end, deadline_s)
                self._deleted.add(topic, newest.last_phy_offset, newest.max_physic_offset, end, self._log.min_offset)
            self._delayed_ends[topic] = self._log.wrote_offset
            messages = sum(queue.max_offset - queue.min_offset for queue in gone)
            for queue in gone:
                queue.destroy()
                self._appender.forget_queue(topic, queue.queue_id)
        return DeletedQueues(len(gone), messages)

    def _queues_with_messages(self, topic: str) -> list[ConsumeQueue]:
        return [queue for queue in self._queues if queue.topic == topic and queue.max_offset > 0]

    def _catch_up(self, deadline_s: float) -> None:
        while self.dispatch_behind_bytes and self._clock.monotonic_s() < deadline_s:
            self._reput_runner.wake()
            time.sleep(_CATCH_UP_STEP_S)

    def ask_for_flush(self) -> None:
        """Let the log be flushed soon. Thread rule: any thread."""
        self._flush_service.want_all()
        self._flush_runner.wake()

    def _make_durable(self, end_offset: int, deadline_s: float) -> None:
        """Wait until the log is on the disk up to ``end_offset``. Raises StoreBehindError at the deadline."""
        while self._log.queue.flushed_where < end_offset:
            if self._clock.monotonic_s() >= deadline_s:
                raise StoreBehindError(self._paths.root, "the log is not flushed, so no queue is deleted: try again")
            self.ask_for_flush()
            time.sleep(_CATCH_UP_STEP_S)

    # State

    @property
    def dispatch_behind_bytes(self) -> int:
        """The number of bytes of the log that are not dispatched yet."""
        return max(self._dispatchable_end() - self._reput.reput_from_offset, 0)

    @property
    def dispatched_offset(self) -> int:
        """The physical offset up to which the log is dispatched to queues and index."""
        return self._reput.reput_from_offset

    @property
    def flushed_offset(self) -> int:
        """The physical offset up to which the log is on the disk."""
        return self._log.queue.flushed_where

    @property
    def indexed_timestamp_ms(self) -> int:
        """The store time (ms) of the newest message that is durably indexed, or 0 if there is none."""
        return self._checkpoint.page.index_msg_timestamp_ms

    @property
    def delay_offsets(self) -> dict[int, int]:
        """The queue offset up to which each delay level is delivered."""
        return dict(self._schedule.offsets)

    @property
    def disk_used_ratio(self) -> float:
        """The use of the fuller disk, from 0 to 1."""
        return self._space.used_percent() / 100

    @property
    def path(self) -> Path:
        """The directory of the store."""
        return self._paths.root

    @property
    def commit_log_paths(self) -> tuple[Path, ...]:
        """The directories of the commit log."""
        return self._paths.commit_logs

    def next_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the offset of a queue's next message, even if earlier messages are not dispatched yet."""
        return self._appender.next_offset(topic, queue_id)
