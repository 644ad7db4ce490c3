"""The columns of ``format("rocketmq")``, in the order of the default schema.

A schema of fewer columns, in any order, is a request to decode no others: Spark itself prunes nothing for a Python
source.
"""

from __future__ import annotations

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


class Column(NamedTuple):
    """One column: its name and type, and whether it can be null."""

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
_PROPERTIES = "properties"
_BY_NAME = {column.name: column for column in COLUMNS}


def default_schema(*, properties: bool = True) -> StructType:
    """All columns, with or without ``properties``, which costs the most.

    In words, ``timestamp`` would be what the session's spark.sql.timestampType says.
    """
    shown = [column for column in COLUMNS if properties or column.name != _PROPERTIES]
    return StructType([StructField(column.name, column.type) for column in shown])


def check_schema(schema: StructType) -> None:
    """Raise ConfigError where ``schema`` names a column that is not there, or one of another type."""
    if not schema.fields:
        raise ConfigError("schema", "", "at least one column")
    for field in schema.fields:
        column = _BY_NAME.get(field.name)
        shown = f"{field.name} {field.dataType.simpleString()}"
        if column is None:
            nearest = get_close_matches(field.name, _BY_NAME, 3) or list(_BY_NAME)
            raise ConfigError("schema", shown, f"no such column; there is {', '.join(nearest)}")
        # The simple string says nothing about nulls inside of arrays and maps: there never are any.
        if field.dataType.simpleString() != column.type.simpleString():
            # The name of the type that it has in every session.
            kind = "timestamp_ltz" if column.type == TimestampType() else column.type.simpleString()
            raise ConfigError("schema", shown, f"the column is {column.name} {kind}")
        if column.nullable and not field.nullable:
            raise ConfigError("schema", f"{shown} NOT NULL", "the column can be null")
