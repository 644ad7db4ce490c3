"""Telling what a long command does as it happens: lines for people, or JSON objects that are written at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Tell = Callable[[dict[str, Any]], None]


@contextmanager
def telling(print_: Tell, *, json: bool) -> Iterator[Tell]:
    """Yield what tells an event: ``print_``, or with ``json`` a writer of one object a line.

    The writer raises BrokenPipeError if the reader of stdout is gone.
    """
    if not json:
        yield print_
        return
    from gantrymq.cli.json_lines import JsonLines

    with JsonLines() as lines:

        def write(fields: dict[str, Any]) -> None:
            lines.write(fields)
            lines.flush()

        yield write
