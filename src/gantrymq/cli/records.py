"""Records for ``dump``, ``log``, ``query`` and ``show`` as one line of text."""

from __future__ import annotations

from gantrymq.format.body_text import body_beginning
from gantrymq.kernels import codes
from gantrymq.model.flags import COMPRESSED
from gantrymq.model.message import PROPERTY_KEYS, PROPERTY_TAGS
from gantrymq.model.texts import cut_text, time_text
from gantrymq.tools.read.record_rows import Record

_PLACE_CHARACTERS = 32
_BODY_CHARACTERS = 60


def heading(position: str = "") -> str:
    """The heading of the lines of :func:`record_text`; ``position`` is the name of its extra column."""
    return (
        f"{'phy offset':>14}  {'size':>8}  {'stored':<29}  {_padded_position(position)}{'tags':<12}  {'keys':<20}  body"
    )


def record_text(record: Record, position: str = "") -> str:
    """A line with physical offset, size, store time, ``position``, tags, keys and the beginning of the body."""
    row, properties = record.row, record.properties
    tags, keys = properties.get(PROPERTY_TAGS, "-"), properties.get(PROPERTY_KEYS, "-")
    return (
        f"{row[codes.PHY_OFFSET]:>14}  {row[codes.SIZE]:>8}  {time_text(row[codes.STORE_TIMESTAMP]):<29}  "
        f"{_padded_position(position)}{cut_text(tags, 12):<12}  {cut_text(keys, 20):<20}  {_body_text(record)}"
    )


def _padded_position(text: str) -> str:
    """The text of the extra column. A long text is cut at the front, because its end has queue and offset."""
    if len(text) > _PLACE_CHARACTERS:
        text = f"…{text[1 - _PLACE_CHARACTERS :]}"
    return f"{text:<{_PLACE_CHARACTERS}}  " if text else ""


def _body_text(record: Record) -> str:
    length = record.row[codes.BODY_LENGTH]
    if record.row[codes.SYS_FLAG] & COMPRESSED:
        return f"({length} bytes, compressed)"
    text = body_beginning(record.body, length, _BODY_CHARACTERS)
    return f"({length} bytes, no text)" if text is None else text or "(empty)"
