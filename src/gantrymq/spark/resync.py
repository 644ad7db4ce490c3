"""Finding the next record behind damage."""

from __future__ import annotations

from gantrymq.format.record import MAGIC_V1, MAGIC_V2, PHY_OFFSET_AT, CheckCRC, Layout, check_record
from gantrymq.spark.log_file import LogFile
from gantrymq.spark.log_run import LogPiece

_MAGICS = {magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2)}
_MAGIC_START = MAGIC_V1.to_bytes(4, "big")[:3]
_MAGIC_AT = 4
_HEAD_BYTES = PHY_OFFSET_AT + 8
_WINDOW_BYTES = 4 << 20


def next_record(piece: LogPiece, phy_offset: int) -> int:
    """Where the first record of ``piece`` from ``phy_offset`` on begins; the end of the piece where there is none.

    A record is valid where its parts add up, its body has the CRC it says and it says that it lies there. Bad sectors
    are passed over, and hold no record. Raises StoreError where the file cannot be opened.
    """
    position, stop = phy_offset - piece.base, piece.stop - piece.base
    with LogFile(piece.place) as file:
        while position < stop:
            window = file.read_readable(position, min(_WINDOW_BYTES, stop - position))
            found = window.find(_MAGIC_START, _MAGIC_AT)
            while found >= 0:
                at = position + found - _MAGIC_AT
                is_magic = bytes(window[found : found + 4]) in _MAGICS or found + 4 > len(window)
                if is_magic and _is_record(file, at, stop, piece.base + at):
                    return piece.base + at
                found = window.find(_MAGIC_START, found + 1)
            if len(window) < min(_WINDOW_BYTES, stop - position):
                break
            # The next window begins with what may be the first bytes of a record.
            position += max(len(window) - _HEAD_BYTES, 1) if position + len(window) < stop else len(window)
    return piece.stop


def _is_record(file: LogFile, position: int, stop: int, phy_offset: int) -> bool:
    head = file.read_readable(position, min(_HEAD_BYTES, stop - position))
    if head[PHY_OFFSET_AT:] != phy_offset.to_bytes(8, "big"):
        return False
    size = int.from_bytes(head[:4], "big")
    if not _HEAD_BYTES < size <= stop - position:
        return False
    record = file.read_readable(position, size)
    with memoryview(record) as view:
        return isinstance(check_record(view, 0, len(record), CheckCRC.BODY), Layout)
