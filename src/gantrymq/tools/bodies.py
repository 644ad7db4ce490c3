"""The column ``body``: bytes as stored, or decompressed as the record's sysFlag says.

Decompressed, a batch's bodies may have a thousand times its bytes, and nobody knows before. So it is given in parts, as
they are made.

Source: MessageDecoder.decode, Compressor and CompressionType of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gantrymq.errors import CorruptRecordError
from gantrymq.format.packed_body import decompress as decompress_body
from gantrymq.kernels import codes
from gantrymq.kernels.api import gather
from gantrymq.model import flags
from gantrymq.tools.buffers import byte_buffer, offset_buffer
from gantrymq.tools.log_batch import LogBatch

_MOST_BYTES = 0x7FFFFFFF  # Arrow's offsets of 32 bits, and a JVM's arrays
_PART_BYTES = 64 << 20  # of decompressed bodies; those that are stored as they are have no more than a batch

Refuse = Callable[[CorruptRecordError], None]


def with_bodies(
    batch: LogBatch, refuse: Refuse, *, decompress: bool, limit: int
) -> Iterator[tuple[LogBatch, pa.Array]]:
    """``batch`` in parts, each with its bodies. Records whose body cannot be decompressed are told, and in no part.

    So are those whose body has more than ``limit`` bytes when decompressed.
    """
    compressed = batch.row(codes.SYS_FLAG) & flags.COMPRESSED != 0
    if not decompress or not compressed.any():
        yield batch, _gathered(batch)
        return
    unpacked: list[bytes] = []
    begin, unpacked_bytes, whole = 0, 0, np.ones(batch.count, np.bool_)
    for row in np.flatnonzero(compressed).tolist():
        try:
            body = _decompressed(batch, row, limit)
        except CorruptRecordError as error:
            refuse(error)
            whole[row] = False
            continue
        if unpacked and unpacked_bytes + len(body) > _PART_BYTES:
            yield _part(batch, whole, begin, row, unpacked)
            begin, unpacked_bytes, unpacked = row, 0, []
        unpacked_bytes += len(body)
        unpacked.append(body)
    if whole[begin:].any():
        yield _part(batch, whole, begin, batch.count, unpacked)


def _part(
    batch: LogBatch, whole: NDArray[np.bool_], begin: int, end: int, unpacked: list[bytes]
) -> tuple[LogBatch, pa.Array]:
    rows = np.arange(batch.count)
    part = batch.take(whole & (rows >= begin) & (rows < end))
    compressed = part.row(codes.SYS_FLAG) & flags.COMPRESSED != 0
    lengths = np.array(part.row(codes.BODY_LENGTH))
    lengths[compressed] = [len(body) for body in unpacked]
    ends = np.cumsum(lengths)
    values, offsets = byte_buffer(int(ends[-1])), offset_buffer(part.count)
    offsets.array[0] = 0
    offsets.array[1:] = ends
    _fill(part, compressed, unpacked, values.array, offsets.array)
    return part, pa.Array.from_buffers(pa.binary(), part.count, [None, offsets.arrow, values.arrow])


def _gathered(batch: LogBatch) -> pa.Array:
    at, length = batch.row(codes.BODY_AT), batch.row(codes.BODY_LENGTH)
    values, offsets = byte_buffer(int(length.sum())), offset_buffer(batch.count)
    gather(batch.buffer, at, length, 0, batch.count, values.array, offsets.array)
    return pa.Array.from_buffers(pa.binary(), batch.count, [None, offsets.arrow, values.arrow])


def _fill(batch: LogBatch, compressed: Any, unpacked: list[bytes], values: Any, offsets: Any) -> None:
    """Copy bodies to their places: runs of stored ones by the kernel, decompressed ones one by one."""
    at, length = batch.row(codes.BODY_AT), batch.row(codes.BODY_LENGTH)
    scratch = np.empty(batch.count + 1, np.int32)
    row = 0
    for here, body in zip([*np.flatnonzero(compressed).tolist(), batch.count], [*unpacked, b""], strict=True):
        gather(batch.buffer, at, length, row, here, values[offsets[row] : offsets[here]], scratch)
        if here < batch.count:
            values[offsets[here] : offsets[here + 1]] = np.frombuffer(body, np.uint8)
        row = here + 1


def _offset(batch: LogBatch, row: int) -> int:
    return int(batch.row(codes.PHY_OFFSET)[row])


def _decompressed(batch: LogBatch, row: int, limit: int) -> bytes:
    at, length = int(batch.row(codes.BODY_AT)[row]), int(batch.row(codes.BODY_LENGTH)[row])
    room = _MOST_BYTES - len(batch.buffer)  # the rest is for the stored ones of its part
    try:
        body = batch.buffer[at : at + length].tobytes()
        return decompress_body(body, int(batch.row(codes.SYS_FLAG)[row]), min(limit, room))
    except ValueError as error:
        reason = f"{error}; decompress=false gives it as it is stored"
        raise CorruptRecordError(batch.path, _offset(batch, row), reason) from error
