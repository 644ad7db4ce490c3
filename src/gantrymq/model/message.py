""":class:`Message` is put into a store, :class:`StoredMessage` is read from one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import lru_cache
from itertools import repeat
from typing import TypeVar

from gantrymq.model.host import Host
from gantrymq.model.java import string_hash

# The names of all properties with a meaning (MessageConst).
PROPERTY_KEYS = "KEYS"
PROPERTY_TAGS = "TAGS"
PROPERTY_WAIT = "WAIT"
PROPERTY_DELAY = "DELAY"
PROPERTY_UNIQ_KEY = "UNIQ_KEY"
PROPERTY_REAL_TOPIC = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID = "REAL_QID"
PROPERTY_CRC32 = "__CRC32#"
PROPERTY_SHARDING_KEY = "__SHARDINGKEY"
PROPERTY_PRIORITY = "_SYS_MSG_PRIORITY_"
PROPERTY_TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
PROPERTY_TIMER_DELAY_MS = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
PROPERTY_TIMER_OUT_MS = "TIMER_OUT_MS"
PROPERTY_TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
PROPERTY_TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
PROPERTY_TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
PROPERTY_TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
PROPERTY_TRANSACTION_PREPARED = "TRAN_MSG"
PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
PROPERTY_TRANSACTION_ID = "__transactionId__"
PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_PRODUCER_GROUP = "PGROUP"
PROPERTY_POP_CK = "POP_CK"
PROPERTY_FIRST_POP_TIME = "1ST_POP_TIME"
PROPERTY_ORIGIN_GROUP = "ORIGIN_GROUP"
PROPERTY_INNER_NUM = "INNER_NUM"
PROPERTY_INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
PROPERTY_INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
PROPERTY_RETRY_TOPIC = "RETRY_TOPIC"
PROPERTY_ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
PROPERTY_RECONSUME_TIME = "RECONSUME_TIME"
PROPERTY_MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
PROPERTY_REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
PROPERTY_PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
PROPERTY_REPLY_ARRIVE_TIME = "ARRIVE_TIME"
PROPERTY_CORRELATION_ID = "CORRELATION_ID"
PROPERTY_TTL = "TTL"
PROPERTY_MESSAGE_TYPE = "MSG_TYPE"
PROPERTY_INSTANCE_ID = "INSTANCE_ID"
PROPERTY_MSG_REGION = "MSG_REGION"
PROPERTY_TRACE_SWITCH = "TRACE_ON"
PROPERTY_CLUSTER = "CLUSTER"
PROPERTY_BORN_TIMESTAMP = "BORN_TIMESTAMP"
PROPERTY_BORN_HOST = "__BORNHOST"
PROPERTY_TRANSFER_FLAG = "TRANSFER_FLAG"
PROPERTY_TRACE_CONTEXT = "TRACE_CONTEXT"
PROPERTY_LITE_TOPIC = "__LITE_TOPIC"
PROPERTY_DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
PROPERTY_DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
TIMER_PROPERTIES = (PROPERTY_TIMER_DELIVER_MS, PROPERTY_TIMER_DELAY_MS, PROPERTY_TIMER_DELAY_SEC)
REPLY_TYPE = "reply"  # the MSG_TYPE of a reply
# Topics in which messages wait before they are delivered, and the groups whose offsets say how far that is done.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_GROUP = "CID_RMQ_SYS_TRANS"
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"  # and the name of the cluster
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
_LAZY_SLOTS = ("_readers", "_record")  # of a message that decodes a field at its first use


def tag_code(tag: str) -> int:
    """The hash of a tag in queue units and consumers' filters; 0 for an empty tag.

    Source: MessageExtBrokerInner.tagsString2tagsCode.
    """
    return string_hash(tag)


LOOPBACK = Host(b"\x7f\x00\x00\x01", 0)


@dataclass(slots=True)
class Message:
    """A message to put or send (RocketMQ's MessageExtBrokerInner).

    ``body`` is any buffer of single bytes; a buffer of wider items, or a text, is refused. ``properties`` are stored as
    given, except ``__CRC32#``, which the store computes. ``tags``, ``keys`` (joined by one space; a single text instead
    of a list is refused) and ``delay_level`` are added to them as TAGS, KEYS and DELAY. ``born_timestamp_ms`` 0 means
    the time of the put. ``store_host`` None means the store's own.

    A producer sends a message with ``delay_ms`` (milliseconds), or with ``deliver_at``, as a timer message: the broker
    delivers it at that time. ``deliver_at`` is a datetime (local time without a time zone), or milliseconds since the
    epoch. ``priority`` is a whole number from 0; a broker puts the message into the queue with that number if its topic
    has ``message.type=PRIORITY``. A store refuses all three, because only a broker acts on them.

    Thread rule: do not change a message while it is being put.
    """

    topic: str
    body: bytes | bytearray | memoryview
    queue_id: int = 0
    tags: str = ""
    keys: tuple[str, ...] | list[str] = ()
    properties: dict[str, str] = field(default_factory=dict)
    delay_level: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: Host = LOOPBACK
    store_host: Host | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    wait_store_msg_ok: bool = True
    delay_ms: int = 0
    deliver_at: datetime | int | None = None
    priority: int | None = None


def is_delayed(message: Message) -> bool:
    """Whether a message asks to be delivered later than at once."""
    asks = message.delay_level or message.delay_ms or message.deliver_at is not None
    return bool(asks) or any(name in message.properties for name in (PROPERTY_DELAY, *TIMER_PROPERTIES))


def is_one_text(keys: object) -> bool:
    """Whether a message's keys are a single text; its letters would become the keys."""
    return isinstance(keys, str)


def is_of_bytes(body: object) -> bool:
    """Whether ``body`` is a buffer of single bytes; with wider items len() is not the size in a record."""
    if type(body) is bytes:
        return True
    try:
        view = memoryview(body)  # type: ignore[arg-type]
        return view.c_contiguous and view.nbytes == len(body)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False


Readers = Mapping[str, Callable[[bytes], object]]
"""Reads a field, by its name, from a record without its body."""


class _LazyFields:
    """Decodes a field at its first use.

    The obvious way, a property for each field, calls Python code at every access. Here a field that is not decoded yet
    is an empty slot, for which Python calls ``__getattr__``. It fills the slot, and later accesses read the slot. A
    message made by its constructor has no empty slot.

    The message has its own copy of the record, and of the body. A view of a pull's bytes would save the copy, but one
    message that a program keeps would keep the whole pull.
    """

    __slots__ = _LAZY_SLOTS
    _readers: Readers
    _record: bytes

    def __getattr__(self, name: str) -> object:
        if name not in _LAZY_SLOTS:
            try:
                read = self._readers[name]
            except (KeyError, AttributeError):  # no field, or a message made by its constructor
                pass
            else:
                value = read(self._record)
                setattr(self, name, value)
                return value
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        """The fields, for copy and pickle: as of a message that was never lazy."""
        return None, {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


@dataclass(slots=True)
class StoredMessage(_LazyFields):
    """A message as read from a store (RocketMQ's MessageExt).

    ``body`` is as stored, not decompressed; ``body_crc`` is the stored value. ``size_bytes`` is the size of the
    whole record, ``version`` 1 or 2. The other fields of a message that was read are decoded at their first use.
    """

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    size_bytes: int
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: Host
    store_timestamp_ms: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    body: bytes
    properties: dict[str, str]
    version: int = 1

    @property
    def tags(self) -> str:
        """The TAGS property, or an empty string."""
        return self.properties.get(PROPERTY_TAGS, "")

    @property
    def keys(self) -> list[str]:
        """The keys in the KEYS property."""
        text = self.properties.get(PROPERTY_KEYS, "")
        return [key for key in text.split(" ") if key] if " " in text or not text else [text]

    @property
    def msg_id(self) -> str:
        """The offset message id: store host and physical offset in upper-case hexadecimal."""
        return message_id(self.store_host, self.phy_offset)


M = TypeVar("M", bound=StoredMessage)


def cut_messages(
    kind: type[M],
    records: bytes,
    heads: bytes,
    bounds: tuple[list[int], list[int], list[int], list[int]],
    readers: Readers,
) -> list[M]:
    """Messages that read their fields, except ``body``, from their record without the body at their first use.

    ``heads`` has the records without bodies, one after the other. ``bounds`` has, for each message, where its body
    begins and ends in ``records``, where its record ends in ``heads``, and its queue offset.
    """
    messages: list[M] = list(map(object.__new__, repeat(kind, len(bounds[0]))))  # faster than one by one
    begin = 0
    for message, body_at, body_end, end, queue_offset in zip(messages, *bounds, strict=True):
        message.body, message._record, message._readers = records[body_at:body_end], heads[begin:end], readers
        message.queue_offset = queue_offset
        begin = end
    return messages


def message_for_queue(stored: StoredMessage, topic: str, queue_id: int, properties: dict[str, str]) -> Message:
    """Return the message that a broker puts to move ``stored`` to another queue. Its put does not wait for the disk.

    Body, flags, birth, store host and reconsume times are those of ``stored``.
    """
    return Message(
        topic=topic,
        body=stored.body,
        queue_id=queue_id,
        properties=properties,
        flag=stored.flag,
        sys_flag=stored.sys_flag,
        born_timestamp_ms=stored.born_timestamp_ms,
        born_host=stored.born_host,
        store_host=stored.store_host,
        reconsume_times=stored.reconsume_times,
        wait_store_msg_ok=False,
    )


def message_id(store_host: Host, phy_offset: int) -> str:
    """RocketMQ's createMessageId: the store host's 8 or 20 bytes, then the physical offset in 8."""
    return f"{_digits(store_host)}{phy_offset:016X}"


@lru_cache(maxsize=64)
def _digits(host: Host) -> str:
    return host.to_bytes().hex().upper()


def parse_message_id(msg_id: str) -> tuple[Host, int]:
    """The inverse of :func:`message_id`. Raises ValueError unless ``msg_id`` has 32 or 56 hex digits."""
    if len(msg_id) not in (32, 56):
        raise ValueError(f"{msg_id!r} is no message id: it has {len(msg_id)} digits, not 32 or 56")
    raw = bytes.fromhex(msg_id)
    if len(raw) * 2 != len(msg_id):  # fromhex ignores blanks
        raise ValueError(f"{msg_id!r} is no message id: it holds blanks")
    return Host.from_bytes(raw[:-8]), int.from_bytes(raw[-8:], "big")
