"""Requests about offsets of groups and queues, and about the members of a group.

QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET, GET_CONSUMER_LIST_BY_GROUP; GET_MAX_OFFSET, GET_MIN_OFFSET,
SEARCH_OFFSET_BY_TIMESTAMP, GET_EARLIEST_MSG_STORETIME.

Source: ConsumerManageProcessor, AdminBrokerProcessor.
"""

from __future__ import annotations

from gantrymq.auth.policies import Action
from gantrymq.broker import refusals
from gantrymq.broker.acl.permissions import consume, group_in, look, topic_in
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.reads.hot_queue import begins_in_memory
from gantrymq.broker.sessions.consumers import ConsumerManager
from gantrymq.broker.tables.tables import Tables
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.remoting.bodies.client import GetConsumerListByGroupResponseBody
from gantrymq.remoting.codes import RequestCode, ResponseCode
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

_UPPER = "upper"  # BoundaryType.UPPER


class ConsumerManageProcessor:
    """Committed offsets and the members of groups."""

    def __init__(self, config: LiveConfig, store: MessageStore, tables: Tables, consumers: ConsumerManager) -> None:
        self._config, self._store, self._consumers = config, store, consumers
        self._topics, self._groups, self._offsets = tables.topics, tables.groups, tables.offsets

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
        header = request.read(UpdateConsumerOffsetRequestHeader)
        group, topic = header.consumer_group, header.topic
        if group not in self._groups:
            return request.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        config = self._topics.get(topic)
        if config is None:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        queues = range(max(config.read_queue_nums, config.write_queue_nums))
        if header.queue_id not in queues and header.queue_id not in (self._offsets.of(group, topic) or {}):
            raise refusals.wrong_queue(header.queue_id, config)
        use_reset = self._config.broker.use_server_side_reset_offset
        if use_reset and self._offsets.has_reset(group, topic, header.queue_id):
            return request.response(ResponseCode.SUCCESS, "Offset has been previously reset")
        self._offsets.commit(group, topic, header.queue_id, header.commit_offset)
        return request.response(ResponseCode.SUCCESS)

    def query(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUMER_OFFSET: the committed offset of a group.

        A group without one begins at 0 if the first message of the queue is still in memory.
        """
        header = request.read(QueryConsumerOffsetRequestHeader)
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset < 0:
            if header.set_zero_if_not_found is False:
                remark = "Not found, do not set to zero, maybe this group boot first"
                return request.response(ResponseCode.QUERY_NOT_FOUND, remark)
            if not begins_in_memory(self._store, header.topic, header.queue_id):
                remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                return request.response(ResponseCode.QUERY_NOT_FOUND, remark)
            offset = 0
        return request.response(ResponseCode.SUCCESS, header=QueryConsumerOffsetResponseHeader(offset=offset))


class QueueOffsetProcessor:
    """The bounds of queues, and their offsets by time."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def max_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_MAX_OFFSET."""
        header = request.read(GetMaxOffsetRequestHeader)
        store = self._store
        offset_of = store.max_offset_in_queue if header.committed else store.next_offset_in_queue
        offset = offset_of(header.topic, header.queue_id)
        return request.response(ResponseCode.SUCCESS, header=GetMaxOffsetResponseHeader(offset=offset))

    def min_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_MIN_OFFSET."""
        header = request.read(GetMinOffsetRequestHeader)
        offset = self._store.min_offset_in_queue(header.topic, header.queue_id)
        return request.response(ResponseCode.SUCCESS, header=GetMinOffsetResponseHeader(offset=offset))

    def search(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """SEARCH_OFFSET_BY_TIMESTAMP: the first message at or after a time, or (UPPER) the last at or before it."""
        header = request.read(SearchOffsetRequestHeader)
        topic, queue_id, timestamp_ms = header.topic, header.queue_id, header.timestamp
        if (header.boundary_type or "").lower() == _UPPER:
            offset = max(self._store.offset_at(topic, queue_id, timestamp_ms + 1) - 1, 0)
        else:
            offset = self._store.offset_at(topic, queue_id, timestamp_ms)
        return request.response(ResponseCode.SUCCESS, header=SearchOffsetResponseHeader(offset=offset))

    def earliest(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_EARLIEST_MSG_STORETIME."""
        request_header = request.read(GetEarliestMsgStoretimeRequestHeader)
        first = self._store.min_offset_in_queue(request_header.topic, request_header.queue_id)
        timestamp_ms = self._store.store_timestamp_ms(request_header.topic, request_header.queue_id, first)
        header = GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp_ms)
        return request.response(ResponseCode.SUCCESS, header=header)


def routes(context: BrokerContext) -> Routes:
    """The rows of offsets and of members."""
    store = context.storage.store
    manage = ConsumerManageProcessor(context.config, store, context.tables, context.sessions.consumers)
    queues = QueueOffsetProcessor(store)
    may_list = consume(GetConsumerListByGroupRequestHeader, group_in(), actions=(Action.SUB, Action.GET))
    may_commit = consume(UpdateConsumerOffsetRequestHeader, topic_in(), group_in(), actions=(Action.SUB, Action.UPDATE))
    may_query = consume(QueryConsumerOffsetRequestHeader, topic_in(), group_in(), actions=(Action.SUB, Action.GET))
    may_look_back = look(GetEarliestMsgStoretimeRequestHeader)
    return {
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: Route(manage.list_consumers, may_list, after_dispatch=False),
        RequestCode.UPDATE_CONSUMER_OFFSET: Route(manage.update, may_commit, after_dispatch=False),
        RequestCode.QUERY_CONSUMER_OFFSET: Route(manage.query, may_query, after_dispatch=True),
        RequestCode.GET_MAX_OFFSET: Route(queues.max_offset, look(GetMaxOffsetRequestHeader), after_dispatch=True),
        RequestCode.GET_MIN_OFFSET: Route(queues.min_offset, look(GetMinOffsetRequestHeader), after_dispatch=False),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Route(
            queues.search, look(SearchOffsetRequestHeader), after_dispatch=True
        ),
        RequestCode.GET_EARLIEST_MSG_STORETIME: Route(queues.earliest, may_look_back, after_dispatch=True),
    }
