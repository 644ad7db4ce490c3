"""ACK_MESSAGE, BATCH_ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME: how a consumer settles the messages that it popped.

An acknowledgement goes into the revive topic, unless its checkpoint is still in memory. A changed invisible time is a
new checkpoint of one message and an acknowledgement of the old one, in this order. A kill between them delivers the
message twice, but never loses it.

RocketMQ answers SUCCESS although an acknowledgement could not be stored. Here the answer is an error.

Source: AckMessageProcessor, ChangeInvisibleTimeProcessor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from gantrymq.broker import refusals
from gantrymq.broker.acl.permissions import BATCH_ACK_MESSAGE, popped
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.pop.ack_runs import AckRun, FindAckRun
from gantrymq.broker.pop.buffer import PoppedQueue
from gantrymq.broker.pop.checks import require_revive_queue
from gantrymq.broker.pop.service import Pop
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.tables.consumer_order_info import ILLEGAL
from gantrymq.broker.tables.tables import Tables
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.errors import ReceiptHandleError, RemotingCommandError
from gantrymq.format.pop_checkpoint import MAX_MESSAGES, PopAck, PopCheckpoint, PopKey
from gantrymq.model.java import LONG_MAX
from gantrymq.model.receipt_handle import ReceiptHandle, normal_topic, real_topic
from gantrymq.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody
from gantrymq.remoting.body import decode_request
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import CommandRun, RemotingCommand, encode_command
from gantrymq.remoting.connection import split_run
from gantrymq.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from gantrymq.remoting.quick_answers import encode_successes
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestRefused
from gantrymq.remoting.transport.turns import in_slices
from gantrymq.store.message_store import MessageStore

_MAX_BITS = 65_536  # in one entry of a batch; a pop with a filter reads a few hundred messages
_MAX_OFFSETS = 2 * MAX_MESSAGES  # in one entry of a batch; two pops in one millisecond may have the same key
_MAX_AHEAD_MS = 1_000
_STALE = "the receipt handle is of the topic[{}] that was deleted"

# Called with None, or with the reason why an acknowledgement is not stored.
Acked = Callable[[str | None], None]


class AckMessageProcessor:
    """Answers acknowledgements and changes of invisible times.

    ``look(topic, group, queue)`` lets a waiting pop look at a queue. Thread rule: the event loop's thread.
    """

    def __init__(self, config: LiveConfig, clock: Clock, store: MessageStore, tables: Tables, pop: Pop) -> None:
        self._config, self._clock, self._store = config, clock, store
        self._offsets, self._orders = tables.offsets, tables.orders
        self._checks, self._revive, self._buffer = pop.checks, pop.revive_log, pop.buffer
        self._inflight, self._look = pop.inflight, pop.waiting.look

    # One message

    def ack(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """ACK_MESSAGE. The answer comes when it is stored."""
        header = request.read(AckMessageRequestHeader)
        offset = header.offset
        handle = self._handle(channel, header, (offset,))
        key = _key(header.topic, header.consumer_group, header.queue_id, handle)
        if handle.is_order:
            wrong = self._acknowledge_in_order(key, offset, handle)
            return request.response(ResponseCode.MESSAGE_ILLEGAL if wrong else ResponseCode.SUCCESS, wrong)
        self._acknowledge(PopAck(key, (offset,)), handle, lambda wrong: _answer(channel, request, wrong))
        return None

    def run(self, channel: Channel, run: AckRun) -> bool:
        """The acknowledgements of one read. Returns False, and does nothing, if they must be taken one by one.

        Those of one pop have the same effect as a batch acknowledgement of it, and answers of their own.
        """
        parts = run.by_pop()
        if parts is None:
            return False
        try:
            handles = [self._handle(channel, part.acks[0].ext_fields, part.offsets) for part in parts]
        except RequestRefused:
            return False
        if any(handle.is_order for handle in handles):
            return False
        for part, handle in zip(parts, handles, strict=True):
            header, offsets = part.acks[0].ext_fields, part.offsets
            ack = PopAck(_key(header.topic, header.consumer_group, header.queue_id, handle), tuple(offsets))
            self._acknowledge(ack, handle, partial(_answer_run, channel, part), requests=len(part))
        return True

    def _handle(self, channel: Channel, header: AckMessageRequestHeader, offsets: Sequence[int]) -> ReceiptHandle:
        """The receipt handle of acknowledgements that differ only in their ``offsets``. Raises RequestRefused."""
        topic, queue_id = header.topic, header.queue_id
        self._checks.popped_queue(channel, topic, queue_id)
        self._refuse_lite(header.lite_topic)
        low, high = self._bounds(topic, queue_id)
        for offset in offsets:
            if not low <= offset <= high:
                remark = f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{low}~{high}"
                raise RequestRefused(ResponseCode.NO_MESSAGE, remark)
        return self._checks.handle(header.extra_info, self._revive.queues)

    def change(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """CHANGE_MESSAGE_INVISIBLETIME. The answer has the parts of the new receipt handle."""
        request_header = request.read(ChangeInvisibleTimeRequestHeader)
        topic, queue_id, offset = request_header.topic, request_header.queue_id, request_header.offset
        self._checks.popped_queue(channel, topic, queue_id)
        self._refuse_lite(request_header.lite_topic)
        low, high = self._bounds(topic, queue_id)
        if not low <= offset < high:
            raise RequestRefused(ResponseCode.NO_MESSAGE, None)
        handle = self._checks.handle(request_header.extra_info, self._revive.queues)
        most_ms = self._config.store.timer_max_delay_s * 1000
        if not 0 <= request_header.invisible_time <= most_ms:
            raise refusals.wrong_invisible_time(request_header.invisible_time, most_ms)
        if self._is_stale(topic, queue_id, offset, handle.pop_time_ms):
            raise RequestRefused(ResponseCode.NO_MESSAGE, _STALE.format(topic))
        now_ms = self._clock.now_ms()
        if handle.is_order:
            return self._change_in_order(request, request_header, handle, now_ms)
        if 0 <= handle.pop_time_ms - now_ms < _MAX_AHEAD_MS:
            # In the millisecond of the pop the new checkpoint would have the same key as the old one.
            now_ms = handle.pop_time_ms + 1
        point = PopCheckpoint(
            PopKey(topic, request_header.consumer_group, queue_id, offset, now_ms, handle.broker_name),
            request_header.invisible_time,
            [0],
            is_suspended=request_header.suspend,
        )
        header = ChangeInvisibleTimeResponseHeader(
            pop_time=now_ms, invisible_time=request_header.invisible_time, revive_qid=handle.revive_queue_id
        )

        def stored(log_end: int, reason: str | None) -> None:
            if log_end < 0:
                _answer(channel, request, reason)
                return
            old = PopAck(_key(topic, request_header.consumer_group, queue_id, handle), (offset,))
            self._store_ack(old, handle, lambda wrong: _answer(channel, request, wrong, header))

        self._revive.put_checkpoint(point, handle.revive_queue_id, stored)
        return None

    # Several messages

    async def batch_ack(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """BATCH_ACK_MESSAGE. The answer comes when all are stored; offsets without a message are left out."""
        body = decode_request(BatchAckMessageRequestBody, request.body) if request.body else None
        if body is None or not body.acks:
            return request.response(ResponseCode.NO_MESSAGE)
        request.drop_content()
        waiting: list[asyncio.Future[str | None]] = []
        wrong: tuple[int, str | None] | None = None
        async for ack in in_slices(body.acks):
            done: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
            try:
                if self._acknowledge_several(ack, body.broker_name or self._config.broker.broker_name, done.set_result):
                    waiting.append(done)
            except RequestRefused as refusal:
                wrong = wrong or (refusal.code, refusal.remark)
            except (ReceiptHandleError, RemotingCommandError) as error:
                wrong = wrong or (ResponseCode.SYSTEM_ERROR, str(error))
        for reason in await asyncio.gather(*waiting):
            if reason is not None:
                wrong = wrong or (ResponseCode.SYSTEM_ERROR, reason)
        return request.response(ResponseCode.SUCCESS) if wrong is None else request.response(*wrong)

    def _acknowledge_several(self, ack: BatchAck, broker_name: str, acked: Acked) -> bool:
        """Acknowledge the messages of one pop. Returns False if the entry names no message."""
        topic = real_topic(ack.retry, ack.topic, ack.consumer_group)
        require_revive_queue(ack.revive_queue_id, self._revive.queues)
        low, high = self._bounds(topic, ack.queue_id)
        offsets = [
            offset for bit in ack.bits(_MAX_BITS) if low <= (offset := ack.start_offset + bit) <= high and high > 0
        ]
        if not offsets:
            return False
        if len(offsets) > _MAX_OFFSETS:  # in the log an offset is thirty times as long as its bit
            remark = f"an acknowledgement of {len(offsets)} messages, more than the {_MAX_OFFSETS} of a pop"
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
        if min(ack.start_offset, ack.pop_time, ack.invisible_time) < 0 or ack.pop_time + ack.invisible_time > LONG_MAX:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "an acknowledgement with a negative offset or time")
        handle = ReceiptHandle(
            ack.start_offset,
            ack.pop_time,
            ack.invisible_time,
            ack.revive_queue_id,
            ack.retry,
            broker_name,
            ack.queue_id,
        )
        key = _key(topic, ack.consumer_group, ack.queue_id, handle)
        if handle.is_order:
            for offset in offsets:
                if (wrong := self._acknowledge_in_order(key, offset, handle)) is not None:
                    raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, wrong)
            return False
        self._acknowledge(PopAck(key, tuple(offsets), is_batch=True), handle, acked)
        return True

    # Ordered pops

    def _acknowledge_in_order(self, key: PopKey, offset: int, handle: ReceiptHandle) -> str | None:
        """Acknowledge a message of an ordered pop. Returns the error's text, or None (ackOrderly)."""
        topic, group, queue_id = key.topic, key.group, key.queue_id
        old = self._offsets.query(group, topic, queue_id)
        if offset < old:
            return None
        if self._is_stale(topic, queue_id, offset, key.pop_time_ms):
            return _STALE.format(topic)
        if offset >= (high := self._store.max_offset_in_queue(topic, queue_id)):
            # Without an ordered pop the group's offset would become offset + 1, and the next message would be skipped.
            return f"offset is illegal, key:{topic}@{group}@{queue_id}, commit:{offset}, store:{high}"
        if offset > old and self._orders.get(topic, group, queue_id) is None:
            # A kill took the table's last changes. Messages in front of this one may still be in work, so nothing is
            # committed: they and this one are delivered again.
            return None
        reached = self._orders.commit_and_next(topic, group, queue_id, offset, key.pop_time_ms)
        if reached == ILLEGAL:
            return f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{old}, commit:{offset}, next:{reached}"
        if reached >= 0:
            if not self._offsets.has_reset(group, topic, queue_id):
                self._offsets.commit(group, topic, queue_id, reached)
            if not self._orders.check_block(None, topic, group, queue_id, handle.invisible_time_ms):
                self._look(topic, group, queue_id)
        self._inflight.settle(PoppedQueue(topic, group, queue_id), key.pop_time_ms)
        return None

    def _change_in_order(
        self,
        request: RemotingCommand,
        request_header: ChangeInvisibleTimeRequestHeader,
        handle: ReceiptHandle,
        now_ms: int,
    ) -> RemotingCommand:
        topic, group, queue_id = request_header.topic, request_header.consumer_group, request_header.queue_id
        if request_header.offset < self._offsets.query(group, topic, queue_id):
            header = ChangeInvisibleTimeResponseHeader(pop_time=0, invisible_time=0, revive_qid=0)
            return request.response(ResponseCode.SUCCESS, header=header)
        visible_ms = now_ms + request_header.invisible_time
        self._orders.update_next_visible_time(
            topic, group, queue_id, request_header.offset, handle.pop_time_ms, visible_ms
        )
        header = ChangeInvisibleTimeResponseHeader(
            pop_time=handle.pop_time_ms,
            invisible_time=visible_ms - handle.pop_time_ms,
            revive_qid=handle.revive_queue_id,
        )
        return request.response(ResponseCode.SUCCESS, header=header)

    # Acknowledgements

    def _acknowledge(self, ack: PopAck, handle: ReceiptHandle, acked: Acked, *, requests: int = 1) -> None:
        def done(wrong: str | None) -> None:
            if wrong is None:
                self._settle(ack)
            acked(wrong)

        self._store_ack(ack, handle, done, requests=requests)

    def _store_ack(self, ack: PopAck, handle: ReceiptHandle, acked: Acked, *, requests: int = 1) -> None:
        if self._buffer.acknowledge(ack):
            acked(None)
            return

        def stored(log_end: int, reason: str | None) -> None:
            acked(None if log_end >= 0 else reason or "the acknowledgement is not stored")

        self._revive.join_ack(ack, handle.revive_queue_id, handle.visible_time_ms, stored, requests=requests)

    def _settle(self, ack: PopAck) -> None:
        key = ack.key
        self._inflight.settle(PoppedQueue(key.topic, key.group, key.queue_id), key.pop_time_ms, len(ack.offsets))
        if self._config.broker.enable_pop_message_threshold:  # a pop may wait for room
            topic = normal_topic(key.topic, key.group) or key.topic
            self._look(topic, key.group, key.queue_id)

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        store = self._store
        return store.min_offset_in_queue(topic, queue_id), store.max_offset_in_queue(topic, queue_id)

    def _is_stale(self, topic: str, queue_id: int, offset: int, pop_time_ms: int) -> bool:
        """Whether a receipt handle is of a topic that was deleted: the offset is that of a message stored after the
        pop. A plain acknowledgement needs no such check, because its checkpoint has gone with the topic.
        """
        store = self._store
        return store.was_deleted(topic) and store.store_timestamp_ms(topic, queue_id, offset) > pop_time_ms

    @staticmethod
    def _refuse_lite(lite_topic: str | None) -> None:
        if lite_topic and lite_topic.strip():
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, "group type or bind topic not match.")


def _key(topic: str, group: str, queue_id: int, handle: ReceiptHandle) -> PopKey:
    return PopKey(topic, group, queue_id, handle.start_offset, handle.pop_time_ms, handle.broker_name)


def _answer(
    channel: Channel,
    request: RemotingCommand,
    wrong: str | None,
    header: ChangeInvisibleTimeResponseHeader | None = None,
) -> None:
    if request.is_oneway:
        return
    if wrong is None:
        channel.respond(request, request.response(ResponseCode.SUCCESS, header=header))
    else:
        channel.respond(request, request.response(ResponseCode.SYSTEM_ERROR, wrong))


def _answer_run(channel: Channel, run: AckRun, wrong: str | None) -> None:
    if wrong is None:
        channel.respond_bytes(run, ResponseCode.SUCCESS, (encode_successes(ack.opaque for ack in run.acks),))
        return
    frames = []
    for ack in run.acks:
        request = RemotingCommand(run.code, opaque=ack.opaque)
        frames.append(encode_command(request.response(ResponseCode.SYSTEM_ERROR, wrong)))
    channel.respond_bytes(run, ResponseCode.SYSTEM_ERROR, frames)


class AckLane:
    """The lane for runs of ACK_MESSAGE. Those that it does not take are acknowledged one by one, with their errors."""

    def __init__(self, acks: AckMessageProcessor) -> None:
        self._acks, self.find = acks, FindAckRun()

    def process(self, channel: Channel, run: CommandRun) -> Sequence[RemotingCommand]:
        """Take a run, or return its acknowledgements."""
        return () if isinstance(run, AckRun) and self._acks.run(channel, run) else split_run(run)


def _processor(context: BrokerContext) -> AckMessageProcessor:
    return AckMessageProcessor(context.config, context.clock, context.storage.store, context.tables, context.pop)


def ack_lane(context: BrokerContext) -> AckLane:
    """The lane of a broker."""
    return AckLane(_processor(context))


def routes(context: BrokerContext) -> Routes:
    """The rows of acknowledgements."""
    acks = _processor(context)
    return {
        RequestCode.ACK_MESSAGE: Route(acks.ack, popped(AckMessageRequestHeader), after_dispatch=False),
        RequestCode.BATCH_ACK_MESSAGE: Route(acks.batch_ack, BATCH_ACK_MESSAGE, after_dispatch=False),
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME: Route(
            acks.change, popped(ChangeInvisibleTimeRequestHeader), after_dispatch=False
        ),
    }
