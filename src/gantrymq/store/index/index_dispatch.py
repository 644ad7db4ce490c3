"""Turns records of the log into index entries, in the caller's thread or in a second one.

:class:`IndexWorker` indexes in its own thread, at most one batch behind. If the caller waited for the index after each
batch, the slower of the two would idle in turn; with one batch of slack each can make up for a slow batch.

Thread rule: one dispatcher, used by one thread at a time.

Source: CommitLogDispatcherBuildIndex and IndexService.buildIndex.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

import numpy as np

from gantrymq.errors import DiskError, DiskFullError, SyncFailedError
from gantrymq.kernels import codes
from gantrymq.kernels.api import index_hashes
from gantrymq.kernels.arrays import Int32s, Int64s
from gantrymq.store.index.index_service import IndexService
from gantrymq.store.log.record_batch import IndexEntries, RecordBatch, most_entries

_WITH_TAGS = 1


class IndexEntriesFinder:
    """Finds the index entries of batches, in its own memory. Thread rule: belongs to one dispatcher."""

    def __init__(self) -> None:
        self._hashes = self._records = np.empty(0, np.int32)

    def find(self, batch: RecordBatch) -> IndexEntries:
        """Return the index entries of ``batch``, after ``trust_positions``.

        Valid as long as the batch, and until the next call.
        """
        hashes, records = self._find(batch) if batch.digest is None else (batch.digest.hashes, batch.digest.hashed)
        return IndexEntries(hashes, records, batch.columns[codes.PHY_OFFSET], batch.columns[codes.STORE_TIMESTAMP])

    def _find(self, batch: RecordBatch) -> tuple[Int32s, Int32s]:
        self._take_room(most_entries(batch.count))
        count, done = self._find_from(batch, 0)
        hashes, records = self._hashes[:count], self._records[:count]
        while done < batch.count:
            hashes, records = hashes.copy(), records.copy()
            count, done = self._find_from(batch, done)
            hashes = np.concatenate((hashes, self._hashes[:count]))
            records = np.concatenate((records, self._records[:count]))
        return hashes, records

    def _find_from(self, batch: RecordBatch, start: int) -> tuple[int, int]:
        counts: tuple[int, int] = index_hashes(
            batch.buffer, batch.columns, start, batch.count, _WITH_TAGS, self._hashes, self._records
        )
        return counts

    def _take_room(self, room: int) -> None:
        if room > len(self._hashes):
            self._hashes, self._records = np.empty(room, np.int32), np.empty(room, np.int32)


def index_entries(batch: RecordBatch) -> tuple[Int64s, Int64s, Int64s]:
    """Return hash, physical offset and store time (ms) of each index entry of one batch, in arrays of their own."""
    return IndexEntriesFinder().find(batch).each()


class IndexDispatcher:
    """Indexes every record from physical offset ``index_from`` on. ``added`` counts entries.

    After a crash RocketMQ indexes the last record of the last file a second time, and then returns it twice. An
    ``index_from`` of ``index.end_phy_offset`` does the same.

    A full disk, or an unreadable page of the index, leaves the index behind (:meth:`disk_full` has the reason) and
    stops nothing else: later batches are skipped until :meth:`resume`, and must then come again from ``index_from`` on.
    """

    def __init__(self, index: IndexService, index_from: int) -> None:
        self.index = index
        self.index_from = index_from
        self._disk_full: DiskFullError | DiskError | None = None
        self._done = 0  # number of entries of the records from index_from on that are in the index already
        self._finder = IndexEntriesFinder()
        self.added = 0

    def log_ended_at(self, end_offset: int) -> None:
        """Note that the log was cut at ``end_offset``, so that later records there are new."""
        self.index.log_ended_at(end_offset)
        self.index_from = min(self.index_from, end_offset)

    def disk_full(self) -> DiskFullError | DiskError | None:
        """Return why the index is behind, or None if it is not."""
        return self._disk_full

    def resume(self) -> int:
        """Index again from now on. Returns the physical offset from which the batches must come."""
        self._disk_full = None
        return self.index_from

    def dispatch(self, batch: RecordBatch, now_ms: int | None) -> None:
        """Index one batch. ``now_ms`` names a new file; with None the first entry's store time does."""
        if self._disk_full is not None:
            return
        batch.trust_positions()
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


class IndexWorker:
    """Hands batches to ``dispatcher`` (None: nothing is indexed). Use it as a context manager; its end waits for all.

    A batch must stay valid until the second batch after it is requested, as a scanner's batches do. Errors of the
    dispatcher are raised by the next call, or at the end. Thread rule: used by one thread.
    """

    def __init__(self, dispatcher: IndexDispatcher | None) -> None:
        self._dispatcher = dispatcher
        self._pool = ThreadPoolExecutor(1, "IndexDispatcher")
        self._pending: Future[None] | None = None

    def dispatch(self, batch: RecordBatch) -> None:
        """Index ``batch`` in the worker thread, after waiting for the batch before it."""
        self._wait()
        if self._dispatcher is not None:
            self._pending = self._pool.submit(self._dispatcher.dispatch, batch, None)

    def _wait(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def __enter__(self) -> IndexWorker:
        """Return the worker."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the last batch. Its error is raised if no other was, and a failed sync is always raised.

        A caller that handles another error, such as a queue gap, continues, and must not repeat a failed sync.
        """
        try:
            if kind is None:
                self._wait()
            elif self._pending is not None and isinstance(failed := self._pending.exception(), SyncFailedError):
                raise failed
        finally:
            self._pool.shutdown()
