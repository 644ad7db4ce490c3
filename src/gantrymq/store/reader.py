"""Reads a store without its lock and without writing a byte, even while a writer has it open.

A reader shows the store as recovery would leave it: the recovery runs over a private view of the files
(:mod:`gantrymq.fs.overlay`). Of a store that is being written, it shows the state at the time of opening.

    with StoreReader.open("/data/store") as reader:
        for message in reader.messages("orders"):
            ...
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from gantrymq.clock import Clock, SystemClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import (
    DiskError,
    DiskFullError,
    MissingFileError,
    MissingLogEndError,
    MissingLogError,
    StoreError,
    WrongFileSizeError,
)
from gantrymq.format.checkpoint import Checkpoint
from gantrymq.format.queue_entry import QueueEntry
from gantrymq.fs.api import FileSystem
from gantrymq.fs.lock_holder import lock_holder
from gantrymq.fs.overlay import OverlayFileSystem
from gantrymq.fs.reads import LostPages
from gantrymq.model.message import StoredMessage
from gantrymq.store.contents import contents_note, require_honoured_contents
from gantrymq.store.geometry import find_file_sizes, require_store
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.lookup import MessageLookup, ReadingStore
from gantrymq.store.opening import LoadedStore, StoreParts, load_parts, misfiled_in
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.queue.consume_queues import ConsumeQueues
from gantrymq.store.queue.queue_dispatch import QueueDispatcher
from gantrymq.store.recovery.log_passes import LostRecords
from gantrymq.store.recovery.missing_log import log_state
from gantrymq.store.recovery.reader_views import (
    cut_damaged_queues,
    cut_misfiled_queues,
    damaged_ext_files,
    end_short_files,
    fill_view,
    lost_page_errors,
    read_queues,
)
from gantrymq.store.recovery.recovered_index import RecoveredIndex
from gantrymq.store.recovery.recovery import Progress, ReaderView, Recovery, RecoveryReport
from gantrymq.store.recovery.swap_journal import ReadySwap


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """How a store is read; :meth:`StoreReader.open` describes the fields."""

    config: MessageStoreConfig
    given: Collection[str]
    trusts_writer: bool
    skips_lost: bool
    reads_queue: Callable[[ConsumeQueue], bool] | None


class StoreReader(ReadingStore):
    """An open view of a store. Make one with :meth:`open`. Every method may be called from any thread."""

    notes: list[StoreError]  # findings to report that do not keep a writer from opening the store

    def __init__(self, path: Path, options: ReaderOptions, *, clock: Clock, progress: Progress | None) -> None:
        self._options, self._clock, self._progress = options, clock, progress
        self._paths = paths = StorePaths.of(path, options.config)
        require_store(OverlayFileSystem(), paths)
        self._lost = LostPages((paths.root, *paths.commit_logs)) if options.skips_lost else None
        try:
            self._look()
        except FileNotFoundError:  # a writer's retention removed a file between the listing and the open
            self._look()
        if lost_files := self._lost_queue_files():
            self._look(lost_files)
        parts, config = self._parts, self._loaded.config
        self._index = RecoveredIndex(
            self._loaded,
            options.given,
            self.recovery,
            keeps_files=self._shows_queues_alone,
            lost=self._lost_records(),
        )
        self.lookup = MessageLookup(parts.log, parts.queues, self._index.get, config)

    def _look(self, lost_files: Collection[Path] = ()) -> None:
        """Load the parts and recover a private view of them. ``lost_files`` are queue files with unreadable parts."""
        paths, options, clock = self._paths, self._options, self._clock
        config, given = options.config, options.given
        self._fs = OverlayFileSystem(self._lost)
        is_written = options.trusts_writer and lock_holder(paths.lock) is not None
        ready = ReadySwap(self._fs, paths)
        if ready.is_set and lock_holder(paths.lock) is None:  # otherwise a rebuild is running
            ready.finish()
        sizes = find_file_sizes(self._fs, paths, config, given)
        self._problems, self.notes = log_state(self._fs, paths, sizes, clock.now_ms())
        if (note := contents_note(self._fs, paths)) is not None:
            self.notes.append(note)
        self._shows_queues_alone = not fill_view(self._fs, paths, sizes, self._problems)
        if config.enable_consume_queue_ext:
            damaged_ext = damaged_ext_files(self._fs, paths, config.mapped_file_size_consume_queue_ext)
            self._problems += damaged_ext
            # Extended units only hold tags codes, which the records have too.
            config = replace(config, enable_consume_queue_ext=not damaged_ext)
        queues_from = None
        queue_size = sizes.mapped_file_size_consume_queue
        if lost_files:
            damaged, queues_from = cut_damaged_queues(self._fs, paths, queue_size, lost_files)
            self._problems += damaged
        try:
            self._loaded: LoadedStore = load_parts(self._fs, paths, config, given, clock.now_ms())
        except (MissingFileError, WrongFileSizeError):  # raised for a queue: missing log files are filled in already
            damaged, queues_from = cut_damaged_queues(self._fs, paths, queue_size)
            self._problems += damaged
            self._loaded = load_parts(self._fs, paths, config, given, clock.now_ms())
        if not self._shows_queues_alone and (begin := self._without_misfiled_queues()) is not None:
            queues_from = begin if queues_from is None else min(begin, queues_from)
            self._parts.close()
            self._loaded = load_parts(self._fs, paths, config, given, clock.now_ms())
        parts, config, last_exit_ok = self._loaded
        end_short_files(parts.log, self._problems)
        dispatcher = QueueDispatcher(
            parts.queues, config.delay_levels_ms, parts.checkpoint, deleted_ends=lambda: parts.deleted.ends
        )
        view = ReaderView(
            trusts_writer=options.trusts_writer and (is_written or last_exit_ok),
            keeps_queues=self._shows_queues_alone,
            queues_from=queues_from,
            lost=self._lost_records(),
        )
        recovery = Recovery(self._loaded, clock=clock, queue_dispatcher=dispatcher, progress=self._progress, view=view)
        self.recovery: RecoveryReport = recovery.run()
        if self._lost is not None and options.reads_queue is not None and not lost_files:
            read_queues(filter(options.reads_queue, parts.queues))

    @property
    def _parts(self) -> StoreParts:
        return self._loaded.parts

    def _lost_records(self) -> LostRecords | None:
        return LostRecords(self._parts.log, self._lost) if self._lost is not None else None

    def _lost_queue_files(self) -> list[Path]:
        """Return the queue files with unreadable parts. Their units are made again from the log."""
        if self._lost is None:
            return []
        return [path for path in self._lost.paths if path.is_relative_to(self._paths.consume_queue)]

    @property
    def problems(self) -> list[StoreError]:
        """The problems met so far for which a writer would refuse the store, the most severe first.

        These are files that are missing or of a wrong length, and with ``skips_lost`` the unreadable parts.
        """
        return [*self._problems, *(lost_page_errors(self._lost) if self._lost is not None else ())]

    def _without_misfiled_queues(self) -> int | None:
        """Remove units of other queues from the view.

        Returns the physical offset from which the log must be read again, or None if nothing was removed.
        """
        errors, begin = cut_misfiled_queues(self._fs, misfiled_in(self._parts))
        self._problems += errors
        return begin if errors else None

    @classmethod
    def open(
        cls,
        path: str | Path,
        config: MessageStoreConfig | None = None,
        *,
        given: Collection[str] = (),
        clock: Clock | None = None,
        progress: Progress | None = None,
        trusts_writer: bool = False,
        skips_lost: bool = False,
        reads_queue: Callable[[ConsumeQueue], bool] | None = None,
    ) -> StoreReader:
        """Open the store at ``path`` for reading.

        ``config``, ``given``, ``clock`` and ``progress`` are as in ``MessageStore.open``.

        With ``trusts_writer`` the log is not read before the last record that the writer has dispatched, if the store
        was closed or a writer has it open. That is fast for any file size; damage before that record shows when the
        record is read, not as the end of the log. After a crash the option has no effect.

        With ``skips_lost`` unreadable parts (pages, files, directories) are skipped where possible and listed in
        :attr:`problems`; no message with a lost byte is shown. A writer refuses such a store. Units of a queue with
        unreadable parts are made again from the log. Opening reads the last three files of each queue, and all files of
        each queue for which ``reads_queue`` returns True.

        Raises NotAStoreError, WrongFileSizeError, StorePermissionError, and DiskError without ``skips_lost``.
        """
        options = ReaderOptions(config or MessageStoreConfig(), given, trusts_writer, skips_lost, reads_queue)
        return cls(Path(path), options, clock=clock or SystemClock(), progress=progress)

    @property
    def config(self) -> MessageStoreConfig:
        """The settings, with the file sizes that the files have."""
        return self._index.config

    @property
    def paths(self) -> StorePaths:
        """The paths of the store."""
        return self._paths

    @property
    def fs(self) -> FileSystem:
        """The private view of the store's files; a change in it stays in memory."""
        return self._fs

    def is_deleted(self, topic: str, phy_offset: int) -> bool:
        """Whether a topic was deleted after the record at an offset was put to be delivered to it later."""
        return self._parts.deleted.is_deleted(topic, phy_offset, b"")

    @property
    def last_exit_ok(self) -> bool:
        """Whether the last writer closed the store. False also while a writer has it open."""
        return self._loaded.last_exit_ok

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint page as it is on the disk."""
        return self._parts.checkpoint.page

    @property
    def log(self) -> CommitLog:
        """The commit log, ended where recovery ended it."""
        return self._parts.log

    @property
    def consume_queues(self) -> ConsumeQueues:
        """The consume queues as recovery left them."""
        return self._parts.queues

    def plan(self) -> RecoveryReport:
        """Return what a recovery would do. Includes the index, which may take a while.

        Raises AmbiguousGeometryError, WrongFileSizeError, and every error with which `store recover` refuses the store.
        """
        require_honoured_contents(self._fs, self._paths, self.config)
        for problem in self.problems:
            is_lost_ext = problem.path.is_relative_to(self._paths.consume_queue_ext) and type(problem) is StoreError
            if isinstance(problem, MissingLogEndError):  # recovery reports what it cuts there
                continue
            if is_lost_ext and not self._loaded.last_exit_ok:  # after a crash they may be missing
                continue
            is_of_log = isinstance(problem, MissingLogError) or (
                isinstance(problem, MissingFileError) and problem.path.parent in self._paths.commit_logs
            )
            if not (is_of_log and self.config.accept_missing_commit_log):
                raise problem
        try:
            self._index.get()
        except (DiskError, DiskFullError) as error:
            if self.recovery.index_behind is not error:  # only then a recovery is refused
                raise
        if not self.config.duplication_enable:
            self.recovery.find_groups_ahead(self._fs, self._paths, self.consume_queues)
        return self.recovery

    def entries(
        self, queue: ConsumeQueue, begin: int | None = None, end: int | None = None
    ) -> Iterator[tuple[int, QueueEntry, StoredMessage | None]]:
        """Yield (queue offset, unit, message or None if unreadable) of a queue. Pre-blanks are skipped."""
        low = queue.min_offset if begin is None else max(begin, queue.min_offset)
        high = queue.max_offset if end is None else min(end, queue.max_offset)
        for offset, entry in self.lookup.iterate(queue, low, high):
            if not entry.is_filler:
                yield offset, entry, self.log.read(entry.phy_offset, entry.size_bytes)

    def messages(self, topic: str | None = None) -> Iterator[StoredMessage]:
        """Yield every readable message, or those of one topic, in queue order."""
        for queue in self.consume_queues:
            if topic is None or queue.topic == topic:
                for _, _, message in self.entries(queue):
                    if message is not None:
                        yield message

    def close(self) -> None:
        """Close the files. Views that are still in use stay mapped."""
        self._index.close()
        self._parts.close()
        self._fs.close()

    def __enter__(self) -> StoreReader:
        """Return the reader."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the reader."""
        self.close()
