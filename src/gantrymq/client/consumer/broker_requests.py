"""Requests that a broker sends to a consumer, and the running info that a consumer reports.

Source: ClientRemotingProcessor, DefaultMQPushConsumerImpl.consumerRunningInfo, MQClientInstance.consumerRunningInfo,
ConsumerRunningInfo.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum

from gantrymq.client.consumer.fetch.process_queue import AssignedQueue
from gantrymq.client.consumer.group.group_client import GroupClient
from gantrymq.client.consumer.group.member import GroupMember
from gantrymq.client.consumer.group.offsets import OffsetStore
from gantrymq.client.consumer.statistics import ConsumerStatistics
from gantrymq.client.requests.calls import PullResult, PullStatus
from gantrymq.client.requests.received import ReceivedMessage, received
from gantrymq.client.requests.records import decode_records
from gantrymq.clock import monotonic_ms
from gantrymq.logs import get_logger
from gantrymq.model.message_queue import MessageQueue
from gantrymq.model.size import MAX_DECOMPRESSED_BODY_SIZE
from gantrymq.remoting.bodies.client import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from gantrymq.remoting.bodies.group import GetConsumerStatusBody, ResetOffsetBody
from gantrymq.remoting.body import by_queue, decode_body, keyed
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from gantrymq.remoting.headers.offset import ResetOffsetRequestHeader
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestDispatcher

CLIENT_VERSION = "V5_5_0"
_SECRET = frozenset(("access_key", "secret_key", "security_token", "tls"))


def running_info(
    member: GroupMember,
    queues: Iterable[AssignedQueue],
    offsets: OffsetStore,
    statistics: ConsumerStatistics,
    started_ms: int,
    extra: Mapping[str, str],
) -> ConsumerRunningInfo:
    """The answer to GET_CONSUMER_RUNNING_INFO, without secrets."""
    now_ms = monotonic_ms(member.clock)
    wall_ahead_ms = member.clock.now_ms() - now_ms
    return ConsumerRunningInfo(
        properties=running_properties(member, started_ms) | dict(extra),
        subscription_set=list(member.subscriptions.values()),
        mq_table=keyed({queue.queue: queue.info(offsets.read(queue.queue) or 0, wall_ahead_ms) for queue in queues}),
        status_table={topic: statistics.status(topic, now_ms) for topic in member.subscriptions},
    )


def running_properties(client: GroupClient, started_ms: int) -> dict[str, str]:
    """The settings and the state of a client, without secrets."""
    return _settings(client) | {
        "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in client.config.name_server_list),
        "PROP_CONSUME_TYPE": client.consume_type,
        "PROP_CLIENT_VERSION": CLIENT_VERSION,
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
    }


def _settings(client: GroupClient) -> dict[str, str]:
    """The settings by RocketMQ's spelling of their names."""
    shown = {}
    for field in fields(client.config):
        value = getattr(client.config, field.name)
        if field.name in _SECRET or not isinstance(value, str | int | bool | Enum):
            continue
        first, *rest = field.name.split("_")
        name = first + "".join(word.capitalize() for word in rest)
        shown[name] = value.name if isinstance(value, Enum) else str(value)
    return shown


log = get_logger("gantrymq.client.consumer")


@dataclass(frozen=True, slots=True)
class ClientAnswers:
    """The callbacks by which a consumer answers its brokers. None: this kind of consumer does not support the request.

    A message that a broker sends is decompressed up to ``max_decompressed_body_size`` bytes.
    """

    group: str
    rebalance: Callable[[], None]
    running_info: Callable[[], ConsumerRunningInfo]
    offsets: Callable[[], dict[MessageQueue, int]]
    reset: Callable[[str, dict[MessageQueue, int]], Awaitable[None]] | None = None
    directly: Callable[[ReceivedMessage], Awaitable[ConsumeMessageDirectlyResult]] | None = None
    max_decompressed_body_size: int = MAX_DECOMPRESSED_BODY_SIZE


class BrokerRequests:
    """Decodes the requests of brokers and answers them by the consumer's callbacks.

    Thread rule: the event loop's thread.
    """

    def __init__(self, answers: ClientAnswers) -> None:
        self._answers = answers

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Register all requests at a dispatcher."""
        dispatcher.register(self._ids_changed, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
        dispatcher.register(self._reset, RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
        dispatcher.register(self._status, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
        dispatcher.register(self._running_info, RequestCode.GET_CONSUMER_RUNNING_INFO)
        dispatcher.register(self._directly, RequestCode.CONSUME_MESSAGE_DIRECTLY)

    def _ids_changed(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        group = request.read(NotifyConsumerIdsChangedRequestHeader).consumer_group
        log.info("the members of a group changed", group=group, broker=channel.address)
        self._answers.rebalance()
        return None

    async def _reset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        header = request.read(ResetOffsetRequestHeader)
        table = by_queue(decode_body(ResetOffsetBody, request.body).offset_table) if request.body else {}
        log.info("offsets are reset", group=header.group, topic=header.topic, broker=channel.address)
        if header.group == self._answers.group and self._answers.reset is not None:
            await self._answers.reset(header.topic, table)
        return None

    def _status(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.read(GetConsumerStatusRequestHeader)
        offsets = self._answers.offsets() if header.group == self._answers.group else {}
        table = {queue: offset for queue, offset in offsets.items() if queue.topic == header.topic}
        response = request.response(ResponseCode.SUCCESS)
        response.body = GetConsumerStatusBody(message_queue_table=keyed(table)).encode()
        return response

    def _running_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.read(GetConsumerRunningInfoRequestHeader)
        if header.consumer_group != self._answers.group:
            return self._unknown(request, header.consumer_group)
        info = self._answers.running_info()
        if header.jstack_enable:
            info.jstack = _stacks()
        response = request.response(ResponseCode.SUCCESS)
        response.body = info.encode()
        return response

    async def _directly(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.read(ConsumeMessageDirectlyResultRequestHeader)
        if header.consumer_group != self._answers.group or self._answers.directly is None:
            return self._unknown(request, header.consumer_group)
        limit = self._answers.max_decompressed_body_size
        for stored in decode_records(request.body, max_decompressed_body_size=limit):
            queue = MessageQueue(stored.topic, header.broker_name or "", stored.queue_id)
            message = received(stored, queue, PullResult(PullStatus.FOUND, 0, 0, 0, 0, b""))
            response = request.response(ResponseCode.SUCCESS)
            response.body = (await self._answers.directly(message)).encode()
            return response
        return request.response(ResponseCode.SYSTEM_ERROR, "there is no message in the body")

    def _unknown(self, request: RemotingCommand, group: str) -> RemotingCommand:
        return request.response(ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer")


def _stacks() -> str:
    """The stack of every thread, as the answer to a request for a jstack."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "".join(
        f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}\n"
        for ident, frame in sys._current_frames().items()
    )
