"""POP_MESSAGE: the next messages of a queue, or of all queues of a topic, for a group. They are invisible for a while.

A pop goes through its queues in slices of the event loop, because a topic may have 65,536 of them. It returns the
messages of a queue once their checkpoint is in the log. There are no locks: the offset of the next pop is known as soon
as the messages are found. A pop that finds nothing waits, see :mod:`gantrymq.broker.pop.long_polling`.

The obvious way to find what was acknowledged to a producer before is to let each pop wait for the dispatcher. But each
pop and each acknowledgement puts a record, so the dispatcher is nearly always behind, and a pop would take milliseconds
and several wake-ups. So a pop takes what is in its queues. It waits for the dispatcher only if it would be answered
without a message, or if its group is new and begins at the end of the queues.

Source: PopMessageProcessor.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from gantrymq.broker import names
from gantrymq.broker.acl.access_control import AccessControl
from gantrymq.broker.answers import DispatchCatchUp, Recheck, answer_waiting
from gantrymq.broker.metrics.meter import BrokerMeter
from gantrymq.broker.pop.buffer import PopBuffer, PoppedQueue
from gantrymq.broker.pop.checks import PopChecks, PopFilter, PopRefusal
from gantrymq.broker.pop.inflight import InflightMessages
from gantrymq.broker.pop.long_polling import (
    Polling,
    PollKey,
    PopLongPolling,
    WaitingPop,
    wait_until,
    waiting_bytes,
)
from gantrymq.broker.pop.popped_records import queue_offsets, under_topic
from gantrymq.broker.pop.records import retry_topic
from gantrymq.broker.pop.revive_log import ReviveLog
from gantrymq.broker.reads.hot_queue import begins_in_memory
from gantrymq.broker.reads.message_puller import MessagePuller, PulledMessages
from gantrymq.broker.statistics import BrokerStatsManager, StoreStatsService
from gantrymq.broker.tables.attributes import priority_factor
from gantrymq.broker.tables.consumer_order_info import ConsumerOrderInfo
from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.broker.tables.topics import TopicConfigManager, queue_ids
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.format.pop_checkpoint import MAX_MESSAGES, PopCheckpoint, PopKey
from gantrymq.model.receipt_handle import (
    ORDER_REVIVE_QUEUE,
    ReceiptHandle,
    message_offsets_entry,
    start_offset_entry,
    topic_mark,
)
from gantrymq.model.status import GetMessageStatus
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand, encode_head
from gantrymq.remoting.headers.pop import PopMessageRequestHeader, PopMessageResponseHeader
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import failure
from gantrymq.remoting.transport.turns import FairTurns
from gantrymq.store.message_store import MessageStore

_LATE_MS = 500  # a request that is this late is refused (isTimeoutTooMuch)
_MIN = 0  # ConsumeInitMode
_WRONG_OFFSET = (
    GetMessageStatus.OFFSET_TOO_SMALL,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY,
    GetMessageStatus.OFFSET_FOUND_NULL,
)
_NO_MATCH = (
    GetMessageStatus.NO_MATCHED_MESSAGE,
    GetMessageStatus.OFFSET_FOUND_NULL,
    GetMessageStatus.MESSAGE_WAS_REMOVING,
)


@dataclass(slots=True)
class _Run:
    """A pop on its way through the queues. ``rest`` counts the messages that it left.

    ``is_second`` is the second look of a pop, after the dispatcher has caught up.
    """

    channel: Channel
    request: RemotingCommand
    asked: PopMessageRequestHeader
    recheck: Recheck | None
    deadline_ms: int
    arrivals: int
    revive_queue_id: int
    pop_time_ms: int
    filter: PopFilter
    priority_factor: int  # the chance in percent that this pop takes high priorities first
    is_second: bool
    pieces: list[memoryview] = field(default_factory=list)
    size_bytes: int = 0
    count: int = 0
    rest: int = 0
    start_offsets: list[str] = field(default_factory=list)
    message_offsets: list[str] = field(default_factory=list)
    order_counts: list[str] = field(default_factory=list)
    puts: int = 0  # checkpoints that are not in the log yet
    is_walked: bool = False

    @property
    def key(self) -> PollKey:
        """The queue and the group for which the pop waits."""
        return PollKey(self.asked.topic, self.asked.consumer_group, max(self.asked.queue_id, -1))


class PopMessageProcessor:
    """Answers pops. Thread rule: the event loop's thread."""

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        store: MessageStore,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        stats: BrokerStatsManager,
        store_stats: StoreStatsService,
        access: AccessControl | None,
        checks: PopChecks,
        revive: ReviveLog,
        buffer: PopBuffer,
        inflight: InflightMessages,
        orders: ConsumerOrderInfo,
        polling: PopLongPolling,
        meter: BrokerMeter,
        caught_up: DispatchCatchUp,
    ) -> None:
        self._config, self._clock, self._store, self._topics, self._meter = config, clock, store, topics, meter
        self._offsets, self._stats, self._store_stats, self._access = offsets, stats, store_stats, access
        self._checks, self._revive, self._buffer = checks, revive, buffer
        self._inflight, self._orders, self._polling = inflight, orders, polling
        self._caught_up = caught_up
        self._puller, self._turns, self._pops = MessagePuller(store.lookup), FairTurns(), 0

    def pop(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Answer a pop, now or later."""
        asked = request.read(PopMessageRequestHeader)
        deadline_ms = wait_until(asked, self._clock)
        if asked.init_mode != _MIN and self._store.dispatch_behind_bytes and self._is_new(asked):
            self._look_later(channel, request, asked, None, deadline_ms)
            return None
        return self._begin(channel, request, asked, None, deadline_ms)

    def _is_new(self, asked: PopMessageRequestHeader) -> bool:
        """Whether the group has no offset of the queue, or of the first one, yet."""
        return self._offsets.query(asked.consumer_group, asked.topic, max(asked.queue_id, 0)) < 0

    def _look_later(
        self,
        channel: Channel,
        request: RemotingCommand,
        asked: PopMessageRequestHeader,
        recheck: Recheck | None,
        deadline_ms: int,
    ) -> None:
        """Begin the pop again once the dispatcher has caught up."""
        size_bytes = request.content_bytes
        if recheck is None and self._access is not None:
            recheck = self._access.recheck(channel, request)
        answer = partial(self._begin, channel, request, asked, recheck, deadline_ms, is_second=True)

        def resume() -> None:
            channel.end_answer(size_bytes)
            if not channel.is_closed:
                answer_waiting(channel, request, recheck, answer)

        channel.begin_answer(size_bytes)
        self._caught_up.then(resume)

    def _begin(
        self,
        channel: Channel,
        request: RemotingCommand,
        asked: PopMessageRequestHeader,
        recheck: Recheck | None,
        deadline_ms: int,
        *,
        is_second: bool = False,
    ) -> RemotingCommand | None:
        try:
            topic, group, found = self._check(channel, asked)
        except PopRefusal as refusal:
            return refusal.answer(request)
        self._pops += 1
        run = _Run(
            channel=channel,
            request=request,
            asked=asked,
            recheck=recheck,
            deadline_ms=deadline_ms,
            arrivals=self._polling.watch(asked.topic, asked.consumer_group),
            revive_queue_id=ORDER_REVIVE_QUEUE if asked.order else self._pops % self._config.broker.revive_queue_num,
            pop_time_ms=self._clock.now_ms(),
            filter=found,
            priority_factor=0 if asked.order else priority_factor(topic.attributes, group.attributes),
            is_second=is_second,
        )
        self._turns.work_through(self._walk(run, topic))
        return None

    # Checks

    def _check(
        self, channel: Channel, asked: PopMessageRequestHeader
    ) -> tuple[TopicConfig, SubscriptionGroupConfig, PopFilter]:
        broker_ip1, checks = self._config.broker.broker_ip1, self._checks
        if self._clock.now_ms() - asked.born_time - asked.poll_time > _LATE_MS:
            remark = f"the broker[{broker_ip1}] pop message is timeout too much"
            raise PopRefusal(ResponseCode.POLLING_TIMEOUT, remark)
        checks.require_readable("pop")
        if asked.max_msg_nums < 0:
            remark = f"the broker[{broker_ip1}] pop message's num is negative: {asked.max_msg_nums}"
            raise PopRefusal(ResponseCode.INVALID_PARAMETER, remark)
        if asked.max_msg_nums > MAX_MESSAGES:
            remark = f"the broker[{broker_ip1}] pop message's num is greater than {MAX_MESSAGES}"
            raise PopRefusal(ResponseCode.INVALID_PARAMETER, remark)
        if not self._revive.has_timers:
            remark = f"the broker[{broker_ip1}] pop message is forbidden because timerWheelEnable is false"
            raise PopRefusal(ResponseCode.SYSTEM_ERROR, remark)
        topic, group = checks.consumption(channel, asked)
        most_ms = self._config.store.timer_max_delay_s * 1000
        if not 0 <= asked.invisible_time <= most_ms:
            remark = f"the invisible time {asked.invisible_time} is not between 0 and {most_ms} (timerMaxDelaySec)"
            raise PopRefusal(ResponseCode.INVALID_PARAMETER, remark)
        if not self._store.is_writable:
            raise PopRefusal(ResponseCode.SYSTEM_ERROR, "the broker can store no checkpoint: its store takes no puts")
        return topic, group, checks.filter(asked, asked.exp, asked.exp_type, is_noted=True)

    # The queues

    def _walk(self, run: _Run, topic: TopicConfig) -> Iterator[None]:
        """Pop one queue a step, then answer."""
        try:
            for name, queue_id, is_retry in self._places(run, topic):
                self._pop_queue(run, PoppedQueue(name, run.asked.consumer_group, queue_id), is_retry=is_retry)
                yield
        except Exception as error:
            response = failure(run.request, error)
            if not run.count:
                run.channel.respond(run.request, response)
                return
            # Answer with the messages that were found. They have checkpoints, so an error would hide them for their
            # invisible time.
        run.is_walked = True
        self._finish(run)

    def _places(self, run: _Run, topic: TopicConfig) -> Iterator[tuple[str, int, bool]]:
        """The queues of a pop in their order: (topic, queue, whether it is one of a retry topic).

        A fifth of all pops looks into the retry topic first. The others look into it last, if they have room left. So
        neither topic can starve the other. A pop by priority begins with the queue of the highest priority, and by
        default it looks into the retry topic last.
        """
        broker, asked = self._config.broker, run.asked
        number, share = random.randrange(100), broker.pop_from_retry_probability
        first, is_even = number, number % 2 == 0
        if number < run.priority_factor:
            first, share = 0, broker.pop_from_retry_probability_for_priority
        is_retry_first = number < share
        retry = None
        if not asked.order:  # an ordered pop delivers a message again from its own queue
            retry = self._retry_topic(asked, is_even=is_even)
        if is_retry_first and retry is not None:
            yield from ((name, one, True) for name, one in self._queues(retry, first))
        if asked.queue_id >= 0:
            yield asked.topic, asked.queue_id, False
        else:
            yield from ((name, one, False) for name, one in self._queues(topic, first))
        if not is_retry_first and retry is not None and run.count < asked.max_msg_nums:
            yield from ((name, one, True) for name, one in self._queues(retry, first))

    def _queues(self, topic: TopicConfig, first: int) -> Iterator[tuple[str, int]]:
        """All queues of a topic in descending order, or ascending with priorityOrderAsc=false, as in RocketMQ.

        ``first`` shifts the start.
        """
        queues = queue_ids(str(topic.topic_name), topic.read_queue_nums)
        for number in reversed(queues) if self._config.broker.priority_order_asc else queues:
            yield str(topic.topic_name), (number + first) % len(queues)

    def _retry_topic(self, asked: PopMessageRequestHeader, *, is_even: bool) -> TopicConfig | None:
        """The retry topic that a pop looks into. If both versions exist, they take turns.

        RocketMQ leaves the messages of version 2 where they are after enableRetryTopicV2 was turned off.
        """
        broker = self._config.broker
        old, new = (
            self._topics.get(retry_topic(asked.topic, asked.consumer_group, is_v2=is_v2)) for is_v2 in (False, True)
        )
        if broker.enable_retry_topic_v2 and not broker.retrieve_message_from_pop_retry_topic_v1:
            return new
        return (old if is_even else new) if old is not None and new is not None else old or new

    def _pop_queue(self, run: _Run, queue: PoppedQueue, *, is_retry: bool) -> None:
        asked, broker = run.asked, self._config.broker
        if broker.enable_pop_message_threshold and self._inflight.count(queue) > broker.pop_inflight_message_threshold:
            return  # the acknowledgement that frees room wakes the next pop
        offset = self._next_offset(queue, asked.init_mode)
        end = self._store.max_offset_in_queue(queue.topic, queue.queue_id)
        if offset == end or not self._buffer.has_room(queue):
            return
        if asked.order:
            if self._orders.check_block(asked.attempt_id, *queue, asked.invisible_time):
                return  # the next pop is woken when the queue is free
            self._inflight.clear(queue)
        if run.count >= asked.max_msg_nums or run.size_bytes >= broker.max_transfer_bytes_in_memory:
            run.rest += max(end - offset, 0)
            return
        found = self._pull(run, queue, offset)
        if found.status in _WRONG_OFFSET:
            offset = found.next_begin_offset
            self._offsets.commit(queue.group, queue.topic, queue.queue_id, offset)
            found = self._pull(run, queue, offset)
        if found.count:
            if not self._deliver(run, queue, offset, found, is_retry=is_retry):
                run.rest += found.count
                return
        elif found.status in _NO_MATCH and found.next_begin_offset > offset:
            self._skip(queue, found.next_begin_offset, in_order=asked.order)
        run.rest += max(found.max_offset - found.next_begin_offset, 0)

    def _pull(self, run: _Run, queue: PoppedQueue, offset: int) -> PulledMessages:
        broker, wanted = self._config.broker, run.asked.max_msg_nums - run.count
        return self._puller.pull(
            queue.topic,
            queue.queue_id,
            offset,
            min(wanted, broker.max_transfer_count_in_memory),
            max(broker.max_transfer_bytes_in_memory, 100),
            run.filter.codes,
            run.filter.record_filter,
        )

    def _deliver(self, run: _Run, queue: PoppedQueue, offset: int, found: PulledMessages, *, is_retry: bool) -> bool:
        """Add the messages of a queue and put their checkpoint. Returns False if a checkpoint with the same key
        exists.
        """
        asked, offsets = run.asked, queue_offsets(found.pieces)
        if asked.order:
            run.order_counts += self._orders.update(
                asked.attempt_id, *queue, run.pop_time_ms, asked.invisible_time, offsets
            )
            self._offsets.commit(queue.group, queue.topic, queue.queue_id, offset)
        elif not self._put_checkpoint(run, queue, offset, offsets, found.next_begin_offset):
            return False
        if is_retry and not self._config.broker.pop_response_return_actual_retry_topic:
            handle = ReceiptHandle(
                offset,
                run.pop_time_ms,
                asked.invisible_time,
                run.revive_queue_id,
                topic_mark(queue.topic),
                self._config.broker.broker_name,
                queue.queue_id,
            )
            found.pieces = list(under_topic(found.pieces, asked.topic, handle))
        run.pieces += found.pieces
        run.count += found.count
        run.size_bytes += found.size_bytes
        run.start_offsets.append(start_offset_entry(queue.topic, queue.queue_id, offset))
        run.message_offsets.append(message_offsets_entry(queue.topic, queue.queue_id, offsets))
        self._inflight.add(queue, found.count)
        self._stats.got(queue.group, queue.topic, found.count, found.size_bytes)
        self._meter.got(queue.group, asked.topic, found.count, found.size_bytes, is_retry=is_retry)
        self._store_stats.pulled(found.count)
        return True

    def _put_checkpoint(self, run: _Run, queue: PoppedQueue, offset: int, offsets: list[int], next_offset: int) -> bool:
        """Put the checkpoint of a queue's messages. Returns False if a checkpoint with the same key exists."""
        key = PopKey(*queue, offset, run.pop_time_ms, self._config.broker.broker_name)
        point = PopCheckpoint(key, run.asked.invisible_time, [one - offset for one in offsets])

        def stored() -> None:
            run.puts -= 1
            self._finish(run)

        run.puts += 1
        if self._buffer.add(point, run.revive_queue_id, next_offset, stored):
            return True
        run.puts -= 1
        return False

    def _skip(self, queue: PoppedQueue, next_offset: int, *, in_order: bool) -> None:
        """Advance past messages that the filter does not match."""
        if in_order:
            self._offsets.commit(queue.group, queue.topic, queue.queue_id, next_offset)
        else:
            self._buffer.skip(queue, next_offset)

    # Offsets

    def _next_offset(self, queue: PoppedQueue, init_mode: int) -> int:
        """The offset at which a pop of a queue begins (getPopOffset). A reset offset takes precedence, and is used
        up.
        """
        topic, group, queue_id = queue
        reset = self._offsets.take_reset(group, topic, queue_id)
        if reset is not None:
            self._buffer.clear(queue)
            self._orders.clear_block(*queue)
            self._offsets.commit(group, topic, queue_id, reset)
            return reset
        offset = self._offsets.query(group, topic, queue_id)
        if offset < 0:
            offset = self._first_offset(queue, init_mode)
            # An empty queue counts too: otherwise a group that begins at the end would skip what comes into it.
            if init_mode != _MIN or self._store.max_offset_in_queue(topic, queue_id):
                self._offsets.commit(group, topic, queue_id, offset)
        return max(offset, self._buffer.next_offset(queue))

    def _first_offset(self, queue: PoppedQueue, init_mode: int) -> int:
        """The offset at which a group without a committed offset begins (getInitOffset)."""
        topic, _, queue_id = queue
        store, broker = self._store, self._config.broker
        if init_mode == _MIN or topic.startswith(names.RETRY_PREFIX):
            return store.min_offset_in_queue(topic, queue_id)
        if broker.init_pop_offset_by_check_msg_in_mem and begins_in_memory(store, topic, queue_id):
            return 0
        return max(store.max_offset_in_queue(topic, queue_id) - 1, 0)

    # Answers

    def _finish(self, run: _Run) -> None:
        """Answer or wait, once the pop has been through all queues and their checkpoints are in the log."""
        if run.puts or not run.is_walked:
            return
        if run.count:
            self._send(run)
            is_waiting = True
        else:
            is_waiting = self._wait(run)
        if is_waiting and run.rest > 0:
            self._polling.notify(run.key)

    def _send(self, run: _Run) -> None:
        size_bytes = sum(map(len, run.pieces))
        response = run.request.response(ResponseCode.SUCCESS, GetMessageStatus.FOUND.value, header=self._header(run))
        run.channel.respond_bytes(
            run.request, response.code, [encode_head(response, size_bytes), *cast("list[bytes]", run.pieces)]
        )

    def _header(self, run: _Run) -> PopMessageResponseHeader:
        return PopMessageResponseHeader(
            pop_time=run.pop_time_ms,
            invisible_time=run.asked.invisible_time,
            revive_qid=run.revive_queue_id,
            rest_num=run.rest,
            start_offset_info=";".join(run.start_offsets),
            msg_offset_info=";".join(run.message_offsets),
            order_count_info=";".join(run.order_counts) if run.asked.order else None,
        )

    def _wait(self, run: _Run) -> bool:
        """Let the pop wait. Returns False if it was answered."""
        asked, channel, request = run.asked, run.channel, run.request
        if asked.poll_time <= 0 and not run.is_second and self._store.dispatch_behind_bytes:
            self._look_later(channel, request, asked, run.recheck, run.deadline_ms)
            return True
        if run.recheck is None and self._access is not None:
            run.recheck = self._access.recheck(channel, request)
        answer = partial(self._begin, channel, request, asked, run.recheck, run.deadline_ms)
        resume = partial(answer_waiting, channel, request, run.recheck, answer)
        polling = Polling.TIMEOUT
        if asked.poll_time > 0 and asked.max_msg_nums and not channel.is_closed:
            request.drop_content()
            request.is_suspended = True
            give_up = partial(_send_nothing, channel, request, self._header(run), Polling.FULL)
            size_bytes = waiting_bytes(asked, run.key)
            waiting = WaitingPop(channel, run.key, run.deadline_ms, resume, give_up, size_bytes)
            polling = self._polling.wait(waiting, run.arrivals)
        if polling is Polling.WAITS:
            return True
        _send_nothing(channel, request, self._header(run), polling)
        return False


def _send_nothing(
    channel: Channel, request: RemotingCommand, header: PopMessageResponseHeader, polling: Polling
) -> None:
    code = ResponseCode.POLLING_FULL if polling is Polling.FULL else ResponseCode.POLLING_TIMEOUT
    channel.respond(request, request.response(code, GetMessageStatus.NO_MESSAGE_IN_QUEUE.value, header=header))
