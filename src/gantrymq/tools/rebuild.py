"""Recreates consume queues and index files from the commit log.

The store's own dispatchers write the new files, so they are byte for byte what the store would have written for every
whole record of the log. The files are written to ``rebuild.tmp`` in the store and replace the old files only when all
of them are durable. A journal is written before the first file moves, so that the next open can finish a rebuild that
was killed (:mod:`gantrymq.store.recovery.swap_journal`). RocketMQ does not know the journal. During the swap the store
therefore has ``abort`` and a checkpoint that covers nothing: a RocketMQ that is started after a kill dispatches the
whole log again. A store with a damaged log gets neither, because RocketMQ would cut the log at the damage.

The log is never changed. Damage in it is skipped and reported. A record of a closed store with a right body enters its
queue if the next start takes it all the same, and is reported too. Slots of lost messages get filler units, so that
later queue offsets stay the same; if no message follows them, the old units are kept. Records whose queue nothing
proves get no unit; they are copied to ``lost+found`` (:mod:`gantrymq.tools.repair.quarantine`). The log alone may not
show whether a topic was deleted and recreated; the first unit of the old queue decides then. A queue without a record
in the log is left as it is, because its files have its next offset.

Thread rule: one rebuild of a store at a time, enforced by the store's lock. Several threads read, as in recovery.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from gantrymq.clock import SystemClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import StoreError
from gantrymq.format import names
from gantrymq.format.checkpoint import Checkpoint
from gantrymq.format.names import LOCK_TEXT
from gantrymq.format.record import CheckCRC
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import FileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.kernels import codes
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.contents import require_honoured_contents
from gantrymq.store.deleted_topics import DeletedTopics
from gantrymq.store.geometry import INDEX_KEYS, require_store
from gantrymq.store.index.index_dispatch import IndexDispatcher, IndexWorker
from gantrymq.store.index.index_service import IndexService
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.log.record_batch import LARGE_BATCH_RECORDS, DigestScan, Scan
from gantrymq.store.log.scan_ahead import ScanAhead
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queues import ConsumeQueues
from gantrymq.store.queue.queue_dispatch import BeginOf, QueueDispatcher
from gantrymq.store.queue.queue_units import PassedOver, Renumbered
from gantrymq.store.recovery.missing_log import require_whole_log
from gantrymq.store.recovery.recovery import Progress
from gantrymq.store.recovery.swap_journal import WORK_DIRECTORY, FileSwap, ReadySwap, require_same_disk
from gantrymq.tools.audit.loss_account import take_account
from gantrymq.tools.audit.unproved import UnprovedRecords, skipped_records
from gantrymq.tools.read.filed_queues import FiledAs, FiledQueues, filed
from gantrymq.tools.read.foreign_log_files import mark_foreign, not_compared
from gantrymq.tools.read.index_files import store_sizes
from gantrymq.tools.read.intact_records import FoundRecords, IntactRecords
from gantrymq.tools.read.log_extent import LogExtent, Suspect
from gantrymq.tools.read.log_places import is_within_retention, log_files
from gantrymq.tools.read.quarantine_list import quarantined_in
from gantrymq.tools.read.queue_files import ResultQueues, begin_of
from gantrymq.tools.read.record_lookup import RecordLookup
from gantrymq.tools.read.store_source import StoreSource
from gantrymq.tools.repair.next_start import (
    accepted_by_start,
    forget_broken_blanks,
    lose_displaced,
    next_start_begins_at,
    next_stop,
)
from gantrymq.tools.repair.quarantine import raw_records, write_records
from gantrymq.tools.repair.queue_ends import preserve_queue_ends, queue_ends, set_groups_back
from gantrymq.tools.repair.result_directory import most_unit_bytes, require_room, unit_bytes
from gantrymq.tools.reports import LossAccount, LostRange, Quarantined, RepairedRecord

STEP = "Rebuilding"
_NO_ROOM = "make room there, or let `gantrymq store salvage` make a store on another disk"
ANOTHER_OFFSET = "another queue offset"
IN_QUARANTINE = "its record is quarantined, in lost+found"
_SIZE_KEYS = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", *INDEX_KEYS)


@dataclass(slots=True)
class RebuildReport:
    """What a rebuild read and wrote, and the ``account`` of what is not in the result.

    ``renumbered`` records are whole but carry a wrong queue offset. They have units, and the account lists them as
    repaired.
    """

    queues_rebuilt: bool
    index_rebuilt: bool
    last_exit_ok: bool = True
    min_phy_offset: int = -1
    max_phy_offset: int = 0
    records: int = 0
    queues: int = 0
    queue_units: int = 0
    queue_files: int = 0
    index_files: int = 0
    index_entries: int = 0
    removed_files: int = 0
    account: LossAccount = field(default_factory=LossAccount)
    renumbered: list[Renumbered] = field(default_factory=list)
    filed_as: FiledAs = field(default_factory=dict)
    steps_ms: dict[str, float] = field(default_factory=dict)

    @property
    def lost(self) -> list[LostRange]:
        """The ranges of the log without a whole record, including a missing end."""
        return self.account.ranges


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """What to build from the log in ``files`` into the existing directory ``work``; ``config`` has the file sizes.

    ``old`` is the store whose queues say where they began. ``deleted_ends`` maps a topic to the physical offset before
    which all its records are deleted. Records at the physical offsets in ``left_out`` enter no queue. Damaged records
    at those in ``accepted`` enter their queue. ``filed_as`` renames files of old queues that have the wrong name.
    """

    files: list[LogFile]
    work: StorePaths
    old: StorePaths
    config: MessageStoreConfig
    queues: bool
    index: bool
    deleted_ends: Mapping[str, int]
    left_out: frozenset[int] = frozenset()
    accepted: frozenset[int] = frozenset()
    filed_as: FiledAs = field(default_factory=dict)

    def records(
        self, fs: FileSystem, files: list[LogFile], scan: Scan | None = None, ahead: ScanAhead | None = None
    ) -> IntactRecords:
        """The records of some of the files. A single misplaced one is returned, because the log is not corrected."""
        check = CheckCRC.WHOLE_RECORD if self.config.force_verify_prop_crc else CheckCRC.BODY
        return IntactRecords(
            fs, files, scan, ahead, log=self.files, moves_records=False, accepted=self.accepted, check=check
        )

    def begin_of(self, fs: FileSystem) -> BeginOf:
        """A function that returns the physical offset at which an old queue began."""
        fs, size = filed(fs, self.filed_as), self.config.mapped_file_size_consume_queue
        return partial(begin_of, fs, self.old.consume_queue, size)


@dataclass(slots=True)
class Built:
    """New files, all of them durable.

    ``roots`` are directories with consume queues, each laid out as in a store. Index files are in the work directory.
    The other fields go into the checkpoint: the last record that is in a queue, and the end of the last full index
    file.
    """

    contents: FoundRecords
    roots: list[StorePaths]
    queues: int = 0
    queue_units: int = 0
    index_files: int = 0
    index_entries: int = 0
    queued_timestamp_ms: int = 0
    queued_phy_offset: int = 0
    index_timestamp_ms: int = 0
    renumbered: list[tuple[str, int, Renumbered]] = field(default_factory=list)
    passed_over: list[tuple[str, int, PassedOver]] = field(default_factory=list)


Build = Callable[[FileSystem, BuildOrder, Progress | None], Built]


def build_here(fs: FileSystem, order: BuildOrder, progress: Progress | None) -> Built:
    """Build the files on this machine. Raises DiskFullError."""
    scan = partial(DigestScan, codes.CHECK_MARK, order.config.delay_levels_ms, LARGE_BATCH_RECORDS)
    with ScanAhead(partial(scan, sets=1)) as ahead:
        return _build_of(order.records(fs, order.files, scan(), ahead), fs, order, progress)


def _build_of(records: IntactRecords, fs: FileSystem, order: BuildOrder, progress: Progress | None) -> Built:
    config, work = order.config, order.work
    built, checkpoint = Built(records.contents, [work]), StoreCheckpoint(fs, work.checkpoint)
    full_files_ms: list[int] = []
    queues = ConsumeQueues(fs, work, config)
    dispatcher = QueueDispatcher(
        queues,
        config.delay_levels_ms,
        checkpoint,
        begin_of=order.begin_of(fs),
        deleted_ends=lambda: order.deleted_ends,
        left_out=order.left_out,
    )
    geometry = config.max_hash_slot_num, config.max_index_num
    index = IndexService(fs, work.index, *geometry, full_files_ms.append, streams=True)
    indexer = IndexDispatcher(index, 0)
    try:
        with IndexWorker(indexer if order.index else None) as beside:
            for batch in records:
                beside.dispatch(batch)
                if order.queues:
                    dispatcher.dispatch(batch)
                if progress is not None:
                    progress(STEP, batch.end_offset - records.min_offset, records.total_bytes)
        if (full := indexer.disk_full()) is not None:
            raise full
        with ThreadPoolExecutor(1, "IndexFlush") as beside_queues:
            flushed = beside_queues.submit(index.flush)
            queues.flush()
            flushed.result()
    finally:
        queues.close()
        built.index_files = len(index.files)
        index.close()
    built.renumbered = [(queue.topic, queue.queue_id, record) for queue in queues for record in queue.renumbered]
    built.passed_over = [(queue.topic, queue.queue_id, record) for queue in queues for record in queue.passed_over]
    built.queues = sum(queue.max_physic_offset >= 0 for queue in queues)  # others have only left-out records
    built.queue_units, built.index_entries = dispatcher.added, indexer.added
    built.queued_timestamp_ms = checkpoint.tmp_logics_msg_timestamp_ms
    built.queued_phy_offset = checkpoint.tmp_logics_physical_offset
    built.index_timestamp_ms = full_files_ms[-1] if full_files_ms else 0
    return built


@dataclass(frozen=True, slots=True)
class SalvagedLog:
    """What a salvage knows about the log that it copied, and how it corrects the copy.

    ``files`` are the files of the old log, ``lost`` the ranges that could not be copied, ``misplaced`` the records that
    carry another physical offset. ``overwrite`` replaces quarantined records of the copy by filler.
    """

    files: Sequence[LogFile]
    lost: Sequence[LostRange]
    misplaced: Sequence[LostRange]
    overwrite: Callable[[Sequence[Quarantined]], None]


class _Rebuild:
    """One rebuild under the lock of the store."""

    def __init__(
        self,
        source: StoreSource,
        old: Path,
        build: Build,
        progress: Progress | None,
        report: RebuildReport,
        salvaged: SalvagedLog | None,
    ) -> None:
        self._fs = source.fs
        self._paths = StorePaths.of(source.root, source.config)
        self._old = StorePaths(old)
        self._work = StorePaths(source.root / WORK_DIRECTORY)
        self._ready = ReadySwap(source.fs, self._paths)
        self._config = source.config
        self._given = source.given
        self._build = build
        self._progress = progress
        self._report = report
        self._salvaged = salvaged
        self._lost = salvaged.lost if salvaged is not None else ()
        self._clock = SystemClock()
        self._files_end = 0
        self._queues = FiledQueues(self._old, ())
        self._accepted = frozenset[int]()

    def run(self) -> None:
        report = self._report
        self._ready.finish()
        report.last_exit_ok = not self._fs.exists(self._paths.abort)
        config = store_sizes(self._fs, self._paths, self._config, self._given, index=report.index_rebuilt)
        # A store that refuses to open must not look repaired.
        require_whole_log(self._fs, self._paths, config, accepts_end=True)
        CommitLog(self._fs, self._paths, config.mapped_file_size_commit_log).load()
        files, _ = log_files(self._fs, self._paths)
        while files and not files[-1].size_bytes:  # the next recovery removes it
            files.pop()
        if not files:
            raise StoreError(self._paths.commit_log, "there is no commit log to rebuild from")
        self._files_end = files[-1].end
        if self._salvaged is None:
            files = mark_foreign(self._fs, self._old, config, files)
        for target in (self._paths.consume_queue, self._paths.consume_queue_ext, self._paths.index):
            require_same_disk(self._fs, self._work.root, target)
        self._ready.clear()
        if self._salvaged is None and report.queues_rebuilt:
            min_bytes = partial(unit_bytes, self._fs, files)
            require_room(self._fs, self._work.root, most_unit_bytes(files), min_bytes, _NO_ROOM)
        try:
            parts = report.queues_rebuilt, report.index_rebuilt
            self._rebuild(BuildOrder(files, self._work, self._old, config, *parts, self._deleted_ends(files)))
        except BaseException:
            self._ready.give_up()
            raise

    def _deleted_ends(self, files: list[LogFile]) -> Mapping[str, int]:
        with closing(RecordLookup.of(self._fs, files)) as lookup:
            return DeletedTopics(self._fs, self._paths, lookup.topic_and_end, files[0].base).ends

    def _rebuild(self, order: BuildOrder) -> None:
        report = self._report
        self._fs.make_directory(self._work.root)  # synced here, because the files below do not sync names above them
        with self._step("read"):
            built = self._built(order)
        self._note(built)
        if not report.last_exit_ok:
            self._sync_log(order.files)
        with self._step("swap"):
            self._swap(built)
        if report.queues_rebuilt and self._salvaged is None:  # a salvage adds more to its queues first
            ends = queue_ends(self._fs, self._paths, order.config.mapped_file_size_consume_queue)
            report.account.groups_ahead = set_groups_back(self._fs, self._paths, ends)
            if report.last_exit_ok:  # a queue without any record keeps its old files
                short = report.account.short_queues
                report.account.short_queues = [
                    queue for queue in short if queue.end or (ends(queue.topic, queue.queue_id) or 0) < queue.was_end
                ]

    def _built(self, order: BuildOrder) -> Built:
        """Build, and build again without the records whose queue nothing proves."""
        self._queues = FiledQueues(self._old, order.files)
        if order.queues:
            self._queues.find_misfiled(self._fs)
        order = replace(order, filed_as=self._queues.filed_as)
        with closing(RecordLookup.of(self._fs, order.files)) as lookup:
            known = quarantined_in(self._fs, self._paths.root, lookup) if order.queues else []
            raws = raw_records(lookup, known)
            built, account, suspects = self._compared(order, known)
            if order.queues and not (account.is_empty and not account.filled and not built.passed_over):
                unproved = UnprovedRecords(filed(self._fs, order.filed_as), self._old, order.config, order.files)
                of_salvage = self._salvaged.misplaced if self._salvaged is not None else ()
                misplaced = [*built.contents.misplaced, *of_salvage]
                evidence = built.passed_over, built.renumbered, account.ranges, misplaced
                more = unproved.find(built.roots, suspects, *evidence) or skipped_records(built.passed_over)
                while more:  # ends, as records that get no unit leave the others as they are
                    raws |= raw_records(lookup, more)
                    known += more
                    built, account = self._again(order, more, known)
                    more = skipped_records(built.passed_over)
        if known:
            known.sort(key=lambda record: record.phy_offset)  # the engines find them in different orders
            self._quarantine(order, known, raws)
        account.quarantine(known)
        if known and not self._report.last_exit_ok and self._salvaged is None:
            result = ResultQueues(self._fs, built.roots, order.config.mapped_file_size_consume_queue)
            lose_displaced(account, known, self._next_begin(order, built), result.phy_offset_of)
        account.misfiled = self._queues.misfiled
        self._report.filed_as = self._queues.filed_as
        self._report.account = account
        return built

    def _again(
        self, order: BuildOrder, added: Sequence[Quarantined], left_out: Sequence[Quarantined]
    ) -> tuple[Built, LossAccount]:
        """Build again, after ``added`` were added to the records that are ``left_out``."""
        if self._salvaged is not None:
            self._salvaged.overwrite(added)
        self._ready.clear()
        self._fs.make_directory(self._work.root)
        return self._compared(order, left_out)[:2]

    def _compared(self, order: BuildOrder, left_out: Sequence[Quarantined]) -> tuple[Built, LossAccount, list[Suspect]]:
        """Build without the records in ``left_out``, and compare the result with the old store."""
        phy_offsets = frozenset(record.phy_offset for record in left_out)
        order = replace(order, left_out=phy_offsets)
        built = self._build(self._fs, replace(order, accepted=self._accepted), self._progress)
        if self._accept_damaged(order, built):
            self._ready.clear()
            self._fs.make_directory(self._work.root)
            built = self._build(self._fs, replace(order, accepted=self._accepted), self._progress)
        if order.queues:
            fs = filed(self._fs, order.filed_as)
            built.queue_units += preserve_queue_ends(fs, self._paths, built.roots, order.config, built.contents)
        return built, *self._account(order, built, left_out)

    def _quarantine(self, order: BuildOrder, records: list[Quarantined], raws: Mapping[int, bytes]) -> None:
        """Make the store of the quarantined records."""
        root = self._paths.root
        size = write_records(self._fs, root, records, raws)
        one_log = replace(order.config, store_path_commit_log="", read_only_commit_log_store_paths="")
        config = replace(one_log, mapped_file_size_commit_log=size)
        rebuild_store(root / names.LOST_FOUND, config, given=_SIZE_KEYS, fs=self._fs)

    def _sync_log(self, files: list[LogFile]) -> None:
        """Sync the log of a killed store, because the new checkpoint will cover data that is only in the page cache."""
        for log_file in files:
            file = self._fs.open(log_file.path)
            try:
                file.sync()
            finally:
                file.close()
        self._fs.sync_directory(*self._paths.commit_logs)

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        began_s = self._clock.monotonic_s()
        yield
        self._report.steps_ms[name] = round((self._clock.monotonic_s() - began_s) * 1000, 3)

    def _note(self, built: Built) -> None:
        report, contents = self._report, built.contents
        report.min_phy_offset, report.max_phy_offset = contents.min_offset, contents.end_offset
        report.records, report.renumbered = contents.records, sorted(record for _, _, record in built.renumbered)
        report.queues, report.queue_units = built.queues, built.queue_units
        report.index_files, report.index_entries = built.index_files, built.index_entries

    def _account(
        self, order: BuildOrder, built: Built, left_out: Sequence[Quarantined]
    ) -> tuple[LossAccount, list[Suspect]]:
        """Compare the old queues, checkpoint and index with the result; return the losses and the suspect units."""
        contents, roots = built.contents, built.roots if order.queues else [self._paths]
        quarantined = (
            LostRange(
                self._path_of(order, record),
                record.phy_offset,
                record.phy_offset + record.size_bytes,
                IN_QUARANTINE,
                True,
            )
            for record in left_out
        )
        lost = [*contents.lost(), *contents.misplaced, *self._lost, *quarantined]
        begin = min([contents.min_offset, *(gap.start for gap in self._lost)])
        is_young = is_within_retention(self._fs, order.files, order.config, self._clock)
        extent = LogExtent(begin, contents.end_offset, lost, begins_too_late=is_young)
        self._queues.hide_foreign(extent)
        stop = self._next_stop(order, built)
        if stop is not None:
            text = f"after the damage at {stop.start}, where the next start truncates the log; store salvage keeps it"
            if stop.reason == StopReason.UNREADABLE:
                text = f"behind {stop.start}, which is unreadable"
                text += ": the next start refuses the store; store salvage keeps it"
            extent = replace(extent, end=stop.start, behind=text)
        fs = filed(self._fs, self._queues.filed_as)
        with closing(RecordLookup.of(self._fs, order.files)) as lookup:
            account, suspects = take_account(fs, self._old, order.config, extent, contents.end_offset, roots, lookup)
        log_files = self._salvaged.files if self._salvaged is not None else order.files
        account.not_compared += not_compared(log_files)
        forget_broken_blanks(self._fs, log_files, account)
        account.ranges = sorted([*account.ranges, *contents.accepted], key=lambda gap: gap.start)
        account.repaired += [
            RepairedRecord(topic, queue_id, record.queue_offset, record.phy_offset, record.size_bytes, ANOTHER_OFFSET)
            for topic, queue_id, record in sorted(built.renumbered, key=lambda renumbered: renumbered[-1])
        ]
        return account, suspects

    def _path_of(self, order: BuildOrder, record: Quarantined) -> Path:
        paths = (file.path.name for file in order.files if file.base <= record.phy_offset < file.end)
        return self._old.commit_log / next(paths, "")

    def _accept_damaged(self, order: BuildOrder, built: Built) -> bool:
        """Note the damaged records that the next start takes; whether there are new ones, which need a unit."""
        gaps = built.contents.gaps
        if not self._report.last_exit_ok or self._salvaged is not None or not any(gap.has_right_body for gap in gaps):
            return False
        accepted = accepted_by_start(gaps, self._next_begin(order, built))
        self._accepted |= accepted
        return bool(accepted)

    def _next_stop(self, order: BuildOrder, built: Built) -> LostRange | None:
        """The damage before the log's end at which the next start stops, or None."""
        gaps = built.contents.lost()
        return next_stop(gaps, self._next_begin(order, built)) if gaps else None

    def _next_begin(self, order: BuildOrder, built: Built) -> int:
        """The physical offset from which the next start reads the log."""
        page = self._page(StoreCheckpoint(self._fs, self._paths.checkpoint).page, built)
        reached = built.queued_phy_offset if order.queues else page.logics_physical_offset
        is_closed = self._report.last_exit_ok
        return next_start_begins_at(self._fs, self._paths, order.config, page, reached, last_exit_ok=is_closed)

    # The swap

    def _swap(self, built: Built) -> None:
        paths, work, report = self._paths, self._work, self._report
        swap = FileSwap(self._fs, paths.root)
        if report.queues_rebuilt:
            for root in built.roots:
                swap.add_below(root.consume_queue, paths.consume_queue)
                swap.add_below(root.consume_queue_ext, paths.consume_queue_ext)
            for directory in self._queues.without_own_files() if self._old.root == paths.root else ():
                swap.remove_unless_added(work.root / "none", directory)
            report.queue_files = swap.count
        if report.index_rebuilt:
            swap.add(work.index, paths.index)
        checkpoint = StoreCheckpoint(self._fs, paths.checkpoint)
        page = self._page(checkpoint.page, built)
        self._ready.set(swap, page, built.contents.end_offset)
        if not report.lost:
            self._distrust(checkpoint)
        report.removed_files = swap.run()
        checkpoint.page = page
        checkpoint.flush()
        if report.last_exit_ok:
            self._fs.remove(paths.abort)
        self._fs.sync_directory(paths.root)
        self._ready.clear()

    def _distrust(self, checkpoint: StoreCheckpoint) -> None:
        """Make a RocketMQ that opens the store from now on dispatch the whole log again."""
        file = self._fs.open(self._paths.abort, writable=True, create=True)
        try:
            file.sync()
        finally:
            file.close()
        self._fs.sync_directory(self._paths.root)
        checkpoint.page = Checkpoint()
        checkpoint.flush()

    def _page(self, before: Checkpoint, built: Built) -> Checkpoint:
        """The checkpoint page for the new files."""
        page = replace(before)
        if self._report.queues_rebuilt:
            # A time without an offset would cover every record of that millisecond (StoreCheckpoint.queues_flushed).
            page.logics_msg_timestamp_ms = built.queued_timestamp_ms if built.queued_phy_offset > 0 else 0
            page.logics_physical_offset = built.queued_phy_offset
            page.confirm_phy_offset = min(page.confirm_phy_offset, self._files_end)  # the account lists the rest
        if self._report.index_rebuilt:
            page.index_msg_timestamp_ms = built.index_timestamp_ms
        return page


def rebuild_store(
    path: str | Path,
    config: MessageStoreConfig | None = None,
    *,
    queues: bool = True,
    index: bool = True,
    given: Collection[str] = (),
    old: str | Path | None = None,
    fs: FileSystem | None = None,
    build: Build = build_here,
    progress: Progress | None = None,
    salvaged: SalvagedLog | None = None,
) -> RebuildReport:
    """Recreate queues and index of the store at ``path`` from its log; arguments as for ``MessageStore.open``.

    Without messageIndexEnable no index is built. A store that was not closed stays so: the next open recovers it.
    ``old`` is the store with the old queues, by default this one. ``salvaged`` describes the original log if the log of
    this store is a copy of it. ``build`` writes the new files.

    Raises NotAStoreError, NotHonouredError, StoreLockedError, WrongFileSizeError (if the log cannot be opened),
    AmbiguousGeometryError, DiskFullError, StorePermissionError. After any of them the store is unchanged, or the next
    open finishes the swap.
    """
    fs, path = fs or RealFileSystem(), Path(path)
    config = config or MessageStoreConfig()
    paths = StorePaths.of(path, config)
    require_store(fs, paths)
    paths.require_own_log(config)
    if salvaged is None:  # the result of a salvage is made; opening it is refused
        require_honoured_contents(fs, paths, config)
    report = RebuildReport(queues, index and config.message_index_enable)
    lock = fs.lock(StorePaths(path).lock, LOCK_TEXT)
    try:
        source = StoreSource(fs, path, config, given)
        _Rebuild(source, Path(old or path), build, progress, report, salvaged).run()
    finally:
        lock.release()
    return report
