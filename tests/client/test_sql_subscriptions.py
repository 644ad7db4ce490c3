"""SQL92 filters of our clients at our own broker; at the real one: tests/interop/test_sql_filters.py."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from client_cases import FIRST, eventually

from gantrymq import (
    AsyncLitePullConsumer,
    EmbeddedBroker,
    LitePullConsumer,
    Message,
    MQBrokerError,
    MQClientError,
    Producer,
    PullClient,
    PushConsumer,
    decode_records,
)

COUNT = 3000
WANTED = [b"%d" % number for number in range(COUNT) if number % 7 == 3]
SQL: Any = {"expression": "rest = 3 AND NOT (kind IS NULL)", "expression_type": "SQL92"}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings={"enablePropertyFilter": True}) as made, Producer(made.namesrv) as producer:
        made.create_topic("T", queues=1)
        numbers = range(COUNT)
        for begin in range(0, COUNT, 500):
            producer.send_batch(
                [Message("T", b"%d" % n, properties={"rest": str(n % 7), "kind": "x"}) for n in numbers[begin:][:500]]
            )
        eventually(lambda: len(made.messages("T")) == COUNT, "all messages")
        yield made


@pytest.mark.parametrize("under_way", [1, 32])
def test_pipelined_read_filters_by_sql(broker: EmbeddedBroker, under_way: int) -> None:
    with PullClient(broker.namesrv) as client:
        (queue,) = client.queues("T")
        pulled = list(client.read(queue, 5, COUNT - 5, under_way=under_way, **SQL))
        found = [message.body for one in pulled for message in decode_records(one.records)]
        assert found == [body for body in WANTED if 5 <= int(body) < COUNT - 5]
        assert not any(one.lost for one in pulled)
        nothing = client.read(queue, 0, COUNT, expression="rest = 9", expression_type="SQL92")
        assert list(nothing) == []
        with pytest.raises(MQBrokerError, match="parse the consumer's subscription failed"):
            list(client.read(queue, 0, COUNT, expression="rest =", expression_type="SQL92"))
        with pytest.raises(MQClientError, match="expression_type='SQL' is not allowed"):
            client.read(queue, 0, COUNT, expression_type="SQL")


def test_consumers_filter_by_sql(broker: EmbeddedBroker) -> None:
    pushed: list[bytes] = []
    with PushConsumer(broker.namesrv, consumer_group="push", consume_message_batch_max_size=64, **FIRST) as consumer:
        consumer.subscribe("T", **SQL)
        consumer.listen(lambda messages, context: pushed.extend(one.body for one in messages))
        consumer.start()
        eventually(lambda: len(pushed) >= len(WANTED), "all that match")
    assert sorted(pushed) == sorted(WANTED)


@pytest.mark.parametrize("assigned", [False, True])
def test_polls_filter_by_sql(broker: EmbeddedBroker, assigned: bool) -> None:
    polled: list[bytes] = []
    with LitePullConsumer(broker.namesrv, consumer_group=f"lite{assigned}", pull_batch_size=100, **FIRST) as consumer:
        if assigned:
            consumer.set_sub_expression_for_assign("T", **SQL)
            consumer.assign(consumer.fetch_message_queues("T"))
            for queue in consumer.assignment():
                consumer.seek_to_begin(queue)
        else:
            consumer.subscribe("T", **SQL)
        eventually(lambda: polled.extend(one.body for one in consumer.poll(100)) or len(polled) >= len(WANTED), "all")
    assert polled == WANTED


@pytest.mark.asyncio
async def test_async_polls_filter_by_sql(broker: EmbeddedBroker) -> None:
    async with (
        asyncio.timeout(30),
        AsyncLitePullConsumer(broker.namesrv, consumer_group="async", pull_batch_size=100, **FIRST) as consumer,
    ):
        await consumer.subscribe("T", **SQL)
        polled = [one.body for one in await consumer.poll()]
        while len(polled) < len(WANTED):
            polled += [one.body for one in await consumer.poll()]
    assert polled == WANTED
