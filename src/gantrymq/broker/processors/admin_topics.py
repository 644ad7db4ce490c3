"""Administration of topics: create, change, delete, list, count.

Source: AdminBrokerProcessor.
"""

from __future__ import annotations

import asyncio

from gantrymq.broker import names
from gantrymq.broker.answers import LongAnswers, encode_in_slices
from gantrymq.broker.appends.put_queue import PutQueue
from gantrymq.broker.metrics.meter import BrokerMeter
from gantrymq.broker.outer_api import BrokerOuterAPI
from gantrymq.broker.pop.service import PopService
from gantrymq.broker.sessions.consumers import ConsumerManager
from gantrymq.broker.sessions.long_polling import PullRequestHoldService
from gantrymq.broker.statistics import TOPIC_PUT_NUMS, BrokerStatsManager
from gantrymq.broker.store_log import log_deletion
from gantrymq.broker.tables.attributes import WrongAttributeError, parse_attributes
from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.broker.tables.persistence import TOPICS, ConfigPersistence
from gantrymq.broker.tables.topics import TopicConfigManager, being_deleted, queue_ids, wrong_queues
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.errors import RemotingCommandError
from gantrymq.format.names import CONSUMER_OFFSET
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.topic import (
    FILTER_TYPES,
    CreateTopicListRequestBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigAndQueueMapping,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from gantrymq.remoting.body import decode_request, queue_key
from gantrymq.remoting.codes import ResponseCode
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
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        stats: BrokerStatsManager,
        kept: ConfigPersistence,
        outer: BrokerOuterAPI,
        consumers: ConsumerManager,
        holds: PullRequestHoldService,
        puts: PutQueue,
        pop: PopService,
        meter: BrokerMeter,
    ) -> None:
        self._meter = meter
        self._config, self._clock, self._store, self._topics = config, clock, store, topics
        self._offsets, self._stats, self._kept, self._outer = offsets, stats, kept, outer
        self._consumers, self._holds, self._puts, self._pop = consumers, holds, puts, pop
        self._long, self._deleting = LongAnswers(), dict[str, asyncio.Task[None]]()

    async def update(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_TOPIC."""
        asked = request.read(CreateTopicRequestHeader)
        try:
            topic = TopicConfig(
                topic_name=asked.topic,
                read_queue_nums=asked.read_queue_nums,
                write_queue_nums=asked.write_queue_nums,
                perm=asked.perm,
                topic_filter_type=asked.topic_filter_type,
                topic_sys_flag=asked.topic_sys_flag or 0,
                order=asked.order,
                attributes=parse_attributes(asked.attributes),
            )
        except WrongAttributeError as error:
            return request.response(error.code, str(error))
        return await self._update(request, [topic])

    async def update_list(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_TOPIC_LIST: all topics or none."""
        return await self._update(request, decode_request(CreateTopicListRequestBody, request.body).topic_config_list)

    async def _update(self, request: RemotingCommand, topics: list[TopicConfig]) -> RemotingCommand:
        began_ms = monotonic_ms(self._clock)
        answer = await self._updated(request, topics)
        self._meter.topics_updated(
            monotonic_ms(self._clock) - began_ms,
            is_done=answer.code == ResponseCode.SUCCESS,
            is_system=any(self._topics.is_system_topic(str(topic.topic_name)) for topic in topics),
        )
        return answer

    async def _updated(self, request: RemotingCommand, topics: list[TopicConfig]) -> RemotingCommand:
        for topic in topics:
            if topic.topic_filter_type not in FILTER_TYPES:  # RocketMQ fails to parse it
                raise RemotingCommandError(f"topicFilterType = [{topic.topic_filter_type}] value invalid")
            wrong = self._wrong(topic)
            if wrong is not None:
                return request.response(ResponseCode.INVALID_PARAMETER, wrong)
            if topic.topic_name in self._topics.going:
                return request.response(ResponseCode.SYSTEM_BUSY, being_deleted(topic.topic_name))
        changed = [topic for topic in topics if topic != self._topics.get(str(topic.topic_name))]
        try:
            if changed:
                self._topics.update(changed)
        except WrongAttributeError as error:
            return request.response(error.code, str(error))
        await self._kept.save(TOPICS)
        await self._outer.settled()
        return request.response(ResponseCode.SUCCESS)

    def _wrong(self, topic: TopicConfig) -> str | None:
        broker, name = self._config.broker, topic.topic_name or ""
        wrong = names.wrong_topic(name) or wrong_queues(name, max(topic.read_queue_nums, topic.write_queue_nums))
        if wrong is not None:
            return wrong
        if broker.validate_system_topic_when_update_topic and self._topics.is_system_topic(name):
            return f"The topic[{name}] is conflict with system topic."
        if not broker.enable_mixed_message_type and topic.attributes.get("+message.type") == "MIXED":
            return "MIXED message type is not supported."
        return None

    async def delete(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """DELETE_TOPIC_IN_BROKER: delete its configuration, queues, offsets, and the retry topics that only it uses."""
        topic = request.read(DeleteTopicRequestHeader).topic
        if not topic.strip():
            return request.response(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        if self._config.broker.validate_system_topic_when_update_topic and self._topics.is_system_topic(topic):
            remark = f"The topic[{topic}] is conflict with system topic."
            return request.response(ResponseCode.INVALID_PARAMETER, remark)
        going = [topic]
        if self._config.broker.clear_retry_topic_when_delete_topic:
            for group in self._offsets.groups_of(topic):
                of_pop = (f"{names.RETRY_PREFIX}{group}+{topic}", f"{names.RETRY_PREFIX}{group}_{topic}")
                going += [name for name in of_pop if name in self._topics]
        for name in going:
            await self._delete(name)
        await self._kept.save(TOPICS)
        await self._kept.save(CONSUMER_OFFSET)
        return request.response(ResponseCode.SUCCESS)

    async def _delete(self, topic: str) -> None:
        """Delete a topic and all its data. A second deletion meanwhile waits for the first.

        If the second deletion ran after the first, it would delete messages that were sent to the topic since.
        """
        deleting = self._deleting.get(topic)
        if deleting is None:
            deleting = self._deleting[topic] = asyncio.ensure_future(self._delete_now(topic))
            deleting.add_done_callback(lambda _: self._deleting.pop(topic))
        await asyncio.shield(deleting)

    async def _delete_now(self, topic: str) -> None:
        self._topics.delete(topic)
        self._offsets.remove_topic(topic, self._consumers.groups_of(topic))
        self._pop.forget(topic=topic)
        self._stats.forget([topic])
        self._meter.forget_topics([topic])
        self._topics.going.add(topic)
        try:
            # Puts that were accepted before are deleted with the topic, and must not start a new queue after it.
            while self._puts.has(topic):
                await asyncio.sleep(_PUTS_LOOK_S)
            deleted = await asyncio.get_running_loop().run_in_executor(None, self._store.delete_topic, topic)
            log_deletion(topic, deleted)
            if self._store.timers is not None:
                self._store.timers.metrics.forget(topic)
        finally:
            self._topics.going.discard(topic)
            self._holds.answer_all(topic)

    async def clean_unused(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CLEAN_UNUSED_TOPIC: delete topics that have queues but no configuration, and their offsets."""
        for topic in {topic for topic, _, _, end in self._store.queues() if end > 0}:
            if topic not in self._topics and not self._topics.is_system_topic(topic):
                await self._delete(topic)
        await self._kept.save(CONSUMER_OFFSET)
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
        asked = request.read(GetAllTopicConfigRequestHeader)
        chosen = list(self._topics.table.values())
        is_split = (asked.data_version, asked.topic_seq, asked.max_topic_num) != (None, None, None)
        if self._config.broker.enable_split_metadata and is_split:
            begin = asked.topic_seq or 0
            if begin and asked.data_version != self._topics.version.encode().decode():
                begin = 0  # the table has changed, so start over
            limit = self._config.broker.split_metadata_size
            most = min(limit, asked.max_topic_num or limit)
            chosen = sorted(chosen, key=lambda topic: str(topic.topic_name))[begin : begin + most]
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
            return request.response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        queues = queue_ids(name, max(topic.write_queue_nums, topic.read_queue_nums))
        async with self._long.turn(channel, len(queues)):
            table = {}
            async for queue_id in in_slices(queues):
                high = self._store.max_offset_in_queue(name, queue_id)
                last_ms = self._store.store_timestamp_ms(name, queue_id, high - 1) if high > 0 else 0
                low = self._store.min_offset_in_queue(name, queue_id)
                queue = queue_key(MessageQueue(name, self._config.broker.broker_name, queue_id))
                table[queue] = TopicOffset(min_offset=low, max_offset=high, last_update_timestamp=last_ms)
            tps = self._stats.tps(TOPIC_PUT_NUMS, name, monotonic_ms(self._clock))
            body = TopicStatsTable(offset_table=table, topic_put_tps=tps)
            return request.response(ResponseCode.SUCCESS, body=await encode_in_slices(body))

    def list_system(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER."""
        body = TopicList(topic_list=sorted(self._topics.system_topics))
        return request.response(ResponseCode.SUCCESS, body=body.encode())
