"""Our push consumer where the real broker, or ours, assigns its queues, to be popped."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gantrymq import (
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    EmbeddedBroker,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)

from .java_cluster import JavaCluster

pytestmark = pytest.mark.slow

COUNT, SECONDS = 60, 90


@pytest.mark.parametrize("broker", ["java", "ours"])
def test_two_members_pop_topic_and_failed_messages_are_redelivered(tmp_path: Path, broker: str) -> None:
    lock, got, members = threading.Lock(), list[bytes](), set[str]()

    def consumer(namesrv: str, name: str) -> PushConsumer:
        def handle(messages: Sequence[ReceivedMessage], context: Any) -> ConsumeConcurrentlyStatus:
            [message] = messages
            if message.body.endswith(b"7") and message.reconsume_times == 0:
                return ConsumeConcurrentlyStatus.RECONSUME_LATER
            with lock:
                got.append(message.body)
                members.add(name)
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        made = PushConsumer(
            namesrv, consumer_group="popping", client_rebalance=False,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )  # fmt: skip
        made.subscribe("PopPushed")
        made.listen(handle)
        return made

    settings = {"timerWheelEnable": True, "defaultMessageRequestMode": "POP"}
    store = tmp_path / "store"
    with JavaCluster(store, settings) if broker == "java" else EmbeddedBroker(store, settings=settings) as cluster:
        bodies = [b"%d" % number for number in range(COUNT)]
        with Producer(cluster.namesrv, send_msg_timeout_ms=20_000) as producer:
            for body in bodies[:4]:  # makes the topic
                producer.send(Message("PopPushed", body))
            with consumer(cluster.namesrv, "first") as first, consumer(cluster.namesrv, "second") as second:
                for member in (first, second):
                    assert [one.queue_id for one in member.assignment() if one.topic == "PopPushed"] == [-1]
                for body in bodies[4:]:
                    producer.send(Message("PopPushed", body))
                deadline = time.monotonic() + SECONDS
                while len(set(got)) < COUNT:
                    assert time.monotonic() < deadline, sorted(set(bodies) - set(got))
                    time.sleep(0.05)
        assert sorted(got) == sorted(bodies)
        assert members == {"first", "second"}
