"""Records for ``dump``, ``log``, ``query`` and ``show`` as one line of text."""

from __future__ import annotations

from gantrymq.cli.terminal import time_text
from gantrymq.kernels import codes
from gantrymq.model.flags import COMPRESSED
from gantrymq.model.message import PROPERTY_KEYS, PROPERTY_TAGS
from gantrymq.tools.read.record_rows import Record

_PLACE_CHARACTERS = 32
_BODY_CHARACTERS = 60


def heading(place: str = "") -> str:
    """The heading of the lines of :func:`record_text`; ``place`` is the name of its extra column."""
    return f"{'phy offset':>14}  {'size':>8}  {'stored':<29}  {_place(place)}{'tags':<12}  {'keys':<20}  body"


def record_text(record: Record, place: str = "") -> str:
    """A line with physical offset, size, store time, ``place``, tags, keys and the beginning of the body."""
    row, properties = record.row, record.properties
    tags, keys = properties.get(PROPERTY_TAGS, "-"), properties.get(PROPERTY_KEYS, "-")
    return (
        f"{row[codes.PHY_OFFSET]:>14}  {row[codes.SIZE]:>8}  {time_text(row[codes.STORE_TIMESTAMP]):<29}  "
        f"{_place(place)}{_cut(tags, 12):<12}  {_cut(keys, 20):<20}  {_body_text(record)}"
    )


def _place(text: str) -> str:
    """The text of the extra column. A long text is cut at the front, because its end has queue and offset."""
    if len(text) > _PLACE_CHARACTERS:
        text = f"…{text[1 - _PLACE_CHARACTERS :]}"
    return f"{text:<{_PLACE_CHARACTERS}}  " if text else ""


def _body_text(record: Record) -> str:
    length = record.row[codes.BODY_LENGTH]
    if record.row[codes.SYS_FLAG] & COMPRESSED:
        return f"({length} bytes, compressed)"
    # A character has at most four bytes, so the shown characters are never cut.
    begin = record.body[: 4 * _BODY_CHARACTERS]
    try:
        text = begin.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(begin) - 3 or length <= len(begin):
            return f"({length} bytes, no text)"
        text = begin[: error.start].decode("utf-8")
    if not text:
        return "(empty)"
    return _cut(text, _BODY_CHARACTERS, more=len(begin) < length)


def _cut(text: str, most: int, *, more: bool = False) -> str:
    return f"{text[: most - 1]}…" if len(text) > most or (more and len(text) >= most) else text
