"""SEND_REPLY_MESSAGE: a reply in request-reply messaging, pushed to the producer that waits for it.

Source: ReplyMessageProcessor.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from gantrymq.broker.appends.put_queue import OVERLOAD, AdmissionLimit, PutQueue
from gantrymq.broker.appends.send_properties import is_illegal, read_properties
from gantrymq.broker.metrics.meter import BrokerMeter
from gantrymq.broker.processors.send import Refusal, SendHeader
from gantrymq.broker.sessions.producers import ProducerManager
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.errors import GantrymqError
from gantrymq.format.properties import encode_properties
from gantrymq.model.host import Host
from gantrymq.model.message import (
    PROPERTY_MSG_REGION,
    PROPERTY_PUSH_REPLY_TIME,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_TRACE_SWITCH,
    Message,
)
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.send import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from gantrymq.remoting.transport.channel import Channel
from gantrymq.store.log.appendable import AppendableMessage
from gantrymq.store.put_result import PutMessageResult

_CALL_TIMEOUT_MS = 10_000


class ReplyMessageProcessor:
    """Pushes replies to the clients that wait for them, and stores them if storeReplyMessageEnable is set.

    ``check`` performs the checks of every send; it raises Refusal.
    """

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        producers: ProducerManager,
        puts: PutQueue,
        check: Callable[[Channel, SendHeader], TopicConfig],
        address: str,
        meter: BrokerMeter,
    ) -> None:
        self._config, self._clock, self._producers = config, clock, producers
        self._puts, self._check, self._address, self._meter = puts, check, address, meter
        self._under_way = AdmissionLimit(config)  # a limit of their own, so that clients that hang do not block sends

    async def reply(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Answer when the waiting client has the reply and, if replies are stored, the log has it."""
        is_v1 = request.code == RequestCode.SEND_REPLY_MESSAGE
        asked: SendHeader
        asked = request.read(SendMessageRequestHeader) if is_v1 else request.read(SendMessageRequestHeaderV2)
        try:
            topic = self._check(channel, asked)
        except Refusal as refusal:
            return self._with_region(request.response(refusal.code, refusal.remark))
        queue_id = asked.queue_id if asked.queue_id >= 0 else random.randrange(max(topic.write_queue_nums, 1))
        properties = read_properties(asked.properties)
        self._mark(properties)
        if not self._under_way.enter(1, len(request.body)):
            return self._with_region(request.response(ResponseCode.SYSTEM_BUSY, OVERLOAD))
        try:
            failure = await self._push(channel, asked, request.body, dict(properties))
        finally:
            self._under_way.leave(1, len(request.body))
        header = SendMessageResponseHeader(msg_id="0", queue_id=queue_id, queue_offset=0)
        if failure is None:
            response = request.response(ResponseCode.SUCCESS, header=header)
        else:
            response = request.response(ResponseCode.SYSTEM_ERROR, failure, header=header)
        if self._config.broker.store_reply_message_enable:
            message = self._message(channel, request, asked, queue_id, properties)
            self._store(channel, request, response, message, asked.properties)
            return None
        return self._with_region(response)

    async def _push(self, channel: Channel, asked: SendHeader, body: bytes, properties: dict[str, str]) -> str | None:
        """Push a reply to its client. Returns the error text, or None on success."""
        client_id = properties.get(PROPERTY_REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{PROPERTY_REPLY_TO_CLIENT}] is null"
        client = self._producers.find(client_id)
        if client is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now_ms = self._clock.now_ms()
        properties[PROPERTY_PUSH_REPLY_TIME] = str(now_ms)
        header = ReplyMessageRequestHeader(
            producer_group=asked.producer_group,
            topic=asked.topic,
            default_topic=asked.default_topic,
            default_topic_queue_nums=asked.default_topic_queue_nums,
            queue_id=asked.queue_id,
            sys_flag=asked.sys_flag,
            born_timestamp=asked.born_timestamp,
            flag=asked.flag,
            properties=encode_properties(properties).decode(),
            reconsume_times=asked.reconsume_times,
            unit_mode=bool(asked.unit_mode),
            born_host=channel.address,
            store_host=self._address,
            store_timestamp=now_ms,
        )
        try:
            answer = await client.channel.invoke(RemotingCommand.request(header, body), _CALL_TIMEOUT_MS)
        except GantrymqError:
            return f"push reply message to {client_id}fail."
        return None if answer.code == ResponseCode.SUCCESS else f"push reply message to {client_id}fail."

    def _message(
        self,
        channel: Channel,
        request: RemotingCommand,
        asked: SendHeader,
        queue_id: int,
        properties: dict[str, str],
    ) -> Message:
        return Message(
            asked.topic,
            request.body,
            queue_id,
            properties=properties,
            flag=asked.flag,
            born_timestamp_ms=asked.born_timestamp,
            born_host=Host.parse(channel.address),
            reconsume_times=asked.reconsume_times or 0,
        )

    def _store(
        self,
        channel: Channel,
        request: RemotingCommand,
        response: RemotingCommand,
        message: Message,
        properties: str | None,
    ) -> None:
        def stored(result: PutMessageResult | None, busy: str | None) -> None:
            answer = response
            if result is not None and result.is_stored:
                self._meter.stored(result, properties)
                header = SendMessageResponseHeader(
                    msg_id=result.msg_id, queue_id=message.queue_id, queue_offset=result.queue_offset
                )
                answer = request.response(response.code, response.remark, header=header)
            channel.respond(request, self._with_region(answer))

        is_refused = is_illegal(message.body, message.properties, message.sys_flag)
        if is_refused or not self._puts.put(AppendableMessage(message), channel, stored):
            # The client has the reply; storing it is optional.
            channel.respond(request, self._with_region(response))

    def _with_region(self, response: RemotingCommand) -> RemotingCommand:
        self._mark(response.ext_fields)
        return response

    def _mark(self, fields: dict[str, str]) -> None:
        broker = self._config.broker
        fields[PROPERTY_MSG_REGION], fields[PROPERTY_TRACE_SWITCH] = (
            broker.region_id,
            "true" if broker.trace_on else "false",
        )
