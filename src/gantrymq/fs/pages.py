"""Reads bytes, and pages of a mapping, from a disk with bad sectors.

A read that fails half way returns the bytes before the bad sector, so a short result is ambiguous: only the next read
distinguishes the end of the file from an error. A mapped page that cannot be read ends the process with SIGBUS, which
Python cannot catch. ``fetch`` therefore asks the kernel for the pages first (MADV_POPULATE_READ, Linux 5.14), which
reports an error instead of raising the signal. A page can be dropped from memory between that call and its use; the
signal then only comes if the disk fails within this moment.

Thread rule: any thread.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gantrymq.errors import DiskError
from gantrymq.fs.api import Bytes
from gantrymq.fs.descriptors import disable_read_ahead, map_zeros, named_errors, populate

PAGE_BYTES = mmap.PAGESIZE
_PROBE_BYTES = 1 << 20
_BLOCK_BYTES = 2 << 20  # the largest page size of the page cache


def read_at(fd: int, path: Path, position: int, length: int) -> bytes:
    """``length`` bytes from ``position``; fewer only at the end of the file. Raises DiskError with its position."""
    data = _read_some(fd, path, position, length)
    if len(data) == length or not data:
        return data
    parts = [data]
    position, length = position + len(data), length - len(data)
    while length and (data := _read_some(fd, path, position, length)):
        parts.append(data)
        position, length = position + len(data), length - len(data)
    return b"".join(parts)


def _read_some(fd: int, path: Path, position: int, length: int) -> bytes:
    with named_errors(path, position=position):
        return os.pread(fd, length, position)


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapped file: its bytes and their address."""

    mapped: mmap.mmap
    array: Bytes
    address: int
    size_bytes: int

    @classmethod
    def of(cls, mapped: mmap.mmap) -> Mapping:
        """Wrap a mapping. It lives as long as this object or a view of its array."""
        array = np.frombuffer(mapped, np.uint8)
        return cls(mapped, array, array.ctypes.data, len(array))


def replace_by_zeros(mapping: Mapping, position: int) -> bool:
    """Replace the page of this byte by zeros without reading it, in a private mapping; False if that is impossible."""
    return map_zeros(mapping.address + position - position % PAGE_BYTES, PAGE_BYTES)


def try_fetch(mapping: Mapping, position: int, length: int) -> bool:
    """Load these bytes into memory; False if any of them cannot be loaded."""
    begin, end = position - position % PAGE_BYTES, position + length
    return end <= mapping.size_bytes and populate(mapping.address + begin, end - begin) == 0


def fetch(mapping: Mapping, fd: Callable[[], int], path: Path, position: int, length: int) -> None:
    """Load ``length`` mapped bytes from ``position`` into memory.

    Raises DiskError with the position of the first page that the disk cannot read, or that is after the end of a file
    that another program truncated.
    """
    begin, end = position - position % PAGE_BYTES, min(position + length, mapping.size_bytes)
    if begin >= end or (failed := populate(mapping.address + begin, end - begin)) == 0:
        return
    if failed == errno.EINVAL:  # an older system: reading the file loads the same pages
        for at in range(begin, end, _PROBE_BYTES):
            _require_readable(fd(), path, at, min(_PROBE_BYTES, end - at))
        return
    _fetch_page_by_page(mapping, fd(), path, begin, end)


def _fetch_page_by_page(mapping: Mapping, fd: int, path: Path, begin: int, end: int) -> None:
    """Load each page alone: the system groups pages in blocks, and maps no page of a block with a bad one."""
    from_block = begin - begin % _BLOCK_BYTES
    length = min(end - end % _BLOCK_BYTES + _BLOCK_BYTES, mapping.size_bytes) - from_block
    disable_read_ahead(fd, mapping.address + from_block, from_block, length)
    for at in range(begin, end, PAGE_BYTES):
        wanted = min(PAGE_BYTES, end - at)
        if populate(mapping.address + at, wanted):
            _require_readable(fd, path, at, wanted)
            raise DiskError(path, "its page cannot be mapped", at)


def _require_readable(fd: int, path: Path, position: int, length: int) -> None:
    """Read a range of a file and drop it. Raises DiskError if the disk cannot read it or the file ends before it."""
    if (count := len(read_at(fd, path, position, length))) < length:
        raise DiskError(path, "the file was truncated while it was in use, and ends here", position + count)
