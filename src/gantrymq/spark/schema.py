"""The columns of ``format("rocketmq")``, and the default columns of a read.

A schema requests exactly its columns, because Spark prunes no columns of a Python source. The default therefore has the
columns that most queries need and costs no more than those of Kafka's connector. All others must be requested.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from gantrymq.errors import ConfigError

ALL = "all"
DEFAULT = ("topic", "queue_id", "queue_offset", "body", "tags", "store_timestamp")
_PROPERTIES = "properties"


class Column(NamedTuple):
    """The name and type of a column, and whether it can be null."""

    name: str
    type: DataType
    nullable: bool = False


COLUMNS = (
    Column("topic", StringType()),
    Column("broker", StringType(), True),
    Column("queue_id", IntegerType()),
    Column("queue_offset", LongType()),
    Column("body", BinaryType()),
    Column("tags", StringType(), True),
    Column("keys", ArrayType(StringType())),
    Column("properties", MapType(StringType(), StringType())),
    Column("msg_id", StringType()),
    Column("born_timestamp", TimestampType(), True),
    Column("store_timestamp", TimestampType(), True),
    Column("born_host", StringType()),
    Column("store_host", StringType()),
    Column("flag", IntegerType()),
    Column("sys_flag", IntegerType()),
    Column("reconsume_times", IntegerType()),
    Column("phy_offset", LongType()),
    Column("size", IntegerType()),
    Column("body_crc", IntegerType()),
)
# Columns of a read with the option ``pending``.
PENDING_COLUMNS = (
    Column("pending_kind", StringType()),
    Column("pending_topic", StringType()),
    Column("pending_queue_id", IntegerType()),
    Column("pending_due", TimestampType(), True),
    Column("pending_count", IntegerType()),
)
_PENDING = frozenset(column.name for column in PENDING_COLUMNS)
_BY_NAME = {column.name: column for column in (*COLUMNS, *PENDING_COLUMNS)}


def default_schema(
    columns: Collection[str] | None = None, *, properties: bool | None = None, pending: bool = False
) -> StructType:
    """The schema of a read without one: ``columns`` of the option of that name, or DEFAULT. Raises ConfigError.

    ``properties`` adds or removes that column; None leaves it to ``columns``. ``pending`` is the option of that name,
    which has columns of its own.
    """
    further = _PENDING if pending else frozenset()
    names = {*DEFAULT, *further} if columns is None else set(columns)
    if columns is not None and ALL in names:
        names = (_BY_NAME.keys() - _PENDING) | further
    elif columns is not None:
        for name in columns:
            if name not in _BY_NAME:
                raise ConfigError("columns", name, f"{ALL}, or columns separated by commas: {_nearest(name)}")
            _require_pending(name, pending=pending)
    if properties is not None:
        names = names | {_PROPERTIES} if properties else names - {_PROPERTIES}
    shown = [column for column in _BY_NAME.values() if column.name in names]
    # A DDL text would not do: its ``timestamp`` means whatever the session's spark.sql.timestampType says.
    return StructType([StructField(column.name, column.type) for column in shown])


def _require_pending(name: str, *, pending: bool) -> None:
    if name in _PENDING and not pending:
        raise ConfigError("columns", name, "the option pending=true beside it, which only a batch has")


def _nearest(name: str) -> str:
    return ", ".join(get_close_matches(name, _BY_NAME, 3) or _BY_NAME)


def check_schema(schema: StructType, *, pending: bool = False) -> None:
    """Raise ConfigError if ``schema`` has an unknown column, or one of another type.

    Columns of the option ``pending`` are known with that option alone.
    """
    if not schema.fields:
        raise ConfigError("schema", "", "at least one column")
    for field in schema.fields:
        column = _BY_NAME.get(field.name)
        shown = f"{field.name} {field.dataType.simpleString()}"
        if column is None:
            raise ConfigError("schema", shown, f"no such column; there is {_nearest(field.name)}")
        _require_pending(field.name, pending=pending)
        # The simple string omits nulls inside of arrays and maps, which never occur.
        if field.dataType.simpleString() != column.type.simpleString():
            # A name of the type that is the same in every session.
            kind = "timestamp_ltz" if column.type == TimestampType() else column.type.simpleString()
            raise ConfigError("schema", shown, f"the column is {column.name} {kind}")
        if column.nullable and not field.nullable:
            raise ConfigError("schema", f"{shown} NOT NULL", "the column can be null")
