"""Finding the next record behind damage."""

from __future__ import annotations

import mmap

from gantrymq.format.record import MAGIC_V1, MAGIC_V2, PHY_OFFSET_AT, CheckCRC, Layout, check_record
from gantrymq.spark.log_run import LogPiece

_MAGICS = {magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2)}
_MAGIC_START = MAGIC_V1.to_bytes(4, "big")[:3]
_MAGIC_AT = 4


def next_record(piece: LogPiece, phy_offset: int) -> int:
    """Where the first record of ``piece`` from ``phy_offset`` on begins; the end of the piece where there is none.

    A record is believed where its parts add up, its body has the CRC it says and it says that it lies there.
    """
    with open(piece.path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        position, stop = phy_offset - piece.base, min(piece.stop - piece.base, len(mapped))
        while True:
            found = mapped.find(_MAGIC_START, position + _MAGIC_AT, stop)
            if found < 0:
                return piece.stop
            position = found - _MAGIC_AT
            if mapped[found : found + 4] in _MAGICS and _is_record(mapped, position, stop, piece.base + position):
                return piece.base + position
            position += 1


def _is_record(mapped: mmap.mmap, position: int, stop: int, phy_offset: int) -> bool:
    at = position + PHY_OFFSET_AT
    if mapped[at : at + 8] != phy_offset.to_bytes(8, "big"):
        return False
    with memoryview(mapped) as view:
        return isinstance(check_record(view, position, stop, CheckCRC.BODY), Layout)
