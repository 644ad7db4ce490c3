"""Our simple consumer at the real broker and at ours: acknowledgements, redelivery, filters, order, dead letters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gantrymq import (
    AsyncSimpleConsumer,
    ConsumeFromWhere,
    EmbeddedBroker,
    Message,
    MQBrokerError,
    MQClientError,
    Producer,
    PullClient,
    ReceivedMessage,
    SimpleConsumer,
)
from gantrymq.model.receipt_handle import parse_receipt_handle

from .java_cluster import JavaCluster
from .test_pull_client import everything

pytestmark = pytest.mark.slow

FIRST: dict[str, Any] = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}
HIDDEN_MS = 2_000
ACKED_WITHIN_MS = 15_000  # 39 acknowledgements, one by one, on a machine with other work to do
SECONDS = 90


Cluster = JavaCluster | EmbeddedBroker


@pytest.fixture(scope="module", params=["java", "ours"])
def cluster(request: pytest.FixtureRequest, java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The real broker and ours, with timers, which POP needs, and SQL92."""
    settings = {"timerWheelEnable": True, "enablePropertyFilter": True}
    store = tmp_path_factory.mktemp("pop") / "store"
    of: Cluster
    of = JavaCluster(store, settings) if request.param == "java" else EmbeddedBroker(store, settings=settings)
    with of as running:
        yield running


@pytest.fixture(scope="module")
def producer(cluster: Cluster) -> Iterator[Producer]:
    with Producer(cluster.namesrv, send_msg_timeout_ms=20_000) as made:
        yield made


def send(producer: Producer, topic: str, count: int, **more: Any) -> list[bytes]:
    bodies = [b"%s %d" % (topic.encode(), number) for number in range(count)]
    for body in bodies:
        producer.send(Message(topic, body, **more))
    return bodies


def gathered(consumer: SimpleConsumer, count: int, **receive: Any) -> list[ReceivedMessage]:
    """What receives return until there are as many."""
    got: list[ReceivedMessage] = []
    deadline = time.monotonic() + SECONDS
    while len(got) < count:
        assert time.monotonic() < deadline, [message.body for message in got]
        got += consumer.receive(**receive)
    return got


def test_only_unacknowledged_messages_are_delivered_again(cluster: Cluster, producer: Producer) -> None:
    bodies = send(producer, "PopAcks", 40)
    with SimpleConsumer(cluster.namesrv, consumer_group="pop-acks", **FIRST) as consumer:
        consumer.subscribe("PopAcks")
        got = gathered(consumer, 40, invisible_ms=ACKED_WITHIN_MS)
        assert sorted(message.body for message in got) == sorted(bodies)
        for message in got[1:]:
            consumer.ack(message)
        [again] = gathered(consumer, 1)
        assert (again.body, again.topic, again.reconsume_times) == (got[0].body, "PopAcks", 1)
        assert parse_receipt_handle(again.receipt_handle).mark == "1"
        assert "POP_CK" not in again.properties
        consumer.ack(again)
        assert consumer.receive(timeout_ms=2 * HIDDEN_MS) == []


def test_change_of_invisible_time_takes_effect_and_returns_new_handle(cluster: Cluster, producer: Producer) -> None:
    send(producer, "PopChanged", 1)
    with SimpleConsumer(cluster.namesrv, consumer_group="pop-changed", **FIRST) as consumer:
        consumer.subscribe("PopChanged")
        [message] = gathered(consumer, 1, invisible_ms=600_000)
        before = message.receipt_handle
        began = time.monotonic()
        consumer.change_invisible_duration(message, HIDDEN_MS)
        assert parse_receipt_handle(message.receipt_handle).invisible_time_ms == HIDDEN_MS
        assert message.receipt_handle != before
        [again] = gathered(consumer, 1)
        assert time.monotonic() - began >= HIDDEN_MS / 1000
        consumer.change_invisible_duration(again, 1000)
        consumer.change_invisible_duration(again, 600_000)  # with the handle of the first change
        consumer.ack(again)
        assert consumer.receive(timeout_ms=5_000) == []


def test_message_of_another_tag_is_not_received(cluster: Cluster, producer: Producer) -> None:
    # "AaAa" and "BBBB" have the same hash, so the broker delivers both to a subscription of one.
    for tag in ("AaAa", "BBBB", "C"):
        send(producer, "PopTags", 3, tags=tag)
    with SimpleConsumer(cluster.namesrv, consumer_group="pop-tags", **FIRST) as consumer:
        consumer.subscribe("PopTags", "AaAa || D")
        got = gathered(consumer, 3, invisible_ms=HIDDEN_MS)
        assert {message.tags for message in got} == {"AaAa"}
        for message in got:
            consumer.ack(message)
        assert consumer.receive(timeout_ms=3 * HIDDEN_MS) == []  # the others are acknowledged


def test_sql_filter_selects_messages(cluster: Cluster, producer: Producer) -> None:
    for number in range(4):
        producer.send(Message("PopSql", b"%d" % number, properties={"n": str(number)}))
    with SimpleConsumer(cluster.namesrv, consumer_group="pop-sql", **FIRST) as consumer:
        consumer.subscribe("PopSql", "n > 1", "SQL92")
        got = gathered(consumer, 2)
        assert sorted(message.body for message in got) == [b"2", b"3"]
        with pytest.raises(MQBrokerError, match="SUBSCRIPTION_PARSE_FAILED"):
            consumer.subscribe("PopSql", "n >", "SQL92")


def test_two_members_share_two_topics(cluster: Cluster, producer: Producer) -> None:
    bodies = send(producer, "PopOne", 30) + send(producer, "PopTwo", 30)
    with (
        SimpleConsumer(cluster.namesrv, consumer_group="pop-two", **FIRST) as first,
        SimpleConsumer(cluster.namesrv, consumer_group="pop-two", **FIRST) as second,
    ):
        for consumer in (first, second):
            consumer.subscribe("PopOne")
            consumer.subscribe("PopTwo")
        got: list[bytes] = []
        deadline = time.monotonic() + SECONDS
        while len(got) < 60:
            assert time.monotonic() < deadline
            for consumer in (first, second):
                for message in consumer.receive(5, timeout_ms=100):
                    got.append(message.body)
                    consumer.ack(message)
        assert sorted(got) == sorted(bodies)
        # Neither waits at the topic without messages.
        for topic in ("PopOne", "PopTwo", "PopOne"):
            send(producer, topic, 1)
            began = time.monotonic()
            [message] = gathered(first, 1, timeout_ms=30_000)
            assert (message.topic, time.monotonic() - began < 10) == (topic, True)
            first.ack(message)


def test_message_failing_repeatedly_becomes_dead_letter(cluster: Cluster, producer: Producer) -> None:
    [body] = send(producer, "PopDead", 1)
    config = {"consumer_group": "pop-dead", "invisible_duration_ms": HIDDEN_MS, "max_reconsume_times": 1, **FIRST}
    with SimpleConsumer(cluster.namesrv, **config) as consumer:
        consumer.subscribe("PopDead")
        assert [message.reconsume_times for message in gathered(consumer, 2)] == [0, 1]
        deadline = time.monotonic() + SECONDS
        dead: list[bytes] = []
        with PullClient(cluster.namesrv) as client:
            while not dead:
                assert time.monotonic() < deadline
                assert consumer.receive(timeout_ms=500) == []
                dead = _bodies(client, "%DLQ%pop-dead")
        assert dead == [body]


def _bodies(client: PullClient, topic: str) -> list[bytes]:
    try:
        return [message.body for message in everything(client, topic)]
    except MQClientError:  # the dead letters have no route yet
        return []


def test_ordered_queue_is_delivered_one_batch_at_a_time(cluster: Cluster, producer: Producer) -> None:
    for number in range(6):
        producer.send(Message("PopOrder", b"%d" % number), lambda queues: queues[0])
    config = {"consumer_group": "pop-order", "consume_orderly": True, "invisible_duration_ms": 3_000, **FIRST}
    with SimpleConsumer(cluster.namesrv, **config) as consumer:
        consumer.subscribe("PopOrder")

        def batch() -> tuple[list[ReceivedMessage], list[tuple[bytes, int]]]:
            got = gathered(consumer, 1, max_messages=2)
            return got, [(message.body, message.reconsume_times) for message in got]

        first, shown = batch()
        assert shown == [(b"0", 0), (b"1", 0)]
        assert consumer.receive(timeout_ms=500) == []  # blocked
        consumer.ack(first[0])
        assert consumer.receive(timeout_ms=500) == []
        _, shown = batch()
        assert shown == [(b"1", 1), (b"2", 0)]  # it was not acknowledged in time
        again, shown = batch()
        assert shown == [(b"1", 2), (b"2", 1)]
        for message in again:
            consumer.ack(message)
        _, shown = batch()
        assert shown == [(b"3", 0), (b"4", 0)]


def test_async_iteration_receives_messages_of_namespace(cluster: Cluster) -> None:
    async def run() -> list[bytes]:
        got = []
        config = {"consumer_group": "pop-async", "namespace": "NS1", **FIRST}
        async with AsyncSimpleConsumer(cluster.namesrv, **config) as consumer:
            await consumer.subscribe("PopAsync")
            async for message in consumer:
                assert message.topic == "PopAsync"
                got.append(message.body)
                await consumer.ack(message)
                if len(got) == 20:
                    await consumer.close()
        return got

    with Producer(cluster.namesrv, namespace="NS1", send_msg_timeout_ms=20_000) as producer:
        bodies = send(producer, "PopAsync", 20)
    assert sorted(asyncio.run(run())) == sorted(bodies)


def test_forged_handle_is_refused_by_client_and_broker(cluster: Cluster, producer: Producer) -> None:
    send(producer, "PopForged", 1)
    with SimpleConsumer(cluster.namesrv, consumer_group="pop-forged", **FIRST) as consumer:
        consumer.subscribe("PopForged")
        [message] = gathered(consumer, 1)
        good = message.receipt_handle
        message.receipt_handle = good.rpartition(" ")[0] + " 999999"
        with pytest.raises(MQBrokerError):
            consumer.ack(message)
        message.receipt_handle = good
        consumer.ack(message)
