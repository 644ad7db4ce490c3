"""Dead letters of a group that pops, at the real broker: sent again, each is received once, under its topic."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from gantrymq import AdminClient, ConsumeFromWhere, Message, MessageQueue, Producer, SimpleConsumer
from gantrymq.cli.main import exit_code
from gantrymq.client.admin.dead_letter_sender import DeadLetterSender
from gantrymq.client.producer.settings import ProducerConfig
from gantrymq.errors import GantrymqError

from .java_cluster import JavaCluster

pytestmark = pytest.mark.slow

SETTINGS = {"timerWheelEnable": "true", "reviveInterval": "100"}
GROUP, TOPIC = "java_poppers", "java_popped"


@pytest.fixture(scope="module")
def cluster(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    """A real broker that allows pops: they need timers."""
    with JavaCluster(tmp_path_factory.mktemp("pops") / "store", settings=SETTINGS) as running:
        yield running


def test_resend_at_real_broker_is_received_exactly_once(cluster: JavaCluster) -> None:
    with AdminClient(cluster.namesrv) as admin, Producer(cluster.namesrv) as producer:
        admin.create_topic(TOPIC, read_queue_nums=1, write_queue_nums=1)
        admin.create_subscription_group(GROUP)
        with SimpleConsumer(
            cluster.namesrv, consumer_group=GROUP, max_reconsume_times=1, invisible_duration_ms=10_000,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer:  # fmt: skip
            consumer.subscribe(TOPIC)
            producer.send(Message(TOPIC, b"x"))
            deadline = time.monotonic() + 120
            while not (letters := dead(admin)):
                consumer.receive(1, timeout_ms=500)
                assert time.monotonic() < deadline
            assert letters == 1
        [broker] = [one.broker_addrs[0] for one in admin.cluster_info().broker_addr_table.values()]
        before = set(admin.subscription_groups(broker))
        assert exit_code(["admin", "dlq", "resend", GROUP, "--all", "-n", cluster.namesrv]) == 0
        assert set(admin.subscription_groups(broker)) == before
        came: list[tuple[str, bytes]] = []
        with SimpleConsumer(cluster.namesrv, consumer_group=GROUP) as consumer:
            consumer.subscribe(TOPIC)
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                for message in consumer.receive(8, invisible_ms=60_000, timeout_ms=500):
                    came.append((message.topic, message.body))
                    consumer.ack(message)
                    deadline = time.monotonic() + 5
        assert came == [(TOPIC, b"x")]
        with DeadLetterSender(admin, ProducerConfig(cluster.namesrv), GROUP) as sender:
            letter = admin.message_at(MessageQueue(f"%DLQ%{GROUP}", "broker-a", 0), 0)
            assert letter is not None
            assert sender.target(letter).topic == f"%RETRY%{GROUP}_{TOPIC}"


def dead(admin: AdminClient) -> int:
    try:
        return sum(one.max_offset for one in admin.topic_stats(f"%DLQ%{GROUP}").values())
    except GantrymqError:  # the topic is made with the first letter
        return 0
