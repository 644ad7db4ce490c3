"""From records of the log to entries of the index.

Thread rule: one dispatcher, used by one thread at a time.

Source: CommitLogDispatcherBuildIndex and IndexService.buildIndex.
"""

from __future__ import annotations

from gantrymq.errors import DiskError, DiskFullError, SyncFailedError
from gantrymq.kernels import codes
from gantrymq.store.index_entries import IndexEntriesFinder
from gantrymq.store.index_service import IndexService
from gantrymq.store.record_batch import RecordBatch


class IndexDispatcher:
    """Indexes every record from ``index_from`` (a physical offset) on; ``added`` counts entries.

    After a crash RocketMQ indexes the last record of the last file once more, and so answers with it twice; an
    ``index_from`` of ``index.end_phy_offset`` does the same.

    A full disk, or one that does not give back a page of the index, leaves the index behind (:meth:`disk_full` says
    why) and stops nothing else: what comes is passed over until :meth:`resume`, and then must come again from
    ``index_from`` on.
    """

    def __init__(self, index: IndexService, index_from: int) -> None:
        self.index = index
        self.index_from = index_from
        self._disk_full: DiskFullError | DiskError | None = None
        self._done = 0  # entries of the records from index_from on that are in already
        self._finder = IndexEntriesFinder()
        self.added = 0

    def log_ended_at(self, end_offset: int) -> None:
        """The log was cut: what will stand behind ``end_offset`` is new."""
        self.index.log_ended_at(end_offset)
        self.index_from = min(self.index_from, end_offset)

    def disk_full(self) -> DiskFullError | DiskError | None:
        """Why the index is behind; None where it is not."""
        return self._disk_full

    def resume(self) -> int:
        """Try again with what comes now; returns the offset that it must come from."""
        self._disk_full = None
        return self.index_from

    def dispatch(self, batch: RecordBatch, now_ms: int | None) -> None:
        """Index one batch. ``now_ms`` names a new file; None: its first entry does."""
        if self._disk_full is not None:
            return
        batch.believe_places()
        offsets = batch.columns[codes.PHY_OFFSET, : batch.count]
        if batch.count and int(offsets[0]) < self.index_from:
            batch = batch.take(offsets >= self.index_from)
        if not batch.count:
            return
        try:
            self._put(batch, now_ms)
        except SyncFailedError:
            raise
        except (DiskFullError, DiskError) as error:
            self._disk_full = error
            self.index_from = int(batch.columns[codes.PHY_OFFSET, 0])
        else:
            self.index_from = batch.end_offset

    def _put(self, batch: RecordBatch, now_ms: int | None) -> None:
        entries = self._finder.find(batch)
        while self._done < len(entries.hashes):
            put = self.index.put(entries, self._done, now_ms)
            self._done += put
            self.added += put
        self._done -= len(entries.hashes)
