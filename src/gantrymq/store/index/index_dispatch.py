"""From records of the log to entries of the index, in the caller's thread or in one beside it.

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
    """Finds the entries of batches, with memory of its own. Thread rule: belongs to one dispatcher."""

    def __init__(self) -> None:
        self._hashes = self._records = np.empty(0, np.int32)

    def find(self, batch: RecordBatch) -> IndexEntries:
        """What ``batch``, whose places are believed, is indexed under; lives as the batch, and until the next call."""
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
        found: tuple[int, int] = index_hashes(
            batch.buffer, batch.columns, start, batch.count, _WITH_TAGS, self._hashes, self._records
        )
        return found

    def _take_room(self, room: int) -> None:
        if room > len(self._hashes):
            self._hashes, self._records = np.empty(room, np.int32), np.empty(room, np.int32)


def index_entries(batch: RecordBatch) -> tuple[Int64s, Int64s, Int64s]:
    """Hash, physical offset and store time (ms) of each entry of one batch, as arrays that nobody writes over."""
    return IndexEntriesFinder().find(batch).each()


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


class IndexWorker:
    """Hands batches to ``dispatcher`` (None: nothing is indexed). Use it as a context manager: its end waits for all.

    A batch that was handed over must live until the next one but one is asked for, which a scanner's does. What the
    dispatcher raises comes out of the next call, or of the end. Thread rule: used by one thread.
    """

    def __init__(self, dispatcher: IndexDispatcher | None) -> None:
        self._dispatcher = dispatcher
        self._pool = ThreadPoolExecutor(1, "IndexDispatcher")
        self._pending: Future[None] | None = None

    def dispatch(self, batch: RecordBatch) -> None:
        """Index ``batch``, after the one before it."""
        self._wait()
        if self._dispatcher is not None:
            self._pending = self._pool.submit(self._dispatcher.dispatch, batch, None)

    def _wait(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def __enter__(self) -> IndexWorker:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the last batch; what it raises counts where nothing else was raised, and a failed sync always.

        Whoever was raised for a gap in a queue goes on, and must not sync again what a sync has given up.
        """
        try:
            if kind is None:
                self._wait()
            elif self._pending is not None and isinstance(failed := self._pending.exception(), SyncFailedError):
                raise failed
        finally:
            self._pool.shutdown()
