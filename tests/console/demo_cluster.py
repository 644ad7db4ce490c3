"""A cluster with all that a page can show: topics, groups, lag, dead letters, pending messages, bodies of all kinds.

``python tests/console/demo_cluster.py [PORT]`` serves the console of such a cluster, with changes allowed.
"""

from __future__ import annotations

import gzip
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from gantrymq import (
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    EmbeddedBroker,
    LocalTransactionState,
    Message,
    Producer,
    PushConsumer,
    TransactionProducer,
)
from gantrymq.client.admin.admin_client import AdminClient
from gantrymq.errors import MQClientError

HTML = b"<script>alert(1)</script><img src=x onerror=alert(2)>&amp;"
ESCAPES = "red \x1b[31mtext\x07 and \u202etxt.exe\u2066".encode()
LARGE = 4 * 1024 * 1024 - 1024
KEY = "order-4711"
ODD_TOPIC = "odd|topic%2Fwith%20signs"
EVIL_KEY = "<b>\x1b[31m\u202e"
SAMPLE = {
    "id": 4711,
    "customer": {"name": "Zoë", "city": "München"},
    "lines": [{"sku": "A-1", "count": 2}],
    "total": 19.9,
}


@dataclass
class DemoCluster:
    """The name server's address, and the ids of some messages."""

    namesrv: str
    ids: dict[str, str] = field(default_factory=dict)


@contextmanager
def demo_cluster(namesrv: str, *, is_large: bool = True) -> Iterator[DemoCluster]:
    """Fill a running cluster. Its consumers stay connected until the end of the block."""
    with ExitStack() as stack:
        admin = stack.enter_context(AdminClient(namesrv))
        demo = DemoCluster(namesrv)
        for topic, queues in (("orders", 4), ("payments", 8), ("audit-log", 1), ("bodies", 1), (ODD_TOPIC, 2)):
            admin.create_topic(topic, read_queue_nums=queues, write_queue_nums=queues)
        for group in ("billing", "invoices", "mailer"):
            admin.create_subscription_group(group)
        _wait(lambda: {"orders", "payments", "audit-log", "bodies", ODD_TOPIC} <= {*admin.topics()})
        producer = stack.enter_context(Producer(namesrv, producer_group="shop", trace=True))
        _orders(demo, producer)
        _bodies(demo, producer, is_large=is_large)
        stack.enter_context(_consumer(namesrv, "invoices", "orders", "paid || sent"))
        stack.enter_context(_failing(namesrv, "mailer", "payments"))
        _pending(producer)
        stack.enter_context(_open_transaction(namesrv))
        _behind(admin, "billing", "orders")
        _wait(lambda: _count(admin, "%DLQ%mailer") == 3)
        yield demo


def _wait(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _count(admin: AdminClient, topic: str) -> int:
    try:
        return sum(one.max_offset for one in admin.topic_stats(topic).values())
    except MQClientError:
        return 0  # it is made with its first message


def _orders(demo: DemoCluster, producer: Producer) -> None:
    for number in range(60):
        order = SAMPLE | {"id": 4711 + number}
        tag = ("paid", "sent", "new")[number % 3]
        sent = producer.send(Message("orders", json.dumps(order).encode(), tags=tag, keys=[f"order-{4711 + number}"]))
        if number == 0:
            demo.ids["order"], demo.ids["offset"] = sent.msg_id, sent.offset_msg_id
    for number in range(3):
        producer.send(Message("payments", f'{{"payment": {number}}}'.encode(), tags="card", keys=[f"payment-{number}"]))
    producer.send(Message(ODD_TOPIC, b"a topic with signs"))


def _bodies(demo: DemoCluster, producer: Producer, *, is_large: bool) -> None:
    """Bodies of all kinds, in one queue in this order."""
    bodies = {
        "html": HTML,
        "escapes": ESCAPES,
        "text": "Grüße aus 漢字 🚚\n\tzweite Zeile".encode(),
        "json": json.dumps(SAMPLE).encode(),
        "binary": bytes(range(256)) * 20,
        "gzip": gzip.compress(b"packed by the application"),
        "latin": "Größe".encode("latin-1"),
        "large": b"0123456789abcdef" * (LARGE // 16) if is_large else b"0123456789abcdef" * 8192,
    }
    for name, body in bodies.items():
        properties = {"kind": name, "note": "<i>x</i>\x1b\u202e"}
        sent = producer.send(Message("bodies", body, tags=name, keys=[name, EVIL_KEY], properties=properties))
        demo.ids[name] = sent.msg_id


def _consumer(namesrv: str, group: str, topic: str, expression: str) -> PushConsumer:
    consumer = PushConsumer(
        namesrv,
        consumer_group=group,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        trace=True,
    )
    consumer.subscribe(topic, expression)
    consumer.listen(lambda messages, context: ConsumeConcurrentlyStatus.CONSUME_SUCCESS)
    return consumer


def _failing(namesrv: str, group: str, topic: str) -> PushConsumer:
    """A consumer that fails, without a retry: its messages go to the DLQ."""
    consumer = PushConsumer(
        namesrv,
        consumer_group=group,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        max_reconsume_times=0,
    )
    consumer.subscribe(topic)
    consumer.listen(lambda messages, context: ConsumeConcurrentlyStatus.RECONSUME_LATER)
    return consumer


def _pending(producer: Producer) -> None:
    for level, number in ((5, 2), (9, 3), (18, 1)):
        for _ in range(number):
            producer.send(Message("orders", b"later", delay_level=level))
    for hours in (1, 5, 26):
        producer.send(Message("orders", b"a reminder", delay_ms=hours * 3_600_000))


def _open_transaction(namesrv: str) -> TransactionProducer:
    producer = TransactionProducer(namesrv, lambda message: LocalTransactionState.UNKNOW, producer_group="checkout")
    producer.send_in_transaction(Message("orders", b"undecided"), lambda *given: LocalTransactionState.UNKNOW)
    producer.send_in_transaction(Message("orders", b"decided"), lambda *given: LocalTransactionState.COMMIT_MESSAGE)
    return producer


def _behind(admin: AdminClient, group: str, topic: str) -> None:
    """A group without members that has consumed a part of each queue."""
    for queue, bounds in admin.topic_stats(topic).items():
        admin.update_consume_offset(group, queue, bounds.max_offset // 3)


def main(port: int, seconds: float) -> None:
    """Serve the console of a demo cluster that gets some messages each second."""
    from gantrymq.client.runtime.loop_thread import LoopThread
    from gantrymq.client.settings import ClientConfig
    from gantrymq.console.cluster.site import cluster_site
    from gantrymq.console.server import ConsoleServer, access_rules

    with EmbeddedBroker() as broker, demo_cluster(broker.namesrv):
        loop = LoopThread("console")
        server = ConsoleServer(
            cluster_site(ClientConfig(broker.namesrv)), access_rules("127.0.0.1", allow_changes=True), port=port
        )
        loop.run(server.start())
        print(server.announcement(), flush=True)
        end, stop = time.monotonic() + seconds, threading.Event()
        with Producer(broker.namesrv, producer_group="shop") as producer:
            number = 0
            while time.monotonic() < end:
                for _ in range(number % 7 + 2):
                    producer.send(Message("orders", json.dumps(SAMPLE | {"id": number}).encode(), tags="paid"))
                number += 1
                stop.wait(0.3)
        loop.close(server.shutdown())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8580, float(sys.argv[2]) if len(sys.argv) > 2 else 1e9)
