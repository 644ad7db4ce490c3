"""Requests about offsets of groups and queues, and about the members of a group.

QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET, GET_CONSUMER_LIST_BY_GROUP; GET_MAX_OFFSET, GET_MIN_OFFSET,
SEARCH_OFFSET_BY_TIMESTAMP, GET_EARLIEST_MSG_STORETIME.

Source: ConsumerManageProcessor, AdminBrokerProcessor.
"""

from __future__ import annotations

from gantrymq.broker.reads.hot_queue import begins_in_memory
from gantrymq.broker.sessions.consumers import ConsumerManager
from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.broker.tables.subscription_groups import SubscriptionGroupManager
from gantrymq.broker.tables.topics import TopicConfigManager, describe
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.remoting.bodies.client import GetConsumerListByGroupResponseBody
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import GetConsumerListByGroupRequestHeader
from gantrymq.remoting.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from gantrymq.remoting.transport.channel import Channel
from gantrymq.store.message_store import MessageStore


class ConsumerManageProcessor:
    """Committed offsets and the members of groups."""

    def __init__(
        self,
        config: LiveConfig,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
    ) -> None:
        self._config, self._store, self._topics = config, store, topics
        self._groups, self._consumers, self._offsets = groups, consumers, offsets

    def list_consumers(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_CONSUMER_LIST_BY_GROUP: the client ids of a group."""
        name = request.read(GetConsumerListByGroupRequestHeader).consumer_group
        group = self._consumers.group(name)
        if group is None or not group.channels:
            return request.response(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        ids = [client.client_id for client in group.clients]
        body = GetConsumerListByGroupResponseBody(consumer_id_list=ids)
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def update(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_CONSUMER_OFFSET. It is ignored while a reset offset waits for the group's next pull."""
        asked = request.read(UpdateConsumerOffsetRequestHeader)
        group, topic = asked.consumer_group, asked.topic
        if group not in self._groups:
            return request.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        config = self._topics.get(topic)
        if config is None:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        queues = range(max(config.read_queue_nums, config.write_queue_nums))
        if asked.queue_id not in queues and asked.queue_id not in (self._offsets.of(group, topic) or {}):
            remark = f"queueId[{asked.queue_id}] is illegal, {describe(config)}"
            return request.response(ResponseCode.INVALID_PARAMETER, remark)
        use_reset = self._config.broker.use_server_side_reset_offset
        if use_reset and self._offsets.has_reset(group, topic, asked.queue_id):
            return request.response(ResponseCode.SUCCESS, "Offset has been previously reset")
        self._offsets.commit(group, topic, asked.queue_id, asked.commit_offset)
        return request.response(ResponseCode.SUCCESS)

    def query(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUMER_OFFSET: the committed offset of a group.

        A group without one begins at 0 if the first message of the queue is still in memory.
        """
        asked = request.read(QueryConsumerOffsetRequestHeader)
        offset = self._offsets.query(asked.consumer_group, asked.topic, asked.queue_id)
        if offset < 0:
            if asked.set_zero_if_not_found is False:
                remark = "Not found, do not set to zero, maybe this group boot first"
                return request.response(ResponseCode.QUERY_NOT_FOUND, remark)
            if not begins_in_memory(self._store, asked.topic, asked.queue_id):
                remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                return request.response(ResponseCode.QUERY_NOT_FOUND, remark)
            offset = 0
        return request.response(ResponseCode.SUCCESS, header=QueryConsumerOffsetResponseHeader(offset=offset))


_UPPER = "upper"  # BoundaryType.UPPER


class QueueOffsetProcessor:
    """The bounds of queues, and their offsets by time."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def max_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_MAX_OFFSET."""
        asked = request.read(GetMaxOffsetRequestHeader)
        store = self._store
        offset_of = store.max_offset_in_queue if asked.committed else store.next_offset_in_queue
        offset = offset_of(asked.topic, asked.queue_id)
        return request.response(ResponseCode.SUCCESS, header=GetMaxOffsetResponseHeader(offset=offset))

    def min_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_MIN_OFFSET."""
        asked = request.read(GetMinOffsetRequestHeader)
        offset = self._store.min_offset_in_queue(asked.topic, asked.queue_id)
        return request.response(ResponseCode.SUCCESS, header=GetMinOffsetResponseHeader(offset=offset))

    def search(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """SEARCH_OFFSET_BY_TIMESTAMP: the first message at or after a time, or (UPPER) the last at or before it."""
        asked = request.read(SearchOffsetRequestHeader)
        topic, queue_id, timestamp_ms = asked.topic, asked.queue_id, asked.timestamp
        if (asked.boundary_type or "").lower() == _UPPER:
            offset = max(self._store.offset_at(topic, queue_id, timestamp_ms + 1) - 1, 0)
        else:
            offset = self._store.offset_at(topic, queue_id, timestamp_ms)
        return request.response(ResponseCode.SUCCESS, header=SearchOffsetResponseHeader(offset=offset))

    def earliest(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_EARLIEST_MSG_STORETIME."""
        asked = request.read(GetEarliestMsgStoretimeRequestHeader)
        first = self._store.min_offset_in_queue(asked.topic, asked.queue_id)
        timestamp_ms = self._store.store_timestamp_ms(asked.topic, asked.queue_id, first)
        header = GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp_ms)
        return request.response(ResponseCode.SUCCESS, header=header)
