"""The records of POP in the revive topic, and how a popped message becomes one of a retry topic.

A pop of a queue writes a checkpoint (tag ``ck``): which messages it handed out, and until when they are invisible. An
acknowledgement (``ack``, or ``bAck`` for several messages) names the checkpoint by topic, queue, group, start offset,
pop time and broker. All of them are timer messages: a checkpoint comes into the revive topic one second before the
messages become visible again, an acknowledgement at that time.

Bodies are JSON as fastjson2 writes it, so that RocketMQ revives what was popped here, and the reverse.

Pure: no I/O, no clock.

Source: PopCheckPoint, AckMsg, BatchAckMsg, PopMessageProcessor.buildCkMsg, AckMessageProcessor.appendAck,
PopReviveService.reviveRetry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec

from gantrymq.broker import names
from gantrymq.model.flags import HOSTS_V6
from gantrymq.model.host import Host
from gantrymq.model.java import LONG_MAX
from gantrymq.model.message import (
    PROPERTY_FIRST_POP_TIME,
    PROPERTY_ORIGIN_GROUP,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQ_KEY,
    Message,
    StoredMessage,
)
from gantrymq.model.receipt_handle import retry_topic_v1, retry_topic_v2
from gantrymq.remoting.header import Int, Long

CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
# A checkpoint is delivered this much in front of its revive time, so that it is there before its acknowledgements.
AHEAD_MS = 1_000
MOST_MESSAGES = 32  # of a checkpoint: its bits are a Java int
_UNKNOWN_RE_PUTS = 127

B = TypeVar("B", bound=msgspec.Struct)


class CheckpointKey(NamedTuple):
    """What an acknowledgement names a checkpoint by."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time_ms: int
    broker_name: str


class _CheckpointBody(msgspec.Struct):
    bm: Long = 0
    bn: str | None = None
    c: str | None = None
    d: list[Int] | None = None
    it: Long = 0
    n: Long = 0
    pt: Long = 0
    q: Int = 0
    ro: Long = 0
    rp: str | None = None
    so: Long = 0
    sp: bool = False
    t: str | None = None


class _AckBody(msgspec.Struct):
    ao: Long = 0
    aol: list[Long] | None = None
    bn: str | None = None
    c: str | None = None
    pt: Long = 0
    q: Int = 0
    so: Long = 0
    t: str | None = None


# The names that RocketMQ wrote before 5.1, and still reads.
_LONG_NAMES = {
    "ackOffset": "ao",
    "ackOffsetList": "aol",
    "brokerName": "bn",
    "consumerGroup": "c",
    "popTime": "pt",
    "queueId": "q",
    "startOffset": "so",
    "topic": "t",
}


@dataclass(slots=True)
class Checkpoint:
    """The messages of one queue that a pop handed out.

    ``diffs`` are their queue offsets behind ``start_offset``, at most 32. Bit i of ``acked`` says that message i is
    acknowledged. ``re_puts`` counts how often the checkpoint was written again because a message could not be revived.
    ``is_suspended`` keeps the reconsume times of the message. ``revive_offset`` is its place in the revive queue.
    """

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time_ms: int
    invisible_time_ms: int
    broker_name: str
    diffs: list[int]
    acked: int = 0
    re_puts: int | None = None
    is_suspended: bool = False
    revive_offset: int = 0

    @property
    def key(self) -> CheckpointKey:
        """What its acknowledgements name."""
        return CheckpointKey(
            self.topic, self.group, self.queue_id, self.start_offset, self.pop_time_ms, self.broker_name
        )

    @property
    def revive_time_ms(self) -> int:
        """When the messages that are not acknowledged become visible again."""
        return self.pop_time_ms + self.invisible_time_ms

    def bit_of(self, offset: int) -> int | None:
        """The bit of the message at a queue offset; None if it is not one of the checkpoint."""
        try:
            return self.diffs.index(offset - self.start_offset)
        except ValueError:
            return None

    def acknowledge(self, offset: int) -> bool:
        """Set the bit of a queue offset. Returns False if the checkpoint has no message there."""
        bit = self.bit_of(offset)
        if bit is None:
            return False
        self.acked |= 1 << bit
        return True

    def merge(self, same: Checkpoint) -> None:
        """Take over the messages of a checkpoint with the same key: two pops of a queue in one millisecond.

        RocketMQ keeps the later one only, and does not deliver the others' messages again.
        """
        for bit, diff in enumerate(same.diffs):
            is_acked = same.acked >> bit & 1
            if diff not in self.diffs:
                self.diffs.append(diff)
            if is_acked:
                self.acknowledge(self.start_offset + diff)

    def open_offsets(self) -> list[int]:
        """The queue offsets of the messages that are not acknowledged."""
        return [self.start_offset + diff for bit, diff in enumerate(self.diffs) if not self.acked >> bit & 1]


@dataclass(slots=True)
class Ack:
    """Acknowledged queue offsets of a checkpoint. ``is_batch`` says that it is a ``bAck``, which may have several."""

    key: CheckpointKey
    offsets: list[int]
    is_batch: bool = False


def checkpoint_body(point: Checkpoint) -> bytes:
    """The JSON of a checkpoint."""
    fields: dict[str, object] = {
        "bm": 0,
        "bn": point.broker_name,
        "c": point.group,
        "d": point.diffs,
        "it": point.invisible_time_ms,
        "n": len(point.diffs),
        "pt": point.pop_time_ms,
        "q": point.queue_id,
        "reviveTime": point.revive_time_ms,
        "ro": 0,
        "rp": str(point.re_puts),
        "so": point.start_offset,
        "sp": point.is_suspended,
        "t": point.topic,
    }
    if point.re_puts is None:
        del fields["rp"]
    return msgspec.json.encode(fields)


def decode_checkpoint(body: bytes) -> Checkpoint:
    """Read the JSON of a checkpoint. Raises ValueError if it is damaged, or says what no pop can have written."""
    read = _decode(body, _CheckpointBody)
    if not read.t or not read.c or not 0 <= read.n <= MOST_MESSAGES or read.q < 0 or read.so < 0:
        raise ValueError("a checkpoint without topic, group or place")
    diffs = read.d or list(range(read.n))  # before 5.0.0 all messages behind the first
    if len(diffs) < read.n or min(diffs, default=0) < 0 or not 0 <= read.pt + read.it <= LONG_MAX:
        raise ValueError("a checkpoint with offsets or times that cannot be")
    return Checkpoint(
        topic=read.t,
        group=read.c,
        queue_id=read.q,
        start_offset=read.so,
        pop_time_ms=read.pt,
        invisible_time_ms=read.it,
        broker_name=read.bn or "",
        diffs=diffs[: read.n],
        acked=read.bm & (1 << MOST_MESSAGES) - 1,
        re_puts=None if read.rp is None else _re_puts(read.rp),
        is_suspended=read.sp,
    )


def ack_body(ack: Ack) -> bytes:
    """The JSON of an acknowledgement."""
    key = ack.key
    several = {"ao": -1, "aol": ack.offsets} if ack.is_batch else {"ao": ack.offsets[0]}
    return msgspec.json.encode(
        {
            **several,
            "bn": key.broker_name,
            "c": key.group,
            "pt": key.pop_time_ms,
            "q": key.queue_id,
            "so": key.start_offset,
            "t": key.topic,
        }
    )


def decode_ack(body: bytes, own_name: str, *, is_batch: bool) -> Ack:
    """Read the JSON of an acknowledgement; one without a broker's name is of ``own_name``. Raises ValueError."""
    read = _decode(body, _AckBody)
    if not read.t or not read.c:
        raise ValueError("an acknowledgement without topic or group")
    key = CheckpointKey(read.t, read.c, read.q, read.so, read.pt, read.bn or own_name)
    return Ack(key, list(read.aol or ()) if is_batch else [read.ao], is_batch)


def _decode(body: bytes, kind: type[B]) -> B:
    try:
        fields = msgspec.json.decode(body)
        if isinstance(fields, dict) and kind is _AckBody:
            fields = {_LONG_NAMES.get(name, name): value for name, value in fields.items()}
        return msgspec.convert(fields, kind, strict=False)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _re_puts(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) <= len(str(_UNKNOWN_RE_PUTS)) else _UNKNOWN_RE_PUTS


# Messages


def checkpoint_message(point: Checkpoint, topic: str, queue_id: int, now_ms: int, host: Host) -> Message:
    """The message of a checkpoint for a queue of the revive topic, with the time of its delivery.

    Its put does not wait for the disk: without the checkpoint the group's offset is not committed either, and its
    acknowledgements are behind it in the log.
    """
    unique_key = f"{_named(point.key)}@{CHECKPOINT_TAG}"
    deliver_ms = point.revive_time_ms - AHEAD_MS
    message = _message(topic, queue_id, checkpoint_body(point), CHECKPOINT_TAG, unique_key, deliver_ms, now_ms, host)
    message.wait_store_msg_ok = False
    return message


def ack_message(ack: Ack, topic: str, queue_id: int, deliver_ms: int, now_ms: int, host: Host) -> Message:
    """The message of an acknowledgement for a queue of the revive topic."""
    tag = BATCH_ACK_TAG if ack.is_batch else ACK_TAG
    key = ack.key._replace(start_offset=-1 if ack.is_batch else ack.offsets[0])
    return _message(topic, queue_id, ack_body(ack), tag, f"{_named(key)}@{ACK_TAG}", deliver_ms, now_ms, host)


def _named(key: CheckpointKey) -> str:
    return f"{key.topic}@{key.queue_id}@{key.start_offset}@{key.group}@{key.pop_time_ms}@{key.broker_name}"


def _message(
    topic: str, queue_id: int, body: bytes, tag: str, unique_key: str, deliver_ms: int, now_ms: int, host: Host
) -> Message:
    properties = {
        PROPERTY_TAGS: tag,
        PROPERTY_TIMER_DELIVER_MS: str(max(deliver_ms, 0)),
        PROPERTY_UNIQ_KEY: unique_key,
    }
    return Message(topic, body, queue_id, properties=properties, born_timestamp_ms=now_ms, born_host=host)


# Retry topics


def retry_topic(topic: str, group: str, *, is_v2: bool) -> str:
    """The retry topic that messages of ``topic`` go to that ``group`` popped and did not acknowledge."""
    if topic.startswith(names.RETRY_PREFIX):
        return topic
    return retry_topic_v2(topic, group) if is_v2 else retry_topic_v1(topic, group)


def normal_topic(topic: str, group: str) -> str | None:
    """The topic that a retry topic of ``group`` is for; a topic that is not one is itself. None for others' topics."""
    if not topic.startswith(names.RETRY_PREFIX):
        return topic
    for separator in ("+", "_"):
        if topic.startswith(prefix := f"{names.RETRY_PREFIX}{group}{separator}"):
            return topic[len(prefix) :]
    return None


def retried_message(stored: StoredMessage, point: Checkpoint, topic: str, host: Host) -> Message:
    """What a message that was not acknowledged is put into its retry topic as."""
    properties = dict(stored.properties)
    if stored.reconsume_times == 0 or PROPERTY_FIRST_POP_TIME not in properties:
        properties[PROPERTY_FIRST_POP_TIME] = str(point.pop_time_ms)
    properties[PROPERTY_ORIGIN_GROUP] = point.group
    return Message(
        topic,
        stored.body,
        properties=properties,
        flag=stored.flag,
        sys_flag=stored.sys_flag & ~HOSTS_V6,
        born_timestamp_ms=stored.born_timestamp_ms,
        born_host=host,
        reconsume_times=stored.reconsume_times + (0 if point.is_suspended else 1),
        wait_store_msg_ok=False,
    )
