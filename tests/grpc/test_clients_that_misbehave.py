"""Clients that are wrong, slow, silent or gone: what is refused, what is given back, and what a restart keeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import grpc
import pytest

from gantrymq.embedded.broker import EmbeddedBroker
from gantrymq.grpc.protocol import messages
from gantrymq.grpc.protocol.caller import Caller
from gantrymq.grpc.protocol.codes import ClientType, Code, GrpcMessageType
from gantrymq.remoting.codes import LanguageCode
from grpc_client import GrpcClient, message, receive_request


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[GrpcClient]:
    with GrpcClient(broker.grpc) as connected:
        yield connected


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = f"t-{uuid4().hex[:12]}"
    broker.create_topic(name)
    return name


@pytest.mark.parametrize(
    "handle",
    [
        "",
        "x",
        "0 1 2 3",
        "0 9000000000000 60000 0 7 broker-a 0 0 0",
        "-1 9000000000000 60000 0 0 broker-a 0 0 0",
        "0 9000000000000 60000 99999999999 0 broker-a 0 0 0",
        "0 9223372036854775807 60000 0 0 broker-a 0 0 0",
        "0 1000 60000 0 0 broker-a 0 0 0",
        "9" * 5_000,
    ],
)
def test_forged_handle_is_refused(client: GrpcClient, topic: str, handle: str) -> None:
    request = messages.AckMessageRequest()
    request.group.name, request.topic.name = "g", topic
    request.entries.add(message_id="m", receipt_handle=handle)
    answer = client.call("AckMessage", request)
    assert answer.status.code == answer.entries[0].status.code == Code.INVALID_RECEIPT_HANDLE
    change = messages.ChangeInvisibleDurationRequest(receipt_handle=handle)
    change.group.name, change.topic.name = "g", topic
    assert client.call("ChangeInvisibleDuration", change).status.code == Code.INVALID_RECEIPT_HANDLE


def test_handle_of_unknown_message_is_refused(client: GrpcClient, topic: str) -> None:
    far = "7 9000000000000 60000 0 0 broker-a 0 7 123456789"
    request = messages.AckMessageRequest()
    request.group.name, request.topic.name = "g", topic
    request.entries.add(message_id="m", receipt_handle=far)
    assert client.call("AckMessage", request).status.code == Code.INTERNAL_SERVER_ERROR
    forward = messages.ForwardMessageToDeadLetterQueueRequest(receipt_handle=far)
    forward.group.name, forward.topic.name = "g", topic
    assert client.call("ForwardMessageToDeadLetterQueue", forward).status.code == Code.INTERNAL_SERVER_ERROR


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"tag": "a|b"}, Code.ILLEGAL_MESSAGE_TAG),
        ({"keys": ["a\x01"]}, Code.ILLEGAL_MESSAGE_KEY),
        ({"message_id": " "}, Code.ILLEGAL_MESSAGE_ID),
        ({"message_id": "a\x02KEYS\x01b"}, Code.ILLEGAL_MESSAGE_ID),
        ({"priority": -1}, Code.BAD_REQUEST),
        ({"message_group": "x" * 64}, Code.ILLEGAL_MESSAGE_GROUP),
        ({"born_host": "a\x02KEYS\x01b"}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"body": b""}, Code.MESSAGE_BODY_EMPTY),
        ({"body": bytes((4 << 20) + 1)}, Code.MESSAGE_BODY_TOO_LARGE),
        ({"properties": {"KEYS": "1"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"properties": {"a": "b\x02"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"properties": {str(i): "x" for i in range(129)}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"properties": {"a": "x" * (16 << 10)}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"topic": "%%$"}, Code.ILLEGAL_TOPIC),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, Code.ILLEGAL_TOPIC),
        ({"lite_topic": "lite"}, Code.ILLEGAL_LITE_TOPIC),
        ({"kind": GrpcMessageType.TRANSACTION, "recovery_s": 3_601}, Code.BAD_REQUEST),
    ],
)
def test_invalid_message_is_refused(client: GrpcClient, topic: str, changes: dict[str, Any], code: Code) -> None:
    properties = changes.pop("properties", {})
    made = message(changes.pop("topic", topic), changes.pop("body", b"x"), **changes)
    for name, value in properties.items():
        made.user_properties[name] = value
    assert client.send(made).status.code == code


@pytest.mark.parametrize("seconds", [(1 << 63) - 1, -(1 << 63), 253_402_300_800])
def test_impossible_born_time_becomes_current_time(
    broker: EmbeddedBroker, client: GrpcClient, topic: str, seconds: int
) -> None:
    born = message(topic)
    born.system_properties.born_timestamp.seconds = seconds
    assert client.send(born).status.code == Code.OK
    (stored,) = broker.wait_for_messages(topic, 1)
    assert abs(stored.born_timestamp_ms - stored.store_timestamp_ms) < 60_000


def test_missing_client_id_and_oversized_request_are_refused(broker: EmbeddedBroker, topic: str) -> None:
    with GrpcClient(broker.grpc, client_id=" ") as client:
        assert client.send(message(topic)).status.code == Code.CLIENT_ID_REQUIRED
    with GrpcClient(broker.grpc) as client:
        with pytest.raises(grpc.RpcError) as raised:
            client.send(message(topic, bytes(33 << 20)))
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("name", ["SendMessage", "ReceiveMessage", "Telemetry"])
def test_undecodable_request_is_refused(broker: EmbeddedBroker, name: str, caplog: pytest.LogCaptureFixture) -> None:
    path, metadata = f"/{messages.SERVICE}/{name}", [("x-mq-client-id", "damaged")]
    with grpc.insecure_channel(broker.grpc) as channel:
        calls = {
            "SendMessage": lambda: channel.unary_unary(path)(b"\xff", metadata=metadata, timeout=10),
            "ReceiveMessage": lambda: next(channel.unary_stream(path)(b"\xff", metadata=metadata, timeout=10)),
            "Telemetry": lambda: next(channel.stream_stream(path)(iter([b"\xff"]), metadata=metadata, timeout=10)),
        }
        with pytest.raises(grpc.RpcError) as raised:
            calls[name]()
    assert raised.value.code() is grpc.StatusCode.INTERNAL
    assert "Invalid protobuf byte sequence" in raised.value.details()
    assert not caplog.records  # a stranger fills no log


@pytest.mark.parametrize("name", ["UpdateOffset", "GetOffset", "QueryOffset", "SyncLiteSubscription"])
def test_calls_without_implementation_return_unimplemented(client: GrpcClient, name: str) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        client.call(name, messages.types_of(name)[0]())
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_invalid_receive_is_refused(client: GrpcClient, topic: str) -> None:
    client.be_consumer("g", topic)
    assert client.receive("g", topic, invisible_ms=9_999)[0] == Code.ILLEGAL_INVISIBLE_TIME
    assert client.receive("g", topic, invisible_ms=13 * 3_600_000)[0] == Code.ILLEGAL_INVISIBLE_TIME
    assert client.receive("g", topic, polling_ms=20_000, timeout_s=4)[0] == Code.ILLEGAL_POLLING_TIME  # under 5 s
    assert client.receive("g", "nowhere")[0] == Code.TOPIC_NOT_FOUND
    assert client.receive("CID_RMQ_SYS_x", topic)[0] == Code.ILLEGAL_CONSUMER_GROUP


def test_receive_waits_for_later_settings(broker: EmbeddedBroker, client: GrpcClient, topic: str) -> None:
    broker.create_group("late", order=True)
    client.send(message(topic))
    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(client.receive, "late", topic)
        time.sleep(0.02)
        client.be_consumer("late", topic)
        code, _, found = received.result(60)
    assert (code, len(found)) == (Code.OK, 1)
    assert found[0].system_properties.receipt_handle.split()[3] == "999"  # in order, as the group says


def test_messages_of_closed_client_become_visible(broker: EmbeddedBroker, client: GrpcClient, topic: str) -> None:
    client.be_consumer("gone", topic)
    request = messages.ReceiveMessageRequest(batch_size=8)
    request.group.name, request.message_queue.topic.name = "gone", topic
    messages.set_ms(request.invisible_duration, 3_600_000)
    messages.set_ms(request.long_polling_timeout, 20_000)
    waiting = client.begin_receive(request, 30)
    time.sleep(0.05)
    waiting.cancel()
    client.send(message(topic, b"for another"))
    with GrpcClient(broker.grpc) as other:
        other.be_consumer("gone", topic)
        assert [one.body for one in other.receive("gone", topic)[2]] == [b"for another"]


def test_restarted_server_serves_running_client(topic: str) -> None:
    with EmbeddedBroker(grpc=True) as broker:
        broker.create_topic("orders")
        with GrpcClient(broker.grpc) as client:
            client.be_consumer("billing", "orders")
            client.send(message("orders", b"before"))
            address = broker.grpc
            broker.kill()
            broker.restart()
            assert broker.grpc == address
            assert [one.body for one in _until(client, "billing", "orders")] == [b"before"]
            heartbeat = messages.HeartbeatRequest(client_type=ClientType.SIMPLE_CONSUMER)
            heartbeat.group.name = "billing"
            told = client.call("Heartbeat", heartbeat).status
            assert (told.code, told.message) == (
                Code.UNRECOGNIZED_CLIENT_TYPE,
                "cannot find client settings for this client",
            )


def test_stop_answers_waiting_receives() -> None:
    with EmbeddedBroker(grpc=True) as broker, GrpcClient(broker.grpc) as client:
        broker.create_topic("orders")
        client.be_consumer("billing", "orders")
        waiting = client.begin_receive(receive_request("billing", "orders", polling_ms=20_000), 30)
        while not broker._life.pair.broker.pop_waiting.pops:
            time.sleep(0.01)
        broker.stop()
        answers = [(one.status.code, one.status.message) for one in waiting if one.HasField("status")]
        assert answers == [(Code.MESSAGE_NOT_FOUND, "no new message")]
        with pytest.raises(StopIteration):
            client.next_command()  # its stream has ended without an error


def _until(client: GrpcClient, group: str, topic: str) -> list[Any]:
    """The messages of the first receive that the server answers."""
    while True:
        try:
            return client.receive(group, topic)[2]
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise


def test_stream_whose_answers_are_not_read_is_paused(broker: EmbeddedBroker, topic: str) -> None:
    """Each answer has the settings that it answers. 64 of them that wait would be 16 MiB of a client."""
    telemetry = broker._life.pair._front._telemetry
    sent = messages.TelemetryCommand()
    sent.settings.publishing.topics.add(name=topic)
    taken = 0

    async def commands() -> AsyncIterator[Any]:
        nonlocal taken
        for taken in range(1, 21):  # noqa: B007
            yield sent

    async def open_and_read_once() -> int:
        caller = Caller("reads-once", LanguageCode.PYTHON, "5.1.2", "127.0.0.1:1")
        stream = telemetry.stream(caller, commands())
        await anext(stream)
        client = telemetry._clients.find("reads-once")
        assert client is not None
        assert client.outbox is not None
        while taken < 20 and client.outbox.unread_bytes == 0:
            await asyncio.sleep(0.001)
        for _ in range(100):
            await asyncio.sleep(0)
        taken_early = taken
        assert len([one async for one in stream]) == 19  # all are answered once they are read
        return taken_early

    assert broker._running().run(open_and_read_once()) <= 3


def test_malformed_or_unread_streams_are_closed(broker: EmbeddedBroker, topic: str) -> None:
    with GrpcClient(broker.grpc) as client:
        client.open_telemetry()
        client.tell(messages.TelemetryCommand(settings=messages.Settings()))
        with pytest.raises(grpc.RpcError) as raised:
            client.next_command()
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    large = messages.TelemetryCommand()
    for number in range(20_000):
        large.settings.publishing.topics.add(name=f"{topic}-{number}")
    with GrpcClient(broker.grpc) as client:
        client.open_telemetry()
        client.tell(large)
        with pytest.raises(grpc.RpcError):
            client.next_command()
    clients = [GrpcClient(broker.grpc) for _ in range(50)]
    try:
        for one in clients:
            one.be_consumer("many", topic)
        clients[0].send(message(topic))
        assert clients[-1].receive("many", topic)[0] == Code.OK
    finally:
        for one in clients:
            one.close()
