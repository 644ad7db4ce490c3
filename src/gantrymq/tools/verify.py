"""Verification of a store: reads all of it and names each kind of damage (:mod:`gantrymq.tools.reports`).

    for finding in verify_store("/data/store"):
        print(finding.kind.value, finding.path, finding.text)

A state that a recovery repairs without losing a whole record is reported as a note, not as damage: the torn end of a
killed store's log, queues that lag behind the log, an index that is filled again. Verify takes no lock and writes
nothing, so it may run while a broker uses the store. Such a store is treated as one that was not closed, and files that
retention deletes meanwhile are not reported as missing.

Memory does not grow with the number of messages: it holds a few chunks of the log, a number for each queue, and the
findings. Three threads work: one scans the log ahead, one compares the queues, one the index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Protocol

from gantrymq.clock import SystemClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import WrongFileSizeError
from gantrymq.format.checkpoint import decode_checkpoint
from gantrymq.fs.api import FileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import TIMER_TOPIC
from gantrymq.store.deleted_topics import DeletedTopics
from gantrymq.store.geometry import log_file_size, require_store
from gantrymq.store.log.log_reader import LogEvent, LogFile, LogFileReader
from gantrymq.store.log.mapped_file_queue import SALVAGE
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.store.log.scan_ahead import one_ahead
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.group_offsets import groups_ahead, read_group_offsets
from gantrymq.store.recovery.reader_views import damaged_ext_files
from gantrymq.store.recovery.recovery import Progress
from gantrymq.store.timer.timer_recovery import LogEnds
from gantrymq.tools.check.index_check import IndexCheck
from gantrymq.tools.check.log_check import LogCheck, check_foreign_log_files, check_missing_log
from gantrymq.tools.check.queue_check import QueueCheck
from gantrymq.tools.check.queue_units_check import QueueUnitsCheck
from gantrymq.tools.check.small_files_check import (
    TableDecoders,
    check_checkpoint,
    check_config,
    check_contents,
    check_groups,
    check_names,
    check_routes,
    read_checkpoint,
)
from gantrymq.tools.check.timer_check import TimerCheck
from gantrymq.tools.check.unreadable import unreadable_ext_pages, unreadable_findings
from gantrymq.tools.findings import Finding, FindingKind, Severity
from gantrymq.tools.read.bad_disk import ListedFileSystem, ReadableBytes
from gantrymq.tools.read.foreign_log_files import mark_foreign
from gantrymq.tools.read.index_files import (
    IndexFiles,
    count_kept,
    find_index_files,
    queue_file_size,
)
from gantrymq.tools.read.log_places import log_files
from gantrymq.tools.read.record_lookup import RecordLookup
from gantrymq.tools.read.store_source import StoreSource

INDEX_STEP = "Verifying the index"
STEP = "Verifying"
QUEUES_STEP = "Verifying queues"
_RECOVER = "`gantrymq store recover`"


@dataclass(slots=True)
class VerifySummary:
    """Totals of what was read and found. They are complete after the iteration over the findings."""

    last_exit_ok: bool = True
    min_phy_offset: int = -1
    max_phy_offset: int = 0
    records: int = 0
    record_bytes: int = 0
    queues: int = 0
    queue_entries: int = 0
    index_files: int = 0
    index_entries: int = 0
    unreadable_messages: int = 0
    findings: int = 0
    notes: int = 0
    kinds: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class VerifyPlan:
    """What is read and how it is interpreted. ``index_paths`` is None if the store has no readable index."""

    root: Path
    config: MessageStoreConfig
    files: list[LogFile]
    log_file_size: int
    queue_file_size: int
    is_closed: bool
    index_paths: list[Path] | None
    index_slots: int
    index_entries: int
    deleted_ends: Mapping[str, int]

    def log_check(self) -> LogCheck:
        """A new check of the log."""
        return LogCheck(StorePaths.of(self.root, self.config), self.files, self.log_file_size, is_closed=self.is_closed)

    def queue_check(self, fs: FileSystem) -> QueueCheck:
        """A new check of the queues; call its ``load`` before use."""
        directory, levels = StorePaths(self.root).consume_queue, self.config.delay_levels_ms
        return QueueCheck(fs, self.root, directory, self.queue_file_size, levels, self.deleted_ends)

    def index_check(self, fs: FileSystem, log: LogCheck, lookup: RecordLookup) -> IndexCheck | None:
        """A check of all index files, which it maps; None without an index."""
        if self.index_paths is None:
            return None
        files = [(path, ReadableBytes(fs.open(path))) for path in self.index_paths]
        slots, entries = self.index_slots, self.index_entries
        return IndexCheck(self.root, files, slots, entries, log, lookup, is_closed=self.is_closed)


class VerifyEngine(Protocol):
    """Reads the index and the log for a verification, on this machine or elsewhere."""

    def check_index(self, plan: VerifyPlan, index: IndexCheck) -> Iterator[Finding]:
        """Check each index file by itself."""
        ...

    def read_log(
        self, plan: VerifyPlan, log: LogCheck, queues: QueueCheck, index: IndexCheck | None
    ) -> Iterator[Finding]:
        """Read the log and pass its events to the checks."""
        ...


class VerifyHere:
    """The engine that reads on this machine, with three threads."""

    def __init__(self, fs: FileSystem, progress: Progress | None) -> None:
        self._fs = fs
        self._progress = progress

    def check_index(self, plan: VerifyPlan, index: IndexCheck) -> Iterator[Finding]:
        """Check each index file by itself."""
        return index.check_files(None if self._progress is None else partial(self._progress, INDEX_STEP))

    def read_log(
        self, plan: VerifyPlan, log: LogCheck, queues: QueueCheck, index: IndexCheck | None
    ) -> Iterator[Finding]:
        """Read the log and pass its events to the checks, batch by batch."""
        files = plan.files
        total, begin = sum(file.size_bytes for file in files), files[0].base if files else 0
        with ThreadPoolExecutor(1, "IndexCheck") as pool:
            for event in one_ahead(log_events(self._fs, files)):
                yield from log.add(event)
                if isinstance(event, RecordBatch):
                    self._compare(pool, event, queues, index)
                    if self._progress is not None:
                        self._progress(STEP, event.end_offset - begin, total)

    @staticmethod
    def _compare(pool: Executor, batch: RecordBatch, queues: QueueCheck, index: IndexCheck | None) -> None:
        comparing = pool.submit(index.add, batch) if index is not None else None
        try:
            queues.add(batch)
        finally:
            if comparing is not None:
                comparing.result()


class Verification:
    """One verification of a store. Iterate over it once. :func:`verify_store` creates it."""

    def __init__(
        self,
        source: StoreSource,
        engine: VerifyEngine,
        now_ms: int,
        decoders: TableDecoders,
        queue_progress: Progress | None,
    ) -> None:
        self._paths = StorePaths.of(source.root, source.config)
        require_store(source.fs, self._paths)
        self.summary = VerifySummary()
        self._config = source.config
        self._given = source.given
        self._listed = ListedFileSystem(source.fs, source.root, (source.root, *self._paths.commit_logs))
        self._fs = self._listed.as_file_system()
        self._engine = engine
        self._now_ms = now_ms
        self._decoders = decoders
        self._queue_progress = queue_progress
        self._has_log = False

    def __iter__(self) -> Iterator[Finding]:
        """Yield every finding as soon as it is certain."""
        for finding in chain(self._findings(), self._unlisted()):
            if finding.level is Severity.DAMAGE:
                self.summary.findings += 1
            else:
                self.summary.notes += 1
            self.summary.kinds[finding.kind.value] += 1
            yield finding.with_remedy() if self._has_log else finding  # without a log, rebuild refuses

    def _unlisted(self) -> Iterator[Finding]:
        for path in self._listed.roots():
            text = f"the disk cannot list the directory: {self._listed.unlisted[path]}"
            text += "; mount or repair the disk" if path in self._paths.commit_logs else f"; {SALVAGE}"
            yield Finding(FindingKind.FILE_UNREADABLE, self._paths.name_of(path), text)

    def _findings(self) -> Iterator[Finding]:
        fs, paths, config = self._fs, self._paths, self._config
        is_closed = self.summary.last_exit_ok = not fs.exists(paths.abort)
        checkpoint, unreadable = read_checkpoint(fs, paths)
        files, others = log_files(fs, paths)
        self._has_log = any(file.size_bytes for file in files)
        offsets = read_group_offsets(fs, paths)  # read before the queues, which a writer may extend meanwhile
        log = LogCheck(paths, files, log_file_size(fs, paths, config, self._given), is_closed=is_closed)
        queue_size = queue_file_size(fs, paths, config, self._given)
        lookup = RecordLookup(fs, log.file_at)
        deleted = DeletedTopics(fs, paths, lookup.topic_and_end, log.first_offset).ends
        queues = QueueCheck(fs, paths.root, paths.consume_queue, queue_size, config.delay_levels_ms, deleted)
        queues.load()
        yield from check_contents(fs, paths)
        yield from check_names(fs, paths)
        yield from check_config(fs, paths, self._decoders)
        yield from check_routes(fs, paths)
        yield from check_foreign_log_files(fs, paths, others, log.file_size)
        sizes = replace(config, mapped_file_size_commit_log=log.file_size, mapped_file_size_consume_queue=queue_size)
        yield from check_missing_log(fs, paths, sizes, self._now_ms)
        yield from log.check_files()
        yield from log.check_foreign(mark_foreign(fs, paths, sizes, files))
        index_files = find_index_files(fs, paths, config, self._given)
        names, more = self._index_names(index_files, checkpoint, is_closed=is_closed)
        more += (lost := self._check_unread(index_files, names or ()))
        yield from self._check_index_names(index_files, lost)
        yield from more
        plan = VerifyPlan(
            paths.root,
            config,
            files,
            log.file_size,
            queue_size,
            is_closed,
            None if names is None else [index_files.directory / name for name in names],
            index_files.slots,
            index_files.entries,
            deleted,
        )
        index = plan.index_check(fs, log, lookup)
        yield from self._engine.check_index(plan, index) if index is not None else ()
        yield from self._engine.read_log(plan, log, queues, index)
        yield from log.finish()
        if not is_closed:
            log.begins_at(log_files(fs, paths)[0])
            queues.look_again()
        yield from unreadable or check_checkpoint(checkpoint, log.end_offset, self._now_ms, is_closed=is_closed)
        yield from self._check_queues(queues, log, lookup, is_closed=is_closed)
        yield from check_groups(groups_ahead(offsets, queues.ends()), is_closed=is_closed)
        yield from index.finish() if index is not None else ()
        ends = LogEnds(log.end_offset, queues.ends()(TIMER_TOPIC, 0) or 0)
        yield from TimerCheck(fs, paths, config, lookup, log.min_offset, ends).findings()
        lookup.close()
        self._sum_up(log, queues, index, index_files)

    def _check_queues(
        self, queues: QueueCheck, log: LogCheck, lookup: RecordLookup, *, is_closed: bool
    ) -> Iterator[Finding]:
        yield from queues.check_files(log.first_offset)
        units = QueueUnitsCheck(
            self._fs, self._paths, log, queues, lookup, self._config.delay_levels_ms, is_closed=is_closed
        )
        count = len(queues.queues)
        for number, queue in enumerate(queues.queues):
            self._report_queues(number, 2 * count)
            yield from units.check_units(queue)
        # Run this after all units were seen: a unit of another queue may point at a record that its own queue misses.
        for number, queue in enumerate(queues.queues):
            self._report_queues(count + number, 2 * count)
            yield from units.check_records(queue)
        yield from units.check_quarantine()
        yield from queues.check_unreadable()
        yield from self._check_ext_files()
        self.summary.unreadable_messages = units.unreadable

    def _report_queues(self, done: int, total: int) -> None:
        if self._queue_progress is not None:
            self._queue_progress(QUEUES_STEP, done, total)

    def _check_ext_files(self) -> Iterator[Finding]:
        """Report extended-queue files of a wrong length, with which a broker does not start.

        Missing extended units are found through the units that refer to them.
        """
        config, paths = self._config, self._paths
        if not config.enable_consume_queue_ext:
            return
        for problem in damaged_ext_files(self._fs, paths, config.mapped_file_size_consume_queue_ext):
            if isinstance(problem, WrongFileSizeError):
                yield Finding(FindingKind.FILE_SIZE, paths.name_of(problem.path), problem.reason)
        yield from unreadable_ext_pages(self._fs, paths)

    # The index

    def _check_unread(self, files: IndexFiles, read: Collection[str]) -> list[Finding]:
        """The unreadable ranges of those index files that are not in ``read``."""
        findings: list[Finding] = []
        for path in (files.directory / name for name in files.names if name not in read):
            data = ReadableBytes(self._fs.open(path))
            findings += unreadable_findings(self._paths.root, path, data)
            data.close()
        return findings

    def _check_index_names(self, files: IndexFiles, unreadable: Collection[Finding]) -> Iterator[Finding]:
        root = self._paths.root
        for entry in files.others:
            text = "is not an index file; RocketMQ and gantrymq ignore it"
            yield Finding(
                FindingKind.FOREIGN_FILE, (files.directory / entry.name).relative_to(root), text, Severity.NOTE
            )
        for entry in files.odd:
            text = f"is {entry.size_bytes} bytes long, the others {files.size_bytes}; {_RECOVER} rebuilds it"
            level = Severity.DAMAGE if entry.size_bytes else Severity.NOTE  # a kill leaves an empty new file
            yield Finding(FindingKind.FILE_SIZE, (files.directory / entry.name).relative_to(root), text, level)
        if files.names and not files.is_readable and not unreadable:
            text = "no number of slots and entries explains the index files; set maxHashSlotNum and maxIndexNum"
            yield Finding(FindingKind.INDEX_HEADER, files.directory.relative_to(root), text)

    def _index_names(
        self, files: IndexFiles, checkpoint: bytes | None, *, is_closed: bool
    ) -> tuple[list[str] | None, list[Finding]]:
        """The names of the index files to check (None without an index), and findings about them as a whole."""
        names, findings = files.names, []
        if files.is_readable and not is_closed:
            names = names[: count_kept(self._fs, files, decode_checkpoint(checkpoint or b"").index_msg_timestamp_ms)]
            count = len(files.names) - len(names)
            if count:
                text = f"{count} of {len(files.names)} index files may be wrong; {_RECOVER} rebuilds them"
                path = files.directory.relative_to(self._paths.root)
                findings.append(Finding(FindingKind.INDEX_WILL_BE_REBUILT, path, text, Severity.NOTE, count=count))
        if (files.names and not files.is_readable) or not (files.names or self._config.message_index_enable):
            return None, findings
        return names, findings

    def _sum_up(self, log: LogCheck, queues: QueueCheck, index: IndexCheck | None, files: IndexFiles) -> None:
        summary = self.summary
        summary.min_phy_offset, summary.max_phy_offset = log.min_offset, log.end_offset
        summary.records, summary.record_bytes = log.records, log.record_bytes
        summary.queues, summary.queue_entries = len(queues.queues), queues.entries
        summary.index_files = len(files.names) + len(files.odd)
        summary.index_entries = index.entries if index is not None else 0


def log_events(fs: FileSystem, files: Iterable[LogFile]) -> Iterator[LogEvent]:
    """All events of the log. A file that was deleted meanwhile (by retention or by hand) is skipped."""
    for file in files:
        try:
            yield from LogFileReader(fs, file)
        except FileNotFoundError:
            continue


def verify_store(
    path: str | Path,
    config: MessageStoreConfig | None = None,
    *,
    given: Collection[str] = (),
    fs: FileSystem | None = None,
    progress: Progress | None = None,
    now_ms: int | None = None,
    engine: VerifyEngine | None = None,
    decoders: TableDecoders | None = None,
    queue_progress: Progress | None = None,
) -> Verification:
    """Verify the store at ``path``. Iterate over the result for its findings; ``summary`` is complete afterwards.

    ``given`` names the RocketMQ keys whose values in ``config`` are binding, as with ``MessageStore.open``; other sizes
    are those of most files. ``now_ms`` is the time from which timestamps count as in the future. ``progress(step,
    done_bytes, total_bytes)`` is called while the index and then the log is read, ``queue_progress(step, done,
    total)`` afterwards: each queue is looked at twice. ``engine`` reads the index and the log; the default is
    this process. ``decoders`` maps the names of files in config/ to their decoders (broker.table_decoders). A healthy
    store has no finding.

    Raises, from the iteration: NotAStoreError, StorePermissionError, AmbiguousGeometryError.
    """
    now_ms = SystemClock().now_ms() if now_ms is None else now_ms
    fs = fs or RealFileSystem()
    engine = engine or VerifyHere(fs, progress)
    config = config or MessageStoreConfig()
    source = StoreSource(fs, Path(path), config, given)
    return Verification(source, engine, now_ms, decoders or {}, queue_progress)
