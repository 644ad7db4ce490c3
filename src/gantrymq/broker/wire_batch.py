"""A batch as it came over the wire, made into records by a kernel, without a look into its messages here.

All messages of a batch have topic, queue, times and hosts in common; bodies and properties are copied as they are.

Source: MessageExtEncoder.encode(MessageExtBatch).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import RemotingCommandError
from gantrymq.format import record
from gantrymq.format.properties import decode_properties
from gantrymq.format.record import BLANK_SIZE
from gantrymq.kernels import codes
from gantrymq.kernels.api import encode_wire_batch, measure_wire_batch
from gantrymq.kernels.arrays import read_only
from gantrymq.model.host import Host
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.remoting.message_batch import MAX_PROPERTIES_LENGTH
from gantrymq.store.log.appendable import AppendableBatch, NextOffsets, template_of
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.put_result import PhyOffsets, PutMessageResult

_WIRE_HEAD = struct.Struct(">IIIiI")  # size, magic, CRC, flag, length of the body
_LENGTH = struct.Struct(">H")
_BODY_LENGTH_BYTES = 4
_TEMPLATE_BYTES = _WIRE_HEAD.size + _LENGTH.size  # of a message on the wire, without its body and its properties


@dataclass(slots=True)
class WireRecords:
    """A request that becomes records in one go, an :class:`~gantrymq.store.log.appendable.Appendable`.

    What its ``body`` is, a subclass says.

    Its topic is one that a record of version 1 and a queue can have.
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
        """How much memory it keeps until it is appended."""
        return len(self.body)

    def check(self, config: MessageStoreConfig, store_host: Host) -> PutMessageStatus:
        """MESSAGE_ILLEGAL where its records do not fit into one file; the processor has checked all else."""
        self.size_bytes = self.measure(store_host)
        fits = self.size_bytes + BLANK_SIZE <= config.mapped_file_size_commit_log
        return PutMessageStatus.PUT_OK if fits else PutMessageStatus.MESSAGE_ILLEGAL

    def measure(self, store_host: Host) -> int:
        """How much room its records take."""
        raise NotImplementedError

    def write(self, file: MappedFile, queue_offset: int, store_timestamp_ms: int, store_host: Host) -> PhyOffsets:
        """Write the records behind the last byte of a file that has room; their physical offsets."""
        raise NotImplementedError

    def append(
        self, file: MappedFile, next_offsets: NextOffsets, store_timestamp_ms: int, store_host: Host
    ) -> PutMessageResult:
        """:meth:`write` them with the next offsets of their queue, which go on."""
        queue, begin = (self.topic, self.queue_id), file.wrote_position
        queue_offset = next_offsets.get(queue, 0)
        places = self.write(file, queue_offset, store_timestamp_ms, store_host)
        next_offsets[queue] = queue_offset + len(places)
        return PutMessageResult(
            PutMessageStatus.PUT_OK, *queue, int(places[0]), queue_offset, file.wrote_position - begin,
            store_timestamp_ms, store_host, places if len(places) > 1 else (),
        )  # fmt: skip

    def template(self, store_host: Host) -> record.RecordTemplate:
        """What its records have in common with all of its topic and of the same two hosts."""
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
    ) -> bytes:
        """A record: what is the request's, and what is the message's own."""
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
            0,
            body,
            properties,
        )


@dataclass(slots=True)
class WireBatch(WireRecords):
    """A SEND_BATCH_MESSAGE: ``count`` messages (see :func:`measure_batch`), and what they have in common."""

    count: int

    def measure(self, store_host: Host) -> int:
        """How much room its records take."""
        return self.count * (self.template(store_host).size_bytes - _TEMPLATE_BYTES) + len(self.body)

    def unpacked(self) -> AppendableBatch:
        """The same messages one by one, for a store that adds something to each."""
        return AppendableBatch(self.messages())

    def messages(self) -> list[Message]:
        """Its messages."""
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
        """Write the records behind the last byte of a file that has room; their physical offsets."""
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
    """Of an empty message's record: what is in front of the length of the body, and the topic with its length."""
    topic_at = len(record_bytes) - _LENGTH.size - len(template.topic)
    return record_bytes[: topic_at - _BODY_LENGTH_BYTES], record_bytes[topic_at : -_LENGTH.size]


def measure_batch(raw: bytes) -> tuple[int, bool]:
    """(how many messages a batch is, whether they can stay as they came).

    Raises RemotingCommandError where a length in it does not fit.
    """
    count, code, _ = measure_wire_batch(read_only(raw))
    if code not in (codes.STOP_DONE, codes.STOP_ZEROS):
        count = len(find_spans(raw))
    return int(count), code == codes.STOP_DONE


def find_spans(raw: bytes) -> list[tuple[int, int, int, int]]:
    """(flag, begin of the body, its end, end of the properties) of each message of a batch.

    Raises RemotingCommandError where a length does not fit.
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
