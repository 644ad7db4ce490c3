"""The receipt handle of a popped message, and the offset infos in the answer to a pop.

A handle is RocketMQ's "extra info": eight fields between blanks. ``ACK_MESSAGE`` and ``CHANGE_MESSAGE_INVISIBLETIME``
send it back. A client may have forged it, so every number is checked here. A number must not be negative and must fit a
Java long or int; so must the end of the invisible time. Java checks only the syntax.

An offset info has entries between semicolons. Each entry has three fields: the mark of the topic (0, 1 or 2: the topic
itself, its retry topic v1, v2), the queue, and one or more offsets or a count of deliveries.

Source: ExtraInfoUtil, KeyBuilder, PopAckConstants.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from gantrymq.errors import ReceiptHandleError
from gantrymq.model.java import INT_MAX, LONG_MAX, parse_number
from gantrymq.model.system_names import RETRY_PREFIX

NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"
ORDER_REVIVE_QUEUE = 999  # the revive queue of handles of ordered pops, which have no checkpoint
MAX_CHARACTERS = 2048  # of a handle; only the broker's name can be long

_MARKS = (NORMAL, RETRY_V1, RETRY_V2)
_OFFSET_MARK = "qo"  # begins the second field of an entry of orderCountInfo for one offset: qo<queue>%<offset>
_INT_DIGITS, _LONG_DIGITS = 9, 18  # of numbers that are never too large
_FEWEST_FIELDS = 7  # handles before 4.9 end with the queue; the request has the offset too

K = TypeVar("K")
V = TypeVar("V")


def retry_topic_v1(topic: str, group: str) -> str:
    """The topic from which ``group`` consumes a message of ``topic`` again."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def retry_topic_v2(topic: str, group: str) -> str:
    """As :func:`retry_topic_v1` with enableRetryTopicV2. The plus separates group and topic: no name contains one."""
    return f"{RETRY_PREFIX}{group}+{topic}"


def normal_topic(topic: str, group: str) -> str | None:
    """The topic that a retry topic of ``group`` is for; a topic that is not one is itself. None for others' topics."""
    if not topic.startswith(RETRY_PREFIX):
        return topic
    for separator in ("+", "_"):
        if topic.startswith(prefix := f"{RETRY_PREFIX}{group}{separator}"):
            return topic[len(prefix) :]
    return None


def topic_mark(topic: str) -> str:
    """The mark of a topic in a handle: NORMAL, RETRY_V1 or RETRY_V2."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def real_topic(mark: str, topic: str, group: str) -> str:
    """The topic in which a popped message of ``topic`` is stored. Raises ReceiptHandleError for an unknown mark."""
    if mark == NORMAL:
        return topic
    if mark == RETRY_V1:
        return retry_topic_v1(topic, group)
    if mark == RETRY_V2:
        return retry_topic_v2(topic, group)
    raise ReceiptHandleError(f"the mark of the topic is {mark[:20]!r}, not 0, 1 or 2")


@dataclass(frozen=True, slots=True)
class ReceiptHandle:
    """Identifies one delivery of a message. ``str()`` is its text on the wire.

    ``start_offset`` is the first offset of the pop (the checkpoint's), ``queue_offset`` the message's own, None in the
    short form. ``mark`` says in which topic the message is (:func:`real_topic`).
    """

    start_offset: int
    pop_time_ms: int
    invisible_time_ms: int
    revive_queue_id: int
    mark: str
    broker_name: str
    queue_id: int
    queue_offset: int | None = None

    def __str__(self) -> str:
        """The text on the wire."""
        text = (
            f"{self.start_offset} {self.pop_time_ms} {self.invisible_time_ms} {self.revive_queue_id} {self.mark} "
            f"{self.broker_name} {self.queue_id}"
        )
        return text if self.queue_offset is None else f"{text} {self.queue_offset}"

    @property
    def is_order(self) -> bool:
        """Whether the message was popped in order."""
        return self.revive_queue_id == ORDER_REVIVE_QUEUE

    @property
    def visible_time_ms(self) -> int:
        """The time at which the message is delivered again if it is not acknowledged. At most LONG_MAX."""
        return self.pop_time_ms + self.invisible_time_ms

    def real_topic(self, topic: str, group: str) -> str:
        """The topic in which the message is stored; ``topic`` is the topic that ``group`` popped."""
        return real_topic(self.mark, topic, group)


def parse_receipt_handle(text: str) -> ReceiptHandle:
    """Read a handle. Fields after the eighth are ignored, as in Java. Raises ReceiptHandleError."""
    if len(text) > MAX_CHARACTERS:
        raise ReceiptHandleError(f"a receipt handle of {len(text)} characters, more than {MAX_CHARACTERS}")
    fields = text.split(" ")
    if len(fields) < _FEWEST_FIELDS:
        raise ReceiptHandleError(f"a receipt handle has {len(fields)} fields, fewer than {_FEWEST_FIELDS}")
    mark, broker_name = fields[4], fields[5]
    if mark not in _MARKS:
        raise ReceiptHandleError(f"the mark of the topic is {mark[:20]!r}, not 0, 1 or 2")
    if not broker_name:
        raise ReceiptHandleError("a receipt handle without the name of a broker")
    has_offset = len(fields) > _FEWEST_FIELDS and fields[7] != ""
    handle = ReceiptHandle(
        start_offset=_number("start offset", fields[0]),
        pop_time_ms=_number("pop time", fields[1]),
        invisible_time_ms=_number("invisible time", fields[2]),
        revive_queue_id=_number("revive queue", fields[3], INT_MAX),
        mark=mark,
        broker_name=broker_name,
        queue_id=_number("queue", fields[6], INT_MAX),
        queue_offset=_number("queue offset", fields[7]) if has_offset else None,
    )
    if handle.visible_time_ms > LONG_MAX:
        raise ReceiptHandleError("the invisible time of a receipt handle ends after the largest timestamp")
    return handle


# Offset infos. These functions make entries; ``";".join`` makes an info of them.


class QueueOfPop(NamedTuple):
    """A queue of the answer to a pop. Retry topics have their own queues, with the same numbers."""

    mark: str
    queue_id: int


def start_offset_entry(topic: str, queue_id: int, start_offset: int) -> str:
    """An entry of startOffsetInfo: the checkpoint's offset."""
    return f"{topic_mark(topic)} {queue_id} {start_offset}"


def message_offsets_entry(topic: str, queue_id: int, offsets: Iterable[int]) -> str:
    """An entry of msgOffsetInfo: the offsets of the popped messages."""
    return f"{topic_mark(topic)} {queue_id} {','.join(map(str, offsets))}"


def queue_order_count_entry(topic: str, queue_id: int, count: int) -> str:
    """An entry of orderCountInfo: the least number of deliveries of the queue's messages."""
    return f"{topic_mark(topic)} {queue_id} {count}"


def offset_order_count_entry(topic: str, queue_id: int, offset: int, count: int) -> str:
    """An entry of orderCountInfo: the number of deliveries of one message."""
    return f"{topic_mark(topic)} {_OFFSET_MARK}{queue_id}%{offset} {count}"


def parse_start_offsets(text: str | None) -> dict[QueueOfPop, int]:
    """The entries of startOffsetInfo. Raises ReceiptHandleError for a wrong or a second entry of a queue."""
    return _table((_queue(mark, queue), _number("offset", offset)) for mark, queue, offset in _entries(text))


def parse_message_offsets(text: str | None) -> dict[QueueOfPop, list[int]]:
    """The entries of msgOffsetInfo. Raises ReceiptHandleError for a wrong or a second entry of a queue."""
    return _table(
        (_queue(mark, queue), [_number("offset", offset) for offset in offsets.split(",")])
        for mark, queue, offsets in _entries(text)
    )


def parse_order_counts(text: str | None) -> dict[tuple[QueueOfPop, int | None], int]:
    """The entries of orderCountInfo, by queue and offset; the offset is None in the entry of a whole queue.

    Raises ReceiptHandleError.
    """
    return _table((_order_key(mark, of), _number("count", count, INT_MAX)) for mark, of, count in _entries(text))


def _entries(text: str | None) -> Iterator[tuple[str, str, str]]:
    for entry in text.split(";") if text else ():
        fields = entry.split(" ")
        if len(fields) != 3:
            raise ReceiptHandleError(f"an offset info has an entry of {len(fields)} fields, not 3: {entry[:64]!r}")
        yield fields[0], fields[1], fields[2]


def _queue(mark: str, queue_id: str) -> QueueOfPop:
    return QueueOfPop(mark, _number("queue", queue_id, INT_MAX))


def _order_key(mark: str, of: str) -> tuple[QueueOfPop, int | None]:
    if not of.startswith(_OFFSET_MARK):
        return _queue(mark, of), None
    queue_id, _, offset = of[len(_OFFSET_MARK) :].partition("%")
    return _queue(mark, queue_id), _number("offset", offset)


def _table(entries: Iterable[tuple[K, V]]) -> dict[K, V]:
    table: dict[K, V] = {}
    for key, value in entries:
        if key in table:
            raise ReceiptHandleError(f"an offset info has two entries for {key}")
        table[key] = value
    return table


def _number(what: str, text: str, max_value: int = LONG_MAX) -> int:
    if text.isdecimal() and len(text) <= (_LONG_DIGITS if max_value == LONG_MAX else _INT_DIGITS):
        return int(text)
    try:
        number = parse_number(text, max_value)
    except ValueError as error:
        raise ReceiptHandleError(f"the {what} is no number: {error}") from None
    if number < 0:
        raise ReceiptHandleError(f"the {what} is negative: {number}")
    return number
