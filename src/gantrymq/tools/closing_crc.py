"""Judging records by the CRC that closes them, of all their bytes, where enabledAppendPropCRC has written one.

Each record is asked, not the settings: they may have been others when it was written.

Thread rule: plain functions; a batch belongs to one thread.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.properties import CRC_PROPERTY_SIZE
from gantrymq.format.record import PHY_OFFSET_AT, encode_crc
from gantrymq.kernels import codes
from gantrymq.kernels.api import scan
from gantrymq.kernels.arrays import new_columns
from gantrymq.model.message import PROPERTY_CRC32
from gantrymq.store.log.record_batch import RecordBatch

_BEGIN = np.frombuffer(PROPERTY_CRC32.encode() + b"\x01", np.uint8)


def closes_with_crc(batch: RecordBatch) -> NDArray[np.bool_]:
    """Which records end in the bytes of such a CRC, be it their own or somebody's body."""
    columns = batch.columns[:, : batch.count]
    starts = columns[codes.POS] + columns[codes.SIZE] - CRC_PROPERTY_SIZE
    closes: NDArray[np.bool_] = batch.buffer[starts] == _BEGIN[0]  # mostly none does, and this is quick
    likely = np.flatnonzero(closes)
    if len(likely):
        closes[likely] = (batch.buffer[starts[likely, None] + np.arange(len(_BEGIN))] == _BEGIN).all(axis=1)
    return closes


def mark_by_closing_crc(batch: RecordBatch) -> None:
    """Mark in CRC_OK what is not what its closing CRC says; the records follow each other.

    One that says that it lies elsewhere is right where its CRC is that of either place: a bit of the place has flipped,
    or all of it was written for another one.
    """
    closes = closes_with_crc(batch)
    if not closes.any():
        return
    whole, begin, end = new_columns(batch.count), int(batch.columns[codes.POS, 0]), batch.end_offset - batch.base
    scan(batch.buffer, begin, end, end, codes.CHECK_MARK_WHOLE_RECORD, whole)
    whole = whole[:, : batch.count]
    wrong = closes & (whole[codes.PROPERTIES_LENGTH] >= CRC_PROPERTY_SIZE) & (whole[codes.CRC_OK] == 0)
    for row in np.flatnonzero(wrong).tolist():
        wrong[row] = not _is_right_here(batch, row)
    batch.columns[codes.CRC_OK, : batch.count][wrong] = 0


def _is_right_here(batch: RecordBatch, row: int) -> bool:
    """Whether the record is what its CRC says, but for where it says that it lies."""
    at, size = batch.columns[[codes.POS, codes.SIZE], row].tolist()
    raw = bytearray(batch.buffer[at : at + size])
    raw[PHY_OFFSET_AT : PHY_OFFSET_AT + 8] = (batch.base + at).to_bytes(8, "big")
    return encode_crc(bytes(raw[:-CRC_PROPERTY_SIZE])) == raw[-CRC_PROPERTY_SIZE:]
