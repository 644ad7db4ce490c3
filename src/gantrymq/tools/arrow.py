"""Records of the commit log as Arrow record batches. A kernel call fills each column; Python touches no row.

Kernels write directly into memory of Arrow's pool, which reuses the pages of earlier batches. Fresh pages from the
operating system would cost as much as filling them. Arrays are made from their buffers, because ``pa.array`` and
``pa.scalar`` import pandas, which takes a quarter of a second in each new process.

Texts are always well-formed UTF-8: malformed bytes become U+FFFD, as in Java. The bodies of a batch may decompress to a
thousand times its size, so a batch is returned in parts.

Thread rule: a batch belongs to one thread.

Source: MessageDecoder.decode, Compressor and CompressionType.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gantrymq.errors import CorruptRecordError
from gantrymq.format.packed_body import decompress as decompress_body
from gantrymq.kernels import codes
from gantrymq.kernels.api import find_property, gather, gather_text, hosts_text, message_ids, properties_map, split_keys
from gantrymq.kernels.arrays import Bytes, Int64s, new_scratch, read_only
from gantrymq.model import flags
from gantrymq.model.message import PROPERTY_KEYS, PROPERTY_TAGS
from gantrymq.model.size import MAX_DECOMPRESSED_BODY_SIZE

_MAX_BYTES = 0x7FFFFFFF  # limit of Arrow's 32-bit offsets and of a JVM's arrays
_PART_BYTES = 64 << 20  # bytes of decompressed bodies in a part
_TIMESTAMP = pa.timestamp("us", tz="UTC")
MESSAGE_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("broker", pa.string()),
        pa.field("queue_id", pa.int32(), nullable=False),
        pa.field("queue_offset", pa.int64(), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
        pa.field("tags", pa.string()),
        pa.field("keys", pa.list_(pa.field("element", pa.string())), nullable=False),
        pa.field("properties", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("msg_id", pa.string(), nullable=False),
        pa.field("born_timestamp", _TIMESTAMP),
        pa.field("store_timestamp", _TIMESTAMP),
        pa.field("born_host", pa.string(), nullable=False),
        pa.field("store_host", pa.string(), nullable=False),
        pa.field("flag", pa.int32(), nullable=False),
        pa.field("sys_flag", pa.int32(), nullable=False),
        pa.field("reconsume_times", pa.int32(), nullable=False),
        pa.field("phy_offset", pa.int64(), nullable=False),
        pa.field("size", pa.int32(), nullable=False),
        pa.field("body_crc", pa.int32(), nullable=False),
    ]
)
_US_A_MS = 1000
_MAX_MS = (1 << 63) // _US_A_MS - 1
_MAX_REPAIRED = 3  # one malformed byte becomes three bytes of U+FFFD
_MAX_ASCII = 0x7F
_MESSAGE_ID_TEXT = 56
_NAMES = {name: read_only(name.encode()) for name in (PROPERTY_TAGS, PROPERTY_KEYS)}
_NUMBERS = {
    "queue_id": codes.QUEUE_ID,
    "queue_offset": codes.QUEUE_OFFSET,
    "flag": codes.FLAG,
    "sys_flag": codes.SYS_FLAG,
    "reconsume_times": codes.RECONSUME_TIMES,
    "phy_offset": codes.PHY_OFFSET,
    "size": codes.SIZE,
    "body_crc": codes.BODY_CRC,
}


class ValueBuffer:
    """A buffer of at least ``size`` elements of ``dtype``.

    ``array`` is its writable numpy view, ``arrow`` its Arrow view.
    """

    def __init__(self, size: int, dtype: type[np.generic]) -> None:
        item_bytes = np.dtype(dtype).itemsize
        self.arrow = pa.allocate_buffer(max(size, 1) * item_bytes)
        self.array: NDArray[Any] = np.frombuffer(self.arrow, dtype)


def byte_buffer(size: int) -> ValueBuffer:
    """A buffer of ``size`` bytes for the bytes of values."""
    return ValueBuffer(size, np.uint8)


def offset_buffer(rows: int) -> ValueBuffer:
    """A buffer for the int32 offsets of ``rows`` values, of which there are ``rows + 1``."""
    return ValueBuffer(rows + 1, np.int32)


def validity(is_there: NDArray[np.bool_]) -> pa.Buffer | None:
    """Arrow's validity bitmap for a mask of the values that are not null; None if nothing is null."""
    return None if is_there.all() else pa.py_buffer(np.packbits(is_there, bitorder="little"))


def numbers_array(values: NDArray[Any]) -> pa.Array:
    """``values`` (contiguous, of any dtype that Arrow has) as an Arrow array, without a copy."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def texts_array(texts: Sequence[str]) -> pa.Array:
    """A string array of ``texts``."""
    raw = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, raw)], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(raw), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(raw))])


def truths_of(array: pa.BooleanArray) -> NDArray[np.bool_]:
    """A boolean array without nulls as a numpy mask."""
    bits = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    return np.unpackbits(bits, bitorder="little")[array.offset : array.offset + len(array)].view(np.bool_)


@dataclass(slots=True)
class LogBatch:
    """Records of one file: ``columns[:, :count]``, with the rows that ``gantrymq.kernels.codes`` names.

    ``buffer`` holds a part of the file, read-only; ``base`` is the physical offset of its first byte. ``queues``
    (int64, ``count`` long) are the numbers of the records' queues, ``topics`` (strings) the topic of each number.

    *Invariant*: a batch is valid until the next one is read, because buffer and columns are reused.
    """

    path: str
    base: int
    buffer: Bytes
    columns: Int64s
    count: int
    queues: Int64s
    topics: pa.Array

    def row(self, code: int) -> Int64s:
        """One field of every record (int64, ``count`` long)."""
        return self.columns[code, : self.count]

    def take(self, keep: NDArray[np.bool_]) -> LogBatch:
        """The records for which ``keep`` (bool, ``count`` long) is True; the batch itself if that is all of them."""
        return self if keep.all() else self._rows(np.flatnonzero(keep))

    def by_queue(self) -> LogBatch:
        """The records queue by queue, each queue by its offsets; the batch itself if they are."""
        order = np.lexsort((self.row(codes.QUEUE_OFFSET), self.queues))
        return self if (np.diff(order) == 1).all() else self._rows(order)

    def by(self, first: Int64s, second: Int64s) -> Iterator[tuple[int, int, LogBatch]]:
        """Group the records by two values: yields (value of ``first``, value of ``second``, records), sorted.

        Both arrays are int64, ``count`` long. Records of a group keep their order.
        """
        order = np.lexsort((second, first))
        first, second = first[order], second[order]
        cuts = np.flatnonzero((np.diff(first) != 0) | (np.diff(second) != 0)) + 1
        for begin, end in pairwise([0, *cuts.tolist(), self.count]):
            rows = self if end - begin == self.count else self._rows(order[begin:end])
            yield int(first[begin]), int(second[begin]), rows

    def _rows(self, rows: Int64s) -> LogBatch:
        columns = np.ascontiguousarray(self.columns[:, rows])
        return replace(self, columns=columns, count=len(rows), queues=self.queues[rows])


Refuse = Callable[[CorruptRecordError], None]


def with_bodies(
    batch: LogBatch, refuse: Refuse, *, decompress: bool, limit: int
) -> Iterator[tuple[LogBatch, pa.Array]]:
    """Yield ``batch`` in parts, each with its bodies.

    A record whose body cannot be decompressed, or has more than ``limit`` bytes then, is passed to ``refuse`` and is in
    no part.
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
    """Copy the bodies into ``values``: runs of uncompressed ones with the kernel, decompressed ones one by one."""
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
    room = _MAX_BYTES - len(batch.buffer)  # the rest is for uncompressed bodies of the part
    try:
        body = batch.buffer[at : at + length].tobytes()
        return decompress_body(body, int(batch.row(codes.SYS_FLAG)[row]), min(limit, room))
    except ValueError as error:
        reason = f"{error}; decompress=false gives it as it is stored"
        raise CorruptRecordError(batch.path, _offset(batch, row), reason) from error


class ArrowBatches:
    """Makes record batches of ``schema``, whose fields are columns of ``gantrymq.spark.schema``."""

    def __init__(
        self,
        schema: pa.Schema,
        *,
        decompress: bool,
        broker_name: str | None,
        refuse: Refuse | None = None,
        max_decompressed_body_size: int = MAX_DECOMPRESSED_BODY_SIZE,
        builders: Mapping[str, Callable[[LogBatch, pa.DataType], pa.Array]] | None = None,
    ) -> None:
        """``refuse`` is called for each record whose body cannot be decompressed; by default :meth:`convert` raises.

        ``builders`` make further columns, each from a batch and the column's type.
        """
        self._schema = schema
        self._decompress = decompress
        self._body_limit = max_decompressed_body_size
        self._refuse = refuse or _raise
        self._broker_name = broker_name
        self._further = builders or {}
        self._scratch = new_scratch() if "properties" in schema.names else None
        self._builders = [self._builder(field) for field in schema]

    def convert(self, batch: LogBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``batch`` in order, in several parts if bodies were decompressed.

        Raises CorruptRecordError if there is no ``refuse``.
        """
        parts: Iterable[tuple[LogBatch, pa.Array | None]] = [(batch, None)]
        if None in self._builders:
            parts = with_bodies(batch, self._refuse, decompress=self._decompress, limit=self._body_limit)
        for part, bodies in parts:
            columns = [bodies if build is None else build(part) for build in self._builders]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _builder(self, field: pa.Field) -> Callable[[LogBatch], pa.Array] | None:
        """The function that makes a column of a part; None for the body column, which :func:`with_bodies` makes."""
        name, kind = field.name, field.type
        if name == "body":
            return None
        if name in _NUMBERS:
            code = _NUMBERS[name]
            return lambda batch: numbers_array(batch.row(code).astype(kind.to_pandas_dtype()))
        if name in self._further:
            further = self._further[name]
            return lambda batch: further(batch, kind)
        special: dict[str, Callable[[LogBatch], pa.Array]] = {
            "topic": lambda batch: batch.topics.take(numbers_array(batch.queues)),
            "broker": self._brokers,
            "tags": tags_column,
            "keys": lambda batch: keys_column(batch, kind),
            "properties": lambda batch: self._properties(batch, kind),
            "msg_id": _message_ids,
            "born_timestamp": lambda batch: timestamps_array(batch.row(codes.BORN_TIMESTAMP), kind),
            "store_timestamp": lambda batch: timestamps_array(batch.row(codes.STORE_TIMESTAMP), kind),
            "born_host": lambda batch: _hosts(batch, codes.BORN_HOST_AT, flags.BORN_HOST_V6),
            "store_host": lambda batch: _hosts(batch, codes.STORE_HOST_AT, flags.STORE_HOST_V6),
        }
        return special[name]

    def _brokers(self, batch: LogBatch) -> pa.Array:
        if self._broker_name is None:
            return pa.nulls(batch.count, pa.string())
        return texts_array([self._broker_name]).take(numbers_array(np.zeros(batch.count, np.int64)))

    def _properties(self, batch: LogBatch, kind: pa.MapType) -> pa.Array:
        total = int(batch.row(codes.PROPERTIES_LENGTH).sum())
        rows, entries = offset_buffer(batch.count), total // 4 + batch.count
        for growth in (1, _MAX_REPAIRED):
            names, items = byte_buffer(total * growth), byte_buffer(total * growth)
            name_offsets, item_offsets = offset_buffer(entries), offset_buffer(entries)
            _, code, used = properties_map(
                batch.buffer, batch.columns, 0, batch.count, self._scratch, rows.array,
                names.array, name_offsets.array, items.array, item_offsets.array,
            )  # fmt: skip
            if code == codes.STOP_DONE:
                break
        assert code == codes.STOP_DONE
        keys = _strings(used, name_offsets, names)
        values = _strings(used, item_offsets, items)
        return pa.MapArray.from_arrays(_offsets(batch.count, rows), keys, values, type=kind)


def _raise(error: CorruptRecordError) -> None:
    raise error


def _strings(count: int, offsets: ValueBuffer, values: ValueBuffer, valid: pa.Buffer | None = None) -> pa.Array:
    return pa.Array.from_buffers(pa.string(), count, [valid, offsets.arrow, values.arrow])


def _offsets(count: int, offsets: ValueBuffer) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), count + 1, [None, offsets.arrow])


def _text(batch: LogBatch, at: Int64s, length: Int64s, valid: pa.Buffer | None = None) -> pa.Array:
    total, offsets = int(np.maximum(length, 0).sum()), offset_buffer(batch.count)
    values = byte_buffer(total)
    gather(batch.buffer, at, length, 0, batch.count, values.array, offsets.array)
    if total and values.array.max() > _MAX_ASCII:  # only non-ASCII text can be malformed
        values = byte_buffer(total * _MAX_REPAIRED)
        gather_text(batch.buffer, at, length, 0, batch.count, values.array, offsets.array)
    return _strings(batch.count, offsets, values, valid)


def _find(batch: LogBatch, name: str) -> tuple[Int64s, Int64s]:
    """The positions and lengths of a property's values (int64, ``count`` long each); the length is -1 without one."""
    at, length = np.empty(batch.count, np.int64), np.empty(batch.count, np.int64)
    name_bytes = _NAMES.setdefault(name, read_only(name.encode()))
    find_property(batch.buffer, batch.columns, batch.count, name_bytes, at, length)
    return at, length


def tags_column(batch: LogBatch) -> pa.Array:
    """The tags of each record (string), null for records without tags."""
    return property_column(batch, PROPERTY_TAGS)


def property_column(batch: LogBatch, name: str) -> pa.Array:
    """The value of a property of each record (string), null for records without it."""
    at, length = _find(batch, name)
    return _text(batch, at, length, validity(length >= 0))


def keys_column(batch: LogBatch, kind: pa.ListType | None = None) -> pa.Array:
    """The keys of each record (list of strings, or ``kind``), empty for records without keys."""
    kind = kind or pa.list_(pa.string())
    at, length = _find(batch, PROPERTY_KEYS)
    total, rows = int(np.maximum(length, 0).sum()), offset_buffer(batch.count)
    most_keys = total // 2 + batch.count
    offsets = offset_buffer(most_keys)
    for growth in (1, _MAX_REPAIRED):
        values = byte_buffer(total * growth)
        _, code, used = split_keys(batch.buffer, at, length, 0, batch.count, rows.array, values.array, offsets.array)
        if code == codes.STOP_DONE:
            break
    assert code == codes.STOP_DONE
    return pa.ListArray.from_arrays(_offsets(batch.count, rows), _strings(used, offsets, values), type=kind)


def _hosts(batch: LogBatch, at_code: int, v6_bit: int) -> pa.Array:
    values, offsets = byte_buffer(batch.count * codes.MAX_HOST_TEXT), offset_buffer(batch.count)
    sys_flags = batch.row(codes.SYS_FLAG)
    hosts_text(batch.buffer, batch.row(at_code), sys_flags, v6_bit, 0, batch.count, values.array, offsets.array)
    return _strings(batch.count, offsets, values)


def _message_ids(batch: LogBatch) -> pa.Array:
    values, offsets = byte_buffer(batch.count * _MESSAGE_ID_TEXT), offset_buffer(batch.count)
    message_ids(
        batch.buffer, batch.row(codes.STORE_HOST_AT), batch.row(codes.SYS_FLAG), batch.row(codes.PHY_OFFSET),
        0, batch.count, values.array, offsets.array,
    )  # fmt: skip
    return _strings(batch.count, offsets, values)


def timestamps_array(times_ms: Int64s, kind: pa.DataType) -> pa.Array:
    """Milliseconds as Arrow timestamps in microseconds; null if the value is out of their range."""
    possible: NDArray[np.bool_] = (times_ms >= -_MAX_MS) & (times_ms <= _MAX_MS)
    values = times_ms * _US_A_MS
    return pa.Array.from_buffers(kind, len(values), [validity(possible), pa.py_buffer(values)])
