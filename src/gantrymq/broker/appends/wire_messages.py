"""Received messages that become records as they are: one message, or a batch that a kernel writes.

The encoded properties of a message are copied, not decoded and encoded. All messages of a batch share topic, queue,
times and hosts; their bodies and properties are copied.

Source: MessageExtEncoder.encode, MessageExtEncoder.encode(MessageExtBatch).
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
        phy_offsets = self.write(file, queue_offset, store_timestamp_ms, store_host)
        next_offsets[queue] = queue_offset + len(phy_offsets)
        return PutMessageResult(
            PutMessageStatus.PUT_OK,
            *queue,
            int(phy_offsets[0]),
            queue_offset,
            file.wrote_position - begin,
            store_timestamp_ms,
            store_host,
            phy_offsets if len(phy_offsets) > 1 else (),
        )

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
        phy_offsets = np.empty(self.count, np.int64)
        end = encode_wire_batch(
            file.write_array,
            begin,
            file.file_from_offset,
            read_only(self.body),
            read_only(front),
            read_only(topic),
            queue_offset,
            phy_offsets,
        )
        file.advance(int(end) - begin)
        return phy_offsets


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
                template,
                self.body,
                self.flag,
                self.properties,
                queue_offset,
                phy_offset,
                store_timestamp_ms,
                self.prepared_transaction_offset,
            )
        )
        return [phy_offset]
