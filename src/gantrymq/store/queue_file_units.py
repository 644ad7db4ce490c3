"""How far the units of one consume queue file can be true."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.fs.api import Bytes
from gantrymq.fs.holes import read_data
from gantrymq.kernels import api as kernels
from gantrymq.kernels.arrays import read_only
from gantrymq.model.java import LONG_MAX
from gantrymq.store.mapped_file import MappedFile

_PAGE_BYTES = 4096
_RECOVER_CHUNK = 6_400 * UNIT_SIZE  # below 128 KB memory is used again, where that of more is new each time


def rising_units(file: MappedFile, limit: int) -> int:
    """How many units from the first on point to rising places in front of ``limit``, or are pre-blanks."""
    count, highest = 0, -1
    for units in _chunks(file):
        length, highest = kernels.rising_units(units, 0, len(units), highest, limit)
        count += length // UNIT_SIZE
        if length < len(units):
            break
    return count


def valid_units(file: MappedFile, log_limit: int) -> int:
    """How many units from the first on can be true: Java takes those for written that are not negative or empty."""
    count = 0
    for units in _chunks(file):
        length = kernels.valid_units(units, 0, len(units), log_limit)
        count += length // UNIT_SIZE
        if length < len(units):
            break
    return count


def units_behind(files: Sequence[MappedFile], end: int) -> int:
    """How many units follow ``end``, an offset in the address space of ``files``, wherever they point."""
    count = 0
    for file in files:
        begin = max(end - file.file_from_offset, 0)
        if begin < file.size:
            written = valid_units(file, LONG_MAX) * UNIT_SIZE
            count += max(written - begin, 0) // UNIT_SIZE
            if written < file.size:
                break
    return count


def is_written_behind(files: Sequence[MappedFile], end: int) -> bool:
    """Whether anything but zeros follows ``end``, an offset in the address space of ``files``.

    Holes are not read, and no file is mapped: a mapped one would stay open, of each queue.
    """
    for file in files:
        at = max(end - file.file_from_offset, 0)
        while at < file.size and (at := file.file.data_from(at)) < file.size:
            behind = min(at - at % _PAGE_BYTES + _PAGE_BYTES, file.size)
            raw = file.file.read_at(at, behind - at)
            if raw != bytes(len(raw)):  # any() of a page takes 40 us, of each queue
                return True
            at = behind
    return False


def _chunks(file: MappedFile) -> Iterator[Bytes]:
    """The file's units, some thousands at a time."""
    for position in range(0, file.size, _RECOVER_CHUNK):
        yield read_only(read_data(file.file, position, min(_RECOVER_CHUNK, file.size - position)))
