"""Our lite-pull consumer at the real broker: subscribing, assigning, seeking, committing."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gantrymq import ConsumeFromWhere, LitePullConsumer, Message, MessageModel, Producer
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.errors import MQClientError
from gantrymq.model.message_queue import MessageQueue

from .java_cluster import JavaCluster

FIRST = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, "poll_timeout_ms": 200}


@pytest.fixture(scope="module")
def producer(cluster: JavaCluster) -> Iterator[Producer]:
    with Producer(cluster.namesrv, send_msg_timeout_ms=20_000) as made:
        yield made


def send(producer: Producer, topic: str, count: int, **more: Any) -> list[bytes]:
    """Messages to all four queues in turn."""
    bodies = [b"%s %d %d" % (topic.encode(), time.monotonic_ns(), number) for number in range(count)]
    for number, body in enumerate(bodies):
        producer.send(Message(topic, body, **more), lambda queues, at=number: queues[at % 4])
    return bodies


def polled(consumer: LitePullConsumer, enough: Callable[[list[ReceivedMessage]], bool]) -> list[ReceivedMessage]:
    """Poll until it is enough, and a little longer: nothing more may come."""
    got: list[ReceivedMessage] = []
    deadline = time.monotonic() + 60
    while not enough(got):
        assert time.monotonic() < deadline, [message.body for message in got]
        got += consumer.poll()
    return got + consumer.poll(100)


def polled_bodies(consumer: LitePullConsumer, count: int) -> list[bytes]:
    return [message.body for message in polled(consumer, lambda got: len(got) >= count)]


def queues_of(consumer: LitePullConsumer, topic: str) -> list[MessageQueue]:
    """A topic's queues, once the name server has heard of it."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return sorted(consumer.fetch_message_queues(topic))
        except MQClientError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_two_lite_pull_members_share_topic_and_offsets_survive_restart(
    cluster: JavaCluster, producer: Producer
) -> None:
    bodies = send(producer, "LiteShared", 40, tags="A")
    send(producer, "LiteShared", 4, tags="B")
    settings = FIRST | {"consumer_group": "lite-shared"}
    with LitePullConsumer(cluster.namesrv, **settings) as one:
        one.subscribe("LiteShared", "A")
        assert sorted(polled_bodies(one, 40)) == sorted(bodies)
        one.commit()
        with LitePullConsumer(cluster.namesrv, **settings) as two:
            two.subscribe("LiteShared", "A")
            deadline = time.monotonic() + 60
            while (len(one.assignment()), len(two.assignment())) != (2, 2) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert sorted([*one.assignment(), *two.assignment()]) == queues_of(one, "LiteShared")
            more = send(producer, "LiteShared", 8, tags="A")
            halves = [polled_bodies(each, 4) for each in (one, two)]
            assert sorted(halves[0] + halves[1]) == sorted(more)
            two.commit()
        one.commit()
    last = send(producer, "LiteShared", 4, tags="A")
    with LitePullConsumer(cluster.namesrv, **settings) as again:
        again.subscribe("LiteShared", "A")
        assert sorted(polled_bodies(again, 4)) == sorted(last)


def test_assigned_queues_are_sought_paused_and_committed(cluster: JavaCluster, producer: Producer) -> None:
    bodies = send(producer, "LiteAssigned", 40, tags="A")
    with LitePullConsumer(cluster.namesrv, **FIRST, consumer_group="lite-assigned", auto_commit=False) as consumer:
        queues = queues_of(consumer, "LiteAssigned")
        first, second = queues[:2]
        assert consumer.committed(first) == 0  # what the broker says of a queue that has all its messages in memory
        consumer.assign([first, second])
        assert sorted(polled_bodies(consumer, 20)) == sorted(bodies[0::4] + bodies[1::4])
        consumer.seek(first, 7)
        assert polled_bodies(consumer, 3) == bodies[0::4][7:]
        consumer.seek_to_begin(second)
        assert polled_bodies(consumer, 10) == bodies[1::4]
        consumer.seek_to_end(second)
        consumer.pause([first])
        later = send(producer, "LiteAssigned", 2, tags="B")
        assert polled_bodies(consumer, 1) == later[1:]
        consumer.resume([first])
        assert polled_bodies(consumer, 1) == later[:1]
        consumer.commit()
        assert [consumer.committed(queue) for queue in (first, second)] == [11, 11]
        consumer.commit_offsets({first: 5})
        assert consumer.committed(first) == 5
        stored = send(producer, "LiteAssigned", 1)
        [message] = polled(consumer, bool)
        assert message.body == stored[0]
        assert consumer.offset_for_timestamp(first, message.store_timestamp_ms) == 11
        with pytest.raises(MQClientError, match="Seek offset illegal"):
            consumer.seek(first, 100)
        with pytest.raises(MQClientError, match="not in assigned list"):
            consumer.seek(queues[3], 0)
        with pytest.raises(MQClientError, match="mutually exclusive"):
            consumer.subscribe("LiteAssigned")
    with LitePullConsumer(cluster.namesrv, **FIRST, consumer_group="lite-assigned") as consumer:
        consumer.set_sub_expression_for_assign("LiteAssigned", "B")
        consumer.assign([first])
        assert polled_bodies(consumer, 1) == later[:1]


def test_poll_commits_messages_of_earlier_polls(cluster: JavaCluster, producer: Producer) -> None:
    send(producer, "LiteAuto", 8)
    settings = FIRST | {"consumer_group": "lite-auto", "auto_commit_interval_ms": 1000}
    with LitePullConsumer(cluster.namesrv, **settings) as consumer:
        consumer.subscribe("LiteAuto")
        assert len(polled_bodies(consumer, 8)) == 8
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if [consumer.committed(queue) for queue in queues_of(consumer, "LiteAuto")] == [2, 2, 2, 2]:
                break
            assert consumer.poll() == []
        else:
            pytest.fail("polls did not commit")
    more = send(producer, "LiteAuto", 2)
    with LitePullConsumer(cluster.namesrv, **settings) as consumer:
        consumer.subscribe("LiteAuto")
        # A share that changes hands meanwhile gives out again what was not committed; what was must not come.
        assert set(polled_bodies(consumer, 2)) == set(more)


def test_broadcasting_and_queue_listener_work_at_real_broker(
    cluster: JavaCluster, producer: Producer, tmp_path: Any
) -> None:
    bodies = send(producer, "LiteToAll", 8)
    settings = FIRST | {"message_model": MessageModel.BROADCASTING, "local_offset_store_dir": tmp_path}
    told: list[int] = []
    with LitePullConsumer(cluster.namesrv, consumer_group="lite-to-all", **settings) as consumer:
        queues_of(consumer, "LiteToAll")
        consumer.register_topic_message_queue_change_listener(
            "LiteToAll", lambda topic, queues: told.append(len(queues))
        )
        consumer.subscribe("LiteToAll")
        assert sorted(polled_bodies(consumer, 8)) == sorted(bodies)
        consumer.commit()
    assert told == [4]
    with LitePullConsumer(cluster.namesrv, consumer_group="lite-to-all", **settings) as consumer:
        consumer.subscribe("LiteToAll")
        assert consumer.poll(500) == []


def test_lite_pull_consumer_starts_and_closes_once(cluster: JavaCluster) -> None:
    consumer = LitePullConsumer(cluster.namesrv, consumer_group="lite-once")
    with pytest.raises(MQClientError, match="not running"):
        consumer.poll()
    consumer.start()
    with pytest.raises(MQClientError, match="maybe started once"):
        consumer.start()
    consumer.close()
    consumer.close()
    with pytest.raises(MQClientError, match="is closed"):
        consumer.poll()
