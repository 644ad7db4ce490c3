"""Calls ``cut.cut_bodies`` without NumPy, whose import takes longer than a client's first thousands of messages.

A kernel takes an array as an address and its lengths (``gantrymq.kernels.calls``). Here the arrays are ``bytes`` and
``array.array``. The GIL is held: a call takes some tens of microseconds, less than getting the GIL back may take.

Thread rule: any thread.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from gantrymq.errors import KernelsError
from gantrymq.format.record import MIN_RECORD_SIZE
from gantrymq.kernels import codes
from gantrymq.kernels.codes import N_COLUMNS, N_CUTS, RESULT_WORDS
from gantrymq.kernels.loader import library

_NAME, _SYMBOL = "cut.cut_bodies", "gantrymq_{}_cut_cut_bodies"
_KINDS = "(('B', 1), 'i', ('l', 2), ('B', 1), ('l', 2))"
_MAX_RECORDS = 512  # of a call
_ROOM_BYTES = 128 * 1024  # for records without bodies; one has at most 65.7 KB
_WORDS = 11


# Private objects: the attributes of these names are shared by all users of ctypes.
_address_of = ctypes.pythonapi["PyBytes_AsString"]
_address_of.restype, _address_of.argtypes = ctypes.c_size_t, (ctypes.py_object,)
_new_bytes = ctypes.pythonapi["PyBytes_FromStringAndSize"]  # uninitialised, to be written before anything reads it
_new_bytes.restype, _new_bytes.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t)


class Cuts(NamedTuple):
    """Consecutive records of a buffer: ``record_count`` of them, and why they end at ``stop_position``.

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

    def bounds(self) -> Iterator[tuple[int, int, int, int]]:
        """Where each body begins and ends, where the record without it ends in ``heads``, and its queue offset."""
        rows = (codes.CUT_BODY_AT, codes.CUT_BODY_END, codes.CUT_END, codes.CUT_QUEUE_OFFSET)
        return zip(*map(self._row, rows), strict=True)

    @property
    def sizes_bytes(self) -> list[int]:
        """The size of each record."""
        return self._row(codes.CUT_SIZE)

    @property
    def sys_flags(self) -> list[int]:
        """The flags of each record."""
        return self._row(codes.CUT_SYS_FLAG)

    @property
    def phy_offsets(self) -> list[int]:
        """The physical offset of each record."""
        return self._row(codes.CUT_PHY_OFFSET)

    @property
    def are_whole(self) -> list[int]:
        """1 for each record whose body has its CRC, else 0."""
        return self._row(codes.CUT_CRC_OK)

    def _row(self, code: int) -> list[int]:
        begin = code * (len(self.table) // N_CUTS)
        return self.table[begin : begin + self.record_count].tolist()


@lru_cache(maxsize=1)
def _code() -> Any:
    opened = library()
    address, _, kinds = opened.entry(_NAME, _SYMBOL.format(opened.variant.name))
    if kinds != _KINDS:
        raise KernelsError(f"kernel {_NAME} takes {kinds}, not {_KINDS}")
    return ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(address)


def cut_bodies(records: bytes, start: int) -> Cuts:
    """Separate the bodies of the next records from ``start`` on.

    Raises KernelsError if there is no library of kernels.
    """
    code, left = _code(), len(records) - start
    max_records = min(left // MIN_RECORD_SIZE + 1, _MAX_RECORDS)  # room for 512 would cost more than a few records
    heads: bytes = _new_bytes(None, max(min(left, _ROOM_BYTES), 1))
    table, columns = array("q", bytes(8 * N_CUTS * max_records)), array("q", bytes(8 * N_COLUMNS))
    words = array("q", bytes(8 * (_WORDS + RESULT_WORDS)))
    words[0], words[1], words[2] = _address_of(records), len(records), start
    words[3], words[4], words[5] = columns.buffer_info()[0], N_COLUMNS, 1
    words[6], words[7] = _address_of(heads), len(heads)
    words[8], words[9], words[10] = table.buffer_info()[0], N_CUTS, max_records
    code(words.buffer_info()[0])
    return Cuts(words[11], words[12], words[13], heads, table)
