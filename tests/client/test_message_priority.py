"""The priority of a message: RocketMQ's property, its limits, and the queue that a broker chooses by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gantrymq import EmbeddedBroker, Message, MessageStore, Producer
from gantrymq.errors import MQClientError
from gantrymq.model.status import PutMessageStatus


def test_message_with_priority_goes_to_queue_of_priority() -> None:
    with EmbeddedBroker() as broker, Producer(broker.namesrv) as producer:
        broker.create_topic("Urgent", queues=4, message_type="PRIORITY")
        sent = [producer.send(Message("Urgent", b"x", priority=number)) for number in (3, 0, 2, 9)]
        assert [result.queue.queue_id for result in sent] == [3, 0, 2, 3]


@pytest.mark.parametrize("priority", [-1, True, "1", 1 << 31])
def test_priority_out_of_range_is_refused(priority: Any) -> None:
    with (
        Producer("127.0.0.1:1") as producer,
        pytest.raises(MQClientError, match="is not allowed: a whole number from 0"),
    ):
        producer.send(Message("Urgent", b"x", priority=priority))


def test_store_refuses_message_with_priority(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        message = Message("Urgent", b"x", priority=1)
        assert store.put(message).status is PutMessageStatus.MESSAGE_ILLEGAL
        assert store.put_batch([message]).rejected
        assert store.queues() == []
