"""Received messages that kernels turn into records: one message, a batch, or a run of sends.

The encoded properties of a message are copied, not decoded and encoded. All messages of a batch share topic, queue,
times and hosts; their bodies and properties are copied. A run consists of the plain sends to one topic that one read of
a connection brought; a kernel reads them from their frames.

Source: MessageExtEncoder.encode, MessageExtEncoder.encode(MessageExtBatch), SendMessageRequestHeaderV2.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.broker.appends.send_properties import ACTED_ON
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import RemotingCommandError
from gantrymq.format import record
from gantrymq.format.properties import decode_properties
from gantrymq.format.record import BLANK_SIZE, BORN_HOST_AT
from gantrymq.kernels import codes, send_columns
from gantrymq.kernels.api import encode_sends, encode_wire_batch, measure_wire_batch, read_sends
from gantrymq.kernels.arrays import Bytes, read_only
from gantrymq.kernels.send_columns import PHY_OFFSET, QUEUE_ID, QUEUE_OFFSET
from gantrymq.model import flags
from gantrymq.model.host import Host
from gantrymq.model.message import PROPERTY_TRANSACTION_PREPARED, Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import FRAME_HEAD, ONEWAY_FLAG, CommandRun
from gantrymq.remoting.message_batch import MAX_PROPERTIES_LENGTH
from gantrymq.store.log.appendable import AppendableBatch, NextOffsets, template_of
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.put_result import PhyOffsets, PutMessageResult

_WIRE_HEAD = struct.Struct(">IIIiI")  # size, magic, CRC, flag, length of the body
_LENGTH = struct.Struct(">H")
_BODY_LENGTH_BYTES = 4
_TEMPLATE_BYTES = _WIRE_HEAD.size + _LENGTH.size  # of a message on the wire, without body and properties


@dataclass(slots=True)
class WireRecords:
    """A request that becomes records in one call, an :class:`~gantrymq.store.log.appendable.Appendable`.

    A subclass defines the format of ``body``. The topic fits into a record of version 1, and a queue may have its name.
    """

    topic: str
    body: bytes
    queue_id: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: Host
    reconsume_times: int
    wait_store_msg_ok: bool

    size_bytes: int = field(init=False)

    @property
    def body_bytes(self) -> int:
        """The memory that it keeps until the append, in bytes."""
        return len(self.body)

    def check(self, config: MessageStoreConfig, store_host: Host) -> PutMessageStatus:
        """MESSAGE_ILLEGAL if its records do not fit into one file. The processor has checked everything else."""
        self.size_bytes = self.measure(store_host)
        fits = self.size_bytes + BLANK_SIZE <= config.mapped_file_size_commit_log
        return PutMessageStatus.PUT_OK if fits else PutMessageStatus.MESSAGE_ILLEGAL

    def measure(self, store_host: Host) -> int:
        """The size of its records in bytes."""
        raise NotImplementedError

    def write(self, file: MappedFile, queue_offset: int, store_timestamp_ms: int, store_host: Host) -> PhyOffsets:
        """Write the records at the end of a file that has room. Returns their physical offsets."""
        raise NotImplementedError

    def append(
        self, file: MappedFile, next_offsets: NextOffsets, store_timestamp_ms: int, store_host: Host
    ) -> PutMessageResult:
        """:meth:`write` the records with the next offsets of their queue, and advance these."""
        queue, begin = (self.topic, self.queue_id), file.wrote_position
        queue_offset = next_offsets.get(queue, 0)
        places = self.write(file, queue_offset, store_timestamp_ms, store_host)
        next_offsets[queue] = queue_offset + len(places)
        return PutMessageResult(
            PutMessageStatus.PUT_OK, *queue, int(places[0]), queue_offset, file.wrote_position - begin,
            store_timestamp_ms, store_host, places if len(places) > 1 else (),
        )  # fmt: skip

    def template(self, store_host: Host) -> record.RecordTemplate:
        """The parts of a record that are the same for all records with this topic and these two hosts."""
        return template_of(self.topic, self.born_host, store_host)

    def _encode(
        self,
        template: record.RecordTemplate,
        body: bytes,
        flag: int,
        properties: bytes,
        queue_offset: int,
        phy_offset: int,
        store_timestamp_ms: int,
        prepared_transaction_offset: int = 0,
    ) -> bytes:
        """Encode a record from the request's fields and the given fields of the message."""
        return template.encode(
            record.body_crc(body),
            self.queue_id,
            flag,
            queue_offset,
            phy_offset,
            self.sys_flag,
            self.born_timestamp_ms or store_timestamp_ms,
            store_timestamp_ms,
            self.reconsume_times,
            prepared_transaction_offset,
            body,
            properties,
        )


@dataclass(slots=True)
class WireBatch(WireRecords):
    """A SEND_BATCH_MESSAGE: ``count`` messages (see :func:`measure_batch`), and their common fields."""

    count: int

    def measure(self, store_host: Host) -> int:
        """The size of its records in bytes."""
        return self.count * (self.template(store_host).size_bytes - _TEMPLATE_BYTES) + len(self.body)

    def unpacked(self) -> AppendableBatch:
        """The same messages one by one, for a store that adds something to each."""
        return AppendableBatch(self.messages())

    def messages(self) -> list[Message]:
        """Decode its messages."""
        return [
            Message(
                self.topic,
                self.body[begin:body_end],
                self.queue_id,
                properties=decode_properties(self.body[body_end + _LENGTH.size : end]),
                flag=flag,
                sys_flag=self.sys_flag,
                born_timestamp_ms=self.born_timestamp_ms,
                born_host=self.born_host,
                reconsume_times=self.reconsume_times,
                wait_store_msg_ok=self.wait_store_msg_ok,
            )
            for flag, begin, body_end, end in find_spans(self.body)
        ]

    def write(self, file: MappedFile, queue_offset: int, store_timestamp_ms: int, store_host: Host) -> PhyOffsets:
        """Write the records at the end of a file that has room. Returns their physical offsets."""
        template, begin = self.template(store_host), file.wrote_position
        empty = self._encode(template, b"", 0, b"", queue_offset, file.file_from_offset + begin, store_timestamp_ms)
        front, topic = cut_empty(empty, template)
        places = np.empty(self.count, np.int64)
        end = encode_wire_batch(
            file.write_array,
            begin,
            file.file_from_offset,
            read_only(self.body),
            read_only(front),
            read_only(topic),
            queue_offset,
            places,
        )
        file.advance(int(end) - begin)
        return places


def cut_empty(record_bytes: bytes, template: record.RecordTemplate) -> tuple[bytes, bytes]:
    """The constant parts of a record, from an empty message's: up to the body length, and the topic with its length."""
    topic_at = len(record_bytes) - _LENGTH.size - len(template.topic)
    return record_bytes[: topic_at - _BODY_LENGTH_BYTES], record_bytes[topic_at : -_LENGTH.size]


def measure_batch(raw: bytes) -> tuple[int, bool]:
    """(the number of messages of a batch, whether they can be stored as received).

    Raises RemotingCommandError if a length in it is invalid.
    """
    count, code, _ = measure_wire_batch(read_only(raw))
    if code not in (codes.STOP_DONE, codes.STOP_ZEROS):
        count = len(find_spans(raw))
    return int(count), code == codes.STOP_DONE


def find_spans(raw: bytes) -> list[tuple[int, int, int, int]]:
    """(flag, begin of the body, end of the body, end of the properties) of each message of a batch.

    Raises RemotingCommandError if a length is invalid.
    """
    spans = []
    position, end = 0, len(raw)
    unpack, length = _WIRE_HEAD.unpack_from, _LENGTH.unpack_from
    while position < end:
        if end - position < _WIRE_HEAD.size + _LENGTH.size:
            raise RemotingCommandError(f"a batch of {end} bytes ends within a message")
        size, _, _, flag, body_length = unpack(raw, position)
        begin = position + _WIRE_HEAD.size
        body_end, position = begin + body_length, position + size
        if position > end or body_end + _LENGTH.size > position:
            raise RemotingCommandError(f"a message of {size} bytes with a body of {body_length} in a batch of {end}")
        properties = length(raw, body_end)[0]
        if body_end + _LENGTH.size + properties != position or properties > MAX_PROPERTIES_LENGTH:
            raise RemotingCommandError(f"a message of {size} bytes with properties of {properties}")
        spans.append((flag, begin, body_end, position))
    return spans


@dataclass(slots=True)
class WireMessage(WireRecords):
    """A SEND_MESSAGE. ``properties`` is encoded as in its record, each entry with a trailing separator.

    ``prepared_transaction_offset`` is that of the half message whose final message this is, or 0.
    """

    flag: int
    properties: bytes
    prepared_transaction_offset: int = 0

    def measure(self, store_host: Host) -> int:
        """The size of its record in bytes."""
        return self.template(store_host).size_bytes + len(self.body) + len(self.properties)

    def write(self, file: MappedFile, queue_offset: int, store_timestamp_ms: int, store_host: Host) -> PhyOffsets:
        """Write the record at the end of a file that has room. Returns its physical offset."""
        phy_offset = file.file_from_offset + file.wrote_position
        template = self.template(store_host)
        file.write(
            self._encode(
                template, self.body, self.flag, self.properties, queue_offset, phy_offset, store_timestamp_ms,
                self.prepared_transaction_offset,
            )
        )  # fmt: skip
        return [phy_offset]


_MOST = 512
_TEXT_BYTES = 256 * 1024
_HEADER_LENGTH_MASK = 0xFFFFFF
_CODE, _PREPARED = b'"code":%d' % RequestCode.SEND_MESSAGE_V2, PROPERTY_TRANSACTION_PREPARED.encode()
_FEWEST = 2  # a single send is as fast on the ordinary path


class SendRun(CommandRun):
    """Plain sends, as ``gantrymq.kernels.read_sends`` defines them.

    ``columns`` (int64, the rows of ``gantrymq.kernels.send_columns``) has one column for each send. ``text`` has their
    properties, ``wire`` the received bytes. ``body_bytes``, the longest lengths and ``largest_queue_id`` are over all
    sends.
    """

    __slots__ = (
        "body_bytes", "columns", "largest_queue_id", "longest_body_bytes", "longest_properties_bytes", "text", "topic",
        "unique_key_bytes", "wire",
    )  # fmt: skip

    wire: Bytes
    text: Bytes
    columns: NDArray[np.int64]
    topic: str
    body_bytes: int
    unique_key_bytes: int
    longest_body_bytes: int
    longest_properties_bytes: int
    largest_queue_id: int

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    @property
    def oneway_count(self) -> int:
        """How many of the sends are one-way."""
        return int(np.count_nonzero(self.columns[send_columns.COMMAND_FLAG] & ONEWAY_FLAG))


class FindSendRun:
    """Finds runs of SEND_MESSAGE_V2. It reuses its own buffers. Thread rule: the event loop's thread."""

    code = int(RequestCode.SEND_MESSAGE_V2)

    def __init__(self) -> None:
        names = [name.encode() for name in sorted(ACTED_ON)]
        self._acted_on = read_only(b"".join(names))
        self._ends = np.cumsum([len(name) for name in names], dtype=np.int64)
        self._columns = np.empty((send_columns.N_ROWS, _MOST), np.int64)
        self._seen = np.empty((2, send_columns.MAX_NAMES), np.int64)
        self._text = np.empty(_TEXT_BYTES, np.uint8)

    def __call__(self, data: bytes, begin: int) -> SendRun | None:
        """The run of plain sends at ``data[begin:]``; None if there are fewer than two.

        Calling the kernel costs more than decoding a header. So it is not called for other requests, nor for messages
        of transactions, which alternate with decisions.
        """
        if len(data) - begin < FRAME_HEAD.size:
            return None
        header_end = begin + FRAME_HEAD.size + (FRAME_HEAD.unpack_from(data, begin)[1] & _HEADER_LENGTH_MASK)
        if data.find(_CODE, begin, header_end) < 0 or data.find(_PREPARED, begin, header_end) >= 0:
            return None
        wire, columns = read_only(data), self._columns
        count, end, used, bodies, keys, body, properties, queue_id = read_sends(
            wire, begin, columns, self._text, self._acted_on, self._ends, self._seen
        )
        if count < _FEWEST:
            return None
        run = SendRun(self.code, data, begin, end)
        run.wire, run.text = wire, self._text[:used].copy()
        run.columns = np.ascontiguousarray(columns[:, :count])
        topic_at, length = int(columns[send_columns.TOPIC_AT, 0]), int(columns[send_columns.TOPIC_LENGTH, 0])
        run.topic = data[topic_at : topic_at + length].decode("ascii")
        run.body_bytes, run.unique_key_bytes, run.largest_queue_id = bodies, keys, queue_id
        run.longest_body_bytes, run.longest_properties_bytes = body, properties
        return run


class _Common(NamedTuple):
    """The common parts of the records of a topic and two hosts, as arguments of ``encode_sends``."""

    front: Bytes
    topic: Bytes
    marks: Bytes
    host_flags: int
    store_timestamp_at: int


@lru_cache(maxsize=1024)
def _common(topic: str, born_host: Host, store_host: Host, marks: bytes) -> _Common:
    template = template_of(topic, born_host, store_host)
    empty = template.encode(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b"", b"")
    front, behind = cut_empty(empty, template)
    store_timestamp_at = BORN_HOST_AT + len(template.born_host)
    return _Common(read_only(front), read_only(behind), read_only(marks), template.host_flags, store_timestamp_at)


@dataclass(slots=True)
class WireSends(WireRecords):
    """A run of SEND_MESSAGE_V2. ``marks`` is appended to the properties of each message.

    ``sys_flag`` is added to each message's own. ``queue_id`` is that of the first message, ``body`` has their frames.
    """

    run: SendRun
    marks: bytes

    def measure(self, store_host: Host) -> int:
        """The size of their records in bytes."""
        run, each = self.run, self.template(store_host).size_bytes + len(self.marks)
        return len(run) * each + run.body_bytes + len(run.text)

    def append(
        self, file: MappedFile, next_offsets: NextOffsets, store_timestamp_ms: int, store_host: Host
    ) -> PutMessageResult:
        """Write the records at the end of a file that has room, each with the next offset of its queue."""
        run, topic, begin = self.run, self.topic, file.wrote_position
        common, columns = _common(self.topic, self.born_host, store_host, self.marks), self.run.columns
        before = [next_offsets.get((topic, queue_id), 0) for queue_id in range(run.largest_queue_id + 1)]
        offsets = np.array(before, np.int64)
        end = encode_sends(
            file.write_array, begin, file.file_from_offset, run.wire, run.text, columns, common.front, common.topic,
            common.marks, common.host_flags | self.sys_flag, flags.HOSTS_V6, common.store_timestamp_at,
            store_timestamp_ms, offsets,
        )  # fmt: skip
        file.advance(end - begin)
        for queue_id, (old, new) in enumerate(zip(before, offsets.tolist(), strict=True)):
            if new != old:
                next_offsets[topic, queue_id] = new
        places = columns[PHY_OFFSET].tolist()
        return PutMessageResult(
            PutMessageStatus.PUT_OK, topic, self.queue_id, places[0], int(columns[QUEUE_OFFSET, 0]), end - begin,
            store_timestamp_ms, store_host, places,
        )  # fmt: skip

    def each(self, result: PutMessageResult) -> list[PutMessageResult]:
        """The result of each message, after all were stored."""
        ends = [*result.phy_offsets[1:], result.end_offset]
        rows = zip(
            self.run.columns[QUEUE_ID].tolist(), self.run.columns[QUEUE_OFFSET].tolist(), result.phy_offsets, ends,
            strict=True,
        )  # fmt: skip
        return [
            PutMessageResult(
                result.status, self.topic, queue_id, place, queue_offset, end - place, result.store_timestamp_ms,
                result.store_host,
            )
            for queue_id, queue_offset, place, end in rows
        ]  # fmt: skip
