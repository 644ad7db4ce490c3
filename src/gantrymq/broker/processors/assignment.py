"""The assignment of queues to consumers: QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE, GET_ALL_MESSAGE_REQUEST_MODE,
LOCK_BATCH_MQ, UNLOCK_BATCH_MQ.

Source: QueryAssignmentProcessor, TopicRouteInfoManager, MessageRequestModeManager, AdminBrokerProcessor.
"""

from __future__ import annotations

from collections.abc import Callable

from gantrymq.broker import names, refusals
from gantrymq.broker.acl.permissions import (
    CHANGES_CLUSTER,
    LOCK_BATCH_MQ,
    QUERY_ASSIGNMENT,
    READS_CLUSTER,
    UNLOCK_BATCH_MQ,
)
from gantrymq.broker.answers import LongAnswers, encode_in_slices
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.outer_api import BrokerOuterAPI
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.sessions.consumers import ConsumerManager
from gantrymq.broker.sessions.queue_locks import RebalanceLockManager
from gantrymq.broker.tables.persistence import MESSAGE_REQUEST_MODE
from gantrymq.broker.tables.request_modes import POP, PULL
from gantrymq.broker.tables.tables import Tables
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.model.message_queue import MessageQueue
from gantrymq.model.shares import contiguous, round_robin
from gantrymq.remoting.bodies.client import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
    UnlockBatchRequestBody,
)
from gantrymq.remoting.body import decode_request
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.turns import in_slices

_SHARES: dict[str, Callable[[list[MessageQueue], int, int], list[MessageQueue]]] = {
    "AVG": contiguous,
    "AVG_BY_CIRCLE": round_robin,
}


class LockProcessor:
    """Exclusive locks of queues for one client."""

    def __init__(self, locks: RebalanceLockManager, clock: Clock) -> None:
        self._locks, self._clock = locks, clock

    def lock(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """LOCK_BATCH_MQ: the queues that the client has locked."""
        body = decode_request(LockBatchRequestBody, request.body)
        names.require_short("group", body.consumer_group)
        names.require_short("client id", body.client_id)
        locked = self._locks.lock(body.consumer_group, body.mq_set, body.client_id, monotonic_ms(self._clock))
        return request.response(ResponseCode.SUCCESS, body=LockBatchResponseBody(lock_ok_mq_set=locked).encode())

    def unlock(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """UNLOCK_BATCH_MQ."""
        body = decode_request(UnlockBatchRequestBody, request.body)
        self._locks.unlock(body.consumer_group, body.mq_set, body.client_id)
        return request.response(ResponseCode.SUCCESS)


class QueryAssignmentProcessor:
    """Assigns queues to clients, and tells them how to consume: by PULL or by POP."""

    def __init__(self, config: LiveConfig, tables: Tables, consumers: ConsumerManager, outer: BrokerOuterAPI) -> None:
        self._config, self._consumers, self._outer = config, consumers, outer
        self._topics, self._groups, self._modes, self._persistence = (
            tables.topics,
            tables.groups,
            tables.request_modes,
            tables.persistence,
        )
        self._long = LongAnswers()

    async def query(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """QUERY_ASSIGNMENT: a client's share of a topic's queues at all brokers."""
        request_body = decode_request(QueryAssignmentRequestBody, request.body)
        mode = self._mode(request_body.topic, request_body.consumer_group)
        share = await self._share(request_body, mode)
        body = QueryAssignmentResponseBody()
        async with self._long.turn(channel, len(share or ())):
            if share is not None:
                given = [
                    MessageQueueAssignment(message_queue=queue, mode=mode.mode) async for queue in in_slices(share)
                ]
                body.message_queue_assignments = given
            return request.response(ResponseCode.SUCCESS, body=await encode_in_slices(body))

    def _mode(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        """The mode that was set, or the default one. A retry topic is pulled."""
        known_mode = self._modes.get(topic, group)
        if known_mode is not None:
            return known_mode
        broker = self._config.broker
        mode = PULL if topic.startswith(names.RETRY_PREFIX) else broker.default_message_request_mode
        share = broker.default_pop_share_queue_num if mode == POP else 0
        return SetMessageRequestModeRequestBody(topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=share)

    async def _share(
        self, body: QueryAssignmentRequestBody, mode: SetMessageRequestModeRequestBody
    ) -> list[MessageQueue] | None:
        queues = await self._outer.readable_queues(body.topic)
        if queues is None or body.message_model == "BROADCASTING":
            return queues
        if not self._config.broker.server_load_balancer_enable:
            return queues
        group = self._consumers.group(body.consumer_group)
        share = _SHARES.get(str(body.strategy_name))
        if group is None or share is None:
            return None
        clients = sorted(client.client_id for client in group.clients)
        if mode.mode == POP:
            return _share_for_pop(share, queues, clients, body.client_id, mode.pop_share_queue_num)
        if body.client_id not in clients:
            return []
        return share(queues, clients.index(body.client_id), len(clients))

    async def set_mode(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """SET_MESSAGE_REQUEST_MODE. The answer comes when the mode is durable."""
        body = decode_request(SetMessageRequestModeRequestBody, request.body)
        topic, group = body.topic, body.consumer_group
        if topic.startswith(names.RETRY_PREFIX):
            return request.response(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if topic not in self._topics:
            raise refusals.topic_missing(topic)
        if self._groups.find(group) is None:
            return request.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        if body.mode not in (PULL, POP):
            return request.response(ResponseCode.INVALID_PARAMETER, f"mode[{body.mode[:64]}] is not PULL or POP")
        self._modes.set(body)
        await self._persistence.save(MESSAGE_REQUEST_MODE)
        return request.response(ResponseCode.SUCCESS)

    async def get_all_modes(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_MESSAGE_REQUEST_MODE: the content of messageRequestMode.json."""
        table = self._modes.copy()
        async with self._long.turn(channel, len(self._modes)):
            return request.response(ResponseCode.SUCCESS, body=await encode_in_slices(table))


def _share_for_pop(
    share: Callable[[list[MessageQueue], int, int], list[MessageQueue]],
    queues: list[MessageQueue],
    clients: list[str],
    client_id: str,
    share_queue_num: int,
) -> list[MessageQueue]:
    """The queues that a client pops (allocate4Pop). Queue -1 means all queues of a broker.

    Several clients may pop one queue. So a client pops its own share and the shares of the ``share_queue_num`` clients
    after it. With 0, or with at least the number of the other clients, each client pops all queues.
    """
    count = len(clients)
    if share_queue_num <= 0 or share_queue_num >= count - 1:
        return sorted({MessageQueue(queue.topic, queue.broker_name, -1) for queue in queues})
    if client_id not in clients:
        return []
    index = clients.index(client_id)
    if count > len(queues):
        return [queues[index % len(queues)]] if queues else []
    owners = ((index + at) % count for at in range(share_queue_num + 1))
    return [queue for owner in owners for queue in share(queues, owner, count)]


def routes(context: BrokerContext) -> Routes:
    """The rows of assignments and locks."""
    assignment = QueryAssignmentProcessor(context.config, context.tables, context.sessions.consumers, context.outer)
    locks = LockProcessor(context.sessions.locks, context.clock)
    return {
        RequestCode.QUERY_ASSIGNMENT: Route(assignment.query, QUERY_ASSIGNMENT, after_dispatch=False),
        RequestCode.SET_MESSAGE_REQUEST_MODE: Route(assignment.set_mode, CHANGES_CLUSTER, after_dispatch=False),
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: Route(assignment.get_all_modes, READS_CLUSTER, after_dispatch=False),
        RequestCode.LOCK_BATCH_MQ: Route(locks.lock, LOCK_BATCH_MQ, after_dispatch=False),
        RequestCode.UNLOCK_BATCH_MQ: Route(locks.unlock, UNLOCK_BATCH_MQ, after_dispatch=False),
    }
