"""A body as a page shows it: as text, as indented JSON, or as hexadecimal; the first part of a large one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from gantrymq.console.rendering import lines
from gantrymq.format.body_text import HEX_SHOWN_BYTES, body_beginning, body_text, hex_lines, indented_json
from gantrymq.model.size import size_text

TEXT, JSON, HEX = "text", "json", "hex"
VIEWS = (TEXT, JSON, HEX)
SHOWN_CHARACTERS = 64 << 10
_ONE_LINE = str.maketrans("\t\n\r", "   ")
_MAX_JSON_BYTES = 2 << 20  # parsing and indenting more takes too long for a page


@dataclass(frozen=True)
class BodyView:
    """A body in one of its views. ``note`` says what is not shown, ``others`` are the views that are possible."""

    view: str
    views: Sequence[str]
    size_bytes: int
    shown: Markup
    note: str


def body_view(body: bytes, wanted: str = "") -> BodyView:
    """The body as ``wanted``; without it, or if that is not possible, as JSON, else as text, else as hexadecimal."""
    text, plain = _decoded(body), body_text(body)
    json = indented_json(plain) if plain is not None and len(body) <= _MAX_JSON_BYTES else None
    views = [name for name, possible in ((JSON, json), (TEXT, text), (HEX, "")) if possible is not None]
    if text is not None and "\0" in text:
        views.reverse()  # binary data that happens to be UTF-8
    view = wanted if wanted in views else views[0]
    if not body:
        return BodyView(view, views, 0, Markup(""), "The body is empty.")
    if view == HEX:
        note = _note(HEX_SHOWN_BYTES, len(body), "bytes") if len(body) > HEX_SHOWN_BYTES else ""
        return BodyView(view, views, len(body), lines("\n".join(hex_lines(body))), note)
    whole = (json if view == JSON else text) or ""
    note = f"The first {SHOWN_CHARACTERS:,} of {len(whole):,} characters." if len(whole) > SHOWN_CHARACTERS else ""
    return BodyView(view, views, len(body), lines(whole[:SHOWN_CHARACTERS]), note)


def _decoded(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _note(shown: int, total: int, unit: str) -> str:
    return f"The first {shown:,} of {total:,} {unit} ({size_text(total)})."


def beginning(body: bytes, max_characters: int = 80) -> str:
    """The beginning of a body in one line of a table: text, or hexadecimal."""
    text = body_beginning(body, len(body), max_characters)
    if text is not None and "\0" not in text:
        return text.replace("\r\n", " ").translate(_ONE_LINE)
    shown = body[: max_characters // 3].hex(" ")
    return f"{shown} …" if len(body) > max_characters // 3 else shown
