"""The allowed columns of rows for a store, and their conversion to the schema of staged batches.

A row without a ``queue_id`` goes to a queue by its ``sharding_key`` (SelectMessageQueueByHash). Rows with neither are
distributed round-robin.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from gantrymq.errors import ConfigError
from gantrymq.model.java import INT_MAX, string_hash
from gantrymq.model.message import PROPERTY_SHARDING_KEY

STAGED = pa.schema(
    [
        ("topic", pa.string()),
        ("body", pa.binary()),
        ("queue_id", pa.int32()),
        ("tags", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("delay_level", pa.int32()),
        ("born_timestamp_ms", pa.int64()),
    ]
)

_TEXT = ("string",)
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_COLUMNS: dict[str, tuple[str, ...]] = {
    "topic": _TEXT,
    "body": ("binary", "string"),
    "tags": _TEXT,
    "keys": ("array<string>", "string"),
    "properties": ("map<string,string>",),
    "queue_id": _WHOLE,
    "sharding_key": _TEXT,
    "delay_level": _WHOLE,
    "deliver_timestamp": ("timestamp", "bigint"),
}


def check_columns(schema: StructType, *, topic: str | None, deliver: bool) -> None:
    """Raise ConfigError if ``schema`` has an unknown column, one of another type, or lacks a required one.

    ``topic`` is the option of that name, which overrides the column. ``deliver`` says whether a broker can deliver at a
    given time.
    """
    for field in schema.fields:
        shown, types = f"{field.name} {field.dataType.simpleString()}", _COLUMNS.get(field.name)
        if types is None:
            near = get_close_matches(field.name, _COLUMNS, 3) or list(_COLUMNS)
            raise ConfigError("column", shown, f"no such column; there is {', '.join(near)}")
        if field.dataType.simpleString().split(" collate")[0] not in types:
            raise ConfigError("column", shown, f"{field.name} is {' or '.join(types)}")
    names = {field.name for field in schema.fields}
    if "body" not in names:
        raise ConfigError("column", ", ".join(sorted(names)), "a column body (binary or string) must be there")
    if "topic" not in names and topic is None:
        raise ConfigError("topic", "", "a column topic or the option topic must be there")
    if "deliver_timestamp" in names and not deliver:
        allowed = "a nameserver: a store directory has no broker that delivers; delay_level can be stored"
        raise ConfigError("column", "deliver_timestamp", allowed)


class OutgoingRows:
    """Makes staged batches of Spark's batches. ``partition`` is the first queue of the round-robin."""

    def __init__(self, *, topic: str | None, queue_num: int, partition: int, born_ms: int) -> None:
        self._topic = topic
        self._queue_num = queue_num
        self._next = partition
        self._born_ms = born_ms
        self.count = 0

    def staged(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield tables of the schema STAGED. Raises ConfigError with column and row."""
        for batch in batches:
            if batch.num_rows:
                yield self._staged(batch)
                self.count += batch.num_rows

    def _staged(self, batch: pa.RecordBatch) -> pa.Table:
        given = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
        rows = batch.num_rows
        columns: dict[str, Any] = {
            "topic": pa.repeat(self._topic, rows) if self._topic else self._whole("topic", given["topic"]),
            "body": self._whole("body", given["body"]).cast(pa.binary()),
            "queue_id": self._queue_ids(given, rows),
            "tags": given.get("tags"),
            "keys": _keys(given.get("keys")),
            "properties": _properties(given),
            "delay_level": self._in_range("delay_level", given.get("delay_level")),
            "born_timestamp_ms": pa.repeat(pa.scalar(self._born_ms, pa.int64()), rows),
        }
        arrays = [pa.nulls(rows, kind.type) if columns[kind.name] is None else columns[kind.name] for kind in STAGED]
        return pa.table([array.cast(kind.type) for array, kind in zip(arrays, STAGED, strict=True)], schema=STAGED)

    def _whole(self, name: str, column: Any) -> Any:
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise ConfigError(f"column {name}", None, f"never null; row {self.count + row} of the partition is")
        return column

    def _in_range(self, name: str, column: Any) -> Any:
        if column is None:
            return None
        wide = column.cast(pa.int64())
        if wide.null_count < len(wide) and not 0 <= pc.min(wide).as_py() <= pc.max(wide).as_py() <= INT_MAX:
            wrong = pc.min(wide) if pc.min(wide).as_py() < 0 else pc.max(wide)
            raise ConfigError(f"column {name}", wrong.as_py(), f"0 to {INT_MAX}")
        return wide.cast(pa.int32())

    def _queue_ids(self, given: dict[str, Any], rows: int) -> Any:
        chosen = pa.array((np.arange(rows) + self._next) % self._queue_num, pa.int32())
        self._next += rows
        if "sharding_key" in given:
            keys = given["sharding_key"].dictionary_encode()
            hashed = [abs(string_hash(key)) % self._queue_num for key in keys.dictionary.to_pylist()]
            chosen = pc.coalesce(pa.array(hashed, pa.int32()).take(keys.indices), chosen)
        ids = self._in_range("queue_id", given.get("queue_id"))
        return chosen if ids is None else pc.coalesce(ids, chosen)


def _keys(column: Any) -> Any:
    if column is None or pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return column
    return pc.split_pattern(column, " ")


def _properties(given: dict[str, Any]) -> Any:
    """The properties, with the sharding key added."""
    column, sharding = given.get("properties"), given.get("sharding_key")
    if sharding is None:
        return column
    entries = column.to_pylist() if column is not None else [None] * len(sharding)
    merged = [
        [*(row or []), *([(PROPERTY_SHARDING_KEY, key)] if key is not None else [])]
        for row, key in zip(entries, sharding.to_pylist(), strict=True)
    ]
    return pa.array(merged, STAGED.field("properties").type)
