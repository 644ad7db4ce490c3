"""Following the commit log: what arrives is dispatched to queues and index.

Source: DefaultMessageStore.ReputMessageService.
"""

from __future__ import annotations

from collections.abc import Callable

from gantrymq.format.record import CheckCRC, RecordStop
from gantrymq.store.commit_log import CommitLog
from gantrymq.store.index_dispatch import IndexDispatcher
from gantrymq.store.log_scanner import LogScanner
from gantrymq.store.queue_dispatch import QueueDispatcher


class ReputMessageService:
    """Dispatches one batch a step; ``drain`` catches up. ``index`` is None where messageIndexEnable is off.

    ``end_offset()`` says how far may be dispatched: to the end of the log, or to confirmOffset where duplicationEnable
    is on. ``reput_from_offset`` is what comes next; it only grows. A put wakes the service, so its interval is long.
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
        self.reput_from_offset = reput_from_offset

    @property
    def is_caught_up(self) -> bool:
        """Whether nothing waits."""
        return self.reput_from_offset >= self._end_offset()

    def step(self, now_ms: int) -> bool:
        """Dispatch one batch; True where more waits."""
        self._now_ms = now_ms
        return self._dispatch_next()

    def drain(self) -> None:
        """Dispatch everything."""
        while self._dispatch_next():
            pass

    def _dispatch_next(self) -> bool:
        # The log may have expired faster than it was dispatched.
        self.reput_from_offset = max(self.reput_from_offset, self._log.min_offset)
        end = self._end_offset()
        if self.reput_from_offset >= end:
            return False
        scanner = LogScanner(self._log, self.reput_from_offset, end, CheckCRC.OFF)
        for batch in scanner:
            self._queues.dispatch(batch)
            if self._index is not None:
                self._index.dispatch(batch, self._now_ms)
            self.reput_from_offset = batch.end_offset
            return True
        if scanner.stop is RecordStop.BLANK:
            self.reput_from_offset = self._log.roll_next_file(scanner.offset)
        elif scanner.stop is None:  # the end is that of a file, and the next one is still empty
            self.reput_from_offset = scanner.offset
        else:
            return False
        return self.reput_from_offset < end
