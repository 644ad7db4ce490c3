"""The arguments and options that all ``store`` commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from gantrymq.model.java import INT_MAX, LONG_MAX

# readable=False: typer would call an unreadable directory a usage error. Opening it reports the real error.
Store = Annotated[
    Path, typer.Argument(metavar="STORE", help="Directory of the store.", show_default=False, readable=False)
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "-c", "--config", metavar="FILE", exists=True, dir_okay=False, help="A broker.conf to take settings from."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A RocketMQ key; wins over broker.conf. May be given more than once."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


def whole_number(minimum: int, maximum: int = LONG_MAX) -> Callable[[str], int]:
    """A parser of numbers that are an int or a long in RocketMQ. Typer's own bounds would fill the help with digits."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = maximum + 1
        if not minimum <= value <= maximum:
            raise typer.BadParameter(f"{text!r} is not a whole number from {minimum} to {maximum}")
        return value

    return number


queue_number = whole_number(0, INT_MAX)
count = whole_number(0)
time_ms = whole_number(-LONG_MAX)


def moment_ms(text: str) -> int:
    """A parser of times: milliseconds since 1970, or ISO 8601, in UTC if no zone is given. Returns milliseconds."""
    text = str(text)  # a default is a number
    if text.removeprefix("-").isdecimal() and text.isascii():
        return time_ms(text)
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        allowed = "milliseconds, or a time like 2026-11-01 or 2026-11-01T08:30:00+01:00"
        raise typer.BadParameter(f"{text!r} is not {allowed}") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def require_range(
    begin: int | None, end: int | None, names: tuple[str, str] = ("--begin", "--end"), *, includes_end: bool = False
) -> None:
    """Raise a usage error with both values if no time in milliseconds is in the range. None is no limit."""
    if begin is not None and end is not None and begin >= end + includes_end:
        from gantrymq.model.texts import time_text

        first, last = (f"{moment} ({time_text(moment)})" for moment in (begin, end))
        raise typer.BadParameter(f"{names[0]}={first} is not before {names[1]}={last}: no message is in this time")


Begin = Annotated[
    int | None,
    typer.Option(
        "--begin", metavar="TIME", parser=moment_ms, help="Stored at this time or later: ms, or ISO 8601 (UTC)."
    ),
]
End = Annotated[int | None, typer.Option("--end", metavar="TIME", parser=moment_ms, help="Stored before this time.")]
