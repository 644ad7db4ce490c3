"""Appends records to the commit log and assigns queue offsets, under the put lock.

Invariant: each queue offset is given out once, in the order of the log. Prepared and rollback records have queue offset
0 and use none up. The bytes of a record are in the mapping before the wrote position of the file moves, and readers
stop at that position.

Thread rule: everything runs under the store's put lock, which any thread may take. The lock is not reentrant.

Source: CommitLog.asyncPutMessage, DefaultAppendMessageCallback, PutMessageLock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

import numpy as np

from gantrymq.kernels import codes
from gantrymq.kernels.api import encode_batch
from gantrymq.kernels.arrays import Bytes, read_only
from gantrymq.model.host import Host
from gantrymq.model.message import LOOPBACK
from gantrymq.store.log.appendable import Appendable, NextOffsets
from gantrymq.store.log.batch import BatchColumns, PutBatchResult
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.mapped_file import PAGE_SIZE, MappedFile
from gantrymq.store.put_result import PutMessageResult

_FIRST_WAIT_S, _LONGEST_WAIT_S = 100e-6, 5e-3  # CPython switches threads every 5 ms
_TRIES = 10  # after that the thread queues for the lock, so that it cannot starve
_HOST_ROW_SIZE = 20
_SHORT_RANGE = 1 << 16
_FEW_QUEUES = 64
# Records of 1 KiB and more are encoded into a reused buffer and written to the log 1 MiB at a time. Encoding them in
# the mapping would touch each new page twice: once to zero it, once for the record. Smaller records gain nothing.
_LARGE_RECORD_BYTES = 1024
_ROOM_BYTES = 1 << 20
_ZERO_PAGE = np.zeros(PAGE_SIZE, np.uint8)  # kernels read a few bytes beyond the newest record


class PutLock:
    """The put lock, without lock convoys.

    The obvious way is ``threading.Lock`` alone. It hands ownership to a waiting thread that does not hold the GIL yet;
    the thread that holds the GIL then blocks on the lock, and every put costs a thread switch. A waiter therefore
    sleeps and polls.

    Use it as a context manager. ``acquire`` and ``release`` are those of the inner lock, for code where each call
    counts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acquire: Callable[[bool], bool] = self._lock.acquire
        self.release: Callable[[], None] = self._lock.release

    def __enter__(self) -> None:
        """Acquire the lock."""
        if not self._lock.acquire(blocking=False):
            self.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock."""
        self._lock.release()

    def wait(self) -> None:
        """Acquire the lock after a first attempt has failed: poll, then block."""
        wait_s = _FIRST_WAIT_S
        for _ in range(_TRIES):
            time.sleep(wait_s)
            if self._lock.acquire(blocking=False):
                return
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        self._lock.acquire()


class MessageAppender:
    """Appends to ``log``. ``next_offsets`` maps (topic, queue id) to the queue's next offset and is updated here.

    New messages get ``store_host`` as the host that stored them. ``last_timestamp_ms`` is the store time of the last
    record of the log.
    """

    def __init__(
        self,
        log: CommitLog,
        next_offsets: NextOffsets,
        store_host: Host,
        *,
        append_crc: bool,
        last_timestamp_ms: int = 0,
    ) -> None:
        self._log = log
        self._next_offsets = next_offsets
        self.store_host = store_host
        self._append_crc = append_crc
        self._last_timestamp_ms = last_timestamp_ms
        self._room: Bytes | None = None

    def next_timestamp_ms(self, now_ms: int) -> int:
        """Return the store time (ms) of the next record. It never decreases, because search by time needs it sorted."""
        last_ms = self._last_timestamp_ms
        timestamp_ms = self._last_timestamp_ms = now_ms if now_ms > last_ms else last_ms
        return timestamp_ms

    def append(self, appendable: Appendable, now_ms: int) -> PutMessageResult:
        """Append records that have passed their check, in one piece.

        The status says so if a number does not fit its field.

        Raises DiskFullError. Nothing is changed then, except that a blank may end the file.
        """
        file = self._log.room_for(appendable.size_bytes)
        timestamp_ms = self.next_timestamp_ms(now_ms)
        result = appendable.append(file, self._next_offsets, timestamp_ms, self.store_host)
        if result.phy_offset >= 0:
            # Set last: a flush in between must not put this time into the checkpoint, since it may have missed the
            # record.
            file.store_timestamp_ms = timestamp_ms
        return result

    def append_copied(self, data: Bytes, phy_offset: int, store_timestamp_ms: int) -> None:
        """Append bytes of another broker's log as they are: records, or all of a file's blank end (appendToCommitLog).

        They do not cross a file. The last record has ``store_timestamp_ms``. Queue offsets are those of the records;
        ``next_offset`` does not follow. Raises DiskFullError, SyncFailedError; nothing is appended then.
        """
        file = self._log.queue.last_for_append(phy_offset)
        assert file.file_from_offset + file.wrote_position == phy_offset, "the caller copies a log in order"
        assert len(data) <= file.size - file.wrote_position, "the caller cuts at the files"
        file.append_ahead(np.concatenate((data, _ZERO_PAGE)), len(data))
        file.store_timestamp_ms = max(store_timestamp_ms, file.store_timestamp_ms)

    def prefault_ahead(self, size_bytes: int) -> None:
        """Allocate page cache for the next records. Thread rule: any thread, without the put lock."""
        self._log.prefault_ahead(size_bytes)

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of a queue's next message; 0 if the queue has no messages."""
        return self._next_offsets.get((topic, queue_id), 0)

    def forget_queue(self, topic: str, queue_id: int) -> None:
        """Restart a queue at offset 0, because its topic was deleted."""
        self._next_offsets.pop((topic, queue_id), None)

    def append_columns(self, batch: BatchColumns, now_ms: int, result: PutBatchResult) -> None:
        """Append a plain batch and fill ``result``.

        Raises DiskFullError; the rows before the failed one are stored then.
        """
        offsets = _QueueOffsets(batch, self._next_offsets)
        timestamp_ms = self.next_timestamp_ms(now_ms)
        columns = batch.columns
        columns[codes.STORE_TIMESTAMP, : batch.count] = timestamp_ms
        born = columns[codes.BORN_TIMESTAMP, : batch.count]
        born[born == 0] = timestamp_ms
        columns[codes.QUEUE_OFFSET, : batch.count] = offsets.of_rows
        done = 0
        try:
            while done < batch.count:
                done = self._encode(batch, done, timestamp_ms)
        finally:
            offsets.take(done)
            result.phy_offsets[:done] = columns[codes.PHY_OFFSET, :done]
            result.queue_offsets[:done] = offsets.of_rows[:done]
            result.sizes[:done] = columns[codes.SIZE, :done]

    def _encode(self, batch: BatchColumns, start: int, timestamp_ms: int) -> int:
        """Write rows from ``start`` on into the last file, or end that file. Returns the next row to write."""
        file, most_bytes = self._log.queue.last_for_append(), batch.most_bytes_from(start)
        is_large = most_bytes >= (batch.count - start) * _LARGE_RECORD_BYTES
        fits = not file.is_buffered and file.size - file.wrote_position > _ROOM_BYTES
        done = self._encode_apart(file, batch, start, timestamp_ms) if is_large and fits else start
        if done == start:
            file.prefault(most_bytes)
            before = file.wrote_position
            done, code, position = self._encode_into(file.write_array, before, file.file_from_offset, batch, start)
            file.advance(position - before)
            file.store_timestamp_ms = timestamp_ms
            if code == codes.STOP_FULL_FILE:
                self._log.fill_blank(file)
        return done

    def _encode_apart(self, file: MappedFile, batch: BatchColumns, start: int, timestamp_ms: int) -> int:
        """Write some rows through the reused buffer.

        Returns the next row, which is ``start`` if not even one row fits.
        """
        if self._room is None:
            self._room = np.empty(_ROOM_BYTES + PAGE_SIZE, np.uint8)
        base_offset = file.file_from_offset + file.wrote_position
        done, _, length = self._encode_into(self._room[:_ROOM_BYTES], 0, base_offset, batch, start)
        if done > start:
            self._room[length : length + PAGE_SIZE] = 0  # kernels read a few bytes beyond the newest record
            file.append_ahead(self._room[: length + PAGE_SIZE], length)
            file.store_timestamp_ms = timestamp_ms
        return done

    def _encode_into(
        self, out: Bytes, position: int, base_offset: int, batch: BatchColumns, start: int
    ) -> tuple[int, int, int]:
        """Encode the rows from ``start`` on into ``out`` at ``position``.

        Returns (next row, stop code, end position).
        """
        done, code, position = encode_batch(
            out,
            position,
            len(out),
            base_offset,
            batch.bodies.values,
            batch.bodies.offsets,
            batch.topic_texts.values,
            batch.topic_texts.offsets,
            batch.properties.values,
            batch.properties.offsets,
            read_only(_host_row(LOOPBACK)),
            read_only(_host_row(self.store_host)),
            int(self._append_crc),
            batch.columns,
            start,
            batch.count,
        )
        assert code != codes.STOP_LENGTH, "a plain batch has no text that its record does not hold"
        return int(done), int(code), int(position)


def _host_row(host: Host) -> bytes:
    return host.to_bytes().ljust(_HOST_ROW_SIZE, b"\0")


class _QueueOffsets:
    """The queue offsets of a batch. ``of_rows`` has one for each row; each queue continues in the order of its rows."""

    def __init__(self, batch: BatchColumns, next_offsets: NextOffsets) -> None:
        import pyarrow as pa

        self._next_offsets = next_offsets
        queue_ids = batch.columns[codes.QUEUE_ID, : batch.count]
        queue_count = int(queue_ids.max()) + 1
        if len(batch.topics) == 1 and queue_count <= _FEW_QUEUES:
            self._queues, group = [(batch.topics[0], queue_id) for queue_id in range(queue_count)], queue_ids
        else:
            # Arrow's hash table is faster than np.unique, which sorts: that took a fifth of the time of a table of
            # small messages.
            pairs = pa.array((batch.topic_of << 32) | queue_ids).dictionary_encode()
            self._queues = [(batch.topics[pair >> 32], pair & 0xFFFFFFFF) for pair in pairs.dictionary.to_pylist()]
            group = pairs.indices.to_numpy()
        self._group = group.astype(np.uint16) if len(self._queues) <= _SHORT_RANGE else group  # NumPy sorts uint16 fast
        first = np.array([next_offsets.get(queue, 0) for queue in self._queues], np.int64)
        order = np.argsort(self._group, kind="stable")
        counts = np.bincount(self._group, minlength=len(self._queues))
        rank = np.arange(batch.count) - np.repeat(np.cumsum(counts) - counts, counts)
        self.of_rows = np.empty(batch.count, np.int64)
        self.of_rows[order] = first[self._group[order]] + rank

    def take(self, rows: int) -> None:
        """Use up the offsets of the first ``rows`` rows, which are stored."""
        stored = np.bincount(self._group[:rows], minlength=len(self._queues)).tolist()
        for queue, count in zip(self._queues, stored, strict=True):
            if count:
                self._next_offsets[queue] = self._next_offsets.get(queue, 0) + count
