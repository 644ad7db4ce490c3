"""What a partition is made of: the places to read. Made on the driver, pickled, read on executors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogPiece:
    """The records of one commit log file from ``start`` to ``stop``, physical offsets at which records begin.

    ``base`` is the offset of the file's first byte. ``stop`` may also be the end of the file.
    """

    path: str
    base: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class LogRun:
    """Pieces to be read one after the other; ``topics`` are those wanted, None all of them."""

    pieces: tuple[LogPiece, ...]
    topics: frozenset[str] | None = None
