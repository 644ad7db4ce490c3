"""Verifies the files of the timers: wheel, timer log and checkpoint.

The next start of a broker rebuilds a damaged wheel from the timer log, and a damaged timer log from the timer topic, so
such damage loses no message. A damaged checkpoint cannot be rebuilt: messages are delivered again, or are passed over.

A power cut may take the newest slots of the wheel, and a kill within the first second leaves no checkpoint, or a blank
one. These findings are notes, also after a recovery, which does not change the files of the timers.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import DiskError, NotAStoreError, StorePermissionError
from gantrymq.format import names
from gantrymq.format.record import decode_record
from gantrymq.format.timer import SLOTS, TIMER_CHECKPOINT_SIZE, TimerCheckpoint, decode_timer_checkpoint
from gantrymq.fs.api import File, FileSystem
from gantrymq.fs.forwarding import ForwardingFileSystem
from gantrymq.fs.reads import read_part
from gantrymq.model.message import StoredMessage
from gantrymq.store.paths import StorePaths
from gantrymq.store.timer.timer_files import TimerCheckpointFile
from gantrymq.store.timer.timer_log import REMEDY, TimerLog
from gantrymq.store.timer.timer_recovery import LogEnds, TimerRecovery
from gantrymq.store.timer.wheel import TimerWheel
from gantrymq.tools.findings import Finding, FindingKind, Severity
from gantrymq.tools.read.record_lookup import RecordLookup

_CHECKPOINT = Path(names.CONFIG) / names.TIMER_CHECKPOINT
_AGAIN = "the next start of a broker delivers messages of the timer topic again"


class TimerCheck:
    """``ends`` are the ends of the log and of the timer topic's queue, ``log_begin`` is the begin of the log."""

    def __init__(
        self,
        fs: FileSystem,
        paths: StorePaths,
        config: MessageStoreConfig,
        lookup: RecordLookup,
        log_begin: int,
        ends: LogEnds,
    ) -> None:
        self._fs, self._paths, self._config, self._ends = fs, paths, config, ends
        self._messages = _Messages(lookup, log_begin)

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong with each of the files."""
        yield from self._check_checkpoint()
        try:
            yield from self._check_log_and_wheel()
        except DiskError as error:
            text = f"the disk cannot read the files of the timers: {error}; {REMEDY}"
            yield Finding(FindingKind.FILE_UNREADABLE, Path(names.TIMER_LOG), text)

    def _check_checkpoint(self) -> Iterator[Finding]:
        try:
            raw = read_part(self._fs, self._paths.timer_checkpoint, 0, TIMER_CHECKPOINT_SIZE + 1)
        except FileNotFoundError:
            if self._ends.queue_offset:
                yield Finding(FindingKind.TIMER_CHECKPOINT, _CHECKPOINT, f"missing; {_AGAIN}", Severity.NOTE)
            return
        except (DiskError, NotAStoreError, StorePermissionError) as error:
            yield Finding(FindingKind.FILE_UNREADABLE, _CHECKPOINT, f"cannot be read: {error}; {_AGAIN}")
            return
        page = decode_timer_checkpoint(raw)
        numbers = (page.last_read_time_ms, page.timer_log_flush_pos, page.timer_queue_offset)
        if len(raw) != TIMER_CHECKPOINT_SIZE:
            text = f"is not {TIMER_CHECKPOINT_SIZE} bytes long; {_AGAIN}"
            yield Finding(FindingKind.TIMER_CHECKPOINT, _CHECKPOINT, text, Severity.DAMAGE if raw else Severity.NOTE)
        elif min(*numbers, page.master_timer_queue_offset) < 0:
            yield Finding(
                FindingKind.TIMER_CHECKPOINT, _CHECKPOINT, f"has a negative number, so it does not count; {_AGAIN}"
            )
        elif not any(raw) and self._ends.queue_offset:
            yield Finding(FindingKind.TIMER_CHECKPOINT, _CHECKPOINT, f"is blank; {_AGAIN}", Severity.NOTE)
        else:
            yield from self._check_offset(page)

    def _check_offset(self, page: TimerCheckpoint) -> Iterator[Finding]:
        end = self._ends.queue_offset
        if page.timer_queue_offset > end:
            text = f"is at offset {page.timer_queue_offset} of the timer topic, which ends at {end}; the next start of "
            text += "a broker sets it to that end, and messages that are not in the timer log are not delivered"
            yield Finding(FindingKind.TIMER_CHECKPOINT, _CHECKPOINT, text)

    def _check_log_and_wheel(self) -> Iterator[Finding]:
        fs, paths = _ReadOnly(self._fs), self._paths
        timer_log = TimerLog(fs, paths.timer_log, self._config.mapped_file_size_timer_log)
        wheel = TimerWheel(fs, paths.timer_wheel, SLOTS)
        checkpoint = TimerCheckpointFile(fs, paths.timer_checkpoint)
        recovery = TimerRecovery(
            self._messages, self._ends, timer_log, wheel, checkpoint, self._config.timer_precision_ms
        )
        try:
            outcome = recovery.look()
            if outcome.reason:
                text = outcome.reason if REMEDY in outcome.reason else f"{outcome.reason}; {REMEDY}"
                yield Finding(FindingKind.TIMER_LOG, Path(names.TIMER_LOG), text)
            elif not wheel.has_snapshots and recovery.is_wheel_wrong(outcome):
                text = (
                    "does not lead to all messages of the timer log; the next start of a broker rebuilds it from there"
                )
                yield Finding(FindingKind.TIMER_WHEEL, Path(names.TIMER_WHEEL), text, Severity.NOTE)
        finally:
            wheel.close()
            timer_log.files.close()


class _Messages:
    """The messages of the commit log, as TimerRecovery reads them."""

    def __init__(self, lookup: RecordLookup, min_offset: int) -> None:
        self._lookup, self.min_offset = lookup, min_offset

    def read(self, phy_offset: int, size: int) -> StoredMessage | None:
        """The message at a physical offset; None unless a record of this size begins there."""
        record = self._lookup.record(phy_offset)
        if record is None or record[1].size != size:
            return None
        raw, layout = record
        return decode_record(memoryview(raw), 0, layout)


class _ReadOnly(ForwardingFileSystem):
    """A file system whose files are opened for reading only. All other methods are those of ``inner``."""

    def open(self, path: Path, **_: Any) -> File:
        """Open a file for reading."""
        return self._inner.open(path)
