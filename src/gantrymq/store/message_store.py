"""The message store for writing. It creates all parts of a store, and starts and stops their services in order.

    with MessageStore.open("/data/store") as store:
        store.put(Message("orders", b"body", tags="paid", keys=["4711"]))

Source: DefaultMessageStore.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from gantrymq.clock import Clock, SystemClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.names import LOCK_TEXT
from gantrymq.fs.api import FileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.host import Host
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.service.runner import Service, ServiceRunner
from gantrymq.store.contents import require_honoured_contents
from gantrymq.store.copied_progress import CopiedProgress
from gantrymq.store.delay import ScheduleMessageService
from gantrymq.store.deletions import Deletions
from gantrymq.store.delivery import Delivery
from gantrymq.store.durability import Durability
from gantrymq.store.flush import (
    CommitRealTimeService,
    FlushConsumeQueueService,
    FlushRealTimeService,
    GroupCommitService,
)
from gantrymq.store.flush_policy import FlushPolicy
from gantrymq.store.former_deliveries import FormerDeliveries
from gantrymq.store.forwarding import forward
from gantrymq.store.geometry import find_file_sizes, require_store
from gantrymq.store.index.index_dispatch import IndexDispatcher
from gantrymq.store.index.index_service import IndexService
from gantrymq.store.live import Live
from gantrymq.store.log.append import MessageAppender
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.file_allocation import (
    AllocateMappedFileService,
    TransientStorePool,
    left_for_queues_bytes,
    lend_buffer,
)
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.lookup import MessageLookup, ReadingStore
from gantrymq.store.meter import NO_METER, StoreMeter
from gantrymq.store.opening import (
    LoadedStore,
    last_timestamp_ms,
    load_index,
    load_parts,
    require_own_queues,
    store_host_of,
    write_abort,
)
from gantrymq.store.paths import StorePaths
from gantrymq.store.put_result import PutMessageResult
from gantrymq.store.puts import Puts
from gantrymq.store.queue.group_offsets import begin_missing_queues, read_group_offsets
from gantrymq.store.queue.queue_dispatch import Arrival, QueueDispatcher
from gantrymq.store.recovery.missing_log import require_whole_log
from gantrymq.store.recovery.reader_views import require_ext_files
from gantrymq.store.recovery.recovery import Progress, Recovery, RecoveryReport
from gantrymq.store.recovery.swap_journal import ReadySwap
from gantrymq.store.reput import ReputMessageService
from gantrymq.store.retention import CleanCommitLogService, CleanConsumeQueueService, DiskSpace
from gantrymq.store.role import Role, RoleFile
from gantrymq.store.slave_acks import SlaveAcks
from gantrymq.store.state import OnFailure, StoreState
from gantrymq.store.store_watch import StoreWatch
from gantrymq.store.timer.timer_service import TimerMessageService


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How a store is opened; :meth:`MessageStore.open` describes the fields."""

    config: MessageStoreConfig
    given: Collection[str]
    housekeeping: bool
    delivers: bool
    accepts_missing_end: bool


@dataclass(frozen=True, slots=True)
class StoreCallbacks:
    """What an open store calls; :meth:`MessageStore.open` describes the fields."""

    progress: Progress | None
    on_arrival: Arrival | None
    on_failure: OnFailure | None
    meter: StoreMeter
    slaves: SlaveAcks | None


class MessageStore(ReadingStore):
    """An open store. Make one with :meth:`open`; close it, or use it as a context manager.

    ``put`` returns when the message is acknowledged as flushDiskType says. With SYNC_FLUSH its bytes are on the disk.
    With ASYNC_FLUSH they are in the page cache, so they survive the end of this process but not a power cut. A message
    can be read once it is dispatched, a moment later.

    ``flush_policy`` says what an acknowledgement waits for.

    Thread rule: every method may be called from any thread.
    """

    def __init__(
        self, path: Path, options: StoreOptions, callbacks: StoreCallbacks, *, fs: FileSystem, clock: Clock
    ) -> None:
        config = options.config
        self._paths = paths = StorePaths.of(path, config)
        self._fs = fs
        self._clock = clock
        self._pool: TransientStorePool | None = None
        self._log_cleaner: CleanCommitLogService | None = None
        self._schedule: ScheduleMessageService | None = None
        self.timers: TimerMessageService | None = None  # with housekeeping and timerWheelEnable, not at a slave
        self.copied_progress: CopiedProgress | None = None  # at a slave
        self.was_slave = False  # at a master with housekeeping: what a former master has delivered is in the log
        paths.require_own_log(config)
        self._store_host = store_host_of(config)  # raises for a bad address before anything is touched
        self.accepted_contents = require_honoured_contents(fs, paths, config)
        fs.make_directory(path)
        self._lock = fs.lock(paths.lock, LOCK_TEXT)
        try:
            self._load(options, callbacks)
            self._start(options, callbacks)
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
        delivers: bool = True,
        accepts_missing_end: bool = False,
        meter: StoreMeter = NO_METER,
        slaves: SlaveAcks | None = None,
    ) -> MessageStore:
        """Open the store at ``path`` for writing and recover it first. With ``create`` it is created if missing.

        File sizes are taken from the files of an existing store; ``given`` names RocketMQ keys whose value in
        ``config`` must hold instead. With ``housekeeping`` retention and the delivery of delayed messages run while the
        store is open. With ``accepts_missing_end`` a store opens although the newest files of its log are missing: the
        units that point there are cut, and the caller must report that.

        Callbacks: ``progress(step, done_bytes, total_bytes)`` during recovery. ``on_arrival(topic, queue_id,
        max_offset)`` for each queue that grew, from the dispatcher's thread. ``on_failure(service, error, is_final)``
        for each new entry of ``failures``, from the thread that failed; after a final one the store accepts no more
        puts. ``meter`` measures deliveries. ``slaves`` has what slaves acknowledge; puts of a SYNC_MASTER wait for it.

        Raises NotAStoreError, StoreLockedError, MissingLogError, MissingFileError, MisfiledQueueError,
        WrongFileSizeError, AmbiguousGeometryError, StorePermissionError, NotHonouredError, DiskFullError. After
        DiskFullError the store is as after a kill; after the others it is unchanged.
        """
        path, config, files = Path(path), config or MessageStoreConfig(), fs or RealFileSystem()
        if not create or files.scan(path):
            require_store(files, StorePaths.of(path, config), creates=create)
        return cls(
            path,
            StoreOptions(config, given, housekeeping, delivers, accepts_missing_end),
            StoreCallbacks(progress, on_arrival, on_failure, meter, slaves),
            fs=files,
            clock=clock or SystemClock(),
        )

    # Start

    def _load(self, options: StoreOptions, callbacks: StoreCallbacks) -> None:
        """Load the parts and recover them."""
        fs, paths, config, given = self._fs, self._paths, options.config, options.given
        sizes = find_file_sizes(fs, paths, config, given)
        now_ms = self._clock.now_ms()
        self.accepted, self.notes = require_whole_log(fs, paths, sizes, now_ms, accepts_end=options.accepts_missing_end)
        for directory in paths.writable_commit_logs[1:] and paths.writable_commit_logs:
            fs.make_directory(directory)  # DiskSpace measures its disk before it has a file
        ReadySwap(fs, paths).finish()
        loaded = load_parts(fs, paths, config, given, self._clock.now_ms(), self._lend_buffer)
        require_own_queues(loaded.parts)
        if config.enable_consume_queue_ext and loaded.last_exit_ok:  # after a crash they may be missing
            require_ext_files(fs, paths, config.mapped_file_size_consume_queue_ext)
        self._parts = parts = loaded.parts
        self._log, self._queues, self._checkpoint = parts.log, parts.queues, parts.checkpoint
        self._index: IndexService | None = None
        dropped: list[tuple[Path, int]] = []
        if config.message_index_enable:
            self._index, config, dropped = load_index(loaded, given, streams=True)
            loaded = loaded._replace(config=config)
        self._live = Live(loaded.config)
        self.flush_policy = self._live.add(FlushPolicy(loaded.config))
        if callbacks.slaves is not None:
            self._live.add(callbacks.slaves).config = loaded.config
            callbacks.slaves.log_end = lambda: parts.log.max_offset
        write_abort(fs, paths)
        index, deleted = self._index, parts.deleted
        self._queue_dispatcher = QueueDispatcher(
            parts.queues,
            loaded.config.delay_levels_ms,
            parts.checkpoint,
            callbacks.on_arrival,
            deleted_ends=lambda: deleted.ends,
        )
        self._index_dispatcher = IndexDispatcher(index, index.end_phy_offset) if index is not None else None
        self._recover(loaded, dropped, callbacks.progress)

    def _recover(self, loaded: LoadedStore, dropped: list[tuple[Path, int]], progress: Progress | None) -> None:
        parts, config = loaded.parts, loaded.config
        recovery = Recovery(
            loaded,
            clock=self._clock,
            queue_dispatcher=self._queue_dispatcher,
            index_dispatcher=self._index_dispatcher,
            dropped_index=dropped,
            progress=progress,
        )
        try:
            self.recovery: RecoveryReport = recovery.run()
        except BaseException:
            if self._index is not None:
                self._index.close()  # a thread may still write into it, and the lock is released next
            raise
        parts.deleted.confirm(parts.log.wrote_offset)
        # Unconfirmed records are not in the queues, and a slave may get the records of its groups' offsets later.
        if not config.duplication_enable and not config.is_slave:
            if RoleFile(self._fs, self._paths.config).load().was_slave:
                begin_missing_queues(read_group_offsets(self._fs, self._paths), self._queues)
            self.recovery.set_groups_back(self._fs, self._paths, self._queues)
        parts.log.queue.reserve_rest()
        parts.log.queue.sync_names()  # a process that was killed may not have synced the name of the last file
        parts.log.queue.flush_all()
        confirmed = parts.checkpoint.page.confirm_phy_offset
        self._confirm_offset = confirmed if config.duplication_enable else parts.log.max_offset

    def _lend_buffer(self, file: MappedFile) -> None:
        """Give a new commit log file a write buffer if transientStorePoolEnable is on."""
        if self._pool is not None:
            lend_buffer(self._pool, file, fail_fast=self.flush_policy.fails_without_buffer)

    def _start(self, options: StoreOptions, callbacks: StoreCallbacks) -> None:
        """Build the parts that work while the store is open, and start their services."""
        config, policy, log, clock = self.config, self.flush_policy, self._log, self._clock
        if policy.lends_buffers:
            self._pool = TransientStorePool(config.transient_store_pool_size, log.file_size)
        self.lookup = self._live.add(MessageLookup(log, self._queues, lambda: self._index, config))
        self._space = self._live.add(DiskSpace(self._fs, self._paths, config))
        self._state = StoreState(self._paths.root, self._checkpoint, self._space, callbacks.on_failure)
        self._state.is_slave = config.is_slave
        self._group_commit = GroupCommitService(
            log, self._checkpoint, lambda error: self._state.note_failure(GroupCommitService.name, error)
        )
        self._reput = ReputMessageService(
            log, self._queue_dispatcher, self._index_dispatcher, self._dispatchable_end, self._confirm_offset
        )
        log.queue.leave_bytes = lambda: left_for_queues_bytes(
            max(self._dispatchable_end() - self._reput.queues_end_offset, 0), log.file_size
        )
        log.queue.full_directories = lambda: self._space.full_directories
        flush = FlushRealTimeService(log, self._checkpoint, policy)
        flush_runner = self._runner(self._group_commit if policy.is_sync else flush)
        commit_runner = self._runner(CommitRealTimeService(log, policy, flush_runner.wake))
        reput_runner = self._runner(self._reput, rest_ms=self._reput.rest_ms, by_calendar=True)
        self._durability = Durability(
            policy,
            group_commit=self._group_commit,
            background=flush,
            slaves=callbacks.slaves,
            wake_flush=flush_runner.wake,
            wake_commit=commit_runner.wake,
        )
        self._puts = Puts(
            self._make_appender(),
            live=self._live,
            state=self._state,
            durability=self._durability,
            wake_dispatch=reput_runner.wake,
            clock=clock,
        )
        self._deletions = Deletions(
            self._parts,
            puts=self._puts,
            durability=self._durability,
            dispatch=self._reput,
            wake_dispatch=reput_runner.wake,
            clock=clock,
        )
        # The order of starting and stopping: a writer is drained before the service that flushes its data, and that
        # before the checkpoint. No put comes any more when they stop.
        self._runners = [
            self._runner(AllocateMappedFileService(log, warm=config.warm_maped_file_enable)),
            commit_runner,
            flush_runner,
            reput_runner,
            self._runner(FlushConsumeQueueService(self._queues, log, self._checkpoint, policy)),
            self._runner(self._watch()),
            *(self._housekeepers(callbacks, delivers=options.delivers) if options.housekeeping else ()),
        ]
        for runner in self._runners:
            runner.start()

    def _make_appender(self) -> MessageAppender:
        return MessageAppender(
            self._log,
            self._queues.next_offsets(),
            self._store_host,
            append_crc=self.config.enabled_append_prop_crc,
            last_timestamp_ms=last_timestamp_ms(self._parts, self._clock.now_ms()),
        )

    def _watch(self) -> StoreWatch:
        paths = self._paths
        directories = (*paths.writable_commit_logs, paths.consume_queue, paths.index)
        return StoreWatch(self._fs, directories, paths.lock, self._lock, self._log, lambda: self._index)

    def _housekeepers(self, callbacks: StoreCallbacks, *, delivers: bool) -> list[ServiceRunner]:
        log, config, live = self._log, self.config, self._live
        queue_cleaner = live.add(
            CleanConsumeQueueService(
                log, self._queues, self._index, config,
                lambda: bool(self._log_cleaner and self._log_cleaner.is_for_space),
            )
        )  # fmt: skip
        queue_runner = self._runner(queue_cleaner, by_calendar=True)
        self._log_cleaner = live.add(
            CleanCommitLogService(
                log, self._queues, self._checkpoint, self._space, config, queue_runner.wake,
                start_ms=self._clock.now_ms(),
            )
        )  # fmt: skip
        self._log_cleaner.slaves = callbacks.slaves
        cleaners = [self._runner(self._log_cleaner, by_calendar=True), queue_runner]
        role = RoleFile(self._fs, self._paths.config)
        if config.is_slave:
            role.save(Role(was_slave=True))
            self.copied_progress = CopiedProgress(self._parts, config, self._clock.now_ms())
            return cleaners
        if not delivers:
            return cleaners
        self.was_slave = role.load().was_slave
        return [*self._deliverers(callbacks.meter), *cleaners]

    def _deliverers(self, meter: StoreMeter) -> list[ServiceRunner]:
        config, live = self.config, self._live
        delivery = Delivery(
            put=self._deliver,
            append=self.append,
            is_durable=self._is_durable,
            ask_for_flush=self.ask_for_flush,
            meter=meter,
        )

        def of_a_thread() -> Delivery:
            return replace(delivery, former=self.former_deliveries())

        self._schedule = live.add(ScheduleMessageService(self._parts, config, of_a_thread()))
        if config.timer_wheel_enable:
            self.timers = live.add(TimerMessageService(self._parts, config, of_a_thread()))
        return [
            self._runner(self._schedule, by_calendar=True),
            *([self._runner(self.timers, by_calendar=True)] if self.timers is not None else ()),
        ]

    def former_deliveries(self) -> FormerDeliveries | None:
        """For one thread: what a former master has delivered. None unless the store was a slave's until this start."""
        return FormerDeliveries(self._parts) if self.was_slave else None

    def _deliver(self, message: Message) -> PutMessageResult:
        """Store a message whose delay is over."""
        if self._state.is_closed:
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        return self._puts.put_here(message)

    def _is_durable(self, offset: int) -> bool:
        return self._log.queue.flushed_where >= offset and not self._state.has_failed_sync

    def _runner(
        self, service: Service, rest_ms: Callable[[], float] | None = None, *, by_calendar: bool = False
    ) -> ServiceRunner:
        return ServiceRunner(service, self._clock, self._state.note_failure, rest_ms=rest_ms, by_calendar=by_calendar)

    def _dispatchable_end(self) -> int:
        return self._confirm_offset if self.config.duplication_enable else self._log.max_offset

    def reconfigure(self, config: MessageStoreConfig) -> None:
        """Use other settings from now on. Raises ConfigError if one differs that is only read ``at_start``."""
        self._live.replace(config)
        for runner in self._runners:
            runner.wake()  # it may sleep for its old interval

    # Stop

    def close(self) -> None:
        """Stop writing, dispatch and flush everything, write the checkpoint and remove ``abort``.

        A second call does nothing.

        If that fails, the error is raised and ``abort`` stays, so that the next open recovers. ``abort`` also stays if
        a sync has failed before (see ``failures``).
        """
        if not self._puts.close():
            return
        try:
            for runner in self._runners:
                runner.stop()
            if self._index is not None:
                self._index.flush()
            self._checkpoint.page.confirm_phy_offset = self._dispatchable_end()
            self._checkpoint.flush()
            if not self._state.has_failed_sync:
                self._end_takeover()
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

    def _end_takeover(self) -> None:
        """Note that the saved progress has all that a former master has delivered, if that is so."""
        deliverers = (self._schedule, self.timers)
        is_complete = all(service is None or service.has_caught_up for service in deliverers)
        if self.was_slave and self.is_writable and is_complete:
            role = RoleFile(self._fs, self._paths.config)
            role.save(role.load()._replace(was_slave=False))

    def __enter__(self) -> MessageStore:
        """Return the store."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()

    # Writing

    put = forward("_puts", Puts.put)
    put_async = forward("_puts", Puts.put_async)
    put_batch = forward("_puts", Puts.put_batch)
    put_batch_async = forward("_puts", Puts.put_batch_async)
    append = forward("_puts", Puts.append)
    check = forward("_puts", Puts.check)
    check_ahead = forward("_puts", Puts.check_ahead)
    append_checked = forward("_puts", Puts.append_checked)
    append_copied = forward("_puts", Puts.append_copied)
    next_offset_in_queue = forward("_puts", Puts.next_offset_in_queue)
    is_awaited = forward("_durability", Durability.is_awaited)
    until_safe = forward("_durability", Durability.until_safe)
    until_durable = forward("_durability", Durability.until_durable)
    flush_soon = forward("_durability", Durability.flush_soon)
    ask_for_flush = forward("_durability", Durability.ask_for_flush)

    # Deleting

    delete_topic = forward("_deletions", Deletions.delete_topic)
    clean_unused = forward("_deletions", Deletions.clean_unused)
    was_deleted = forward("_deletions", Deletions.was_deleted)
    is_deleted = forward("_deletions", Deletions.is_deleted)

    def delete_expired_files(self) -> None:
        """Let retention delete expired files at any hour in its next twenty runs. Without housekeeping nothing happens.

        Source: deleteFilesManually.
        """
        if self._log_cleaner is not None:
            self._log_cleaner.delete_manually()

    # State

    @property
    def config(self) -> MessageStoreConfig:
        """The settings in force."""
        return self._live.config

    @property
    def is_writable(self) -> bool:
        """Whether puts are accepted: not at a slave, nor while the disk is too full, nor after a sync has failed."""
        return self._state.is_writable

    @property
    def failures(self) -> list[tuple[str, Exception]]:
        """The newest failures: the service or method, and the error."""
        return self._state.failures

    @property
    def store_host(self) -> Host:
        """The address that new messages get as the host that stored them: brokerIP1, resolved, and listenPort."""
        return self._store_host

    @property
    def dispatch_behind_bytes(self) -> int:
        """The number of bytes of the log that are not dispatched yet."""
        return self._reput.behind_bytes

    @property
    def dispatched_offset(self) -> int:
        """The physical offset up to which the log is dispatched to queues and index."""
        return self._reput.reput_from_offset

    @property
    def flushed_offset(self) -> int:
        """The physical offset up to which the log is on the disk."""
        return self._log.queue.flushed_where

    @property
    def delay_offsets(self) -> dict[int, int]:
        """The queue offset up to which each delay level is delivered, at a slave by its master."""
        if self.copied_progress is not None:
            return dict(self.copied_progress.delay_offsets)
        return dict(self._schedule.offsets) if self._schedule is not None else {}

    @property
    def disk_used_ratio(self) -> float:
        """The use of the fuller disk, from 0 to 1."""
        return self._space.used_percent() / 100

    @property
    def path(self) -> Path:
        """The directory of the store."""
        return self._paths.root

    @property
    def fs(self) -> FileSystem:
        """The file system of the store."""
        return self._fs

    @property
    def commit_log(self) -> CommitLog:
        """The commit log, for replication."""
        return self._log

    @property
    def commit_log_paths(self) -> tuple[Path, ...]:
        """The directories of the commit log."""
        return self._paths.commit_logs
