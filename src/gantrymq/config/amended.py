"""A properties text in which some keys have other values: comments, order and all other lines stay as they are."""

import re
from collections.abc import Iterator, Mapping

from gantrymq.config.properties import BLANKS, parse_properties

_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_SPECIAL = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def amended(text: str, entries: Mapping[str, str]) -> str:
    """``text`` with ``entries`` in it: each in the place of the line that had its key, or at the end.

    Of several lines with one key the last had won; one is left. :func:`parse_properties` reads back what was put in.
    """
    left, lines = dict(entries), []
    for line in _entry_lines(text):
        key = next(iter(parse_properties(line)), None)
        if key not in entries:
            lines.append(line)
        elif key is not None and key in left:
            lines.append(_line(key, left.pop(key)))
    if lines and not lines[-1].endswith(("\n", "\r")):
        lines[-1] += "\n"
    if lines and _goes_on(lines[-1]):
        lines[-1] = lines[-1].rstrip("\r\n") + "\n\n"
    return "".join([*lines, *(_line(*entry) for entry in left.items())])


def _entry_lines(text: str) -> Iterator[str]:
    """The lines, those that a backslash continues together with the next."""
    pending = ""
    for line in _LINES.findall(text):
        pending += line
        if pending and (not line or not _goes_on(pending)):
            yield pending
            pending = ""


def _goes_on(lines: str) -> bool:
    """Whether the last line of an entry ends in a backslash of its own."""
    last = _LINES.findall(lines)[-2].rstrip("\r\n")
    return lines.lstrip(BLANKS)[:1] not in ("#", "!") and (len(last) - len(last.rstrip("\\"))) % 2 == 1


def _line(key: str, value: str) -> str:
    escaped = "".join(_SPECIAL.get(char, char) for char in value)
    if escaped.startswith(" "):
        escaped = "\\" + escaped
    return f"{key}={escaped}\n"
