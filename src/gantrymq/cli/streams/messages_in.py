"""Input of ``produce``: a line, a JSON object or a whole file becomes a message.

A line of ``consume --json``, ``admin message … --json`` or ``store dump --json`` (with a body) may be input too. Fields
that describe the stored message are then left out: its location, and properties that brokers and clients set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import msgspec

from gantrymq.cli.input_lines import TOO_LONG
from gantrymq.model import message as properties
from gantrymq.model.java import INT_MAX, LONG_MAX
from gantrymq.model.message import PROPERTY_TIMER_DELAY_MS, PROPERTY_TIMER_DELIVER_MS, Message

# Properties that record the past of a stored message. In a new message they would act again, or be wrong.
_OF_A_STORED_MESSAGE = frozenset(
    {
        properties.PROPERTY_WAIT,
        properties.PROPERTY_DELAY,
        properties.PROPERTY_REAL_TOPIC,
        properties.PROPERTY_REAL_QUEUE_ID,
        properties.PROPERTY_CRC32,
        *properties.TIMER_PROPERTIES,
        properties.PROPERTY_TIMER_OUT_MS,
        properties.PROPERTY_TIMER_ENQUEUE_MS,
        properties.PROPERTY_TIMER_DEQUEUE_MS,
        properties.PROPERTY_TIMER_ROLL_TIMES,
        properties.PROPERTY_TIMER_DEL_UNIQKEY,
        properties.PROPERTY_TRANSACTION_PREPARED,
        properties.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
        properties.PROPERTY_TRANSACTION_CHECK_TIMES,
        properties.PROPERTY_TRANSACTION_ID,
        properties.PROPERTY_PRODUCER_GROUP,
        properties.PROPERTY_POP_CK,
        properties.PROPERTY_INNER_NUM,
        properties.PROPERTY_INNER_MULTI_DISPATCH,
        properties.PROPERTY_INNER_MULTI_QUEUE_OFFSET,
        properties.PROPERTY_RETRY_TOPIC,
        properties.PROPERTY_ORIGIN_MESSAGE_ID,
        properties.PROPERTY_RECONSUME_TIME,
        properties.PROPERTY_MAX_RECONSUME_TIMES,
        properties.PROPERTY_PUSH_REPLY_TIME,
        properties.PROPERTY_INSTANCE_ID,
        properties.PROPERTY_MSG_REGION,
        properties.PROPERTY_TRACE_SWITCH,
        properties.PROPERTY_CLUSTER,
    }
)


class QueueNumber(NamedTuple):
    """A queue by its number, and by the name of its broker where several have that number."""

    queue_id: int
    broker_name: str | None = None


class InputMessage(NamedTuple):
    """One message of the input. ``line`` counts from 1."""

    line: int
    message: Message
    queue: QueueNumber | None


class RejectedLine(NamedTuple):
    """A line that is not a message, and the reason."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Template:
    """The values that the options give each message. A JSON line takes precedence, except for ``topic``."""

    topic: str | None
    tags: str = ""
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    delay_level: int = 0
    queue: QueueNumber | None = None


# Reads one line. Raises ValueError with the reason.
Reader = Callable[[bytes], tuple[Message, QueueNumber | None]]


def text_reader(template: Template, key_delimiter: bytes | None) -> Reader:
    """A reader of lines as bodies. In a line with ``key_delimiter`` the keys come before it. ``template`` has a
    topic.
    """
    assert template.topic is not None
    topic, tags, keys, level = template.topic, template.tags, template.keys, template.delay_level

    def read(line: bytes) -> tuple[Message, QueueNumber | None]:
        own = keys
        if key_delimiter is not None:
            key, delimiter, body = line.partition(key_delimiter)
            if delimiter:
                line, own = body, (*keys, *_text("the key", key).split())
        _check_body(line)
        return Message(topic, line, 0, tags, own, dict(template.properties), level), template.queue

    return read


def read_all(lines: Sequence[bytes], first: int, read: Reader) -> list[InputMessage | RejectedLine]:
    """The messages of ``lines``, the first of which has the number ``first``."""
    items: list[InputMessage | RejectedLine] = []
    for number, line in enumerate(lines, first):
        try:
            if line is TOO_LONG:
                raise ValueError("it is too long for any message")
            items.append(InputMessage(number, *read(line)))
        except ValueError as error:
            items.append(RejectedLine(number, str(error)))
    return items


def _check_body(body: bytes) -> None:
    if not body:
        raise ValueError("the body is empty: RocketMQ sends no such message")


def _text(what: str, raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{what} is not UTF-8") from None


_Int = Annotated[int, msgspec.Meta(ge=0, le=INT_MAX)]
_Long = Annotated[int, msgspec.Meta(ge=0, le=LONG_MAX)]


class _Line(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The JSON object of a line. A null field counts as absent."""

    topic: str | None = None
    body: str | None = None
    body_base64: bytes | None = None
    queue_id: _Int | None = None
    broker_name: str | None = None
    tags: str | None = None
    keys: list[str] | None = None
    properties: dict[str, str] | None = None
    delay_level: _Int | None = None
    delay_ms: _Long | None = None
    deliver_ms: _Long | None = None
    flag: Annotated[int, msgspec.Meta(ge=-INT_MAX - 1, le=INT_MAX)] | None = None
    crc_ok: bool | None = None
    # The rest of a stored message.
    kind: Any = None
    queue_offset: Any = None
    phy_offset: Any = None
    size: Any = None
    tags_code: Any = None
    sys_flag: Any = None
    born_timestamp: Any = None
    born_host: Any = None
    store_timestamp: Any = None
    store_host: Any = None
    reconsume_times: Any = None
    prepared_transaction_offset: Any = None
    body_crc: Any = msgspec.field(default=None, name="bodyCRC")
    body_length: Any = None
    body_sha256: Any = None
    msg_id: Any = None
    offset_msg_id: Any = None
    # What `admin message` says of a message besides.
    index_key: Any = None
    tracks: Any = None


_decoder = msgspec.json.Decoder(_Line)


def json_reader(template: Template) -> Reader:
    """A reader of JSON objects."""

    def read(line: bytes) -> tuple[Message, QueueNumber | None]:
        if not line or line.isspace():
            raise ValueError("the line is empty")
        given = _decoder.decode(line)
        is_stored = given.queue_offset is not None
        own = given.properties or {}
        if is_stored:
            own = {name: value for name, value in own.items() if name not in _OF_A_STORED_MESSAGE}
        topic = template.topic or given.topic
        if topic is None:
            raise ValueError("it names no topic, and neither does the command line")
        message = Message(
            topic,
            _body(given),
            0,
            template.tags if given.tags is None else given.tags,
            template.keys if given.keys is None else given.keys,
            {**template.properties, **own, **_timer(given)},
            template.delay_level if given.delay_level is None else given.delay_level,
            flag=given.flag or 0,
        )
        if is_stored or given.queue_id is None:
            return message, template.queue
        return message, QueueNumber(given.queue_id, given.broker_name)

    return read


def _body(given: _Line) -> bytes:
    if given.crc_ok is False:
        raise ValueError("its body is damaged (crcOk is false)")
    if given.body is not None and given.body_base64 is not None:
        raise ValueError("body and bodyBase64 exclude each other")
    if given.body is None and given.body_base64 is None:
        raise ValueError("either body or bodyBase64 must be there")
    body = given.body_base64 if given.body is None else given.body.encode()
    assert body is not None
    _check_body(body)
    return body


def _timer(given: _Line) -> dict[str, str]:
    times = {PROPERTY_TIMER_DELAY_MS: given.delay_ms, PROPERTY_TIMER_DELIVER_MS: given.deliver_ms}
    timers = {name: str(value) for name, value in times.items() if value is not None}
    if len(timers) + (given.delay_level is not None) > 1:
        raise ValueError("delayLevel, delayMs and deliverMs exclude each other")
    return timers
