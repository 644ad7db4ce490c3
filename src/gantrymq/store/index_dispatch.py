"""From records of the log to entries of the index.

Thread rule: one dispatcher, used by one thread at a time.

Source: CommitLogDispatcherBuildIndex and IndexService.buildIndex.
"""

from __future__ import annotations

from gantrymq.kernels import codes
from gantrymq.store.index_entries import index_entries
from gantrymq.store.index_service import IndexService
from gantrymq.store.log_scanner import RecordBatch


class IndexDispatcher:
    """Indexes every record from ``index_from`` (a physical offset) on; ``added`` counts entries.

    After a crash RocketMQ indexes the last record of the last file once more, and so answers with it twice; an
    ``index_from`` of ``index.end_phy_offset`` does the same.
    """

    def __init__(self, index: IndexService, index_from: int) -> None:
        self.index = index
        self.index_from = index_from
        self._done = 0
        self.added = 0

    def log_ended_at(self, end_offset: int) -> None:
        """The log was cut: what will stand behind ``end_offset`` is new."""
        self.index.log_ended_at(end_offset)
        self.index_from = min(self.index_from, end_offset)

    def dispatch(self, batch: RecordBatch, now_ms: int | None) -> None:
        """Index one batch. ``now_ms`` names a new file; None: its first entry does. Raises DiskFullError."""
        batch.believe_places()
        offsets = batch.columns[codes.PHY_OFFSET, : batch.count]
        if batch.count and int(offsets[0]) < self.index_from:
            batch = batch.take(offsets >= self.index_from)
        if not batch.count:
            return
        hashes, phy_offsets, timestamps = index_entries(batch)
        # A full disk may stop this half-way: then the same batch comes again, and what is in is passed over.
        while self._done < len(hashes):
            self._done += self.index.put(hashes, phy_offsets, timestamps, self._done, now_ms)
        self._done = 0
        self.added += len(hashes)
        self.index_from = batch.end_offset
