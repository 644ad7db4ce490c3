"""Progress bars on stderr, with rate and time left; nothing at all where stderr is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str, int, int], None]

_STEPS = {"recoverCommitLog": "Reading the commit log"}
_REDRAW_EVERY = 0.1


@contextmanager
def progress(unit: str = "bytes", *, shown: bool = True) -> Iterator[Report | None]:
    """Gives ``report(step, done, total)``, which draws a bar for each step, or None where nobody would see it.

    ``unit`` is what is counted: bytes, or the noun of something else. A total of 0 is not known. A bar and lines of
    output do not share a terminal well: ``shown`` is False where both would go to one. A step that is over is shown as
    done, whatever was reported last: what is behind the last record of a log is never reported.
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
        """How much of the unit is done in a second."""

        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed or 0.0
            return Text(f"{size_text(speed)}/s" if unit == "bytes" else f"{speed:,.0f} {unit}/s", style="cyan")

    return Rate()
