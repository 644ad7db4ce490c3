"""Checks half messages without a decision: their producers are asked for the result of the transaction.

The obvious way, asking for each half message without an op message, reads both queues from their beginning each time.
So a check reads a half queue once and leaves no open message before its end: a message whose producer is asked is put
back at the end of the queue. The group CID_RMQ_SYS_TRANS has an offset in the half queue and one in the op queue, from
which the next check begins.

- When a message is put back, its old record counts as decided: an op message names it. So a kill in the middle of a
  check puts no message back twice. (RocketMQ writes no such op message.) The first record of an immune message is the
  exception: an op message that names it stands for the decision of its producer, so it is skipped by the committed
  offsets alone.
- The offsets are committed once the log is durable up to the end of the check. Otherwise a power cut could take a
  final message, and no check would read its half message again. (RocketMQ commits them at once.)
- A check reads the half messages that existed when it began, in slices of the event loop. It needs one byte of memory
  for each of ``_WINDOW`` half messages.

Thread rule: the event loop's thread.

Source: TransactionalMessageCheckService, TransactionalMessageServiceImpl.check.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from gantrymq.broker import names
from gantrymq.broker.metrics.meter import BrokerMeter
from gantrymq.broker.storage import Storage
from gantrymq.broker.tables.tables import Tables
from gantrymq.broker.transactions.decisions import Decisions
from gantrymq.broker.transactions.half_messages import (
    check_times,
    checked_message,
    discarded_message,
    first_offset,
    fits,
    immune_message,
    immunity_ms,
    is_checked_enough,
    real_queue,
)
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.errors import RemotingError
from gantrymq.format.op_message import decided_offsets
from gantrymq.model.message import PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS, Message, StoredMessage
from gantrymq.remoting.transport.limited_log import LimitedLog
from gantrymq.store.log.appendable import AppendableMessage
from gantrymq.store.lookup import GetMessageResult

TICK_MS = 200  # half messages between two looks at the clock
_WINDOW = 1 << 20  # half messages that one check reads
_OPS_A_READ = 32
_MAX_OPS_NOTED = 1 << 16  # op messages by which one check advances the offset of the op queue
_DECIDED_A_SLICE = 8_192
_MAX_PASSED = 10_000  # half messages after an immune one that is not put back
_HOUR_MS = 3_600_000


class _Unpublished(NamedTuple):
    """The offsets of a check, and the end of the log that must be durable before they are committed."""

    log_end: int
    offsets: dict[tuple[str, int], int]


class _Ops:
    """The decisions in the op messages of a queue about ``size`` half messages from ``begin`` on."""

    def __init__(self, begin: int, size: int) -> None:
        self.begin, self.decided = begin, bytearray(size)
        self.earlier: set[int] = set()  # decided offsets before ``begin``: first records of immune messages
        self.read: list[tuple[int, int]] = []  # (the op message's next queue offset, the last offset that it names)

    def take(self, op: StoredMessage) -> None:
        """Note the decisions of one op message."""
        last = -1
        for offset in decided_offsets(op.tags, op.body):
            last = max(last, offset)
            if offset < self.begin:
                if len(self.earlier) < _MAX_OPS_NOTED:
                    self.earlier.add(offset)
            elif offset - self.begin < len(self.decided):
                self.decided[offset - self.begin] = 1
        if len(self.read) < _MAX_OPS_NOTED:
            self.read.append((op.queue_offset + 1, last))

    def names(self, offset: int) -> bool:
        """Whether one of them says that the half message at a queue offset, -1 for none, is decided."""
        index = offset - self.begin
        return offset in self.earlier or (0 <= index < len(self.decided) and self.decided[index] == 1)

    def done_until(self, op_offset: int, half_offset: int) -> int:
        """The offset of the op queue up to which no op message names a half message from ``half_offset`` on."""
        for next_offset, last in self.read:
            if last >= half_offset:
                break
            op_offset = next_offset
        return op_offset


@dataclass(slots=True)
class _Walk:
    """One check of the half queue ``queue_id``, up to its queue offset ``end``."""

    queue_id: int
    ops: _Ops
    end: int
    waits_from: int  # the first immune message that is not put back; ``end`` without one


class TransactionalMessageCheckService:
    """Checks half messages every transactionCheckInterval of the broker's clock.

    ``ask`` asks a producer about a half message, with the record that was put back.
    """

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        storage: Storage,
        tables: Tables,
        decisions: Decisions,
        ask: Callable[[StoredMessage], None],
        meter: BrokerMeter,
    ) -> None:
        self._config, self._clock, self._store, self._puts = config, clock, storage.store, storage.puts
        self._topics, self._offsets, self._metrics = tables.topics, tables.offsets, tables.transaction_metrics
        self._ops, self._decisions, self._ask, self._meter = decisions.ops, decisions, ask, meter
        self._log = LimitedLog(asyncio.get_running_loop().time)
        self._last_ms = clock.now_ms()
        self._reached: dict[tuple[str, int], int] = {}  # where the next check begins
        self._unpublished: _Unpublished | None = None

    async def run_if_due(self) -> None:
        """Run one check if it is due."""
        self._publish()
        now_ms = self._clock.now_ms()
        if 0 <= now_ms - self._last_ms < self._config.broker.transaction_check_interval_ms:  # < 0: set back
            return
        self._last_ms = now_ms
        await self.check()

    async def check(self) -> None:
        """Check all half queues."""
        topic = self._topics.get(names.TRANS_HALF_TOPIC)
        if topic is None or not self._store.is_writable:
            return
        self._ops.begin_check()
        try:
            await self._caught_up()
            for queue_id in range(topic.read_queue_nums):
                while await self._check_queue(queue_id):
                    await asyncio.sleep(0)
        finally:
            self._ops.end_check()
        if self._unpublished is None:  # otherwise this check waits for the next one
            self._unpublished = _Unpublished(self._store.max_phy_offset, dict(self._reached))
        self._publish()

    def _publish(self) -> None:
        """Commit the offsets of the last check, if the log is durable up to its end."""
        if self._unpublished is None or self._store.flushed_offset < self._unpublished.log_end:
            return
        for (topic, queue_id), offset in self._unpublished.offsets.items():
            if self._offsets.query(names.TRANS_GROUP, topic, queue_id) != offset:
                self._offsets.commit(names.TRANS_GROUP, topic, queue_id, offset)
        self._unpublished = None

    async def _caught_up(self) -> None:
        """Wait until the queues have all records that are in the log now."""
        end = self._store.max_phy_offset
        while self._store.dispatched_offset < end and self._store.is_writable:
            await asyncio.sleep(0.001)

    def _begin_of(self, topic: str, queue_id: int) -> int:
        """The offsets at which the last check ended, committed or not."""
        offset = self._reached.get((topic, queue_id))
        if offset is None:
            offset = self._offsets.query(names.TRANS_GROUP, topic, queue_id)
        return max(offset, self._store.min_offset_in_queue(topic, queue_id))

    async def _check_queue(self, queue_id: int) -> bool:
        """Check a half queue, and note up to which offsets it and its op queue are decided. True if there is more."""
        half, op = (names.TRANS_HALF_TOPIC, queue_id), (names.TRANS_OP_HALF_TOPIC, queue_id)
        begin, op_begin = self._begin_of(*half), self._begin_of(*op)
        queue_end = self._store.max_offset_in_queue(*half)
        end = max(min(queue_end, begin + _WINDOW), begin)
        if end == begin and op_begin >= self._store.max_offset_in_queue(*op):
            return False
        ops = _Ops(begin, end - begin)
        await self._read_ops(queue_id, op_begin, ops)
        reached = await self._walk(_Walk(queue_id, ops, end, waits_from=end))
        self._reached |= {half: reached, op: ops.done_until(op_begin, reached)}
        return reached == end < queue_end

    def _read(self, topic: str, queue_id: int, offset: int, max_msgs: int) -> GetMessageResult:
        result = self._store.get(topic, queue_id, offset, max_msgs=max_msgs)
        if result.messages:
            size_bytes = sum(message.size_bytes for message in result.messages)
            self._meter.got(names.TRANS_GROUP, topic, len(result.messages), size_bytes)
        return result

    async def _read_ops(self, queue_id: int, offset: int, ops: _Ops) -> None:
        while True:
            result = self._read(names.TRANS_OP_HALF_TOPIC, queue_id, offset, _OPS_A_READ)
            for op in result.messages:
                ops.take(op)
            if result.next_begin_offset <= offset:
                return
            offset = result.next_begin_offset
            await asyncio.sleep(0)

    async def _walk(self, walk: _Walk) -> int:
        """Handle each half message. Returns the queue offset before which all are decided."""
        offset = slice_begin = walk.ops.begin
        while offset < walk.end:
            if self._is_decided(walk, offset):
                offset += 1
                if offset - slice_begin >= _DECIDED_A_SLICE:
                    slice_begin = offset
                    await asyncio.sleep(0)
                continue
            result = self._read(names.TRANS_HALF_TOPIC, walk.queue_id, offset, 1)
            if result.next_begin_offset <= offset:
                break
            position = result.next_begin_offset - 1 if result.messages else result.next_begin_offset
            if position > offset:  # the offsets before it were deleted, or never existed
                offset = min(position, walk.end)
            elif await self._handle(walk, result.messages[0]):
                offset += 1
            else:
                break
            await asyncio.sleep(0)
        return min(offset, walk.waits_from)

    def _is_decided(self, walk: _Walk, offset: int) -> bool:
        return bool(walk.ops.decided[offset - walk.ops.begin]) or self._ops.is_decided(walk.queue_id, offset)

    def _is_decided_by_its_first_record(self, walk: _Walk, half: StoredMessage) -> bool:
        """Whether a message that was put back while it was immune is decided under the offset that its producer knows.

        RocketMQ looks at this only while the message is still immune, and checks it once more otherwise.
        """
        if PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS not in half.properties:
            return False
        first = first_offset(half)
        return walk.ops.names(first) or self._ops.is_decided(walk.queue_id, first)

    async def _handle(self, walk: _Walk, half: StoredMessage) -> bool:
        """Ask about, put back or discard an open half message. False if the check ends before it."""
        if self._decisions.is_under_way(walk.queue_id, half.queue_offset):
            return False
        if self._is_decided_by_its_first_record(walk, half):
            self._ops.add(walk.queue_id, half.queue_offset)
            return True
        broker = self._config.broker
        age_ms = self._clock.now_ms() - half.born_timestamp_ms
        too_old_ms = self._config.store.file_reserved_time_hours * _HOUR_MS
        is_over = is_checked_enough(half, broker.transaction_check_max) or age_ms > too_old_ms
        if is_over or real_queue(half) is None:
            return await self._discard(walk, half)
        immune_ms = immunity_ms(
            half.properties.get(PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS), broker.transaction_timeout_ms
        )
        if immune_ms is not None and age_ms <= immune_ms:
            return await self._leave_immune(walk, half)
        if immune_ms is None and 0 <= age_ms <= broker.transaction_timeout_ms:
            return False
        checked = checked_message(half, check_times(half) + 1)
        if not fits(checked):  # a half message of RocketMQ may have no room for the number of checks
            return await self._discard(walk, half)
        newer = await self._put_back(half, checked)
        if newer is not None and self._decisions.put_back(walk.queue_id, half.queue_offset, newer.queue_offset):
            self._ask(newer)
        return newer is not None

    async def _leave_immune(self, walk: _Walk, half: StoredMessage) -> bool:
        """Skip a half message whose producer wants no check yet.

        As long as few messages follow it, it stays in its place and the next check begins there. Later it is put back.
        (RocketMQ puts it back in every check.)
        """
        if walk.end - half.queue_offset <= _MAX_PASSED:
            walk.waits_from = min(walk.waits_from, half.queue_offset)
            return True
        immune = immune_message(half)
        newer = await self._put_back(half, immune if fits(immune) else checked_message(half, 0))
        if newer is not None:
            # An op message that names a first record says that the producer has decided its transaction.
            is_first = first_offset(half) < 0 and fits(immune)
            self._decisions.put_back(walk.queue_id, half.queue_offset, newer.queue_offset, is_named=not is_first)
        return newer is not None

    async def _put_back(self, half: StoredMessage, message: Message) -> StoredMessage | None:
        """Put a half message back at the end of its queue, and return its new record; None if it could not be stored.

        RocketMQ retries a put that the store rejects for a minute, and then in the next check. Here the check ends
        before the message.
        """
        result = await self._puts.put_wait(AppendableMessage(message), self)
        if result is None or not result.is_stored:
            reason = result.status.value if result is not None else "the broker is busy"
            self._log.warning("a half message cannot be put back", offset=half.phy_offset, reason=reason)
            return None
        self._decisions.stored(result.phy_offset)
        return replace(
            half, queue_offset=result.queue_offset, phy_offset=result.phy_offset, properties=message.properties
        )

    async def _discard(self, walk: _Walk, half: StoredMessage) -> bool:
        """Move a half message to TRANS_CHECK_MAX_TIME_TOPIC: it has had its last check, or is too old."""
        with suppress(RemotingError):  # too many topics: the message is stored although its topic is missing
            self._topics.create_for_group(names.TRANS_CHECK_MAX_TIME_TOPIC, 1)
        result = await self._puts.put_wait(AppendableMessage(discarded_message(half)), self)
        if result is None or not result.is_stored:
            return False
        self._log.warning(
            "a half message without a decision is moved to TRANS_CHECK_MAX_TIME_TOPIC",
            offset=half.phy_offset,
            checks=check_times(half),
            moved_to=result.phy_offset,
        )
        if (queue := real_queue(half)) is not None:
            self._metrics.add(queue[0], -1)
        self._ops.add(walk.queue_id, half.queue_offset)
        return True
