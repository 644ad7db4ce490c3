"""Lines of a message's body for people: indented JSON, text, or hexadecimal."""

from __future__ import annotations

from collections.abc import Iterator

from gantrymq.format.body_text import HEX_SHOWN_BYTES, body_text, hex_lines, indented_json


def body_lines(body: bytes) -> Iterator[str]:
    """The lines of the body for people."""
    text = body_text(body)
    if text is not None:
        yield from (indented_json(text) or text).splitlines()
        return
    yield from hex_lines(body)
    if len(body) > HEX_SHOWN_BYTES:
        yield f"… and {len(body) - HEX_SHOWN_BYTES} bytes more (--body writes all)"
