"""PEEK_MESSAGE: the messages that a group's next pop would find. They stay visible.

Source: PeekMessageProcessor.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

from gantrymq.broker.metrics.meter import BrokerMeter
from gantrymq.broker.pop.buffer import PopBuffer, PoppedQueue
from gantrymq.broker.pop.checks import PopChecks, PopRefusal
from gantrymq.broker.pop.records import retry_topic
from gantrymq.broker.reads.message_puller import MessagePuller
from gantrymq.broker.statistics import BrokerStatsManager, StoreStatsService
from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.broker.tables.topics import TopicConfigManager, queue_ids
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.model.status import GetMessageStatus
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.codes import ResponseCode
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
        self,
        config: LiveConfig,
        store: MessageStore,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        stats: BrokerStatsManager,
        store_stats: StoreStatsService,
        checks: PopChecks,
        buffer: PopBuffer,
        meter: BrokerMeter,
    ) -> None:
        self._meter = meter
        self._config, self._store, self._topics, self._offsets = config, store, topics, offsets
        self._stats, self._store_stats, self._checks, self._buffer = stats, store_stats, checks, buffer
        self._puller, self._turns = MessagePuller(store.lookup), FairTurns()

    def peek(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """PEEK_MESSAGE. There is no filter: the header has none."""
        asked = request.read(PeekMessageRequestHeader)
        try:
            self._checks.require_readable("peeking")
            topic, _ = self._checks.consumption(channel, asked)
        except PopRefusal as refusal:
            return refusal.answer(request)
        self._turns.work_through(self._walk(channel, request, asked, topic))
        return None

    def _walk(
        self, channel: Channel, request: RemotingCommand, asked: PeekMessageRequestHeader, topic: TopicConfig
    ) -> Iterator[None]:
        peeked = _Peeked()
        try:
            for queue in self._places(asked, topic, peeked):
                self._peek_queue(asked, queue, peeked)
                yield
            self._send(channel, request, peeked)
        except Exception as error:
            channel.respond(request, failure(request, error))

    def _places(self, asked: PeekMessageRequestHeader, topic: TopicConfig, peeked: _Peeked) -> Iterator[PoppedQueue]:
        """The queues of a peek in their order."""
        group, number = asked.consumer_group, random.randrange(100)
        is_v2 = self._config.broker.enable_retry_topic_v2
        retry = self._topics.get(retry_topic(asked.topic, group, is_v2=is_v2))
        is_first = number < _RETRY_PERCENT
        if is_first and retry is not None:
            yield from _queues(retry, group, number)
        if asked.queue_id >= 0:
            yield PoppedQueue(asked.topic, group, asked.queue_id)
        else:
            yield from _queues(topic, group, number)
        if not is_first and retry is not None and peeked.count < asked.max_msg_nums:
            yield from _queues(retry, group, number)

    def _peek_queue(self, asked: PeekMessageRequestHeader, queue: PoppedQueue, peeked: _Peeked) -> None:
        broker, store = self._config.broker, self._store
        offset = self._offsets.query(queue.group, queue.topic, queue.queue_id)
        if offset < 0:
            offset = store.min_offset_in_queue(queue.topic, queue.queue_id)
        offset = max(offset, self._buffer.next_offset(queue))
        peeked.rest += max(store.max_offset_in_queue(queue.topic, queue.queue_id) - offset, 0)
        wanted = min(asked.max_msg_nums - peeked.count, broker.max_transfer_count_in_memory)
        room_bytes = broker.max_transfer_bytes_in_memory - peeked.size_bytes
        if wanted <= 0 or room_bytes <= 0:
            return
        found = self._puller.pull(queue.topic, queue.queue_id, offset, wanted, room_bytes)
        if found.status in _WRONG_OFFSET:
            found = self._puller.pull(queue.topic, queue.queue_id, found.next_begin_offset, wanted, room_bytes)
        if found.count:
            peeked.pieces += found.pieces
            peeked.count += found.count
            peeked.size_bytes += found.size_bytes
            self._stats.got(queue.group, asked.topic, found.count, found.size_bytes)
            if queue.topic == asked.topic:
                self._meter.got(queue.group, asked.topic, found.count, found.size_bytes)
            self._store_stats.pulled(found.count)

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


def _queues(topic: TopicConfig, group: str, first: int) -> Iterator[PoppedQueue]:
    """All queues of a topic, beginning with one by chance."""
    queues = queue_ids(str(topic.topic_name), topic.read_queue_nums)
    for number in queues:
        yield PoppedQueue(str(topic.topic_name), group, (number + first) % len(queues))
