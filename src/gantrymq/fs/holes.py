"""Finds holes of files, so that they are not read: reading one makes Linux read ahead, often megabytes of zeros."""

from __future__ import annotations

from typing import Protocol

from gantrymq.fs.api import File

_PAGE_BYTES = 4096


class HasHoles(Protocol):
    """A file, or the source of a file's bytes, that knows its holes."""

    def data_from(self, position: int) -> int:
        """As :meth:`gantrymq.fs.api.File.data_from`."""
        ...


def data_end(file: HasHoles, begin: int, end: int) -> int:
    """The page at which the hole before ``end`` begins: ``begin`` if all is a hole, ``end`` if there is none."""
    low, high = begin // _PAGE_BYTES, -(-end // _PAGE_BYTES)  # no page from ``high`` on is known to be data
    if low < high and file.data_from(max((high - 1) * _PAGE_BYTES, begin)) < end:
        return end  # the usual case
    while low < high:
        middle = (low + high) // 2
        if file.data_from(max(middle * _PAGE_BYTES, begin)) < end:
            low = middle + 1
        else:
            high = middle
    return min(max(low * _PAGE_BYTES, begin), end)


def read_data(file: File, begin: int, length: int) -> bytes:
    """``length`` bytes from ``begin``. The hole after the last data is filled with zeros without a read."""
    data = file.read_at(begin, data_end(file, begin, begin + length) - begin)
    return data.ljust(length, b"\0")
