"""The record of one message in the commit log, and the blank at the end of a file.

======  =========================  ==============================================================
bytes   field                      remark
======  =========================  ==============================================================
4       totalSize                  of the whole record
4       magic                      v1 0xdaa320a7, v2 0xdaa320ab (a topic longer than 127), blank 0xcbd43194
4       bodyCRC                    CRC-32 of the body & 0x7FFFFFFF
4       queueId
4       flag
8       queueOffset
8       phyOffset                  this record's position in the commit log
4       sysFlag                    see ``gantrymq.model.flags``
8       bornTimestamp
8/20    bornHost                   ip 4 or 16, port 4
8       storeTimestamp
8/20    storeHost                  ip 4 or 16, port 4
4       reconsumeTimes
8       preparedTransactionOffset
4, n    body
1/2, n  topic                      the length takes one byte in v1 and two in v2, both signed
2, n    properties
======  =========================  ==============================================================

A blank is ``size 4 | magic 4`` where ``size`` is the rest of the file; only these eight bytes are written. A record
is put into a file only if eight bytes stay free after it. A record never crosses files.

Source: MessageExtEncoder, MessageDecoder.decode and CommitLog.checkMessageAndReturnSize.
"""

import struct
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from isal.isal_zlib import crc32

from gantrymq.format.properties import CRC_PROPERTY_SIZE, decode_crc_property, decode_properties, encode_crc_property
from gantrymq.format.stop_reason import StopReason
from gantrymq.model import flags
from gantrymq.model.host import Host
from gantrymq.model.java import decode_utf8
from gantrymq.model.message import PROPERTY_CRC32, StoredMessage

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
BLANK_SIZE = 8
SECTOR = 512  # what a disk writes whole or not at all
MIN_RECORD_SIZE = 91  # v1, IPv4, with empty body, topic and properties
MAX_TOPIC_LENGTH_V1 = 127
MAX_TOPIC_LENGTH_V2 = 32767
MAX_PROPERTIES_LENGTH = 32767
QUEUE_ID_AT = 12
QUEUE_OFFSET_AT = 20
PHY_OFFSET_AT = 28
SYS_FLAG_AT = 36
BORN_HOST_AT = 48
HEAD_SIZE = BORN_HOST_AT + 20 + 8  # up to the store timestamp, whatever the size of the host

# From the size to the length of the body, for each size of the two hosts.
_FRONT = {(born, store): struct.Struct(f">IIiiiqqiq{born}sq{store}siqi") for born in (8, 20) for store in (8, 20)}
_LENGTH, _BYTE, _SHORT, _INT = struct.Struct(">H"), struct.Struct(">b"), struct.Struct(">h"), struct.Struct(">i")
_BLANK, _LONG = struct.Struct(">iI"), struct.Struct(">q")


class CheckCRC(Enum):
    """What a check of a record verifies besides its lengths."""

    OFF = 0
    BODY = 1
    WHOLE_RECORD = 2  # forceVerifyPropCRC: the __CRC32# property instead of the body's CRC


@dataclass(slots=True)
class Layout:
    """The positions of a record's variable parts, as offsets from its start. Negative lengths count as 0.

    It is never changed. It is not frozen, because a frozen dataclass takes five times as long to make.
    """

    size: int
    version: int
    store_timestamp_at: int
    store_host_at: int
    body_at: int
    body_length: int
    topic_at: int
    topic_length: int
    properties_at: int
    properties_length: int


class RecordHead(NamedTuple):
    """What the first bytes of a record say: its size in bytes, its position in the commit log, and its store time."""

    size_bytes: int
    phy_offset: int
    store_timestamp_ms: int


def read_head(raw: bytes) -> RecordHead | None:
    """The head of the record that begins with ``raw``, of which HEAD_SIZE bytes suffice; None if none begins there."""
    if len(raw) < HEAD_SIZE:
        return None
    size, magic = _BLANK.unpack_from(raw)
    if magic not in (MAGIC_V1, MAGIC_V2) or size < MIN_RECORD_SIZE:
        return None
    born_host = 20 if int.from_bytes(raw[SYS_FLAG_AT : SYS_FLAG_AT + 4]) & flags.BORN_HOST_V6 else 8
    (phy_offset,), (stored_ms,) = (
        _LONG.unpack_from(raw, PHY_OFFSET_AT),
        _LONG.unpack_from(raw, BORN_HOST_AT + born_host),
    )
    return RecordHead(size, phy_offset, stored_ms)


def body_crc(body: bytes | bytearray | memoryview) -> int:
    """The CRC of a body as in a record: 31 bits (UtilAll.crc32)."""
    return crc32(body) & 0x7FFFFFFF


def record_size(version: int, sys_flag: int, body_length: int, topic_length: int, properties_length: int) -> int:
    """The size of a record in bytes (MessageExtEncoder.calMsgLength)."""
    hosts = (20 if sys_flag & flags.BORN_HOST_V6 else 8) + (20 if sys_flag & flags.STORE_HOST_V6 else 8)
    return 48 + 8 + 4 + 8 + 4 + 2 + hosts + body_length + version + topic_length + properties_length


def encode_blank(size: int) -> bytes:
    """The eight bytes at the end of a file that has ``size`` bytes left."""
    return _BLANK.pack(size, MAGIC_BLANK)


class RecordTemplate(NamedTuple):
    """The bytes around body and properties, the same in every record of one topic and two hosts."""

    size_bytes: int  # of a record with empty body and properties
    magic: int
    host_flags: int  # in sysFlag
    born_host: bytes
    store_host: bytes
    topic: bytes  # with its length in front
    front: struct.Struct  # from the size to the length of the body

    def encode(
        self,
        body_crc: int,
        queue_id: int,
        flag: int,
        queue_offset: int,
        phy_offset: int,
        sys_flag: int,
        born_timestamp_ms: int,
        store_timestamp_ms: int,
        reconsume_times: int,
        prepared_transaction_offset: int,
        body: bytes | bytearray | memoryview,
        properties: bytes,
        room: int = 0,
    ) -> bytes:
        """The bytes of a record from its fields in their order; ``room`` is for properties that the caller appends."""
        properties_length = len(properties) + room
        return b"".join(
            (
                self.front.pack(
                    self.size_bytes + len(body) + properties_length,
                    self.magic,
                    body_crc,
                    queue_id,
                    flag,
                    queue_offset,
                    phy_offset,
                    sys_flag & ~flags.HOSTS_V6 | self.host_flags,
                    born_timestamp_ms,
                    self.born_host,
                    store_timestamp_ms,
                    self.store_host,
                    reconsume_times,
                    prepared_transaction_offset,
                    len(body),
                ),
                body,
                self.topic,
                _LENGTH.pack(properties_length),
                properties,
            )
        )


def record_template(version: int, topic: bytes, born_host: Host, store_host: Host) -> RecordTemplate:
    """The template of records of ``version`` 1 or 2; the caller has checked the topic's length."""
    host_flags = (flags.BORN_HOST_V6 if born_host.is_v6 else 0) | (flags.STORE_HOST_V6 if store_host.is_v6 else 0)
    born, store = born_host.to_bytes(), store_host.to_bytes()
    return RecordTemplate(
        record_size(version, host_flags, 0, len(topic), 0),
        MAGIC_V1 if version == 1 else MAGIC_V2,
        host_flags,
        born,
        store,
        len(topic).to_bytes(version, "big") + topic,
        _FRONT[len(born), len(store)],
    )


def encode_record(message: StoredMessage, topic: bytes, properties: bytes, *, append_crc: bool = False) -> bytes:
    """The bytes of a record.

    ``message`` gives every field except ``size_bytes``; ``topic`` and ``properties`` are encoded already. With
    ``append_crc`` the record ends with the CRC property. The caller has checked the lengths.
    """
    if append_crc and properties and properties[-1] != 2:
        properties += b"\x02"
    raw = record_template(message.version, topic, message.born_host, message.store_host).encode(
        message.body_crc,
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.phy_offset,
        message.sys_flag,
        message.born_timestamp_ms,
        message.store_timestamp_ms,
        message.reconsume_times,
        message.prepared_transaction_offset,
        message.body,
        properties,
        CRC_PROPERTY_SIZE if append_crc else 0,
    )
    return raw + encode_crc(raw) if append_crc else raw


def encode_crc(raw: bytes) -> bytes:
    """The CRC property that ends the record ``raw``."""
    return encode_crc_property(crc32(raw) & 0x7FFFFFFF)


def read_layout(buffer: memoryview, position: int, limit: int) -> Layout | StopReason:
    """Find the parts of the record at ``position``. Every number is checked before it is used.

    ``limit`` is the end of the file within ``buffer``; no byte after it is read.
    """
    rest = limit - position
    if rest < BLANK_SIZE:
        return StopReason.NO_BLANK
    size, magic = _BLANK.unpack_from(buffer, position)
    if magic == MAGIC_BLANK:
        return StopReason.BLANK if size <= rest else StopReason.SIZE
    if size == 0 and magic == 0:
        return StopReason.ZEROS
    version = 1 if magic == MAGIC_V1 else 2 if magic == MAGIC_V2 else 0
    if not version:
        return StopReason.MAGIC
    if not MIN_RECORD_SIZE <= size <= rest:
        return StopReason.SIZE
    return _layout_within(buffer, position, size, version) or StopReason.HALF


def _layout_within(buffer: memoryview, position: int, size: int, version: int) -> Layout | None:
    (sys_flag,) = _INT.unpack_from(buffer, position + SYS_FLAG_AT)
    store_timestamp_at = BORN_HOST_AT + (20 if sys_flag & flags.BORN_HOST_V6 else 8)
    store_host_at = store_timestamp_at + 8
    body_at = store_host_at + (20 if sys_flag & flags.STORE_HOST_V6 else 8) + 16
    if body_at + version + 2 > size:
        return None
    (body_length,) = _INT.unpack_from(buffer, position + body_at - 4)
    body_length = body_length if body_length > 0 else 0
    topic_at = body_at + body_length + version
    if topic_at + 2 > size:
        return None
    (topic_length,) = (_BYTE if version == 1 else _SHORT).unpack_from(buffer, position + topic_at - version)
    properties_at = topic_at + topic_length + 2
    if topic_length < 0 or properties_at > size:
        return None
    (properties_length,) = _SHORT.unpack_from(buffer, position + properties_at - 2)
    properties_length = properties_length if properties_length > 0 else 0
    if properties_at + properties_length != size:
        return None
    return Layout(
        size, version, store_timestamp_at, store_host_at, body_at, body_length,
        topic_at, topic_length, properties_at, properties_length,
    )  # fmt: skip


def crc_matches(buffer: memoryview, position: int, layout: Layout, check: CheckCRC) -> bool:
    """Whether the record at ``position`` matches its CRC."""
    if check is CheckCRC.BODY and layout.body_length > 0:
        body = buffer[position + layout.body_at : position + layout.body_at + layout.body_length]
        return body_crc(body) == int.from_bytes(buffer[position + 8 : position + 12], "big")
    if check is CheckCRC.WHOLE_RECORD:
        start = position + layout.properties_at
        properties = decode_properties(bytes(buffer[start : start + layout.properties_length]))
        expected = decode_crc_property(properties.get(PROPERTY_CRC32, ""))
        covered = buffer[position : position + layout.size - CRC_PROPERTY_SIZE]
        return expected == crc32(covered) & 0x7FFFFFFF
    return True


def check_record(buffer: memoryview, position: int, limit: int, check: CheckCRC) -> Layout | StopReason:
    """The layout of a whole record at ``position``, or why there is none (CommitLog.checkMessageAndReturnSize)."""
    layout = read_layout(buffer, position, limit)
    if isinstance(layout, Layout) and not crc_matches(buffer, position, layout, check):
        return StopReason.CRC
    return layout


def decode_front(buffer: memoryview, position: int, layout: Layout) -> tuple[Any, ...]:
    """The fields from the size to the length of the body, in their order; the hosts are bytes."""
    return _FRONT[layout.store_timestamp_at - BORN_HOST_AT, layout.body_at - 16 - layout.store_host_at].unpack_from(
        buffer, position
    )


def decode_record(buffer: memoryview, position: int, layout: Layout) -> StoredMessage:
    """The message of a record whose layout was found by :func:`read_layout`."""
    (
        size, _, body_crc, queue_id, flag, queue_offset, phy_offset, sys_flag, born_timestamp_ms, born_host,
        store_timestamp_ms, store_host, reconsume_times, prepared_transaction_offset, _,
    ) = decode_front(buffer, position, layout)  # fmt: skip
    body_at, topic_at = position + layout.body_at, position + layout.topic_at
    properties_at = position + layout.properties_at
    return StoredMessage(
        decode_topic(bytes(buffer[topic_at : topic_at + layout.topic_length])),
        queue_id,
        queue_offset,
        phy_offset,
        size,
        flag,
        sys_flag,
        born_timestamp_ms,
        decode_host(born_host),
        store_timestamp_ms,
        decode_host(store_host),
        reconsume_times,
        prepared_transaction_offset,
        body_crc,
        bytes(buffer[body_at : body_at + layout.body_length]),
        decode_properties(bytes(buffer[properties_at : properties_at + layout.properties_length])),
        layout.version,
    )


# Most records have one of a few hosts and topics.
decode_host = lru_cache(maxsize=1024)(Host.from_bytes)
decode_topic = lru_cache(maxsize=1024)(decode_utf8)
