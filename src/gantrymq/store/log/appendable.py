"""What the store can append: messages that become records in one piece, in one file of the log.

This module has a single message and a batch that is stored together. The broker has more kinds, which a kernel makes
directly from requests. The store treats each in the same way: ``check`` outside the put lock, then ``append`` under it.

Source: HookUtils.checkBeforePutMessage and transformDelayLevelMessage, MessageExtEncoder.encode, MessageExtBatch,
DefaultAppendMessageCallback.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format import record
from gantrymq.format.names import is_topic_storable
from gantrymq.format.properties import CRC_PROPERTY_SIZE, encode_properties
from gantrymq.model import flags
from gantrymq.model.host import Host
from gantrymq.model.java import INT_MAX, encode_utf8
from gantrymq.model.message import (
    PROPERTY_CRC32,
    PROPERTY_DELAY,
    PROPERTY_KEYS,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    SCHEDULE_TOPIC,
    Message,
    is_of_bytes,
    is_one_text,
)
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.put_result import PutMessageResult

_UNWRITTEN = bytes(record.SECTOR)  # a property that contains this looks like a sector that a power cut lost
_PUT_OK, _ILLEGAL = PutMessageStatus.PUT_OK, PutMessageStatus.MESSAGE_ILLEGAL  # looking up an enum member is slow

NextOffsets = dict[tuple[str, int], int]


class Appendable(Protocol):
    """Messages that are stored together: all of them, or none.

    Thread rule: owned by one thread until it is appended.
    """

    size_bytes: int  # of its records; set by a successful check()

    @property
    def topic(self) -> str:
        """The topic of the put. A result that reports a failure has it too."""
        ...

    @property
    def queue_id(self) -> int:
        """The queue id of the first message."""
        ...

    @property
    def body_bytes(self) -> int:
        """The size of the message bodies (bytes), which stay in memory until the append."""
        ...

    @property
    def wait_store_msg_ok(self) -> bool:
        """Whether its acknowledgement waits for the disk if the store's flush policy says so."""
        ...

    def check(self, config: MessageStoreConfig, store_host: Host) -> PutMessageStatus:
        """Return PUT_OK, or the reason why it cannot be stored. Also encode the parts that do not depend on offsets.

        Called once, without the put lock.
        """
        ...

    def append(
        self, file: MappedFile, next_offsets: NextOffsets, store_timestamp_ms: int, store_host: Host
    ) -> PutMessageResult:
        """Write the records after the last byte of ``file``, which has room for them. Called under the put lock.

        ``next_offsets`` has the next offset of each queue and is updated. If the records cannot be stored after all,
        nothing changes and the result has the reason.
        """
        ...


class AppendableMessage:
    """One message to append."""

    __slots__ = ("_has_crc", "_properties", "_queue", "_template", "message", "size_bytes")

    def __init__(self, message: Message) -> None:
        self.message = message

    @property
    def topic(self) -> str:
        """The topic of the message."""
        return self.message.topic

    @property
    def queue_id(self) -> int:
        """The queue id of the message."""
        return self.message.queue_id

    @property
    def body_bytes(self) -> int:
        """The size of the body in bytes."""
        return len(self.message.body)

    @property
    def wait_store_msg_ok(self) -> bool:
        """The ``wait_store_msg_ok`` of the message."""
        return self.message.wait_store_msg_ok

    def check(self, config: MessageStoreConfig, store_host: Host) -> PutMessageStatus:
        """See :class:`Appendable`. A delayed message goes to the queue of its delay level."""
        message = self.message
        topic, queue_id, body = message.topic, message.queue_id, message.body
        if type(body) is not bytes and not is_of_bytes(body):
            return _ILLEGAL
        # Only a broker makes timer messages, and chooses a queue by priority.
        if message.delay_ms or message.deliver_at is not None or message.priority is not None:
            return _ILLEGAL
        topic_length = len(topic_bytes(topic))
        if not topic_length or not 0 <= queue_id <= INT_MAX:
            return _ILLEGAL
        if topic_length > record.MAX_TOPIC_LENGTH_V1 and not config.auto_message_version_on_topic_len:
            return _ILLEGAL
        properties = dict(message.properties)
        properties.pop(PROPERTY_CRC32, None)
        if message.tags:
            properties[PROPERTY_TAGS] = message.tags
        if message.keys:
            if is_one_text(message.keys):
                return _ILLEGAL
            properties[PROPERTY_KEYS] = " ".join(message.keys)
        if message.delay_level > 0:
            level = min(message.delay_level, len(config.delay_levels_ms))
            properties[PROPERTY_DELAY] = str(level)
            properties[PROPERTY_REAL_TOPIC], properties[PROPERTY_REAL_QUEUE_ID] = topic, str(queue_id)
            topic, queue_id = SCHEDULE_TOPIC, level - 1
        try:
            encoded = encode_properties(properties)
        except ValueError:
            return _ILLEGAL
        template = template_of(topic, message.born_host, message.store_host or store_host)
        body_length, room = len(body), CRC_PROPERTY_SIZE if config.enabled_append_prop_crc else 0
        if len(encoded) >= record.SECTOR and b"\0" in encoded and _UNWRITTEN in encoded:  # the slowest test comes last
            return _ILLEGAL
        if len(encoded) + room > record.MAX_PROPERTIES_LENGTH:
            return PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
        size = template.size_bytes + body_length + len(encoded) + room
        if body_length > config.max_message_size_bytes or size + record.BLANK_SIZE > config.mapped_file_size_commit_log:
            return _ILLEGAL
        self._queue, self._properties, self._template = (topic, queue_id), encoded, template
        self._has_crc, self.size_bytes = room > 0, size
        return _PUT_OK

    @property
    def record_queue(self) -> tuple[str, int]:
        """(topic, queue id) of the record. Set by a successful :meth:`check`."""
        return self._queue

    @property
    def is_consumable(self) -> bool:
        """Whether the record gets a queue offset; prepared and rollback records do not."""
        return flags.is_consumable(self.message.sys_flag)

    def encode(self, queue_offset: int, phy_offset: int, store_timestamp_ms: int) -> bytes:
        """Return the record. Raises struct.error or TypeError if a number of the message does not fit its field."""
        message, body = self.message, self.message.body
        raw = self._template.encode(
            record.body_crc(body),
            self._queue[1],
            message.flag,
            queue_offset,
            phy_offset,
            message.sys_flag,
            message.born_timestamp_ms or store_timestamp_ms,
            store_timestamp_ms,
            message.reconsume_times,
            message.prepared_transaction_offset,
            body,
            self._properties,
            CRC_PROPERTY_SIZE if self._has_crc else 0,
        )
        return raw + record.encode_crc(raw) if self._has_crc else raw

    def append(
        self, file: MappedFile, next_offsets: NextOffsets, store_timestamp_ms: int, store_host: Host
    ) -> PutMessageResult:
        """See :class:`Appendable`."""
        message, queue = self.message, self._queue
        topic, queue_id = queue
        phy_offset = file.file_from_offset + file.wrote_position
        try:
            # Most messages need no call here: such calls took 0.4 of the 5.3 µs of a put.
            consumable = message.sys_flag == 0 or flags.is_consumable(message.sys_flag)
            queue_offset = next_offsets.get(queue, 0) if consumable else 0
            raw = self.encode(queue_offset, phy_offset, store_timestamp_ms)
        except (struct.error, TypeError):
            return PutMessageResult(_ILLEGAL, topic, queue_id)
        file.write(raw)
        if consumable:
            next_offsets[queue] = queue_offset + 1
        return PutMessageResult(
            _PUT_OK, topic, queue_id, phy_offset, queue_offset, self.size_bytes, store_timestamp_ms,
            message.store_host or store_host,
        )  # fmt: skip


class AppendableBatch:
    """Several messages of one queue (an unbroken batch), at least one, with one store host.

    The status is MESSAGE_ILLEGAL if their queues or hosts differ, or if one is delayed or part of a transaction.
    """

    __slots__ = ("_each", "size_bytes")

    def __init__(self, messages: Sequence[Message]) -> None:
        self._each = [AppendableMessage(message) for message in messages]

    @property
    def topic(self) -> str:
        """The topic of the first message."""
        return self._each[0].topic

    @property
    def queue_id(self) -> int:
        """The queue id of the first message."""
        return self._each[0].queue_id

    @property
    def body_bytes(self) -> int:
        """The size of all bodies in bytes."""
        return sum(appendable.body_bytes for appendable in self._each)

    @property
    def wait_store_msg_ok(self) -> bool:
        """The ``wait_store_msg_ok`` of the first message."""
        return self._each[0].wait_store_msg_ok

    def check(self, config: MessageStoreConfig, store_host: Host) -> PutMessageStatus:
        """See :class:`Appendable`. The status is that of the first message that cannot be stored."""
        for appendable in self._each:
            if (status := appendable.check(config, store_host)) is not _PUT_OK:
                return status
        queue, host = (self.topic, self.queue_id), self._each[0].message.store_host
        for appendable in self._each:
            if (
                appendable.record_queue != queue
                or appendable.message.store_host != host
                or not appendable.is_consumable
            ):
                return _ILLEGAL
        self.size_bytes = sum(appendable.size_bytes for appendable in self._each)
        return _PUT_OK if self.size_bytes + record.BLANK_SIZE <= config.mapped_file_size_commit_log else _ILLEGAL

    def append(
        self, file: MappedFile, next_offsets: NextOffsets, store_timestamp_ms: int, store_host: Host
    ) -> PutMessageResult:
        """See :class:`Appendable`."""
        queue = topic, queue_id = self.topic, self.queue_id
        queue_offset, end = next_offsets.get(queue, 0), file.file_from_offset + file.wrote_position
        records, phy_offsets = [], []
        try:
            for number, appendable in enumerate(self._each):
                records.append(appendable.encode(queue_offset + number, end, store_timestamp_ms))
                phy_offsets.append(end)
                end += appendable.size_bytes
        except (struct.error, TypeError):
            return PutMessageResult(_ILLEGAL, topic, queue_id)
        file.write(b"".join(records))
        next_offsets[queue] = queue_offset + len(records)
        return PutMessageResult(
            _PUT_OK, topic, queue_id, phy_offsets[0], queue_offset, self.size_bytes, store_timestamp_ms,
            self._each[0].message.store_host or store_host, phy_offsets,
        )  # fmt: skip


@lru_cache(maxsize=1024)  # called by every put, mostly with the same few topics
def topic_bytes(topic: str) -> bytes:
    """Return ``topic`` encoded, or empty bytes if no queue can have that name."""
    return encode_utf8(topic) if is_topic_storable(topic) else b""


@lru_cache(maxsize=1024)
def template_of(topic: str, born_host: Host, store_host: Host) -> record.RecordTemplate:
    """Return the fixed parts of the records of a valid topic and two hosts."""
    raw = topic_bytes(topic)
    return record.record_template(1 if len(raw) <= record.MAX_TOPIC_LENGTH_V1 else 2, raw, born_host, store_host)
