"""Making commit log files before they are needed, and giving them write buffers.

Source: AllocateMappedFileService and MappedFile.init with a TransientStorePool.
"""

from __future__ import annotations

from gantrymq.errors import GantrymqError
from gantrymq.store.commit_log import CommitLog
from gantrymq.store.mapped_file import MappedFile
from gantrymq.store.transient_pool import TransientStorePool

_UNITS_BY_RECORDS = 4  # a record is more than four times as long as its unit
_MOST_LEFT_BYTES = 64 << 20


class NoBufferError(GantrymqError):
    """All buffers of the TransientStorePool are lent, and fastFailIfNoBufferInStorePool forbids to do without."""


class AllocateMappedFileService:
    """Keeps one file ahead of the log: whoever rolls over finds the next file there, its space taken.

    Not before something was put: many a store is opened to be recovered, or looked at, and closed.
    """

    name = "AllocateMappedFileService"
    interval_ms = 100

    def __init__(self, log: CommitLog, *, warm: bool) -> None:
        self._log = log
        self._warm = warm
        self._began_at = log.wrote_offset

    def step(self, now_ms: int) -> bool:
        """Make the next file if it is not there."""
        if self._log.wrote_offset > self._began_at:
            self._log.queue.prepare_next(warm=self._warm)
        return False

    def drain(self) -> None:
        """A file that was made and not used goes again."""
        self._log.queue.drop_ahead()


def lend_buffer(pool: TransientStorePool, file: MappedFile, *, fail_fast: bool) -> None:
    """Give ``file`` a write buffer; without one it writes to its mapping, or raises NoBufferError (``fail_fast``)."""
    buffer = pool.borrow()
    if buffer is not None:
        file.write_into(buffer, pool.give_back)
    elif fail_fast:
        raise NoBufferError("no buffer is left in the TransientStorePool")


def left_for_queues_bytes(dispatch_behind_bytes: int, file_size: int) -> int:
    """What a new log file must leave of the disk: a record that is in the log must get into its queue too."""
    return min((dispatch_behind_bytes + 2 * file_size) // _UNITS_BY_RECORDS, _MOST_LEFT_BYTES)
