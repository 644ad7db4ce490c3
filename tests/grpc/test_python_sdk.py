"""The official Python SDK in the process of its embedded broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer

from gantrymq.embedded.broker import EmbeddedBroker


@pytest.fixture
def config(broker: EmbeddedBroker) -> Iterator[ClientConfiguration]:
    return ClientConfiguration(broker.grpc, Credentials())


def test_simple_consumer_receives_and_acknowledges(broker: EmbeddedBroker, config: ClientConfiguration) -> None:
    broker.create_topic("sdk-orders")
    producer = Producer(config, ("sdk-orders",))
    consumer = SimpleConsumer(config, "sdk-group", {"sdk-orders": FilterExpression()})
    producer.startup()
    consumer.startup()
    try:
        sent = Message()
        sent.topic, sent.body, sent.tag, sent.keys = "sdk-orders", b"paid", "card", "order-1"
        sent.add_property("colour", "red")
        receipt = producer.send(sent)
        (received,) = consumer.receive(16, 15)
        assert (received.body, received.tag, received.keys) == (b"paid", "card", {"order-1"})
        assert received.properties == {"colour": "red"}
        assert (received.message_id, received.delivery_attempt) == (receipt.message_id, 1)
        consumer.ack(received)
    finally:
        consumer.shutdown()
        producer.shutdown()
    assert [one.body for one in broker.messages("sdk-orders")] == [b"paid"]
