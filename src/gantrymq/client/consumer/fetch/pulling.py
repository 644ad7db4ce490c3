"""Pulls one queue for as long as it is assigned.

Source: DefaultMQPushConsumerImpl.pullMessage, DefaultLitePullConsumerImpl.PullTaskImpl, PullAPIWrapper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic

from gantrymq.client.consumer.fetch.process_queue import Q
from gantrymq.client.consumer.group.member import GroupMember
from gantrymq.client.requests import calls
from gantrymq.client.requests.calls import PullResult, PullStatus
from gantrymq.client.requests.group_calls import GroupPull, group_pull
from gantrymq.client.requests.received import ReceivedMessage, pulled_messages
from gantrymq.client.runtime.logged_once import LoggedOnce
from gantrymq.clock import monotonic_ms
from gantrymq.errors import GantrymqError, MQBrokerError, RemotingConnectError
from gantrymq.logs import get_logger
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import SubscriptionData
from gantrymq.remoting.bodies.route import MASTER_ID
from gantrymq.remoting.codes import ResponseCode

FLOW_CONTROL_SECONDS = 0.05  # PULL_TIME_DELAY_MILLS_WHEN_CACHE_FLOW_CONTROL
BROKER_FLOW_CONTROL_SECONDS = 0.02
# The broker has not received our heartbeat yet. RocketMQ waits for the next one, up to 30 s.
NO_HEARTBEAT_YET_SECONDS = 0.5
PULL_TIMEOUT_MS = 30_000

log = get_logger("gantrymq.client.consumer")


@dataclass(frozen=True, slots=True)
class PullOwner(Generic[Q]):
    """The callbacks of the consumer for which a queue is pulled.

    ``may_pull``: whether the queue has room and is not suspended. ``deliver``: takes the messages and the duration of
    the pull in seconds. ``wanted``: the subscription of a topic. ``committed``: the offset to commit with the pull.
    ``matched_none``: takes the offset up to which no message matched. ``moved``: takes the offset to which the broker
    corrected ours, and returns whether to continue there.
    """

    may_pull: Callable[[Q], bool]
    deliver: Callable[[Q, list[ReceivedMessage], float], None]
    wanted: Callable[[str], SubscriptionData | None]
    committed: Callable[[Q], int | None]
    matched_none: Callable[[Q, int], None]
    moved: Callable[[Q, int], Awaitable[bool]]


class Puller(Generic[Q]):
    """Long polling: one pull of a queue is always under way while there is room for its result."""

    def __init__(
        self,
        member: GroupMember,
        rules: GroupPull,
        owner: PullOwner[Q],
        *,
        interval_ms: int,
        failure_ms: int,
        timeout_ms: int = PULL_TIMEOUT_MS,
    ) -> None:
        self._member, self._rules, self._owner = member, rules, owner
        self._interval_s, self._failure_s = interval_ms / 1000, failure_ms / 1000
        self._timeout_ms = timeout_ms
        self._broker_ids: dict[MessageQueue, int] = {}
        self._newest_ms: dict[MessageQueue, int] = {}  # the store time of the last message read
        self._told = LoggedOnce()

    async def run(self, queue: Q, offset: int) -> None:
        """Pull from ``offset`` until the queue is dropped."""
        at: int | None = offset
        while at is not None and not queue.dropped:
            queue.last_pull_ms = monotonic_ms(self._member.clock)
            wanted = self._owner.wanted(queue.queue.topic)
            if wanted is None or not self._owner.may_pull(queue):
                await asyncio.sleep(FLOW_CONTROL_SECONDS)
                continue
            try:
                at = await self._step(queue, at, wanted)
            except GantrymqError as error:
                self._broker_ids.pop(queue.queue, None)
                await asyncio.sleep(self._after(queue, error))
        self._broker_ids.pop(queue.queue, None)

    async def _step(self, queue: Q, offset: int, wanted: SubscriptionData) -> int | None:
        """Do one pull. Returns the next offset, or None to stop."""
        began_s = self._member.clock.monotonic_s()
        pulled = await self._pull(queue, offset, wanted)
        if queue.dropped:
            return None
        self._broker_ids[queue.queue] = pulled.suggest_which_broker_id
        self._told.is_over(queue.queue)
        if pulled.status is PullStatus.OFFSET_ILLEGAL:
            target = await self._target(queue.queue, offset, pulled)
            log.warning("a queue continues at another offset", queue=str(queue.queue), offset=target)
            return target if await self._owner.moved(queue, target) else None
        config = self._member.config
        messages = pulled_messages(
            pulled,
            queue.queue,
            wanted,
            decompressed=config.decode_decompress_body,
            max_decompressed_body_size=config.max_decompressed_body_size,
        )
        if messages:
            self._newest_ms[queue.queue] = messages[-1].store_timestamp_ms
            queue.put(messages, pulled.next_begin_offset)
            self._owner.deliver(queue, messages, self._member.clock.monotonic_s() - began_s)
        else:
            self._owner.matched_none(queue, pulled.next_begin_offset)
        await asyncio.sleep(self._interval_s if messages else 0)
        return pulled.next_begin_offset

    async def _target(self, queue: MessageQueue, offset: int, pulled: PullResult) -> int:
        """The offset at which to continue when the queue does not have ``offset``: usually the broker's suggestion.

        If the queue ends before ``offset``, it was recreated or has lost its end. The broker then suggests the current
        end, which would skip the messages stored since. So continue after the store time of the newest message that
        was read.
        """
        target, newest_ms = pulled.next_begin_offset, self._newest_ms.get(queue)
        if pulled.max_offset < offset and newest_ms is not None:
            target = min(target, await self._member.ask(queue, calls.search_offset(queue, newest_ms + 1)))
        return target

    async def _pull(self, queue: Q, offset: int, wanted: SubscriptionData) -> PullResult:
        route = await self._member.needed_route(queue.queue)
        address = route.address_of(queue.queue, self._broker_ids.get(queue.queue, MASTER_ID))
        is_master = address == route.masters.get(queue.queue.broker_name)
        committed = self._owner.committed(queue) if is_master else None
        call = group_pull(self._rules, queue.queue, offset, wanted, committed)
        try:
            return await self._member.client.call(address, call, self._timeout_ms)
        except RemotingConnectError:
            await self._member.find_route(queue.queue.topic)
            raise

    def _after(self, queue: Q, error: GantrymqError) -> float:
        code = error.response_code if isinstance(error, MQBrokerError) else None
        if code == ResponseCode.FLOW_CONTROL:
            return BROKER_FLOW_CONTROL_SECONDS
        if isinstance(error, MQBrokerError | RemotingConnectError):
            self._member.heartbeats.renew(error.address)
        if code in (ResponseCode.SUBSCRIPTION_NOT_LATEST, ResponseCode.SUBSCRIPTION_NOT_EXIST):
            return NO_HEARTBEAT_YET_SECONDS
        if self._told.is_due(queue.queue, str(error)):  # the error may last, as when the group may not consume
            log.warning("a pull failed", queue=str(queue.queue), reason=str(error))
        return self._failure_s
