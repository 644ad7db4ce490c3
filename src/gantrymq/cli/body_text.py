"""The body of a message for people: indented JSON, text, or hexadecimal."""

from __future__ import annotations

from collections.abc import Iterator

_HEX_SHOWN = 4096
_BYTES_A_LINE = 16


def body_lines(body: bytes) -> Iterator[str]:
    """The lines of the body for people."""
    text = body_text(body)
    if text is None:
        yield from _hex_lines(body)
        return
    yield from (_pretty(text) or text).splitlines()


def _pretty(text: str) -> str | None:
    """Indented JSON; None if the text is not JSON, or if indenting would change more than white space."""
    import json

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


def body_text(body: bytes) -> str | None:
    """The body as text; None if it is not UTF-8 or has control characters."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if any(ord(one) < 0x20 and one not in "\t\n\r" for one in text) else text


def _hex_lines(body: bytes) -> Iterator[str]:
    """The first 4 KiB in the format of ``hexdump -C``."""
    for at in range(0, min(len(body), _HEX_SHOWN), _BYTES_A_LINE):
        part = body[at : at + _BYTES_A_LINE]
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        yield f"{at:08x}  {part.hex(' '):<{3 * _BYTES_A_LINE - 1}}  |{shown}|"
    if len(body) > _HEX_SHOWN:
        yield f"… and {len(body) - _HEX_SHOWN} bytes more (--body writes all)"
