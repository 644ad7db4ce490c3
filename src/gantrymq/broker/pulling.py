"""Pulls: the records of a queue that match a filter, as slices of the mapped log, which no pull decodes.

Source: DefaultMessageStore.getMessage.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from gantrymq.errors import DiskError
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.model.status import GetMessageStatus
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.lookup import MessageLookup
from gantrymq.store.queue.consume_queue import ConsumeQueue

_UNITS_A_READ = 512
_NO_RUN = -(1 << 64)  # a place that no unit can have


@dataclass(slots=True)
class PulledMessages:
    """What a pull found: ``pieces`` are whole records as they lie in the log, ``size_bytes`` in all, ``count`` of them.

    A piece keeps its mapping alive, so it may be written out whenever.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    pieces: list[memoryview] = field(default_factory=list)
    size_bytes: int = 0
    count: int = 0


class MessagePuller:
    """Finds the records of a pull. Thread rule: the event loop's thread."""

    def __init__(self, lookup: MessageLookup) -> None:
        self._lookup = lookup

    def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msgs: int,
        max_bytes: int,
        tags_codes: Collection[int] | None = None,
    ) -> PulledMessages:
        """Records from ``offset`` on whose tags code is wanted; neighbours in the log are one piece (getMessage).

        Raises DiskError where the disk does not give back the first of them; what is in front of it is found.
        """
        try:
            return self._pull(topic, queue_id, offset, max_msgs, max_bytes, tags_codes)
        except DiskError:
            if max_msgs <= 1:
                raise
            return self._pull(topic, queue_id, offset, 1, max_bytes, tags_codes)

    def _pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msgs: int,
        max_bytes: int,
        tags_codes: Collection[int] | None,
    ) -> PulledMessages:
        queue, begun = self._lookup.begin(topic, queue_id, offset)
        pulled = PulledMessages(begun.status, begun.next_begin_offset, begun.min_offset, begun.max_offset)
        if begun.status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE:
            pulled.status = GetMessageStatus.NO_MESSAGE_IN_QUEUE  # RocketMQ makes the queue when it looks for it
        if queue is not None:
            look_at = max(self._lookup.config.max_filter_message_size_bytes // UNIT_SIZE, max_msgs)
            _Pull(self._lookup.log, queue, pulled, max_msgs, max_bytes).fill(look_at, tags_codes)
        return pulled


class _Pull:
    """One pull at work: collects records until one of its limits is reached."""

    def __init__(
        self, log: CommitLog, queue: ConsumeQueue, pulled: PulledMessages, max_msgs: int, max_bytes: int
    ) -> None:
        self._log = log
        self._queue, self._pulled = queue, pulled
        self._max_msgs, self._max_bytes = max_msgs, max_bytes
        self._run_begin = self._run_end = _NO_RUN
        # The log file that the last record was in.
        self._file: MappedFile | None = None
        self._readable, self._readable_from, self._readable_end = memoryview(b""), 0, 0
        self._gone_until = -1

    def fill(self, look_at: int, tags_codes: Collection[int] | None) -> None:
        """Look at so many units at most: a filter that matches nothing must not hold the event loop."""
        pulled, queue = self._pulled, self._queue
        end = min(pulled.max_offset, pulled.next_begin_offset + look_at)
        while pulled.next_begin_offset < end:
            # Without a filter what is read is mostly what is taken; one more says that the rest is another pull's.
            most = _UNITS_A_READ if tags_codes is not None else self._max_msgs - pulled.count + 1
            count = min(end - pulled.next_begin_offset, most)
            begin = pulled.next_begin_offset
            for phy_offset, size, tags_code in queue.units(begin, count):
                if pulled.count and (pulled.count >= self._max_msgs or pulled.size_bytes + size > self._max_bytes):
                    self._end_run()
                    return
                pulled.next_begin_offset += 1
                if tags_codes is None or queue.may_be(tags_code, tags_codes):
                    self._take(phy_offset, size)
            if pulled.next_begin_offset == begin:
                break
        self._end_run()

    def _take(self, phy_offset: int, size: int) -> None:
        pulled, end = self._pulled, phy_offset + size
        if phy_offset == self._run_end and phy_offset <= end <= self._readable_end:
            self._run_end = end
        elif phy_offset < self._gone_until or not self._begin_run(phy_offset, end):
            return
        pulled.count += 1
        pulled.size_bytes += size

    def _begin_run(self, phy_offset: int, end: int) -> bool:
        """End the run before and begin one with a record; False where that is gone, or its unit damaged."""
        self._end_run()
        pulled = self._pulled
        if not self._reach(phy_offset, end):
            if not pulled.count:
                pulled.status = GetMessageStatus.MESSAGE_WAS_REMOVING
            if phy_offset < self._log.min_offset:
                self._gone_until = self._log.roll_next_file(phy_offset)
            return False
        self._run_begin, self._run_end = phy_offset, end
        pulled.status = GetMessageStatus.FOUND
        return True

    def _reach(self, phy_offset: int, end: int) -> bool:
        """Whether these bytes of the log are there, in one file, which is then at hand."""
        if not self._readable_from <= phy_offset <= end <= self._readable_end:
            file = self._log.queue.find(phy_offset)
            held = file.select(0, file.committed_position, fetched=False) if file is not None else None
            if held is None:
                return False
            self._file = file
            with held:
                self._readable, self._readable_from = held.array.data, held.start_offset
            self._readable_end = self._readable_from + len(self._readable)
        return self._readable_from <= phy_offset <= end <= self._readable_end

    def _end_run(self) -> None:
        if self._run_end != _NO_RUN:
            begin, end = self._run_begin - self._readable_from, self._run_end - self._readable_from
            assert self._file is not None, "a run begins where _reach found its file"
            self._file.fetch(begin, end - begin)
            self._pulled.pieces.append(self._readable[begin:end])
            self._run_begin = self._run_end = _NO_RUN
