"""Plain sends that came together, made into records by a kernel, without a look into them here.

Source: MessageExtEncoder.encode.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gantrymq.broker.send_run import SendRun
from gantrymq.broker.wire_batch import WireRecords, cut_empty
from gantrymq.format.record import BORN_HOST_AT
from gantrymq.kernels.api import encode_sends
from gantrymq.kernels.arrays import Bytes, read_only
from gantrymq.kernels.send_columns import PHY_OFFSET, QUEUE_ID, QUEUE_OFFSET
from gantrymq.model import flags
from gantrymq.model.host import Host
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.log.appendable import NextOffsets, template_of
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.put_result import PutMessageResult


class _Common(NamedTuple):
    """What the records of a topic and two hosts have in common, as ``encode_sends`` takes it."""

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
    """A run of SEND_MESSAGE_V2 with ``marks`` behind the properties of each.

    ``sys_flag`` is set in each message's own; ``queue_id`` is the first one's, ``body`` are their frames.
    """

    run: SendRun
    marks: bytes

    def measure(self, store_host: Host) -> int:
        """How much room their records take."""
        run, each = self.run, self.template(store_host).size_bytes + len(self.marks)
        return len(run) * each + run.body_bytes + len(run.text)

    def append(
        self, file: MappedFile, next_offsets: NextOffsets, store_timestamp_ms: int, store_host: Host
    ) -> PutMessageResult:
        """Write the records behind the last byte of a file that has room, each with the next offset of its queue."""
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
        """What became of each of them, where all were stored."""
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
