"""The meaning of a message in a table with one row for each key: the key, and what the message does to its row.

A key is the value of a column: ``keys``, another column of the message, or a field of the body, dotted in a struct
(``after.id``). A message whose key is null or missing has no row that it could mean, so it is a dead row.

=================  =====================  ==============================================================================
envelope           options                key and operation
=================  =====================  ==============================================================================
none               ``keys``               all keys of the message, in their order
none               ``id``                 the field; with ``--op-field op`` also deletes: ``{"id": 1, "op": "D"}``
Debezium           ``after.id``, ``op``   ``after`` is null in a delete: there ``before.id`` is the key
Canal, flat        ``data.id``, ``type``  ``data`` has an element for each row: the message becomes a row of the table
                                          for each, with this element alone as ``data``, and likewise ``old``
Maxwell            ``data.id``, ``type``  ``data`` is one object
Flink's changelog  ``id``, ``op``         ``-U`` takes the row away, the ``+U`` behind it brings the new one
=================  =====================  ==============================================================================

The columns of the table are those of the envelope: nothing is unwrapped. Any other operation (Debezium's truncate,
Canal's DDL) is a dead row: it has no key, and it must not be dropped in silence.

Thread rule: values, which are pickled to Spark's executors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gantrymq.errors import ConfigError
from gantrymq.tables.bodies.evolution import sql_name
from gantrymq.tables.columns import TIMESTAMP

KEYS = "keys"
_BETWEEN_KEYS = " "  # RocketMQ's own separator: no key has it
_AFTER, _BEFORE, _OLD = "after", "before", "old"
_UPSERTS = ("c", "r", "u", "i", "create", "read", "insert", "update", "+i", "+u")
_DELETES = ("d", "delete", "-d", "-u")


class Changes(NamedTuple):
    """Changes in their order: the row of each, its key, and whether it only removes the row of the key."""

    rows: pa.RecordBatch
    keys: pa.Array
    is_delete: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class UpsertRule:
    """The column of the key, and that of the operation; without one every message brings the row of its key."""

    by: str
    op_field: str | None = None

    def require_columns(self, schema: pa.Schema) -> None:
        """Raise ConfigError if a table of that schema lacks one of the columns, or has another kind of it."""
        _require("--upsert-by", self.by, schema, is_text=False)
        if self.op_field is not None:
            _require("--op-field", self.op_field, schema, is_text=True)

    def stored_columns(self, schema: pa.Schema) -> list[str]:
        """What is read of a file of that schema for :meth:`stored_keys`: a list as a whole, of a struct one field."""
        first = self.by.partition(".")[0]
        if first not in schema.names:
            return []
        return [first if _is_list(schema.field(first).type) else self.by]

    def stored_keys(self, rows: pa.RecordBatch) -> pa.Array:
        """The key of each row of the table; null where there is none."""
        return _key(rows, self.by)

    def reasons(self, rows: pa.RecordBatch) -> list[str | None]:
        """For each message None, or the reason why it means no row."""
        changes, messages = self._changes(rows)
        has_key = np.zeros(rows.num_rows, np.bool_)
        has_key[messages] = True
        has_key[messages[changes.keys.is_null().to_numpy(zero_copy_only=False)]] = False
        reasons: list[str | None] = [None] * rows.num_rows
        for row in np.flatnonzero(~has_key).tolist():
            reasons[row] = f"{self.by}: null, empty or missing, so the message has no key"
        if self.op_field is not None:
            operations = _value(rows, self.op_field)
            for row in np.flatnonzero(~_is_in(operations, (*_UPSERTS, *_DELETES))).tolist():
                value = operations[row].as_py()
                what = "null or missing" if value is None else f"{value!r} is no operation on a row"
                reasons[row] = f"{self.op_field}: {what}"
        return reasons

    def changes(self, rows: pa.RecordBatch) -> Changes:
        """What messages without a reason do, in their order."""
        return self._changes(rows)[0]

    def _changes(self, rows: pa.RecordBatch) -> tuple[Changes, NDArray[np.int64]]:
        """The changes, and for each the number of its message."""
        first, _, inner = self.by.partition(".")
        messages = np.arange(rows.num_rows)
        if inner and first in rows.schema.names and _is_list(rows.schema.field(first).type):
            rows, messages = _unfolded(rows, first)
        keys = _key(rows, self.by)
        is_delete = np.zeros(rows.num_rows, np.bool_)
        if self.op_field is not None:
            is_delete = _is_in(_value(rows, self.op_field), _DELETES)
            before = _key(rows, _before(self.by))
            if before.type == keys.type:
                keys = pc.if_else(pa.array(is_delete), pc.coalesce(keys, before), keys)
        return Changes(rows, keys, is_delete), messages


def _require(option: str, path: str, schema: pa.Schema, *, is_text: bool) -> None:
    """Raise ConfigError unless a schema has the column."""
    kind = _type(schema, path)
    if kind is None:
        raise ConfigError(option, path, f"a column of the table, which has {', '.join(schema.names)}")
    if is_text and not pa.types.is_string(kind):
        raise ConfigError(option, path, f"a column of text, and it is {sql_name(kind)}")
    if pa.types.is_nested(kind) and path != KEYS:
        raise ConfigError(option, path, f"a column with one value, and it is {sql_name(kind)}")


def _type(schema: pa.Schema, path: str) -> pa.DataType | None:
    """The type of a column or of a field in it; None if there is none."""
    first, *inner = path.split(".")
    if first not in schema.names:
        return None
    kind = schema.field(first).type
    if inner and _is_list(kind):
        kind = kind.value_type
    for name in inner:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return None
        kind = kind.field(name).type
    return kind


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _before(path: str) -> str:
    """The path of the key in the row before the change."""
    names = path.split(".")
    return ".".join(_BEFORE if name == _AFTER else name for name in names)


def _value(rows: pa.RecordBatch, path: str) -> pa.Array:
    """The values of a column or of a field in it; null where there is none."""
    first, *inner = path.split(".")
    if _type(rows.schema, path) is None:
        return pa.nulls(rows.num_rows, pa.string())
    array = rows.column(first)
    if inner and _is_list(array.type):
        array = _only_element(array)
    for name in inner:
        array = pc.struct_field(array, name)
    return array


def _only_element(lists: pa.Array) -> pa.Array:
    """The element of each list; null if it has none or several."""
    lengths = _lengths(lists)
    starts = np.cumsum(lengths) - lengths
    return lists.flatten().take(pa.array(starts, mask=lengths != 1))


def _lengths(lists: pa.Array) -> NDArray[np.int64]:
    """The number of elements of each list; 0 for null."""
    numbers: NDArray[np.int64] = pc.list_value_length(lists).fill_null(0).to_numpy().astype(np.int64)
    return numbers


def _key(rows: pa.RecordBatch, path: str) -> pa.Array:
    """The key of each row, in one type for all types that a column may have been written with."""
    array = _value(rows, path)
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if path == KEYS and _is_list(kind):
        joined = pc.binary_join(array.cast(pa.list_(pa.string())), _BETWEEN_KEYS)
        return pc.if_else(pc.equal(joined, ""), None, joined)
    if pa.types.is_nested(kind):
        return pa.nulls(len(array), pa.string())
    if pa.types.is_integer(kind):
        kind = pa.int64()
    elif pa.types.is_floating(kind):
        kind = pa.float64()
    elif pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        kind = pa.string()
    elif pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        kind = pa.binary()
    elif pa.types.is_timestamp(kind):
        kind = TIMESTAMP
    return array.cast(kind)


def _is_in(texts: pa.Array, words: tuple[str, ...]) -> NDArray[np.bool_]:
    """Whether each text is one of some words, in any case; false for null."""
    if not pa.types.is_string(texts.type):
        return np.zeros(len(texts), np.bool_)
    is_word: NDArray[np.bool_] = pc.is_in(pc.utf8_lower(texts), value_set=pa.array(words)).to_numpy(
        zero_copy_only=False
    )
    return is_word


def _unfolded(rows: pa.RecordBatch, name: str) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
    """A row for each element of the list ``name``, which has this element alone; and for each the number of its row.

    The list ``old`` has the former values of the same elements; it is null if it is of another length.
    """
    lengths = _lengths(rows.column(name))
    numbers = np.repeat(np.arange(rows.num_rows), lengths)
    if (lengths == 1).all():
        return rows, numbers
    within = np.arange(len(numbers)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    unfolded = rows.take(pa.array(numbers))
    for part in (name, _OLD):
        if part in rows.schema.names and _is_list(rows.schema.field(part).type):
            column = _elements(rows.column(part), lengths, numbers, within)
            unfolded = unfolded.set_column(rows.schema.get_field_index(part), rows.schema.field(part), column)
    return unfolded, numbers


def _elements(
    lists: pa.Array, lengths: NDArray[np.int64], numbers: NDArray[np.int64], within: NDArray[np.int64]
) -> pa.Array:
    """The element ``within`` of each list ``numbers``, as a list of its own; null if the list has another length."""
    own = _lengths(lists)
    is_there = (own == lengths)[numbers]
    indices = (np.cumsum(own) - own)[numbers] + within
    ends = np.concatenate([[0], np.cumsum(is_there)]).astype(np.int32)
    values = lists.flatten().take(pa.array(indices[is_there]))
    kind = pa.list_(lists.type.value_field)
    return pa.ListArray.from_arrays(pa.array(ends), values, type=kind, mask=pa.array(~is_there))
