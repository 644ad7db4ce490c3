"""Messages of consecutive records, which decode a field at its first use.

``gantrymq.format.record`` is the reference: every field is that of ``decode_record``. A record without its body is its
head, up to the length of the body, followed by its topic and properties (``gantrymq.kernels.cut``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from gantrymq.format.properties import decode_properties
from gantrymq.format.record import (
    BORN_HOST_AT,
    MAGIC_V1,
    PHY_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    decode_host,
    decode_topic,
    read_layout,
)
from gantrymq.format.stop_reason import StopReason
from gantrymq.model import flags
from gantrymq.model.message import Readers, StoredMessage, cut_messages

M = TypeVar("M", bound=StoredMessage)

_INT, _LONG, _BYTE, _SHORT = (struct.Struct(code).unpack_from for code in (">i", ">q", ">b", ">h"))
_MAGIC_V1 = MAGIC_V1.to_bytes(4, "big")
_ANY_V6 = flags.BORN_HOST_V6 | flags.STORE_HOST_V6
_TOPIC_AT = BORN_HOST_AT + 8 + 8 + 8 + 16 + 1  # without the body, in a record of version 1 with IPv4 hosts


class CutRecords(Protocol):
    """Consecutive records of a buffer. :class:`gantrymq.kernels.cuts.Cuts` has the meaning of each part."""

    @property
    def record_count(self) -> int:
        """The number of records."""
        ...

    @property
    def heads(self) -> bytes:
        """The records without their bodies, one after the other."""
        ...

    @property
    def stop_position(self) -> int:
        """The position after the last record."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether more records may follow."""
        ...

    @property
    def sys_flags(self) -> list[int]:
        """The flags of each record."""
        ...

    @property
    def are_whole(self) -> list[int]:
        """1 for each record whose body has its CRC, else 0."""
        ...

    def bounds(self) -> tuple[list[int], list[int], list[int], list[int]]:
        """Where each body begins and ends, where the record without it ends in ``heads``, and its queue offset."""
        ...


@dataclass(slots=True)
class LazyMessages(Generic[M]):
    """Consecutive messages, with the flags of each. A body with a wrong CRC is marked.

    If the records end early after these messages, ``stop_reason`` says why, and ``stop_position`` where.
    """

    messages: list[M]
    sys_flags: list[int]
    are_whole: list[int]
    stop_position: int
    stop_reason: StopReason


def lazy_messages(
    records: bytes, kind: type[M], readers: Readers, cut_bodies: Callable[[bytes, int], CutRecords]
) -> Iterator[LazyMessages[M]]:
    """The messages of ``records``, which lie one after the other, up to 512 at a time.

    ``cut_bodies`` is :func:`gantrymq.kernels.cuts.cut_bodies`; a client that reads nothing does not load it.

    Raises KernelsError if there is no library of kernels.
    """
    position, is_full = 0, True
    while is_full:
        cuts = cut_bodies(records, position)
        messages = messages_of(records, cuts, kind, readers)
        position, is_full = cuts.stop_position, cuts.is_full
        reason = StopReason.NONE
        if not is_full and position < len(records):
            stop = read_layout(memoryview(records), position, len(records))
            reason = stop if isinstance(stop, StopReason) else StopReason.NONE
        yield LazyMessages(messages, cuts.sys_flags, cuts.are_whole, position, reason)


def messages_of(records: bytes, cuts: CutRecords, kind: type[M], readers: Readers) -> list[M]:
    """The messages of records that were cut. Each has its own copy of its body and of the rest of its record."""
    return cut_messages(kind, records, cuts.heads, cuts.bounds(), readers)


def _born_end(record: bytes) -> int:
    return BORN_HOST_AT + (20 if _INT(record, SYS_FLAG_AT)[0] & flags.BORN_HOST_V6 else 8)


def _store_end(record: bytes) -> int:
    return _born_end(record) + 8 + (20 if _INT(record, SYS_FLAG_AT)[0] & flags.STORE_HOST_V6 else 8)


def _version(record: bytes) -> int:
    return 1 if record[4:8] == _MAGIC_V1 else 2


def _topic_span(record: bytes) -> tuple[int, int]:
    if record[4:8] == _MAGIC_V1 and not _INT(record, SYS_FLAG_AT)[0] & _ANY_V6:
        return _TOPIC_AT, _TOPIC_AT + record[_TOPIC_AT - 1]  # as of nearly all records
    version = _version(record)
    begin = _store_end(record) + 16 + version
    (length,) = (_BYTE if version == 1 else _SHORT)(record, begin - version)
    return begin, begin + length


def _topic(record: bytes) -> str:
    begin, end = _topic_span(record)
    return decode_topic(record[begin:end])


def _properties(record: bytes) -> dict[str, str]:
    return decode_properties(record[_topic_span(record)[1] + 2 :])


READERS: Readers = {
    "topic": _topic,
    "queue_id": lambda record: _INT(record, QUEUE_ID_AT)[0],
    "queue_offset": lambda record: _LONG(record, QUEUE_OFFSET_AT)[0],
    "phy_offset": lambda record: _LONG(record, PHY_OFFSET_AT)[0],
    "size_bytes": lambda record: _INT(record, 0)[0],
    "flag": lambda record: _INT(record, QUEUE_ID_AT + 4)[0],
    "sys_flag": lambda record: _INT(record, SYS_FLAG_AT)[0],
    "born_timestamp_ms": lambda record: _LONG(record, SYS_FLAG_AT + 4)[0],
    "born_host": lambda record: decode_host(record[BORN_HOST_AT : _born_end(record)]),
    "store_timestamp_ms": lambda record: _LONG(record, _born_end(record))[0],
    "store_host": lambda record: decode_host(record[_born_end(record) + 8 : _store_end(record)]),
    "reconsume_times": lambda record: _INT(record, _store_end(record))[0],
    "prepared_transaction_offset": lambda record: _LONG(record, _store_end(record) + 4)[0],
    "body_crc": lambda record: _INT(record, 8)[0],
    "properties": _properties,
    "version": _version,
}
"""The fields of a StoredMessage except the body, from a record without its body."""
