"""Administration of committed offsets: reset, clone, compare, list.

Source: AdminBrokerProcessor, Broker2Client.resetOffset.
"""

from __future__ import annotations

from gantrymq.broker import names, refusals
from gantrymq.broker.acl.permissions import GET, READS_CLUSTER, UPDATE, group_in, on, topic_in
from gantrymq.broker.answers import LongAnswers, encode_in_slices
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.pop.service import Pop
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.sessions.consumers import ConsumerManager
from gantrymq.broker.tables.tables import Tables
from gantrymq.broker.tables.topics import queue_ids
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
    """Administrative requests about committed offsets."""

    def __init__(
        self, config: LiveConfig, store: MessageStore, tables: Tables, consumers: ConsumerManager, pop: Pop
    ) -> None:
        self._config, self._store, self._consumers, self._pop = config, store, consumers, pop
        self._topics, self._groups, self._offsets, self._persistence = (
            tables.topics,
            tables.groups,
            tables.offsets,
            tables.persistence,
        )
        self._long = LongAnswers()

    # Reset

    async def reset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """INVOKE_BROKER_TO_RESET_OFFSET: reset offsets at the broker or in the clients.

        With useServerSideResetOffset the broker stores the offset for the next pull, and answers when it is on disk.
        """
        header = request.read(ResetOffsetRequestHeader)
        if self._config.broker.use_server_side_reset_offset:
            answer = await self._reset_here(channel, request, header)
            await self._persistence.save(CONSUMER_OFFSET)
            return answer
        return await self._reset_in_clients(channel, request, header)

    async def _reset_here(
        self, channel: Channel, request: RemotingCommand, header: ResetOffsetRequestHeader
    ) -> RemotingCommand:
        topic, group, queue_id = header.topic, header.group, header.queue_id
        config = self._topics.get(topic)
        if config is None:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if group not in self._groups:
            return request.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        if queue_id < 0:
            queues = queue_ids(topic, config.read_queue_nums)
            async with self._long.turn(channel, len(queues)):
                to = {number: self._at(topic, number, header.timestamp) async for number in in_slices(queues)}
        elif queue_id >= max(config.read_queue_nums, config.write_queue_nums):
            raise refusals.wrong_queue(queue_id, config)
        elif header.offset is None or header.offset == -1:
            to = {queue_id: self._at(topic, queue_id, header.timestamp)}
        else:
            low = self._store.min_offset_in_queue(topic, queue_id)
            high = self._store.max_offset_in_queue(topic, queue_id)
            if not low <= header.offset <= high + 1:
                remark = f"Target offset {header.offset} not in consume queue range [{low}-{high}]"
                return request.response(ResponseCode.SYSTEM_ERROR, remark)
            to = {queue_id: header.offset}
        if not to:
            return request.response(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        broker_name, table = self._config.broker.broker_name, dict[str, int]()
        async for number, offset in in_slices(to.items()):
            self._offsets.assign_reset(group, topic, number, offset)
            self._pop.reset(topic, group, number)
            table[queue_key(MessageQueue(topic, broker_name, number))] = offset
        _log_reset(header, len(to))
        return request.response(ResponseCode.SUCCESS, body=await encode_in_slices(ResetOffsetBody(offset_table=table)))

    def _at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        if timestamp_ms < 0:
            return self._store.max_offset_in_queue(topic, queue_id)
        return self._store.offset_at(topic, queue_id, timestamp_ms)

    async def _reset_in_clients(
        self, channel: Channel, request: RemotingCommand, request_header: ResetOffsetRequestHeader
    ) -> RemotingCommand:
        config = self._topics.get(request_header.topic)
        if config is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={request_header.topic}"
            return request.response(ResponseCode.TOPIC_NOT_EXIST, remark)
        table: dict[MessageQueue, int] = {}
        async for queue_id in in_slices(queue_ids(request_header.topic, config.write_queue_nums)):
            consumed = self._offsets.query(request_header.group, request_header.topic, queue_id)
            if consumed == -1:
                return request.response(
                    ResponseCode.SYSTEM_ERROR, f"THe consumer group <{request_header.group}> not exist"
                )
            at = self._at(request_header.topic, queue_id, request_header.timestamp)
            queue = MessageQueue(request_header.topic, self._config.broker.broker_name, queue_id)
            table[queue] = at if request_header.is_force or at < consumed else consumed
        group = self._consumers.group(request_header.group)
        if group is None:
            remark = (
                "Consumer not online, so can not reset offset, "
                f"Group: {request_header.group} Topic: {request_header.topic} Timestamp: {request_header.timestamp}"
            )
            return request.response(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        _log_reset(request_header, len(table))
        header = ResetOffsetRequestHeader(
            group=request_header.group, topic=request_header.topic, timestamp=request_header.timestamp
        )
        body = _reset_body(table, for_c=request.language == LanguageCode.CPP).encode()
        for client in group.clients:
            if client.version < _V3_0_7_SNAPSHOT:
                raise refusals.client_outdated(client.version)
            order = RemotingCommand.request(header, body, code=RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
            client.channel.invoke_oneway(order)
        return request.response(ResponseCode.SUCCESS, body=ResetOffsetBody(offset_table=keyed(table)).encode())

    # Other requests

    async def clone(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CLONE_GROUP_OFFSET. The answer is sent when the offsets are on disk."""
        header = request.read(CloneGroupOffsetRequestHeader)
        names.require_short("group", header.dest_group)
        given = (header.topic or "").strip()
        source = self._consumers.group(header.src_group)
        for topic in [given] if given else sorted(self._offsets.topics_of(header.src_group)):
            if topic not in self._topics:
                continue
            if not header.offline and source is not None and source.subscriptions and topic not in source.subscriptions:
                continue
            is_connected = header.dest_group in self._consumers.groups_of(topic)
            self._offsets.clone(header.src_group, header.dest_group, topic, is_connected=is_connected)
        await self._persistence.save(CONSUMER_OFFSET)
        return request.response(ResponseCode.SUCCESS)

    def correction(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """QUERY_CORRECTION_OFFSET: the lowest offset of all groups, by queue.

        It is LONG_MAX for a queue in which the compared group is behind it.
        """
        header = request.read(QueryCorrectionOffsetHeader)
        left_out = [group for group in (header.filter_groups or "").split(",") if group]
        min_offsets = self._offsets.least_of_all_groups(header.topic, self._store.min_offset_in_queue, left_out)
        for queue_id, offset in (self._offsets.of(header.compare_group, header.topic) or {}).items():
            if min_offsets.get(queue_id, -1) > offset:
                min_offsets[queue_id] = LONG_MAX
        return request.response(
            ResponseCode.SUCCESS, body=QueryCorrectionOffsetBody(correction_offsets=min_offsets).encode()
        )

    async def get_all(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_CONSUMER_OFFSET."""
        async with self._long.turn(channel, len(self._offsets)):
            body = await encode_in_slices(self._offsets.to_body())
            return request.response(ResponseCode.SUCCESS, body=body)

    def delay_offsets(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_DELAY_OFFSET: the offset up to which each delay level is delivered."""
        table = dict(sorted(self._store.delay_offsets.items()))
        return request.response(ResponseCode.SUCCESS, body=fastjson.dumps({"offsetTable": table}))


def _log_reset(header: ResetOffsetRequestHeader, queues: int) -> None:
    """Log that offsets were reset, because messages may be skipped or delivered again."""
    to = {"timestamp_ms": header.timestamp, "offset": header.offset}
    log.warning("an administrator has reset offsets", group=header.group, topic=header.topic, queues=queues, **to)


def _reset_body(table: dict[MessageQueue, int], *, for_c: bool) -> Body:
    if not for_c:
        return ResetOffsetBody(offset_table=keyed(table))
    return ResetOffsetBodyForC(
        offset_table=[
            MessageQueueForC(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id, offset=offset)
            for queue, offset in table.items()
        ]
    )


def routes(context: BrokerContext) -> Routes:
    """The rows of the administration of committed offsets."""
    offsets = OffsetAdminProcessor(
        context.config, context.storage.store, context.tables, context.sessions.consumers, context.pop
    )
    return {
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Route(
            offsets.reset, on(ResetOffsetRequestHeader, UPDATE, group_in("group"), topic_in()), after_dispatch=True
        ),
        RequestCode.CLONE_GROUP_OFFSET: Route(
            offsets.clone,
            on(CloneGroupOffsetRequestHeader, UPDATE, group_in("dest_group"), topic_in()),
            after_dispatch=False,
        ),
        RequestCode.QUERY_CORRECTION_OFFSET: Route(
            offsets.correction,
            on(QueryCorrectionOffsetHeader, GET, group_in("filter_groups", ","), group_in("compare_group"), topic_in()),
            after_dispatch=False,
        ),
        RequestCode.GET_ALL_CONSUMER_OFFSET: Route(offsets.get_all, READS_CLUSTER, after_dispatch=False),
        RequestCode.GET_ALL_DELAY_OFFSET: Route(offsets.delay_offsets, READS_CLUSTER, after_dispatch=False),
    }
