"""QUERY_MESSAGE, VIEW_MESSAGE_BY_ID and QUERY_CONSUME_QUEUE. Records are sent as they are in the log.

Source: QueryMessageProcessor, AdminBrokerProcessor.queryConsumeQueue.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import cast

from gantrymq.broker.answers import LongAnswers, encode_in_slices
from gantrymq.broker.reads.stored_records import StoredRecords
from gantrymq.broker.sessions.consumers import ConsumerManager
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.format.index import TAG_INDEX_TYPE, tag_key
from gantrymq.model.message import StoredMessage
from gantrymq.remoting.bodies.broker import ConsumeQueueData, QueryConsumeQueueResponseBody
from gantrymq.remoting.codes import ResponseCode
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

_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_MAX_UNITS = 10_000
_MANY_UNITS = 1 << 30
_MAX_ANSWER_BYTES = 8 << 20


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
        asked = request.read(QueryMessageRequestHeader)
        most, key = asked.max_num, asked.key
        if request.ext_fields.get(_UNIQUE_KEY_QUERY, "").lower() == "true":
            most = self._config.broker.default_query_max_num
        elif asked.index_type == TAG_INDEX_TYPE:
            key = tag_key(key)
        most = min(max(most, 1), self._config.store.max_msgs_num_batch)
        search = partial(
            self._store.query,
            asked.topic,
            key,
            begin_ms=asked.begin_timestamp,
            end_ms=asked.end_timestamp,
            max_num=most,
        )
        # A chain of the index may be long, and its file not in the page cache.
        async with self._long.turn(channel, _MANY_UNITS):
            found = await asyncio.get_running_loop().run_in_executor(None, search)
        if self._config.broker.acl_enable:
            found = [one for one in found if one.topic == asked.topic]
        header = QueryMessageResponseHeader(
            index_last_update_timestamp=self._store.indexed_timestamp_ms,
            index_last_update_phyoffset=self._store.dispatched_offset,
        )
        pieces = self._pieces(found)
        if not pieces:
            remark = "can not find message, maybe time range not correct"
            return request.response(ResponseCode.QUERY_NOT_FOUND, remark, header=header)
        _send(channel, request, request.response(ResponseCode.SUCCESS, header=header), pieces)
        return None

    async def view(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """VIEW_MESSAGE_BY_ID: the message at a physical offset."""
        offset = request.read(ViewMessageRequestHeader).offset
        message = await self._records.find(offset)
        record = self._records.record_of(message) if message is not None else None
        if record is None:
            return request.response(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        _send(channel, request, request.response(ResponseCode.SUCCESS), [record])
        return None

    async def queue(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUME_QUEUE: units of a queue, for diagnosis."""
        asked = request.read(QueryConsumeQueueRequestHeader)
        topic, queue_id = asked.topic or "", asked.queue_id
        high = self._store.max_offset_in_queue(topic, queue_id)
        if not high:
            return request.response(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        low = self._store.min_offset_in_queue(topic, queue_id)
        body = QueryConsumeQueueResponseBody(max_queue_index=high, min_queue_index=low)
        if asked.consumer_group is not None:
            body.subscription_data = self._consumers.find_subscription(asked.consumer_group, topic)
            if body.subscription_data is None:
                body.filter_data = f"{asked.consumer_group}@{topic} is not online!"
            else:
                body.filter_data = "null"  # the data of an expression, which tags do not have
        if not 0 <= asked.index < high:
            return request.response(ResponseCode.SUCCESS, f"Index {asked.index} of {queue_id}@{topic} is not exist!")
        end = min(asked.index + min(asked.count, _MAX_UNITS), high)
        async with self._long.turn(channel, end - asked.index):
            body.queue_data = [
                ConsumeQueueData(physic_offset=unit[0], physic_size=unit[1], tags_code=unit[2])
                async for index in in_slices(range(asked.index, end))
                if (unit := self._store.lookup.unit_at(topic, queue_id, index)) is not None
            ]
            return request.response(ResponseCode.SUCCESS, body=await encode_in_slices(body))

    def _pieces(self, found: list[StoredMessage]) -> list[memoryview]:
        pieces: list[memoryview] = []
        size_bytes = 0
        for message in sorted(found, key=lambda one: one.phy_offset):
            record = self._records.record_of(message)
            if record is None:
                continue
            size_bytes += len(record)
            if pieces and size_bytes > _MAX_ANSWER_BYTES:
                break
            pieces.append(record)
        return pieces


def _send(channel: Channel, request: RemotingCommand, response: RemotingCommand, pieces: list[memoryview]) -> None:
    channel.respond_bytes(
        request, response.code, [encode_head(response, sum(map(len, pieces))), *cast("list[bytes]", pieces)]
    )
