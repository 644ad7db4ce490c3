"""NOTIFICATION and POLLING_INFO: whether a pop would find a message, and how many pops wait.

Source: NotificationProcessor, PollingInfoProcessor.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from gantrymq.broker.acl.permissions import GET, consume, group_in, topic_in
from gantrymq.broker.answers import Answers, Recheck, answer_waiting
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.pop.buffer import PoppedQueue
from gantrymq.broker.pop.checks import PopFilter
from gantrymq.broker.pop.long_polling import (
    Polling,
    PollKey,
    WaitingPop,
    wait_until,
    waiting_bytes,
)
from gantrymq.broker.pop.queue_walk import QueueWalk, retry_topics
from gantrymq.broker.pop.service import Pop
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.tables.tables import Tables
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.codes import RequestCode, ResponseCode
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

_BEGINS = 100
_TESTED = 32  # the most messages whose tags are compared with a filter


@dataclass(slots=True)
class _Run:
    """A notification on its way through the queues. ``arrivals`` is the number of reports when the walk began."""

    channel: Channel
    request: RemotingCommand
    header: NotificationRequestHeader
    deadline_ms: int
    recheck: Recheck | None = None
    arrivals: int = 0


class NotificationProcessor:
    """Answers NOTIFICATION when there is a message.

    Thread rule: the event loop's thread.
    """

    def __init__(
        self, config: LiveConfig, clock: Clock, store: MessageStore, tables: Tables, pop: Pop, answers: Answers
    ) -> None:
        self._config, self._clock, self._store, self._answers = config, clock, store, answers
        self._topics, self._orders, self._checks, self._buffer = tables.topics, tables.orders, pop.checks, pop.buffer
        self._pops, self._polling, self._turns = pop.waiting.pops, pop.waiting.notifications, FairTurns()

    def polling_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """POLLING_INFO."""
        header = request.read(PollingInfoRequestHeader)
        self._checks.require_readable("peeking")
        self._checks.consumption(channel, header)
        count = self._pops.waiting_for(PollKey(header.topic, header.consumer_group, max(header.queue_id, -1)))
        return request.response(ResponseCode.SUCCESS, header=PollingInfoResponseHeader(polling_num=count))

    def notify(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """NOTIFICATION. It waits like a pop if there is no message."""
        header = request.read(NotificationRequestHeader)
        return self._begin(_Run(channel, request, header, wait_until(header, self._clock)))

    def _begin(self, run: _Run) -> RemotingCommand | None:
        broker, header = self._config.broker, run.header
        self._checks.require_readable("peeking")
        topic, _ = self._checks.consumption(run.channel, header)
        is_filtered = broker.use_message_filter_for_notification and header.exp and header.exp_type
        exp, exp_type = (header.exp, header.exp_type) if is_filtered else (None, None)
        pop_filter = self._checks.filter(header, exp, exp_type, is_noted=False)
        run.arrivals = self._polling.watch(header.topic, header.consumer_group)
        self._turns.work_through(self._walk(run, topic, pop_filter))
        return None

    def _walk(self, run: _Run, topic: TopicConfig, pop_filter: PopFilter) -> Iterator[None]:
        """Look at one queue a step, until a queue has a message. Then answer."""
        header, has_message = run.header, False
        try:
            for queue, is_retry in self._queues(header, topic):
                if header.order and self._orders.check_block(header.attempt_id, *queue, 0):
                    continue
                has_message = self._has_message(queue, PopFilter() if is_retry else pop_filter)
                if has_message:
                    break
                yield
            self._finish(run, has_message=has_message)
        except Exception as error:
            run.channel.respond(run.request, failure(run.request, error))

    def _queues(self, header: NotificationRequestHeader, topic: TopicConfig) -> Iterator[tuple[PoppedQueue, bool]]:
        """The queues in their order, and whether each is one of a retry topic. The begin is random."""
        broker = self._config.broker
        is_without_v1 = broker.enable_retry_topic_v2 and not broker.retrieve_message_from_pop_retry_topic_v1
        retries = retry_topics(self._topics, header, (True,) if is_without_v1 else (False, True))
        return QueueWalk(topic, retries, random.randrange(_BEGINS)).queues(header)

    def _has_message(self, queue: PoppedQueue, wanted: PopFilter) -> bool:
        topic, _, queue_id = queue
        offset = self._buffer.visible_from(queue)
        end = self._store.max_offset_in_queue(topic, queue_id)
        if wanted.codes is None or end - offset >= self._config.broker.max_message_filter_num_for_notification:
            return end > offset
        return self._store.lookup.has_match(topic, queue_id, offset, min(end, offset + _TESTED), wanted.codes)

    def _finish(self, run: _Run, *, has_message: bool) -> None:
        """Answer that there is a message, or hold the request until there is one."""
        header, channel, request = run.header, run.channel, run.request
        polling = Polling.TIMEOUT
        if not has_message and header.poll_time > 0 and not channel.is_closed:
            if run.recheck is None:
                run.recheck = self._answers.recheck(channel, request)
            request.drop_content()
            request.is_suspended = True
            key = PollKey(header.topic, header.consumer_group, max(header.queue_id, -1))
            resume = partial(answer_waiting, channel, request, run.recheck, partial(self._begin, run))
            give_up = partial(_answer, run, is_full=True)
            waiting = WaitingPop(channel, key, run.deadline_ms, resume, give_up, waiting_bytes(header, key))
            polling = self._polling.wait(waiting, run.arrivals)
            if polling is Polling.WAITS:
                return
        _answer(run, has_message=has_message, is_full=polling is Polling.FULL)


def _answer(run: _Run, *, has_message: bool = False, is_full: bool) -> None:
    header = NotificationResponseHeader(has_msg=has_message, polling_full=is_full)
    run.channel.respond(run.request, run.request.response(ResponseCode.SUCCESS, header=header))


def routes(context: BrokerContext) -> Routes:
    """The rows of notifications."""
    notes = NotificationProcessor(
        context.config, context.clock, context.storage.store, context.tables, context.pop, context.answers
    )
    may_notify = consume(NotificationRequestHeader, group_in(), topic_in())
    may_poll = consume(PollingInfoRequestHeader, group_in(), topic_in(), actions=GET)
    return {
        RequestCode.NOTIFICATION: Route(notes.notify, may_notify, after_dispatch=True),
        RequestCode.POLLING_INFO: Route(notes.polling_info, may_poll, after_dispatch=False),
    }
