"""Runs of acknowledgements: a consumer sends one for each message of a pop, and one read brings dozens of them.

A run consists of the ACK_MESSAGE requests that follow each other in a read. Each header is decoded once, into its
typed fields. A receipt handle is decoded once for all messages of a pop that are in the same queue.

Pure: no I/O, no clock.

Source: AckMessageRequestHeader, ExtraInfoUtil.
"""

from __future__ import annotations

import msgspec

from gantrymq.format.pop_checkpoint import MAX_MESSAGES
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import FRAME_HEAD, CommandRun
from gantrymq.remoting.header import Int
from gantrymq.remoting.headers.pop import AckMessageRequestHeader

_MAX_ACKS = 64  # they take half of the time that a connection has before others
_MAX_HEADER_BYTES = 1024  # the smallest limit for a header that a broker can have
_FEWEST = 2
_MAX_DIGITS = 18  # of an offset that is a Java long without a further check


class Ack(msgspec.Struct, rename="camel", gc=False):
    """The header of a frame with its typed fields, as far as an acknowledgement needs it."""

    code: Int
    ext_fields: AckMessageRequestHeader
    opaque: Int = 0
    flag: Int = 0


_decode = msgspec.json.Decoder(Ack, strict=False).decode


class AckRun(CommandRun):
    """Acknowledgements, all with an answer."""

    __slots__ = ("acks",)

    acks: list[Ack]

    def __len__(self) -> int:
        return len(self.acks)

    @property
    def oneway_count(self) -> int:
        """None of them is one-way."""
        return 0

    @property
    def offsets(self) -> list[int]:
        """The queue offset of each message."""
        return [ack.ext_fields.offset for ack in self.acks]

    def by_pop(self) -> list[AckRun] | None:
        """Runs of up to 32 messages, each of one queue of one pop.

        None if a receipt handle has not eight fields: old clients send none with an offset.
        """
        parts: dict[tuple[str, str, int, str | None, str], list[Ack]] = {}
        for ack in self.acks:
            fields = ack.ext_fields
            pop, _, offset = fields.extra_info.rpartition(" ")
            if not offset.isdecimal() or len(offset) > _MAX_DIGITS or pop.count(" ") != 6:
                return None
            key = (fields.topic, fields.consumer_group, fields.queue_id, fields.lite_topic, pop)
            parts.setdefault(key, []).append(ack)
        return [
            self._part(acks[at : at + MAX_MESSAGES])
            for acks in parts.values()
            for at in range(0, len(acks), MAX_MESSAGES)
        ]

    def _part(self, acks: list[Ack]) -> AckRun:
        part = AckRun(self.code, self.data, self.begin, self.end)
        part.acks, part.received_s = acks, self.received_s
        return part


class FindAckRun:
    """Finds runs of ACK_MESSAGE."""

    code = int(RequestCode.ACK_MESSAGE)
    after: tuple[int, ...] = (code,)

    def __call__(self, data: bytes, begin: int) -> AckRun | None:
        """The run of acknowledgements at ``data[begin:]``; None if there are fewer than two.

        A frame that is not plain ends the run: a body, a header that is not JSON as the Java client writes it, a
        missing field, a one-way request.
        """
        acks: list[Ack] = []
        end, size = begin, len(data)
        while len(acks) < _MAX_ACKS and end + FRAME_HEAD.size <= size:
            length, header_bytes = FRAME_HEAD.unpack_from(data, end)  # the type of JSON is 0
            next_at = end + 4 + length
            if header_bytes > _MAX_HEADER_BYTES or length != 4 + header_bytes or next_at > size:
                break
            try:
                ack = _decode(data[end + FRAME_HEAD.size : next_at])
            except (msgspec.MsgspecError, ValueError, RecursionError):
                break
            if ack.code != self.code or ack.flag:
                break
            acks.append(ack)
            end = next_at
        if len(acks) < _FEWEST:
            return None
        run = AckRun(self.code, data, begin, end)
        run.acks = acks
        return run
