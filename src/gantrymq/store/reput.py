"""Follows the commit log and dispatches new records to queues and index.

Source: DefaultMessageStore.ReputMessageService.
"""

from __future__ import annotations

from collections.abc import Callable

from gantrymq.format.record import CheckCRC
from gantrymq.format.stop_reason import StopReason
from gantrymq.store.index.index_dispatch import IndexDispatcher
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.log_scanner import LogScanner
from gantrymq.store.log.record_batch import RecordScan, check_code
from gantrymq.store.queue.queue_dispatch import QueueDispatcher

_MIN_REST_MS, _MAX_REST_MS = 1.0, 5.0  # RocketMQ sleeps 1 ms
_REST_A_RECORD_MS = 0.5


class ReputMessageService:
    """Dispatches one batch a step. ``drain`` dispatches the rest. ``index`` is None if messageIndexEnable is off.

    ``end_offset()`` is the limit of dispatch: the end of the log, or confirmOffset with duplicationEnable.
    ``reput_from_offset`` is the next offset to dispatch. It only decreases when an index that a full disk left behind
    catches up. A put wakes the service, so its interval is long.
    """

    name = "ReputMessageService"
    interval_ms = 1000

    def __init__(
        self,
        log: CommitLog,
        queues: QueueDispatcher,
        index: IndexDispatcher | None,
        end_offset: Callable[[], int],
        reput_from_offset: int,
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._end_offset = end_offset
        self._now_ms: int | None = None
        self._scan = RecordScan(check_code(CheckCRC.OFF))
        self._scanner = LogScanner(log, reput_from_offset, reput_from_offset, self._scan)
        self.reput_from_offset = reput_from_offset
        self._in_queues = reput_from_offset
        self._new_records = 0  # number of records since the last rest

    @property
    def behind_bytes(self) -> int:
        """The number of bytes of the log that are not dispatched yet."""
        return max(self._end_offset() - self.reput_from_offset, 0)

    @property
    def queues_end_offset(self) -> int:
        """How far the queues have the log, also while dispatch has gone back for the index."""
        return max(self._in_queues, self.reput_from_offset)

    def rest_ms(self) -> float:
        """Return how long to let messages gather before the next step (ms); longer if more came since the last one.

        A step costs as much as fifty records, and competes with putting threads for the GIL.
        """
        new_records, self._new_records = self._new_records, 0
        return min(max(_REST_A_RECORD_MS * new_records, _MIN_REST_MS), _MAX_REST_MS)

    def step(self, now_ms: int) -> bool:
        """Dispatch one batch. Returns True if more records wait."""
        self._now_ms = now_ms
        return self._dispatch_next() or self._index_again()

    def drain(self) -> None:
        """Dispatch everything. Raises DiskFullError if the disk has no room for the index."""
        while self._dispatch_next() or self._index_again():
            pass

    def _index_again(self) -> bool:
        """If a full disk left the index behind, go back to that offset, for the index alone.

        The queues have these records already, except those of topics deleted since, which must not come back. Returns
        True if one batch was indexed. Raises the DiskFullError if the disk is still full.
        """
        index = self._index
        if index is None or index.disk_full() is None:
            return False
        reached = self._in_queues = self.queues_end_offset
        self.reput_from_offset = max(index.resume(), self._log.min_offset)
        self._dispatch_next()
        failure = index.disk_full()
        if failure is None:
            return True
        self.reput_from_offset = max(self.reput_from_offset, reached)
        raise failure

    def _dispatch_next(self) -> bool:
        # Retention may have removed records before they were dispatched.
        self.reput_from_offset = max(self.reput_from_offset, self._log.min_offset)
        end = self._end_offset()
        if self.reput_from_offset >= end:
            return False
        is_again, scanner = self.reput_from_offset < self._in_queues, self._scanner
        scanner.aim(self.reput_from_offset, self._in_queues if is_again else end)
        self._scan.begin_again()
        for batch in scanner:
            if not is_again:
                self._queues.dispatch(batch)
            if self._index is not None:
                self._index.dispatch(batch, self._now_ms)
            self.reput_from_offset = batch.end_offset
            self._new_records += batch.count
            return True
        if scanner.stop is StopReason.BLANK:
            self.reput_from_offset = self._log.roll_next_file(scanner.offset)
        elif not scanner.stop:  # the end is a file border, and the next file is still empty
            self.reput_from_offset = scanner.offset
        else:
            return False
        return self.reput_from_offset < end
