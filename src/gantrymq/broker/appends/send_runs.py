"""Runs of plain sends: found in the bytes that were received, and written as records, by kernels.

A run consists of the plain sends to one topic that one read of a connection brought. No send of it becomes an object:
a kernel reads the frames into columns, and another one writes the records from the columns and the frames. Half
messages are read and written by the same kernels (:mod:`gantrymq.broker.transactions.transaction_runs`).

Source: SendMessageRequestHeaderV2, MessageExtEncoder.encode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gantrymq.broker.appends.send_properties import ACTED_ON
from gantrymq.broker.appends.wire_messages import WireRecords, cut_empty
from gantrymq.format.record import BORN_HOST_AT
from gantrymq.kernels import send_columns
from gantrymq.kernels.api import encode_sends, read_sends
from gantrymq.kernels.arrays import Bytes, read_only
from gantrymq.kernels.send_columns import PHY_OFFSET, QUEUE_ID, QUEUE_OFFSET
from gantrymq.model import flags
from gantrymq.model.host import Host
from gantrymq.model.message import PROPERTY_TRANSACTION_PREPARED
from gantrymq.model.status import PutMessageStatus
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import FRAME_HEAD, ONEWAY_FLAG, CommandRun
from gantrymq.store.log.appendable import NextOffsets, template_of
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.put_result import PutMessageResult

SHARE_OF_A_FILE = 256  # a run is written in one piece, so it may leave up to 1/256 of a file empty
_MAX_SENDS = 512
_TEXT_BYTES = 256 * 1024
_HEADER_LENGTH_MASK = 0xFFFFFF
SEND_CODE, PREPARED_NAME = b'"code":%d' % RequestCode.SEND_MESSAGE_V2, PROPERTY_TRANSACTION_PREPARED.encode()
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

    def parts(self) -> Iterator[tuple[memoryview, memoryview]]:
        """The header, without the head of its frame, and the body of each send."""
        data, at = memoryview(self.data), self.begin
        rows = self.columns[[send_columns.BODY_AT, send_columns.BODY_LENGTH]].tolist()
        for body_at, length in zip(*rows, strict=True):
            yield data[at + FRAME_HEAD.size : body_at], data[body_at : (at := body_at + length)]


RunT = TypeVar("RunT", bound=SendRun)


class ReadSends:
    """Reads frames of sends into columns. It reuses its own buffers. Thread rule: the event loop's thread.

    A send ends the reading if it has a property of ``acted_on``, or one of ``flags_off`` in its sysFlag.
    """

    def __init__(self, acted_on: Iterable[str], flags_off: int) -> None:
        names = [name.encode() for name in sorted(acted_on)]
        self._acted_on, self._flags_off = read_only(b"".join(names)), flags_off
        self._ends = np.cumsum([len(name) for name in names], dtype=np.int64)
        self._columns = np.empty((send_columns.N_ROWS, _MAX_SENDS), np.int64)
        self._seen = np.empty((2, send_columns.MAX_NAMES), np.int64)
        self._text = np.empty(_TEXT_BYTES, np.uint8)

    def __call__(self, data: bytes, begin: int, run_class: type[RunT]) -> RunT | None:
        """The sends at ``data[begin:]`` up to the first that is not plain; None if there is none."""
        wire, columns = read_only(data), self._columns
        count, end, used, bodies, keys, body, properties, queue_id = read_sends(
            wire, begin, columns, self._text, self._acted_on, self._ends, self._seen, self._flags_off
        )
        if not count:
            return None
        run = run_class(int(RequestCode.SEND_MESSAGE_V2), data, begin, end)
        run.wire, run.text = wire, self._text[:used].copy()
        run.columns = columns[:, :count].copy()
        topic_at, length = int(columns[send_columns.TOPIC_AT, 0]), int(columns[send_columns.TOPIC_LENGTH, 0])
        run.topic = data[topic_at : topic_at + length].decode("ascii")
        run.body_bytes, run.unique_key_bytes, run.largest_queue_id = bodies, keys, queue_id
        run.longest_body_bytes, run.longest_properties_bytes = body, properties
        return run


class FindSendRun:
    """Finds runs of SEND_MESSAGE_V2."""

    code = int(RequestCode.SEND_MESSAGE_V2)
    after: tuple[int, ...] = (code,)

    def __init__(self) -> None:
        self._read = ReadSends(ACTED_ON, flags.TRANSACTION_MASK | flags.INNER_BATCH)

    def __call__(self, data: bytes, begin: int) -> SendRun | None:
        """The run of plain sends at ``data[begin:]``; None if there are fewer than two.

        Calling the kernel costs more than decoding a header. So it is not called for other requests, nor for messages
        of transactions.
        """
        if len(data) - begin < FRAME_HEAD.size:
            return None
        header_end = begin + FRAME_HEAD.size + (FRAME_HEAD.unpack_from(data, begin)[1] & _HEADER_LENGTH_MASK)
        if data.find(SEND_CODE, begin, header_end) < 0 or data.find(PREPARED_NAME, begin, header_end) >= 0:
            return None
        run = self._read(data, begin, SendRun)
        return run if run is not None and len(run) >= _FEWEST else None


class _Common(NamedTuple):
    """The common parts of the records of a topic and two hosts, as arguments of ``encode_sends``."""

    front: Bytes
    topic: Bytes
    own_properties: Bytes
    host_flags: int
    store_timestamp_at: int


@lru_cache(maxsize=1024)
def _common(topic: str, born_host: Host, store_host: Host, own_properties: bytes) -> _Common:
    template = template_of(topic, born_host, store_host)
    empty = template.encode(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b"", b"")
    front, behind = cut_empty(empty, template)
    store_timestamp_at = BORN_HOST_AT + len(template.born_host)
    return _Common(
        read_only(front), read_only(behind), read_only(own_properties), template.host_flags, store_timestamp_at
    )


@dataclass(slots=True)
class WireSends(WireRecords):
    """A run of SEND_MESSAGE_V2. ``own_properties`` is appended to the properties of each message.

    ``text`` and ``columns`` have what is stored: those of the run, or others for messages that are stored as half
    messages. ``sys_flag`` is added to each message's own, ``flags_off`` is removed from it. ``queue_id`` is that of the
    first message, ``body`` has their frames.
    """

    run: SendRun
    own_properties: bytes
    text: Bytes
    columns: NDArray[np.int64]
    largest_queue_id: int
    flags_off: int = 0

    def measure(self, store_host: Host) -> int:
        """The size of their records in bytes."""
        run, each = self.run, self.template(store_host).size_bytes + len(self.own_properties)
        return len(run) * each + run.body_bytes + len(self.text)

    def append(
        self, file: MappedFile, next_offsets: NextOffsets, store_timestamp_ms: int, store_host: Host
    ) -> PutMessageResult:
        """Write the records at the end of a file that has room, each with the next offset of its queue."""
        topic, columns, begin = self.topic, self.columns, file.wrote_position
        common = _common(topic, self.born_host, store_host, self.own_properties)
        before = [next_offsets.get((topic, queue_id), 0) for queue_id in range(self.largest_queue_id + 1)]
        offsets = np.array(before, np.int64)
        end = encode_sends(
            file.write_array, begin, file.file_from_offset, self.run.wire, self.text, columns, common.front,
            common.topic, common.own_properties, common.host_flags | self.sys_flag, flags.HOSTS_V6 | self.flags_off,
            common.store_timestamp_at, store_timestamp_ms, offsets,
        )  # fmt: skip
        file.advance(end - begin)
        for queue_id, (old, new) in enumerate(zip(before, offsets.tolist(), strict=True)):
            if new != old:
                next_offsets[topic, queue_id] = new
        phy_offsets = columns[PHY_OFFSET].tolist()
        return PutMessageResult(
            PutMessageStatus.PUT_OK, topic, self.queue_id, phy_offsets[0], int(columns[QUEUE_OFFSET, 0]), end - begin,
            store_timestamp_ms, store_host, phy_offsets,
        )  # fmt: skip

    def each(self, result: PutMessageResult) -> list[PutMessageResult]:
        """The result of each message, after all were stored."""
        ends = [*result.phy_offsets[1:], result.end_offset]
        rows = zip(
            self.columns[QUEUE_ID].tolist(), self.columns[QUEUE_OFFSET].tolist(), result.phy_offsets, ends, strict=True
        )
        return [
            PutMessageResult(
                result.status, self.topic, queue_id, begin, queue_offset, end - begin, result.store_timestamp_ms,
                result.store_host,
            )
            for queue_id, queue_offset, begin, end in rows
        ]  # fmt: skip
