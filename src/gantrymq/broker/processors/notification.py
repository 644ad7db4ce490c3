"""NOTIFICATION and POLLING_INFO: whether a pop would find a message, and how many pops wait.

Source: NotificationProcessor, PollingInfoProcessor.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from gantrymq.broker.acl.access_control import AccessControl
from gantrymq.broker.answers import Recheck, answer_waiting
from gantrymq.broker.pop.buffer import PopBuffer, PoppedQueue
from gantrymq.broker.pop.checks import PopChecks, PopFilter, PopRefusal
from gantrymq.broker.pop.long_polling import (
    Polling,
    PollKey,
    PopLongPolling,
    WaitingPop,
    wait_until,
    waiting_bytes,
)
from gantrymq.broker.pop.records import retry_topic
from gantrymq.broker.tables.consumer_order_info import ConsumerOrderInfo
from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.broker.tables.topics import TopicConfigManager, queue_ids
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
)
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import failure
from gantrymq.remoting.transport.turns import FairTurns
from gantrymq.store.message_store import MessageStore

_TESTED = 32  # the most messages whose tags are compared with a filter


@dataclass(slots=True)
class _Run:
    """A notification on its way through the queues. ``arrivals`` is the number of reports when the walk began."""

    channel: Channel
    request: RemotingCommand
    asked: NotificationRequestHeader
    deadline_ms: int
    recheck: Recheck | None = None
    arrivals: int = 0


class NotificationProcessor:
    """Answers NOTIFICATION when there is a message. ``pops`` are the waiting pops, ``polling`` its own requests.

    Thread rule: the event loop's thread.
    """

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        store: MessageStore,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        access: AccessControl | None,
        checks: PopChecks,
        buffer: PopBuffer,
        orders: ConsumerOrderInfo,
        pops: PopLongPolling,
        polling: PopLongPolling,
    ) -> None:
        self._config, self._clock, self._store, self._topics = config, clock, store, topics
        self._offsets, self._access, self._checks, self._buffer = offsets, access, checks, buffer
        self._orders, self._pops, self._polling, self._turns = orders, pops, polling, FairTurns()

    def polling_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """POLLING_INFO."""
        asked = request.read(PollingInfoRequestHeader)
        try:
            self._checks.require_readable("peeking")
            self._checks.consumption(channel, asked)
        except PopRefusal as refusal:
            return refusal.answer(request)
        count = self._pops.waiting_for(PollKey(asked.topic, asked.consumer_group, max(asked.queue_id, -1)))
        return request.response(ResponseCode.SUCCESS, header=PollingInfoResponseHeader(polling_num=count))

    def notify(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """NOTIFICATION. It waits like a pop if there is no message."""
        asked = request.read(NotificationRequestHeader)
        return self._begin(_Run(channel, request, asked, wait_until(asked, self._clock)))

    def _begin(self, run: _Run) -> RemotingCommand | None:
        broker, asked = self._config.broker, run.asked
        try:
            self._checks.require_readable("peeking")
            topic, _ = self._checks.consumption(run.channel, asked)
            is_filtered = broker.use_message_filter_for_notification and asked.exp and asked.exp_type
            exp, exp_type = (asked.exp, asked.exp_type) if is_filtered else (None, None)
            found = self._checks.filter(asked, exp, exp_type, is_noted=False)
        except PopRefusal as refusal:
            return refusal.answer(run.request)
        run.arrivals = self._polling.watch(asked.topic, asked.consumer_group)
        self._turns.work_through(self._walk(run, topic, found))
        return None

    def _walk(self, run: _Run, topic: TopicConfig, found: PopFilter) -> Iterator[None]:
        """Look at one queue a step, until a queue has a message. Then answer."""
        asked, has_message = run.asked, False
        try:
            for queue, wanted in self._places(asked, topic, found):
                if asked.order and self._orders.check_block(asked.attempt_id, *queue, 0):
                    continue
                has_message = self._has_message(queue, wanted)
                if has_message:
                    break
                yield
            self._finish(run, has_message=has_message)
        except Exception as error:
            run.channel.respond(run.request, failure(run.request, error))

    def _places(
        self, asked: NotificationRequestHeader, topic: TopicConfig, found: PopFilter
    ) -> Iterator[tuple[PoppedQueue, PopFilter]]:
        broker, group = self._config.broker, asked.consumer_group
        if asked.queue_id >= 0:
            yield PoppedQueue(asked.topic, group, asked.queue_id), found
        else:
            yield from ((queue, found) for queue in _queues(topic, group))
        is_without_v1 = broker.enable_retry_topic_v2 and not broker.retrieve_message_from_pop_retry_topic_v1
        for is_v2 in (True,) if is_without_v1 else (False, True):
            retry = self._topics.get(retry_topic(asked.topic, group, is_v2=is_v2))
            if retry is not None:
                yield from ((queue, PopFilter()) for queue in _queues(retry, group))

    def _has_message(self, queue: PoppedQueue, wanted: PopFilter) -> bool:
        topic, group, queue_id = queue
        offset = self._offsets.query(group, topic, queue_id)
        if offset < 0:
            offset = self._store.min_offset_in_queue(topic, queue_id)
        offset = max(offset, self._buffer.next_offset(queue))
        end = self._store.max_offset_in_queue(topic, queue_id)
        if wanted.codes is None or end - offset >= self._config.broker.max_message_filter_num_for_notification:
            return end > offset
        return self._store.lookup.has_match(topic, queue_id, offset, min(end, offset + _TESTED), wanted.codes)

    def _finish(self, run: _Run, *, has_message: bool) -> None:
        """Answer or wait."""
        asked, channel, request = run.asked, run.channel, run.request
        polling = Polling.TIMEOUT
        if not has_message and asked.poll_time > 0 and not channel.is_closed:
            if run.recheck is None and self._access is not None:
                run.recheck = self._access.recheck(channel, request)
            request.drop_content()
            request.is_suspended = True
            key = PollKey(asked.topic, asked.consumer_group, max(asked.queue_id, -1))
            resume = partial(answer_waiting, channel, request, run.recheck, partial(self._begin, run))
            give_up = partial(_answer, run, is_full=True)
            waiting = WaitingPop(channel, key, run.deadline_ms, resume, give_up, waiting_bytes(asked, key))
            polling = self._polling.wait(waiting, run.arrivals)
            if polling is Polling.WAITS:
                return
        _answer(run, has_message=has_message, is_full=polling is Polling.FULL)


def _answer(run: _Run, *, has_message: bool = False, is_full: bool) -> None:
    header = NotificationResponseHeader(has_msg=has_message, polling_full=is_full)
    run.channel.respond(run.request, run.request.response(ResponseCode.SUCCESS, header=header))


def _queues(topic: TopicConfig, group: str) -> Iterator[PoppedQueue]:
    """All queues of a topic, from a random one on."""
    name, queues = str(topic.topic_name), queue_ids(str(topic.topic_name), topic.read_queue_nums)
    first = random.randrange(100)
    for number in queues:
        yield PoppedQueue(name, group, (number + first) % len(queues))
