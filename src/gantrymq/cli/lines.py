"""Lines for people, whatever the names and texts in them hold.

A topic, a key or the name of a file may hold anything, also what a terminal obeys: escape sequences, ends of lines, and
marks that turn the direction of writing.
"""

from __future__ import annotations

_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_SEPARATORS_AND_DIRECTIONS = (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_SHOWN_AS = dict.fromkeys((*_CONTROLS, *_SEPARATORS_AND_DIRECTIONS), "·")


def harmless(text: str) -> str:
    """``text`` with a dot for each character that a terminal would obey and not show."""
    return text.translate(_SHOWN_AS)


def print_line(text: str) -> None:
    """One line on stdout."""
    print(harmless(text))
