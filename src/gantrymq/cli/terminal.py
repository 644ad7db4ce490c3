"""Output for people: lines, tables and progress bars, and one line on stderr for an error or a warning.

A topic, a key or a file name may hold any character. Every control character is printed as a dot
(:func:`gantrymq.model.texts.escape_controls`).

rich is imported only when a table or a bar is printed: the plain command lines of recovery and rebuild start without
it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gantrymq.model.texts import escape_controls

if TYPE_CHECKING:
    from rich.console import Console


def print_line(text: str) -> None:
    """Print one line on stdout."""
    print(escape_controls(text))


DONE = 0
FINDINGS = 1
USAGE = 2
CANNOT = 3
UNREADABLE_HELP = (
    "`gantrymq store verify` lists what cannot be read, `gantrymq store salvage` makes a new store of the rest"
)


def print_error(text: str) -> None:
    """Print one line on stderr. Line ends in ``text`` become spaces."""
    line = escape_controls(" ".join(text.split()))
    print(f"gantrymq: {line}", file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Print a warning on stderr; the command continues."""
    print_error(f"warning: {text}")


def is_unreadable(error: Exception) -> bool:
    """Whether the error is an unreadable part of a file, or a directory that cannot be listed."""
    from gantrymq.errors import DiskError, SyncFailedError

    if not isinstance(error, DiskError) or isinstance(error, SyncFailedError):
        return False
    try:
        return error.position is not None or error.path.is_dir()
    except OSError:  # nor can the path be examined
        return True


_WIDTH_IN_A_FILE = 160


def console() -> Console:
    """A console for tables: as wide as the terminal, or wide enough for most tables if stdout is a file or a pipe."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH_IN_A_FILE
    return Console(width=width, highlight=False, markup=False, emoji=False)


def print_pairs(title: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Print a title, and (name, value) pairs below it."""
    if not sys.stdout.isatty():  # importing rich for styles takes a fifth of a short command's time
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
        grid.add_row(f"  {name}", escape_controls(value))
    out = console()
    out.print(escape_controls(title), style="bold")
    out.print(grid)


_UNBROKEN = 16


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table. Columns whose name begins with ``>`` are right-aligned numbers.

    If the terminal is too narrow for it, each row is a block of lines, one for each column: rich would shrink columns
    to a letter, or drop them.
    """
    from rich import box
    from rich.table import Table

    out, cells = console(), [[escape_controls(cell) for cell in row] for row in rows]
    if _least_width(columns, cells) > out.width:
        _print_blocks([name.lstrip(">") for name in columns], cells)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in columns:
        number = name.startswith(">")
        table.add_column(name.lstrip(">"), justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in cells:
        table.add_row(*row)
    out.print(table)


def _least_width(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    """The characters that a table needs to be readable: numbers in one line, words of up to 16 characters whole."""
    width = 3 * len(columns)  # what separates columns
    for column, name in enumerate(columns):
        texts = [name.lstrip(">"), *(row[column] for row in cells)]
        if name.startswith(">"):
            width += max(map(len, texts))
        else:
            width += min(_UNBROKEN, max((len(word) for text in texts for word in text.split()), default=0))
    return width


def _print_blocks(names: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    width = max(map(len, names))
    for number, row in enumerate(cells):
        if number:
            print()
        for name, cell in zip(names, row, strict=True):
            if cell:
                print(f"{name:<{width}}  {cell}")


Report = Callable[[str, int, int], None]

_STEPS = {"recoverCommitLog": "Reading the commit log"}
_REDRAW_EVERY = 0.1


@contextmanager
def progress(unit: str = "bytes", *, shown: bool = True) -> Iterator[Report | None]:
    """Yield ``report(step, done, total)``, which draws a bar for each step; None without a terminal.

    ``unit`` is what is counted: bytes, or another noun. A total of 0 is unknown. A bar and lines of output must not
    share a terminal, so pass ``shown=False`` if both would. A finished step is shown as complete, because the part
    after the last record of a log is never reported.
    """
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    amount = DownloadColumn(binary_units=True) if unit == "bytes" else TextColumn("{task.completed:,.0f}")
    columns = (TextColumn("{task.description}"), BarColumn(), amount, _rate_column(unit), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    bars = Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=1 / _REDRAW_EVERY)

    def finish() -> None:
        for task in bars.tasks:
            if task.total is not None:
                bars.update(task.id, completed=task.total)

    def report(step: str, done: int, total: int) -> None:
        if step not in tasks:
            finish()
            tasks[step] = bars.add_task(_STEPS.get(step, step), total=None)
        bars.update(tasks[step], completed=done, total=total or None)

    with bars:
        yield report
        finish()


def _rate_column(unit: str):  # type: ignore[no-untyped-def]
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    from gantrymq.model.size import size_text

    class Rate(ProgressColumn):
        """The units done per second."""

        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed or 0.0
            return Text(f"{size_text(speed)}/s" if unit == "bytes" else f"{speed:,.0f} {unit}/s", style="cyan")

    return Rate()
