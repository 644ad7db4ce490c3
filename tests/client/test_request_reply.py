"""Requests and replies of our clients at our own broker; with the Java client and broker: tests/interop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from client_cases import FIRST, eventually

from gantrymq import (
    AsyncProducer,
    AsyncPushConsumer,
    BrokerConfig,
    BrokerServer,
    EmbeddedBroker,
    LiveConfig,
    Message,
    MessageStoreConfig,
    MQBrokerError,
    MQClientError,
    Producer,
    PushConsumer,
    ReceivedMessage,
    RequestTimeoutError,
    TransactionProducer,
    create_reply_message,
)
from gantrymq.client.connection import heartbeats
from gantrymq.client.producer.request_reply import PendingReplies
from gantrymq.client.producer.settings import ProducerConfig
from gantrymq.clock import ManualClock
from gantrymq.model.flags import COMPRESSED
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.send import ReplyMessageRequestHeader

ENOUGH_MS = 30_000


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        yield made


def replier(producer: Producer) -> Callable[[Sequence[ReceivedMessage], Any], None]:
    """A listener that replies with the body in capitals."""

    def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
        for message in messages:
            producer.reply(message, bytes(message.body).upper())

    return listen


def test_request_returns_its_own_reply(broker: EmbeddedBroker) -> None:
    with (
        Producer(broker.namesrv, producer_group="A") as producer,
        PushConsumer(broker.namesrv, consumer_group="A", **FIRST) as consumer,
    ):
        producer.send(Message("Ask", b"first"))  # no request: the listener raises for it, and it comes again
        consumer.subscribe("Ask")
        consumer.listen(replier(producer))
        consumer.start()
        asked = [b"one", b"two" * 100_000, b"three"]  # the second is compressed, and so is its reply
        got: dict[bytes, ReceivedMessage] = {}

        def ask(body: bytes) -> None:
            got[body] = producer.request(Message("Ask", body, keys=["k"]), ENOUGH_MS)

        threads = [threading.Thread(target=ask, args=(body,)) for body in asked]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {body: reply.body for body, reply in got.items()} == {body: body.upper() for body in asked}
    assert not any(reply.sys_flag & COMPRESSED for reply in got.values())
    reply = got[b"one"]
    assert reply.topic == "DefaultCluster_REPLY_TOPIC"
    assert {"PUSH_REPLY_TIME", "ARRIVE_TIME", "CORRELATION_ID"} <= set(reply.properties)
    assert reply.properties["MSG_TYPE"] == "reply"
    assert reply.store_timestamp_ms > 0


@pytest.mark.asyncio
async def test_async_request_within_namespace_gets_reply(broker: EmbeddedBroker) -> None:
    async with (
        AsyncProducer(broker.namesrv, producer_group="B", namespace="ns") as producer,
        AsyncPushConsumer(broker.namesrv, consumer_group="B", namespace="ns", **FIRST) as consumer,
    ):

        async def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
            await producer.reply(messages[0], os.urandom(8) + messages[0].topic.encode())

        await producer.send(Message("Inside", b"no request"))
        consumer.subscribe("Inside")
        consumer.listen(listen)
        await consumer.start()
        replies = await asyncio.gather(*(producer.request(Message("Inside", b"ask"), ENOUGH_MS) for _ in range(20)))
    assert {reply.body[8:] for reply in replies} == {b"Inside"}
    assert len({reply.body for reply in replies}) == 20


def test_request_without_reply_raises_clear_error(broker: EmbeddedBroker) -> None:
    with Producer(broker.namesrv, producer_group="C") as producer:
        producer.send(Message("Alone", b"first"))  # route and connection, which take long on a busy machine
        with pytest.raises(
            RequestTimeoutError, match="topic Alone within 1000 ms; the broker has the request"
        ) as raised:
            producer.request(Message("Alone", b"ask"), 1_000)
        assert isinstance(raised.value, TimeoutError)
        assert isinstance(raised.value, MQClientError)
        assert sorted(broker.bodies("Alone")) == [b"ask", b"first"]


def test_unsent_request_raises_error_of_send(broker: EmbeddedBroker) -> None:
    with Producer(broker.namesrv) as producer:
        for timeout_ms in (0, None, True, 1.5, 1 << 63, 10**400):
            with pytest.raises(MQClientError, match=r"timeout_ms=.* is not allowed"):
                producer.request(Message("Alone", b"ask"), timeout_ms)  # type: ignore[arg-type]
        with pytest.raises(MQClientError, match="the message body length is zero"):
            producer.request(Message("Alone", b""), 200)
        with pytest.raises(MQClientError, match="a Message is sent"):
            producer.request(b"ask", 200)  # type: ignore[arg-type]


def test_reply_to_closed_requester_raises(broker: EmbeddedBroker) -> None:
    taken: list[ReceivedMessage] = []
    with (
        TransactionProducer(broker.namesrv, lambda message: None, producer_group="D") as producer,  # type: ignore[arg-type,return-value]
        PushConsumer(broker.namesrv, consumer_group="D", **FIRST) as consumer,
    ):
        with Producer(broker.namesrv, producer_group="E") as asker, pytest.raises(RequestTimeoutError):
            asker.request(Message("Gone", b"ask"), 1_000)
        consumer.subscribe("Gone")
        consumer.listen(lambda messages, context: taken.extend(messages))
        consumer.start()
        eventually(lambda: taken, "the request")
        with pytest.raises(MQBrokerError, match="not found") as raised:
            producer.reply(taken[0], b"late")
        assert raised.value.response_code == ResponseCode.SYSTEM_ERROR


def test_reply_arrives_after_restart_of_broker() -> None:
    with EmbeddedBroker() as broker, Producer(broker.namesrv) as producer:
        producer.send(Message("Again", b"first"))
        broker.restart()
        with PushConsumer(broker.namesrv, consumer_group="again") as consumer:
            consumer.subscribe("Again")
            consumer.listen(replier(producer))
            consumer.start()
            assert producer.request(Message("Again", b"ask"), ENOUGH_MS).body == b"ASK"


@pytest.mark.asyncio
async def test_requester_registers_at_every_broker(tmp_path: Path, broker: EmbeddedBroker) -> None:
    """Java's client replies to any of them, this one without the topic of the request included."""
    settings = {"namesrvAddr": broker.namesrv, "brokerName": "broker-b", "brokerIP1": "127.0.0.1", "listenPort": "0"}
    live = LiveConfig(BrokerConfig(), MessageStoreConfig(mapped_file_size_commit_log=1 << 20, max_index_num=400))
    live.update(settings)
    other = BrokerServer(tmp_path / "store", live)
    await asyncio.to_thread(broker.create_topic, "OfOne", 1)
    await other.start()
    try:
        async with AsyncProducer(broker.namesrv, producer_group="wide") as producer:
            assert {queue.broker_name for queue in await producer.queues("OfOne")} == {"broker-a"}
            with pytest.raises(RequestTimeoutError):
                await producer.request(Message("OfOne", b"ask"), 50)
            async with asyncio.timeout(30):
                while "wide" not in other.sessions.producers.groups:
                    await asyncio.sleep(0.01)
    finally:
        await other.shutdown()


def test_restarted_broker_knows_idle_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "INTERVAL_SECONDS", 10_000)
    with EmbeddedBroker() as broker, Producer(broker.namesrv, producer_group="silent") as producer:
        producer.send(Message("Before", b"x"))
        for _ in range(2):
            eventually(lambda: "silent" in broker._life.pair.broker.sessions.producers.groups, "a heartbeat")
            broker.restart()


@pytest.mark.asyncio
async def test_close_ends_waiting_requests(broker: EmbeddedBroker) -> None:
    producer = AsyncProducer(broker.namesrv)
    producer.start()
    asking = asyncio.create_task(producer.request(Message("Closing", b"ask"), ENOUGH_MS))
    await asyncio.to_thread(broker.wait_for_messages, "Closing", 1)
    await producer.close()
    with pytest.raises(MQClientError, match="closed before the reply"):
        await asking


@pytest.mark.asyncio
async def test_reply_without_request_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class There:
        address = "127.0.0.1:10911"

    replies = PendingReplies(ProducerConfig("127.0.0.1:9876"), ManualClock())
    waiting = replies.expect("mine")

    def push(correlation_id: str, born_host: str = "127.0.0.1:1") -> int:
        header = ReplyMessageRequestHeader(
            producer_group="g", topic="T", default_topic="TBW102", default_topic_queue_nums=4, queue_id=0, sys_flag=0,
            born_timestamp=1, flag=0, properties=f"CORRELATION_ID\x01{correlation_id}", born_host=born_host,
            store_host="127.0.0.1:2",
        )  # fmt: skip
        return replies._push(There(), RemotingCommand.request(header, b"reply")).code  # type: ignore[arg-type]

    assert push("mine", "nowhere") == ResponseCode.SYSTEM_ERROR
    assert push("another") == ResponseCode.SUCCESS
    assert not waiting.done()
    assert [push("mine"), push("mine")] == [ResponseCode.SUCCESS] * 2
    assert waiting.result().body == b"reply"
    assert "a reply cannot be read" in caplog.text
    assert "no request waits for a reply" in caplog.text


@pytest.mark.parametrize("missing", ["CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT"])
def test_reply_to_message_without_request_is_refused(broker: EmbeddedBroker, missing: str) -> None:
    with Producer(broker.namesrv, producer_group="F") as producer:
        producer.send(Message("Plain", b"no request"))
        message = broker.wait_for_messages("Plain", 1)[0] if missing == "CLUSTER" else broker.messages("Plain")[0]
        message.properties |= {"CLUSTER": "c", "CORRELATION_ID": "1", "REPLY_TO_CLIENT": "2"}
        assert create_reply_message(message, b"x").topic == "c_REPLY_TOPIC"
        del message.properties[missing]
        with pytest.raises(MQClientError, match=rf"property\[{missing}\] is null"):
            producer.reply(message, b"x")
    with pytest.raises(MQClientError, match="a message that a consumer received"):
        create_reply_message(Message("T", b"x"), b"x")  # type: ignore[arg-type]
