"""The names of the columns that a body's fields land under.

A table has the columns of the message beside those of the body, and Delta, Iceberg and Spark compare names without
regard to case. The name of a column follows from the name of the field and the fields before it, so it never changes
when fields are added at the end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gantrymq.tables.bodies.errors import SchemaError

MESSAGE_COLUMNS = frozenset(
    {
        *("broker", "topic", "queue_id", "queue_offset", "generation", "msg_id", "keys", "tags", "properties"),
        *("born_timestamp", "store_timestamp", "body", "origin_topic"),
        *("store_timestamp_day", "store_timestamp_hour"),  # Iceberg's partitions by them
        # Spark refuses an Iceberg table with a column that is called like one of Iceberg's own.
        *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
    }
)
PREFIX = "body_"  # of a field that is called like a column of the message, or begins with LANDED
LANDED = "landed_"
"""The prefix of the columns that a landing adds: those of partitions, and of dead rows."""
MAX_NAME_CHARACTERS = 128

# Delta without column mapping refuses the first of them, and a point or a back-tick needs quotes in every query.
_REFUSED = re.compile(r"[\x00-\x20\x7f,;{}()=.`]")


def column_names(keys: Sequence[str], path: str, source: str, *, renames_doubles: bool = False) -> list[str]:
    """The columns of the fields of one object, in their order. ``path`` is empty for the body itself.

    Two fields may not share a column. With ``renames_doubles`` the later one gets a number, as in ``id_2``.

    Raises: SchemaError, which names both fields.
    """
    owners: dict[str, str] = {}
    names = []
    for key in keys:
        name = _REFUSED.sub("_", key) or "_"
        if not path and (name.lower() in MESSAGE_COLUMNS or name.lower().startswith(LANDED)):
            name = PREFIX + name
        if name.lower() in owners:
            if not renames_doubles:
                raise SchemaError(source, _double(owners[name.lower()], key, path))
            name = next(f"{name}_{n}" for n in range(2, len(keys) + 2) if f"{name}_{n}".lower() not in owners)
        owners[name.lower()] = key
        names.append(name)
    return names


def _double(first: str, second: str, path: str) -> str:
    """The text of the error about two fields with one column."""
    where = f" of {path}" if path else ""
    if first == second:
        return f"the schema has the field {first!r}{where} twice"
    why = "differ by case only" if first.lower() == second.lower() else "land under one column"
    return f"the fields {first!r} and {second!r}{where} {why}, which Delta, Iceberg and Spark refuse: rename a field"
