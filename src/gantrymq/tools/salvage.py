"""Makes a new, clean store from every whole record of a damaged one, which is only read.

Records keep their physical offsets and queue offsets, so message ids, half messages and consumer offsets stay valid
(:mod:`gantrymq.tools.repair.log_salvage` describes what fills the gaps). Queues and index are recreated from the copy.
Slots of lost messages get filler units, so that consumers skip them. The old queues, index and checkpoint are not used,
with two exceptions. A queue without a record in the log keeps its last file if that is sound, because it has the
queue's next offset. If a record with offset 0 follows others of its queue, and the old queue's first unit points to it,
the topic was recreated there. JSON files of ``config/`` are copied if a start would accept them.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import StoreError
from gantrymq.format.names import PRIVATE, offset_name
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.format.record import BLANK_SIZE
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import FileSystem
from gantrymq.fs.reads import read_part
from gantrymq.fs.real import RealFileSystem
from gantrymq.store.config_files import parse_config, require_tables
from gantrymq.store.geometry import INDEX_KEYS, LOG_SIZE_KEY, log_file_size
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.paths import StorePaths
from gantrymq.store.recovery.recovery import Progress
from gantrymq.store.timer.timer_files import TimerCheckpointFile
from gantrymq.tools.read.bad_disk import ListedFileSystem
from gantrymq.tools.read.filed_queues import filed
from gantrymq.tools.read.foreign_log_files import mark_foreign
from gantrymq.tools.read.index_files import found_sizes
from gantrymq.tools.read.log_places import missing_front, placed_files
from gantrymq.tools.read.queue_files import QueueFiles, loaded_queues, queue_directories
from gantrymq.tools.read.store_source import StoreSource
from gantrymq.tools.rebuild import Build, RebuildReport, SalvagedLog, build_here, rebuild_store
from gantrymq.tools.repair.log_salvage import CopyLog, CopyOrder, copy_here, overwrite, renumber
from gantrymq.tools.repair.queue_ends import queue_ends, set_groups_back
from gantrymq.tools.repair.result_directory import SalvageTarget, log_bytes, record_bytes, require_room
from gantrymq.tools.reports import LossAccount, LostRange

_SIZE_KEYS = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", *INDEX_KEYS)
_PAGE_BYTES = 4096


@dataclass(slots=True)
class SalvageReport:
    """What was saved, and the ``account`` of what was not.

    ``corrected`` counts records with a wrong physical offset or a wrong queue offset; a record with both counts twice.
    ``kept_queues`` counts queues without a record whose last file was copied. ``lost_queues`` are the (topic, queue id)
    that begin at offset 0 again. ``skipped_files`` are log files without a place in the log: copies of others, and
    files whose name is not a multiple of the file size and whose records do not name a free place. ``tail_bytes`` is
    the number of bytes that were written after the last whole record.
    """

    records: int = 0
    record_bytes: int = 0
    corrected: int = 0
    min_phy_offset: int = -1
    max_phy_offset: int = 0
    tail_bytes: int = 0
    skipped_files: list[Path] = field(default_factory=list)
    account: LossAccount = field(default_factory=LossAccount)
    queues: int = 0
    queue_units: int = 0
    index_entries: int = 0
    kept_queues: int = 0
    lost_queues: list[tuple[str, int]] = field(default_factory=list)
    config_files: int = 0
    broken_config_files: list[str] = field(default_factory=list)

    @property
    def lost(self) -> list[LostRange]:
        """The ranges of the log without a whole record, including a missing end."""
        return self.account.ranges

    @property
    def is_whole(self) -> bool:
        """Whether the result has every message in its queue (exit code 0). A repaired offset is not a loss."""
        account = self.account
        if not account.is_compared:
            return False
        is_lost = account.ranges or account.messages or account.short_queues or account.quarantined
        return not (is_lost or self.skipped_files or self.lost_queues or self.broken_config_files)

    @property
    def lost_bytes(self) -> int:
        """The total size of the lost ranges in bytes."""
        return sum(gap.end - gap.start for gap in self.lost)


class _Salvage:
    """One salvage of ``source`` into ``target``."""

    def __init__(
        self, source: StoreSource, target: Path, copy: CopyLog, build: Build, progress: Progress | None
    ) -> None:
        self._source = StorePaths.of(source.root, source.config)
        self._listed = ListedFileSystem(source.fs, self._source.root, self._source.commit_logs)
        self._fs = self._listed.as_file_system()
        self._out = SalvageTarget(source.fs, target)
        self._target = StorePaths(self._out.work)
        self._config = source.config
        self._given = source.given
        self._copy = copy
        self._build = build
        self._progress = progress
        self._report = SalvageReport()
        self._misplaced: list[LostRange] = []

    def run(self) -> SalvageReport:
        files = self._files()
        sizes = self._sizes(files)
        files = mark_foreign(self._fs, self._source, sizes, files)
        if not self._fs.scan(self._out.work.parent):  # removing leftovers of an interrupted salvage frees room
            min_bytes = partial(record_bytes, self._fs, files)
            advice = "name a directory on another disk"
            require_room(self._fs, self._out.work.parent, log_bytes(files), min_bytes, advice)
        try:
            self._make(files, sizes)
        except BaseException:
            self._out.give_up()
            raise
        self._report.skipped_files += self._listed.roots()
        return self._report

    def _make(self, files: list[LogFile], sizes: MessageStoreConfig) -> None:
        self._out.begin(self._source.root)
        self._copy_log(files, sizes.mapped_file_size_commit_log)
        self._copy_config()
        self._keep_timer_progress()
        fill = partial(overwrite, self._fs, self._target.commit_log, sizes.mapped_file_size_commit_log)
        rebuilt = rebuild_store(
            self._target.root,
            replace(sizes, store_path_commit_log="", read_only_commit_log_store_paths=""),
            given=_SIZE_KEYS,
            old=self._source.root,
            fs=self._fs,
            build=self._build,
            progress=self._progress,
            salvaged=SalvagedLog(files, self._report.lost, self._misplaced, fill),
        )
        self._note_rebuilt(rebuilt)
        renumber(self._fs, self._target.commit_log, sizes.mapped_file_size_commit_log, rebuilt.renumbered)
        old = filed(self._fs, rebuilt.filed_as)
        self._keep_queues(old, sizes.mapped_file_size_consume_queue)
        topics = {topic for topic, _, _ in queue_directories(old, self._source.consume_queue)[0]}
        ends = queue_ends(self._fs, self._target, sizes.mapped_file_size_consume_queue, topics)
        self._report.account.groups_ahead = set_groups_back(self._fs, self._target, ends)
        self._out.finish()

    def _files(self) -> list[LogFile]:
        """The log files, each at its true place. A file that is too long ends where the next begins."""
        size = log_file_size(self._fs, self._source, self._config, self._given)
        files, self._report.skipped_files = placed_files(self._fs, self._source, size)
        if not any(file.size_bytes for file in files):
            reason = "there is no commit log to salvage; is its disk mounted, is storePathCommitLog given (-c)?"
            raise StoreError(self._source.commit_log, reason)
        return files

    def _sizes(self, files: list[LogFile]) -> MessageStoreConfig:
        """The file sizes of the new store: those of the old one. A single log file that was cut gets a larger size."""
        sizes = found_sizes(self._fs, self._source, self._config, self._given)
        size = sizes.mapped_file_size_commit_log
        if len(files) > 1 or LOG_SIZE_KEY in self._given or size % _PAGE_BYTES == 0:
            return sizes
        pages = -(-(size + BLANK_SIZE) // _PAGE_BYTES)
        return replace(sizes, mapped_file_size_commit_log=pages * _PAGE_BYTES)

    def _copy_log(self, files: list[LogFile], file_size: int) -> None:
        append_crc = self._config.enabled_append_prop_crc
        order = CopyOrder(files, self._source.commit_log, self._target.commit_log, file_size, append_crc)
        contents, copied = self._copy(self._fs, order, self._progress)
        if not contents.records:
            raise StoreError(self._source.commit_log, "there is no whole record in the commit log")
        self._misplaced = contents.misplaced
        report = self._report
        report.records, report.record_bytes, report.corrected = copied.records, copied.record_bytes, copied.corrected
        report.min_phy_offset, report.max_phy_offset = copied.min_phy_offset, copied.max_phy_offset
        front = missing_front(files, report.skipped_files, file_size)
        lost = [*filter(None, [front]), *copied.dropped, *contents.lost()]
        report.account.ranges = sorted(lost, key=lambda gap: gap.start)
        report.tail_bytes = sum(gap.end - gap.start for gap in contents.tail() if gap.reason != StopReason.ZEROS)

    # Queues and configuration

    def _note_rebuilt(self, rebuilt: RebuildReport) -> None:
        self._report.account = rebuilt.account
        self._report.queues, self._report.queue_units = rebuilt.queues, rebuilt.queue_units
        self._report.index_entries = rebuilt.index_entries
        self._report.corrected += len(rebuilt.renumbered)

    def _copy_config(self) -> None:
        for entry in self._fs.scan(self._source.config):
            if entry.is_directory or not entry.name.endswith((".json", ".json.bak")):
                continue
            try:
                raw = read_part(self._fs, self._source.config / entry.name, 0, entry.size_bytes)
                require_tables(entry.name, parse_config(raw))
            except (OSError, StoreError, ValueError):
                self._report.broken_config_files.append(entry.name)
                continue
            self._write(self._target.config / entry.name, raw)
            self._report.config_files += 1

    def _keep_timer_progress(self) -> None:
        """Let the next start read the timer topic from its first message, and know which of them are delivered.

        Timer log and wheel are not copied: their physical offsets are those of the old log.
        """
        old = TimerCheckpointFile(self._fs, self._source.timer_checkpoint)
        with suppress(OSError, StoreError):  # without it what is due is delivered again
            old.load()
        if not old.is_missing:
            page = old.page
            settled = max(page.timer_queue_offset, page.master_timer_queue_offset)
            made = TimerCheckpointFile(self._fs, self._target.timer_checkpoint)
            made.save(page.last_read_time_ms, 0, 0, settled, page.timestamp_ms)

    def _keep_queues(self, old: FileSystem, file_size: int) -> None:
        """Copy the last files of queues, in ``old``, of which the log has no record."""
        for files in loaded_queues(old, self._source.consume_queue, file_size):
            target = self._target.consume_queue / files.topic / str(files.queue_id)
            if self._fs.scan(target) or files.end == files.first:
                continue
            base = (files.end - 1) * UNIT_SIZE // file_size * file_size
            if files.sizes.get(base) == file_size and self._is_sound(files, base // UNIT_SIZE):
                units = files.units(base // UNIT_SIZE, (base + file_size) // UNIT_SIZE)
                self._write(target / offset_name(base), units.raw)
                self._report.kept_queues += 1
            else:
                self._report.lost_queues.append((files.topic, files.queue_id))

    def _is_sound(self, files: QueueFiles, first: int) -> bool:
        """Whether every unit of the last file points to before the saved log, in rising order."""
        units = files.units(first, files.end)
        offsets = units.phy_offsets[~units.is_filler]
        is_rising = bool((np.diff(offsets) > 0).all())
        return len(offsets) > 0 and is_rising and offsets[0] >= 0 and int(offsets[-1]) < self._report.min_phy_offset

    def _write(self, path: Path, data: bytes | NDArray[np.uint8]) -> None:
        self._fs.make_directory(path.parent)
        file = self._fs.open(path, writable=True, create=True, is_private=path.name in PRIVATE)
        try:
            file.write_at(0, data if isinstance(data, bytes) else data.data)
            file.sync()
        finally:
            file.close()
        self._fs.sync_directory(path.parent)


def salvage_store(
    source: str | Path,
    target: str | Path,
    config: MessageStoreConfig | None = None,
    *,
    given: Collection[str] = (),
    fs: FileSystem | None = None,
    copy: CopyLog = copy_here,
    build: Build = build_here,
    progress: Progress | None = None,
) -> SalvageReport:
    """Make a clean store at ``target`` of every whole record at ``source``; arguments as for ``MessageStore.open``.

    ``target`` must be missing, an empty directory, or the rest of an interrupted salvage. ``source`` is only read, and
    its lock is not taken. ``copy`` copies the log and ``build`` builds queues and index. ``target`` becomes a store
    only when all of it is complete and durable (:mod:`gantrymq.tools.repair.result_directory`).

    Raises StoreError (if there is nothing to salvage or ``target`` is not empty), DiskFullError, StorePermissionError.
    """
    fs, source, target = fs or RealFileSystem(), Path(source), Path(target)
    if not fs.exists(source):
        raise StoreError(source, "does not exist")
    SalvageTarget(fs, target).require_free()
    config = config or MessageStoreConfig()
    StorePaths.of(source, config).require_outside(target)
    return _Salvage(StoreSource(fs, source, config, given), target, copy, build, progress).run()
