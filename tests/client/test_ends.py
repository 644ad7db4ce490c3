"""How consumers end: whatever way a start or a close is left, nothing of theirs goes on behind it."""

import asyncio
from collections.abc import Iterator

import pytest

from gantrymq import ConsumeFromWhere, EmbeddedBroker, Message, Producer
from gantrymq.client.consumer.async_lite_pull import AsyncLitePullConsumer
from gantrymq.client.consumer.settings import LitePullConsumerConfig

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def lite(broker: EmbeddedBroker, group: str) -> AsyncLitePullConsumer:
    return AsyncLitePullConsumer(LitePullConsumerConfig(broker.namesrv, consumer_group=group, consume_from_where=FIRST))


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


def test_a_start_that_was_cancelled_leaves_no_pulls(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        consumer = lite(broker, "cancelled")
        await cancel_once_queues_are_held(consumer, "CancelledA", "CancelledB")
        assert consumer.assignment() == []
        await consumer.close()
        await others_ended()

    for topic in ("CancelledA", "CancelledB"):
        broker.create_topic(topic, 2)
    asyncio.run(scenario())


def test_a_start_that_was_cancelled_may_be_tried_again(broker: EmbeddedBroker) -> None:
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
