"""Request and reply: a request is a message that names its sender, a reply is pushed to that sender by a broker.

A broker knows the sender by its heartbeat. A reply is sent to the reply topic of the cluster in which the request was
stored. It names the request by a correlation id.

Source: MessageUtil, RequestFutureHolder, RequestResponseFuture, ClientRemotingProcessor.receiveReplyMessage,
DefaultMQProducerImpl.prepareSendRequest.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import cast

from gantrymq.client.namespace import without_namespace
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.client.requests.records import or_as_stored
from gantrymq.client.settings import ClientConfig
from gantrymq.clock import Clock
from gantrymq.errors import MQClientError
from gantrymq.format.properties import decode_properties
from gantrymq.logs import get_logger
from gantrymq.model.host import Host
from gantrymq.model.java import encode_utf8
from gantrymq.model.message import (
    PROPERTY_CLUSTER,
    PROPERTY_CORRELATION_ID,
    PROPERTY_MESSAGE_TYPE,
    PROPERTY_REPLY_ARRIVE_TIME,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_TTL,
    REPLY_TYPE,
    Message,
    StoredMessage,
)
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.send import ReplyMessageRequestHeader
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestDispatcher

log = get_logger("gantrymq.client.producer")


def create_reply_message(request: StoredMessage, body: bytes | bytearray | memoryview) -> Message:
    """The reply to a request; any producer may send it. Raises MQClientError if ``request`` is not a request.

    Properties may be added to it. (MessageUtil.createReplyMessage)
    """
    if not isinstance(cast(object, request), StoredMessage):
        raise MQClientError(f"request={request!r:.80} is not allowed: a message that a consumer received")
    given = request.properties
    missing = [
        name for name in (PROPERTY_CLUSTER, PROPERTY_CORRELATION_ID, PROPERTY_REPLY_TO_CLIENT) if not given.get(name)
    ]
    if missing:
        raise MQClientError(f"create reply message fail, requestMessage error, property[{missing[0]}] is null.")
    properties = {
        PROPERTY_MESSAGE_TYPE: REPLY_TYPE,
        PROPERTY_CORRELATION_ID: given[PROPERTY_CORRELATION_ID],
        PROPERTY_REPLY_TO_CLIENT: given[PROPERTY_REPLY_TO_CLIENT],
    }
    if PROPERTY_TTL in given:
        properties[PROPERTY_TTL] = given[PROPERTY_TTL]
    return Message(reply_topic(given[PROPERTY_CLUSTER]), body, properties=properties)


def reply_topic(cluster: str) -> str:
    """The topic of the replies to requests that are stored in a cluster."""
    return f"{cluster}_REPLY_TOPIC"


class PendingReplies:
    """The requests that wait for a reply. Thread rule: the event loop's thread, except :meth:`mark`."""

    def __init__(self, config: ClientConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Register the handler of replies with this dispatcher."""
        dispatcher.register(self._push, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)

    def mark(self, message: Message, client_id: str, timeout_ms: int) -> tuple[Message, str]:
        """A copy of a message that asks for a reply, and its correlation id. Thread rule: any thread."""
        correlation_id = str(uuid.uuid4())
        marks = {
            PROPERTY_CORRELATION_ID: correlation_id,
            PROPERTY_REPLY_TO_CLIENT: client_id,
            PROPERTY_TTL: str(timeout_ms),
        }
        return replace(message, properties={**message.properties, **marks}), correlation_id

    def expect(self, correlation_id: str) -> asyncio.Future[ReceivedMessage]:
        """The future of the reply to a request. :meth:`forget` it afterwards."""
        made: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = made
        return made

    def forget(self, correlation_id: str) -> None:
        """Stop waiting for the reply to a request."""
        self._waiting.pop(correlation_id, None)

    def close(self) -> None:
        """End all waiting requests with MQClientError."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(MQClientError("the producer was closed before the reply"))
                waiting.exception()  # after a failed send nothing reads the exception, and asyncio would warn

    def _push(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """PUSH_REPLY_MESSAGE_TO_CLIENT. A reply that no request waits for is logged, and accepted as in RocketMQ."""
        try:
            reply = self._read(request)
        except ValueError as error:  # of a host or the properties
            log.warning("a reply cannot be read", broker=channel.address, reason=str(error))
            return request.response(ResponseCode.SYSTEM_ERROR, "process reply message fail")
        correlation_id = reply.properties.get(PROPERTY_CORRELATION_ID, "")
        waiting = self._waiting.get(correlation_id)
        if waiting is None:
            log.warning("no request waits for a reply", correlation_id=correlation_id, replier=str(reply.born_host))
        elif not waiting.done():
            waiting.set_result(reply)
        return request.response(ResponseCode.SUCCESS)

    def _read(self, request: RemotingCommand) -> ReceivedMessage:
        header = request.read(ReplyMessageRequestHeader)
        properties = decode_properties(encode_utf8(header.properties or ""))
        properties[PROPERTY_REPLY_ARRIVE_TIME] = str(self._clock.now_ms())
        message = ReceivedMessage(
            topic=without_namespace(self._config.namespace, header.topic),
            queue_id=header.queue_id,
            queue_offset=0,
            phy_offset=0,
            size_bytes=0,
            flag=header.flag,
            sys_flag=header.sys_flag,
            born_timestamp_ms=header.born_timestamp,
            born_host=Host.parse(header.born_host),
            store_timestamp_ms=header.store_timestamp,
            store_host=Host.parse(header.store_host),
            reconsume_times=header.reconsume_times or 0,
            prepared_transaction_offset=0,
            body_crc=0,
            body=request.body,
            properties=properties,
        )
        return or_as_stored(message, self._config.max_decompressed_body_size)
