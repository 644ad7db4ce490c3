"""Message traces: the text in the body of a message of the trace topic (RMQ_SYS_TRACE_TOPIC).

A body has records, each ended by 0x02. The fields of a record are separated by 0x01; the first names its type. Fields
without a value are written as ``null``, as Java writes them, if an empty text would confuse its decoder.

==============  ==================================================================================================
type            fields
==============  ==================================================================================================
Pub             time, region, group, topic, message id, tags, keys, broker, body size, cost, message type, offset
                message id, success [, client]
SubBefore       time, region, group, request id, message id, retries, keys
SubAfter        request id, message id, cost, success, keys, result code [, time, group]
EndTransaction  time, region, group, topic, message id, tags, keys, broker, message type, transaction id, state,
                from check
Recall          time, region, group, topic, message id, success
==============  ==================================================================================================

Source: TraceDataEncoder, TraceContext, TraceBean, TraceConstants.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum, IntEnum

from gantrymq.model.java import INT_MAX, LONG_MAX, parse_number

_FIELD_END, _RECORD_END = "\x01", "\x02"
_NULL = "null"
_TO_BLANKS = str.maketrans({_FIELD_END: " ", _RECORD_END: " "})
_ABOUT = ("timestamp_ms", "region_id", "group")
_MESSAGE = (*_ABOUT, "topic", "msg_id", "tags", "keys", "store_host")
_SENT = (*_MESSAGE, "body_size_bytes", "cost_ms", "message_type")
_CONSUMED = ("request_id", "msg_id", "cost_ms", "is_success", "keys")
_NULLABLE = frozenset(("tags", "keys", "region_id", "transaction_id"))


class TraceType(Enum):
    """What a trace record is about: a send, a recall, a listener call before and after, or a decision."""

    PUB = "Pub"
    RECALL = "Recall"
    SUB_BEFORE = "SubBefore"
    SUB_AFTER = "SubAfter"
    END_TRANSACTION = "EndTransaction"


class MessageType(IntEnum):
    """The type of a message in a trace (MessageType's ordinals)."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One record. Each type has some of the fields; the others have their defaults.

    ``timestamp_ms`` is the time when the work began; in a SUB_AFTER, when it ended. ``cost_ms`` is the time for one
    message of a batch. ``request_id`` joins a SUB_BEFORE with its SUB_AFTER. ``store_host`` is the broker's address.
    ``keys`` are joined by blanks. ``context_code`` is the ordinal of ConsumeReturnType: 0 success, 2 an exception, 4
    failed.
    """

    type: TraceType
    timestamp_ms: int = 0
    region_id: str = ""
    group: str = ""
    topic: str = ""
    msg_id: str = ""
    offset_msg_id: str = ""
    tags: str = ""
    keys: str = ""
    store_host: str = ""
    client_host: str = ""
    body_size_bytes: int = 0
    message_type: MessageType = MessageType.NORMAL
    cost_ms: int = 0
    is_success: bool = True
    request_id: str = ""
    retry_times: int = 0
    context_code: int = 0
    transaction_id: str = ""
    transaction_state: str = ""
    is_from_check: bool = False


# The fields of the records that RocketMQ 5.5.0 writes.
_WRITTEN: dict[TraceType, tuple[str, ...]] = {
    TraceType.PUB: (*_SENT, "offset_msg_id", "is_success"),
    TraceType.SUB_BEFORE: (*_ABOUT, "request_id", "msg_id", "retry_times", "keys"),
    TraceType.SUB_AFTER: (*_CONSUMED, "context_code", "timestamp_ms", "group"),
    TraceType.END_TRANSACTION: (*_MESSAGE, "message_type", "transaction_id", "transaction_state", "is_from_check"),
    TraceType.RECALL: (*_ABOUT, "topic", "msg_id", "is_success"),
}
# Layouts of other releases: shorter ones, and one with the client's address.
_OTHERS: dict[TraceType, tuple[tuple[str, ...], ...]] = {
    TraceType.PUB: ((*_SENT, "is_success"), (*_SENT, "offset_msg_id", "is_success", "client_host")),
    TraceType.SUB_AFTER: (_CONSUMED, (*_CONSUMED, "context_code")),
}
_DEFAULTS = {field.name: field.default for field in fields(TraceRecord)}


def encode_traces(records: Iterable[TraceRecord]) -> str:
    """The text of records. A separator within a field becomes a blank."""
    return "".join(map(_encode, records))


def _encode(record: TraceRecord) -> str:
    texts = [record.type.value, *(_text(name, getattr(record, name)) for name in _WRITTEN[record.type])]
    return _FIELD_END.join(texts) + _RECORD_END


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    text = str(value).translate(_TO_BLANKS)
    return _NULL if not text and name in _NULLABLE else text


def decode_traces(data: str) -> tuple[list[TraceRecord], list[str]]:
    """The records of a text, and the parts that are not records: cut, with a wrong number, or of an unknown type."""
    records, unread = list[TraceRecord](), list[str]()
    for part in filter(None, data.split(_RECORD_END)):
        try:
            records.append(_decode(part.split(_FIELD_END)))
        except ValueError:
            unread.append(part)
    return records, unread


def _decode(texts: list[str]) -> TraceRecord:
    """One record. Raises ValueError."""
    kind = TraceType(texts[0])
    layouts = sorted((_WRITTEN[kind], *_OTHERS.get(kind, ())), key=len)
    layout = next((layout for layout in reversed(layouts) if len(layout) < len(texts)), None)
    if layout is None:
        raise ValueError(f"a trace record of {kind.value} has only {len(texts)} fields")
    values = {name: _value(name, text) for name, text in zip(layout, texts[1:], strict=False)}
    return TraceRecord(kind, **values)  # type: ignore[arg-type]


def _value(name: str, text: str) -> str | int | bool:
    default = _DEFAULTS[name]
    if isinstance(default, bool):
        return text.lower() == "true"
    if isinstance(default, MessageType):
        return MessageType(parse_number(text, INT_MAX))
    if isinstance(default, int):
        return parse_number(text, LONG_MAX if name == "timestamp_ms" else INT_MAX)
    return "" if text == _NULL and name in _NULLABLE else text
