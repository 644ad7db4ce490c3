"""Runs of a producer of transactions: the half messages and the decisions that one read brings, which take turns.

A producer's thread sends a half message, and with its answer at hand the decision, one-way, and the next half message.
So the half messages of a read are a run of sends, once the decisions between them are taken out, and the decisions are
a run of their own. Both keep their order. A decision is always about a half message of an earlier read, because its
producer has the answer to that, so that it does not matter which of the two runs is stored first.

Pure: no I/O, no clock.

Source: TransactionMQProducer, SendMessageRequestHeaderV2, EndTransactionRequestHeader.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gantrymq.broker.appends.send_properties import ACTED_ON_IN_HALF
from gantrymq.broker.appends.send_runs import PREPARED_NAME, SEND_CODE, ReadSends, SendRun
from gantrymq.broker.transactions.half_messages import RESERVED_BYTES
from gantrymq.format.properties import CRC_PROPERTY_SIZE
from gantrymq.format.record import MAX_PROPERTIES_LENGTH
from gantrymq.kernels import send_columns
from gantrymq.kernels.arrays import Bytes, Int64s, read_only
from gantrymq.model import flags
from gantrymq.model.message import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_ID,
)
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import FRAME_HEAD, ONEWAY_FLAG, CommandRun, RemotingCommand
from gantrymq.remoting.header import Int
from gantrymq.remoting.headers.send import EndTransactionRequestHeader

_MAX_REQUESTS = 64  # they take half of the time that a connection has before others
_MAX_HEADER_BYTES = 4096
_FEWEST = 6  # less are as fast one by one, because each kernel and each array has a price
_END_CODE = b'"code":%d,' % RequestCode.END_TRANSACTION
_PREPARED = b"\x02%s\x01true\x02" % PREPARED_NAME
_GROUP = f"\x02{PROPERTY_PRODUCER_GROUP}\x01".encode()
_ID = f"{PROPERTY_TRANSACTION_ID}\x01".encode()
_STORED_ROWS = [send_columns.QUEUE_ID, send_columns.PROPERTIES_AT, send_columns.PROPERTIES_LENGTH]
_MAX_PROPERTIES_LENGTH = MAX_PROPERTIES_LENGTH - CRC_PROPERTY_SIZE - RESERVED_BYTES  # so that it can be put back


class EndRequest(msgspec.Struct, rename="camel", gc=False):
    """The header of an END_TRANSACTION with its typed fields."""

    code: Int
    ext_fields: EndTransactionRequestHeader
    opaque: Int = 0
    flag: Int = 0


_decode = msgspec.json.Decoder(EndRequest, strict=False).decode


class EndRun(CommandRun):
    """Decisions."""

    __slots__ = ("ends",)

    ends: list[EndRequest]

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def oneway_count(self) -> int:
        """How many of them are one-way."""
        return sum(end.flag & ONEWAY_FLAG != 0 for end in self.ends)

    def part(self, ends: list[EndRequest]) -> EndRun:
        """A run with some of the decisions."""
        part = EndRun(self.code, self.data, self.begin, self.end)
        part.ends, part.received_s = ends, self.received_s
        return part

    def request_of(self, end: EndRequest) -> RemotingCommand:
        """One decision as a request of its own."""
        request = RemotingCommand(self.code, header=end.ext_fields, opaque=end.opaque, flag=end.flag)
        request.received_s = self.received_s
        return request


class HalfMessages(NamedTuple):
    """What is stored of a run of half messages, and what their final messages will be made of.

    ``text`` and ``columns`` are those of :class:`gantrymq.broker.appends.send_runs.WireSends`. ``properties`` has the
    encoded properties of each final message.
    """

    text: Bytes
    columns: Int64s
    properties: list[bytes]


class HalfRun(SendRun):
    """Prepared messages to one topic.

    ``rows`` are the columns as lists, ``properties`` the encoded properties of each, ``groups`` the group of the
    producer that each names.
    """

    __slots__ = ("groups", "properties", "rows")

    rows: list[list[int]]
    properties: list[bytes]
    groups: list[str]

    def find_groups(self) -> int:
        """Set the lists. Returns for how many messages they are: up to the first that is no half message."""
        text = b"\x02" + self.text.tobytes()  # so that a separator is before each name
        self.rows, self.properties, self.groups = self.columns.T.tolist(), [], []
        for row in self.rows:
            begin = row[send_columns.PROPERTIES_AT]
            end = begin + row[send_columns.PROPERTIES_LENGTH] + 1
            group_at = text.find(_GROUP, begin, end)
            if (
                not row[send_columns.SYS_FLAG] & flags.TRANSACTION_MASK
                or not row[send_columns.BORN_TIMESTAMP]
                or group_at < 0
                or text.find(_PREPARED, begin, end) < 0
            ):
                break
            group_at += len(_GROUP)
            self.properties.append(text[begin + 1 : end])
            self.groups.append(text[group_at : text.index(b"\x02", group_at)].decode("ascii"))
        return len(self.groups)

    def cut(self, count: int) -> None:
        """Keep the first ``count`` messages, for which there are groups."""
        columns = self.columns = self.columns[:, :count].copy()
        del self.rows[count:]
        body_at, body_bytes = self.rows[-1][send_columns.BODY_AT], self.rows[-1][send_columns.BODY_LENGTH]
        self.end = body_at + body_bytes
        self.body_bytes = int(columns[send_columns.BODY_LENGTH].sum())
        self.unique_key_bytes = int(columns[send_columns.UNIQUE_LENGTH].sum())

    def half_messages(self, own_properties: bytes) -> HalfMessages | None:
        """What is stored. ``own_properties`` are the broker's. None if a check could not put one of them back."""
        text, ends = self.text.tobytes(), dict[int, bytes]()
        finals: list[bytes] = []
        halves: list[bytes] = []
        begins: list[int] = []
        at = 0
        for row, properties in zip(self.rows, self.properties, strict=True):
            queue_id, key_at = row[send_columns.QUEUE_ID], row[send_columns.UNIQUE_AT]
            key = text[key_at : key_at + row[send_columns.UNIQUE_LENGTH]]
            queue = ends.get(queue_id)
            if queue is None:
                queue = ends[queue_id] = _real_queue(self.topic, queue_id)
            final = b"%b%b%b%b\x02" % (properties, own_properties, _ID, key)
            half = final + queue
            if len(half) > _MAX_PROPERTIES_LENGTH:
                return None
            finals.append(final)
            halves.append(half)
            begins.append(at)
            at += len(half)
        columns = self.columns.copy()
        columns[_STORED_ROWS] = [0] * len(halves), begins, [len(half) for half in halves]
        return HalfMessages(read_only(b"".join(halves)), columns, finals)


class TransactionRun(CommandRun):
    """Half messages and decisions of one read. There may be none of one kind."""

    __slots__ = ("ends", "halves")

    halves: HalfRun | None
    ends: EndRun | None

    def __len__(self) -> int:
        return len(self.halves or ()) + len(self.ends or ())

    @property
    def oneway_count(self) -> int:
        """How many of them are one-way."""
        return sum(run.oneway_count for run in (self.halves, self.ends) if run is not None)


class FindTransactionRun:
    """Finds runs of half messages and END_TRANSACTION. Thread rule: the event loop's thread."""

    code = int(RequestCode.END_TRANSACTION)
    after: tuple[int, ...] = (code, int(RequestCode.SEND_MESSAGE_V2))

    def __init__(self) -> None:
        self._read = ReadSends(ACTED_ON_IN_HALF, flags.INNER_BATCH)
        self._odd: tuple[bytes, int] = (
            b"",
            0,
        )  # data in which an odd half message was plain_count, and how far not to look

    def __call__(self, data: bytes, begin: int) -> TransactionRun | None:
        """The run at ``data[begin:]``; None if there are too few requests.

        A frame that is not plain ends the run: a half message to another topic, one with a property that the broker
        acts on, a decision with a body, any other request. Only the kernel sees which half messages are plain. If one
        is not, the requests behind it that have been looked at are in no run: looking at them again and again would
        cost more than a run saves.
        """
        odd_data, odd_end = self._odd
        if data is odd_data and begin < odd_end:
            return None
        frames, ends, end = _frames(data, begin)
        if len(frames) + len(ends) < _FEWEST:
            return None
        halves = self._halves(data, frames) if frames else None
        plain_count = len(halves) if halves is not None else 0
        if plain_count < len(frames):
            self._odd = data, end
            end = frames[plain_count][0]
            ends = [(at, decision) for at, decision in ends if at < end]
            if plain_count + len(ends) < _FEWEST:
                return None
        run = TransactionRun(self.code, data, begin, end)
        run.halves, run.ends = halves, None
        if ends:
            run.ends = EndRun(self.code, data, begin, end)
            run.ends.ends = [decision for _, decision in ends]
        return run

    def _halves(self, data: bytes, frames: list[tuple[int, int]]) -> HalfRun | None:
        """The half messages of these frames, up to the first that is not plain."""
        halves = self._read(b"".join([data[begin:end] for begin, end in frames]), 0, HalfRun)
        if halves is None or not (count := halves.find_groups()):
            return None
        if count < len(halves):
            halves.cut(count)
        return halves


def _frames(data: bytes, begin: int) -> tuple[list[tuple[int, int]], list[tuple[int, EndRequest]], int]:
    """The frames of prepared messages at ``data[begin:]``, the decisions with their positions, and the end of all."""
    frames: list[tuple[int, int]] = []
    ends: list[tuple[int, EndRequest]] = []
    at, size = begin, len(data)
    while len(frames) + len(ends) < _MAX_REQUESTS and at + FRAME_HEAD.size <= size:
        length, header_bytes = FRAME_HEAD.unpack_from(data, at)  # the type of JSON is 0
        next_at, header_at = at + 4 + length, at + FRAME_HEAD.size
        if header_bytes > _MAX_HEADER_BYTES or length < 4 + header_bytes or next_at > size:
            break
        header_end = header_at + header_bytes
        if data.find(_END_CODE, header_at, header_end) >= 0 and next_at == header_end:
            try:
                decision = _decode(data[header_at:header_end])
            except (msgspec.MsgspecError, ValueError, RecursionError):
                break
            if decision.code != RequestCode.END_TRANSACTION or decision.flag & ~ONEWAY_FLAG:
                break
            ends.append((at, decision))
        elif data.find(SEND_CODE, header_at, header_end) >= 0 and data.find(PREPARED_NAME, header_at, header_end) >= 0:
            frames.append((at, next_at))
        else:
            break
        at = next_at
    return frames, ends, at


def _real_queue(topic: str, queue_id: int) -> bytes:
    """The encoded properties that name the real queue of a half message."""
    return f"{PROPERTY_REAL_TOPIC}\x01{topic}\x02{PROPERTY_REAL_QUEUE_ID}\x01{queue_id}\x02".encode()
