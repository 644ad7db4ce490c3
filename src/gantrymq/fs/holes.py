"""Holes of files, which nobody should read: one look brings in as many zeros as Linux reads ahead, megabytes often."""

from __future__ import annotations

from gantrymq.fs.api import File

_PAGE_BYTES = 4096


def data_end(file: File, begin: int, end: int) -> int:
    """Where the hole begins that ``end`` lies in, to the page: ``begin`` if all is one, ``end`` if there is none."""
    low, high = begin // _PAGE_BYTES, -(-end // _PAGE_BYTES)  # from page ``high`` on nothing is known to be data
    if low < high and file.data_from(max((high - 1) * _PAGE_BYTES, begin)) < end:
        return end  # as mostly
    while low < high:
        middle = (low + high) // 2
        if file.data_from(max(middle * _PAGE_BYTES, begin)) < end:
            low = middle + 1
        else:
            high = middle
    return min(max(low * _PAGE_BYTES, begin), end)


def read_data(file: File, begin: int, length: int) -> bytes:
    """The bytes from ``begin`` on, of which those of the hole behind the last data are not read."""
    data = file.read_at(begin, data_end(file, begin, begin + length) - begin)
    return data.ljust(length, b"\0")
