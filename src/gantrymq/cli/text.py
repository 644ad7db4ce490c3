"""Output for people: tables, and numbers as one says them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from gantrymq.cli.lines import harmless, print_line

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH_IN_A_FILE = 160
_LAST_MS = 253_402_300_799_999  # the end of the year 9999


def time_text(timestamp_ms: int) -> str:
    """Local time to the millisecond, with its offset from UTC; ``never`` for 0, the bare number where it is no time."""
    if timestamp_ms == 0:
        return "never"
    if not 0 < timestamp_ms <= _LAST_MS:
        return str(timestamp_ms)
    moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC).astimezone()
    return (moment + timedelta(milliseconds=timestamp_ms % 1000)).isoformat(" ", "milliseconds")


def span_text(duration_ms: float) -> str:
    """12.3 → ``12 ms``, 61_000 → ``61.0 s``."""
    return f"{duration_ms:.0f} ms" if duration_ms < 1000 else f"{duration_ms / 1000:.1f} s"


def count_text(count: int, noun: str) -> str:
    """(1, "file") → ``1 file``, (2000, "file") → ``2,000 files``; "entry" gives "entries"."""
    plural = noun if count == 1 else f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{count:,} {plural}"


def console() -> Console:
    """Where tables go: as wide as the terminal; wide enough for most tables where stdout is a file or a pipe."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH_IN_A_FILE
    return Console(width=width, highlight=False, markup=False, emoji=False)


def print_pairs(title: str, pairs: Iterable[tuple[str, str]]) -> None:
    """A heading, and below it what is what."""
    if not sys.stdout.isatty():  # nobody sees styles, and to import rich takes a fifth of a short command's time
        rows = list(pairs)
        width = max((len(name) for name, _ in rows), default=0)
        for line in (title, *(f"  {name:{width}}  {value}".rstrip() for name, value in rows)):
            print_line(line)
        return
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(f"  {name}", harmless(value))
    out = console()
    out.print(harmless(title), style="bold")
    out.print(grid)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table; columns whose name begins with ``>`` are numbers and stand to the right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in columns:
        number = name.startswith(">")
        table.add_column(name.lstrip(">"), justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in rows:
        table.add_row(*map(harmless, row))
    console().print(table)
