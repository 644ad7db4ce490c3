"""The properties of received messages: their names, their encoding in a request, and which stay unchanged.

A message without a unique key gets one: ip 4 | process 2 | random 4 | milliseconds of the month 4 | count 2.

Source: SendMessageProcessor, MessageDecoder.string2messageProperties, MessageClientIDSetter.
"""

from __future__ import annotations

import itertools
import os
import re
import struct
from collections.abc import Container
from datetime import datetime
from functools import cache, lru_cache
from typing import NamedTuple

from gantrymq.errors import RemotingCommandError
from gantrymq.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, encode_properties
from gantrymq.model.flags import INNER_BATCH
from gantrymq.model.java import INT_MAX, encode_utf8, parse_number
from gantrymq.model.message import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_CLUSTER,
    PROPERTY_CRC32,
    PROPERTY_DELAY,
    PROPERTY_INNER_NUM,
    PROPERTY_MSG_REGION,
    PROPERTY_POP_CK,
    PROPERTY_PRIORITY,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT,
    TIMER_PROPERTIES,
)

_COUNT = itertools.count()
_HEAD = struct.Struct(">4sHI")
_TAIL = struct.Struct(">IH")
# Properties that the broker reads or overwrites. A message without any of them is stored as received.
ACTED_ON = frozenset(
    {
        *(
            PROPERTY_PRIORITY,
            PROPERTY_POP_CK,
            PROPERTY_TIMER_OUT_MS,
            PROPERTY_TRANSACTION_PREPARED,
            PROPERTY_DELAY,
            PROPERTY_CRC32,
            PROPERTY_INNER_NUM,
        ),
        *(PROPERTY_MSG_REGION, PROPERTY_TRACE_SWITCH, PROPERTY_CLUSTER, *TIMER_PROPERTIES),
    }
)
ACTED_ON_IN_HALF = ACTED_ON - {PROPERTY_TRANSACTION_PREPARED} | {
    *(PROPERTY_TRANSACTION_ID, PROPERTY_REAL_TOPIC, PROPERTY_REAL_QUEUE_ID, PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS),
    *(PROPERTY_TRANSACTION_CHECK_TIMES, PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET),
}
_OF_ANOTHER_KIND = frozenset((PROPERTY_DELAY, PROPERTY_SHARDING_KEY, *TIMER_PROPERTIES))  # than with a priority
_NOT_THERE = -1


class UniqueIds:
    """Makes ids for the broker at ``ip`` (4 or 16 bytes, of which the last 4 are used)."""

    def __init__(self, ip: bytes) -> None:
        self._fixed = _HEAD.pack(ip[-4:], os.getpid() & 0xFFFF, int.from_bytes(os.urandom(4), "big"))

    def next(self, now_ms: int) -> str:
        """A new id: 32 upper-case hexadecimal digits."""
        month = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        since_ms = now_ms - int(month.timestamp() * 1000)
        return (self._fixed + _TAIL.pack(since_ms & 0xFFFFFFFF, next(_COUNT) & 0xFFFF)).hex().upper()


_entries = re.compile("(?:[^\x00-\x02]+\x01[^\x00-\x02]+\x02)+").fullmatch


class PlainProperties(NamedTuple):
    """The encoded properties of a message, with the broker's appended, and two that the broker reads."""

    encoded: bytes
    unique_key: str
    wait_store_msg_ok: bool


def plain_properties(text: str | None, marks: str) -> PlainProperties | None:
    """The properties of a header's ``text``, with ``marks`` appended.

    Returns None if the broker acts on one of them or must add a UNIQ_KEY, or if decoding and encoding would change the
    text: a duplicate name, an entry without a name or a value, a separator within a value, or a zero byte.
    """
    split = _split(text)
    positions = _positions(tuple(split.words[:-1:2])) if split is not None else None
    if split is None or positions is None:
        return None
    key_at, wait_at = positions
    return PlainProperties(encode_utf8(split.text + marks), split.words[key_at], _waits(split.words, wait_at))


class PreparedProperties(NamedTuple):
    """The encoded properties with which a half message is stored, and three that the broker reads."""

    encoded: bytes
    unique_key: str
    wait_store_msg_ok: bool
    producer_group: str


def prepared_properties(text: str | None, marks: str) -> PreparedProperties | None:
    """The properties with which a half message is stored, from a header's ``text``.

    ``marks`` and the transaction's id, which is the UNIQ_KEY, are appended. Returns None where :func:`plain_properties`
    does, and for a text that is not that of a half message: TRAN_MSG must be true and PGROUP must name the producer's
    group.
    """
    split = _split(text)
    positions = _prepared_positions(tuple(split.words[:-1:2])) if split is not None else None
    if split is None or positions is None or split.words[positions.prepared_at].lower() != "true":
        return None
    unique_key, group = split.words[positions.key_at], split.words[positions.group_at]
    encoded = f"{split.text}{marks}{PROPERTY_TRANSACTION_ID}{NAME_VALUE_SEPARATOR}{unique_key}{PROPERTY_SEPARATOR}"
    return PreparedProperties(encode_utf8(encoded), unique_key, _waits(split.words, positions.wait_at), group)


class _Split(NamedTuple):
    """The text of properties with a separator at its end, and its names and values in turn."""

    text: str
    words: list[str]


def _split(text: str | None) -> _Split | None:
    """None if not each entry has a name and a value without separators."""
    if not text:
        return None
    if text[-1] != PROPERTY_SEPARATOR:
        text += PROPERTY_SEPARATOR
    if _entries(text) is None:
        return None
    return _Split(text, text.replace(PROPERTY_SEPARATOR, NAME_VALUE_SEPARATOR).split(NAME_VALUE_SEPARATOR))


def _waits(words: list[str], wait_at: int) -> bool:
    return wait_at == _NOT_THERE or words[wait_at].lower() == "true"


@lru_cache(maxsize=1024)  # producers use the same names in all messages
def _positions(names: tuple[str, ...], acted_on: frozenset[str] = ACTED_ON) -> tuple[int, int] | None:
    """The positions of the values of UNIQ_KEY and WAIT among names and values. None if the names are not plain."""
    if PROPERTY_UNIQ_KEY not in names or len(set(names)) != len(names) or not acted_on.isdisjoint(names):
        return None
    return _value_at(names, PROPERTY_UNIQ_KEY), _value_at(names, PROPERTY_WAIT)


def _value_at(names: tuple[str, ...], name: str) -> int:
    return 2 * names.index(name) + 1 if name in names else _NOT_THERE


class _PreparedPositions(NamedTuple):
    key_at: int
    wait_at: int
    prepared_at: int
    group_at: int


@lru_cache(maxsize=1024)
def _prepared_positions(names: tuple[str, ...]) -> _PreparedPositions | None:
    """The positions of the values that :func:`prepared_properties` reads; None if the names are not plain."""
    positions = _positions(names, ACTED_ON_IN_HALF)
    others = _value_at(names, PROPERTY_TRANSACTION_PREPARED), _value_at(names, PROPERTY_PRODUCER_GROUP)
    return None if positions is None or _NOT_THERE in others else _PreparedPositions(*positions, *others)


@cache
def broker_properties(region: str, cluster: str, trace_on: bool) -> str:
    """The encoded properties that the broker adds to each message."""
    marks = {
        PROPERTY_MSG_REGION: region,
        PROPERTY_TRACE_SWITCH: "true" if trace_on else "false",
        PROPERTY_CLUSTER: cluster,
    }
    return encode_properties(marks).decode()


def read_properties(text: str | None) -> dict[str, str]:
    """Decode the properties of a header. As in a record, an entry without a name or a value is dropped."""
    properties: dict[str, str] = {}
    for entry in (text or "").split(PROPERTY_SEPARATOR):
        name, _, value = entry.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def is_message_illegal(body: bytes | bytearray | memoryview, names: Container[str], sys_flag: int) -> bool:
    """Whether a message cannot be stored: its body is empty, or it is an inner batch.

    No topic here has a queue for inner batches. (HookUtils.checkBeforePutMessage and checkInnerBatch)
    """
    return not body or PROPERTY_INNER_NUM in names or sys_flag & INNER_BATCH != 0


def delay_level(properties: dict[str, str]) -> int:
    """The level in DELAY, or 0 without it. Raises RemotingCommandError for a text that Java's parseInt rejects."""
    text = properties.get(PROPERTY_DELAY)
    if text is None:
        return 0
    try:
        return parse_number(text, INT_MAX)
    except ValueError as error:
        raise RemotingCommandError(str(error)) from None


def take_priority(properties: dict[str, str]) -> int:
    """The number in _SYS_MSG_PRIORITY_, or -1 without a valid one.

    A message of a transaction, a delayed one and one with a sharding key have no priority: the property is removed, and
    their queue stays. (Message.getPriority, TopicMessageType.parseFromMessageProperty)
    """
    try:
        wanted = parse_number(properties.get(PROPERTY_PRIORITY, ""), INT_MAX)
    except ValueError:
        return -1
    is_half = properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true"
    if wanted >= 0 and (is_half or not _OF_ANOTHER_KIND.isdisjoint(properties)):
        del properties[PROPERTY_PRIORITY]
        return -1
    return wanted
