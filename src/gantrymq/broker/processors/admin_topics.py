"""Administration of topics: create, change, delete, list, count.

Source: AdminBrokerProcessor.
"""

from __future__ import annotations

import asyncio

from gantrymq.auth.policies import Action
from gantrymq.broker import names, refusals
from gantrymq.broker.acl.permissions import ANY_ACCOUNT, CHANGES_CLUSTER, READS_CLUSTER, look, on, topic_in
from gantrymq.broker.answers import LongAnswers, encode_in_slices
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.measures import Measures
from gantrymq.broker.outer_api import BrokerOuterAPI
from gantrymq.broker.processors.metadata_pages import page_of
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.statistics import TOPIC_PUT_NUMS
from gantrymq.broker.tables.attributes import parse_attributes
from gantrymq.broker.tables.persistence import CONSUMER_ORDER_INFO, TOPICS
from gantrymq.broker.tables.tables import Tables
from gantrymq.broker.tables.topics import queue_ids, wrong_queues
from gantrymq.broker.topic_deletion import TopicDeletion
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.errors import RemotingCommandError
from gantrymq.format.names import CONSUMER_OFFSET
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.topic import (
    FILTER_TYPES,
    CreateTopicListRequestBody,
    DeleteTopicListRequestBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigAndQueueMapping,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from gantrymq.remoting.body import decode_request, queue_key
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestRefused
from gantrymq.remoting.transport.turns import in_slices
from gantrymq.store.message_store import MessageStore

_PUTS_LOOK_S = 0.001


class TopicAdminProcessor:
    """Administrative requests about topics. The answer is sent when the change is on disk and registered."""

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        store: MessageStore,
        tables: Tables,
        measures: Measures,
        outer: BrokerOuterAPI,
        deletion: TopicDeletion,
    ) -> None:
        self._config, self._clock, self._store = config, clock, store
        self._topics, self._persistence, self._measures, self._outer = (
            tables.topics,
            tables.persistence,
            measures,
            outer,
        )
        self._deletion, self._long = deletion, LongAnswers()

    async def update(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_TOPIC."""
        header = request.read(CreateTopicRequestHeader)
        topic = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            attributes=parse_attributes(header.attributes),
        )
        return await self._update(request, [topic])

    async def update_list(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_TOPIC_LIST: all topics or none."""
        return await self._update(request, decode_request(CreateTopicListRequestBody, request.body).topic_config_list)

    async def _update(self, request: RemotingCommand, topics: list[TopicConfig]) -> RemotingCommand:
        began_ms, is_done = monotonic_ms(self._clock), False
        is_system = any(self._topics.is_system_topic(str(topic.topic_name)) for topic in topics)
        try:
            await self._change(topics)
            is_done = True
        finally:
            self._measures.meter.topics_updated(
                monotonic_ms(self._clock) - began_ms, is_done=is_done, is_system=is_system
            )
        return request.response(ResponseCode.SUCCESS)

    async def _change(self, topics: list[TopicConfig]) -> None:
        for topic in topics:
            if topic.topic_filter_type not in FILTER_TYPES:  # RocketMQ fails to parse it
                raise RemotingCommandError(f"topicFilterType = [{topic.topic_filter_type}] value invalid")
            self._check(topic)
            if topic.topic_name in self._topics.going:
                raise refusals.being_deleted(topic.topic_name)
        changed = [topic for topic in topics if topic != self._topics.get(str(topic.topic_name))]
        if changed:
            self._topics.update(changed)
        await self._persistence.save(TOPICS)
        await self._outer.settled()

    def _check(self, topic: TopicConfig) -> None:
        broker, name = self._config.broker, topic.topic_name or ""
        wrong = names.wrong_topic(name) or wrong_queues(name, max(topic.read_queue_nums, topic.write_queue_nums))
        if wrong is not None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, wrong)
        if broker.validate_system_topic_when_update_topic and self._topics.is_system_topic(name):
            raise refusals.system_topic(name)
        if not broker.enable_mixed_message_type and topic.attributes.get("+message.type") == "MIXED":
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")

    async def delete(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """DELETE_TOPIC_IN_BROKER: delete its configuration, queues, offsets, and the retry topics that only it uses."""
        return await self._delete_all(request, [request.read(DeleteTopicRequestHeader).topic])

    async def delete_list(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """DELETE_TOPIC_IN_BROKER_LIST: as DELETE_TOPIC_IN_BROKER. One wrong name refuses the whole list."""
        body = decode_request(DeleteTopicListRequestBody, request.body) if request.body else None
        if body is None or not body.topic_list:
            return request.response(ResponseCode.INVALID_PARAMETER, "The specified topic list is blank.")
        return await self._delete_all(request, [topic or "" for topic in body.topic_list])

    async def _delete_all(self, request: RemotingCommand, topics: list[str]) -> RemotingCommand:
        for topic in topics:
            if not topic.strip():
                raise RequestRefused(ResponseCode.INVALID_PARAMETER, names.BLANK_TOPIC)
            if self._config.broker.validate_system_topic_when_update_topic and self._topics.is_system_topic(topic):
                raise refusals.system_topic(topic)
        retries: list[str] = []
        try:
            for topic in dict.fromkeys(topics):
                retries += await self._deletion.delete_with_retries(topic)
        finally:  # the topics before one that cannot be deleted are gone
            for table in (TOPICS, CONSUMER_OFFSET, CONSUMER_ORDER_INFO):
                await self._persistence.save(table)
        await self._outer.delete_routes(retries)  # the tool that asked deletes only the routes of the topics
        return request.response(ResponseCode.SUCCESS)

    async def clean_unused(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CLEAN_UNUSED_TOPIC: delete topics that have queues but no configuration, and their offsets."""
        for topic in {topic for topic, _, _, end in self._store.queues() if end > 0}:
            if topic not in self._topics and not self._topics.is_system_topic(topic):
                await self._deletion.delete(topic)
        is_used = {*self._topics.table, *self._topics.going, *self._topics.system_topics}.__contains__
        await asyncio.get_running_loop().run_in_executor(None, self._store.clean_unused, is_used)
        await self._persistence.save(CONSUMER_OFFSET)
        return request.response(ResponseCode.SUCCESS)

    def get(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_TOPIC_CONFIG."""
        name = request.read(GetTopicConfigRequestHeader).topic
        topic = self._topics.get(name)
        if topic is None:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
        body = TopicConfigAndQueueMapping(**{field: getattr(topic, field) for field in topic.__struct_fields__})
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    async def get_all(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_TOPIC_CONFIG: all topics, or maxTopicNum topics from number topicSeq on, sorted by name."""
        wanted = request.read(GetAllTopicConfigRequestHeader)
        page = page_of(self._topics, self._config.broker, wanted.data_version, wanted.topic_seq, wanted.max_topic_num)
        chosen = [self._topics.table[name] for name in (self._topics.table if page is None else page)]
        body = TopicConfigAndMappingSerializeWrapper(
            topic_config_table={str(topic.topic_name): topic for topic in chosen}, data_version=self._topics.version
        )
        header = GetAllTopicConfigResponseHeader(total_topic_num=len(self._topics.table))
        async with self._long.turn(channel, len(chosen)):
            return request.response(ResponseCode.SUCCESS, header=header, body=await encode_in_slices(body))

    async def stats(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_TOPIC_STATS_INFO: the bounds of each queue, and the store time of its last message."""
        name = request.read(GetTopicStatsInfoRequestHeader).topic
        topic = self._topics.get(name)
        if topic is None:
            raise refusals.topic_missing(name)
        queues = queue_ids(name, max(topic.write_queue_nums, topic.read_queue_nums))
        async with self._long.turn(channel, len(queues)):
            table = {}
            async for queue_id in in_slices(queues):
                high = self._store.max_offset_in_queue(name, queue_id)
                last_ms = self._store.store_timestamp_ms(name, queue_id, high - 1) if high > 0 else 0
                low = self._store.min_offset_in_queue(name, queue_id)
                queue = queue_key(MessageQueue(name, self._config.broker.broker_name, queue_id))
                table[queue] = TopicOffset(min_offset=low, max_offset=high, last_update_timestamp=last_ms)
            tps = self._measures.stats.tps(TOPIC_PUT_NUMS, name, monotonic_ms(self._clock))
            body = TopicStatsTable(offset_table=table, topic_put_tps=tps)
            return request.response(ResponseCode.SUCCESS, body=await encode_in_slices(body))

    def list_system(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER."""
        body = TopicList(topic_list=sorted(self._topics.system_topics))
        return request.response(ResponseCode.SUCCESS, body=body.encode())


def routes(context: BrokerContext) -> Routes:
    """The rows of the administration of topics."""
    deletion = TopicDeletion(
        context.config, context.storage, context.tables, context.sessions, context.pop, context.measures
    )
    topics = TopicAdminProcessor(
        context.config,
        context.clock,
        context.storage.store,
        context.tables,
        context.measures,
        context.outer,
        deletion,
    )
    return {
        RequestCode.UPDATE_AND_CREATE_TOPIC: Route(
            topics.update, on(CreateTopicRequestHeader, (Action.CREATE,), topic_in()), after_dispatch=False
        ),
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: Route(topics.update_list, CHANGES_CLUSTER, after_dispatch=False),
        RequestCode.DELETE_TOPIC_IN_BROKER: Route(
            topics.delete, on(DeleteTopicRequestHeader, (Action.DELETE,), topic_in()), after_dispatch=False
        ),
        RequestCode.DELETE_TOPIC_IN_BROKER_LIST: Route(topics.delete_list, CHANGES_CLUSTER, after_dispatch=False),
        RequestCode.CLEAN_UNUSED_TOPIC: Route(topics.clean_unused, CHANGES_CLUSTER, after_dispatch=False),
        RequestCode.GET_TOPIC_CONFIG: Route(topics.get, look(GetTopicConfigRequestHeader), after_dispatch=False),
        RequestCode.GET_ALL_TOPIC_CONFIG: Route(topics.get_all, READS_CLUSTER, after_dispatch=False),
        RequestCode.GET_TOPIC_STATS_INFO: Route(
            topics.stats, look(GetTopicStatsInfoRequestHeader), after_dispatch=True
        ),
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Route(topics.list_system, ANY_ACCOUNT, after_dispatch=False),
    }
