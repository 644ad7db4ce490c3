"""The store as a broker uses it: many messages in one append, records as slices of the mapped log, and who is told.

Thread rule: appends and pulls from the event loop's thread; nothing here waits for the disk but :meth:`delete_topic`,
which belongs into a thread of its own.

Source: DefaultMessageStore.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from gantrymq.errors import DiskError, StoreBehindError
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.kernels.codes import CHECK_OFF
from gantrymq.logs import get_logger
from gantrymq.model.message import StoredMessage
from gantrymq.model.status import GetMessageStatus
from gantrymq.store.consume_queue import ConsumeQueue
from gantrymq.store.log_scanner import LogScanner
from gantrymq.store.mapped_file import MappedFile
from gantrymq.store.message_store import MessageStore
from gantrymq.store.record_scan import RecordScan

log = get_logger()
_UNITS_A_READ = 512
_CATCH_UP_S = 5.0
_CATCH_UP_STEP_S = 0.001
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


class BrokerMessageStore(MessageStore):
    """A :class:`MessageStore` with a broker's way of writing and reading it."""

    def _start(self, housekeeping: bool) -> None:
        super()._start(housekeeping)
        for note in [*self.accepted, *self.notes]:
            log.warning("files of the commit log are missing", path=str(note.path), reason=note.reason)
        report = self.recovery
        cut = {
            "cut_bytes": report.cut_bytes,
            "removed_files": len(report.removed_files),
            "queue_units_cut": report.queue_units_cut,
            "queues_destroyed": report.queues_destroyed,
            "index_files_dropped": len(report.index_files_dropped),
        }
        if any(cut.values()):
            is_remade = report.index_files_dropped and sum(map(bool, cut.values())) == 1  # the index alone
            place = {"log_ends_at": report.max_phy_offset, "stop_reason": report.stop_reason.value}
            (log.info if is_remade else log.warning)("recovery has cut the store", **place, **cut)

    def _note_failure(self, name: str, error: Exception) -> None:
        """As the store does, with a line in the log for each failure that is not a repetition."""
        is_repeated = any(str(error) == str(other) for _, other in self.failures)
        super()._note_failure(name, error)
        if is_repeated:
            return
        if self._flush_failed:
            log.error(
                "the store acknowledges nothing more: stop the broker and run `gantrymq store verify`",
                service=name,
                error=str(error),
            )
        else:
            log.error("a service of the store failed, and tries again", service=name, error=str(error))

    # Reading

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
            look_at = max(self.config.max_filter_message_size_bytes // UNIT_SIZE, max_msgs)
            _Pull(self, queue, pulled, max_msgs, max_bytes).fill(look_at, tags_codes)
        return pulled

    def has_match(self, topic: str, queue_id: int, begin: int, end: int, tags_codes: Collection[int] | None) -> bool:
        """Whether a unit from ``begin`` to ``end`` may have a wanted tags code."""
        queue = self._lookup.queues.get(topic, queue_id)
        if queue is None or begin >= end:
            return False
        if tags_codes is None:
            return True
        return any(queue.may_be(entry.tags_code, tags_codes) for _, entry in self._lookup.iterate(queue, begin, end))

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue; 0 where it is not there (RocketMQ makes the queue when it looks for it)."""
        queue = self._lookup.queues.get(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset_in_queue(self, topic: str, queue_id: int, *, committed: bool = True) -> int:
        """Behind the last message of a queue that can be pulled, or without ``committed`` that was given an offset."""
        if not committed:
            return self._appender.next_offset(topic, queue_id)
        queue = self._lookup.queues.get(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def unit_at(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """(physical offset, size, tags code) at a queue offset, or None."""
        queue = self._lookup.queues.get(topic, queue_id)
        entry = queue.entry(offset) if queue is not None and offset >= 0 else None
        if queue is None or entry is None or offset >= queue.max_offset:
            return None
        return entry.phy_offset, entry.size_bytes, queue.tags_code(entry.tags_code)

    def is_recent(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether the message at a queue offset is there, and so new that it is likely in memory.

        (checkInMemByConsumeOffset; RocketMQ asks the system about its pages)
        """
        unit = self.unit_at(topic, queue_id, offset)
        return unit is not None and self.max_phy_offset - unit[0] <= _hot_bytes()

    def store_timestamp_ms(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message at a queue offset was stored; -1 where there is none."""
        unit = self.unit_at(topic, queue_id, offset)
        return self._lookup.log.pickup_store_timestamp(unit[0], unit[1]) if unit is not None else -1

    def earliest_timestamp_ms(self, topic: str, queue_id: int) -> int:
        """When the first message of a queue was stored; -1 where there is none."""
        return self.store_timestamp_ms(topic, queue_id, self.min_offset_in_queue(topic, queue_id))

    def topic_at(self, phy_offset: int) -> str | None:
        """The topic of what stands at a physical offset, or None where no record does."""
        message = self.message_at(phy_offset)
        return message.topic if message is not None else None

    def is_record_start(self, phy_offset: int) -> bool:
        """Whether the records of a log file, from its front, lead to this offset. It reads that much of the file."""
        file = self._log.queue.find(phy_offset)
        if file is None:
            return False
        scanner = LogScanner(self._log, file.file_from_offset, phy_offset, RecordScan(CHECK_OFF))
        for _ in scanner:
            pass
        return scanner.offset == phy_offset and not scanner.stop

    def record_of(self, message: StoredMessage) -> memoryview | None:
        """The bytes of a message's record, or None where it is gone."""
        held = self._lookup.log.get_message(message.phy_offset, message.size_bytes)
        if held is None:
            return None
        with held:
            return held.array.data

    def index_state(self) -> tuple[int, int]:
        """(store time, physical offset) of the last message that was indexed."""
        page = self._checkpoint.page
        return page.index_msg_timestamp_ms, self._reput.reput_from_offset

    @property
    def disk_used_ratio(self) -> float:
        """How full the disk is, from 0 to 1."""
        return self._space.used_percent() / 100

    @property
    def earliest_message_timestamp_ms(self) -> int:
        """When the first message of the log was stored; -1 where there is none."""
        message = self.message_at(self.min_phy_offset)
        return message.store_timestamp_ms if message is not None else -1

    @property
    def delay_offsets(self) -> dict[int, int]:
        """How far each delay level is delivered."""
        return dict(self._schedule.offsets)

    @property
    def path(self) -> Path:
        """Where the store is."""
        return self._paths.root

    @property
    def commit_log_paths(self) -> tuple[Path, ...]:
        """The directories of the commit log."""
        return self._paths.commit_logs

    @property
    def flushed_offset(self) -> int:
        """Up to where the log is on the disk."""
        return self._log.queue.flushed_where

    @property
    def dispatched_offset(self) -> int:
        """Up to where the log is in queues and index."""
        return self._reput.reput_from_offset

    # Topics that go

    def delete_topic(self, topic: str) -> int:
        """Remove the queues of a topic; returns how many. Its messages stay in the log until that expires.

        Waits until all that was put is dispatched, at last while nobody may put: a unit that came later would begin
        the queue anew at its old offset. Flushes the log, where the topic has messages, before the deletion is
        recorded: after a power cut, a deletion whose last message is missing is ignored. Raises StoreBehindError
        where that takes too long. What waits to be delivered to the topic is not delivered any more.
        """
        deadline_s = self._clock.monotonic_s() + _CATCH_UP_S
        self._catch_up(deadline_s)
        if topic in self.topics_with_messages():
            self._make_durable(self._reput.queues_end_offset, deadline_s)  # so that little is left under the lock
        with self._put_lock:
            self._catch_up(deadline_s)
            if self.dispatch_behind_bytes:
                raise StoreBehindError(self._paths.root, "dispatching is behind, so no queue can go now: try again")
            gone = [queue for queue in self._queues if queue.topic == topic and queue.max_offset > 0]
            if gone:  # first: a kill in between must not leave some of them
                newest, end = max(gone, key=lambda queue: queue.max_physic_offset), self._log.wrote_offset
                self._make_durable(end, deadline_s)
                self._deleted.add(topic, newest.last_phy_offset, newest.max_physic_offset, end, self._log.min_offset)
            self._delayed_ends[topic] = self._log.wrote_offset
            messages = sum(queue.max_offset - queue.min_offset for queue in gone)
            for queue in gone:
                queue.destroy()
                self._appender.forget_queue(topic, queue.queue_id)
        if gone:
            log.warning("the queues of a topic were deleted", topic=topic, queues=len(gone), messages=messages)
        return len(gone)

    def _catch_up(self, deadline_s: float) -> None:
        while self.dispatch_behind_bytes and self._clock.monotonic_s() < deadline_s:
            self._reput_runner.wake()
            time.sleep(_CATCH_UP_STEP_S)

    def _make_durable(self, end_offset: int, deadline_s: float) -> None:
        """Return when the log is on the disk up to ``end_offset``; raises StoreBehindError at the deadline."""
        while self._log.queue.flushed_where < end_offset:
            if self._clock.monotonic_s() >= deadline_s:
                raise StoreBehindError(self._paths.root, "the log is not flushed, so no queue can go now: try again")
            self._flush_now()
            time.sleep(_CATCH_UP_STEP_S)

    def topics_with_messages(self) -> set[str]:
        """The topics that have queues with anything in them."""
        return {queue.topic for queue in self._queues if queue.max_offset > 0}


@cache
def _hot_bytes() -> int:
    """accessMessageInMemoryMaxRatio, 40 % of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 2 // 5


class _Pull:
    """One pull at work: collects records until one of its limits is reached."""

    def __init__(
        self, store: BrokerMessageStore, queue: ConsumeQueue, pulled: PulledMessages, max_msgs: int, max_bytes: int
    ) -> None:
        self._log = store._lookup.log
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
