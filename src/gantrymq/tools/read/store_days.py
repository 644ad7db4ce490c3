"""The UTC day of each record of a log, by its physical offset, from the heads of few records.

The obvious way reads the store time of every record, which is a read of the log for each message. But records are in
the order of their storing, so the log consists of a stretch for each day. :class:`StoreDays` reads the heads of records
that are spread over the log, and narrows down each border between two days by bisection.

A clock that was set back makes days return. Each return that lies between two of the spread records is found; a shorter
one is not. Up to ``SPREAD_RECORDS`` messages every head is read, so that the days are exact.

Thread rule: one thread, and no other may use the log.

Source: MessageExtEncoder, the head of a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import StoreError
from gantrymq.format.record import BLANK_SIZE, HEAD_SIZE, MAGIC_BLANK, read_head
from gantrymq.kernels.arrays import Int64s
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.mapped_file import MappedFile

SPREAD_RECORDS = 1 << 15
DAY_MS = 86_400_000
_UNKNOWN_MS = -1


class StoreDays:
    """The days of a log's records. Days are numbers since 1970.

    *Invariant*: ``phy_offsets`` rise; ``times_ms`` has the store time of the record at each of them.
    """

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._held: MappedFile | None = None
        self.phy_offsets: Int64s = np.empty(0, np.int64)
        self.times_ms: Int64s = np.empty(0, np.int64)
        self.unreadable: list[int] = []  # physical offsets of messages whose record has no readable head
        self.empty: list[tuple[int, int]] = []  # ranges of log files without any record
        self._borders: tuple[Int64s, Int64s, Int64s] | None = None

    def read_files(self) -> None:
        """Read the first record of each log file. Files that begin with a blank have no records."""
        phy_offsets, times = [], []
        for file in self._log.queue.files:
            raw = self._read(file.file_from_offset)
            if (head := read_head(raw)) is not None and head.phy_offset == file.file_from_offset:
                phy_offsets.append(head.phy_offset)
                times.append(head.store_timestamp_ms)
            elif len(raw) >= BLANK_SIZE and int.from_bytes(raw[4:8]) == MAGIC_BLANK:
                self.empty.append((file.file_from_offset, file.file_from_offset + file.size))
        self._close()
        self._add(np.array(phy_offsets, np.int64), np.array(times, np.int64))

    def read_spread(self, phy_offsets: Iterable[int], told: Callable[[int], None] = lambda done: None) -> None:
        """Read the heads of the records at ``phy_offsets``; calls ``told`` with the number that are read."""
        wanted = np.setdiff1d(np.fromiter(phy_offsets, np.int64), self.phy_offsets)
        for begin in range(0, len(wanted), 512):
            self._learn(wanted[begin : begin + 512])
            told(min(begin + 512, len(wanted)))

    def days_of(self, phy_offsets: Int64s) -> Int64s:
        """The days of the records at ``phy_offsets`` (rising)."""
        if not len(phy_offsets):
            return phy_offsets
        begins, ends, days = self._stretches()
        first = int(np.searchsorted(ends, phy_offsets[0]))
        if first < len(ends) and begins[first] <= phy_offsets[0] and phy_offsets[-1] <= ends[first]:
            return np.full(len(phy_offsets), days[first], np.int64)  # the usual case
        while True:
            begins, ends, days = self._stretches()
            number = np.searchsorted(ends, phy_offsets)
            inside = number < len(ends)
            inside[inside] &= begins[number[inside]] <= phy_offsets[inside]
            if inside.all():
                return days[number]
            self._narrow(phy_offsets[~inside], number[~inside])

    def _narrow(self, phy_offsets: Int64s, gaps: Int64s) -> None:
        """Read the record in the middle of each gap, or those at the edges of a gap before or after all stretches."""
        count = len(self._stretches()[1])
        starts = np.flatnonzero(np.diff(gaps, prepend=-1))
        stops = np.append(starts[1:], len(gaps))
        rows = (starts + stops) // 2
        outer = (gaps[starts] == 0) | (gaps[starts] == count)
        self._learn(phy_offsets[np.unique(np.concatenate([rows, starts[outer], stops[outer] - 1]))])

    def _stretches(self) -> tuple[Int64s, Int64s, Int64s]:
        """The first and the last known physical offset of each run of one day, and the day."""
        if self._borders is None:
            days = self.times_ms // DAY_MS
            cuts = np.flatnonzero(np.diff(days)) + 1
            begins = np.concatenate([np.zeros(min(len(days), 1), np.int64), cuts])
            ends = np.append(cuts, len(days))[: len(begins)] - 1
            self._borders = self.phy_offsets[begins], self.phy_offsets[ends], days[begins]
        return self._borders

    def _learn(self, phy_offsets: Int64s) -> None:
        times = np.fromiter(map(self._time_at, phy_offsets.tolist()), np.int64, len(phy_offsets))
        self._close()
        lost = times == _UNKNOWN_MS
        if lost.any():
            self.unreadable += phy_offsets[lost].tolist()
            times[lost] = self._times_near(phy_offsets, times, lost)
        self._add(phy_offsets, times)

    def _times_near(self, phy_offsets: Int64s, times: Int64s, lost: NDArray[np.bool_]) -> Int64s:
        """The times of the nearest records that are known, for those that have no readable head."""
        known = np.concatenate([self.phy_offsets, phy_offsets[~lost]])
        if not len(known):
            return np.zeros(int(lost.sum()), np.int64)
        order = np.argsort(known)
        known_times = np.concatenate([self.times_ms, times[~lost]])[order]
        at = np.searchsorted(known[order], phy_offsets[lost]) - 1
        near: Int64s = known_times[np.maximum(at, 0)]
        return near

    def _add(self, phy_offsets: Int64s, times: Int64s) -> None:
        order = np.argsort(phy_offsets)
        at = np.searchsorted(self.phy_offsets, phy_offsets[order])
        self.phy_offsets = np.insert(self.phy_offsets, at, phy_offsets[order])
        self.times_ms = np.insert(self.times_ms, at, times[order])
        self._borders = None

    def _time_at(self, phy_offset: int) -> int:
        head = read_head(self._read(phy_offset))
        return head.store_timestamp_ms if head is not None and head.phy_offset == phy_offset else _UNKNOWN_MS

    def _read(self, phy_offset: int) -> bytes:
        """The first bytes at a physical offset; b"" if they cannot be read. At most one file of the log is open."""
        file = self._log.queue.find(phy_offset)
        if file is not self._held:
            self._close()
            self._held = file
        try:
            if file is None or not file.hold_to_read():
                return b""
        except StoreError:
            return b""
        try:
            at = phy_offset - file.file_from_offset
            return b"" if file.file.lost_in(at, HEAD_SIZE) else file.file.read_at(at, min(HEAD_SIZE, file.size - at))
        except (OSError, StoreError):
            return b""
        finally:
            file.release()

    def _close(self) -> None:
        if self._held is not None:
            self._held.close_if_idle()
            self._held = None
