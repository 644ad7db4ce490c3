"""Calls the kernels of ``cut`` without NumPy, whose import takes longer than a client's first thousands of messages.

A kernel takes an array as an address and its lengths (``gantrymq.kernels.calls``). Here the arrays are ``bytes`` and
``array.array``. The GIL is held: a call takes some tens of microseconds, less than getting the GIL back may take.

Thread rule: any thread.
"""

from __future__ import annotations

import ctypes
from array import array
from functools import cache
from typing import Any, NamedTuple

from gantrymq.errors import KernelsError
from gantrymq.format.record import MIN_RECORD_SIZE
from gantrymq.kernels import codes
from gantrymq.kernels.codes import N_COLUMNS, N_CUTS, RESULT_WORDS
from gantrymq.kernels.loader import library

_BYTES, _LONG, _LONGS = ("B", 1), "i", ("l", 2)
_MAX_RECORDS = 512  # of a call
_ROOM_BYTES = 128 * 1024  # for records without bodies; one has at most 65.7 KB

# Private objects: the attributes of these names are shared by all users of ctypes.
_address_of = ctypes.pythonapi["PyBytes_AsString"]
_address_of.restype, _address_of.argtypes = ctypes.c_size_t, (ctypes.py_object,)
_new_bytes = ctypes.pythonapi["PyBytes_FromStringAndSize"]  # uninitialised, to be written before anything reads it
_new_bytes.restype, _new_bytes.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t)


class Cuts(NamedTuple):
    """Consecutive records: ``record_count`` of them, and why they end at ``stop_position``.

    ``heads`` has the records without their bodies, one after the other; ``table`` a row for each CUT code.
    """

    record_count: int
    stop_code: int
    stop_position: int
    heads: bytes
    table: array[int]

    @property
    def is_full(self) -> bool:
        """Whether more records may follow."""
        return self.stop_code == codes.STOP_FULL

    def bounds(self) -> tuple[list[int], list[int], list[int], list[int]]:
        """Where each body begins and ends, where the record without it ends in ``heads``, and its queue offset."""
        row = self._row
        return row(codes.CUT_BODY_AT), row(codes.CUT_BODY_END), row(codes.CUT_END), row(codes.CUT_QUEUE_OFFSET)

    @property
    def sys_flags(self) -> list[int]:
        """The flags of each record."""
        return self._row(codes.CUT_SYS_FLAG)

    @property
    def are_whole(self) -> list[int]:
        """1 for each record whose body has its CRC, else 0."""
        return self._row(codes.CUT_CRC_OK)

    def _row(self, code: int) -> list[int]:
        begin = code * (len(self.table) // N_CUTS)
        return self.table[begin : begin + self.record_count].tolist()


def cut_bodies(records: bytes, start: int) -> Cuts:
    """Separate the bodies of the next records from ``start`` on.

    Raises KernelsError if there is no library of kernels.
    """
    left = len(records) - start
    max_records = min(left // MIN_RECORD_SIZE + 1, _MAX_RECORDS)  # room for 512 would cost more than a few records
    heads: bytes = _new_bytes(None, max(min(left, _ROOM_BYTES), 1))
    code = _code("cut_bodies", (_BYTES, _LONG, _LONGS, _BYTES, _LONGS))
    return _cut(code, (_address_of(records), len(records), start), heads, max_records)


def cut_each(
    address: int, length: int, begin: int, end: int, offsets: list[int], sizes: list[int]
) -> tuple[bytes, Cuts]:
    """Copy the records with these physical offsets and sizes, and separate the bodies of the copies.

    ``length`` bytes from ``address`` on are the log from the offset ``begin`` on; nothing from ``end`` on is read.
    Returns the copies of the first records that are there, one after the other, with their cuts. Sizes must add up to
    what fits in memory; offsets and sizes need not be right.

    Raises KernelsError if there is no library of kernels.
    """
    wanted, room_bytes = array("q", offsets + sizes), max(sum(sizes), 1)
    run: bytes = _new_bytes(None, room_bytes)
    heads: bytes = _new_bytes(None, room_bytes)
    code = _code("cut_each", (_BYTES, _LONG, _LONG, _LONGS, _BYTES, _LONGS, _BYTES, _LONGS))
    words = (address, length, begin, end, wanted.buffer_info()[0], 2, len(offsets), _address_of(run), room_bytes)
    return run, _cut(code, words, heads, len(offsets))


def _cut(code: Any, first_words: tuple[int, ...], heads: bytes, max_records: int) -> Cuts:
    """Call a kernel whose last arguments are a column matrix for one record, ``heads`` and a new table."""
    columns, table = array("q", bytes(8 * N_COLUMNS)), array("q", bytes(8 * N_CUTS * max_records))
    given = (
        *first_words,
        *(columns.buffer_info()[0], N_COLUMNS, 1),
        *(_address_of(heads), len(heads)),
        *(table.buffer_info()[0], N_CUTS, max_records),
    )
    words = array("q", given)
    words.frombytes(bytes(8 * RESULT_WORDS))
    code(words.buffer_info()[0])
    count, stop_code, stop_position = words[len(given) : len(given) + 3]
    return Cuts(count, stop_code, stop_position, heads, table)


@cache
def _code(name: str, kinds: tuple[object, ...]) -> Any:
    opened = library()
    address, _, compiled = opened.entry(f"cut.{name}", f"gantrymq_{opened.variant.name}_cut_{name}")
    if compiled != repr(kinds):
        raise KernelsError(f"kernel cut.{name} takes {compiled}, not {kinds}")
    return ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(address)
