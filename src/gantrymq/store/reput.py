"""Following the commit log: what arrives is dispatched to queues and index.

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

_LEAST_REST_MS, _MOST_REST_MS = 1.0, 5.0  # RocketMQ's sleeps for the former
_REST_A_RECORD_MS = 0.5


class ReputMessageService:
    """Dispatches one batch a step; ``drain`` catches up. ``index`` is None where messageIndexEnable is off.

    ``end_offset()`` says how far may be dispatched: to the end of the log, or to confirmOffset where duplicationEnable
    is on. ``reput_from_offset`` is what comes next; it only grows, but for an index that a full disk left behind. A put
    wakes the service, so its interval is long.
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
        self._found = 0  # records since the last rest

    @property
    def queues_end_offset(self) -> int:
        """How far the queues have the log, also while the index has gone back for what it lacks."""
        return max(self._in_queues, self.reput_from_offset)

    def rest_ms(self) -> float:
        """How long to let messages gather: the longer, the more of them there were.

        A step costs as much as fifty records do, and takes the interpreter's lock from whoever puts.
        """
        found, self._found = self._found, 0
        return min(max(_REST_A_RECORD_MS * found, _LEAST_REST_MS), _MOST_REST_MS)

    def step(self, now_ms: int) -> bool:
        """Dispatch one batch; True where more waits."""
        self._now_ms = now_ms
        return self._dispatch_next() or self._index_again()

    def drain(self) -> None:
        """Dispatch everything; raises DiskFullError where the index has no room for its part."""
        while self._dispatch_next() or self._index_again():
            pass

    def _index_again(self) -> bool:
        """Where a full disk left the index behind, go back to where that was, for the index alone.

        The queues have what lies there, but for those whose topic was deleted meanwhile, and they must not come back.
        True when there was room for one batch at least; raises the DiskFullError where there is still none.
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
        # The log may have expired faster than it was dispatched.
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
            self._found += batch.count
            return True
        if scanner.stop is StopReason.BLANK:
            self.reput_from_offset = self._log.roll_next_file(scanner.offset)
        elif not scanner.stop:  # the end is that of a file, and the next one is still empty
            self.reput_from_offset = scanner.offset
        else:
            return False
        return self.reput_from_offset < end
