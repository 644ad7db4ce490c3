"""Finds records that a power cut has torn where no CRC covers them: in their topic or properties.

The CRC of a record covers only its body. A disk writes sectors of 512 bytes, and a sector that was not written reads as
zeros. A whole sector of zeros after a byte that is not zero, inside a topic or properties, was therefore not written.
No put writes such a sector (``gantrymq.store.log.appendable``): a property may contain zeros, but fewer in a row, and
not at its end. In a record that RocketMQ wrote, the CRC of the whole record decides, if there is one. Zeros that begin
within a sector do not come from a power cut. RocketMQ accepts them, so they are accepted here.
"""

from gantrymq.format.record import SECTOR
from gantrymq.kernels.arrays import Bytes, Int64s
from gantrymq.kernels.codes import CHECK_WHOLE_RECORD, POS, PROPERTIES_LENGTH, SIZE, TOPIC_AT
from gantrymq.kernels.jit import helper, kernel
from gantrymq.kernels.scan import is_crc_right


@helper
def _is_zero(buf: Bytes, start: int, stop: int) -> bool:
    while start < stop and buf[start] == 0:
        start += 1
    return start == stop


@helper
def is_torn(buf: Bytes, columns: Int64s, i: int) -> bool:
    """Whether record i is torn. Bytes after the end of ``buf`` count as zeros."""
    end = columns[POS, i] + columns[SIZE, i]
    if columns[PROPERTIES_LENGTH, i] == 0:
        end -= 2  # the last field is this length: two zero bytes that are valid
    at = -(-columns[TOPIC_AT, i] // SECTOR) * SECTOR
    while at < end:
        # Check the sector to its end: in a written sector the bytes after the record are there too.
        if buf[at] == 0 and buf[at - 1] != 0 and _is_zero(buf, at, min(at + SECTOR, buf.size)):
            return not is_crc_right(buf, columns, i, CHECK_WHOLE_RECORD)
        at += SECTOR
    return False


@kernel
def first_torn(buf: Bytes, columns: Int64s, n: int) -> int:
    """Return the index of the first torn record in ``columns[:, :n]``, or ``n`` if there is none.

    ``buf`` begins at a sector.
    """
    for i in range(n):
        if is_torn(buf, columns, i):
            return i
    return n
