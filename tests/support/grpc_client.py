"""A client of gRPC without an SDK: single calls with the classes of our own pool."""

from __future__ import annotations

import hashlib
import hmac
import queue
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import grpc

from gantrymq.grpc.protocol import messages
from gantrymq.grpc.protocol.codes import ClientType, GrpcMessageType
from gantrymq.grpc.protocol.messages import set_ms

_DONE = object()


class GrpcClient:
    """One client id on one connection."""

    def __init__(self, address: str, client_id: str = "", credentials: Any = None, **metadata: str) -> None:
        self.client_id = client_id or uuid4().hex
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        if credentials is None:
            self._channel = grpc.insecure_channel(address, options)
        else:
            options.append(("grpc.ssl_target_name_override", "gantrymq"))  # a server calls itself so
            self._channel = grpc.secure_channel(address, credentials, options)
        self._metadata = [
            ("x-mq-client-id", self.client_id),
            ("x-mq-language", "PYTHON"),
            ("x-mq-client-version", "5.1.2"),
            *((name.replace("_", "-"), value) for name, value in metadata.items()),
        ]
        self._commands: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stream: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._commands.put(_DONE)
        if self._stream is not None:
            self._stream.cancel()
        self._channel.close()

    def call(self, name: str, request: Any, timeout_s: float = 10) -> Any:
        request_type, response_type = messages.types_of(name)
        method = self._channel.unary_unary(
            f"/{messages.SERVICE}/{name}",
            request_serializer=request_type.SerializeToString,
            response_deserializer=response_type.FromString,
        )
        return method(request, metadata=self._metadata, timeout=timeout_s)

    # Streams

    def begin_receive(self, request: Any, timeout_s: float = 15) -> Any:
        method = self._channel.unary_stream(
            f"/{messages.SERVICE}/ReceiveMessage",
            request_serializer=messages.ReceiveMessageRequest.SerializeToString,
            response_deserializer=messages.ReceiveMessageResponse.FromString,
        )
        return method(request, metadata=self._metadata, timeout=timeout_s)

    def receive(
        self,
        group: str,
        topic: str,
        *,
        batch: int = 32,
        polling_ms: int = 5_000,
        invisible_ms: int = 30_000,
        expression: str = "*",
        sql: bool = False,
        auto_renew: bool = False,
        timeout_s: float = 15,
    ) -> tuple[int, str, list[Any]]:
        """The code and text of the answer, and its messages."""
        request = receive_request(group, topic, batch=batch, polling_ms=polling_ms, auto_renew=auto_renew)
        request.filter_expression.type = 2 if sql else 1
        request.filter_expression.expression = expression
        set_ms(request.invisible_duration, invisible_ms)
        code, text, found = 0, "", []
        for response in self.begin_receive(request, timeout_s):
            if response.HasField("status"):
                code, text = response.status.code, response.status.message
            elif response.HasField("message"):
                found.append(response.message)
        return code, text, found

    def open_telemetry(self) -> None:
        method = self._channel.stream_stream(
            f"/{messages.SERVICE}/Telemetry",
            request_serializer=messages.TelemetryCommand.SerializeToString,
            response_deserializer=messages.TelemetryCommand.FromString,
        )
        self._stream = method(self._sent(), metadata=self._metadata, timeout=300)

    def tell(self, command: Any) -> None:
        self._commands.put(command)

    def next_command(self) -> Any:
        return next(self._stream)

    def _sent(self) -> Iterator[Any]:
        while (command := self._commands.get()) is not _DONE:
            yield command

    # Clients

    def be_producer(self, *topics: str) -> Any:
        """Send a producer's settings. Returns those of the server."""
        command = messages.TelemetryCommand()
        command.settings.client_type = ClientType.PRODUCER
        command.settings.publishing.SetInParent()
        for topic in topics:
            command.settings.publishing.topics.add(name=topic)
        return self._settle(command)

    def be_consumer(self, group: str, *topics: str, kind: ClientType = ClientType.SIMPLE_CONSUMER) -> Any:
        """Send a consumer's settings. Returns those of the server."""
        command = messages.TelemetryCommand()
        command.settings.client_type = kind
        command.settings.subscription.group.name = group
        set_ms(command.settings.request_timeout, 3_000)
        for topic in topics:
            entry = command.settings.subscription.subscriptions.add()
            entry.topic.name, entry.expression.type, entry.expression.expression = topic, 1, "*"
        return self._settle(command)

    def _settle(self, command: Any) -> Any:
        self.open_telemetry()
        self.tell(command)
        answer = self.next_command()
        assert answer.status.code == 20000
        return answer.settings

    # Requests

    def send(self, *sent: Any) -> Any:
        return self.call("SendMessage", messages.SendMessageRequest(messages=sent))

    def ack(self, group: str, topic: str, *received: Any) -> Any:
        request = messages.AckMessageRequest()
        request.group.name, request.topic.name = group, topic
        for one in received:
            system = one.system_properties
            request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
        return self.call("AckMessage", request)

    def end_transaction(self, topic: str, entry: Any, resolution: int, *, checked: bool = False) -> Any:
        request = messages.EndTransactionRequest(
            message_id=entry.message_id,
            transaction_id=entry.transaction_id,
            resolution=resolution,
            source=2 if checked else 1,
        )
        request.topic.name = topic
        return self.call("EndTransaction", request)


def receive_request(
    group: str, topic: str, *, batch: int = 32, polling_ms: int = 5_000, auto_renew: bool = True
) -> Any:
    """A receive of a push consumer, or of a simple one that has still to set its invisible time."""
    request = messages.ReceiveMessageRequest(batch_size=batch, auto_renew=auto_renew)
    request.group.name, request.message_queue.topic.name = group, topic
    set_ms(request.long_polling_timeout, polling_ms)
    return request


def message(topic: str, body: bytes = b"hello", kind: GrpcMessageType = GrpcMessageType.NORMAL, **system: Any) -> Any:
    """A message to send."""
    made = messages.Message(body=body)
    made.topic.name = topic
    made.system_properties.message_type = kind
    made.system_properties.message_id = uuid4().hex
    for name, value in system.items():
        if name == "keys":
            made.system_properties.keys.extend(value)
        elif name == "deliver_ms":
            set_ms(made.system_properties.delivery_timestamp, value)
        elif name == "recovery_s":
            made.system_properties.orphaned_transaction_recovery_duration.seconds = value
        else:
            setattr(made.system_properties, name, value)
    return made


def signed(address: str, access_key: str, secret: str) -> GrpcClient:
    """A client whose calls are signed as the SDKs do it."""
    date = "20261126T024500Z"
    signature = hmac.new(secret.encode(), date.encode(), hashlib.sha1).hexdigest().upper()
    authorization = f"MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return GrpcClient(address, x_mq_date_time=date, authorization=authorization)
