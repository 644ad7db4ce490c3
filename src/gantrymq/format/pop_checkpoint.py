"""The records of POP in the revive topic: what was popped, and which of it is acknowledged.

A pop puts a checkpoint into ``rmq_sys_REVIVE_LOG_`` + cluster, due one second before the messages become visible again.
An acknowledgement puts a record of its own there, due when they become visible. Both wait as timer messages
(``rmq_sys_wheel_timer``) first. A message of a checkpoint without an acknowledgement is put into a retry topic once the
time is over. The tag of a record says what it is. Its body is JSON as fastjson2 writes it, so that RocketMQ revives
what was popped here, and the reverse:

=======  ==========================================================================================================
tag      fields
=======  ==========================================================================================================
``ck``   ``so`` first queue offset, ``pt`` time of the pop (ms), ``it`` invisible time (ms), ``reviveTime`` (their sum,
         not read), ``bm`` bits of the acknowledged messages, ``n`` number of messages, ``q`` queue, ``t`` topic,
         ``c`` group, ``ro`` 0, ``d`` queue offset minus ``so`` of each message (missing in old records), ``bn``
         broker, ``rp`` how often it was put again (text), ``sp`` whether reconsumeTimes stays
``ack``  ``ao`` queue offset, ``so``, ``c``, ``t``, ``q``, ``pt``, ``bn`` of its checkpoint; each also with its long
         name, ``ackOffset`` for example
``bAck`` the same with ``aol``, a list of queue offsets; ``ao`` is -1, or 0 from RocketMQ's merge buffer
=======  ==========================================================================================================

Pure: no I/O, no clock.

Source: PopCheckPoint, AckMsg, BatchAckMsg, PopAckConstants, PopReviveService.consumeReviveMessage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from gantrymq.model.java import INT_MAX, LONG_MAX, decode_utf8

CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
# A checkpoint is delivered this much in front of its revive time, so that it is there before its acknowledgements.
AHEAD_MS = 1_000
MAX_MESSAGES = 32  # of a checkpoint: its bits are a Java int
_UNKNOWN_RE_PUTS = 127  # what Java takes for a number that it cannot read
_ALL_BITS = (1 << MAX_MESSAGES) - 1

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


class PopKey(NamedTuple):
    """What an acknowledgement names a checkpoint by (the merge key).

    ``broker_name`` is empty in the records of old brokers; in an acknowledgement it counts as the broker's own name.
    """

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time_ms: int
    broker_name: str = ""


@dataclass(slots=True)
class PopCheckpoint:
    """The messages of one queue that a pop handed out.

    ``diffs`` are their queue offsets minus the key's ``start_offset``, at most 32. Bit i of ``acked`` says that message
    i is acknowledged. ``re_puts`` counts how often the checkpoint was put again because a message could not be revived.
    ``is_suspended`` keeps the reconsume times of the message. ``revive_offset`` is its place in the revive queue,
    ``phy_offset`` that in the log, and ``due_ms`` the time from which it can be decided; they are not in the bytes.

    Thread rule: one thread changes it.
    """

    key: PopKey
    invisible_time_ms: int
    diffs: list[int]
    acked: int = 0
    re_puts: int | None = None
    is_suspended: bool = False
    revive_offset: int = 0
    phy_offset: int = 0
    due_ms: int = 0

    @property
    def revive_time_ms(self) -> int:
        """When the messages that are not acknowledged become visible again."""
        return self.key.pop_time_ms + self.invisible_time_ms

    def bit_of(self, offset: int) -> int | None:
        """The bit of the message at a queue offset; None if it is not one of the checkpoint (indexOfAck)."""
        try:
            return self.diffs.index(offset - self.key.start_offset)
        except ValueError:
            return None

    def acknowledge(self, offset: int) -> bool:
        """Set the bit of a queue offset. Returns False if the checkpoint has no message there."""
        bit = self.bit_of(offset)
        if bit is None:
            return False
        self.acked |= 1 << bit
        return True

    def merge(self, same: PopCheckpoint) -> None:
        """Take over the messages of a checkpoint with the same key: two pops of a queue in one millisecond.

        RocketMQ keeps the later one only, and does not deliver the others' messages again.
        """
        for bit, diff in enumerate(same.diffs):
            is_acked = same.acked >> bit & 1
            if diff not in self.diffs:
                self.diffs.append(diff)
            if is_acked:
                self.acknowledge(self.key.start_offset + diff)

    def open_offsets(self) -> list[int]:
        """The queue offsets of the messages that are not acknowledged."""
        start = self.key.start_offset
        return [start + diff for bit, diff in enumerate(self.diffs) if not self.acked >> bit & 1]


class PopAck(NamedTuple):
    """Acknowledged queue offsets of a checkpoint. ``is_batch`` says that it is a ``bAck``, which may have several."""

    key: PopKey
    offsets: tuple[int, ...]
    is_batch: bool = False

    @property
    def tag(self) -> str:
        """The tag of its record."""
        return BATCH_ACK_TAG if self.is_batch else ACK_TAG


def encode_pop_checkpoint(point: PopCheckpoint) -> bytes:
    """The body of a checkpoint, with its fields in fastjson's order."""
    key, bits = point.key, point.acked & _ALL_BITS
    fields: dict[str, object] = {
        "bm": bits - (1 << MAX_MESSAGES) if bits > INT_MAX else bits,
        "bn": key.broker_name,
        "c": key.group,
        "d": point.diffs,
        "it": point.invisible_time_ms,
        "n": len(point.diffs),
        "pt": key.pop_time_ms,
        "q": key.queue_id,
        "reviveTime": point.revive_time_ms,
        "ro": 0,
        "rp": str(point.re_puts),
        "so": key.start_offset,
        "sp": point.is_suspended,
        "t": key.topic,
    }
    if not key.broker_name:
        del fields["bn"]
    if not point.diffs:
        del fields["d"]
    if point.re_puts is None:
        del fields["rp"]
    return msgspec.json.encode(fields)


def encode_pop_ack(ack: PopAck) -> bytes:
    """The body of an acknowledgement, with its fields in fastjson's order."""
    key = ack.key
    fields: dict[str, object] = {"ao": -1, "aol": ack.offsets} if ack.is_batch else {"ao": ack.offsets[0]}
    if key.broker_name:
        fields["bn"] = key.broker_name
    fields |= {
        "c": key.group,
        "pt": key.pop_time_ms,
        "q": key.queue_id,
        "so": key.start_offset,
        "t": key.topic,
    }
    return msgspec.json.encode(fields)


def decode_pop_record(tag: str, body: bytes) -> PopCheckpoint | PopAck | None:
    """The checkpoint or the acknowledgement of a record with this tag and body; None for another tag.

    Raises ValueError if the body is damaged, or says what no broker can have written.
    """
    if tag == CHECKPOINT_TAG:
        return decode_pop_checkpoint(body)
    if tag in (ACK_TAG, BATCH_ACK_TAG):
        return decode_pop_ack(body, is_batch=tag == BATCH_ACK_TAG)
    return None


def popped_topic(body: bytes) -> str:
    """The topic whose messages a record is about, a retry topic too; empty if the body is damaged."""
    try:
        return _decode(body, _KeyBody).t
    except ValueError:
        return ""


def decode_pop_checkpoint(body: bytes) -> PopCheckpoint:
    """The checkpoint of a body. Raises ValueError if it is damaged, or says what no broker can have written.

    Of more offsets than messages RocketMQ reads the first ones. An invisible time below 0 is read: RocketMQ writes the
    one that a client asked for.
    """
    read = _decode(body, _CheckpointBody)
    diffs = read.d or list(range(read.n))  # before 5.0.0 all messages behind the first
    if len(diffs) < read.n:
        raise ValueError(f"it has {read.n} messages, and only {len(diffs)} offsets of them")
    if not 0 <= read.pt + read.it <= LONG_MAX:
        raise ValueError(f"its time {read.pt} + {read.it} is out of range")
    return PopCheckpoint(
        _key(read),
        read.it,
        diffs[: read.n],
        read.bm & _ALL_BITS,
        None if read.rp is None else _re_puts(read.rp),
        read.sp,
    )


def decode_pop_ack(body: bytes, *, is_batch: bool) -> PopAck:
    """The acknowledgement of a body. Raises ValueError if it is damaged, or names no checkpoint."""
    read = _decode(body, _AckBody)
    return PopAck(_key(read), tuple(read.aol) if is_batch else (read.ao,), is_batch)


_Number = Annotated[int, msgspec.Meta(ge=0, le=LONG_MAX)]
_AnyLong = Annotated[int, msgspec.Meta(ge=-LONG_MAX - 1, le=LONG_MAX)]
_SmallNumber = Annotated[int, msgspec.Meta(ge=0, le=INT_MAX)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_MESSAGES)]


class _KeyBody(msgspec.Struct):
    bn: str = ""
    c: str = ""
    pt: _AnyLong = 0
    q: _SmallNumber = 0
    so: _Number = 0
    t: str = ""


class _CheckpointBody(_KeyBody):
    bm: _AnyLong = 0
    d: list[_SmallNumber] = []
    it: _AnyLong = 0
    n: _Count = 0
    rp: str | None = None
    sp: bool = False


class _AckBody(_KeyBody):
    ao: _AnyLong = 0
    aol: list[_AnyLong] = []


BodyT = TypeVar("BodyT", bound=_KeyBody)


def _decode(body: bytes, kind: type[BodyT]) -> BodyT:
    """Read a body as fastjson2 does: null counts as missing, a number may be text. UTF-8 is read as Java reads it."""
    try:
        fields = msgspec.json.decode(decode_utf8(bytes(body)))
        if isinstance(fields, dict):
            fields = {_LONG_NAMES.get(name, name): value for name, value in fields.items() if value is not None}
        return msgspec.convert(fields, kind, strict=False)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _key(read: _KeyBody) -> PopKey:
    if not read.t or not read.c:
        raise ValueError("it has no topic or no group")
    return PopKey(read.t, read.c, read.q, read.so, read.pt, read.bn)


def _re_puts(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) <= len(str(_UNKNOWN_RE_PUTS)) else _UNKNOWN_RE_PUTS
