"""Records that a power cut has torn where no CRC looks: in their topic or properties.

The CRC of a record covers its body alone. A disk writes sectors of 512 bytes; one that it did not get to write reads as
zeros. Neither a topic nor properties hold a zero byte, so a sector's part of them that is nothing but zeros, behind a
byte that is none, was never written. Zeros that begin within a sector are no power cut's work, and RocketMQ reads on
over them, so they are left to it.
"""

from __future__ import annotations

import numpy as np

from gantrymq.kernels import codes
from gantrymq.store.log_scanner import RecordBatch

_SECTOR = 512


def first_torn(batch: RecordBatch) -> int:
    """Which record of the batch is the first torn one; ``batch.count`` where none is."""
    columns, buffer = batch.columns[:, : batch.count], batch.buffer
    # Without properties their length, which is last then, is two zero bytes by right.
    ends = columns[codes.POS] + columns[codes.SIZE] - 2 * (columns[codes.PROPERTIES_LENGTH] == 0)
    borders = -(-columns[codes.TOPIC_AT] // _SECTOR) * _SECTOR
    first = batch.count
    while len(crossing := np.flatnonzero(borders < ends)):
        at = borders[crossing]
        for i in crossing[(buffer[at] == 0) & (buffer[at - 1] != 0)].tolist():
            if not buffer[borders[i] : min(borders[i] + _SECTOR, ends[i])].any():
                first = min(first, i)
                break
        borders += _SECTOR
    return first
