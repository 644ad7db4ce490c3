"""The properties of a message on its way in: their names, their text in a request, and which can stay unchanged.

A message whose producer set no unique key gets one: ip 4 | process 2 | random 4 | milliseconds of the month 4 | count
2.

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
    PROPERTY_CLUSTER,
    PROPERTY_CRC32,
    PROPERTY_DELAY,
    PROPERTY_INNER_NUM,
    PROPERTY_MSG_REGION,
    PROPERTY_POP_CK,
    PROPERTY_PRIORITY,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT,
    TIMER_PROPERTIES,
)

_COUNT = itertools.count()
_HEAD = struct.Struct(">4sHI")
_TAIL = struct.Struct(">IH")


class UniqueIds:
    """Makes ids for the broker at ``ip`` (4 or 16 bytes, of which 4 are used)."""

    def __init__(self, ip: bytes) -> None:
        self._fixed = _HEAD.pack(ip[-4:], os.getpid() & 0xFFFF, int.from_bytes(os.urandom(4), "big"))

    def next(self, now_ms: int) -> str:
        """A new id: 32 upper-case hexadecimal digits."""
        month = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        since_ms = now_ms - int(month.timestamp() * 1000)
        return (self._fixed + _TAIL.pack(since_ms & 0xFFFFFFFF, next(_COUNT) & 0xFFFF)).hex().upper()


# What the broker looks at or writes over; a message without any of these goes into the log as it came.
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
_NOT_THERE = -1
_entries = re.compile("(?:[^\x00-\x02]+\x01[^\x00-\x02]+\x02)+").fullmatch


class PlainProperties(NamedTuple):
    """Properties that stay as they came: encoded with the broker's behind them, and two that are asked for."""

    encoded: bytes
    unique_key: str
    wait_store_msg_ok: bool


def plain_properties(text: str | None, marks: str) -> PlainProperties | None:
    """Those of a header's ``text``, with ``marks`` behind them.

    None where the broker acts on one of them or has to make a UNIQ_KEY, and where they are not ``text`` as it stands:
    a name that comes twice, an entry without a name or a value, a separator within a value, or a zero.
    """
    if not text:
        return None
    if text[-1] != PROPERTY_SEPARATOR:
        text += PROPERTY_SEPARATOR
    if _entries(text) is None:
        return None
    words = text.replace(PROPERTY_SEPARATOR, NAME_VALUE_SEPARATOR).split(NAME_VALUE_SEPARATOR)
    places = _places(tuple(words[:-1:2]))
    if places is None:
        return None
    key_at, wait_at = places
    waits = wait_at == _NOT_THERE or words[wait_at].lower() == "true"
    return PlainProperties(encode_utf8(text + marks), words[key_at], waits)


@lru_cache(maxsize=1024)  # producers send the same names again and again
def _places(names: tuple[str, ...]) -> tuple[int, int] | None:
    """Where the values of UNIQ_KEY and WAIT stand among names and values; None where the names are not plain."""
    if PROPERTY_UNIQ_KEY not in names or len(set(names)) != len(names) or not ACTED_ON.isdisjoint(names):
        return None
    waits = 2 * names.index(PROPERTY_WAIT) + 1 if PROPERTY_WAIT in names else _NOT_THERE
    return 2 * names.index(PROPERTY_UNIQ_KEY) + 1, waits


@cache
def broker_marks(region: str, cluster: str, trace_on: bool) -> str:
    """What the broker adds to the properties of each message."""
    marks = {
        PROPERTY_MSG_REGION: region,
        PROPERTY_TRACE_SWITCH: "true" if trace_on else "false",
        PROPERTY_CLUSTER: cluster,
    }
    return encode_properties(marks).decode()


def read_properties(text: str | None) -> dict[str, str]:
    """The properties of a header's text; as in a record an entry without a name or a value is dropped."""
    properties: dict[str, str] = {}
    for entry in (text or "").split(PROPERTY_SEPARATOR):
        name, _, value = entry.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def is_illegal(body: bytes | bytearray | memoryview, names: Container[str], sys_flag: int) -> bool:
    """Whether it is nothing to store: an empty body, or an inner batch, for which no topic here has a queue.

    (HookUtils.checkBeforePutMessage and checkInnerBatch)
    """
    return not body or PROPERTY_INNER_NUM in names or sys_flag & INNER_BATCH != 0


def delay_level(properties: dict[str, str]) -> int:
    """The level of DELAY, 0 where there is none; raises RemotingCommandError, as Java's parseInt does."""
    text = properties.get(PROPERTY_DELAY)
    if text is None:
        return 0
    try:
        return parse_number(text, INT_MAX)
    except ValueError as error:
        raise RemotingCommandError(str(error)) from None


def priority(properties: dict[str, str]) -> int:
    """The number of _SYS_MSG_PRIORITY_; -1 where it has none: Message.getPriority."""
    try:
        return parse_number(properties.get(PROPERTY_PRIORITY, ""), INT_MAX)
    except ValueError:
        return -1
