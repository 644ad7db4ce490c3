"""Administration of committed offsets: reset, clone, compare, list.

Source: AdminBrokerProcessor, Broker2Client.resetOffset.
"""

from __future__ import annotations

from collections.abc import Callable

from gantrymq.broker import names
from gantrymq.broker.answers import LongAnswers, encode_in_slices
from gantrymq.broker.sessions.consumers import ConsumerManager
from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.broker.tables.persistence import ConfigPersistence
from gantrymq.broker.tables.subscription_groups import SubscriptionGroupManager
from gantrymq.broker.tables.topics import TopicConfigManager, describe, queue_ids
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.format.names import CONSUMER_OFFSET
from gantrymq.logs import get_logger
from gantrymq.model import fastjson
from gantrymq.model.java import LONG_MAX
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.group import (
    MessageQueueForC,
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from gantrymq.remoting.body import Body, keyed, queue_key
from gantrymq.remoting.codes import LanguageCode, RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.offset import (
    CloneGroupOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
    ResetOffsetRequestHeader,
)
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.turns import in_slices
from gantrymq.store.message_store import MessageStore

log = get_logger()
_V3_0_7_SNAPSHOT = 28


class OffsetAdminProcessor:
    """Administrative requests about committed offsets.

    ``pops_reset(topic, group, queue)`` is called for each queue with a reset offset.
    """

    def __init__(
        self,
        config: LiveConfig,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        kept: ConfigPersistence,
        pops_reset: Callable[[str, str, int], None],
    ) -> None:
        self._config, self._store, self._topics, self._kept = config, store, topics, kept
        self._groups, self._consumers, self._offsets = groups, consumers, offsets
        self._pops_reset = pops_reset
        self._long = LongAnswers()

    # Reset

    async def reset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """INVOKE_BROKER_TO_RESET_OFFSET: reset offsets at the broker or in the clients.

        With useServerSideResetOffset the broker stores the offset for the next pull, and answers when it is on disk.
        """
        asked = request.read(ResetOffsetRequestHeader)
        if self._config.broker.use_server_side_reset_offset:
            answer = await self._reset_here(channel, request, asked)
            await self._kept.save(CONSUMER_OFFSET)
            return answer
        return await self._reset_in_clients(channel, request, asked)

    async def _reset_here(
        self, channel: Channel, request: RemotingCommand, asked: ResetOffsetRequestHeader
    ) -> RemotingCommand:
        topic, group, queue_id = asked.topic, asked.group, asked.queue_id
        config = self._topics.get(topic)
        if config is None:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if group not in self._groups:
            return request.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        if queue_id < 0:
            queues = queue_ids(topic, config.read_queue_nums)
            async with self._long.turn(channel, len(queues)):
                to = {one: self._at(topic, one, asked.timestamp) async for one in in_slices(queues)}
        elif queue_id >= max(config.read_queue_nums, config.write_queue_nums):
            return request.response(
                ResponseCode.INVALID_PARAMETER, f"queueId[{queue_id}] is illegal, {describe(config)}"
            )
        elif asked.offset is None or asked.offset == -1:
            to = {queue_id: self._at(topic, queue_id, asked.timestamp)}
        else:
            low = self._store.min_offset_in_queue(topic, queue_id)
            high = self._store.max_offset_in_queue(topic, queue_id)
            if not low <= asked.offset <= high + 1:
                remark = f"Target offset {asked.offset} not in consume queue range [{low}-{high}]"
                return request.response(ResponseCode.SYSTEM_ERROR, remark)
            to = {queue_id: asked.offset}
        if not to:
            return request.response(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        broker_name, table = self._config.broker.broker_name, dict[str, int]()
        async for one, offset in in_slices(to.items()):
            self._offsets.assign_reset(group, topic, one, offset)
            self._pops_reset(topic, group, one)
            table[queue_key(MessageQueue(topic, broker_name, one))] = offset
        _log_reset(asked, len(to))
        return request.response(ResponseCode.SUCCESS, body=await encode_in_slices(ResetOffsetBody(offset_table=table)))

    def _at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        if timestamp_ms < 0:
            return self._store.max_offset_in_queue(topic, queue_id)
        return self._store.offset_at(topic, queue_id, timestamp_ms)

    async def _reset_in_clients(
        self, channel: Channel, request: RemotingCommand, asked: ResetOffsetRequestHeader
    ) -> RemotingCommand:
        config = self._topics.get(asked.topic)
        if config is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={asked.topic}"
            return request.response(ResponseCode.TOPIC_NOT_EXIST, remark)
        table: dict[MessageQueue, int] = {}
        async for queue_id in in_slices(queue_ids(asked.topic, config.write_queue_nums)):
            consumed = self._offsets.query(asked.group, asked.topic, queue_id)
            if consumed == -1:
                return request.response(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{asked.group}> not exist")
            at = self._at(asked.topic, queue_id, asked.timestamp)
            queue = MessageQueue(asked.topic, self._config.broker.broker_name, queue_id)
            table[queue] = at if asked.is_force or at < consumed else consumed
        group = self._consumers.group(asked.group)
        if group is None:
            remark = (
                "Consumer not online, so can not reset offset, "
                f"Group: {asked.group} Topic: {asked.topic} Timestamp: {asked.timestamp}"
            )
            return request.response(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        _log_reset(asked, len(table))
        header = ResetOffsetRequestHeader(group=asked.group, topic=asked.topic, timestamp=asked.timestamp)
        body = _reset_body(table, for_c=request.language == LanguageCode.CPP).encode()
        for client in group.clients:
            if client.version < _V3_0_7_SNAPSHOT:
                remark = f"the client does not support this feature. version={client.version}"
                return request.response(ResponseCode.SYSTEM_ERROR, remark)
            order = RemotingCommand.request(header, body, code=RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
            client.channel.invoke_oneway(order)
        return request.response(ResponseCode.SUCCESS, body=ResetOffsetBody(offset_table=keyed(table)).encode())

    # Other requests

    async def clone(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CLONE_GROUP_OFFSET. The answer is sent when the offsets are on disk."""
        asked = request.read(CloneGroupOffsetRequestHeader)
        names.require_short("group", asked.dest_group)
        given = (asked.topic or "").strip()
        source = self._consumers.group(asked.src_group)
        for topic in [given] if given else sorted(self._offsets.topics_of(asked.src_group)):
            if topic not in self._topics:
                continue
            if not asked.offline and source is not None and source.subscriptions and topic not in source.subscriptions:
                continue
            is_connected = asked.dest_group in self._consumers.groups_of(topic)
            self._offsets.clone(asked.src_group, asked.dest_group, topic, is_connected=is_connected)
        await self._kept.save(CONSUMER_OFFSET)
        return request.response(ResponseCode.SUCCESS)

    def correction(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """QUERY_CORRECTION_OFFSET: the lowest offset of all groups, by queue.

        It is LONG_MAX for a queue in which the compared group is behind it.
        """
        asked = request.read(QueryCorrectionOffsetHeader)
        left_out = [one for one in (asked.filter_groups or "").split(",") if one]
        least = self._offsets.least_of_all_groups(asked.topic, self._store.min_offset_in_queue, left_out)
        for queue_id, offset in (self._offsets.of(asked.compare_group, asked.topic) or {}).items():
            if least.get(queue_id, -1) > offset:
                least[queue_id] = LONG_MAX
        return request.response(ResponseCode.SUCCESS, body=QueryCorrectionOffsetBody(correction_offsets=least).encode())

    async def get_all(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_CONSUMER_OFFSET."""
        async with self._long.turn(channel, len(self._offsets)):
            body = await encode_in_slices(self._offsets.to_body())
            return request.response(ResponseCode.SUCCESS, body=body)

    def delay_offsets(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_DELAY_OFFSET: the offset up to which each delay level is delivered."""
        table = dict(sorted(self._store.delay_offsets.items()))
        return request.response(ResponseCode.SUCCESS, body=fastjson.dumps({"offsetTable": table}))


def _log_reset(asked: ResetOffsetRequestHeader, queues: int) -> None:
    """Log that offsets were reset, because messages may be skipped or delivered again."""
    to = {"timestamp_ms": asked.timestamp, "offset": asked.offset}
    log.warning("an administrator has reset offsets", group=asked.group, topic=asked.topic, queues=queues, **to)


def _reset_body(table: dict[MessageQueue, int], *, for_c: bool) -> Body:
    if not for_c:
        return ResetOffsetBody(offset_table=keyed(table))
    return ResetOffsetBodyForC(
        offset_table=[
            MessageQueueForC(topic=one.topic, broker_name=one.broker_name, queue_id=one.queue_id, offset=offset)
            for one, offset in table.items()
        ]
    )
