"""The column ``body``: bytes as stored, or decompressed as the record's sysFlag says.

Source: MessageDecoder.decode, Compressor and CompressionType of RocketMQ 5.5.0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from gantrymq.errors import CorruptRecordError
from gantrymq.format.packed_body import UNPACKERS
from gantrymq.kernels import codes
from gantrymq.kernels.api import gather
from gantrymq.model import flags
from gantrymq.tools.buffers import byte_buffer, offset_buffer
from gantrymq.tools.log_batch import LogBatch

_MOST_BYTES = 0x7FFFFFFF  # Arrow's offsets of 32 bits, and a JVM's arrays


def body_column(batch: LogBatch, *, decompress: bool) -> pa.Array:
    """The bodies of ``batch``; raises CorruptRecordError where one cannot be decompressed."""
    compressed = batch.row(codes.SYS_FLAG) & flags.COMPRESSED != 0
    if not decompress or not compressed.any():
        return _gathered(batch)
    unpacked = [_decompressed(batch, int(row)) for row in np.flatnonzero(compressed)]
    lengths = np.array(batch.row(codes.BODY_LENGTH))
    lengths[compressed] = [len(body) for body in unpacked]
    ends = np.cumsum(lengths)
    if int(ends[-1]) > _MOST_BYTES:
        raise CorruptRecordError(batch.path, _offset(batch, 0), "bodies of over 2 GiB in one batch, decompressed")
    values, offsets = byte_buffer(int(ends[-1])), offset_buffer(batch.count)
    offsets.array[0] = 0
    offsets.array[1:] = ends
    _fill(batch, compressed, unpacked, values.array, offsets.array)
    return pa.Array.from_buffers(pa.binary(), batch.count, [None, offsets.arrow, values.arrow])


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


def _decompressed(batch: LogBatch, row: int) -> bytes:
    at, length = int(batch.row(codes.BODY_AT)[row]), int(batch.row(codes.BODY_LENGTH)[row])
    kind = int(batch.row(codes.SYS_FLAG)[row]) & flags.COMPRESSION_MASK
    unpack = UNPACKERS.get(kind)
    if unpack is None:
        raise CorruptRecordError(batch.path, _offset(batch, row), f"compression type {kind >> 8} is not known")
    try:
        return unpack(batch.buffer[at : at + length].tobytes())
    except Exception as error:
        reason = f"its body cannot be decompressed ({error}); decompress=false gives it as it is stored"
        raise CorruptRecordError(batch.path, _offset(batch, row), reason) from error
