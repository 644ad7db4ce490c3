"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ.

Source: AdminBrokerProcessor.
"""

from __future__ import annotations

from gantrymq.broker import names
from gantrymq.broker.queue_locks import RebalanceLockManager
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.remoting.bodies.client import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from gantrymq.remoting.body import decode_request
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel


class LockProcessor:
    """Queues for one client alone."""

    def __init__(self, locks: RebalanceLockManager, clock: Clock) -> None:
        self._locks, self._clock = locks, clock

    def lock(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """LOCK_BATCH_MQ: the queues that the client has now."""
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
