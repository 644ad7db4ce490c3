"""The assignment of queues to consumers: QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE, LOCK_BATCH_MQ, UNLOCK_BATCH_MQ.

Source: QueryAssignmentProcessor, TopicRouteInfoManager, MessageRequestModeManager, AdminBrokerProcessor.
"""

from __future__ import annotations

from gantrymq.broker import names
from gantrymq.broker.answers import LongAnswers, encode_in_slices
from gantrymq.broker.outer_api import BrokerOuterAPI
from gantrymq.broker.sessions.consumers import ConsumerManager
from gantrymq.broker.sessions.queue_locks import RebalanceLockManager
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


_SHARES = {"AVG": contiguous, "AVG_BY_CIRCLE": round_robin}


class QueryAssignmentProcessor:
    """Assigns queues to clients. The mode is always PULL, because this broker has no POP."""

    def __init__(
        self,
        config: LiveConfig,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        outer: BrokerOuterAPI,
    ) -> None:
        self._config, self._topics, self._groups = config, topics, groups
        self._consumers, self._outer = consumers, outer
        self._long = LongAnswers()

    async def query(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """QUERY_ASSIGNMENT: a client's share of a topic's queues at all brokers."""
        share = await self._share(decode_request(QueryAssignmentRequestBody, request.body))
        body = QueryAssignmentResponseBody()
        async with self._long.turn(channel, len(share or ())):
            if share is not None:
                given = [MessageQueueAssignment(message_queue=one) async for one in in_slices(share)]
                body.message_queue_assignments = given
            return request.response(ResponseCode.SUCCESS, body=await encode_in_slices(body))

    async def _share(self, asked: QueryAssignmentRequestBody) -> list[MessageQueue] | None:
        queues = await self._outer.readable_queues(asked.topic)
        if queues is None or asked.message_model == "BROADCASTING":
            return queues
        group = self._consumers.group(asked.consumer_group)
        share = _SHARES.get(str(asked.strategy_name))
        if group is None or share is None:
            return None
        clients = sorted(client.client_id for client in group.clients)
        if asked.client_id not in clients:
            return []
        return share(queues, clients.index(asked.client_id), len(clients))

    def set_mode(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """SET_MESSAGE_REQUEST_MODE: accepts only PULL, which is the mode anyway."""
        asked = decode_request(SetMessageRequestModeRequestBody, request.body)
        topic, group = asked.topic, asked.consumer_group
        if topic.startswith(names.RETRY_PREFIX):
            return request.response(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if topic not in self._topics:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        if self._groups.find(group) is None:
            return request.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        if asked.mode != "PULL":
            remark = f"the broker[{self._config.broker.broker_ip1}] pop message is forbidden"
            return request.response(ResponseCode.NO_PERMISSION, remark)
        return request.response(ResponseCode.SUCCESS)
