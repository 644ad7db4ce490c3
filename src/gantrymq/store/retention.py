"""Retention: deletes old commit log files, then the queue and index files that only point to deleted records.

=========================  ==============================================================================
when                       what is deleted
=========================  ==============================================================================
the hour is in deleteWhen  files not modified for fileReservedTime hours, oldest first
above diskMaxUsedSpace     the same, at any hour
above 85 %                 the oldest files whatever their age (cleanFileForciblyEnable)
above 90 %                 the same, and puts are refused until the use is back at 85 % or below
requested by hand          expired files, at any hour, in the next twenty runs
=========================  ==============================================================================

A file that a connected slave still copies is not deleted while the disk use is 85 % or less. Above that it is deleted
as if there were no slave, and a warning names the slave that is cut off.

The last file is never deleted, nor a file that is followed by nothing durable. A file that a reader holds stays, and no
younger file is deleted before it. After destroyMapedFileIntervalForcibly its references are dropped by force. One run
deletes at most deleteFileBatchMax files, deleteCommitLogFilesInterval apart. The ``config`` of each service may be
replaced while it runs.

Source: DefaultMessageStore.CleanCommitLogService, ConsumeQueueStore.CleanConsumeQueueService, MappedFileQueue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.fs.api import FileSystem
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.index.index_service import IndexService
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queues import ConsumeQueues
from gantrymq.store.slave_acks import SlaveAcks

_LOGGER = logging.getLogger(__name__)
FIRST_RUN_AFTER_MS = 60_000
_MANUAL_RUNS = 20
_HOUR_MS = 3_600_000


class DiskSpace:
    """The disk use of the log and the queues, and whether puts are refused because of it.

    ``refuses_puts`` becomes True above the warning level and False again only at the forcible level or below. The
    fuller of the two disks counts; of several directories of the log, the one with the most room counts.
    ``full_directories`` of the log are above the forcible level: they get no new file while another directory has room.
    """

    def __init__(self, fs: FileSystem, paths: StorePaths, config: MessageStoreConfig) -> None:
        self._fs = fs
        self._paths = paths
        self.config = config
        self.refuses_puts = False
        self.full_directories: tuple[Path, ...] = ()

    def used_percent(self) -> float:
        """Return the use of the fuller of the two disks, from 0 to 100."""
        log_percent = min(self._log_percents().values(), default=0.0)
        return max(log_percent, self._percent(self._paths.consume_queue) or 0.0)

    def is_over_forcible(self) -> bool:
        """Whether the disk use is above the limit from which the oldest files go, even those that slaves copy."""
        return self.used_percent() > self._forcible_percent

    @property
    def _forcible_percent(self) -> int:
        return min(max(self.config.disk_space_clean_forcibly_ratio, 30), 85)

    def _log_percents(self) -> dict[Path, float]:
        """Return the disk use of each existing log directory in percent."""
        percents = {path: self._percent(path) for path in self._paths.writable_commit_logs}
        return {path: percent for path, percent in percents.items() if percent is not None}

    def _percent(self, path: Path) -> float | None:
        return self._fs.used_ratio(path) * 100 if self._fs.exists(path) else None

    def update(self) -> tuple[bool, bool]:
        """Read the disk use. Returns (delete expired files now, delete the oldest files whatever their age)."""
        used = self.used_percent()
        warning = min(max(self.config.disk_space_warning_level_ratio, 35), 90)
        forcible = self._forcible_percent
        self.full_directories = tuple(path for path, percent in self._log_percents().items() if percent > forcible)
        if used > warning:
            self._refuse_puts(used, warning)
        elif used <= forcible:
            self._take_puts(used, forcible)
        return used > min(max(self.config.disk_max_used_space_ratio, 10), forcible), used > forcible

    def _refuse_puts(self, used: float, level: float) -> None:
        if not self.refuses_puts:
            _LOGGER.warning("messages are rejected: the disk use is %.1f %%, above %.1f %%", used, level)
        self.refuses_puts = True

    def _take_puts(self, used: float, level: float) -> None:
        if self.refuses_puts:
            _LOGGER.warning("messages are accepted again: the disk use is %.1f %%, not above %.1f %%", used, level)
        self.refuses_puts = False


class CleanCommitLogService:
    """Deletes commit log files, one a step. ``cleaned`` is called after each deletion.

    Each deletion is logged: as a warning if the reason is the disk use, because fresh messages may be lost, otherwise
    as information.
    """

    name = "CleanCommitLogService"

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        checkpoint: StoreCheckpoint,
        space: DiskSpace,
        config: MessageStoreConfig,
        cleaned: Callable[[], None],
        start_ms: int,
    ) -> None:
        self._log = log
        self._queues = queues
        self._checkpoint = checkpoint
        self._space = space
        self.config = config
        self._cleaned = cleaned
        self._next_run_ms = start_ms + FIRST_RUN_AFTER_MS
        self._manual_runs = 0
        self._left = 0
        self._whatever_age = False
        self._waited_at = -1  # the offset of the file whose wait for a slave was logged
        self.slaves: SlaveAcks | None = None
        self.is_for_space = False  # whether the disk use is the reason for the deletions
        self._last_redelete_ms = 0

    @property
    def interval_ms(self) -> int:
        """The interval until the next step (ms). Short between the files of one run."""
        if self._left:
            return max(self.config.delete_commit_log_files_interval_ms, 1)
        return self.config.clean_resource_interval_ms

    def delete_manually(self) -> None:
        """Let the next twenty runs delete expired files at any hour (executeDeleteFilesManually)."""
        self._manual_runs = _MANUAL_RUNS

    def step(self, now_ms: int) -> bool:
        """Begin a run if one is due, or delete the next file of the current run."""
        is_early = 0 < self._next_run_ms - now_ms <= self.config.clean_resource_interval_ms  # the clock may be set back
        if not self._left and not is_early:
            self._begin_run(now_ms)
        if self._left:
            self._left = self._left - 1 if self._remove_first(now_ms) else 0
        self._redelete_hanged(now_ms)
        return False

    def drain(self) -> None:
        """Do nothing: old files are deleted after the next start."""

    def _begin_run(self, now_ms: int) -> None:
        self._next_run_ms = now_ms + self.config.clean_resource_interval_ms
        space_short, whatever_age = self._space.update()
        manual = self._manual_runs > 0
        if is_time_to_do(self.config.delete_when, now_ms) or space_short or manual:
            self._manual_runs -= 1 if manual else 0
            self.is_for_space = space_short
            self._whatever_age = whatever_age and self.config.clean_file_forcibly_enable
            self._left = self.config.delete_file_batch_max

    def _remove_first(self, now_ms: int) -> bool:
        reserved_ms = self.config.file_reserved_time_hours * _HOUR_MS
        expired = self._whatever_age or now_ms >= self._log.queue.first_modified_ms() + reserved_ms
        return expired and not self._waits_for_slave() and self._remove(now_ms)

    def _waits_for_slave(self) -> bool:
        """Whether a connected slave needs the first file, and the disk has room to wait for it."""
        first, slave = self._log.queue.first, self.slaves.slowest_slave() if self.slaves is not None else None
        if first is None or slave is None or slave.offset >= first.file_from_offset + first.size:
            return False
        if self._space.is_over_forcible():  # now: the files that this run has deleted may be enough
            text = "retention cuts off the slave %s, which has the log up to %d: the disk use is %.1f %%"
            _LOGGER.warning(text, slave.address, slave.offset, self._space.used_percent())
            return False
        if self._waited_at != first.file_from_offset:
            self._waited_at = first.file_from_offset
            text = "retention waits for the slave %s, which has the log up to %d, before it removes %s"
            _LOGGER.info(text, slave.address, slave.offset, first.path)
        return True

    def _remove(self, now_ms: int) -> bool:
        self._make_units_durable()
        first = self._log.queue.first
        is_gone = self._log.queue.remove_first(now_ms, self.config.destroy_maped_file_interval_forcibly_ms)
        if is_gone and first is not None:
            self._log_deletion(first)
            self._cleaned()
        return is_gone

    def _log_deletion(self, file: MappedFile) -> None:
        _LOGGER.log(
            logging.WARNING if self.is_for_space else logging.INFO,
            "retention removed a file of the commit log (%s; disk use %.1f %%): %s, offsets %d to %d",
            self._reason(),
            self._space.used_percent(),
            file.path,
            file.file_from_offset,
            file.file_from_offset + file.size - 1,
        )

    def _reason(self) -> str:
        if not self.is_for_space:
            return "expired"
        return "disk use, whatever the age" if self._whatever_age else "disk use, expired"

    def _make_units_durable(self) -> None:
        """Flush the queues if units of the first file are not durable: after its deletion they cannot be made again."""
        first = self._log.queue.first
        if first is not None and self._checkpoint.page.logics_physical_offset < first.file_from_offset + first.size:
            self._queues.flush()

    def _redelete_hanged(self, now_ms: int) -> None:
        """Retry, every redeleteHangedFileInterval, the deletion of a file that a reader held."""
        first = self._log.queue.first
        if first is None or first.is_available:
            return
        if not 0 <= now_ms - self._last_redelete_ms <= self.config.redelete_hanged_file_interval_ms:
            self._last_redelete_ms = now_ms
            self._remove(now_ms)


class CleanConsumeQueueService:
    """Deletes queue and index files that only point to deleted records, and corrects the min offsets of the queues."""

    name = "CleanConsumeQueueService"

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        index: IndexService | None,
        config: MessageStoreConfig,
        is_for_space: Callable[[], bool] = lambda: False,
    ) -> None:
        self.config = config
        self._is_for_space = is_for_space
        self._log = log
        self._queues = queues
        self._index = index
        self._last_min_offset = 0

    @property
    def interval_ms(self) -> int:
        """The value of cleanResourceInterval (ms)."""
        return self.config.clean_resource_interval_ms

    def step(self, now_ms: int) -> bool:
        """Clean queues and index if the log begins later than at the last step."""
        min_offset = self._log.min_offset
        if min_offset > self._last_min_offset:
            # A log file that is still held, or that a power cut brings back, must keep its units and index entries.
            there_from = self._log.queue.sync_names()
            queue_files = 0
            for queue in self._queues:
                queue_files += queue.remove_expired(there_from)
                queue.correct_min_offset(min_offset)
            index_files = self._index.remove_expired(there_from) if self._index is not None else []
            self._log_deletion(queue_files, len(index_files), min_offset)
            self._last_min_offset = there_from  # set last: after a failed removal all are examined again
        return False

    def _log_deletion(self, queue_files: int, index_files: int, min_offset: int) -> None:
        level = logging.WARNING if self._is_for_space() else logging.INFO
        text = "retention removed files that point before the begin of the log at %d: %d of %s"
        for count, kind in ((queue_files, "consume queues"), (index_files, "the index")):
            if count:
                _LOGGER.log(level, text, min_offset, count, kind)

    def drain(self) -> None:
        """Do nothing: old files are deleted after the next start."""


def is_time_to_do(when: str, now_ms: int) -> bool:
    """Whether the local hour of ``now_ms`` is in ``when``: "04", or a list such as "04;16" (UtilAll.isItTimeToDo)."""
    hour = datetime.fromtimestamp(now_ms / 1000).hour
    return any(part.strip().isdigit() and int(part) == hour for part in when.split(";"))
