"""One file of a MappedFileQueue: its positions, its bytes, and its users.

Invariant: 0 ≤ flushed ≤ committed ≤ wrote ≤ size. Bytes below ``committed`` never change while the file is held, and
only they may be read. A position moves after the bytes are in place, so a reader that saw the position may read them.
Without a write buffer, written bytes are committed at once.

Thread rule: one writer at a time (the put lock, or the dispatcher), any number of readers, flush from one thread,
``prefault_ahead`` from any thread.

Source: DefaultMappedFile and ReferenceResource.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np

from gantrymq.errors import DiskError, StoreError, SyncFailedError
from gantrymq.fs.api import Bytes, File, Identity

PAGE_SIZE = 4096
_FORCED_REFERENCES = 1000
_LOOK_BYTES = 8 << 20
_FETCH_BYTES, _FETCH_FIRST_BYTES, _FETCHED_S, _MAX_WINDOWS = 256 << 10, 8 << 10, 0.1, 64
MEMORY_AHEAD = memoryview(bytes(256 << 10))  # the piece that prefault() writes at once
_ZEROS_AHEAD = memoryview(bytes(1 << 20))  # larger for prefault_ahead(), which takes the GIL between two pieces


class _Fetched(NamedTuple):
    """Bytes that were read into memory, and the monotonic time until which they count as read."""

    begin: int
    end: int
    until_s: float


_NOTHING_FETCHED = _Fetched(0, 0, 0)


class MappedFile:
    """A file of fixed size. ``open_file`` is called when the first byte is needed, so opening a store is cheap.

    ``prefaulted_to`` is the position up to which page cache is allocated for appends.
    """

    def __init__(self, path: Path, file_from_offset: int, size: int, open_file: Callable[[], File]) -> None:
        self.path = path
        self.file_from_offset = file_from_offset
        self.size = size
        self.wrote_position = 0
        self.committed_position = 0
        self.flushed_position = 0
        self.store_timestamp_ms = 0
        self.prefaulted_to = 0
        self._is_wiped = False
        self._fetched: dict[int, _Fetched] = {}  # by the window in which they begin
        self._open_file = open_file
        self._file: File | None = None
        self._array: Bytes | None = None
        self._buffer: Bytes | None = None
        self._view: memoryview | None = None
        self._give_back: Callable[[Bytes], None] | None = None
        self._guard = threading.Lock()
        # Held while zeros or records are written by descriptor, so that a thread that writes zeros ahead never
        # overwrites records and never writes to a closed file. Taken before ``_guard``.
        self._memory_guard = threading.Lock()
        self._references = 1
        self._available = True
        self._first_refused_ms = 0

    @property
    def file(self) -> File:
        """The open file."""
        if self._file is None:
            with self._guard:
                if self._file is None:
                    self._file = self._open_file()
        return self._file

    @property
    def array(self) -> Bytes:
        """The whole file as uint8, mapped on first use. Raises DiskError if the file is shorter than ``size``."""
        if self._array is None:
            file = self.file
            with self._guard:
                if self._array is None:
                    array = file.map()
                    if len(array) < self.size:
                        text = "the file was truncated while it was in use, and ends here"
                        raise DiskError(self.path, text, len(array))
                    self._array = array
        return self._array

    @property
    def write_array(self) -> Bytes:
        """The array to write into: the write buffer if there is one, else the mapping."""
        return self.array if self._buffer is None else self._buffer

    def fetch(self, position: int, length: int) -> None:
        """Read mapped bytes into memory before they are accessed. Raises DiskError with the first missing position.

        A read within 0.1 s of another in the same 256 KiB window reads the rest of the window too, as far as it is
        committed, because it may be one of many: several consumers read the log at different positions, each a little
        further every time. Bytes are not read again for 0.1 s. A read by itself, such as of a query, takes less time.
        """
        window, end = position - position % _FETCH_BYTES, position + length
        fetched = self._fetched.get(window, _NOTHING_FETCHED)
        now_s = time.monotonic()
        if now_s >= fetched.until_s:
            fetched, until_s = _Fetched(position, position, 0), now_s + _FETCHED_S
            first, last = position, position + _FETCH_FIRST_BYTES
        else:
            if fetched.begin <= position and end <= fetched.end:
                return
            until_s, last = fetched.until_s, window + _FETCH_BYTES
            first = fetched.end if fetched.begin <= position <= fetched.end else window
        last = max(end, min(last, self.committed_position))
        try:
            self.read(first, last - first)
        except DiskError:  # the bad page may be elsewhere in the window
            self.read(position, length)
            return
        if len(self._fetched) >= _MAX_WINDOWS:
            self._fetched.clear()
        self._fetched[window] = _Fetched(min(first, fetched.begin), last, until_s)

    def read(self, position: int, length: int) -> Bytes:
        """Return a view of mapped bytes, up to the end of the file, after reading them into memory.

        Raises DiskError.
        """
        array = self.array
        self.file.fetch(position, length)
        return array[position : position + length]

    def data_end(self, position: int) -> int:
        """Return the position after the last non-zero byte from ``position`` on, or ``position`` if all are zero."""
        end = at = position
        while (at := self.file.data_from(at)) < self.size:
            data = np.flatnonzero(self.read(at, _LOOK_BYTES))
            end = at + int(data[-1]) + 1 if len(data) else end
            at += _LOOK_BYTES
        return end

    def write_into(self, buffer: Bytes, give_back: Callable[[Bytes], None]) -> None:
        """Collect writes in ``buffer`` until they are committed. ``give_back`` gets the buffer when the file is full.

        ``buffer`` is as long as the file.
        """
        self._buffer, self._give_back, self._view = buffer, give_back, None

    @property
    def is_buffered(self) -> bool:
        """Whether writes are collected in a buffer first."""
        return self._buffer is not None

    @property
    def is_full(self) -> bool:
        """Whether the file is written to its end."""
        return self.wrote_position == self.size

    @property
    def is_available(self) -> bool:
        """Whether the file may still be held; False once :meth:`shutdown` or :meth:`close` was called."""
        return self._available

    @property
    def end_offset(self) -> int:
        """The offset after the last byte that may be read."""
        return self.file_from_offset + self.committed_position

    def set_positions(self, position: int) -> None:
        """Set all three positions, as loading does."""
        self.flushed_position = position
        self.cut_to(position)

    def cut_to(self, position: int) -> None:
        """Set the wrote and committed positions to ``position``. Unflushed bytes before it stay unflushed."""
        self.wrote_position = self.committed_position = position
        self.flushed_position = min(self.flushed_position, position)
        self.prefaulted_to = 0

    def prefault(self, length: int) -> None:
        """Allocate page cache for the next ``length`` bytes and one page more by writing zeros.

        ``prefaulted_to`` moves to their end.

        The obvious way is to let the store into the mapping fault. Linux then reads megabytes of a hole ahead into
        large folios, which here costs nine times as much as the small pages that a write allocates, and it never stops
        doing so. A load has the same effect, hence the extra page: kernels read a few bytes beyond the newest record.
        Raises DiskFullError.
        """
        if self.is_buffered:
            return
        end = min(self.wrote_position + length + PAGE_SIZE, self.size)
        while max(self.prefaulted_to, self.wrote_position) < end:
            with self._memory_guard:
                at = max(self.prefaulted_to, self.wrote_position)
                zeros = MEMORY_AHEAD[: min(len(MEMORY_AHEAD) - at % len(MEMORY_AHEAD), self.size - at)]
                self.file.write_at(at, zeros)
                self.prefaulted_to = at + len(zeros)

    def prefault_ahead(self, length: int) -> None:
        """Like :meth:`prefault`, while the writer continues. The writer itself later prefaults what is missing.

        Records are only written before ``prefaulted_to``, and zeros only after it. Nothing happens before the writer's
        first own :meth:`prefault`, or once the file is closed. Thread rule: any thread. Raises DiskFullError.
        """
        while True:
            with self._memory_guard:
                at, end = self.prefaulted_to, min(self.wrote_position + length + PAGE_SIZE, self.size)
                if self.is_buffered or self._file is None or not self.wrote_position < at < end:
                    return
                zeros = _ZEROS_AHEAD[: self.size - at]
                self._file.write_at(at, zeros)
                self.prefaulted_to = at + len(zeros)

    def append_ahead(self, data: Bytes, length: int) -> None:
        """Write ``data`` after the last byte. Only the first ``length`` bytes count; the others are zeros.

        If the write fails the range is zeroed: half of it may be whole records, which the next start would find. Raises
        DiskFullError, and SyncFailedError if the zeros cannot be written either.
        """
        begin = self.wrote_position
        ahead = data[: min(len(data), self.size - begin)]
        with self._memory_guard:
            # until the write succeeds the range does not count as brought in
            prefaulted_to, self.prefaulted_to = self.prefaulted_to, begin
            try:
                self.file.write_at(begin, ahead.data)
            except (StoreError, OSError):
                self._zero(begin, len(ahead))
                raise
            self.prefaulted_to = max(prefaulted_to, begin + len(ahead))
            self.advance(length)

    def _zero(self, position: int, length: int) -> None:
        try:
            self.file.zero(position, length)
        except (StoreError, OSError) as error:
            raise SyncFailedError(self.path, f"the rejected record may be in the file: {error}") from error

    def append(self, data: bytes | memoryview) -> None:
        """Write ``data`` after the last byte. The caller has checked that there is room. Raises DiskFullError."""
        self.file.write_at(self.wrote_position, data)
        self.advance(len(data))

    def write(self, data: bytes) -> None:
        """Copy ``data`` after the last byte, into the mapping or the write buffer.

        The caller has checked that there is room.
        """
        view = self._view
        if view is None:
            view = self._view = self.write_array.data
        begin = self.wrote_position
        end = begin + len(data)
        view[begin:end] = data
        self.wrote_position = end
        if self._buffer is None:
            self.committed_position = end

    def advance(self, length: int) -> None:
        """Move the wrote position by ``length`` bytes, which are in place."""
        self.wrote_position += length
        if self._buffer is None:
            self.committed_position = self.wrote_position

    def commit(self, least_pages: int = 0) -> int:
        """Write buffered bytes to the file. Returns the committed position. Raises DiskFullError.

        Nothing is written if fewer than ``least_pages`` pages are dirty, unless the file is full.
        """
        buffer, begin, end = self._buffer, self.committed_position, self.wrote_position
        pages = end // PAGE_SIZE - begin // PAGE_SIZE
        if buffer is not None and begin < end and (self.is_full or pages >= least_pages):
            self.file.write_at(begin, buffer[begin:end].data)
            self.committed_position = end
            if end == self.size and self._give_back is not None:
                self._buffer = self._view = None
                self._give_back(buffer)
        return self.committed_position

    def wipe_rest(self) -> None:
        """Zero the bytes after the wrote position. The next flush makes that durable."""
        self.file.zero(self.wrote_position, self.size - self.wrote_position)
        self._is_wiped = True

    def is_able_to_flush(self, least_pages: int) -> bool:
        """Whether a flush with ``least_pages`` has something to do."""
        flushed, ready = self.flushed_position, self.committed_position
        if self.is_full and flushed < ready:
            return True
        if least_pages > 0:
            return ready // PAGE_SIZE - flushed // PAGE_SIZE >= least_pages
        return ready > flushed

    def identity(self) -> Identity | None:
        """The identity of the open file, or None if it is not open."""
        with self._guard:
            return self._file.identity() if self._file is not None else None

    def begin_flush(self) -> None:
        """Start writing to the disk what :meth:`flush` will wait for."""
        if (self._is_wiped or self.is_able_to_flush(0)) and self.hold():
            try:
                self.file.begin_sync()
            finally:
                self.release()

    def flush(self, least_pages: int = 0) -> int:
        """Make the committed bytes durable, unless the file is being removed. Returns the flushed position."""
        if self._is_wiped or self.is_able_to_flush(least_pages):
            ready = self.committed_position
            if self.hold():
                try:
                    if not self.is_buffered:
                        self.file.release_pages(self.flushed_position, ready - self.flushed_position)
                    self.file.sync()
                finally:
                    self.release()
            self.flushed_position, self._is_wiped = ready, False
        return self.flushed_position

    def select(self, position: int, length: int, *, fetched: bool = True) -> SelectMappedBufferResult | None:
        """Return a held view of committed bytes, or None if the range is not committed (selectMappedBuffer).

        The bytes are read into memory, unless ``fetched`` is False; the caller must then :meth:`fetch` them itself.
        Raises DiskError.
        """
        if position < 0 or length < 0 or position + length > self.committed_position or not self.hold_to_read():
            return None
        try:
            view = self.read(position, length) if fetched else self.array[position : position + length]
        except BaseException:  # opening, mapping or reading failed
            self.release()
            raise
        return SelectMappedBufferResult(self.file_from_offset + position, view, length, self)

    def hold(self) -> bool:
        """Add a user. Returns False if the file is being removed."""
        with self._guard:
            if self._available and self._references > 0:
                self._references += 1
                return True
            return False

    def hold_to_read(self) -> bool:
        """Like :meth:`hold`, but also False if the file no longer exists.

        A writer's retention does not wait for readers in other processes.
        """
        if not self.hold():
            return False
        try:
            return self.file is not None
        except FileNotFoundError:
            self.release()
            return False
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Remove a user. The last one closes the file."""
        with self._guard:
            self._references -= 1
            done = self._references <= 0
        if done:
            self._close()

    def shutdown(self, now_ms: int, interval_forcibly_ms: int) -> bool:
        """Stop new holds and close the file once it is not held (ReferenceResource.shutdown). True if no user is left.

        Later calls, once ``interval_forcibly_ms`` has passed since the first, lower the count by 1000, so that a leaked
        hold cannot keep the file for ever.
        """
        if self._available:
            self._available = False
            self._first_refused_ms = now_ms
            self.release()
        elif self._references > 0 and now_ms - self._first_refused_ms >= interval_forcibly_ms:
            with self._guard:
                self._references -= _FORCED_REFERENCES
            self._close()
        return self._references <= 0

    def close(self) -> None:
        """Close the file regardless of its users: the store is closing. Views keep their mapping alive."""
        self._available = False
        self._close()

    def close_if_idle(self) -> None:
        """Close the descriptor until the next use, unless the file is mapped or has unflushed bytes.

        No other thread may be using the file.
        """
        if self._array is None and not self._is_wiped and self.flushed_position == self.wrote_position:
            self._close()

    def _close(self) -> None:
        with self._memory_guard, self._guard:
            self._array = self._view = None
            if self._file is not None:
                self._file.close()
                self._file = None


@dataclass(slots=True)
class SelectMappedBufferResult:
    """Bytes of a held file: ``array`` is a uint8 view of ``size`` bytes that begins at ``start_offset``.

    Release it, or use it as a context manager. The view stays readable after the release, because it keeps its mapping
    alive, but the file may be deleted from then on.
    """

    start_offset: int
    array: Bytes
    size: int
    _holder: MappedFile | None

    def release(self) -> None:
        """Release the hold. Further calls do nothing."""
        if self._holder is not None:
            self._holder.release()
            self._holder = None

    def __enter__(self) -> SelectMappedBufferResult:
        """Return this view."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the hold."""
        self.release()
