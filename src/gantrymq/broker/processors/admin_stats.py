"""Statistics: offsets of groups, rates, delays of consumers.

Source: AdminBrokerProcessor.
"""

from __future__ import annotations

from gantrymq.broker.answers import LongAnswers, encode_in_slices
from gantrymq.broker.sessions.consumers import ConsumerManager
from gantrymq.broker.statistics import GROUP_GET_NUMS, BrokerStatsManager
from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.broker.tables.subscription_groups import SubscriptionGroupManager
from gantrymq.broker.tables.topics import TopicConfigManager, queue_ids
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.group import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.body import queue_key
from gantrymq.remoting.codes import ResponseCode
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
    """Statistics for administrators."""

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        stats: BrokerStatsManager,
        address: str,
    ) -> None:
        self._config, self._clock, self._store, self._topics = config, clock, store, topics
        self._groups, self._consumers, self._offsets = groups, consumers, offsets
        self._stats, self._address = stats, address
        self._long = LongAnswers()

    async def consume_stats(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_CONSUME_STATS: a group's offsets on its topics, and the maximum offsets of their queues."""
        asked = request.read(GetConsumeStatsRequestHeader)
        group, total = asked.consumer_group, ConsumeStats()
        counted = [topic for name in self._topics_to_count(asked) if (topic := self._topics.get(name)) is not None]
        async with self._long.turn(channel, sum(topic.read_queue_nums for topic in counted)):
            for topic in counted:
                found = await self._of(group, str(topic.topic_name), topic.read_queue_nums)
                total.offset_table.update(found.offset_table)
                total.consume_tps += found.consume_tps
            return request.response(ResponseCode.SUCCESS, body=await encode_in_slices(total))

    def _topics_to_count(self, asked: GetConsumeStatsRequestHeader) -> list[str]:
        listed = [one for one in dict.fromkeys((asked.topic_list or "").split(";")) if one]
        if listed:
            return listed
        given = (asked.topic or "").strip()
        chosen = [given] if given else sorted(self._offsets.topics_of(asked.consumer_group))
        return [name for name in chosen if self._subscribes(asked.consumer_group, name)]

    def _subscribes(self, name: str, topic: str) -> bool:
        """False if the group has connected clients and none of them subscribes to the topic."""
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
        asked = request.read(GetConsumeStatsInBrokerHeader)
        async with self._long.turn(channel, _MANY):
            body = await self._of_all_groups(asked)
            return request.response(ResponseCode.SUCCESS, body=await encode_in_slices(body))

    async def _of_all_groups(self, asked: GetConsumeStatsInBrokerHeader) -> ConsumeStatsList:
        body = ConsumeStatsList(broker_addr=self._address)
        topics_of = self._offsets.topics_by_group()
        async for group in in_slices(list(self._groups.table)):
            found = []
            for name in sorted(topics_of.get(group, ())):
                topic = self._topics.get(name)
                if topic is None or (asked.is_order and not topic.order) or not self._subscribes(group, name):
                    continue
                found.append(await self._of(group, name, topic.write_queue_nums))
            body.consume_stats_list.append({group: found})
            for one in found:
                async for offset in in_slices(one.offset_table.values()):
                    body.total_diff += offset.broker_offset - offset.consumer_offset
                    body.total_inflight_diff += offset.pull_offset - offset.consumer_offset
        return body

    async def time_span(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUME_TIME_SPAN: first and last store time of each queue, and the delay of the group."""
        asked = request.read(QueryConsumeTimeSpanRequestHeader)
        topic = self._topics.get(asked.topic)
        if topic is None:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{asked.topic}] not exist")
        queues = queue_ids(asked.topic, topic.write_queue_nums)
        async with self._long.turn(channel, len(queues)):
            spans = [self._span(topic, asked.group, queue_id) async for queue_id in in_slices(queues)]
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
        asked = request.read(ViewBrokerStatsDataRequestHeader)
        found = self._stats.view(asked.stats_name, asked.stats_key, monotonic_ms(self._clock))
        if found is None:
            remark = f"The stats <{asked.stats_name}> <{asked.stats_key}> not exist"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        return request.response(ResponseCode.SUCCESS, body=found.encode())
