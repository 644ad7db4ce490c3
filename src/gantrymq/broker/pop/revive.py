"""Makes popped messages visible again that were not acknowledged: they go to the group's retry topic.

The timers deliver checkpoints and acknowledgements into the queues of the revive topic. A checkpoint can be decided
two seconds after its revive time, once all acknowledgements that were due up to that time have arrived. So the service
reads each queue, keeps the checkpoints that are not decided yet, and sets the bits of acknowledgements in them. It runs
every reviveInterval, and when a checkpoint can be decided.

- The group CID_RMQ_SYS_REVIVE_GROUP has the offset of the last decided checkpoint. It is committed once the messages
  that the decisions put are durable. Otherwise a power cut could lose a message of the retry topic whose checkpoint is
  not read again. (RocketMQ commits it at once.)
- An acknowledgement may arrive before its checkpoint if the timers lag: they deliver overdue messages as soon as they
  read them. Such an acknowledgement is kept for a while. (RocketMQ drops it, and delivers the message again.)
- A message that cannot be put into the retry topic gets a checkpoint of its own, which is due later each time.
- A checkpoint that a client sent to the revive topic may have a revive time in a thousand years. It is decided as if
  the timers had delivered it, so that it does not hold up the others.
- A promoted slave reads records again that its former master has decided: what that has revived is in the log.
- A record that cannot be read is skipped with a warning. (RocketMQ stops at it for ever.)
- The service reads 32 records in a slice of the event loop, and keeps ``_MAX_POINTS`` checkpoints of a queue. Above
  that, checkpoints are decided without the acknowledgements that were not read: their messages are delivered twice.

Thread rule: the event loop's thread.

Source: PopReviveService.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from gantrymq.broker import names
from gantrymq.broker.measures import Measures
from gantrymq.broker.metrics.meter import ReviveKind
from gantrymq.broker.pop.buffer import PoppedQueue
from gantrymq.broker.pop.inflight import InflightMessages
from gantrymq.broker.pop.records import retried_message, retry_topic
from gantrymq.broker.pop.revive_log import ReviveLog
from gantrymq.broker.storage import Storage
from gantrymq.broker.tables.tables import Tables
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.errors import DiskError, RemotingError
from gantrymq.format.pop_checkpoint import (
    AHEAD_MS,
    MAX_MESSAGES,
    PopCheckpoint,
    PopKey,
    decode_pop_record,
)
from gantrymq.model.delays import pop_rewrite_delays_s
from gantrymq.model.java import LONG_MAX, parse_number
from gantrymq.model.message import PROPERTY_TIMER_DELIVER_MS, TIMER_TOPIC, Message, StoredMessage
from gantrymq.model.receipt_handle import normal_topic
from gantrymq.model.status import GetMessageStatus, PutMessageStatus
from gantrymq.remoting.transport.limited_log import LimitedLog
from gantrymq.store.log.appendable import AppendableMessage
from gantrymq.store.lookup import GetMessageResult

TICK_MS = 200  # the interval between two looks at the clock
_GRACE_MS = AHEAD_MS + 1_000  # after the revive time, for acknowledgements that arrive late, as in RocketMQ
_RECORDS_A_READ = 32
_MAX_POINTS = 20_000  # of a revive queue
_MAX_EARLY = 10_000
_MAX_FAILED_READS = 50
_POINTS_AT_ONCE = 32  # checkpoints whose messages are put at the same time


@dataclass(slots=True)
class _ReviveQueue:
    """A queue of the revive topic. ``decided`` is the offset of the last decided checkpoint, ``next`` is read next."""

    queue_id: int
    decided: int
    next: int
    points: dict[PopKey, PopCheckpoint] = field(default_factory=dict)
    early: dict[PopKey, set[int]] = field(default_factory=dict)  # acknowledged offsets without a checkpoint
    delivered_ms: int = 0  # the latest due time of all records that were read
    failed_reads: int = 0
    unpublished: tuple[int, int] | None = None  # the log offset that must be durable first, and the offset to commit

    @property
    def first_due_ms(self) -> int:
        """The revive time of the checkpoint that is decided next; LONG_MAX without one."""
        return next((point.due_ms for point in self.points.values()), LONG_MAX)


class ReviveProgress(NamedTuple):
    """How far the decisions on a revive queue are behind: in records, and in ms of the oldest undecided checkpoint."""

    queue_id: int
    behind_messages: int
    behind_ms: int


class PopReviveService:
    """Decides the checkpoints of all revive queues."""

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        storage: Storage,
        tables: Tables,
        measures: Measures,
        revive: ReviveLog,
        inflight: InflightMessages,
    ) -> None:
        self._config, self._clock, self._measures = config, clock, measures
        self._store, self._puts = storage.store, storage.puts
        self._topics, self._groups, self._offsets = tables.topics, tables.groups, tables.offsets
        self._revive, self._inflight, self._meter = revive, inflight, measures.meter
        self._log = LimitedLog(asyncio.get_running_loop().time)
        self._queues: dict[int, _ReviveQueue] = {}
        self._former = storage.store.former_deliveries()
        self._last_ms = clock.now_ms()
        self._running = asyncio.Lock()

    async def run_if_due(self) -> None:
        """Look at all queues, every reviveInterval of the broker's clock and when a checkpoint can be decided."""
        self.publish()
        now_ms = self._clock.now_ms()
        is_waiting = 0 <= now_ms - self._last_ms < self._config.broker.revive_interval_ms  # the clock may be set back
        if is_waiting and not any(queue.first_due_ms < now_ms - _GRACE_MS for queue in self._queues.values()):
            return
        self._last_ms = now_ms
        await self.run()

    async def run(self) -> None:
        """Decide the checkpoints that are due. A second call waits for the first, then looks again."""
        async with self._running:
            await self._run()

    async def _run(self) -> None:
        if not self._store.is_writable or not self._revive.has_timers:
            return
        await self._caught_up()  # all timer messages are in the timer topic's queue
        complete_until_ms = self._delivered_until_ms()
        await self._caught_up()  # all that the timers delivered is in the queues of the revive topic
        for queue_id in range(self._revive.queues):
            if self._store.max_offset_in_queue(self._revive.topic, queue_id):
                await self._follow(self._queue(queue_id), complete_until_ms)
        self.publish()

    def progress(self) -> list[ReviveProgress]:
        """The progress in each queue (getReviveBehindMessages, getReviveBehindMillis)."""
        return [self._progress(queue_id) for queue_id in range(self._revive.queues)]

    def _progress(self, queue_id: int) -> ReviveProgress:
        queue = self._queues.get(queue_id)
        if queue is None:
            return ReviveProgress(queue_id, 0, 0)
        end = self._store.max_offset_in_queue(self._revive.topic, queue_id)
        behind = max(end - queue.decided - 1, 0)
        oldest = next(iter(queue.points.values()), None)
        late_ms = max(self._clock.now_ms() - oldest.due_ms, 0) if oldest is not None and behind else 0
        return ReviveProgress(queue_id, behind, late_ms)

    @property
    def has_unpublished(self) -> bool:
        """Whether a decision waits until the log is durable."""
        return any(queue.unpublished is not None for queue in self._queues.values())

    def publish(self) -> None:
        """Commit the offsets of decided checkpoints whose messages are durable."""
        for queue in self._queues.values():
            if queue.unpublished is not None and self._store.flushed_offset >= queue.unpublished[0]:
                offset = queue.unpublished[1]
                self._offsets.commit(names.REVIVE_GROUP, self._revive.topic, queue.queue_id, offset)
                queue.unpublished = None
            if queue.unpublished is None and self._committed(queue.queue_id) < queue.decided:
                queue.unpublished = (self._store.max_phy_offset, queue.decided)
                self._store.ask_for_flush()

    def _committed(self, queue_id: int) -> int:
        return self._offsets.query(names.REVIVE_GROUP, self._revive.topic, queue_id)

    def _queue(self, queue_id: int) -> _ReviveQueue:
        queue = self._queues.get(queue_id)
        if queue is None:
            decided = self._committed(queue_id)
            queue = self._queues[queue_id] = _ReviveQueue(queue_id, decided, decided + 1)
        return queue

    # Which records have arrived

    def _delivered_until_ms(self) -> int:
        """The time before which the timers have delivered everything; -1 if they are behind."""
        timers = self._store.timers
        progress = timers.progress if timers is not None else None
        if progress is None:  # the timers have not begun: there is no timer message, or the first one has just arrived
            return -1 if self._store.max_offset_in_queue(TIMER_TOPIC, 0) else self._clock.now_ms()
        return progress.read_ms if progress.behind_messages == 0 else -1

    async def _caught_up(self) -> None:
        """Returns once all that is in the log now is in its queues."""
        end = self._store.max_phy_offset
        while self._store.dispatched_offset < end and self._store.is_writable:
            await asyncio.sleep(0.001)

    async def _follow(self, queue: _ReviveQueue, complete_until_ms: int) -> None:
        """Read the new records of a queue, then decide the checkpoints that are due."""
        topic, queue_id = self._revive.topic, queue.queue_id
        end = self._store.max_offset_in_queue(topic, queue_id)
        while queue.next < end and len(queue.points) < _MAX_POINTS:
            read = self._read(queue)
            for record in read.messages:
                self._take(queue, record)
            if read.next_begin_offset <= queue.next:
                break
            queue.next = read.next_begin_offset
            await asyncio.sleep(0)
        now_ms, until_ms = self._clock.now_ms(), queue.delivered_ms - _GRACE_MS
        if queue.next >= end:
            until_ms = max(complete_until_ms, until_ms)
        elif len(queue.points) >= _MAX_POINTS:
            until_ms = now_ms
        await self._decide(queue, min(until_ms, now_ms - _GRACE_MS))

    def _read(self, queue: _ReviveQueue) -> GetMessageResult:
        """The next records of a queue. A record that the disk cannot read is skipped after ``_MAX_FAILED_READS`` runs.
        Until then the result is empty, and the other queues continue.
        """
        topic, queue_id, offset = self._revive.topic, queue.queue_id, queue.next
        for max_records in (_RECORDS_A_READ, 1):
            try:
                read = self._store.get(topic, queue_id, offset, max_msgs=max_records)
            except DiskError as error:
                reason = str(error)
            else:
                queue.failed_reads = 0
                size_bytes = sum(message.size_bytes for message in read.messages)
                self._meter.got(names.REVIVE_GROUP, topic, len(read.messages), size_bytes)
                return read
        queue.failed_reads += 1
        is_given_up = queue.failed_reads >= _MAX_FAILED_READS
        self._log.warning(
            "a record of the revive topic cannot be read from the disk",
            queue=queue_id,
            offset=offset,
            reason=reason,
            given_up=is_given_up,
        )
        if is_given_up:
            queue.failed_reads = 0
        return GetMessageResult(GetMessageStatus.MESSAGE_WAS_REMOVING, offset + is_given_up)

    def _take(self, queue: _ReviveQueue, record: StoredMessage) -> None:
        """Note a checkpoint, or set the bits of an acknowledgement in its checkpoint."""
        try:
            value = decode_pop_record(record.tags or "", record.body)
        except ValueError as error:
            self._log.warning(
                "a record of the revive topic cannot be read, and is skipped",
                queue=queue.queue_id,
                offset=record.queue_offset,
                reason=str(error),
            )
            value = None
        if isinstance(value, PopCheckpoint):
            value.revive_offset, value.phy_offset = record.queue_offset, record.phy_offset
            # The timers deliver a checkpoint that the broker has put AHEAD_MS before its revive time, or later.
            value.due_ms = min(value.revive_time_ms, _deliver_ms(record) + AHEAD_MS)
            self._meter.revive_record_read(value.key, ReviveKind.CHECKPOINT, queue.queue_id)
            self._add(queue, value)
        elif value is not None:
            self._meter.revive_record_read(value.key, ReviveKind.ACK, queue.queue_id)
            key, own_name = value.key, self._config.broker.broker_name
            self._acknowledge(queue, key if key.broker_name else key._replace(broker_name=own_name), value.offsets)
        queue.delivered_ms = max(queue.delivered_ms, _deliver_ms(record))

    @staticmethod
    def _add(queue: _ReviveQueue, point: PopCheckpoint) -> None:
        for offset in queue.early.pop(point.key, ()):
            point.acknowledge(offset)
        same = queue.points.pop(point.key, None)  # the order is that of the revive offsets
        queue.points[point.key] = point
        if same is not None:
            point.merge(same)

    @staticmethod
    def _acknowledge(queue: _ReviveQueue, key: PopKey, offsets: tuple[int, ...]) -> None:
        known = queue.points.get(key)
        if known is None:
            if len(queue.early) >= _MAX_EARLY:
                del queue.early[next(iter(queue.early))]
            early = queue.early.setdefault(key, set())
            early.update(offsets[: MAX_MESSAGES - len(early)])
            return
        for offset in offsets:
            known.acknowledge(offset)

    # Decisions

    async def _decide(self, queue: _ReviveQueue, until_ms: int) -> None:
        """Decide checkpoints in their order, up to the first one that is not due before ``until_ms``."""
        due: list[PopCheckpoint] = []
        for point in list(queue.points.values()):
            if point.due_ms >= until_ms:
                break
            due.append(point)
        for begin in range(0, len(due), _POINTS_AT_ONCE):
            some = due[begin : begin + _POINTS_AT_ONCE]
            done = await asyncio.gather(*(self._revive_open(queue, point) for point in some))
            for point, is_decided in zip(some, done, strict=True):
                if not is_decided:
                    return  # the next run retries it
                queue.points.pop(point.key, None)
                queue.decided = point.revive_offset
            await asyncio.sleep(0)

    async def _revive_open(self, queue: _ReviveQueue, point: PopCheckpoint) -> bool:
        """Put the messages that are not acknowledged into the retry topic. Returns False if it has to be retried. If
        the topic or the group was deleted, nothing is put. A topic whose messages are in the store, but whose entry in
        the table was lost, was not deleted.
        """
        offsets = point.open_offsets()
        if not offsets:
            return True
        topic = normal_topic(point.key.topic, point.key.group)
        if topic is None or self._is_gone(point) or self._groups.find(point.key.group) is None:
            return True
        done = await asyncio.gather(*(self._revive_message(point, offset) for offset in offsets))
        failed = [offset for offset, is_done in zip(offsets, done, strict=True) if not is_done]
        if not failed or not self._store.is_writable:
            return not failed
        return all(await asyncio.gather(*(self._put_retry(queue, point, offset) for offset in failed)))

    def _is_gone(self, point: PopCheckpoint) -> bool:
        """Whether the topic was deleted since the pop. It may have been created again: then the checkpoint's offsets
        name other messages.
        """
        topic = point.key.topic
        return topic in self._topics.going or self._store.is_deleted(topic, point.phy_offset)

    async def _revive_message(self, point: PopCheckpoint, offset: int) -> bool:
        """Put one message into the retry topic. Returns False if that failed. A message that the log no longer has
        counts as put.
        """
        topic, group, queue_id = point.key.topic, point.key.group, point.key.queue_id
        try:
            messages = self._store.get(topic, queue_id, offset, max_msgs=1).messages
        except DiskError as error:
            self._log.warning("a popped message cannot be read", topic=topic, offset=offset, reason=str(error))
            return False
        if not messages or messages[0].queue_offset != offset:
            self._inflight.settle(PoppedQueue(topic, group, queue_id), point.key.pop_time_ms)
            return True
        retry = retry_topic(topic, group, is_v2=self._config.broker.enable_retry_topic_v2)
        try:
            retry_queue_id = self._retry_queue(retry, point.key)
        except RemotingError as error:
            self._log.warning("a retry topic cannot be created", topic=retry, reason=str(error))
            return False
        if retry_queue_id is None:
            return False
        retried = retried_message(messages[0], point, retry, retry_queue_id, self._revive.host)
        if self._has_revived(retried, point):
            return True
        result = await self._puts.put_wait(AppendableMessage(retried), self)
        status = result.status if result is not None else PutMessageStatus.SERVICE_NOT_AVAILABLE
        self._meter.revived(point.key, status)
        if result is None or not result.is_stored:
            reason = result.status.value if result is not None else "the broker is busy"
            self._log.warning("a popped message cannot be revived", topic=topic, offset=offset, reason=reason)
            return False
        self._inflight.settle(PoppedQueue(topic, group, queue_id), point.key.pop_time_ms)
        self._measures.stats.put(retry, 1, result.size_bytes)
        return True

    def _has_revived(self, retried: Message, point: PopCheckpoint) -> bool:
        """Whether a former master has put the message into the retry topic, before this slave was promoted."""
        former, queue = self._former, (retried.topic, retried.queue_id)
        if former is None or point.due_ms > former.log_ms:
            return False
        due_ms = point.due_ms
        return former.take(retried, queue, after=point.phy_offset, due_ms=due_ms, since_ms=due_ms)

    def _retry_queue(self, retry: str, key: PopKey) -> int | None:
        """The queue of the retry topic for a message of the queue ``key``. The topic is created if it is missing.

        With useSeparateRetryQueue the retry topic has the queues of the popped topic, and a message keeps its own: so
        it keeps its priority. Returns None while the retry topic is being deleted. Raises RemotingError if the topic
        cannot be created. (addRetryTopicIfNotExist, getRetryQueueId)
        """
        popped = self._topics.get(normal_topic(key.topic, key.group) or key.topic)
        is_separate = self._config.broker.use_separate_retry_queue and popped is not None
        queues = popped.write_queue_nums if is_separate and popped is not None else 1
        if self._topics.create_for_group(retry, queues) is None:
            return None
        if is_separate:
            self._topics.grow_for_group(retry, queues)
        queue_id = key.queue_id if is_separate and key.queue_id < queues else 0
        if self._offsets.query(key.group, retry, queue_id) < 0:
            self._offsets.commit(key.group, retry, queue_id, 0)
        return queue_id

    async def _put_retry(self, queue: _ReviveQueue, point: PopCheckpoint, offset: int) -> bool:
        """Put a new checkpoint with a later due time for one message (rePutCK). Returns False if it is not stored."""
        key, times = point.key, point.re_puts or 0
        if self._is_gone(point):
            return True
        delays_s = pop_rewrite_delays_s()
        if times >= len(delays_s) and self._config.broker.skip_when_ck_re_put_reach_max_times:
            self._log.warning("a popped message is given up", topic=key.topic, group=key.group, offset=offset)
            return True
        invisible_ms, now_ms = point.invisible_time_ms, self._clock.now_ms()
        if point.revive_time_ms <= now_ms:
            invisible_ms = now_ms - key.pop_time_ms + delays_s[min(times, len(delays_s) - 1)] * 1000
        later = PopCheckpoint(
            key._replace(start_offset=offset),
            min(invisible_ms, LONG_MAX - key.pop_time_ms),
            [0],
            re_puts=times + 1,
            is_suspended=point.is_suspended,
        )
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def stored(log_end: int, reason: str | None) -> None:
            if not done.done():
                done.set_result(log_end >= 0)

        self._revive.put_checkpoint(later, queue.queue_id, stored)
        return await done


def _deliver_ms(record: StoredMessage) -> int:
    """The due time of a record; 0 if it has none."""
    try:
        return max(parse_number(record.properties.get(PROPERTY_TIMER_DELIVER_MS, ""), LONG_MAX), 0)
    except ValueError:
        return 0
