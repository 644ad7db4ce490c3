"""Reads the commit log of an open store forward, in batches of columns, over the mapped files.

Thread rule: a scanner belongs to one thread. It reads only bytes that were written before it reached them.
"""

from __future__ import annotations

from collections.abc import Iterator

from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import Bytes
from gantrymq.kernels.arrays import read_only
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.log.record_batch import RecordBatch, Scan
from gantrymq.store.log.record_chain import RecordChain, Window
from gantrymq.store.log.scan_ahead import ScanAhead, of_data

_WINDOW_BYTES = 8 << 20


class MappedSource:
    """The bytes of a mapped log file; a :class:`~gantrymq.store.log.record_chain.LogSource`. Raises DiskError.

    All windows have the same array, so that a kernel need not look up its address again.
    """

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.base, self.size = file.file_from_offset, file.size
        self.window_bytes = _WINDOW_BYTES
        self._buffer = read_only(file.array.data)

    def data_from(self, position: int) -> int:
        """As :meth:`gantrymq.fs.api.File.data_from`."""
        return self.file.file.data_from(position)

    def read(self, position: int, end: int, *, is_search: bool = False) -> Window:
        """Load the bytes into memory."""
        self.file.fetch(position, end - position)
        return Window(self._buffer, 0, end)

    def view(self, position: int, length: int) -> Bytes:
        """A part of the array, loaded into memory. Thread rule: any thread."""
        self.file.fetch(position, length)
        return self._buffer[position : position + length]


class LogScanner:
    """Scans ``log`` with ``scan`` from ``start`` to ``end`` (None: to the end of the files).

    ``ahead`` scans parts of a file in advance. It reads what was written when the scanner reached the file.

    Iterate over the batches. Afterwards ``offset`` is the end of the records and ``stop`` its reason: NONE at ``end``,
    BLANK if the last file ended with one. A batch is valid until two more were read. Raises DiskError.
    """

    def __init__(self, log: CommitLog, start: int, end: int | None, scan: Scan, ahead: ScanAhead | None = None) -> None:
        self.offset = start
        self.stop = StopReason.NONE
        self._log = log
        self._end = end
        self._scan = scan
        self._ahead = ahead
        self._source: MappedSource | None = None

    def aim(self, start: int, end: int | None) -> None:
        """Scan from ``start`` to ``end`` next. A caller that often reads a little can so reuse the scanner's memory."""
        self.offset, self._end, self.stop = start, end, StopReason.NONE

    def __iter__(self) -> Iterator[RecordBatch]:
        """Yield the batches. No batch is empty."""
        while self._end is None or self.offset < self._end:
            file = self._log.queue.find(self.offset)
            if file is None:
                self.stop = self.stop or StopReason.NO_BLANK
                return
            chain = self._chain_of(file)
            for batch in chain:
                self.offset = batch.end_offset
                yield batch
            self.stop = chain.stop
            if self.stop is not StopReason.BLANK:
                return
            following = self._log.roll_next_file(self.offset)
            if self._log.queue.find(following) is None:
                return
            self.offset, self.stop = following, StopReason.NONE

    def skip_file(self) -> bool:
        """After a stop: continue with the next file; False if there is none."""
        self.offset = self._log.roll_next_file(self.offset)
        self.stop = StopReason.NONE
        return self._log.queue.find(self.offset) is not None and (self._end is None or self.offset < self._end)

    def _chain_of(self, file: MappedFile) -> RecordChain:
        if self._source is None or self._source.file is not file:
            self._source = MappedSource(file)
        source, start, end = self._source, self.offset - file.file_from_offset, self._end
        stop_at = source.size if end is None else min(source.size, end - source.base)
        if self._ahead is not None:
            self._ahead.begin(of_data(source, source.view), source.base, start, stop_at)
        # A log that is read to its end usually ends in a hole.
        return RecordChain(source, self._scan, start, stop_at, self._ahead, cuts_holes=end is None)
