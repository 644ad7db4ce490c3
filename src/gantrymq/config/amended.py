"""Changes some keys of a properties text; comments, order and all other lines stay."""

import re
from collections.abc import Iterator, Mapping

from gantrymq.config.properties import BLANKS, parse_properties

_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_SPECIAL = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def amended(text: str, entries: Mapping[str, str]) -> str:
    """``text`` with ``entries``: each replaces the line of its key, or is appended.

    Of several lines with one key only one is left. :func:`parse_properties` reads the entries back.
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
    """The lines; a line that ends with a backslash is joined with the next."""
    pending = ""
    for line in _LINES.findall(text):
        pending += line
        if pending and (not line or not _goes_on(pending)):
            yield pending
            pending = ""


def _goes_on(lines: str) -> bool:
    """Whether the last line of an entry ends with an unescaped backslash."""
    last = _LINES.findall(lines)[-2].rstrip("\r\n")
    return lines.lstrip(BLANKS)[:1] not in ("#", "!") and (len(last) - len(last.rstrip("\\"))) % 2 == 1


def _line(key: str, value: str) -> str:
    escaped = "".join(_SPECIAL.get(char, char) for char in value)
    if escaped.startswith(" "):
        escaped = "\\" + escaped
    return f"{key}={escaped}\n"
