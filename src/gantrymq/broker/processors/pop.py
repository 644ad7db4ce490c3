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

from gantrymq.broker import names, refusals
from gantrymq.broker.acl.permissions import consume, group_in, topic_in
from gantrymq.broker.answers import Answers, Recheck, answer_waiting
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.measures import Measures
from gantrymq.broker.pop.buffer import PoppedQueue
from gantrymq.broker.pop.checks import PopFilter
from gantrymq.broker.pop.long_polling import (
    Polling,
    PollKey,
    WaitingPop,
    wait_until,
    waiting_bytes,
)
from gantrymq.broker.pop.popped_records import queue_offsets, under_topic
from gantrymq.broker.pop.queue_walk import QueueWalk, retry_topics
from gantrymq.broker.pop.service import Pop
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.reads.hot_queue import begins_in_memory
from gantrymq.broker.reads.message_puller import MessagePuller, PulledMessages
from gantrymq.broker.tables.attributes import priority_factor
from gantrymq.broker.tables.tables import Tables
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
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand, encode_head
from gantrymq.remoting.headers.pop import PopMessageRequestHeader, PopMessageResponseHeader
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestRefused, failure
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
    header: PopMessageRequestHeader
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
        return PollKey(self.header.topic, self.header.consumer_group, max(self.header.queue_id, -1))


class PopMessageProcessor:
    """Answers pops. Thread rule: the event loop's thread."""

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        store: MessageStore,
        tables: Tables,
        pop: Pop,
        measures: Measures,
        answers: Answers,
    ) -> None:
        self._config, self._clock, self._store, self._measures, self._answers = config, clock, store, measures, answers
        self._topics, self._offsets, self._orders = tables.topics, tables.offsets, tables.orders
        self._checks, self._revive, self._buffer = pop.checks, pop.revive_log, pop.buffer
        self._inflight, self._polling = pop.inflight, pop.waiting.pops
        self._puller, self._turns, self._pops = MessagePuller(store.lookup), FairTurns(), 0

    def pop(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Answer a pop, now or later."""
        header = request.read(PopMessageRequestHeader)
        deadline_ms = wait_until(header, self._clock)
        if header.init_mode != _MIN and self._store.dispatch_behind_bytes and self._is_new(header):
            self._look_later(channel, request, header, None, deadline_ms)
            return None
        return self._begin(channel, request, header, None, deadline_ms)

    def _is_new(self, header: PopMessageRequestHeader) -> bool:
        """Whether the group has no offset of the queue, or of the first one, yet."""
        return self._offsets.query(header.consumer_group, header.topic, max(header.queue_id, 0)) < 0

    def _look_later(
        self,
        channel: Channel,
        request: RemotingCommand,
        header: PopMessageRequestHeader,
        recheck: Recheck | None,
        deadline_ms: int,
    ) -> None:
        """Begin the pop again once the dispatcher has caught up."""
        size_bytes = request.content_bytes
        if recheck is None:
            recheck = self._answers.recheck(channel, request)
        answer = partial(self._begin, channel, request, header, recheck, deadline_ms, is_second=True)

        def resume() -> None:
            channel.end_answer(size_bytes)
            if not channel.is_closed:
                answer_waiting(channel, request, recheck, answer)

        channel.begin_answer(size_bytes)
        self._answers.caught_up.then(resume)

    def _begin(
        self,
        channel: Channel,
        request: RemotingCommand,
        header: PopMessageRequestHeader,
        recheck: Recheck | None,
        deadline_ms: int,
        *,
        is_second: bool = False,
    ) -> RemotingCommand | None:
        topic, group, pop_filter = self._check(channel, header)
        self._pops += 1
        run = _Run(
            channel=channel,
            request=request,
            header=header,
            recheck=recheck,
            deadline_ms=deadline_ms,
            arrivals=self._polling.watch(header.topic, header.consumer_group),
            revive_queue_id=ORDER_REVIVE_QUEUE if header.order else self._pops % self._config.broker.revive_queue_num,
            pop_time_ms=self._clock.now_ms(),
            filter=pop_filter,
            priority_factor=0 if header.order else priority_factor(topic.attributes, group.attributes),
            is_second=is_second,
        )
        self._turns.work_through(self._walk(run, topic))
        return None

    # Checks

    def _check(
        self, channel: Channel, header: PopMessageRequestHeader
    ) -> tuple[TopicConfig, SubscriptionGroupConfig, PopFilter]:
        broker_ip1, checks = self._config.broker.broker_ip1, self._checks
        if self._clock.now_ms() - header.born_time - header.poll_time > _LATE_MS:
            remark = f"the broker[{broker_ip1}] pop message is timeout too much"
            raise RequestRefused(ResponseCode.POLLING_TIMEOUT, remark)
        checks.require_readable("pop")
        if header.max_msg_nums < 0:
            remark = f"the broker[{broker_ip1}] pop message's num is negative: {header.max_msg_nums}"
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, remark)
        if header.max_msg_nums > MAX_MESSAGES:
            remark = f"the broker[{broker_ip1}] pop message's num is greater than {MAX_MESSAGES}"
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, remark)
        if not self._revive.has_timers:
            remark = f"the broker[{broker_ip1}] pop message is forbidden because timerWheelEnable is false"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        topic, group = checks.consumption(channel, header)
        most_ms = self._config.store.timer_max_delay_s * 1000
        if not 0 <= header.invisible_time <= most_ms:
            raise refusals.wrong_invisible_time(header.invisible_time, most_ms)
        if not self._store.is_writable:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, "the broker can store no checkpoint: its store takes no puts"
            )
        return topic, group, checks.filter(header, header.exp, header.exp_type, is_noted=True)

    # The queues

    def _walk(self, run: _Run, topic: TopicConfig) -> Iterator[None]:
        """Pop one queue a step, then answer."""
        try:
            for queue, is_retry in self._queues(run, topic):
                self._pop_queue(run, queue, is_retry=is_retry)
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

    def _queues(self, run: _Run, topic: TopicConfig) -> Iterator[tuple[PoppedQueue, bool]]:
        """The queues of a pop in their order, and whether each is one of a retry topic.

        A fifth of all pops looks into the retry topic first. The others look into it last, if they have room left. So
        neither topic can starve the other. A pop by priority begins with the queue of the highest priority, and by
        default it looks into the retry topic last. The order of the queues is descending, or ascending with
        priorityOrderAsc=false, as in RocketMQ.
        """
        broker, header = self._config.broker, run.header
        number, share = random.randrange(100), broker.pop_from_retry_probability
        first, is_even = number, number % 2 == 0
        if number < run.priority_factor:
            first, share = 0, broker.pop_from_retry_probability_for_priority
        # An ordered pop delivers a message again from its own queue.
        retries = [] if header.order else self._retries(header, is_even=is_even)
        walk = QueueWalk(topic, retries, first, broker.priority_order_asc, is_retry_first=number < share)
        return walk.queues(header, lambda: run.count < header.max_msg_nums)

    def _retries(self, header: PopMessageRequestHeader, *, is_even: bool) -> list[TopicConfig]:
        """The retry topic that a pop looks into, if there is one. If both versions exist, they take turns.

        RocketMQ leaves the messages of version 2 where they are after enableRetryTopicV2 was turned off.
        """
        broker = self._config.broker
        if broker.enable_retry_topic_v2 and not broker.retrieve_message_from_pop_retry_topic_v1:
            return retry_topics(self._topics, header, (True,))
        return retry_topics(self._topics, header, (False, True) if is_even else (True, False))[:1]

    def _pop_queue(self, run: _Run, queue: PoppedQueue, *, is_retry: bool) -> None:
        header, broker = run.header, self._config.broker
        if queue.topic not in self._topics:
            return  # deleted since the pop began; its old messages and offsets must not be used
        if broker.enable_pop_message_threshold and self._inflight.count(queue) > broker.pop_inflight_message_threshold:
            return  # the acknowledgement that frees room wakes the next pop
        offset = self._next_offset(queue, header.init_mode)
        end = self._store.max_offset_in_queue(queue.topic, queue.queue_id)
        if offset == end or not self._buffer.has_room(queue):
            return
        if header.order:
            if self._orders.check_block(header.attempt_id, *queue, header.invisible_time):
                return  # the next pop is woken when the queue is free
            self._inflight.clear(queue)
        if run.count >= header.max_msg_nums or run.size_bytes >= broker.max_transfer_bytes_in_memory:
            run.rest += max(end - offset, 0)
            return
        pulled = self._pull(run, queue, offset)
        if pulled.status in _WRONG_OFFSET:
            offset = pulled.next_begin_offset
            self._offsets.commit(queue.group, queue.topic, queue.queue_id, offset)
            pulled = self._pull(run, queue, offset)
        if pulled.count:
            if not self._deliver(run, queue, offset, pulled, is_retry=is_retry):
                run.rest += pulled.count
                return
        elif pulled.status in _NO_MATCH and pulled.next_begin_offset > offset:
            self._skip(queue, pulled.next_begin_offset, in_order=header.order)
        run.rest += max(pulled.max_offset - pulled.next_begin_offset, 0)

    def _pull(self, run: _Run, queue: PoppedQueue, offset: int) -> PulledMessages:
        broker, wanted = self._config.broker, run.header.max_msg_nums - run.count
        return self._puller.pull(
            queue.topic,
            queue.queue_id,
            offset,
            min(wanted, broker.max_transfer_count_in_memory),
            max(broker.max_transfer_bytes_in_memory, 100),
            run.filter.codes,
            run.filter.record_filter,
        )

    def _deliver(self, run: _Run, queue: PoppedQueue, offset: int, pulled: PulledMessages, *, is_retry: bool) -> bool:
        """Add the messages of a queue and put their checkpoint. Returns False if a checkpoint with the same key
        exists.
        """
        header, offsets = run.header, queue_offsets(pulled.pieces)
        if header.order:
            run.order_counts += self._orders.update(
                header.attempt_id, *queue, run.pop_time_ms, header.invisible_time, offsets
            )
            self._offsets.commit(queue.group, queue.topic, queue.queue_id, offset)
        elif not self._put_checkpoint(run, queue, offset, offsets, pulled.next_begin_offset):
            return False
        if is_retry and not self._config.broker.pop_response_return_actual_retry_topic:
            handle = ReceiptHandle(
                offset,
                run.pop_time_ms,
                header.invisible_time,
                run.revive_queue_id,
                topic_mark(queue.topic),
                self._config.broker.broker_name,
                queue.queue_id,
            )
            pulled.pieces = list(under_topic(pulled.pieces, header.topic, handle))
        run.pieces += pulled.pieces
        run.count += pulled.count
        run.size_bytes += pulled.size_bytes
        run.start_offsets.append(start_offset_entry(queue.topic, queue.queue_id, offset))
        run.message_offsets.append(message_offsets_entry(queue.topic, queue.queue_id, offsets))
        self._inflight.add(queue, pulled.count)
        self._measures.delivered(
            queue.group, header.topic, pulled.count, pulled.size_bytes, stored_in=queue.topic, is_retry=is_retry
        )
        return True

    def _put_checkpoint(self, run: _Run, queue: PoppedQueue, offset: int, offsets: list[int], next_offset: int) -> bool:
        """Put the checkpoint of a queue's messages. Returns False if a checkpoint with the same key exists."""
        key = PopKey(*queue, offset, run.pop_time_ms, self._config.broker.broker_name)
        point = PopCheckpoint(key, run.header.invisible_time, [queue_offset - offset for queue_offset in offsets])

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
            invisible_time=run.header.invisible_time,
            revive_qid=run.revive_queue_id,
            rest_num=run.rest,
            start_offset_info=";".join(run.start_offsets),
            msg_offset_info=";".join(run.message_offsets),
            order_count_info=";".join(run.order_counts) if run.header.order else None,
        )

    def _wait(self, run: _Run) -> bool:
        """Let the pop wait. Returns False if it was answered."""
        header, channel, request = run.header, run.channel, run.request
        if header.poll_time <= 0 and not run.is_second and self._store.dispatch_behind_bytes:
            self._look_later(channel, request, header, run.recheck, run.deadline_ms)
            return True
        if run.recheck is None:
            run.recheck = self._answers.recheck(channel, request)
        answer = partial(self._begin, channel, request, header, run.recheck, run.deadline_ms)
        resume = partial(answer_waiting, channel, request, run.recheck, answer)
        polling = Polling.TIMEOUT
        if header.poll_time > 0 and header.max_msg_nums and not channel.is_closed:
            request.drop_content()
            request.is_suspended = True
            give_up = partial(_send_nothing, channel, request, self._header(run), Polling.FULL)
            size_bytes = waiting_bytes(header, run.key)
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


def routes(context: BrokerContext) -> Routes:
    """The row of pops."""
    pops = PopMessageProcessor(
        context.config,
        context.clock,
        context.storage.store,
        context.tables,
        context.pop,
        context.measures,
        context.answers,
    )
    return {
        RequestCode.POP_MESSAGE: Route(
            pops.pop, consume(PopMessageRequestHeader, group_in(), topic_in()), after_dispatch=False
        )
    }
