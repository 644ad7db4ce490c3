"""PEEK_MESSAGE: the messages that a group's next pop would find. They stay visible.

Source: PeekMessageProcessor.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

from gantrymq.broker.acl.permissions import consume, group_in, topic_in
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.measures import Measures
from gantrymq.broker.pop.buffer import PoppedQueue
from gantrymq.broker.pop.queue_walk import QueueWalk, retry_topics
from gantrymq.broker.pop.service import Pop
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.reads.message_puller import MessagePuller
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.model.status import GetMessageStatus
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand, encode_head
from gantrymq.remoting.headers.pop import PeekMessageRequestHeader, PopMessageResponseHeader
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import failure
from gantrymq.remoting.transport.turns import FairTurns
from gantrymq.store.message_store import MessageStore

_RETRY_PERCENT = 20  # of the peeks look into the retry topic first
_WRONG_OFFSET = (GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.OFFSET_OVERFLOW_BADLY)


@dataclass(slots=True)
class _Peeked:
    """What a peek has found so far. ``rest`` counts the messages from where a pop would begin, these included."""

    pieces: list[memoryview] = field(default_factory=list)
    size_bytes: int = 0
    count: int = 0
    rest: int = 0


class PeekMessageProcessor:
    """Answers peeks, one queue a step, because a topic may have 65,536 of them.

    Thread rule: the event loop's thread.
    """

    def __init__(
        self, config: LiveConfig, store: MessageStore, topics: TopicConfigManager, pop: Pop, measures: Measures
    ) -> None:
        self._config, self._store, self._topics, self._measures = config, store, topics, measures
        self._checks, self._buffer = pop.checks, pop.buffer
        self._puller, self._turns = MessagePuller(store.lookup), FairTurns()

    def peek(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """PEEK_MESSAGE. There is no filter: the header has none."""
        header = request.read(PeekMessageRequestHeader)
        self._checks.require_readable("peeking")
        topic, _ = self._checks.consumption(channel, header)
        self._turns.work_through(self._walk(channel, request, header, topic))
        return None

    def _walk(
        self, channel: Channel, request: RemotingCommand, header: PeekMessageRequestHeader, topic: TopicConfig
    ) -> Iterator[None]:
        peeked = _Peeked()
        try:
            for queue, _ in self._queues(header, topic, peeked):
                self._peek_queue(header, queue, peeked)
                yield
            self._send(channel, request, peeked)
        except Exception as error:
            channel.respond(request, failure(request, error))

    def _queues(
        self, header: PeekMessageRequestHeader, topic: TopicConfig, peeked: _Peeked
    ) -> Iterator[tuple[PoppedQueue, bool]]:
        """The queues of a peek in their order, and whether each is one of the retry topic."""
        number = random.randrange(100)
        retries = retry_topics(self._topics, header, (self._config.broker.enable_retry_topic_v2,))
        walk = QueueWalk(topic, retries, number, is_retry_first=number < _RETRY_PERCENT)
        return walk.queues(header, lambda: peeked.count < header.max_msg_nums)

    def _peek_queue(self, header: PeekMessageRequestHeader, queue: PoppedQueue, peeked: _Peeked) -> None:
        broker, store = self._config.broker, self._store
        offset = self._buffer.visible_from(queue)
        peeked.rest += max(store.max_offset_in_queue(queue.topic, queue.queue_id) - offset, 0)
        wanted = min(header.max_msg_nums - peeked.count, broker.max_transfer_count_in_memory)
        room_bytes = broker.max_transfer_bytes_in_memory - peeked.size_bytes
        if wanted <= 0 or room_bytes <= 0:
            return
        pulled = self._puller.pull(queue.topic, queue.queue_id, offset, wanted, room_bytes)
        if pulled.status in _WRONG_OFFSET:
            pulled = self._puller.pull(queue.topic, queue.queue_id, pulled.next_begin_offset, wanted, room_bytes)
        if pulled.count:
            peeked.pieces += pulled.pieces
            peeked.count += pulled.count
            peeked.size_bytes += pulled.size_bytes
            self._measures.peeked(
                queue.group, header.topic, pulled.count, pulled.size_bytes, is_retry=queue.topic != header.topic
            )

    @staticmethod
    def _send(channel: Channel, request: RemotingCommand, peeked: _Peeked) -> None:
        # RocketMQ leaves all but the number of messages at 0.
        header = PopMessageResponseHeader(pop_time=0, invisible_time=0, revive_qid=0, rest_num=peeked.rest)
        if not peeked.count:
            remark = GetMessageStatus.NO_MESSAGE_IN_QUEUE.value
            channel.respond(request, request.response(ResponseCode.PULL_NOT_FOUND, remark, header=header))
            return
        response = request.response(ResponseCode.SUCCESS, GetMessageStatus.FOUND.value, header=header)
        channel.respond_bytes(
            request, response.code, [encode_head(response, peeked.size_bytes), *cast("list[bytes]", peeked.pieces)]
        )


def routes(context: BrokerContext) -> Routes:
    """The row of peeks."""
    peeks = PeekMessageProcessor(
        context.config, context.storage.store, context.tables.topics, context.pop, context.measures
    )
    may_peek = consume(PeekMessageRequestHeader, topic_in(), group_in())
    return {RequestCode.PEEK_MESSAGE: Route(peeks.peek, may_peek, after_dispatch=True)}
