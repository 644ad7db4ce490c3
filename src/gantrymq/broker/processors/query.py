"""QUERY_MESSAGE, VIEW_MESSAGE_BY_ID and QUERY_CONSUME_QUEUE. Records are sent as they are in the log.

Source: QueryMessageProcessor, AdminBrokerProcessor.queryConsumeQueue.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import cast

from gantrymq.auth.policies import Action
from gantrymq.broker import names
from gantrymq.broker.acl.permissions import GET, consume, group_in, on, topic_in
from gantrymq.broker.answers import LongAnswers, encode_in_slices
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.reads.stored_records import StoredRecords
from gantrymq.broker.sessions.consumers import ConsumerManager
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.format.index import TAG_INDEX_TYPE, tag_key
from gantrymq.model.message import PROPERTY_REAL_TOPIC, TIMER_TOPIC, StoredMessage
from gantrymq.remoting.acl import UNIQUE_KEY_QUERY
from gantrymq.remoting.bodies.broker import ConsumeQueueData, QueryConsumeQueueResponseBody
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand, encode_head
from gantrymq.remoting.headers.pull import (
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.turns import in_slices
from gantrymq.store.message_store import MessageStore

_MAX_UNITS = 10_000
_MANY_UNITS = 1 << 30
_MAX_ANSWER_BYTES = 8 << 20
# Where messages wait for the topic in their property REAL_TOPIC.
_WAITING_TOPICS = frozenset(
    {names.SCHEDULE_TOPIC, TIMER_TOPIC, names.TRANS_HALF_TOPIC, names.TRANS_CHECK_MAX_TIME_TOPIC}
)


class QueryMessageProcessor:
    """Messages by key and by physical offset, and the units of a queue."""

    def __init__(
        self, config: LiveConfig, store: MessageStore, records: StoredRecords, consumers: ConsumerManager
    ) -> None:
        self._config, self._store, self._records, self._consumers = config, store, records, consumers
        self._long = LongAnswers()

    async def query(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """QUERY_MESSAGE: the indexed messages of a key within a time range, in the order of the log.

        The index compares only hash codes, as in RocketMQ. With access control, messages of other topics are left out:
        the account may not be allowed to read them, and a colliding key is easy to compute.
        """
        request_header = request.read(QueryMessageRequestHeader)
        max_num, key = request_header.max_num, request_header.key
        if request.ext_fields.get(UNIQUE_KEY_QUERY, "").lower() == "true":
            max_num = self._config.broker.default_query_max_num
        elif request_header.index_type == TAG_INDEX_TYPE:
            key = tag_key(key)
        if max_num < 0:  # in Java the capacity of a list, which is illegal
            return request.response(ResponseCode.SYSTEM_ERROR, f"Illegal Capacity: {max_num} (maxNum)")
        max_num = min(max_num, self._config.store.max_msgs_num_batch)
        search = partial(
            self._store.query,
            request_header.topic,
            key,
            begin_ms=request_header.begin_timestamp,
            end_ms=request_header.end_timestamp,
            max_num=max_num,
            exact=False,
        )
        # A chain of the index may be long, and its file not in the page cache.
        async with self._long.turn(channel, _MANY_UNITS):
            messages = await asyncio.get_running_loop().run_in_executor(None, search)
        if self._config.broker.is_guarded:
            messages = [message for message in messages if message.topic == request_header.topic]
        newest_ms, newest_offset = self._store.lookup.newest_indexed if messages else (0, 0)
        header = QueryMessageResponseHeader(
            index_last_update_timestamp=newest_ms, index_last_update_phyoffset=newest_offset
        )
        pieces = self._pieces(messages)
        if not pieces:
            remark = "can not find message, maybe time range not correct"
            return request.response(ResponseCode.QUERY_NOT_FOUND, remark, header=header)
        _send(channel, request, request.response(ResponseCode.SUCCESS, header=header), pieces)
        return None

    async def view(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """VIEW_MESSAGE_BY_ID: the message at a physical offset. If the request names a topic, it must be the message's.

        That of a message which waits elsewhere (for its delay, or as a half message) is the topic it is for.
        """
        header = request.read(ViewMessageRequestHeader)
        offset, is_of_topic = header.offset, bool((header.topic or "").strip())
        message = await self._records.find(offset)
        record = self._records.record_of(message) if message is not None else None
        if record is None:
            return request.response(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        if is_of_topic and message is not None and header.topic != _topic_for(message):
            return request.response(ResponseCode.NO_PERMISSION, "The topic does not match the message")
        _send(channel, request, request.response(ResponseCode.SUCCESS), [record])
        return None

    async def queue(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUME_QUEUE: units of a queue, for diagnosis."""
        header = request.read(QueryConsumeQueueRequestHeader)
        topic, queue_id = header.topic or "", header.queue_id
        high = self._store.max_offset_in_queue(topic, queue_id)
        if not high:
            return request.response(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        low = self._store.min_offset_in_queue(topic, queue_id)
        body = QueryConsumeQueueResponseBody(max_queue_index=high, min_queue_index=low)
        if header.consumer_group is not None:
            body.subscription_data = self._consumers.find_subscription(header.consumer_group, topic)
            if body.subscription_data is None:
                body.filter_data = f"{header.consumer_group}@{topic} is not online!"
            else:
                body.filter_data = "null"  # the data of an expression, which tags do not have
        if not 0 <= header.index < high:
            return request.response(ResponseCode.SUCCESS, f"Index {header.index} of {queue_id}@{topic} is not exist!")
        end = min(header.index + min(header.count, _MAX_UNITS), high)
        async with self._long.turn(channel, end - header.index):
            body.queue_data = [
                ConsumeQueueData(physic_offset=unit[0], physic_size=unit[1], tags_code=unit[2])
                async for index in in_slices(range(header.index, end))
                if (unit := self._store.lookup.unit_at(topic, queue_id, index)) is not None
            ]
            return request.response(ResponseCode.SUCCESS, body=await encode_in_slices(body))

    def _pieces(self, messages: list[StoredMessage]) -> list[memoryview]:
        pieces: list[memoryview] = []
        size_bytes = 0
        for message in sorted(messages, key=lambda message: message.phy_offset):
            record = self._records.record_of(message)
            if record is None:
                continue
            size_bytes += len(record)
            if pieces and size_bytes > _MAX_ANSWER_BYTES:
                break
            pieces.append(record)
        return pieces


def _topic_for(message: StoredMessage) -> str | None:
    return message.properties.get(PROPERTY_REAL_TOPIC) if message.topic in _WAITING_TOPICS else message.topic


def _send(channel: Channel, request: RemotingCommand, response: RemotingCommand, pieces: list[memoryview]) -> None:
    channel.respond_bytes(
        request, response.code, [encode_head(response, sum(map(len, pieces))), *cast("list[bytes]", pieces)]
    )


def routes(context: BrokerContext) -> Routes:
    """The rows of queries."""
    storage = context.storage
    query = QueryMessageProcessor(context.config, storage.store, storage.records, context.sessions.consumers)
    may_query = consume(QueryMessageRequestHeader, topic_in(), actions=(Action.SUB, Action.GET))
    return {
        RequestCode.QUERY_MESSAGE: Route(query.query, may_query, after_dispatch=True),
        RequestCode.VIEW_MESSAGE_BY_ID: Route(
            query.view, on(ViewMessageRequestHeader, GET, topic_in()), after_dispatch=True
        ),
        RequestCode.QUERY_CONSUME_QUEUE: Route(
            query.queue, on(QueryConsumeQueueRequestHeader, GET, topic_in(), group_in()), after_dispatch=True
        ),
    }
