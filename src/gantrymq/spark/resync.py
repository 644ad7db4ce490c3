"""Finding the next record behind damage."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager

from gantrymq.format.record import MAGIC_V1, MAGIC_V2, PHY_OFFSET_AT, CheckCRC, Layout, check_record
from gantrymq.spark.log_file import LogFile
from gantrymq.spark.log_run import LogPiece

_MAGICS = {magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2)}
_MAGIC_START = MAGIC_V1.to_bytes(4, "big")[:3]
_MAGIC_AT = 4
_Data = mmap.mmap | bytearray


def next_record(piece: LogPiece, phy_offset: int) -> int:
    """Where the first record of ``piece`` from ``phy_offset`` on begins; the end of the piece where there is none.

    A record is believed where its parts add up, its body has the CRC it says and it says that it lies there.
    """
    with _bytes_of(piece) as data:
        position, stop = phy_offset - piece.base, min(piece.stop - piece.base, len(data))
        while True:
            found = data.find(_MAGIC_START, position + _MAGIC_AT, stop)
            if found < 0:
                return piece.stop
            position = found - _MAGIC_AT
            if bytes(data[found : found + 4]) in _MAGICS and _is_record(data, position, stop, piece.base + position):
                return piece.base + position
            position += 1


@contextmanager
def _bytes_of(piece: LogPiece) -> Iterator[_Data]:
    """The file: a mapping, or what another file system gives as a whole. It happens where a file is damaged only."""
    if piece.place.uri is None:
        with open(piece.place.path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield mapped
        return
    with LogFile(piece.place) as remote:
        data = bytearray(piece.stop - piece.base)
        remote.read_into(memoryview(data), 0)
        yield data


def _is_record(data: _Data, position: int, stop: int, phy_offset: int) -> bool:
    at = position + PHY_OFFSET_AT
    if data[at : at + 8] != phy_offset.to_bytes(8, "big"):
        return False
    with memoryview(data) as view:
        return isinstance(check_record(view, position, stop, CheckCRC.BODY), Layout)
