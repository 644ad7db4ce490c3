"""The assignment of queues to consumers: QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE, GET_ALL_MESSAGE_REQUEST_MODE,
LOCK_BATCH_MQ, UNLOCK_BATCH_MQ.

Source: QueryAssignmentProcessor, TopicRouteInfoManager, MessageRequestModeManager, AdminBrokerProcessor.
"""

from __future__ import annotations

from collections.abc import Callable

from gantrymq.broker import names
from gantrymq.broker.answers import LongAnswers, encode_in_slices
from gantrymq.broker.outer_api import BrokerOuterAPI
from gantrymq.broker.sessions.consumers import ConsumerManager
from gantrymq.broker.sessions.queue_locks import RebalanceLockManager
from gantrymq.broker.tables.persistence import MESSAGE_REQUEST_MODE, ConfigPersistence
from gantrymq.broker.tables.request_modes import POP, PULL, MessageRequestModeManager
from gantrymq.broker.tables.subscription_groups import SubscriptionGroupManager
from gantrymq.broker.tables.topics import TopicConfigManager
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
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.turns import in_slices


class LockProcessor:
    """Exclusive locks of queues for one client."""

    def __init__(self, locks: RebalanceLockManager, clock: Clock) -> None:
        self._locks, self._clock = locks, clock

    def lock(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """LOCK_BATCH_MQ: the queues that the client has locked."""
        asked = decode_request(LockBatchRequestBody, request.body)
        names.require_short("group", asked.consumer_group)
        names.require_short("client id", asked.client_id)
        locked = self._locks.lock(asked.consumer_group, asked.mq_set, asked.client_id, monotonic_ms(self._clock))
        return request.response(ResponseCode.SUCCESS, body=LockBatchResponseBody(lock_ok_mq_set=locked).encode())

    def unlock(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """UNLOCK_BATCH_MQ."""
        asked = decode_request(UnlockBatchRequestBody, request.body)
        self._locks.unlock(asked.consumer_group, asked.mq_set, asked.client_id)
        return request.response(ResponseCode.SUCCESS)


_SHARES: dict[str, Callable[[list[MessageQueue], int, int], list[MessageQueue]]] = {
    "AVG": contiguous,
    "AVG_BY_CIRCLE": round_robin,
}


class QueryAssignmentProcessor:
    """Assigns queues to clients, and tells them how to consume: by PULL or by POP."""

    def __init__(
        self,
        config: LiveConfig,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        modes: MessageRequestModeManager,
        kept: ConfigPersistence,
        outer: BrokerOuterAPI,
    ) -> None:
        self._config, self._topics, self._groups = config, topics, groups
        self._consumers, self._modes, self._kept, self._outer = consumers, modes, kept, outer
        self._long = LongAnswers()

    async def query(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """QUERY_ASSIGNMENT: a client's share of a topic's queues at all brokers."""
        asked = decode_request(QueryAssignmentRequestBody, request.body)
        mode = self._mode(asked.topic, asked.consumer_group)
        share = await self._share(asked, mode)
        body = QueryAssignmentResponseBody()
        async with self._long.turn(channel, len(share or ())):
            if share is not None:
                given = [MessageQueueAssignment(message_queue=one, mode=mode.mode) async for one in in_slices(share)]
                body.message_queue_assignments = given
            return request.response(ResponseCode.SUCCESS, body=await encode_in_slices(body))

    def _mode(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        """The mode that was set, or the default one. A retry topic is pulled."""
        found = self._modes.get(topic, group)
        if found is not None:
            return found
        broker = self._config.broker
        mode = PULL if topic.startswith(names.RETRY_PREFIX) else broker.default_message_request_mode
        share = broker.default_pop_share_queue_num if mode == POP else 0
        return SetMessageRequestModeRequestBody(topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=share)

    async def _share(
        self, asked: QueryAssignmentRequestBody, mode: SetMessageRequestModeRequestBody
    ) -> list[MessageQueue] | None:
        queues = await self._outer.readable_queues(asked.topic)
        if queues is None or asked.message_model == "BROADCASTING":
            return queues
        if not self._config.broker.server_load_balancer_enable:
            return queues
        group = self._consumers.group(asked.consumer_group)
        share = _SHARES.get(str(asked.strategy_name))
        if group is None or share is None:
            return None
        clients = sorted(client.client_id for client in group.clients)
        if mode.mode == POP:
            return _share_for_pop(share, queues, clients, asked.client_id, mode.pop_share_queue_num)
        if asked.client_id not in clients:
            return []
        return share(queues, clients.index(asked.client_id), len(clients))

    async def set_mode(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """SET_MESSAGE_REQUEST_MODE. The answer comes when the mode is durable."""
        asked = decode_request(SetMessageRequestModeRequestBody, request.body)
        topic, group = asked.topic, asked.consumer_group
        if topic.startswith(names.RETRY_PREFIX):
            return request.response(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if topic not in self._topics:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        if self._groups.find(group) is None:
            return request.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        if asked.mode not in (PULL, POP):
            return request.response(ResponseCode.INVALID_PARAMETER, f"mode[{asked.mode[:64]}] is not PULL or POP")
        self._modes.set(asked)
        await self._kept.save(MESSAGE_REQUEST_MODE)
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
