"""Stores the checkpoints of pops in the revive topic, then commits the offsets of the pops.

A pop begins where the last one ended. The committed offset is not that place yet, because an offset is committed only
after its checkpoint is durable. Otherwise a power cut could lose the checkpoint and keep the offset, and the messages
would not be delivered again. So the buffer keeps the pops of each queue of a group in order. It commits an offset once
the checkpoints of all pops up to it are durable. (RocketMQ commits an offset when the checkpoint is in the log.)

With enablePopBufferMerge a checkpoint stays in memory for some seconds. It is not stored if all its messages are
acknowledged in that time. Its offset is committed when the checkpoint is durable, or when all messages are
acknowledged.

A checkpoint that the store refuses is put again until it is stored. The number of pops of a queue that are not
committed is limited by popCkOffsetMaxQueueSize.

Thread rule: the event loop's thread.

Source: PopBufferMergeService.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from gantrymq.broker.metrics.meter import BrokerMeter
from gantrymq.broker.pop.revive_log import ReviveLog
from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.format.pop_checkpoint import PopAck, PopCheckpoint, PopKey
from gantrymq.remoting.transport.limited_log import LimitedLog
from gantrymq.remoting.transport.turns import in_slices
from gantrymq.store.message_store import MessageStore

SCAN_MS = 100
_FLUSH_MS = 500  # the shortest time between two requests for a flush; RocketMQ's flush interval
_SAFETY_MS = 1_500  # acknowledgements are not merged this close to the end of a checkpoint's time in memory


class PoppedQueue(NamedTuple):
    """The queue of a group."""

    topic: str
    group: str
    queue_id: int


class _Pop:
    """One pop of a queue. ``next_offset`` is where the next one begins."""

    __slots__ = ("is_merging", "log_end", "next_offset", "point", "puts", "revive_queue_id", "stored_bits")

    def __init__(self, point: PopCheckpoint | None, revive_queue_id: int, next_offset: int) -> None:
        self.point, self.revive_queue_id, self.next_offset = point, revive_queue_id, next_offset
        self.log_end = 0 if point is None else -1  # -1: not stored
        self.puts = 0  # its records that are being stored
        self.is_merging = False  # whether acknowledgements are still collected in memory
        self.stored_bits = 0  # acknowledgements that are stored in the revive topic

    @property
    def is_acked(self) -> bool:
        """Whether every message is acknowledged in memory."""
        return self.point is not None and not self.point.open_offsets()


class PopBuffer:
    """The pops of all queues whose offsets are not committed."""

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        store: MessageStore,
        offsets: ConsumerOffsetManager,
        revive: ReviveLog,
        meter: BrokerMeter,
    ) -> None:
        self._config, self._clock, self._store, self._meter = config, clock, store, meter
        self._offsets, self._revive = offsets, revive
        self._log = LimitedLog(asyncio.get_running_loop().time)
        self._queues: dict[PoppedQueue, deque[_Pop]] = {}
        self._points: dict[PopKey, _Pop] = {}  # not stored yet, or still collecting acknowledgements
        self._flush_asked_ms = 0

    def __len__(self) -> int:
        """The number of checkpoints that are not stored, or collect acknowledgements."""
        return len(self._points)

    @property
    def has_uncommitted(self) -> bool:
        """Whether an offset waits for its commit."""
        return bool(self._queues)

    @property
    def uncommitted(self) -> int:
        """The number of pops whose offset waits for its commit (getOffsetTotalSize)."""
        return sum(map(len, self._queues.values()))

    # Pops

    def next_offset(self, queue: PoppedQueue) -> int:
        """The offset at which the next pop of a queue begins; -1 if that is the committed offset."""
        pops = self._queues.get(queue)
        return pops[-1].next_offset if pops else -1

    def visible_from(self, queue: PoppedQueue) -> int:
        """The offset at which a pop of a queue would begin. Nothing is committed for a new group."""
        offset = self._offsets.query(queue.group, queue.topic, queue.queue_id)
        if offset < 0:
            offset = self._store.min_offset_in_queue(queue.topic, queue.queue_id)
        return max(offset, self.next_offset(queue))

    def has_room(self, queue: PoppedQueue) -> bool:
        """Whether the limits allow one more uncommitted pop of a queue."""
        broker = self._config.broker
        pops = self._queues.get(queue)
        if pops is not None and len(pops) >= broker.pop_ck_offset_max_queue_size:
            return False
        return len(self._points) < max(broker.pop_ck_max_buffer_size, broker.pop_ck_offset_max_queue_size)

    def skip(self, queue: PoppedQueue, next_offset: int) -> None:
        """Note that a pop found no message that matches its filter before ``next_offset`` (addCkMock)."""
        pops = self._queues.get(queue)
        if pops and pops[-1].point is None:
            pops[-1].next_offset = next_offset
            return
        self._queues.setdefault(queue, deque()).append(_Pop(None, 0, next_offset))

    def add(self, point: PopCheckpoint, revive_queue_id: int, next_offset: int, done: Callable[[], None]) -> bool:
        """Note a pop that takes the messages of a checkpoint. ``done`` is called when the pop may be answered.

        Returns False, and adds nothing, if a checkpoint with the same key exists. (addCk, addCkJustOffset)
        """
        if point.key in self._points:
            return False
        pop = _Pop(point, revive_queue_id, next_offset)
        queue = PoppedQueue(point.key.topic, point.key.group, point.key.queue_id)
        self._points[point.key] = pop
        self._queues.setdefault(queue, deque()).append(pop)
        broker, left_ms = self._config.broker, point.revive_time_ms - self._clock.now_ms()
        if (
            broker.enable_pop_buffer_merge
            and left_ms >= broker.pop_ck_stay_buffer_timeout_ms + _SAFETY_MS
            and len(self._points) <= broker.pop_ck_max_buffer_size
        ):
            pop.is_merging = True
            done()
        else:
            self._put(pop, done)
        return True

    def clear(self, queue: PoppedQueue) -> None:
        """Discard the pops of a queue after a reset of its offset, so that none of them commits an offset."""
        self._queues.pop(queue, None)

    def forget(self, topic: str = "", group: str = "") -> None:
        """Discard the pops of a deleted topic or group."""
        for queue in [queue for queue in self._queues if topic == queue.topic or group == queue.group]:
            del self._queues[queue]
        for key in [point for point in self._points if topic == point.topic or group == point.group]:
            del self._points[key]

    # Acknowledgements

    def acknowledge(self, ack: PopAck) -> bool:
        """Note an acknowledgement in memory. Returns False if it has to be stored (addAk)."""
        broker, now_ms, pop = self._config.broker, self._clock.now_ms(), self._points.get(ack.key)
        if pop is None or not pop.is_merging or pop.point is None or not broker.enable_pop_buffer_merge:
            return False
        if pop.point.revive_time_ms - now_ms < broker.pop_ck_stay_buffer_timeout_ms + _SAFETY_MS:
            return False
        if now_ms - pop.point.key.pop_time_ms > broker.pop_ck_stay_buffer_time_ms - _SAFETY_MS:
            return False
        for offset in ack.offsets:
            pop.point.acknowledge(offset)
        if pop.is_acked:
            self._settle(pop)
        return True

    # From memory into the store

    async def scan(self) -> None:
        """Store checkpoints whose time in memory is over, retry those that the store refused, and commit offsets."""
        began_ms = monotonic_ms(self._clock)
        async for pop in in_slices(list(self._points.values())):
            self._advance(pop)
        self._meter.buffer_scanned(monotonic_ms(self._clock) - began_ms)
        await self._commit_all()

    def drain(self) -> None:
        """Store every checkpoint and acknowledgement that is only in memory."""
        for pop in list(self._points.values()):
            pop.is_merging = False
            self._advance(pop)

    def _advance(self, pop: _Pop) -> None:
        if pop.point is None or pop.point.key not in self._points or pop.puts:
            return
        if pop.is_merging and pop.is_acked:
            self._settle(pop)
        elif pop.log_end < 0:
            if not pop.is_merging or self._is_over(pop.point):
                self._put(pop, lambda: None)
        else:
            self._store_acks(pop)

    def _is_over(self, point: PopCheckpoint) -> bool:
        broker, now_ms = self._config.broker, self._clock.now_ms()
        return (
            not broker.enable_pop_buffer_merge
            or point.revive_time_ms - now_ms < broker.pop_ck_stay_buffer_timeout_ms
            or now_ms - point.key.pop_time_ms > broker.pop_ck_stay_buffer_time_ms
        )

    def _put(self, pop: _Pop, done: Callable[[], None]) -> None:
        point = pop.point
        assert point is not None, "a pop without messages has no checkpoint"
        pop.puts += 1

        def stored(log_end: int, reason: str | None) -> None:
            pop.puts -= 1
            if log_end < 0:
                self._log.warning(
                    "a checkpoint cannot be stored, and is put again",
                    topic=point.key.topic,
                    group=point.key.group,
                    reason=reason,
                )
            else:
                pop.log_end = log_end
                self._store_acks(pop)
            done()

        self._revive.put_checkpoint(point, pop.revive_queue_id, stored)

    def _store_acks(self, pop: _Pop) -> None:
        """Store the acknowledgements that were collected in memory. The checkpoint is stored already."""
        point = pop.point
        assert point is not None, "a pop without messages has no acknowledgements"
        pop.is_merging = False
        fresh = point.acked & ~pop.stored_bits
        offsets = [point.key.start_offset + diff for bit, diff in enumerate(point.diffs) if fresh >> bit & 1]
        if not offsets:
            self._settle(pop)
            return
        is_batch = self._config.broker.enable_pop_batch_ack
        acks = [tuple(offsets)] if is_batch else [(offset,) for offset in offsets]
        pop.puts += len(acks)
        for ack in acks:
            self._store_ack(pop, PopAck(point.key, ack, is_batch), point)

    def _store_ack(self, pop: _Pop, ack: PopAck, point: PopCheckpoint) -> None:
        def stored(log_end: int, reason: str | None) -> None:
            pop.puts -= 1
            if log_end >= 0:
                pop.stored_bits |= sum(1 << bit for offset in ack.offsets if (bit := point.bit_of(offset)) is not None)
            if not pop.puts and not point.acked & ~pop.stored_bits:
                self._settle(pop)  # otherwise the next scan stores what is left

        self._revive.put_ack(ack, pop.revive_queue_id, point.revive_time_ms, stored)

    def _settle(self, pop: _Pop) -> None:
        """Forget a checkpoint that is settled; only its offset still waits for the commit."""
        assert pop.point is not None, "a pop without messages has nothing to settle"
        pop.log_end = max(pop.log_end, 0)
        self._points.pop(pop.point.key, None)

    # Offsets

    async def _commit_all(self) -> None:
        flushed, is_unflushed = self._store.flushed_offset, False
        async for queue in in_slices(list(self._queues)):
            is_unflushed |= self._commit(queue, flushed)
        now_ms = self._clock.now_ms()
        if is_unflushed and not 0 <= now_ms - self._flush_asked_ms < _FLUSH_MS:
            self._flush_asked_ms = now_ms
            self._store.ask_for_flush()

    def commit_durable(self) -> None:
        """Commit the offsets of all pops whose checkpoints are durable."""
        flushed = self._store.flushed_offset
        for queue in list(self._queues):
            self._commit(queue, flushed)

    def _commit(self, queue: PoppedQueue, flushed: int) -> bool:
        """Commit the offset of a queue as far as its checkpoints are durable. Returns whether one waits for a flush."""
        # The obvious way: a pop puts its checkpoint, commits the offset behind its messages, and answers. It loses
        # messages. The two are in different files: the checkpoint is a record of the log, which is flushed every 500
        # ms, and the offset is a number of consumerOffset.json, which is saved every 5 s. A power cut between a flush
        # of the table and one of the log leaves the offset without the checkpoint: the group goes on behind messages
        # that were not acknowledged, and no revive brings them back. (RocketMQ 5.5 commits when the checkpoint is
        # written, not when it is durable.) The other order, offset first at the acknowledgement, delivers every message
        # of a slow consumer to the other consumers of the group meanwhile.
        #
        # So there are two numbers. The next pop begins behind the last one of this buffer (next_offset). The committed
        # offset follows behind it, over checkpoints that cannot be lost any more:
        #
        #   the first pop of the queue           log_end   may its offset be committed
        #   its checkpoint is being put          -1        no: it may be refused, and is put again by the next scan
        #   merging, not all acknowledged        -1        no: neither checkpoint nor acknowledgement is in the log
        #   merging, all acknowledged            0         yes: nothing of it has to come back, and nothing is stored
        #   checkpoint in the log, not flushed   > flushed no: a flush is requested, at most one in _FLUSH_MS
        #   checkpoint flushed                   <= flushed yes: a revive brings back what is not acknowledged
        #   no message matched (skip)            0         yes: there is nothing to bring back
        #
        # Pops are committed in the order of the queue, not in the order in which they become durable. Pop 2 may be all
        # acknowledged while pop 1 still merges: committing behind pop 2 would skip the messages of pop 1 after a kill.
        # A kill therefore delivers messages of acknowledged pops again at worst, never fewer.
        #
        # An operator may move the group forwards meanwhile, or a deletion may remove the queue. The offset is committed
        # only if it is larger than the one in the table; clear() and forget() drop the pops of a queue that was reset.
        pops, offset = self._queues.get(queue), -1
        while pops and 0 <= pops[0].log_end <= flushed and not self._is_merging(pops[0]):
            offset = pops.popleft().next_offset
        # An operator may have moved the group forwards since.
        if offset > self._offsets.query(queue.group, queue.topic, queue.queue_id):
            self._offsets.commit(queue.group, queue.topic, queue.queue_id, offset)
        if not pops:
            self._queues.pop(queue, None)
            return False
        return pops[0].log_end > flushed

    @staticmethod
    def _is_merging(pop: _Pop) -> bool:
        return pop.is_merging and not pop.is_acked
