"""Recovers a store after any exit of the last writer: makes queues and index agree with the commit log.

The steps are RocketMQ's: find the end of every queue; choose the file to begin with (``recover_start``); read forward
with CRC checks and dispatch what queues and index miss. The first invalid record ends the log. Everything after it is
removed from the log and from the queues. The last step corrects the queues' first offsets. An empty log drops the
queues.

Nothing before the start file is judged or cut. It is only read again if something of it is missing: for queues with a
gap before the start, and for index files that were dropped. A reader that trusts the writer begins later, with the last
record that is certainly dispatched.

Plan and apply are the same code: over an overlay file system the recovery writes nothing, and its report is the plan.

Source: DefaultMessageStore.recover, CommitLog.recoverNormally and recoverAbnormally.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from gantrymq.clock import Clock
from gantrymq.errors import DiskError, DiskFullError
from gantrymq.format.record import CheckCRC, Layout, decode_record
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import FileSystem
from gantrymq.store.index.index_dispatch import IndexDispatcher, IndexWorker
from gantrymq.store.index.index_service import IndexService
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.log.record_batch import RecordBatch, first_torn
from gantrymq.store.opening import LoadedStore
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.queue.consume_queues import ConsumeQueues, is_light
from gantrymq.store.queue.group_offsets import GroupAhead, end_in, groups_ahead, read_group_offsets, set_back
from gantrymq.store.queue.queue_dispatch import QueueDispatcher, QueueGapError
from gantrymq.store.recovery.log_passes import (
    LostRecords,
    dispatched,
    forward_scanner,
    recovery_check,
    skip_lost,
    unjudged,
)
from gantrymq.store.recovery.recover_start import FirstRecord, StartRule

_LOGGER = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]
_FAR = 1 << 62


class CutQueue(NamedTuple):
    """A queue that ended at offset ``was_end`` and ends at ``end`` now."""

    topic: str
    queue_id: int
    end: int
    was_end: int


class LateQueue(NamedTuple):
    """A queue whose first message has offset ``begin``."""

    topic: str
    queue_id: int
    begin: int


@dataclass(slots=True)
class RecoveryReport:
    """What a recovery did, or would do. ``gantrymq store recover --json`` prints this object.

    Units are counted net for each queue: a wrong unit that was replaced by the right one is neither cut nor added.
    ``cut_queues`` are the queues that are shorter now. ``groups_ahead`` had committed more than their queue has now,
    and are set back. ``late_queues`` lack their first messages although no log file was removed. ``index_behind`` is
    why the index lacks entries, or None.
    """

    last_exit_ok: bool
    rule: str
    start_offset: int = -1
    queues_max_phy_offset: int = -1
    min_phy_offset: int = -1
    max_phy_offset: int = 0
    stop_reason: StopReason = StopReason.NONE
    cut_bytes: int = 0
    removed_files: list[Path] = field(default_factory=list)
    queue_units_cut: int = 0
    queue_units_added: int = 0
    queues_destroyed: int = 0
    cut_queues: list[CutQueue] = field(default_factory=list)
    groups_ahead: list[GroupAhead] = field(default_factory=list)
    late_queues: list[LateQueue] = field(default_factory=list)
    index_files_dropped: list[Path] = field(default_factory=list)
    index_entries_added: int = 0
    index_behind: DiskFullError | DiskError | None = None
    scanned_bytes: int = 0
    steps_ms: dict[str, float] = field(default_factory=dict)

    def find_groups_ahead(self, fs: FileSystem, paths: StorePaths, queues: ConsumeQueues) -> list[GroupAhead]:
        """Set and return the consumer groups and delay levels that are ahead of these queues, after the recovery."""
        end_of = end_in(queues, {cut_queue.topic for cut_queue in self.cut_queues})
        self.groups_ahead = groups_ahead(read_group_offsets(fs, paths), end_of)
        return self.groups_ahead

    def set_groups_back(self, fs: FileSystem, paths: StorePaths, queues: ConsumeQueues) -> None:
        """Set groups that are ahead of their queue back to its end, before the next message gets an offset."""
        ahead = self.find_groups_ahead(fs, paths, queues)
        set_back(fs, paths, ahead)
        for group_offset, end in ahead:
            text = "%s had committed offset %d of %s/%d, which ends at %d: it is set back to that"
            _LOGGER.warning(
                text, group_offset.name, group_offset.offset, group_offset.topic, group_offset.queue_id, end
            )


@dataclass(frozen=True, slots=True)
class ReaderView:
    """What a recovery for a reader does differently.

    ``trusts_writer`` if a clean exit or a running writer shows that there was no crash. ``keeps_queues`` to show queues
    and index as they are although there is no log. Units that queues miss for records from ``queues_from`` on are put
    too. ``lost`` records, which are unreadable, do not end the log.
    """

    trusts_writer: bool = False
    keeps_queues: bool = False
    queues_from: int | None = None
    lost: LostRecords | None = None


_NO_VIEW = ReaderView()


class Recovery:
    """One recovery over the opened parts of a store. Call :meth:`run` once.

    ``dropped_index`` are the index files that the load dropped, each with the physical offset at which its content
    begins. ``progress(step, done, total)`` is called at intervals; the numbers are bytes.
    """

    def __init__(
        self,
        loaded: LoadedStore,
        *,
        clock: Clock,
        queue_dispatcher: QueueDispatcher,
        index_dispatcher: IndexDispatcher | None = None,
        dropped_index: Sequence[tuple[Path, int]] = (),
        progress: Progress | None = None,
        view: ReaderView = _NO_VIEW,
    ) -> None:
        parts = loaded.parts
        self.log, self.queues, self.checkpoint = parts.log, parts.queues, parts.checkpoint
        self.deleted_ends = parts.deleted.ends
        self.config, self.last_exit_ok = loaded.config, loaded.last_exit_ok
        self.clock, self.progress = clock, progress
        self.queue_dispatcher, self.index_dispatcher = queue_dispatcher, index_dispatcher
        self.dropped_index = dropped_index
        self.trusts_writer, self.keeps_queues = view.trusts_writer, view.keeps_queues
        self.queues_from, self.lost = view.queues_from, view.lost

    def run(self) -> RecoveryReport:
        """Recover. A second run changes nothing more. Raises DiskFullError."""
        report = RecoveryReport(self.last_exit_ok, self.config.recover_rule.value)
        report.index_files_dropped = [path for path, _ in self.dropped_index]
        with self._step(report, "recoverConsumeQueue"):
            held = self.queues.recover(_FAR if self.keeps_queues else self.log.max_offset)
        if self.keeps_queues:
            return report
        self.queues.drop_deleted(self.deleted_ends)
        if not self.log.queue.files:
            report.queue_units_cut = sum(held.values())
            report.cut_queues = self._cut_queues(held)
            report.queues_destroyed = len(self.queues.destroy())
            self._end_index()
            self.checkpoint.log_ended_at(0)
            self.log.queue.drop_empty()
            if self.index_dispatcher is not None:
                self.index_dispatcher.index.destroy()
                self.index_dispatcher.log_ended_at(0)
            return report
        with self._step(report, "recoverCommitLog"):
            end = self._recover_log(report)
            self._end_index()
        with self._step(report, "truncateDirtyFiles"):
            self._truncate(report, end)
        with self._step(report, "recoverTopicQueueTable"):
            self.queues.correct_min_offset(self.log.min_offset)
        if self.log.min_offset == 0:  # no log file was ever removed, so each queue began with its first message
            late = (
                queue for queue in self.queues if 0 < queue.min_offset < queue.max_offset and not is_light(queue.topic)
            )
            report.late_queues = [LateQueue(queue.topic, queue.queue_id, queue.min_offset) for queue in late]
        report.min_phy_offset, report.max_phy_offset = self.log.min_offset, self.log.max_offset
        # Units that the checkpoint does not cover were dropped and put again if true. They count as neither cut nor
        # added.
        grown = [count - held.get(queue, 0) for queue, count in self.queues.unit_counts().items()]
        report.queue_units_added = sum(count for count in grown if count > 0)
        report.queue_units_cut = -sum(count for count in grown if count < 0)
        report.cut_queues = self._cut_queues(held)
        if self.index_dispatcher is not None:
            report.index_entries_added = self.index_dispatcher.added
            report.index_behind = self.index_dispatcher.disk_full()
        return report

    def _cut_queues(self, held: dict[tuple[str, int], int]) -> list[CutQueue]:
        """Return the queues that hold fewer units than before, without those of deleted topics."""
        counts = self.queues.unit_counts() if self.log.queue.files else {}
        cut = []
        for (topic, queue_id), count in sorted(held.items()):
            queue, lost = self.queues.get(topic, queue_id), count - counts.get((topic, queue_id), 0)
            if queue is not None and lost > 0 and topic not in self.deleted_ends:
                end = queue.max_offset if counts else queue.max_offset - queue.unit_count
                cut.append(CutQueue(topic, queue_id, end, end + lost))
        return cut

    @contextmanager
    def _step(self, report: RecoveryReport, name: str) -> Iterator[None]:
        began_s = self.clock.monotonic_s()
        yield
        report.steps_ms[name] = round((self.clock.monotonic_s() - began_s) * 1000, 3)

    @property
    def _is_limited(self) -> bool:
        """Whether the search for the start file ends after a number of files, even if the checkpoint covers none."""
        return self.config.commit_log_recover_max_num > 0

    # The log

    def _recover_log(self, report: RecoveryReport) -> int:
        """Read forward from the start file. Returns the end of the log."""
        files = self.log.queue.files
        rule = StartRule(self.config, self.checkpoint.page, self.queues.max_phy_offset, self.last_exit_ok)
        chosen = rule.choose(files, self._first_record)
        start = files[chosen].file_from_offset
        if self.trusts_writer:
            start = max(start, self._last_in_queue())
        report.start_offset = start
        report.queues_max_phy_offset = rule.queues_max_phy_offset
        if self.last_exit_ok:
            self.queues.drop_false_ends(self._is_valid_unit)
        else:
            self._limit_checkpoint(rule, chosen)
            self.queues.drop_from(start, self._is_valid_unit)
        self._begin_index(report, start)
        log_min, begin = self.log.min_offset, start
        for lost in (self.queues_from, self.queues.begin_of_lost_units() if self.last_exit_ok else None):
            if lost is not None:
                begin = max(min(begin, lost - lost % self.log.file_size), log_min)
        while True:
            fill_gaps = self._is_limited or begin <= log_min
            try:
                self._redispatch_queues(begin, start, fill_gaps=fill_gaps)
                return self._read_forward(report, start, fill_gaps=fill_gaps)
            except QueueGapError as gap:
                # Begin earlier: where the queue ends, or else where the log begins.
                begin = gap.from_offset - gap.from_offset % self.log.file_size if 0 < gap.from_offset < begin else 0
                begin = max(begin, log_min)

    def _limit_checkpoint(self, rule: StartRule, chosen: int) -> None:
        """Lower the checkpoint to the chosen file, because the units after it are rewritten.

        After a power cut in the meantime, the next recovery must not begin later than this one.
        """
        files = self.log.queue.files
        by_checkpoint = replace(rule, config=replace(rule.config, message_index_safe=False), queues_max_phy_offset=_FAR)
        if by_checkpoint.choose(files, self._first_record) > chosen:
            first = self._first_record(files[chosen])
            self.checkpoint.queues_end_at(files[chosen].file_from_offset, first.store_timestamp_ms if first else 0)

    def _is_valid_unit(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        """Whether a unit points to its own record, or to a part of the log that was removed."""
        entry = queue.entry(queue_offset)
        if entry is None or entry.phy_offset < self.log.min_offset:
            return entry is not None
        return self.log.has_message(entry, queue.topic, queue.queue_id, queue_offset)

    def _last_in_queue(self) -> int:
        """Return the offset of the last record that is certainly dispatched, like all before it; 0 if none is known.

        After a clean exit that is the last record of all. While a writer runs, the queues are listed at different
        times, so the checkpoint decides, which was read before them.
        """
        if self.last_exit_ok:
            phy_offset = self.queues.last_phy_offset
        else:
            phy_offset = self.checkpoint.page.logics_physical_offset
            phy_offset = phy_offset if phy_offset < self.queues.max_phy_offset else -1
        file = self.log.queue.find(phy_offset) if phy_offset > 0 else None
        record = self._record_in(file, phy_offset - file.file_from_offset) if file is not None else None
        return phy_offset if record is not None and record.phy_offset == phy_offset else 0

    def _first_record(self, file: MappedFile) -> FirstRecord | None:
        return self._record_in(file, 0)

    def _record_in(self, file: MappedFile, position: int) -> FirstRecord | None:
        layout = self.log.check(file.file_from_offset + position, recovery_check(self.config))
        if not isinstance(layout, Layout):
            return None
        message = decode_record(file.array.data, position, layout)
        return FirstRecord(message.phy_offset, message.store_timestamp_ms)

    def _read_forward(self, report: RecoveryReport, start: int, *, fill_gaps: bool) -> int:
        total = self.log.queue.files[-1].file_from_offset + self.log.file_size - start
        with forward_scanner(self.log, self.config, start) as scanner, IndexWorker(self.index_dispatcher) as index:
            while True:
                stray = None
                for batch in scanner:
                    right = self._leading_right(batch)
                    own = dispatched(right, self.config, self.checkpoint.page)
                    if own.count:
                        index.dispatch(own)
                        self.queue_dispatcher.dispatch(own, fill_gaps=fill_gaps)
                    if right.count < batch.count:
                        stray = right.end_offset if right.count else batch.start_offset
                        break
                    self._report_progress(batch.end_offset - start, total)
                if stray is not None:
                    scanner.offset, scanner.stop = stray, StopReason.HALF
                if not skip_lost(scanner, self.lost):
                    break
        report.stop_reason = scanner.stop
        report.scanned_bytes = scanner.offset - start
        return scanner.offset

    def _leading_right(self, batch: RecordBatch) -> RecordBatch:
        """Return the records before the first that is torn or, with checkCommitLogOffsetOnRecover, misplaced."""
        count = batch.count
        if not self.last_exit_ok and recovery_check(self.config) is not CheckCRC.OFF:
            count = first_torn(batch)
        if self.config.check_commit_log_offset_on_recover:
            assert batch.digest is not None, "recovery's scans tell where records say they lie"
            count = min(count, batch.digest.placed)
        if self.lost is not None:
            count = min(count, self.lost.leading_whole(batch))
        return batch.head(count)

    def _redispatch_queues(self, begin: int, end: int, *, fill_gaps: bool) -> None:
        """Put the units that the queues miss for records in [begin, end)."""
        for batch in unjudged(self.log, self.config, begin, end, self._report_progress, self.lost):
            self.queue_dispatcher.dispatch(batch, fill_gaps=fill_gaps)

    def _begin_index(self, report: RecoveryReport, start: int) -> None:
        """Index again what the dropped index files held of the records before ``start``."""
        if self.index_dispatcher is None:
            return
        begin = index_begin(report, self.index_dispatcher.index, self.dropped_index, self.log)
        self.index_dispatcher.index_from = max(self.index_dispatcher.index_from, begin)
        with IndexWorker(self.index_dispatcher) as index:
            first = begin - begin % self.log.file_size
            for batch in unjudged(self.log, self.config, first, start, self._report_progress):
                index.dispatch(batch)

    def _end_index(self) -> None:
        if self.index_dispatcher is not None:
            self.index_dispatcher.index.end_rewriting()

    def _report_progress(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress("recoverCommitLog", done, total)

    # Cutting

    def _truncate(self, report: RecoveryReport, end: int) -> None:
        self.queues.truncate(end)
        self.checkpoint.log_ended_at(end)
        if self.log.queue.had_empty_file or self.log.queue.files[-1].file_from_offset > end:
            self.queues.flush()  # a queue that points past the last file counts as a sign of missing log files
        report.cut_bytes = self._dirty_bytes(report, end)
        wipe = not self.last_exit_ok or report.stop_reason is not StopReason.ZEROS
        self.log.queue.drop_empty()
        report.removed_files = self.log.queue.truncate_dirty(end, wipe=wipe)
        if not self.last_exit_ok:
            self.queues.drop_unused_files()
            # The killed writer may not have synced what it left in the page cache, and a power cut may follow.
            self.log.queue.mark_unflushed(self.log.min_offset if self._is_limited else report.start_offset)
        if self.index_dispatcher is not None:
            self.index_dispatcher.log_ended_at(end)

    def _dirty_bytes(self, report: RecoveryReport, end: int) -> int:
        """Return how many bytes the log has after ``end``, up to the last non-zero one; 0 if the log ended in zeros."""
        file = self.log.queue.find(end)
        if file is None or report.stop_reason in (StopReason.NONE, StopReason.ZEROS):
            return 0
        at = end - file.file_from_offset
        behind = sum(other.size for other in self.log.queue.files if other.file_from_offset > end)
        return behind + file.data_end(at) - at


def index_begin(
    report: RecoveryReport, index: IndexService, dropped: Sequence[tuple[Path, int]], log: CommitLog
) -> int:
    """Return the physical offset from which the log must be indexed.

    After a clean exit that is one byte past the end of the last record that a queue points to, so that the next record
    is left out, as in RocketMQ. Otherwise it is the begin of what was dropped, or of what is read again. An index
    without any file was lost and is made from the whole log.
    """
    if report.last_exit_ok:
        behind_queues = report.queues_max_phy_offset + 1
        return max(min([begin for _, begin in dropped], default=behind_queues), log.min_offset)
    if not index.files and not dropped:
        return log.min_offset
    # A power cut may have removed the last file entirely. Then everything after the remaining files is missing.
    held = [index.end_phy_offset] if index.files else []
    return max(min([begin for _, begin in dropped] + held + [report.start_offset]), log.min_offset)
