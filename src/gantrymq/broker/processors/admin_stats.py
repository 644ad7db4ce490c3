"""Statistics: offsets of groups, rates, delays of consumers.

Source: AdminBrokerProcessor.
"""

from __future__ import annotations

from collections.abc import Iterable

from gantrymq.broker import refusals
from gantrymq.broker.acl.permissions import GET, READS_CLUSTER, consume, group_in, topic_in
from gantrymq.broker.answers import LongAnswers, encode_in_slices
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.pop.records import retry_topic
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.sessions.consumers import ConsumerManager
from gantrymq.broker.statistics import GROUP_GET_NUMS, BrokerStatsManager
from gantrymq.broker.tables.tables import Tables
from gantrymq.broker.tables.topics import queue_ids
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.model.message_queue import MessageQueue
from gantrymq.model.receipt_handle import normal_topic
from gantrymq.remoting.bodies.group import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.body import queue_key
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.broker import ViewBrokerStatsDataRequestHeader
from gantrymq.remoting.headers.consumer import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
)
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.turns import in_slices
from gantrymq.store.message_store import MessageStore

_MANY = 1 << 30


class StatsAdminProcessor:
    """Answers the requests of tools for statistics."""

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        store: MessageStore,
        tables: Tables,
        consumers: ConsumerManager,
        stats: BrokerStatsManager,
        address: str,
    ) -> None:
        self._config, self._clock, self._store, self._address = config, clock, store, address
        self._topics, self._groups, self._offsets = tables.topics, tables.groups, tables.offsets
        self._consumers, self._stats = consumers, stats
        self._long = LongAnswers()

    async def consume_stats(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_CONSUME_STATS: a group's offsets on its topics, and the maximum offsets of their queues."""
        header = request.read(GetConsumeStatsRequestHeader)
        group, total = header.consumer_group, ConsumeStats()
        counted = [topic for name in self._topics_to_count(header) if (topic := self._topics.get(name)) is not None]
        async with self._long.turn(channel, sum(topic.read_queue_nums for topic in counted)):
            for topic in counted:
                stats = await self._of(group, str(topic.topic_name), topic.read_queue_nums)
                total.offset_table.update(stats.offset_table)
                total.consume_tps += stats.consume_tps
            return request.response(ResponseCode.SUCCESS, body=await encode_in_slices(total))

    def _topics_to_count(self, header: GetConsumeStatsRequestHeader) -> list[str]:
        listed = [topic for topic in dict.fromkeys((header.topic_list or "").split(";")) if topic]
        if listed:
            return listed
        given = (header.topic or "").strip()
        topics = self._offsets.topics_of(header.consumer_group)
        chosen = [given] if given else self._with_retries(header.consumer_group, topics)
        return [name for name in chosen if self._subscribes(header.consumer_group, name)]

    def _with_retries(self, group: str, topics: Iterable[str]) -> list[str]:
        """These topics, and those of their messages that the group popped and must consume again.

        Before the first pop from it, such a topic has no offset of the group.
        """
        retries = (
            retry
            for topic in topics
            for is_v2 in (False, True)
            if (retry := retry_topic(topic, group, is_v2=is_v2)) in self._topics
        )
        return sorted({*topics, *retries})

    def _subscribes(self, name: str, topic: str) -> bool:
        """False if the group has connected clients and none of them subscribes to the topic.

        Clients that pop do not subscribe to the retry topic of a topic. RocketMQ leaves it out.
        """
        topic = normal_topic(topic, name) or topic
        group = self._consumers.group(name)
        if group is None or not group.subscriptions:
            return True
        return self._consumers.find_subscription(name, topic) is not None

    async def _of(self, group: str, topic: str, queue_nums: int) -> ConsumeStats:
        table = {}
        async for queue_id in in_slices(queue_ids(topic, queue_nums)):
            consumed = max(self._offsets.query(group, topic, queue_id), 0)
            last_ms = self._store.store_timestamp_ms(topic, queue_id, consumed - 1) if consumed else 0
            queue = queue_key(MessageQueue(topic, self._config.broker.broker_name, queue_id))
            table[queue] = OffsetWrapper(
                broker_offset=self._store.max_offset_in_queue(topic, queue_id),
                consumer_offset=consumed,
                pull_offset=max(consumed, self._offsets.query_pulled(group, topic, queue_id)),
                last_timestamp=max(last_ms, 0),
            )
        tps = self._stats.tps(GROUP_GET_NUMS, f"{topic}@{group}", monotonic_ms(self._clock))
        return ConsumeStats(offset_table=table, consume_tps=tps)

    async def all_consume_stats(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CONSUME_STATS: the statistics of every group, and the sum of what they have not consumed."""
        header = request.read(GetConsumeStatsInBrokerHeader)
        async with self._long.turn(channel, _MANY):
            body = await self._of_all_groups(header)
            return request.response(ResponseCode.SUCCESS, body=await encode_in_slices(body))

    async def _of_all_groups(self, header: GetConsumeStatsInBrokerHeader) -> ConsumeStatsList:
        body = ConsumeStatsList(broker_addr=self._address)
        topics_of = self._offsets.topics_by_group()
        async for group in in_slices(list(self._groups.table)):
            all_stats = []
            for name in self._with_retries(group, topics_of.get(group, ())):
                topic = self._topics.get(name)
                if topic is None or (header.is_order and not topic.order) or not self._subscribes(group, name):
                    continue
                all_stats.append(await self._of(group, name, topic.write_queue_nums))
            body.consume_stats_list.append({group: all_stats})
            for stats in all_stats:
                async for offset in in_slices(stats.offset_table.values()):
                    body.total_diff += offset.broker_offset - offset.consumer_offset
                    body.total_inflight_diff += offset.pull_offset - offset.consumer_offset
        return body

    async def time_span(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUME_TIME_SPAN: first and last store time of each queue, and the delay of the group."""
        header = request.read(QueryConsumeTimeSpanRequestHeader)
        topic = self._topics.get(header.topic)
        if topic is None:
            raise refusals.topic_missing(header.topic)
        queues = queue_ids(header.topic, topic.write_queue_nums)
        async with self._long.turn(channel, len(queues)):
            spans = [self._span(topic, header.group, queue_id) async for queue_id in in_slices(queues)]
            body = await encode_in_slices(QueryConsumeTimeSpanBody(consume_time_span_set=spans))
            return request.response(ResponseCode.SUCCESS, body=body)

    def _span(self, topic: TopicConfig, group: str, queue_id: int) -> QueueTimeSpan:
        name, store = str(topic.topic_name), self._store
        first_ms = store.store_timestamp_ms(name, queue_id, store.min_offset_in_queue(name, queue_id))
        high = store.max_offset_in_queue(name, queue_id)
        consumed = self._offsets.query(group, name, queue_id)
        late_ms = 0
        if consumed < high:
            late_ms = self._clock.now_ms() - store.store_timestamp_ms(name, queue_id, consumed)
        return QueueTimeSpan(
            message_queue=MessageQueue(name, self._config.broker.broker_name, queue_id),
            min_time_stamp=first_ms,
            max_time_stamp=store.store_timestamp_ms(name, queue_id, high - 1),
            consume_time_stamp=store.store_timestamp_ms(name, queue_id, consumed - 1) if consumed > 0 else first_ms,
            delay_time=late_ms,
        )

    def view(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """VIEW_BROKER_STATS_DATA."""
        header = request.read(ViewBrokerStatsDataRequestHeader)
        item = self._stats.view(header.stats_name, header.stats_key, monotonic_ms(self._clock))
        if item is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        return request.response(ResponseCode.SUCCESS, body=item.encode())


def routes(context: BrokerContext) -> Routes:
    """The rows of statistics."""
    stats = StatsAdminProcessor(
        context.config,
        context.clock,
        context.storage.store,
        context.tables,
        context.sessions.consumers,
        context.measures.stats,
        context.address,
    )
    may_see = consume(GetConsumeStatsRequestHeader, group_in(), topic_in(), topic_in("topic_list"), actions=GET)
    may_see_span = consume(QueryConsumeTimeSpanRequestHeader, topic_in(), group_in("group"), actions=GET)
    return {
        RequestCode.GET_CONSUME_STATS: Route(stats.consume_stats, may_see, after_dispatch=True),
        RequestCode.GET_BROKER_CONSUME_STATS: Route(stats.all_consume_stats, READS_CLUSTER, after_dispatch=True),
        RequestCode.QUERY_CONSUME_TIME_SPAN: Route(stats.time_span, may_see_span, after_dispatch=True),
        RequestCode.VIEW_BROKER_STATS_DATA: Route(stats.view, READS_CLUSTER, after_dispatch=False),
    }
