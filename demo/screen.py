"""The output of the demo: lines with the time, and progress bars that disappear when they are full.

Output that is not a terminal gets no bars, no colours and no wrapped lines, so that it can be read as a log.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskProgressColumn, TextColumn
from rich.text import Text

from demo.audit import Audit
from demo.storing import Recovered
from demo.story import Story
from demo.writer_process import Kill, Life
from gantrymq.clock import Clock


def program(name: str) -> str:
    """The path of ``python`` or ``gantrymq`` in the environment that is running: ``.venv/bin/gantrymq``."""
    return os.path.relpath(Path(sys.executable).with_name(name))


class _Rows(ProgressColumn):
    """Rows done and rows per second; empty for a bar that counts shares."""

    def render(self, task: Task) -> Text:
        """The text after the bar."""
        if not task.total or task.total <= 1:
            return Text("")
        speed = f"  {task.speed:,.0f}/s" if task.speed else ""
        return Text(f"{task.completed:,.0f} of {task.total:,.0f}{speed}", style="cyan")


class Screen:
    """Prints on ``console``; every line begins with the seconds since the screen was made."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self.console = console
        self._clock = clock
        self._began_s = clock.monotonic_s()

    def title(self, text: str) -> None:
        """Print the heading of the next step."""
        self.console.print(f"\n[bold]{escape(text)}[/bold]", highlight=False)

    def say(self, text: str, style: str = "") -> None:
        """Print one line (rich markup)."""
        elapsed = f"[dim]{self._clock.monotonic_s() - self._began_s:6.1f} s[/dim]"
        body = f"[{style}]{text}[/{style}]" if style else text
        self.console.print(f"{elapsed}  {body}", highlight=False, soft_wrap=True)

    def done(self, text: str) -> None:
        """Print one line for a check that passed."""
        self.say(f"[green]✓[/green] {text}")

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Callable[[float], None]]:
        """Show a bar for one step. Call the yielded function with the part of ``total`` that is done."""
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            _Rows(),
        )
        with Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal) as progress:
            task = progress.add_task(what, total=total)
            yield lambda done: progress.update(task, completed=done)

    # The protocol Display of demo.storing

    def wrote(self, number: int, life: Life, kill: Kill | None) -> None:
        """Report the end of a writer."""
        rate = f"{life.rows_per_s:,.0f} a second"
        self.say(
            f"writer {number} (pid {life.pid}) from row {life.first_row:,}: "
            f"{life.acknowledged:,} rows acknowledged, {rate}"
        )
        if kill is not None:
            self.say(
                f"[red]✗ SIGKILL[/red] to pid {life.pid}, {kill.delay_ms:.2f} ms after hearing of row "
                f"{kill.after_row:,}; the last word in its pipe was row {life.acknowledged_row:,}"
            )
        else:
            took = life.ended_s - life.closing_s
            self.say(f"writer {number} dispatched and flushed everything and closed the store in {took:.2f} s")

    def recovered(self, recovered: Recovered) -> None:
        """Report a recovery."""
        report = recovered.report
        self.say(
            f"recovered in {recovered.took_s:.2f} s: {report.scanned_bytes / 1e6:,.1f} MB read with CRC, "
            f"{report.queue_units_added:,} queue entries and {report.index_entries_added:,} index entries rebuilt, "
            f"{report.cut_bytes:,} bytes cut"
        )

    def audited(self, audit: Audit, rows: int) -> None:
        """Report an audit."""
        extra = f" and {audit.unacknowledged:,} that were stored but not acknowledged" if audit.unacknowledged else ""
        onward = f"; storing continues at row {audit.stored:,}" if audit.stored < rows else ""
        self.done(
            f"{audit.stored:,} rows read back, each there once and unchanged: "
            f"all {audit.acknowledged:,} acknowledged{extra}{onward}"
        )

    def summary(self, story: Story) -> None:
        """Print the closing summary."""
        self.title(f"Done in {story.took_s:.1f} s")
        lost = f"{story.rows:,} flights stored, {story.kills} kills, 0 lost, 0 doubled"
        self.console.print(f"  {lost}; {story.numbers:,} numbers of Spark's are those of the input.", highlight=False)
        rows = [("report", story.report), ("store", story.store), ("replay", story.replay)]
        for name, value in rows:
            self.console.print(f"  {name:<7} {value}", highlight=False, soft_wrap=True, markup=False)
        self.console.print("  now try", highlight=False)
        for command in next_commands(story):
            self.console.print(f"    {command}", highlight=False, soft_wrap=True, markup=False)


def next_commands(story: Story) -> list[str]:
    """Commands to try on the store that the run leaves."""
    command, store = program("gantrymq"), str(story.store)
    arguments = (
        ("info", store),
        ("query", store, "flights-JFK", "1545"),
        ("dump", store, "--topic", "flights-LGA", "--queue", "0", "--max", "3"),
        ("recover", store, "--dry-run"),
    )
    return [shlex.join((command, "store", *words)) for words in arguments]
