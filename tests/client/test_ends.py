"""How consumers end: whatever way a start or a close is left, nothing of theirs goes on behind it."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from gantrymq import AdminClient, ConsumeFromWhere, EmbeddedBroker, Message, Producer
from gantrymq.client.consumer.async_lite_pull import AsyncLitePullConsumer
from gantrymq.client.consumer.push.async_push import AsyncPushConsumer
from gantrymq.client.consumer.settings import LitePullConsumerConfig, PushConsumerConfig
from gantrymq.client.producer.async_producer import AsyncProducer
from gantrymq.client.producer.settings import ProducerConfig
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.errors import AlreadyStartedError, MQBrokerError, MQClientError

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def lite(broker: EmbeddedBroker, group: str) -> AsyncLitePullConsumer:
    return AsyncLitePullConsumer(LitePullConsumerConfig(broker.namesrv, consumer_group=group, consume_from_where=FIRST))


def push(broker: EmbeddedBroker, group: str) -> AsyncPushConsumer:
    return AsyncPushConsumer(PushConsumerConfig(broker.namesrv, consumer_group=group, consume_from_where=FIRST))


async def others_ended() -> None:
    for _ in range(5000):
        if asyncio.all_tasks() == {asyncio.current_task()}:
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"still there: {asyncio.all_tasks() - {asyncio.current_task()}}")


async def cancel_once_queues_are_held(consumer: AsyncLitePullConsumer, *topics: str) -> None:
    """A time limit strikes in the midst of a start: of the first topic queues are held, of the second none."""
    for topic in topics:
        await consumer.subscribe(topic)
    starting = asyncio.ensure_future(consumer.start())
    consumer.register_message_queue_listener(lambda topic, queues, mine: topic == topics[0] and starting.cancel())
    with pytest.raises(asyncio.CancelledError):
        await starting
    consumer.register_message_queue_listener(lambda topic, queues, mine: None)


def test_cancelled_start_leaves_no_pull(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        consumer = lite(broker, "cancelled")
        await cancel_once_queues_are_held(consumer, "CancelledA", "CancelledB")
        assert consumer.assignment() == []
        await consumer.close()
        await others_ended()

    for topic in ("CancelledA", "CancelledB"):
        broker.create_topic(topic, 2)
    asyncio.run(scenario())


def test_cancelled_start_can_be_retried(broker: EmbeddedBroker) -> None:
    async def scenario() -> list[bytes]:
        consumer = lite(broker, "again")
        await cancel_once_queues_are_held(consumer, "AgainA", "AgainB")
        async with consumer:
            return sorted([(await consumer.poll())[0].body, (await consumer.poll())[0].body])

    with Producer(broker.namesrv) as producer:
        for topic in ("AgainA", "AgainB"):
            broker.create_topic(topic, 1)
            producer.send(Message(topic, topic.encode()))
    assert asyncio.run(scenario()) == [b"AgainA", b"AgainB"]


@pytest.mark.parametrize("kind", ["lite", "push"])
def test_client_closed_during_start_stops(broker: EmbeddedBroker, kind: str) -> None:
    async def scenario() -> None:
        closing: list[asyncio.Task[None]] = []
        consumer: AsyncLitePullConsumer | AsyncPushConsumer
        if kind == "lite":
            consumer = lite(broker, "hasty-lite")
            for topic in ("HastyA", "HastyB"):
                await consumer.subscribe(topic)
        else:
            consumer = push(broker, "hasty-push")
            for topic in ("HastyA", "HastyB"):
                consumer.subscribe(topic)
            consumer.listen(lambda messages, context: None)
        consumer.register_message_queue_listener(
            lambda topic, queues, mine: closing.append(asyncio.ensure_future(consumer.close()))
        )
        with pytest.raises(MQClientError):
            await consumer.start()
        await closing[0]
        await others_ended()

    for topic in ("HastyA", "HastyB"):
        broker.create_topic(topic, 1)
    asyncio.run(scenario())
    assert is_left(broker, f"hasty-{kind}")


@pytest.mark.parametrize("after_ms", [0, 2, 4, 6, 8, 12])
def test_consumer_closed_during_start_releases_its_queues(broker: EmbeddedBroker, after_ms: int) -> None:
    """A lock that nobody gives back keeps every other member from its queue for a minute."""

    async def scenario() -> None:
        group = f"in-order-{after_ms}"
        consumer = push(broker, group)
        consumer.subscribe("InOrder")
        consumer.listen_orderly(lambda messages, context: None)
        starting = asyncio.ensure_future(consumer.start())
        await asyncio.sleep(after_ms / 1000)
        await consumer.close()
        await asyncio.wait({starting})
        starting.exception()
        async with push(broker, group) as other:
            other.subscribe("InOrder")
            other.listen_orderly(lambda messages, context: None)
            await other.start()
            mine = [queue.queue_id for queue in other.assignment() if queue.topic == "InOrder"]
        assert mine == list(range(8))
        await others_ended()

    broker.create_topic("InOrder", 8)
    asyncio.run(scenario())


def test_second_concurrent_start_of_push_consumer_raises(broker: EmbeddedBroker) -> None:
    async def scenario() -> list[BaseException | None]:
        async with push(broker, "twice") as consumer:
            consumer.subscribe("Twice")
            consumer.listen(lambda messages, context: None)
            return await asyncio.gather(consumer.start(), consumer.start(), return_exceptions=True)

    broker.create_topic("Twice", 1)
    outcomes = asyncio.run(scenario())
    assert {type(outcome) for outcome in outcomes} == {type(None), AlreadyStartedError}


def test_closed_producer_cannot_start(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        producer = AsyncProducer(ProducerConfig(broker.namesrv, producer_group="hasty"))
        await producer.close()
        with pytest.raises(MQClientError, match="closed"):
            producer.start()
        await others_ended()

    asyncio.run(scenario())


def is_left(broker: EmbeddedBroker, group: str) -> bool:
    with AdminClient(broker.namesrv) as admin, pytest.raises(MQBrokerError, match="CONSUMER_NOT_ONLINE"):
        admin.consumer_connection(group)
    return True


def test_cancelled_close_runs_to_its_end(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
            begun.set()
            await go_on.wait()

        consumer = push(broker, "impatient")
        consumer.subscribe("Impatient")
        consumer.listen(listen)
        await consumer.start()
        await begun.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.close(), 0.01)
        go_on.set()
        await consumer.close()
        await others_ended()

    broker.create_topic("Impatient", 1)
    with Producer(broker.namesrv) as producer:
        producer.send(Message("Impatient", b"slow"))
    asyncio.run(scenario())
    assert is_left(broker, "impatient")
    assert broker.consumer_offsets("impatient", "Impatient") == {0: 1}


def test_cancelled_close_of_lite_pull_consumer_finishes(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        consumer = lite(broker, "impatient-lite")
        await consumer.subscribe("ImpatientLite")
        await consumer.start()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await consumer.close()
        await consumer.close()
        await others_ended()

    broker.create_topic("ImpatientLite", 1)
    asyncio.run(scenario())
    assert is_left(broker, "impatient-lite")


@pytest.mark.parametrize("way", ["listen", "listen_orderly"])
def test_listener_can_close_its_consumer(broker: EmbeddedBroker, way: str) -> None:
    async def scenario() -> None:
        closed = asyncio.Event()

        async def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
            await consumer.close()
            closed.set()

        async with push(broker, f"enough-{way}") as consumer:
            consumer.subscribe("Enough")
            getattr(consumer, way)(listen)
            await consumer.start()
            async with asyncio.timeout(60):
                await closed.wait()
        await others_ended()

    broker.create_topic("Enough", 1)
    with Producer(broker.namesrv) as producer:
        producer.send(Message("Enough", b"last"))
    asyncio.run(scenario())
    assert is_left(broker, f"enough-{way}")


def test_close_started_by_listener_in_background_waits_for_listener(broker: EmbeddedBroker) -> None:
    """What it was at would come again else, and its queue would be another member's meanwhile."""

    async def scenario() -> None:
        closings: list[asyncio.Task[None]] = []
        done: list[bool] = []

        async def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
            closings.append(asyncio.create_task(consumer.close()))
            await asyncio.wait(closings, timeout=0.2)
            done.append(not closings[0].done())

        async with push(broker, "beside") as consumer:
            consumer.subscribe("Beside")
            consumer.listen(listen)
            await consumer.start()
            async with asyncio.timeout(60):
                while not closings:
                    await asyncio.sleep(0.01)
                await closings[0]
            assert done == [True]
        await others_ended()

    broker.create_topic("Beside", 1)
    with Producer(broker.namesrv) as producer:
        producer.send(Message("Beside", b"last"))
    asyncio.run(scenario())
    assert broker.consumer_offsets("beside", "Beside") == {0: 1}


def test_messages_failing_during_close_are_redelivered(broker: EmbeddedBroker) -> None:
    """It is not sent back any more: whoever sends it back would make a producer that nobody closes."""

    async def scenario() -> None:
        failing = asyncio.Event()

        async def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
            await consumer.close()
            failing.set()
            raise ValueError("too late")

        consumer = push(broker, "late")
        consumer.subscribe("Late")
        consumer.listen(listen)
        await consumer.start()
        await failing.wait()
        await others_ended()

    broker.create_topic("Late", 1)
    with Producer(broker.namesrv) as producer:
        producer.send(Message("Late", b"again"))
    asyncio.run(scenario())
    assert not broker.consumer_offsets("late", "Late").get(0)


@pytest.mark.parametrize("kind", ["producer", "push", "lite pull"])
def test_async_client_on_other_event_loop_raises_and_stays_usable(broker: EmbeddedBroker, kind: str) -> None:
    """It failed within asyncio, and could then not be closed on its own loop either."""
    broker.create_topic("Loops", 1)

    async def used() -> Any:
        if kind == "producer":
            producer = AsyncProducer(broker.namesrv)
            await producer.send(Message("Loops", b"x"))
            return producer
        if kind == "push":
            pushed = AsyncPushConsumer(broker.namesrv, consumer_group="loops")
            pushed.subscribe("Loops")
            pushed.listen(lambda messages, context: None)
            await pushed.start()
            return pushed
        polled = AsyncLitePullConsumer(broker.namesrv, consumer_group="loops")
        await polled.subscribe("Loops")
        await polled.start()
        return polled

    async def use_elsewhere(client: Any) -> None:
        for call in {
            "producer": (
                lambda: client.send(Message("Loops", b"y")),
                lambda: client.queues("Else"),
                lambda: client.flush(1000),
            ),
            "push": (lambda: client.queues("Loops"),),
            "lite pull": (lambda: client.poll(10), lambda: client.fetch_message_queues("Loops")),
        }[kind]:
            with pytest.raises(MQClientError, match="belongs to the event loop"):
                await call()
        with pytest.raises(MQClientError, match="belongs to the event loop"):
            await client.close()

    async def close(client: Any) -> None:
        await client.close()
        await asyncio.sleep(0.01)  # so that the transports are gone

    with asyncio.Runner() as own:
        client = own.run(used())
        asyncio.run(use_elsewhere(client))
        own.run(close(client))
