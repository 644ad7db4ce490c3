"""Spans of time as texts: a number with its unit."""

from __future__ import annotations

import re

from gantrymq.model.java import LONG_MAX, parse_number

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WORDS = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "day": "d"}
_UNITS_OF_DELAYS = "smhd"
MAX_DELAY_MS = LONG_MAX // 2  # added to a store time it is still a valid time
_SPAN = re.compile(r"([0-9]+)(\s*)([a-z]*)")


def parse_span_ms(text: str, *, default_unit: str = "", accepts_words: bool = False) -> int | None:
    """``500ms``, ``10s``, ``5m``, ``2h`` or ``1d`` in milliseconds; None for another text.

    ``default_unit`` is that of a bare number. ``accepts_words``: also ``2 minutes``, ``1 day``.
    """
    match = _SPAN.fullmatch(text)
    if match is None or (match[2] and not accepts_words):
        return None
    unit = match[3] or default_unit
    if accepts_words and unit not in _UNITS_MS:
        unit = unit.removesuffix("s")
        unit = _WORDS.get(unit, unit)
    return int(match[1]) * _UNITS_MS[unit] if unit in _UNITS_MS else None


def parse_delay_ms(word: str) -> int | None:
    """A delay of messageDelayLevel in milliseconds, as RocketMQ reads it; None if it is not one."""
    if word[-1:] not in tuple(_UNITS_OF_DELAYS):
        return None
    try:
        delay_ms = parse_number(word[:-1], LONG_MAX) * _UNITS_MS[word[-1]]
    except ValueError:
        return None
    return delay_ms if 0 <= delay_ms <= MAX_DELAY_MS else None
