"""One file of a queue of files: its positions, its bytes, and who holds it.

Invariant: 0 ≤ flushed ≤ committed ≤ wrote ≤ size. Bytes below ``committed`` never change while the file is held, and
only they may be read. A position moves after the bytes are in place, so a reader that saw it may read them. Without a
write buffer what is written is committed at once.

Thread rule: one writer at a time (the put lock, or the dispatcher); any number of readers; flush from one thread;
``bring_in_ahead`` from any thread.

Source: DefaultMappedFile and ReferenceResource.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from gantrymq.errors import DiskError, StoreError, SyncFailedError
from gantrymq.fs.api import Bytes, File, Identity

PAGE_SIZE = 4096
_FORCED_REFERENCES = 1000
_LOOK_BYTES = 8 << 20
_FETCH_BYTES, _FETCHED_S, _MOST_WINDOWS = 256 << 10, 0.1, 64
MEMORY_AHEAD = memoryview(bytes(256 << 10))  # what is brought in at once
_FAR_AHEAD = memoryview(bytes(1 << 20))  # by a thread that needs the interpreter's lock between two pieces


class MappedFile:
    """A file of fixed size. ``open_file`` is called when the first byte is needed, so opening a store is cheap."""

    def __init__(self, path: Path, file_from_offset: int, size: int, open_file: Callable[[], File]) -> None:
        self.path = path
        self.file_from_offset = file_from_offset
        self.size = size
        self.wrote_position = 0
        self.committed_position = 0
        self.flushed_position = 0
        self.store_timestamp_ms = 0
        self.brought_in = 0
        self._is_wiped = False
        # By window: where the fetched bytes end, and until when they count as fetched.
        self._fetched: dict[int, tuple[int, float]] = {}
        self._open_file = open_file
        self._file: File | None = None
        self._array: Bytes | None = None
        self._buffer: Bytes | None = None
        self._view: memoryview | None = None
        self._give_back: Callable[[Bytes], None] | None = None
        self._guard = threading.Lock()
        # Held while zeros or records are written by descriptor, so that a thread that writes zeros ahead never writes
        # over records or into a file that was closed. Taken before ``_guard``.
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
        """The whole file as uint8, mapped on first use."""
        if self._array is None:
            file = self.file
            with self._guard:
                if self._array is None:
                    array = file.map()
                    if len(array) < self.size:
                        text = "the file was cut short while it was in use: it ends here"
                        raise DiskError(self.path, text, len(array))
                    self._array = array
        return self._array

    @property
    def write_array(self) -> Bytes:
        """Where a writer puts bytes: the write buffer if there is one, else the mapping."""
        return self.array if self._buffer is None else self._buffer

    def fetch(self, position: int, length: int) -> None:
        """Bring mapped bytes into memory before they are looked at; raises DiskError with the first that is missing.

        The rest of the window (256 KiB) comes with them as far as it is written. For 0.1 s its bytes are not asked for
        again: several consumers read the log in several places, each a little further every time.
        """
        window, end = position - position % _FETCH_BYTES, position + length
        fetched_end, until_s = self._fetched.get(window, (0, 0.0))
        now_s = time.monotonic()
        if end <= fetched_end and now_s < until_s:
            return
        wide = max(end, min(window + _FETCH_BYTES, self.committed_position))
        try:
            self.read(window, wide - window)
        except DiskError:  # the bad page may lie in the window, but not among these bytes
            self.read(position, length)
            return
        if len(self._fetched) >= _MOST_WINDOWS:
            self._fetched.clear()
        self._fetched[window] = wide, now_s + _FETCHED_S

    def read(self, position: int, length: int) -> Bytes:
        """A view of mapped bytes, to the end of the file at most, that are in memory by now. Raises DiskError."""
        array = self.array
        self.file.fetch(position, length)
        return array[position : position + length]

    def data_end(self, position: int) -> int:
        """Behind the last byte from ``position`` on that is not zero; ``position`` where there is none."""
        end = at = position
        while (at := self.file.data_from(at)) < self.size:
            data = np.flatnonzero(self.read(at, _LOOK_BYTES))
            end = at + int(data[-1]) + 1 if len(data) else end
            at += _LOOK_BYTES
        return end

    def write_into(self, buffer: Bytes, give_back: Callable[[Bytes], None]) -> None:
        """Collect writes in ``buffer`` (as long as the file) until they are committed; it is given back when full."""
        self._buffer, self._give_back, self._view = buffer, give_back, None

    @property
    def is_buffered(self) -> bool:
        """Whether writes are collected in a buffer first."""
        return self._buffer is not None

    @property
    def is_full(self) -> bool:
        """Whether nothing more goes in."""
        return self.wrote_position == self.size

    @property
    def is_available(self) -> bool:
        """Whether the file has not been asked to go."""
        return self._available

    @property
    def end_offset(self) -> int:
        """The offset behind the last byte that may be read."""
        return self.file_from_offset + self.committed_position

    def set_positions(self, position: int) -> None:
        """All three positions at once, as loading does."""
        self.flushed_position = position
        self.cut_to(position)

    def cut_to(self, position: int) -> None:
        """Go on from ``position``; what was not flushed in front of it still is not."""
        self.wrote_position = self.committed_position = position
        self.flushed_position = min(self.flushed_position, position)
        self.brought_in = 0

    def bring_in(self, length: int) -> None:
        """Have memory for the next ``length`` bytes and a page more, up to ``brought_in``: zeros are written there.

        Where a store into the mapping finds no page, Linux reads ahead: megabytes of a hole, in pages of the largest
        kind, which here cost nine times as much as the small ones that a write takes, and goes on so for ever. A load
        does the same: the page more is for kernels, which look a few bytes beyond the newest record. Raises
        DiskFullError.
        """
        if self.is_buffered:
            return
        end = min(self.wrote_position + length + PAGE_SIZE, self.size)
        while max(self.brought_in, self.wrote_position) < end:
            with self._memory_guard:
                at = max(self.brought_in, self.wrote_position)
                zeros = MEMORY_AHEAD[: min(len(MEMORY_AHEAD) - at % len(MEMORY_AHEAD), self.size - at)]
                self.file.write_at(at, zeros)
                self.brought_in = at + len(zeros)

    def bring_in_ahead(self, length: int) -> None:
        """As :meth:`bring_in`, meanwhile the writer may go on: what it brings in itself later is what is lacking.

        Records are only ever written in front of ``brought_in``, and zeros only behind it, where the writer has begun
        to bring in memory; before that, and once the file is closed, nothing happens. Thread rule: any thread.
        Raises DiskFullError.
        """
        while True:
            with self._memory_guard:
                at, end = self.brought_in, min(self.wrote_position + length + PAGE_SIZE, self.size)
                if self.is_buffered or self._file is None or not self.wrote_position < at < end:
                    return
                zeros = _FAR_AHEAD[: self.size - at]
                self._file.write_at(at, zeros)
                self.brought_in = at + len(zeros)

    def append_ahead(self, data: Bytes, length: int) -> None:
        """Write ``data`` behind the last byte, of which ``length`` bytes count; the others are zeros, as there.

        A write that fails leaves zeros: half of it may be whole records, which whoever opens the store would find.
        Raises DiskFullError, and SyncFailedError where not even zeros can be written.
        """
        begin = self.wrote_position
        ahead = data[: min(len(data), self.size - begin)]
        with self._memory_guard:
            brought_in, self.brought_in = self.brought_in, begin  # meanwhile nothing there counts as memory we have
            try:
                self.file.write_at(begin, ahead.data)
            except (StoreError, OSError):
                self._zero(begin, len(ahead))
                raise
            self.brought_in = max(brought_in, begin + len(ahead))
            self.advance(length)

    def _zero(self, position: int, length: int) -> None:
        try:
            self.file.zero(position, length)
        except (StoreError, OSError) as error:
            raise SyncFailedError(self.path, f"what was refused may be there: {error}") from error

    def append(self, data: bytes | memoryview) -> None:
        """Write behind the last byte; the caller has checked that there is room. Raises DiskFullError."""
        self.file.write_at(self.wrote_position, data)
        self.advance(len(data))

    def write(self, data: bytes) -> None:
        """Copy ``data`` behind the last byte, into the mapping or the write buffer; the caller has seen to room."""
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
        """Say that ``length`` bytes behind the last one are in place."""
        self.wrote_position += length
        if self._buffer is None:
            self.committed_position = self.wrote_position

    def commit(self, least_pages: int = 0) -> int:
        """Write what is only in the buffer to the file; returns the committed position. Raises DiskFullError."""
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
        """Make what stands behind the wrote position zeros; the next flush makes them durable."""
        self.file.zero(self.wrote_position, self.size - self.wrote_position)
        self._is_wiped = True

    def is_able_to_flush(self, least_pages: int) -> bool:
        """Whether a flush that asks for ``least_pages`` dirty pages has something to do."""
        flushed, ready = self.flushed_position, self.committed_position
        if self.is_full and flushed < ready:
            return True
        if least_pages > 0:
            return ready // PAGE_SIZE - flushed // PAGE_SIZE >= least_pages
        return ready > flushed

    def identity(self) -> Identity | None:
        """Which file is open; None where none is."""
        with self._guard:
            return self._file.identity() if self._file is not None else None

    def begin_flush(self) -> None:
        """Let the disk begin with what :meth:`flush` will wait for."""
        if (self._is_wiped or self.is_able_to_flush(0)) and self.hold():
            try:
                self.file.begin_sync()
            finally:
                self.release()

    def flush(self, least_pages: int = 0) -> int:
        """Make what is committed durable, unless the file is going away; returns the flushed position."""
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
        """A held view of bytes that were written, or None where they were not (selectMappedBuffer).

        They are in memory by now, unless the caller will :meth:`fetch` what it looks at. Raises DiskError.
        """
        if position < 0 or length < 0 or position + length > self.committed_position or not self.hold_to_read():
            return None
        try:
            view = self.read(position, length) if fetched else self.array[position : position + length]
        except BaseException:  # it could not be opened, not be mapped, or not be read
            self.release()
            raise
        return SelectMappedBufferResult(self.file_from_offset + position, view, length, self)

    def hold(self) -> bool:
        """Count one more user; False where the file is going away."""
        with self._guard:
            if self._available and self._references > 0:
                self._references += 1
                return True
            return False

    def hold_to_read(self) -> bool:
        """As :meth:`hold`; False too where the file is gone: a writer's retention waits for no other process."""
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
        """Count one user less; the last one closes the file."""
        with self._guard:
            self._references -= 1
            done = self._references <= 0
        if done:
            self._close()

    def shutdown(self, now_ms: int, interval_forcibly_ms: int) -> bool:
        """Ask the file to go (ReferenceResource.shutdown); True when nobody holds it any more.

        The first call forbids new holds. Later calls, once ``interval_forcibly_ms`` has passed since the first, drop
        the count by 1000, so that a leaked hold cannot keep the file for ever.
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
        """Close without a word about users: the store is closing, and views keep their mapping alive."""
        self._available = False
        self._close()

    def rest(self) -> None:
        """Give the descriptor back until the file is used again, unless it is mapped or something waits for a sync.

        Nobody else may be using the file.
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

    Release it, or use it as a context manager. The view stays readable after the release (its mapping lives as long
    as it does), but the file may be deleted from then on.
    """

    start_offset: int
    array: Bytes
    size: int
    _holder: MappedFile | None

    def release(self) -> None:
        """Give the hold back, once."""
        if self._holder is not None:
            self._holder.release()
            self._holder = None

    def __enter__(self) -> SelectMappedBufferResult:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release."""
        self.release()
