"""The body of a message for people: text, indented JSON, or hexadecimal."""

from __future__ import annotations

import json
from collections.abc import Iterator

from gantrymq.model.texts import cut_text

HEX_SHOWN_BYTES = 4096
_BYTES_A_LINE = 16


def body_text(body: bytes) -> str | None:
    """The body as text; None if it is not UTF-8 or has control characters."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if any(ord(character) < 0x20 and character not in "\t\n\r" for character in text) else text


def indented_json(text: str) -> str | None:
    """Indented JSON; None if the text is not JSON, or if indenting would change more than white space."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = json.loads(text, parse_float=_float, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        return None
    return json.dumps(value, indent=2, ensure_ascii=False)


def _float(text: str) -> float:
    """A number that prints as it was written. Raises ValueError for any other."""
    if repr(float(text)) != text:
        raise ValueError(text)
    return float(text)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def hex_lines(body: bytes) -> Iterator[str]:
    """The first ``HEX_SHOWN_BYTES`` in the format of ``hexdump -C``."""
    for at in range(0, min(len(body), HEX_SHOWN_BYTES), _BYTES_A_LINE):
        part = body[at : at + _BYTES_A_LINE]
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        yield f"{at:08x}  {part.hex(' '):<{3 * _BYTES_A_LINE - 1}}  |{shown}|"


def body_beginning(body: bytes, length: int, max_characters: int) -> str | None:
    """The first ``max_characters`` characters of a body of ``length`` bytes; None if they are not text.

    A text that is cut ends with "…". ``body`` needs to have only the first ``4 * most`` bytes: a character has at most
    four.
    """
    begin = body[: 4 * max_characters]
    try:
        text = begin.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(begin) - 3 or length <= len(begin):
            return None
        text = begin[: error.start].decode("utf-8")
    return cut_text(text, max_characters, more=len(begin) < length)
