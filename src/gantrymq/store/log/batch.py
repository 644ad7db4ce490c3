"""Many messages in one put, from a list or an Arrow table, as columns for the encoding kernel.

Columns of a table: ``topic`` (string) and ``body`` (binary or string) are required. ``queue_id``, ``tags``, ``keys``
(list of strings, or one string), ``properties`` (map of strings), ``delay_level``, ``flag``, ``sys_flag``,
``born_timestamp_ms`` and ``reconsume_times`` are optional. A row with a null topic or body is MESSAGE_ILLEGAL.

Only a plain batch becomes columns: no delay levels, no transactions, no hosts of its own, and no message that a put
would refuse. For any other batch ``of_messages`` and ``of_table`` return None, and the messages are put one by one.

Source: MessageExtEncoder.encode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format import record
from gantrymq.format.names import is_topic_storable
from gantrymq.format.properties import CRC_PROPERTY_SIZE
from gantrymq.kernels import codes
from gantrymq.kernels.api import fill_map, fill_property, size_map
from gantrymq.kernels.arrays import new_columns, read_only
from gantrymq.model.java import INT_MAX
from gantrymq.model.message import LOOPBACK, PROPERTY_CRC32, PROPERTY_KEYS, PROPERTY_TAGS, Message, is_one_text
from gantrymq.model.status import PutMessageStatus

if TYPE_CHECKING:
    import pyarrow as pa


_CRC_KEY = PROPERTY_CRC32.encode()
_SEPARATORS = (1, 2)
_NUMBERS = {
    "queue_id": codes.QUEUE_ID,
    "flag": codes.FLAG,
    "born_timestamp_ms": codes.BORN_TIMESTAMP,
    "reconsume_times": codes.RECONSUME_TIMES,
}
_SPECIAL = ("delay_level", "sys_flag")
# Columns of these types are used without a cast: casting each took most of the time for a short table.
_OFFSETS = {"string": np.int32, "binary": np.int32, "large_string": np.int64, "large_binary": np.int64}
_INTEGERS = {"int32": np.int32, "int64": np.int64}
_HOSTS_V6_BYTES, _LONG_TOPIC_BYTES, _SEPARATOR_BYTES = 24, 1, 1  # what a record may have beyond MIN_RECORD_SIZE
_MAX_FIXED_BYTES = record.MIN_RECORD_SIZE + _HOSTS_V6_BYTES + _LONG_TOPIC_BYTES + _SEPARATOR_BYTES + CRC_PROPERTY_SIZE
_OPTIONAL = (
    "queue_id", "tags", "keys", "properties", "delay_level", "flag", "sys_flag", "born_timestamp_ms", "reconsume_times",
)  # fmt: skip
_ILLEGAL = Message("", b"")  # no put accepts a message without a topic
# Building columns takes 0.6 ms for any list. In that time this many messages can be put one by one.
FEW_MESSAGES = 200


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of bytes as in Arrow: row i is ``values[offsets[i]:offsets[i + 1]]`` (uint8 read-only, int64)."""

    values: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The length of each row in bytes (int64)."""
        return np.diff(self.offsets)


@dataclass(slots=True)
class BatchColumns:
    """A plain batch. ``topics`` has the distinct topics, and ``topic_of`` the index into it for each row.

    ``columns`` (rows: ``gantrymq.kernels.codes``) has QUEUE_ID, FLAG, BORN_TIMESTAMP and RECONSUME_TIMES; SYS_FLAG and
    PREPARED_OFFSET are 0.
    """

    count: int
    bodies: Texts
    topics: list[str]
    topic_of: NDArray[np.int64]
    topic_texts: Texts
    properties: Texts
    columns: NDArray[np.int64]

    def most_bytes_from(self, row: int) -> int:
        """Return a close upper bound of the bytes that the records of the rows from ``row`` on take."""
        texts = (self.bodies, self.topic_texts, self.properties)
        rest = sum(int(text.offsets[self.count]) - int(text.offsets[row]) for text in texts)
        return rest + (self.count - row) * _MAX_FIXED_BYTES


def of_messages(messages: Sequence[Message], config: MessageStoreConfig) -> BatchColumns | None:
    """Convert messages to the columns that one append writes. Returns None if they have to be put one by one.

    That is so if a message has a delay, a priority, a part in a transaction, a host of its own, or an invalid value,
    and without pyarrow.
    """
    try:
        for message in messages:
            if message.delay_level or message.sys_flag or message.prepared_transaction_offset:
                return None
            if message.delay_ms or message.deliver_at is not None or message.priority is not None:
                return None
            if message.store_host is not None or message.born_host is not LOOPBACK:
                return None
            if message.keys and is_one_text(message.keys):
                return None
        table = _table(messages)
    except (AttributeError, TypeError, ValueError, OverflowError):  # single puts report the error
        return None
    except ImportError:  # without the extra arrow a batch is slower
        return None
    return of_table(table, config)


def _table(messages: Sequence[Message]) -> pa.Table:
    """Return the messages as an Arrow table.

    Raises if a value does not fit its column, such as half a surrogate pair.
    """
    import pyarrow as pa

    bodies = [message.body for message in messages]
    if set(map(type, bodies)) != {bytes}:  # Arrow would accept a str, or convert an array of wider items to bytes
        raise TypeError("a body that is not of type bytes")
    table: dict[str, Any] = {
        "topic": pa.array([message.topic for message in messages], pa.string()),
        "body": pa.array(bodies, pa.binary()),
        "tags": pa.array([message.tags for message in messages], pa.string()),
        "keys": pa.array([" ".join(message.keys) for message in messages], pa.string()),
    }
    for name in _NUMBERS:
        table[name] = pa.array([getattr(message, name) for message in messages], pa.int64())
    if any(message.properties for message in messages):
        table["properties"] = _maps([message.properties for message in messages])
    return pa.table(table)


def _maps(properties: Sequence[Mapping[str, str]]) -> pa.MapArray:
    """Return a map column built from two flat lists.

    A list of pairs would create objects that Python's garbage collector walks through; that took as long as all the
    other columns together.
    """
    import pyarrow as pa

    names: list[str] = []
    values: list[str] = []
    ends = [0]
    for each in properties:
        names += each
        values += each.values()
        ends.append(len(names))
    flat = pa.array(names, pa.string()), pa.array(values, pa.string())
    return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), *flat)


def of_table(table: pa.Table, config: MessageStoreConfig) -> BatchColumns | None:
    """Return the columns of an Arrow table, or None if it is not a plain batch.

    Raises KeyError if a column is missing.
    """
    import pyarrow as pa

    names = set(table.column_names)
    for special in _SPECIAL:
        if special in names and np.any(_numbers(table, special)):
            return None
    topic, body = table.column("topic"), table.column("body")
    body = body if str(body.type) in _OFFSETS else _plain(body)
    if not len(table) or topic.null_count or body.null_count:
        return None
    columns = new_columns(len(table))
    columns[:, : len(table)] = 0
    for name, row in _NUMBERS.items():
        if name in names:
            columns[row, : len(table)] = _numbers(table, name)
    if pa.types.is_string_view(topic.type):  # Arrow's take() does not support a dictionary of string views
        topic = topic.cast(pa.large_string())
    distinct = topic.combine_chunks().dictionary_encode()
    topics = distinct.dictionary.to_pylist()
    # A dictionary column from the caller may contain a topic twice, which would give one queue two sets of offsets.
    if len(set(topics)) < len(topics) or not all(is_topic_storable(name) for name in topics):
        return None
    topic_of = np.zeros(len(table), np.int64)
    if len(topics) > 1:
        topic_of[:] = distinct.indices.to_numpy(zero_copy_only=False)
    properties = _properties(table, names)
    if properties is None:
        return None
    texts = _texts(topic if str(topic.type) in _OFFSETS else distinct.dictionary.take(distinct.indices))
    batch = BatchColumns(len(table), _texts(body), topics, topic_of, texts, properties, columns)
    return batch if _fits(batch, config) else None


def _fits(batch: BatchColumns, config: MessageStoreConfig) -> bool:
    queue_ids, topic_lengths = batch.columns[codes.QUEUE_ID, : batch.count], batch.topic_texts.lengths
    ints = batch.columns[[codes.FLAG, codes.RECONSUME_TIMES], : batch.count]
    property_lengths = batch.properties.lengths + (CRC_PROPERTY_SIZE if config.enabled_append_prop_crc else 0)
    sizes = record.MIN_RECORD_SIZE + 1 + batch.bodies.lengths + topic_lengths + property_lengths + record.BLANK_SIZE
    return bool(
        queue_ids.min() >= 0
        and queue_ids.max() <= INT_MAX
        and -INT_MAX - 1 <= ints.min() <= ints.max() <= INT_MAX
        and batch.bodies.lengths.max() <= config.max_message_size_bytes
        and property_lengths.max() <= record.MAX_PROPERTIES_LENGTH
        and (config.auto_message_version_on_topic_len or topic_lengths.max() <= record.MAX_TOPIC_LENGTH_V1)
        and sizes.max() <= config.mapped_file_size_commit_log
    )


def _numbers(table: pa.Table, name: str) -> NDArray[np.int64]:
    import pyarrow as pa

    column = table.column(name)
    kind = _INTEGERS.get(str(column.type))
    if kind is not None and column.num_chunks == 1 and not column.null_count:
        array = column.chunk(0)
        return np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array)]
    return np.asarray(column.cast(pa.int64()).fill_null(0).to_numpy(), np.int64)


def _plain(column: Any) -> Any:
    """Cast a column of any string or binary type to large strings or large binaries."""
    import pyarrow as pa
    from pyarrow import types

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    of_bytes = (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
    return column.cast(pa.large_binary() if any(check(kind) for check in of_bytes) else pa.large_string())


def _texts(column: Any) -> Texts:
    """Return a string or binary column as bytes. Null rows are empty."""
    import pyarrow as pa

    array = column
    if isinstance(column, pa.ChunkedArray) and column.num_chunks == 1:
        array = column.chunk(0)
    kind = _OFFSETS.get(str(array.type))
    if kind is None or isinstance(array, pa.ChunkedArray) or not len(array) or array.null_count:
        array, kind = _plain(column), np.int64
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        if array.null_count:
            array = array.fill_null("" if pa.types.is_large_string(array.type) else b"")
    _, offsets, values = array.buffers()
    rows = np.frombuffer(offsets, kind)[array.offset : array.offset + len(array) + 1]
    return Texts(read_only(values if values is not None else b""), rows.astype(np.int64))


def _properties(table: pa.Table, names: set[str]) -> Texts | None:
    """Return the encoded properties of every row.

    Returns None if a property has a separator or a zero byte, if it is the CRC property, which only the store sets, or
    if a list of keys contains a null, because Arrow joins such a list to null.
    """
    count = len(table)
    if "keys" in names and _has_null_item(table.column("keys")):
        return None
    sizes = np.zeros(count + 1, np.int64)
    entries = _entries(table.column("properties")) if "properties" in names else None
    if entries is not None:
        rows, keys, items = entries
        if _CRC_KEY in _used(keys).tobytes():
            return None
        size_map(rows, keys.offsets, items.offsets, count, sizes[1:])
    given = [(PROPERTY_TAGS, "tags"), (PROPERTY_KEYS, "keys")]
    texts = [(read_only(name.encode()), _joined(table.column(column))) for name, column in given if column in names]
    for name, text in texts:
        sizes[1:] += np.where(text.lengths > 0, len(name) + text.lengths + len(_SEPARATORS), 0)
    checked = [text for _, text in texts] + ([entries[1], entries[2]] if entries is not None else [])
    if any(_has_odd_bytes(text) for text in checked):
        return None
    ends = np.cumsum(sizes)
    cursors, out = ends[:-1].copy(), np.empty(int(ends[-1]), np.uint8)
    if entries is not None:
        fill_map(rows, keys.values, keys.offsets, items.values, items.offsets, count, cursors, out)
    for name, text in texts:
        fill_property(name, text.values, text.offsets, count, cursors, out)
    return Texts(read_only(out.data), ends)


def _has_null_item(column: Any) -> bool:
    return _is_list(column) and any(chunk.values.null_count for chunk in column.chunks)


def _is_list(column: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(column.type) or types.is_large_list(column.type))


def _has_odd_bytes(text: Texts) -> bool:
    """Whether the column contains a separator or a zero byte."""
    return bool((_used(text) <= _SEPARATORS[-1]).any())


def _used(text: Texts) -> NDArray[np.uint8]:
    """Return the bytes of all rows, joined."""
    return text.values[text.offsets[0] : text.offsets[-1]]


def _joined(column: Any) -> Texts:
    """Return a column of strings, or of lists of strings joined by one space."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if _is_list(column):
        plain = pa.list_(pa.string())
        column = pc.binary_join(column if column.type == plain else column.cast(plain), " ")
    return _texts(column)


def _entries(column: Any) -> tuple[NDArray[np.int64], Texts, Texts]:
    """Return (row offsets, keys, values) of a map column. A null row has no entries, and a null value is empty."""
    import pyarrow as pa

    array = pa.concat_arrays(column.chunks) if len(column.chunks) != 1 else column.chunk(0)
    if array.null_count:
        # A null row may have hidden entries. Rebuilding the array removes them.
        array = pa.array([row or [] for row in array.to_pylist()], array.type)
    return array.offsets.to_numpy().astype(np.int64), _texts(array.keys), _texts(array.items)


@dataclass(slots=True)
class PutBatchResult:
    """The result of a batch put.

    ``status`` is that of the whole batch: PUT_OK, FLUSH_DISK_TIMEOUT, or SERVICE_NOT_AVAILABLE if the store takes no
    puts. ``phy_offsets``, ``queue_offsets`` and ``sizes`` (bytes) are int64 with one number for each message in order,
    -1 for a rejected message. ``rejected`` maps its index in the batch to the reason.
    """

    status: PutMessageStatus
    phy_offsets: NDArray[np.int64]
    queue_offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    rejected: dict[int, PutMessageStatus] = field(default_factory=dict)

    @classmethod
    def empty(cls, count: int) -> PutBatchResult:
        """Return a result for ``count`` messages, none of which is stored yet."""
        numbers = np.full((3, count), -1, np.int64)
        return cls(PutMessageStatus.PUT_OK, numbers[0], numbers[1], numbers[2])

    def reject_rest(self, why: PutMessageStatus) -> None:
        """Mark every message that is neither stored nor rejected as rejected with the status ``why``."""
        for number in np.flatnonzero(self.phy_offsets < 0).tolist():
            self.rejected.setdefault(number, why)

    @property
    def end_offset(self) -> int:
        """The physical offset after the last stored record, or -1 if none was stored."""
        return int((self.phy_offsets + self.sizes).max(initial=-1))


def columns_of(batch: Sequence[Message] | pa.Table, config: MessageStoreConfig) -> BatchColumns | None:
    """Return the columns of a plain batch, or None if its messages must be put one by one, or if that is faster."""
    if not len(batch):
        return None
    if isinstance(batch, Sequence):
        return of_messages(batch, config) if len(batch) >= FEW_MESSAGES else None
    return of_table(batch, config)


def messages_of(batch: Sequence[Message] | pa.Table) -> Iterator[Message]:
    """Yield the messages of a batch. Raises KeyError if a table lacks a required column."""
    if isinstance(batch, Sequence):
        yield from batch
        return
    names = [name for name in _OPTIONAL if name in batch.column_names]
    for chunk in batch.select(["topic", "body", *names]).to_batches():
        for row in chunk.to_pylist():
            yield _message(row)


def _message(row: dict[str, Any]) -> Message:
    if row["topic"] is None or row["body"] is None:
        return _ILLEGAL
    given = {name: value for name, value in row.items() if value is not None}
    body, keys = given["body"], given.get("keys", ())
    given["body"] = body.encode() if isinstance(body, str) else body
    given["keys"] = keys.split() if isinstance(keys, str) else [key for key in keys if key is not None]
    given["properties"] = {name: value or "" for name, value in dict(given.get("properties", ())).items()}
    return Message(**given)
