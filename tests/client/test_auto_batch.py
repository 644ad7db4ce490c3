"""Automatic batches: fewer requests, and for each message the place and the result that it has alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from gantrymq import EmbeddedBroker, Message, Producer
from gantrymq.client.hooks import SendMessageContext
from gantrymq.client.producer.async_producer import AsyncProducer
from gantrymq.client.producer.outgoing import OutgoingMessage
from gantrymq.client.producer.sender import MessageSender
from gantrymq.client.requests.send_result import SendResult, SendStatus
from gantrymq.errors import ConfigError, MQBrokerError
from gantrymq.model.message_queue import MessageQueue

LIMIT = 40_000


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings={"maxMessageSize": LIMIT}) as running:
        yield running


@pytest.fixture
def namesrv(broker: EmbeddedBroker) -> str:
    return broker.namesrv


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[OutgoingMessage]:
    """What was sent, a batch as one."""
    requests: list[OutgoingMessage] = []
    send = MessageSender.send

    async def noted(self: MessageSender, outgoing: OutgoingMessage, *others: object) -> SendResult:
        requests.append(outgoing)
        return await send(self, outgoing, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(MessageSender, "send", noted)
    return requests


def stored(broker: EmbeddedBroker, topic: str, count: int) -> dict[tuple[int, int], tuple[bytes, str | None]]:
    """Body and unique key by queue and offset, of all messages of a topic, which are ``count``."""
    messages = broker.wait_for_messages(topic, count)
    held = {
        (message.queue_id, message.queue_offset): (bytes(message.body), message.properties.get("UNIQ_KEY"))
        for message in messages
    }
    assert len(held) == count
    return held


def places(results: list[SendResult]) -> dict[tuple[int, int], str]:
    return {(result.queue.queue_id, result.queue_offset): result.msg_id for result in results}


def test_each_message_of_many_senders_has_its_own_place_and_result(
    broker: EmbeddedBroker, sent: list[OutgoingMessage], rng: random.Random
) -> None:
    bodies = [b"%d " % number + rng.randbytes(rng.randrange(50)) for number in range(400)]

    async def send_all() -> list[SendResult]:
        async with AsyncProducer(broker.namesrv, auto_batch=True, batch_max_bytes=1_500) as producer:

            async def send_some(first: int) -> list[SendResult]:
                return [await producer.send(Message("Many", body)) for body in bodies[first::20]]

            return [result for some in await asyncio.gather(*map(send_some, range(20))) for result in some]

    results = asyncio.run(send_all())
    held = stored(broker, "Many", 400)
    assert {place: key for place, (_, key) in held.items()} == places(results)
    by_sender = [body for first in range(20) for body in bodies[first::20]]
    assert [held[result.queue.queue_id, result.queue_offset][0] for result in results] == by_sender
    assert len({result.offset_msg_id for result in results}) == len(bodies)
    assert len(sent) < len(bodies) / 4
    assert all(len(outgoing.body) <= 1_500 for outgoing in sent)


def test_messages_of_one_queue_keep_their_order_with_those_that_leave_alone(
    broker: EmbeddedBroker, sent: list[OutgoingMessage]
) -> None:
    with Producer(broker.namesrv, auto_batch=True) as producer:
        producer.send(Message("Order", b"first"))
        queue = producer.queues("Order")[0]
        futures: list[Future[SendResult]] = []
        for number in range(300):
            options: dict[str, int] = {"timeout_ms": 3_000} if number % 50 == 25 else {}
            message = Message("Order", b"%d" % number, tags="odd" if number % 2 else "even")
            futures.append(producer.send_async(message, lambda queues: queues[0], **options))
        producer.flush()
        results = [future.result() for future in futures]
    assert [result.queue.queue_id for result in results] == [queue.queue_id] * 300
    offsets = [result.queue_offset for result in results]
    assert offsets == sorted(offsets)
    assert len(sent) < 150
    held = stored(broker, "Order", 301)
    bodies = [held[queue.queue_id, offset][0] for offset in offsets]
    assert bodies == [b"%d" % number for number in range(300)]


def test_message_joins_no_batch_before_an_earlier_one_that_leaves_alone(broker: EmbeddedBroker) -> None:
    """Without a given queue a message joins at once, and one that leaves alone takes a task first."""
    broker.create_topic("OneQueue", queues=1)
    with Producer(broker.namesrv, auto_batch=True, batch_max_bytes=2_000) as producer:
        producer.send(Message("OneQueue", b"first"))
        bodies = [b"%d " % number + b"x" * (3_000 if number % 20 == 10 else 1) for number in range(200)]
        results = [future.result() for future in [producer.send_async(Message("OneQueue", body)) for body in bodies]]
    offsets = [result.queue_offset for result in results]
    assert offsets == sorted(offsets)


def test_only_the_message_that_the_broker_refuses_fails(broker: EmbeddedBroker, sent: list[OutgoingMessage]) -> None:
    with Producer(
        broker.namesrv, auto_batch=True, compress_msg_body_over_howmuch=1 << 20, batch_max_bytes=1 << 16
    ) as producer:
        producer.send(Message("Refused", b"first"))
        futures = [producer.send_async(Message("Refused", bytes([65]) * size)) for size in (10, 10, LIMIT + 1, 10)]
        producer.flush()
    assert any(len(outgoing.parts) > 1 for outgoing in sent)
    assert [future.exception() is None for future in futures] == [True, True, False, True]
    assert isinstance(futures[2].exception(), MQBrokerError)
    stored(broker, "Refused", 4)


def test_close_sends_what_waits_for_others(broker: EmbeddedBroker) -> None:
    with Producer(broker.namesrv, auto_batch=True, batch_max_delay_ms=30_000) as producer:
        producer.send(Message("Close", b"first"))
        futures = [producer.send_async(Message("Close", b"%d" % number)) for number in range(50)]
    assert all(future.result(0).status is SendStatus.SEND_OK for future in futures)
    stored(broker, "Close", 51)


@pytest.mark.parametrize(
    "message",
    [
        Message("Alone", b"b", delay_level=1),
        Message("Alone", b"b", delay_ms=1_000),
        Message("Alone", b"b", priority=1),
        Message("Alone", b"b" * 5_000),
        Message("Alone", b"b", properties={"INNER_MULTI_DISPATCH": "%LMQ%x"}),
    ],
)
def test_message_that_no_batch_can_hold_is_prepared_to_leave_alone(namesrv: str, message: Message) -> None:
    async def prepared() -> OutgoingMessage:
        async with AsyncProducer(namesrv) as producer:
            return producer.prepare(message)

    assert not asyncio.run(prepared()).is_batchable


def test_cancelled_message_of_an_open_batch_does_not_leave(broker: EmbeddedBroker) -> None:
    async def scenario() -> SendResult:
        async with AsyncProducer(broker.namesrv, auto_batch=True) as producer:
            await producer.send(Message("Cancel", b"first"))
            both = [asyncio.create_task(producer.send(Message("Cancel", body))) for body in (b"no", b"yes")]
            await asyncio.sleep(0)
            both[0].cancel()
            return await both[1]

    asyncio.run(scenario())
    assert sorted(body for body, _ in stored(broker, "Cancel", 2).values()) == [b"first", b"yes"]


def test_hook_of_each_message_has_its_queue(namesrv: str) -> None:
    class Hook:
        def __init__(self) -> None:
            self.seen: list[tuple[MessageQueue | None, str | None]] = []

        def send_message_after(self, context: SendMessageContext) -> None:
            self.seen.append((context.queue, context.result and context.result.msg_id))

    hook = Hook()
    with Producer(namesrv, auto_batch=True, hooks=[hook]) as producer:
        futures = [producer.send_async(Message("Hooks", b"%d" % number)) for number in range(30)]
        producer.flush()
        ids = {future.result().msg_id for future in futures}
    assert {msg_id for _, msg_id in hook.seen} == ids
    assert all(queue is not None and queue.topic == "Hooks" for queue, _ in hook.seen)


def test_settings_are_those_of_the_java_client() -> None:
    with pytest.raises(ConfigError, match="batchMaxDelayMs=0"):
        Producer("127.0.0.1:1", batch_max_delay_ms=0)
    with pytest.raises(ConfigError, match="batchMaxBytes=2097153"):
        Producer("127.0.0.1:1", batch_max_bytes=2 * 1024 * 1024 + 1)
