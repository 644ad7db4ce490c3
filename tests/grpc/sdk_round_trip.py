"""The official Python SDK with credentials: one message there and back."""

from __future__ import annotations

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer


def send_and_receive(address: str, access_key: str, secret_key: str) -> None:
    """Send a message to the topic orders, and receive from it as the group billing until that message is there.

    Raises what the SDK raises for a call that is refused.
    """
    config = ClientConfiguration(address, Credentials(access_key, secret_key))
    producer = Producer(config, ("orders",))
    consumer = SimpleConsumer(config, "billing", {"orders": FilterExpression()})
    producer.startup()
    consumer.startup()
    try:
        order = Message()
        order.topic, order.body = "orders", b"signed"
        producer.send(order)
        seen = []
        while b"signed" not in seen:
            for received in consumer.receive(16, 15):
                seen.append(received.body)
                consumer.ack(received)
    finally:
        consumer.shutdown()
        producer.shutdown()
