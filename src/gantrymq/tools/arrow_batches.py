"""Batches of records as Arrow record batches: one kernel call fills each column, no row is touched by Python.

Texts are well-formed UTF-8 whatever the records hold; what is malformed reads as U+FFFD, as in Java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gantrymq.errors import CorruptRecordError
from gantrymq.kernels import codes
from gantrymq.kernels.api import find_property, gather, gather_text, hosts_text, message_ids, properties_map, split_keys
from gantrymq.kernels.arrays import Int64s, new_scratch, read_only
from gantrymq.model import flags
from gantrymq.model.message import PROPERTY_KEYS, PROPERTY_TAGS
from gantrymq.model.size import MAX_DECOMPRESSED_BODY_SIZE
from gantrymq.tools.bodies import Refuse, with_bodies
from gantrymq.tools.buffers import ValueBuffer, byte_buffer, numbers_array, offset_buffer, texts_array, validity
from gantrymq.tools.log_batch import LogBatch

_US_A_MS = 1000
_MAX_MS = (1 << 63) // _US_A_MS - 1
_MOST_REPAIRED = 3  # so many bytes of U+FFFD come of one malformed byte
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
    ) -> None:
        """``refuse`` is told of each record whose body cannot be decompressed; without it :meth:`convert` raises."""
        self._schema = schema
        self._decompress = decompress
        self._body_limit = max_decompressed_body_size
        self._refuse = refuse or _raise
        self._broker_name = broker_name
        self._scratch = new_scratch() if "properties" in schema.names else None
        self._builders = [self._builder(field) for field in schema]

    def convert(self, batch: LogBatch) -> Iterator[pa.RecordBatch]:
        """The rows of ``batch``, in its order, and some at a time where bodies grow; raises CorruptRecordError."""
        parts: Iterable[tuple[LogBatch, pa.Array | None]] = [(batch, None)]
        if None in self._builders:
            parts = with_bodies(batch, self._refuse, decompress=self._decompress, limit=self._body_limit)
        for part, bodies in parts:
            columns = [bodies if build is None else build(part) for build in self._builders]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _builder(self, field: pa.Field) -> Callable[[LogBatch], pa.Array] | None:
        """What makes a column of a part; None for the bodies, by which a batch is cut into its parts."""
        name, kind = field.name, field.type
        if name == "body":
            return None
        if name in _NUMBERS:
            code = _NUMBERS[name]
            return lambda batch: numbers_array(batch.row(code).astype(kind.to_pandas_dtype()))
        special: dict[str, Callable[[LogBatch], pa.Array]] = {
            "topic": lambda batch: batch.topics.take(numbers_array(batch.queues)),
            "broker": self._brokers,
            "tags": tags_column,
            "keys": lambda batch: keys_column(batch, kind),
            "properties": lambda batch: self._properties(batch, kind),
            "msg_id": _message_ids,
            "born_timestamp": lambda batch: _timestamps(batch.row(codes.BORN_TIMESTAMP), kind),
            "store_timestamp": lambda batch: _timestamps(batch.row(codes.STORE_TIMESTAMP), kind),
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
        for growth in (1, _MOST_REPAIRED):
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
    if total and values.array.max() > _MAX_ASCII:  # only then can anything be malformed
        values = byte_buffer(total * _MOST_REPAIRED)
        gather_text(batch.buffer, at, length, 0, batch.count, values.array, offsets.array)
    return _strings(batch.count, offsets, values, valid)


def _find(batch: LogBatch, name: str) -> tuple[Int64s, Int64s]:
    """Where the values of a property lie, and how long they are; -1 where there is none."""
    at, length = np.empty(batch.count, np.int64), np.empty(batch.count, np.int64)
    find_property(batch.buffer, batch.columns, batch.count, _NAMES[name], at, length)
    return at, length


def tags_column(batch: LogBatch) -> pa.Array:
    """The tags of each record (string), null where there are none."""
    at, length = _find(batch, PROPERTY_TAGS)
    return _text(batch, at, length, validity(length >= 0))


def keys_column(batch: LogBatch, kind: pa.ListType | None = None) -> pa.Array:
    """The keys of each record (list of strings, or ``kind``), empty where there are none."""
    kind = kind or pa.list_(pa.string())
    at, length = _find(batch, PROPERTY_KEYS)
    total, rows = int(np.maximum(length, 0).sum()), offset_buffer(batch.count)
    most_keys = total // 2 + batch.count
    offsets = offset_buffer(most_keys)
    for growth in (1, _MOST_REPAIRED):
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


def _timestamps(times_ms: Int64s, kind: pa.DataType) -> pa.Array:
    """Milliseconds as Spark's microseconds; null where a record says what no timestamp can hold."""
    possible: NDArray[np.bool_] = (times_ms >= -_MAX_MS) & (times_ms <= _MAX_MS)
    values = times_ms * _US_A_MS
    return pa.Array.from_buffers(kind, len(values), [validity(possible), pa.py_buffer(values)])
