"""``-X KEY=VALUE``: settings of a client by RocketMQ's keys."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Any

import typer

from gantrymq.config.keys import fields_by_key, read_fields
from gantrymq.errors import ConfigError

ClientKeys = Annotated[
    list[str] | None,
    typer.Option("-X", metavar="KEY=VALUE", help="A client's setting by RocketMQ's key, as sendMsgTimeout=10000."),
]


def read_client_keys(kind: type, assignments: Iterable[str] | None) -> dict[str, Any]:
    """The settings of ``-X`` for a client whose settings class is ``kind``, as keywords. Raises ConfigError."""
    known = fields_by_key(kind)
    entries: dict[str, str] = {}
    for assignment in assignments or ():
        key, separator, value = assignment.partition("=")
        if not separator:
            raise ConfigError("-X", assignment, "KEY=VALUE")
        if key not in known:
            close = get_close_matches(key, known, 1)
            raise ConfigError(
                key, value, f"a key of {kind.__name__}; nearest: {close[0] if close else ', '.join(known)}"
            )
        entries[key] = value
    return read_fields(kind, entries)
