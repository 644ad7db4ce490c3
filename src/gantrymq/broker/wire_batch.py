"""A batch as it came over the wire, made into records without looking into its messages one by one.

All messages of a batch have topic, queue, times and hosts in common; bodies and properties are copied as they are. So a
record is its numbers, a middle and an end that all share, and two slices of the request.

Source: MessageExtEncoder.encode(MessageExtBatch).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from gantrymq.errors import RemotingCommandError
from gantrymq.format import record
from gantrymq.format.properties import decode_properties
from gantrymq.model import flags
from gantrymq.model.host import Host
from gantrymq.model.java import encode_utf8
from gantrymq.model.message import Message, message_id
from gantrymq.remoting.message_batch import MAX_PROPERTIES_LENGTH
from gantrymq.store.append import PutMessageResult

_WIRE_HEAD = struct.Struct(">IIIiI")  # size, magic, CRC, flag, length of the body
_LENGTH = struct.Struct(">H")
_NUMBERS = struct.Struct(">iIiiiqq")  # size, magic, CRC, queue id, flag, queue offset, physical offset
_BORN, _STORED, _LAST = struct.Struct(">iq"), struct.Struct(">q"), struct.Struct(">iq")


@dataclass(slots=True)
class WireRecords:
    """A request that becomes records in one go: what its ``body`` is, a subclass says.

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

    def size_bytes(self, store_host: Host) -> int:
        """How much room its records take."""
        raise NotImplementedError

    def encode(
        self, queue_offset: int, phy_offset: int, store_timestamp_ms: int, store_host: Host
    ) -> tuple[bytes, list[int]]:
        """The records one after the other, the first at ``phy_offset``, and where each begins."""
        raise NotImplementedError

    def _flags(self, store_host: Host) -> int:
        given = self.sys_flag & ~(flags.BORN_HOST_V6 | flags.STORE_HOST_V6)
        given |= flags.BORN_HOST_V6 if self.born_host.is_v6 else 0
        return given | (flags.STORE_HOST_V6 if store_host.is_v6 else 0)


@dataclass(slots=True)
class WireBatch(WireRecords):
    """A SEND_BATCH_MESSAGE, and what its messages have in common.

    ``spans`` are (flag, begin of the body, its end, end of the properties) of each message; see :func:`find_spans`.
    """

    spans: list[tuple[int, int, int, int]]

    def size_bytes(self, store_host: Host) -> int:
        """How much room its records take."""
        return len(self.spans) * self._frame_bytes(store_host) + sum(end - begin for _, begin, _, end in self.spans)

    def _frame_bytes(self, store_host: Host) -> int:
        """A record without its body, and without its properties and their length."""
        bare = record.record_size(1, self._flags(store_host), 0, len(encode_utf8(self.topic)), 0)
        return bare - _LENGTH.size

    def messages(self) -> list[Message]:
        """Its messages one by one, for a store that adds something to each."""
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
            for flag, begin, body_end, end in self.spans
        ]

    def encode(
        self, queue_offset: int, phy_offset: int, store_timestamp_ms: int, store_host: Host
    ) -> tuple[bytes, list[int]]:
        """The records one after the other, the first at ``phy_offset``, and where each begins."""
        topic, view = encode_utf8(self.topic), memoryview(self.body)
        middle = b"".join(
            (
                _BORN.pack(self._flags(store_host), self.born_timestamp_ms or store_timestamp_ms),
                self.born_host.to_bytes(),
                _STORED.pack(store_timestamp_ms),
                store_host.to_bytes(),
                _LAST.pack(self.reconsume_times, 0),
            )
        )
        closing, frame = bytes((len(topic),)) + topic, self._frame_bytes(store_host)
        pack, crc_of, magic = _NUMBERS.pack, record.body_crc, record.MAGIC_V1
        parts: list[bytes | memoryview] = []
        places = []
        for flag, begin, body_end, end in self.spans:
            size = frame + end - begin
            crc = crc_of(view[begin:body_end])
            parts += (
                pack(size, magic, crc, self.queue_id, flag, queue_offset, phy_offset),
                middle,
                view[begin - 4 : body_end],  # with its length
                closing,
                view[body_end:end],
            )
            places.append(phy_offset)
            queue_offset += 1
            phy_offset += size
        return b"".join(parts), places


def find_spans(raw: bytes) -> list[tuple[int, int, int, int]]:
    """Where the messages of a batch are; raises RemotingCommandError where a length does not fit."""
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
class PutRecordsResult(PutMessageResult):
    """What became of them: of the first message, but for ``size_bytes`` and ``msg_id``, which are of all."""

    places: list[int] = field(default_factory=list)

    @property
    def msg_id(self) -> str:
        """The ids of all its messages, joined by commas."""
        host = self.store_host
        return ",".join([message_id(host, place) for place in self.places]) if host is not None else ""


def messages_in(results: list[PutMessageResult]) -> int:
    """How many messages the results of a group are about."""
    first = results[0]
    return len(first.places) if isinstance(first, PutRecordsResult) else len(results)
