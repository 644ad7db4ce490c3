"""Where to begin and to end in a queue: ``-o beginning | end | OFFSET | -N | @TIME | e@TIME | stored``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto

import typer

from gantrymq.cli.options import count, moment_ms, require_range


class PositionKind(Enum):
    """The meaning of ``value`` of a :class:`Position`."""

    BEGINNING = auto()  # nothing
    END = auto()  # nothing
    OFFSET = auto()
    TAIL = auto()  # a number of entries before the end
    TIME = auto()  # milliseconds
    UNTIL = auto()  # milliseconds: end before the first message stored then or later


_WORDS = {"beginning": PositionKind.BEGINNING, "end": PositionKind.END, "stored": None}


@dataclass(frozen=True, slots=True)
class Position:
    """One position of a queue."""

    kind: PositionKind
    value: int = 0

    def offset(self, low: int, high: int, at_time: Callable[[int], int]) -> int:
        """The offset in a queue from ``low`` to ``high``; ``at_time`` finds the first offset stored at a time."""
        match self.kind:
            case PositionKind.BEGINNING:
                return low
            case PositionKind.END:
                return high
            case PositionKind.TAIL:
                return max(low, high - self.value)
            case PositionKind.OFFSET:
                return self.value
            case PositionKind.TIME | PositionKind.UNTIL:
                return at_time(self.value)


@dataclass(frozen=True, slots=True)
class PositionSpan:
    """The begin, and the time of the end. Both are optional."""

    begin: Position | None = None
    until_ms: int | None = None


def read_span(texts: Iterable[str]) -> PositionSpan:
    """The positions of all ``-o``: at most one begin and one end. Raises BadParameter."""
    begin: Position | None = None
    until_ms: int | None = None
    for text in texts:
        if text.startswith("e@"):
            if until_ms is not None:
                raise typer.BadParameter("-o e@TIME is given twice")
            until_ms = moment_ms(text[2:])
            continue
        if begin is not None:
            raise typer.BadParameter(f"-o {text}: another -o says where to begin")
        begin = _begin(text)
    if begin is not None and begin.kind is PositionKind.TIME:
        require_range(begin.value, until_ms, ("-o @", "-o e@"))
    return PositionSpan(begin, until_ms)


def _begin(text: str) -> Position | None:
    if text in _WORDS:
        kind = _WORDS[text]
        return None if kind is None else Position(kind)
    if text.startswith(("@", "s@")):
        return Position(PositionKind.TIME, moment_ms(text.partition("@")[2]))
    try:
        if text.startswith("-"):
            return Position(PositionKind.TAIL, count(text[1:]))
        return Position(PositionKind.OFFSET, count(text))
    except typer.BadParameter:
        allowed = "beginning, end, stored, an offset, -N, @TIME or e@TIME"
        raise typer.BadParameter(f"-o {text!r} is not {allowed}") from None
