"""A push consumer whose broker assigns its queues, to be popped; at a broker that answers as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fake_pop_broker import FakePopBroker, popped

from gantrymq import AsyncPushConsumer, ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, ConsumeFromWhere
from gantrymq.client.consumer.fetch.popping import Popper
from gantrymq.client.requests.pop_calls import PopTarget
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.clock import ManualClock
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import MessageQueueAssignment
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    PopMessageRequestHeader,
)
from gantrymq.remoting.headers.send import ConsumerSendMsgBackRequestHeader

pytestmark = pytest.mark.asyncio
ALL_QUEUES = MessageQueue("T", "broker-a", -1)

Listener = Callable[
    [Sequence[ReceivedMessage], ConsumeConcurrentlyContext], Awaitable[ConsumeConcurrentlyStatus | None]
]


@asynccontextmanager
async def consuming(
    listener: Listener, clock: ManualClock | None = None, **settings: Any
) -> AsyncIterator[tuple[FakePopBroker, AsyncPushConsumer]]:
    fake = FakePopBroker()
    async with fake.running():
        consumer = AsyncPushConsumer(fake.address, clock, consumer_group="G", client_rebalance=False, **settings)
        consumer.subscribe("T")
        consumer.listen(listener)
        async with consumer:
            yield fake, consumer


async def test_popped_messages_reach_listener_and_are_acknowledged() -> None:
    got: list[tuple[str, int]] = []

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeConcurrentlyContext) -> None:
        got.extend((message.topic, message.queue_offset) for message in messages)

    async with consuming(listen) as (fake, consumer):
        assert consumer.assignment() == [ALL_QUEUES]
        asked = fake.assignments[0]
        assert (asked.topic, asked.consumer_group, asked.client_id) == ("T", "G", consumer.client_id)
        assert (asked.strategy_name, asked.message_model) == ("AVG", "CLUSTERING")
        fake.arrive(popped(1), popped(2))
        acks = await fake.asked_for(AckMessageRequestHeader, 2)
        assert sorted(ack.offset for ack in acks) == [1, 2]
        assert sorted(got) == [("T", 1), ("T", 2)]
        pop = fake.of(PopMessageRequestHeader)[0]
        assert (pop.queue_id, pop.max_msg_nums, pop.invisible_time, pop.init_mode) == (-1, 32, 60_000, 1)


async def test_failed_messages_are_hidden_by_delay_of_their_level() -> None:
    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeConcurrentlyContext) -> None:
        levels = {1: 0, 2: 0, 3: 2, 4: 99, 5: -1, 6: 0}
        context.delay_level_when_next_consume = levels[messages[0].queue_offset]
        raise ValueError("as a listener may")

    async with consuming(listen) as (fake, _):
        fake.arrive(popped(1), popped(2, reconsume_times=3), popped(3), popped(4), popped(5))
        fake.arrive(popped(6, reconsume_times=-99))  # any producer can send it
        changes = await fake.asked_for(ChangeInvisibleTimeRequestHeader, 5)
        assert sorted((one.offset, one.invisible_time) for one in changes) == [
            (1, 10_000),
            (2, 120_000),
            (3, 60_000),
            (4, 7_200_000),
            (6, 10_000),
        ]
        [ack] = await fake.asked_for(AckMessageRequestHeader, 1)
        [dead] = fake.of(ConsumerSendMsgBackRequestHeader)
        assert (ack.offset, dead.offset, dead.delay_level) == (5, 1005, -1)


async def test_ack_index_acknowledges_first_part_of_batch() -> None:
    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeConcurrentlyContext) -> None:
        assert len(messages) == 3
        context.ack_index = 1

    async with consuming(listen, consume_message_batch_max_size=4) as (fake, _):
        fake.arrive(popped(1), popped(2), popped(3))
        [change] = await fake.asked_for(ChangeInvisibleTimeRequestHeader, 1)
        acks = await fake.asked_for(AckMessageRequestHeader, 2)
        assert (change.offset, sorted(ack.offset for ack in acks)) == (3, [1, 2])


async def test_listener_gets_no_message_past_invisible_time() -> None:
    got, room = list[int](), asyncio.Event()

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeConcurrentlyContext) -> None:
        got.append(messages[0].queue_offset)
        await room.wait()

    clock = ManualClock()
    async with consuming(listen, clock, consume_thread_max=1, pop_threshold_for_queue=2) as (fake, _):
        fake.arrive(popped(1), popped(2))
        while not got:
            await asyncio.sleep(0.001)
        clock.advance(60_000)
        fake.arrive(popped(3))
        room.set()
        while got != [1, 3]:
            await asyncio.sleep(0.001)
        acks = await fake.asked_for(AckMessageRequestHeader, 2)
        assert sorted(ack.offset for ack in acks) == [1, 3]


async def test_new_assignment_replaces_popped_queues() -> None:
    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeConcurrentlyContext) -> None: ...

    changes: list[frozenset[MessageQueue]] = []
    async with consuming(listen) as (fake, consumer):
        consumer.register_message_queue_listener(lambda topic, queues, mine: changes.append(mine))

        async def divided() -> list[MessageQueue]:
            count = len(fake.assignments)
            consumer.resume()  # divides again
            while len(fake.assignments) == count:
                await asyncio.sleep(0.001)
            for _ in range(20):
                await asyncio.sleep(0)
            return consumer.assignment()

        fake.assigned = None
        assert await divided() == [ALL_QUEUES]  # the broker does not know
        fake.assigned = []
        assert await divided() == []
        assert changes == [frozenset()]


async def test_message_of_listener_closing_its_consumer_is_acknowledged() -> None:
    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeConcurrentlyContext) -> None:
        await consumer.close()

    async with consuming(listen) as (fake, consumer):
        fake.arrive(popped(1))
        await fake.asked_for(AckMessageRequestHeader, 1)


async def test_failing_pop_is_repeated() -> None:
    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeConcurrentlyContext) -> None: ...

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    async with consuming(listen, pull_time_delay_ms_when_exception=1, consume_from_where=first) as (fake, _):
        fake.answer_pop = lambda request: request.response(ResponseCode.SYSTEM_BUSY, "busy")
        fake.arrive()
        await fake.asked_for(PopMessageRequestHeader, 3)
        fake.answer_pop = None
        fake.arrive(popped(1))
        await fake.asked_for(AckMessageRequestHeader, 1)
        assert {asked.init_mode for asked in fake.of(PopMessageRequestHeader)} == {0}


async def test_queues_of_unsubscribed_topic_are_not_popped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a subscription the pops would follow each other without a pause."""

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeConcurrentlyContext) -> None: ...

    looks = 0

    async def has_messages(popper: Popper, target: PopTarget) -> bool:
        nonlocal looks
        looks += 1
        return await look(popper, target)

    look = Popper.has_messages
    monkeypatch.setattr(Popper, "has_messages", has_messages)
    async with consuming(listen) as (fake, consumer):
        other = MessageQueue("X", "broker-a", -1)
        fake.assigned = [MessageQueueAssignment(message_queue=one, mode="POP") for one in (other, ALL_QUEUES)]
        for count in range(1, 4):
            consumer.resume()  # divides again
            while len(fake.assignments) <= count:
                await asyncio.sleep(0.001)
        assert consumer.assignment() == [ALL_QUEUES]
        await fake.asked_for(PopMessageRequestHeader, 1)
        looks = 0
        consumer.unsubscribe("T")
        fake.arrive(popped(1))
        for _ in range(500):
            await asyncio.sleep(0)
        assert looks < 5
        assert {asked.topic for asked in fake.of(PopMessageRequestHeader)} == {"T"}
