"""Due timer messages as appendables: the record of the timer topic with its real topic and adjusted properties.

The obvious way decodes a record into a StoredMessage, makes a Message of it and encodes that. It takes 75 microseconds
of processor time per message, and slots with 100,000 messages must be delivered within seconds. So the properties are
edited as bytes here, and the body is not copied twice. Special cases are left to the obvious way: a message that rolls
or recalls, properties that the delivery would replace, and a CRC of the whole record.

Thread rule: as :class:`gantrymq.store.log.appendable.Appendable`.
"""

from __future__ import annotations

from functools import lru_cache

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format import record
from gantrymq.format.record import Layout, decode_front, read_layout
from gantrymq.format.timer import TimerUnit
from gantrymq.model import flags
from gantrymq.model.host import Host
from gantrymq.model.java import INT_MAX, decode_utf8
from gantrymq.model.message import TIMER_TOPIC
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.log.appendable import NextOffsets, template_of, topic_bytes
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.put_result import PutMessageResult

_TIMER_TOPIC = TIMER_TOPIC.encode()
_OUT_MS, _REAL_TOPIC, _REAL_QID = b"TIMER_OUT_MS\x01", b"REAL_TOPIC\x01", b"REAL_QID\x01"
_UNUSUAL = (b"TIMER_ENQUEUE_MS\x01", b"TIMER_DEQUEUE_MS\x01", b"TIMER_DEL_UNIQKEY\x01", b"__CRC32#\x01", b"\0")
_MAX_DIGITS = 18
_PUT_OK = PutMessageStatus.PUT_OK
_Front = tuple[int, int, int, int, int, bytes, bytes]  # body CRC, flag, sysFlag, born time, reconsume times, both hosts


class Redelivery:
    """One due message. ``due_ms`` is its TIMER_OUT_MS; ``front`` has the fields of its record that do not change."""

    __slots__ = ("_front", "_properties", "_template", "body", "due_ms", "queue_id", "size_bytes", "topic")

    def __init__(self, topic: str, queue_id: int, due_ms: int, front: _Front, body: bytes, properties: bytes) -> None:
        self.topic, self.queue_id, self.due_ms = topic, queue_id, due_ms
        self._front, self.body, self._properties = front, body, properties

    @property
    def body_bytes(self) -> int:
        """The size of the message's body."""
        return len(self.body)

    @property
    def wait_store_msg_ok(self) -> bool:
        """False: deliveries do not wait for the disk, because the checkpoint of the timers does."""
        return False

    def check(self, config: MessageStoreConfig, store_host: Host) -> PutMessageStatus:
        """See :class:`gantrymq.store.log.appendable.Appendable`."""
        _, _, _, _, _, born_host, own_host = self._front
        template = self._template = template_of(self.topic, _host(born_host), _host(own_host))
        self.size_bytes = size = template.size_bytes + len(self.body) + len(self._properties)
        if len(self._properties) > record.MAX_PROPERTIES_LENGTH:
            return PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
        fits = size + record.BLANK_SIZE <= config.mapped_file_size_commit_log
        return _PUT_OK if fits and len(self.body) <= config.max_message_size_bytes else PutMessageStatus.MESSAGE_ILLEGAL

    def append(
        self, file: MappedFile, next_offsets: NextOffsets, store_timestamp_ms: int, store_host: Host
    ) -> PutMessageResult:
        """See :class:`gantrymq.store.log.appendable.Appendable`."""
        queue = self.topic, self.queue_id
        phy_offset = file.file_from_offset + file.wrote_position
        body_crc, flag, sys_flag, born_ms, reconsume_times, _, _ = self._front
        queue_offset = next_offsets.get(queue, 0)
        file.write(
            self._template.encode(
                body_crc, self.queue_id, flag, queue_offset, phy_offset, sys_flag, born_ms, store_timestamp_ms,
                reconsume_times, 0, self.body, self._properties,
            )
        )  # fmt: skip
        next_offsets[queue] = queue_offset + 1
        return PutMessageResult(
            _PUT_OK, self.topic, self.queue_id, phy_offset, queue_offset, self.size_bytes, store_timestamp_ms
        )


def read_due(log: CommitLog, unit: TimerUnit, now_ms: int) -> Redelivery | None:
    """The delivery of a unit's message; None for a special case, and for a deleted message. Raises DiskError."""
    if unit.magic != 1:
        return None
    file, offset = log.queue.find(unit.phy_offset), unit.phy_offset
    if file is None or not file.hold_to_read():
        return None
    try:
        position, buffer = offset - file.file_from_offset, file.array.data
        file.fetch(position, unit.message_size)
        layout = read_layout(buffer, position, file.committed_position)
        if not isinstance(layout, Layout) or layout.size != unit.message_size:
            return None
        if file.file.lost_in(position, layout.size) is not None:
            return None
        return _from_record(buffer, position, layout, offset, unit.enqueue_ms, now_ms)
    finally:
        file.release()


def _from_record(
    buffer: memoryview, position: int, layout: Layout, offset: int, enqueue_ms: int, now_ms: int
) -> Redelivery | None:
    topic_at = position + layout.topic_at
    properties_at = position + layout.properties_at
    if buffer[topic_at : topic_at + layout.topic_length] != _TIMER_TOPIC:
        return None
    properties = bytes(buffer[properties_at : properties_at + layout.properties_length])
    if any(name in properties for name in _UNUSUAL):
        return None
    if not properties.endswith(b"\x02"):
        properties += b"\x02"
    due, topic, queue_id = (_value(properties, name) for name in (_OUT_MS, _REAL_TOPIC, _REAL_QID))
    if not (due.isdigit() and queue_id.isdigit() and max(len(due), len(queue_id)) <= _MAX_DIGITS):
        return None
    name, number = _topic(topic), int(queue_id)
    fields = decode_front(buffer, position, layout)
    _, _, body_crc, _, flag, _, phy_offset, sys_flag, born_ms, born_host, _, store_host, reconsumed, _, _ = fields
    if phy_offset != offset or not topic_bytes(name) or number > INT_MAX or not flags.is_consumable(sys_flag):
        return None
    properties += b"TIMER_ENQUEUE_MS\x01%d\x02TIMER_DEQUEUE_MS\x01%d\x02" % (enqueue_ms, now_ms)
    body_at = position + layout.body_at
    body = bytes(buffer[body_at : body_at + layout.body_length])
    front = body_crc, flag, sys_flag, born_ms, reconsumed, born_host, store_host
    return Redelivery(name, number, int(due), front, body, properties)


def _value(properties: bytes, name: bytes) -> bytes:
    """The value of a property; empty if it is not there. Each property ends with a separator."""
    at = 0 if properties.startswith(name) else properties.find(b"\x02" + name) + 1
    if at == 0 and not properties.startswith(name):
        return b""
    return properties[at + len(name) : properties.index(b"\x02", at)]


_topic = lru_cache(maxsize=1024)(decode_utf8)
_host = lru_cache(maxsize=1024)(Host.from_bytes)
