"""SEND_REPLY_MESSAGE: a reply in request-reply messaging, pushed to the producer that waits for it.

Source: ReplyMessageProcessor.
"""

from __future__ import annotations

import random

from gantrymq.broker import refusals
from gantrymq.broker.acl.permissions import send
from gantrymq.broker.appends.put_queue import AdmissionLimit
from gantrymq.broker.appends.send_properties import is_message_illegal, read_properties
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.metrics.meter import BrokerMeter
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.processors.send import mark_region, with_region
from gantrymq.broker.processors.send_checks import SendChecks, SendHeader, read_header
from gantrymq.broker.sessions.producers import ProducerManager
from gantrymq.broker.storage import Storage
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.errors import GantrymqError
from gantrymq.format.properties import encode_properties
from gantrymq.model.host import Host
from gantrymq.model.message import (
    PROPERTY_PUSH_REPLY_TIME,
    PROPERTY_REPLY_TO_CLIENT,
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
from gantrymq.remoting.transport.dispatcher import RequestRefused
from gantrymq.store.log.appendable import AppendableMessage
from gantrymq.store.put_result import PutMessageResult

_CALL_TIMEOUT_MS = 10_000


class ReplyMessageProcessor:
    """Pushes replies to the clients that wait for them, and stores them if storeReplyMessageEnable is set."""

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        storage: Storage,
        topics: TopicConfigManager,
        producers: ProducerManager,
        meter: BrokerMeter,
    ) -> None:
        self._config, self._clock, self._topics = config, clock, topics
        self._producers, self._puts, self._meter = producers, storage.puts, meter
        self._checks, self._store_host = SendChecks(config, clock, topics), str(storage.store.store_host)
        self._under_way = AdmissionLimit(config)  # a limit of their own, so that clients that hang do not block sends

    async def reply(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Answer when the waiting client has the reply and, if replies are stored, the log has it."""
        request_header, broker = read_header(request), self._config.broker
        try:
            topic = self._checks.check(channel, request_header)
        except RequestRefused as refusal:
            return with_region(refusal.answer(request), broker)
        queue_id = (
            request_header.queue_id
            if request_header.queue_id >= 0
            else random.randrange(max(topic.write_queue_nums, 1))
        )
        properties = read_properties(request_header.properties)
        mark_region(properties, broker)
        if not self._under_way.enter(1, len(request.body)):
            return with_region(refusals.overload().answer(request), broker)
        try:
            failure = await self._push(channel, request_header, request.body, dict(properties))
        finally:
            self._under_way.leave(1, len(request.body))
        header = SendMessageResponseHeader(msg_id="0", queue_id=queue_id, queue_offset=0)
        if failure is None:
            response = request.response(ResponseCode.SUCCESS, header=header)
        else:
            response = request.response(ResponseCode.SYSTEM_ERROR, failure, header=header)
        if broker.store_reply_message_enable:
            message = self._message(channel, request, request_header, queue_id, properties)
            self._store(channel, request, response, message, request_header.properties, topic)
            return None
        return with_region(response, broker)

    async def _push(
        self, channel: Channel, request_header: SendHeader, body: bytes, properties: dict[str, str]
    ) -> str | None:
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
            producer_group=request_header.producer_group,
            topic=request_header.topic,
            default_topic=request_header.default_topic,
            default_topic_queue_nums=request_header.default_topic_queue_nums,
            queue_id=request_header.queue_id,
            sys_flag=request_header.sys_flag,
            born_timestamp=request_header.born_timestamp,
            flag=request_header.flag,
            properties=encode_properties(properties).decode(),
            reconsume_times=request_header.reconsume_times,
            unit_mode=bool(request_header.unit_mode),
            born_host=channel.address,
            store_host=self._store_host,
            store_timestamp=now_ms,
        )
        failed = f"push reply message to {client_id}fail."
        try:
            answer = await client.channel.invoke(RemotingCommand.request(header, body), _CALL_TIMEOUT_MS)
        except GantrymqError:
            return failed
        return None if answer.code == ResponseCode.SUCCESS else failed

    def _message(
        self,
        channel: Channel,
        request: RemotingCommand,
        header: SendHeader,
        queue_id: int,
        properties: dict[str, str],
    ) -> Message:
        return Message(
            header.topic,
            request.body,
            queue_id,
            properties=properties,
            flag=header.flag,
            born_timestamp_ms=header.born_timestamp,
            born_host=Host.parse(channel.address),
            reconsume_times=header.reconsume_times or 0,
        )

    def _store(
        self,
        channel: Channel,
        request: RemotingCommand,
        response: RemotingCommand,
        message: Message,
        properties: str | None,
        topic: TopicConfig,
    ) -> None:
        def stored(result: PutMessageResult | None, busy: str | None) -> None:
            answer = response
            if result is not None and result.is_stored:
                self._meter.stored(result, properties)
                header = SendMessageResponseHeader(
                    msg_id=result.msg_id, queue_id=message.queue_id, queue_offset=result.queue_offset
                )
                answer = request.response(response.code, response.remark, header=header)
            channel.respond(request, with_region(answer, self._config.broker))

        is_refused = is_message_illegal(message.body, message.properties, message.sys_flag)
        if is_refused or not self._puts.put(AppendableMessage(message), channel, stored):
            # The client has the reply; storing it is optional.
            channel.respond(request, with_region(response, self._config.broker))
        else:
            self._topics.add(topic)


def routes(context: BrokerContext) -> Routes:
    """The rows of replies."""
    replies = ReplyMessageProcessor(
        context.config,
        context.clock,
        context.storage,
        context.tables.topics,
        context.sessions.producers,
        context.measures.meter,
    )
    return {
        RequestCode.SEND_REPLY_MESSAGE: Route(replies.reply, send(SendMessageRequestHeader), after_dispatch=False),
        RequestCode.SEND_REPLY_MESSAGE_V2: Route(replies.reply, send(SendMessageRequestHeaderV2), after_dispatch=False),
    }
