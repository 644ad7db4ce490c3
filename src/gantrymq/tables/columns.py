"""The columns of a table of messages, of its dead rows, and of its account.

Every column may be null, because a null in a column that forbids it ends a job of Spark with an error of the JVM.
"""

from __future__ import annotations

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", "UTC")
DEAD, AUDIT = "__dead", "__audit"
"""The suffixes of the tables beside a table."""

ORIGIN_TOPIC = "origin_topic"
COMPRESSION = "landed_compression"
"""The column of dead rows whose bodies could not be decompressed."""

_KEYS = pa.list_(pa.field("element", pa.string()))
_MESSAGE = (
    pa.field("broker", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("queue_id", pa.int32()),
    pa.field("queue_offset", pa.int64()),
    pa.field("generation", pa.int32()),
    pa.field("msg_id", pa.string()),
    pa.field("keys", _KEYS),
    pa.field("tags", pa.string()),
    pa.field("properties", pa.map_(pa.string(), pa.string())),
    pa.field("born_timestamp", TIMESTAMP),
    pa.field("store_timestamp", TIMESTAMP),
)
_NOT_IN_DEAD = ("msg_id", "keys", "tags", "properties", "born_timestamp", ORIGIN_TOPIC)

DEAD_SCHEMA = pa.schema(
    [
        *(_MESSAGE[:5]),
        pa.field("store_timestamp", TIMESTAMP),
        pa.field("body", pa.binary()),
        pa.field("reason", pa.string()),
        pa.field("schema_version", pa.string()),
        # The rest of the message, from which `table retry` makes its row.
        *(field.with_name(f"landed_{field.name}") for field in _MESSAGE if field.name in _NOT_IN_DEAD),
        pa.field(f"landed_{ORIGIN_TOPIC}", pa.string()),
        # Null for a body that is not compressed; else the bits of sysFlag that say how it is.
        pa.field(COMPRESSION, pa.int32()),
    ]
)
AUDIT_SCHEMA = pa.schema(
    [
        pa.field("broker", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("queue_id", pa.int32()),
        pa.field("from_offset", pa.int64()),
        pa.field("to_offset", pa.int64()),
        pa.field("phy_offset", pa.int64()),
        pa.field("phy_end", pa.int64()),
        pa.field("reason", pa.string()),
    ]
)


def message_schema(*, has_origin: bool) -> pa.Schema:
    """The columns in front of the body's."""
    return pa.schema([*_MESSAGE, *([pa.field(ORIGIN_TOPIC, pa.string())] if has_origin else [])])


def table_schema(bodies: pa.Schema, *, has_origin: bool) -> pa.Schema:
    """The columns of a table whose bodies become ``bodies``."""
    message = message_schema(has_origin=has_origin)
    names = column_names(bodies, has_origin=has_origin)
    columns = [field.with_name(name).with_nullable(True) for field, name in zip(bodies, names, strict=True)]
    return pa.schema([*message, *columns])


def column_names(bodies: pa.Schema, *, has_origin: bool) -> list[str]:
    """The names of the body's columns in a table.

    A field that is called like a column of the message, or like another field in another case, gets the prefix
    ``body_``: the names of a table's columns differ in more than case.
    """
    used = {name.lower() for name in message_schema(has_origin=True).names}
    names = []
    for name in bodies.names:
        shown = name
        while shown.lower() in used:
            shown = f"body_{shown}"
        used.add(shown.lower())
        names.append(shown)
    return names


def dead_from_message(
    message: pa.RecordBatch, bodies: pa.Array, reasons: pa.Array, version: str, compressions: pa.Array | None = None
) -> pa.RecordBatch:
    """Dead rows of messages whose bodies do not fit; ``message`` has the columns in front of the body's.

    ``compressions`` are the values of the column ``landed_compression``: None if no body is compressed.
    """
    columns = {name: message.column(name) for name in message.schema.names}
    columns |= {f"landed_{name}": column for name, column in columns.items()}
    columns |= {"body": bodies, "reason": reasons, "schema_version": pa.repeat(version, message.num_rows)}
    if compressions is not None:
        columns[COMPRESSION] = compressions
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(message.num_rows, field.type)
        for field in DEAD_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=DEAD_SCHEMA)


def message_from_dead(dead: pa.RecordBatch, *, has_origin: bool) -> pa.RecordBatch:
    """The columns in front of the body's: the reverse of :func:`dead_from_message`."""
    schema = message_schema(has_origin=has_origin)
    names = [field.name if field.name in dead.schema.names else f"landed_{field.name}" for field in schema]
    return pa.RecordBatch.from_arrays([dead.column(name) for name in names], schema=schema)
