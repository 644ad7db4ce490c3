r"""Backslash escapes in delimiters and format strings, as kcat has them: ``\n \t \r \0 \\ \xNN``."""

from __future__ import annotations

import re

import typer

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|[\s\S]?)")
_PLAIN = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def unescape(text: str) -> bytes:
    """The bytes of a text with its escapes replaced. Raises BadParameter for an unknown escape."""
    parts, at = [], 0
    for match in _ESCAPE.finditer(text):
        parts += [_encoded(text[at : match.start()]), _byte(text, match[1])]
        at = match.end()
    return b"".join([*parts, _encoded(text[at:])])


def delimiter(text: str | bytes) -> bytes:
    """Parse the value of a delimiter option, which has at least one byte. The option's default is already bytes."""
    raw = text if isinstance(text, bytes) else unescape(text)
    if not raw:
        raise typer.BadParameter("a delimiter is not empty")
    return raw


def _byte(text: str, escape: str) -> bytes:
    if escape.startswith("x"):
        if len(escape) == 3:
            return bytes.fromhex(escape[1:])
    elif escape in _PLAIN:
        return _PLAIN[escape]
    raise typer.BadParameter(rf"{text!r}: an escape is one of \n \t \r \0 \\ \xNN")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
