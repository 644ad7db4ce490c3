"""Times, counts and foreign texts for people, on a terminal and on a page.

A topic, a key or a file name may hold any character, including escape sequences, line ends and marks that change the
direction of writing. :func:`escape_controls` replaces each of them by a dot.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_LAST_MS = 253_402_300_799_999  # the end of the year 9999
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_SEPARATORS_AND_DIRECTIONS = (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_SHOWN_AS = dict.fromkeys((*_CONTROLS, *_SEPARATORS_AND_DIRECTIONS), "·")


def escape_controls(text: str) -> str:
    """``text`` with a dot for each character that a terminal would interpret instead of showing."""
    return text.translate(_SHOWN_AS)


def time_text(timestamp_ms: int) -> str:
    """Local time in ms with its offset from UTC; ``never`` for 0; the bare number if it is no possible time."""
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


def cut_text(text: str, max_characters: int, *, more: bool = False) -> str:
    """Cut a text to ``max_characters``, the last of which is then "…". ``more``: the text is itself a beginning."""
    return (
        f"{text[: max_characters - 1]}…"
        if len(text) > max_characters or (more and len(text) >= max_characters)
        else text
    )
