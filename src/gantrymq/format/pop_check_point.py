"""The records of POP in the revive topic: what was popped, and which of it is acknowledged.

A pop puts a checkpoint into ``rmq_sys_REVIVE_LOG_`` + cluster, due one second before the messages become visible again.
An acknowledgement puts a record of its own there, due when they become visible. Both wait as timer messages
(``rmq_sys_wheel_timer``) first. A message of a checkpoint without an acknowledgement is put into a retry topic once the
time is over. The tag of a record says what it is, its body is JSON:

=======  ==========================================================================================================
tag      fields
=======  ==========================================================================================================
``ck``   ``so`` first queue offset, ``pt`` time of the pop (ms), ``it`` invisible time (ms), ``reviveTime`` (their sum,
         not read), ``bm`` bits of the acknowledged messages, ``n`` number of messages, ``q`` queue, ``t`` topic,
         ``c`` group, ``ro`` 0, ``d`` queue offset minus ``so`` of each message (missing in old records), ``bn``
         broker, ``rp`` how often it was put again (text), ``sp`` whether reconsumeTimes stays
``ack``  ``ao`` queue offset, ``so``, ``c``, ``t``, ``q``, ``pt``, ``bn`` of its checkpoint; each also with its long
         name, ``ackOffset`` for example
``bAck`` the same with ``aol``, a list of queue offsets
=======  ==========================================================================================================

Pure: no I/O, no clock.

Source: PopCheckPoint, AckMsg, BatchAckMsg, PopAckConstants, PopReviveService.consumeReviveMessage.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from gantrymq.model import fastjson
from gantrymq.model.java import INT_MAX, LONG_MAX, decode_utf8, encode_utf8

CHECK_POINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
ACK_INTERVAL_MS = 1000  # a checkpoint is due by so much before its messages are visible again
MOST_MESSAGES = 127  # of a checkpoint: Java's byte
_LONG_NAMES = {
    "ao": "ackOffset",
    "so": "startOffset",
    "c": "consumerGroup",
    "t": "topic",
    "q": "queueId",
    "pt": "popTime",
    "bn": "brokerName",
    "aol": "ackOffsetList",
}


class PopKey(NamedTuple):
    """What a checkpoint and its acknowledgements have in common (the merge key).

    ``broker_name`` is empty in the records of old brokers; it counts as the broker's own name then.
    """

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time_ms: int
    broker_name: str = ""


@dataclass(frozen=True, slots=True)
class PopCheckPoint:
    """A checkpoint: the messages of one pop. ``offset_diffs`` has as many numbers as messages, or none."""

    key: PopKey
    invisible_time_ms: int
    count: int
    acknowledged_bits: int = 0
    offset_diffs: tuple[int, ...] = ()
    times_put_again: int = 0
    is_suspended: bool = False

    @property
    def revive_time_ms(self) -> int:
        """When its messages are visible again."""
        return self.key.pop_time_ms + self.invisible_time_ms

    def queue_offset(self, number: int) -> int:
        """The queue offset of its message ``number``, from 0 (ackOffsetByIndex)."""
        return self.key.start_offset + (self.offset_diffs[number] if self.offset_diffs else number)

    def number_of(self, queue_offset: int) -> int | None:
        """Which of its messages is at a queue offset; None if none of them is (indexOfAck)."""
        diff = queue_offset - self.key.start_offset
        if diff < 0:
            return None
        if not self.offset_diffs:
            return diff if diff < self.count else None
        return self.offset_diffs.index(diff) if diff in self.offset_diffs else None

    def open_offsets(self) -> list[int]:
        """The queue offsets of its messages whose bit is not set."""
        return [self.queue_offset(one) for one in range(self.count) if not self.acknowledged_bits >> one & 1]


class PopAck(NamedTuple):
    """An acknowledgement of some messages of a checkpoint, by their queue offsets."""

    key: PopKey
    queue_offsets: tuple[int, ...]


def decode_pop_record(tag: str, body: bytes) -> PopCheckPoint | PopAck | None:
    """The checkpoint or the acknowledgement of a record with this tag and body.

    None if it is neither: another tag, a topic or group that is missing. Raises ValueError if the body is no JSON
    object of this form, or one of its numbers is impossible.
    """
    if tag not in (CHECK_POINT_TAG, ACK_TAG, BATCH_ACK_TAG):
        return None
    fields = fastjson.loads(decode_utf8(bytes(body)))
    if not isinstance(fields, dict):
        raise ValueError("it holds something else than an object")
    key = PopKey(
        _text(fields, "t"), _text(fields, "c"), _number(fields, "q", INT_MAX), _number(fields, "so"),
        _number(fields, "pt"), _text(fields, "bn"),
    )  # fmt: skip
    if not key.topic or not key.group:
        return None
    if tag == ACK_TAG:
        return PopAck(key, (_number(fields, "ao"),))
    if tag == BATCH_ACK_TAG:
        return PopAck(key, _numbers(_field(fields, "aol"), LONG_MAX))
    return _check_point(key, fields)


def _check_point(key: PopKey, fields: dict[str, Any]) -> PopCheckPoint:
    count, diffs = _number(fields, "n", MOST_MESSAGES), _numbers(fields.get("d"), INT_MAX)
    if diffs and len(diffs) < count:
        raise ValueError(f"it has {count} messages, and only {len(diffs)} offsets of them")
    bits, again = fields.get("bm", 0), fields.get("rp")
    if type(bits) is not int:
        raise ValueError(f"bm is {bits!r}, not a number")
    return PopCheckPoint(
        key,
        _number(fields, "it"),
        count,
        bits & 0xFFFFFFFF,
        diffs,
        int(again) if isinstance(again, str) and again.isascii() and again.isdigit() and len(again) < 10 else 0,
        fields.get("sp") is True,
    )


def encode_check_point(point: PopCheckPoint) -> bytes:
    """The body of a checkpoint, with its fields in fastjson's order."""
    bits = point.acknowledged_bits
    key = point.key
    return _encoded(
        {
            "bm": bits - (1 << 32) if bits > INT_MAX else bits,
            "bn": key.broker_name or None,
            "c": key.group,
            "d": list(point.offset_diffs) or None,
            "it": point.invisible_time_ms,
            "n": point.count,
            "pt": key.pop_time_ms,
            "q": key.queue_id,
            "reviveTime": point.revive_time_ms,
            "ro": 0,
            "rp": str(point.times_put_again) if point.times_put_again else None,
            "so": key.start_offset,
            "sp": point.is_suspended,
            "t": key.topic,
        }
    )


def encode_ack(ack: PopAck) -> bytes:
    """The body of an acknowledgement of one message, with its fields in fastjson's order."""
    return _encoded({"ao": ack.queue_offsets[0], **_common(ack.key)})


def encode_batch_ack(ack: PopAck) -> bytes:
    """The body of an acknowledgement of several messages, with its fields in fastjson's order."""
    return _encoded({"ao": 0, "aol": list(ack.queue_offsets), **_common(ack.key)})


def _common(key: PopKey) -> dict[str, Any]:
    return {
        "bn": key.broker_name or None,
        "c": key.group,
        "pt": key.pop_time_ms,
        "q": key.queue_id,
        "so": key.start_offset,
        "t": key.topic,
    }


def _encoded(fields: dict[str, Any]) -> bytes:
    there = {name: value for name, value in fields.items() if value is not None}
    return encode_utf8(json.dumps(there, ensure_ascii=False, separators=(",", ":")))


def _field(fields: dict[str, Any], name: str) -> Any:
    value = fields.get(name)
    return fields.get(_LONG_NAMES[name]) if value is None else value


def _text(fields: dict[str, Any], name: str) -> str:
    value = _field(fields, name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}, not a text")
    return value or ""


def _number(fields: dict[str, Any], name: str, most: int = LONG_MAX) -> int:
    value = fields.get(name) if name not in _LONG_NAMES else _field(fields, name)
    (number,) = _numbers([0 if value is None else value], most)
    return number


def _numbers(values: Any, most: int) -> tuple[int, ...]:
    """A list of numbers from 0 to ``most``; none if it is missing."""
    if values is None:
        return ()
    if not isinstance(values, list) or not all(type(one) is int and 0 <= one <= most for one in values):
        raise ValueError(f"a number is missing, or not from 0 to {most}")
    return tuple(values)
