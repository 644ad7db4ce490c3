"""Finds the records of a queue that match a filter, for pulls and pops.

Records are returned as slices of the mapped log. Only an SQL92 filter decodes something of them: their properties.

Source: DefaultMessageStore.getMessage.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from gantrymq.broker.reads.record_filter import FilterRun, RecordFilter
from gantrymq.errors import DiskError
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.model.status import GetMessageStatus
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.lookup import MessageLookup
from gantrymq.store.queue.consume_queue import ConsumeQueue

_UNITS_A_READ = 512
_NO_RUN = -(1 << 64)  # a physical offset that no unit can have


@dataclass(slots=True)
class PulledMessages:
    """The result of a pull.

    ``pieces`` are whole records as they are in the log, ``count`` records of ``size_bytes`` bytes. ``last_phy_offset``
    is that of the last record that was looked at, -1 without one.

    A piece keeps its mapping alive, so it may be written at any time.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    pieces: list[memoryview] = field(default_factory=list)
    size_bytes: int = 0
    count: int = 0
    last_phy_offset: int = -1


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
        record_filter: RecordFilter | None = None,
    ) -> PulledMessages:
        """The records from ``offset`` on with a matching tags code. Neighbours in the log are one piece (getMessage).

        With a ``record_filter`` they must match it too, and the result ends early when its budget is used up.

        Raises DiskError if the first of them cannot be read. If a later one cannot, the result ends before it.
        """
        try:
            return self._pull(topic, queue_id, offset, max_msgs, max_bytes, tags_codes, record_filter)
        except DiskError:
            if max_msgs <= 1:
                raise
            return self._pull(topic, queue_id, offset, 1, max_bytes, tags_codes, record_filter)

    def has_match(self, topic: str, queue_id: int, begin: int, end: int, record_filter: RecordFilter) -> bool:
        """Whether a held pull is answered because of the messages from ``begin`` to ``end``.

        True also if not all of them could be tested: its consumer pulls again from where the answer says.
        """
        try:
            pulled = self._pull(topic, queue_id, begin, 1, 1, None, record_filter)
        except DiskError:
            return True
        return pulled.count > 0 or pulled.next_begin_offset < end

    def _pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msgs: int,
        max_bytes: int,
        tags_codes: Collection[int] | None,
        record_filter: RecordFilter | None,
    ) -> PulledMessages:
        queue, begun = self._lookup.begin(topic, queue_id, offset)
        pulled = PulledMessages(begun.status, begun.next_begin_offset, begun.min_offset, begun.max_offset)
        if begun.status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE:
            pulled.status = GetMessageStatus.NO_MESSAGE_IN_QUEUE  # RocketMQ creates the queue when it looks for it
        if queue is not None:
            look_at = max(self._lookup.config.max_filter_message_size_bytes // UNIT_SIZE, max_msgs)
            run = record_filter.begin() if record_filter is not None else None
            _Pull(self._lookup.log, queue, pulled, max_msgs, max_bytes, run).fill(look_at, tags_codes)
        return pulled


class _Pull:
    """A pull in progress: collects records until one of its limits is reached."""

    def __init__(
        self,
        log: CommitLog,
        queue: ConsumeQueue,
        pulled: PulledMessages,
        max_msgs: int,
        max_bytes: int,
        record_filter: FilterRun | None,
    ) -> None:
        self._log, self._filter = log, record_filter
        self._queue, self._pulled = queue, pulled
        self._max_msgs, self._max_bytes = max_msgs, max_bytes
        self._run_begin = self._run_end = _NO_RUN
        # The log file of the last record.
        self._file: MappedFile | None = None
        self._readable, self._readable_from, self._readable_end = memoryview(b""), 0, 0
        self._deleted_until = -1

    def fill(self, look_at: int, tags_codes: Collection[int] | None) -> None:
        """Look at up to ``look_at`` units, because a filter that matches nothing must not block the event loop."""
        pulled, queue, record_filter = self._pulled, self._queue, self._filter
        end = min(pulled.max_offset, pulled.next_begin_offset + look_at)
        while pulled.next_begin_offset < end:
            # Without a filter nearly every unit read is taken. One more unit shows that the rest is for the next pull.
            is_filtered = tags_codes is not None or record_filter is not None
            max_count = _UNITS_A_READ if is_filtered else self._max_msgs - pulled.count + 1
            count = min(end - pulled.next_begin_offset, max_count)
            begin = pulled.next_begin_offset
            for phy_offset, size, tags_code in queue.units(begin, count):
                if pulled.count and (pulled.count >= self._max_msgs or pulled.size_bytes + size > self._max_bytes):
                    self._end_run()
                    return
                if record_filter is not None and record_filter.is_used_up:
                    self._end_run()
                    return
                pulled.next_begin_offset += 1
                pulled.last_phy_offset = phy_offset
                if tags_codes is not None and not queue.may_be(tags_code, tags_codes):
                    continue
                if record_filter is None or self._matches(record_filter, phy_offset, size):
                    self._take(phy_offset, size)
            if pulled.next_begin_offset == begin:
                break
        self._end_run()

    def _matches(self, record_filter: FilterRun, phy_offset: int, size: int) -> bool:
        """Whether a record matches the filter. One that is not there does, for _take to find out."""
        if phy_offset < self._deleted_until:
            return True
        end = phy_offset + size
        if not self._readable_from <= phy_offset <= end <= self._readable_end:
            self._end_run()  # its bytes are in the file that _reach leaves
            if not self._reach(phy_offset, end):
                return True
        assert self._file is not None, "_reach has found a file"
        begin = phy_offset - self._readable_from
        self._file.fetch(begin, size)
        return record_filter.matches(self._readable[begin : begin + size])

    def _take(self, phy_offset: int, size: int) -> None:
        pulled, end = self._pulled, phy_offset + size
        if phy_offset == self._run_end and phy_offset <= end <= self._readable_end:
            self._run_end = end
        elif phy_offset < self._deleted_until or not self._begin_run(phy_offset, end):
            return
        pulled.count += 1
        pulled.size_bytes += size

    def _begin_run(self, phy_offset: int, end: int) -> bool:
        """End the current run and begin one with a record.

        Returns False if the record is deleted or its unit is damaged.
        """
        self._end_run()
        pulled = self._pulled
        if not self._reach(phy_offset, end):
            if not pulled.count:
                pulled.status = GetMessageStatus.MESSAGE_WAS_REMOVING
            if phy_offset < self._log.min_offset:
                self._deleted_until = self._log.roll_next_file(phy_offset)
            return False
        self._run_begin, self._run_end = phy_offset, end
        pulled.status = GetMessageStatus.FOUND
        return True

    def _reach(self, phy_offset: int, end: int) -> bool:
        """Whether these bytes of the log exist in one file. Makes that file the current one."""
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
