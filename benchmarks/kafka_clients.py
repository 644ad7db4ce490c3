"""What Python's Kafka clients use of the processor for a message: one work a process, for the races of clients.

    PYTHON benchmarks/kafka_clients.py getone 127.0.0.1:9092 100000 1024

PYTHON has aiokafka and confluent-kafka; gantrymq is not needed. Prints microseconds of processor time a message, from
before the client is made until it has its last message. Consumers begin at the first message and touch each body.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

TOPIC = "orders"
QUEUES = 4
SENDERS = 64


def _tell(began_s: float, count: int) -> None:
    print(json.dumps({"us": (time.process_time() - began_s) / count * 1e6}), flush=True)


def _group() -> str:
    return f"group{time.time_ns()}"


def _consuming(servers: str) -> Any:
    from aiokafka import AIOKafkaConsumer

    return AIOKafkaConsumer(TOPIC, bootstrap_servers=servers, group_id=_group(), auto_offset_reset="earliest")


def getone(servers: str, count: int, size_bytes: int) -> None:
    """Read with aiokafka, a message a call."""

    async def run() -> None:
        began_s, total = time.process_time(), 0
        async with _consuming(servers) as consumer:
            while total < count:
                total += len((await consumer.getone()).value) > 0
            _tell(began_s, total)

    asyncio.run(run())


def getmany(servers: str, count: int, size_bytes: int) -> None:
    """Read with aiokafka, what has arrived at each call."""

    async def run() -> None:
        began_s, total = time.process_time(), 0
        async with _consuming(servers) as consumer:
            while total < count:
                for messages in (await consumer.getmany(timeout_ms=1000)).values():
                    for message in messages:
                        total += len(message.value) > 0
            _tell(began_s, total)

    asyncio.run(run())


def poll(servers: str, count: int, size_bytes: int) -> None:
    """Read with confluent-kafka, a message a call."""
    from confluent_kafka import Consumer

    began_s, total = time.process_time(), 0
    consumer = Consumer({"bootstrap.servers": servers, "group.id": _group(), "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    while total < count:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            total += len(message.value()) > 0
    _tell(began_s, total)
    consumer.close()


def send_and_wait(servers: str, count: int, size_bytes: int) -> None:
    """Send with aiokafka from 64 coroutines, each of which waits for its message."""
    from aiokafka import AIOKafkaProducer

    body = b"x" * size_bytes

    async def run() -> None:
        began_s = time.process_time()
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:

            async def send() -> None:
                for _ in range(count // SENDERS):
                    await producer.send_and_wait(TOPIC, body)

            await asyncio.gather(*(send() for _ in range(SENDERS)))
            _tell(began_s, count // SENDERS * SENDERS)

    asyncio.run(run())


def send(servers: str, count: int, size_bytes: int) -> None:
    """Send with aiokafka without waiting, then wait for all."""
    from aiokafka import AIOKafkaProducer

    body = b"x" * size_bytes

    async def run() -> None:
        began_s = time.process_time()
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            sent = [await producer.send(TOPIC, body) for _ in range(count)]
            await asyncio.gather(*sent)
            _tell(began_s, count)

    asyncio.run(run())


def fill(servers: str, count: int, size_bytes: int) -> None:
    """Create the topic with its partitions and ``count`` messages, each with a tag and a key as ours have them."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})  # its requests end with it
    for made in admin.create_topics([NewTopic(TOPIC, QUEUES, 1)]).values():
        made.result()
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50})
    body, headers = b"x" * size_bytes, [("TAGS", b"TagA")]
    for number in range(count):
        while True:
            try:
                producer.produce(TOPIC, body, f"k{number % 100}", partition=number // 100 % QUEUES, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    print(json.dumps({"filled": count}), flush=True)


WORKS: dict[str, Callable[[str, int, int], None]] = {
    work.__name__: work for work in (getone, getmany, poll, send_and_wait, send, fill)
}

if __name__ == "__main__":
    WORKS[sys.argv[1]](sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
