"""More load for the comparison of metrics: what applications do beside sends, and what fails."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from gantrymq import (
    AdminClient,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    LitePullConsumer,
    Message,
    MessageModel,
    MQBrokerError,
    MQClientError,
    Producer,
    PullClient,
    PushConsumer,
    RemotingError,
    SimpleConsumer,
)

from .metrics_load import Scrape, until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
TOPICS = ("orders", "tagged", "broadcast", "lite", "popped", "fifo-popped", "retried", "unread", "halves")
GROUPS = ("orderly", "tags", "sql", "broadcasts", "lites", "pops", "fifo-pops", "retries")


def run_wide_load(namesrv: str, folder: Path, meanwhile: Callable[[], Scrape]) -> Scrape:
    """Put the load on a broker. The scrape is taken while the consumers are connected."""
    with AdminClient(namesrv) as admin:
        for topic in TOPICS:
            admin.create_topic(topic, read_queue_nums=2, write_queue_nums=2)
        for group in GROUPS:
            admin.create_subscription_group(group)
    got, lock = Counter[str](), threading.Lock()

    def counted(group: str) -> None:
        with lock:
            got[group] += 1

    orderly = PushConsumer(namesrv, consumer_group="orderly", consume_from_where=FIRST)
    orderly.subscribe("orders")
    orderly.listen_orderly(lambda messages, _: (counted("orderly"), ConsumeOrderlyStatus.SUCCESS)[1])
    tags = PushConsumer(namesrv, consumer_group="tags", consume_from_where=FIRST)
    tags.subscribe("tagged", "a || b")
    tags.listen(lambda messages, _: counted("tags"))
    broadcasts = PushConsumer(
        namesrv, consumer_group="broadcasts", consume_from_where=FIRST, message_model=MessageModel.BROADCASTING,
        local_offset_store_dir=folder,
    )  # fmt: skip
    broadcasts.subscribe("broadcast")
    broadcasts.listen(lambda messages, _: counted("broadcasts"))
    retries = PushConsumer(namesrv, consumer_group="retries", consume_from_where=FIRST, max_reconsume_times=1)
    retries.subscribe("retried")

    def later(messages: object, context: object) -> ConsumeConcurrentlyStatus:
        counted("retries")
        context.delay_level_when_next_consume = 1  # type: ignore[attr-defined]
        return ConsumeConcurrentlyStatus.RECONSUME_LATER

    retries.listen(later)
    lite = LitePullConsumer(namesrv, consumer_group="lites", consume_from_where=FIRST)
    lite.subscribe("lite")
    pops = SimpleConsumer(
        namesrv, consumer_group="pops", invisible_duration_ms=1_000, await_duration_ms=500, consume_from_where=FIRST
    )
    fifo = SimpleConsumer(
        namesrv, consumer_group="fifo-pops", invisible_duration_ms=1_000, await_duration_ms=500,
        consume_from_where=FIRST, consume_orderly=True,
    )  # fmt: skip
    with Producer(namesrv, producer_group="wide") as producer, orderly, tags, broadcasts, retries, lite, pops, fifo:
        _send(producer)
        until(lambda: len(lite.poll(200)) > 0, "a lite pull consumer gets messages")
        pops.subscribe("popped")
        fifo.subscribe("fifo-popped")
        _pop(pops)
        until(lambda: len(fifo.receive(4)) > 0, "the messages in order are popped")
        _fail(namesrv, producer)
        _administer(namesrv)
        expected = {"orderly": 3, "tags": 4, "broadcasts": 3, "retries": 2}
        until(lambda: all(got[group] >= count for group, count in expected.items()), f"consumed: {got}")
        lag = "rocketmq_consumer_lag_messages"
        until(
            lambda: all(
                meanwhile().value(lag, consumer_group=group) == 0 for group in ("orderly", "tags", "retries", "lites")
            ),
            "the offsets are committed",
        )
        return meanwhile()


def _send(producer: Producer) -> None:
    for number in range(3):
        producer.send(Message("orders", b"%d" % number, properties={"__SHARDINGKEY": "one"}))
        producer.send(Message("broadcast", b"%d" % number))
        producer.send(Message("lite", b"%d" % number))
        producer.send(Message("popped", b"%d" % number))
        producer.send(Message("fifo-popped", b"%d" % number, properties={"__SHARDINGKEY": "one"}))
        producer.send(Message("unread", b"%d" % number))
    for tag in ("a", "b", "c", "a", "b"):
        producer.send(Message("tagged", b"x", tags=tag, keys=[f"key-{tag}"]))
    producer.send(Message("retried", b"again"))
    for level in (1, 3, 18):
        producer.send(Message("orders-later", b"delayed", delay_level=level))
    producer.send(Message("timed-long", b"timed", properties={"TIMER_DELAY_SEC": "86400"}))
    producer.send(Message("timed-long", b"timed", properties={"TIMER_DELAY_MS": "1000"}))
    producer.send_batch([Message("batched", b"%d" % number, tags="t") for number in range(5)])
    for size in (10, 2_000, 10_000, 600_000):
        producer.send(Message("sized", b"x" * size))


def _pop(consumer: SimpleConsumer) -> None:
    found = []
    while len(found) < 3:
        found += consumer.receive(8, invisible_ms=20_000)
    consumer.ack(found[0])
    consumer.change_invisible_duration(found[1], 500)
    # found[2] and found[1] come again
    again = []

    def come() -> bool:
        again.extend(consumer.receive(8, invisible_ms=20_000))
        return any(one.reconsume_times for one in again)

    until(come, "a popped message comes again")


def _fail(namesrv: str, producer: Producer) -> None:
    def fails(call: Callable[[], object]) -> None:
        try:
            call()
        except (MQBrokerError, MQClientError, RemotingError):
            return
        raise AssertionError("this call must fail")

    with AdminClient(namesrv) as admin, PullClient(namesrv) as client:
        broker = admin.cluster_info().broker_addr_table["broker-a"].broker_addrs[0]
        fails(lambda: admin.topic_stats("no-such-topic"))
        fails(lambda: admin.consumer_connection("no-such-group"))
        fails(lambda: admin.topic_config("no-such-topic", broker))
        fails(lambda: admin.view_message("orders", "7F00000100002A9F0000000000FFFFFF"))
        admin.create_topic("closed", read_queue_nums=1, write_queue_nums=1)
        [queue] = client.queues("closed")
        admin.create_topic("closed", read_queue_nums=1, write_queue_nums=1, perm=0)
        fails(lambda: client.pull(queue, 0))
        fails(lambda: producer.send(Message("closed", b"x"), queue))
        fails(lambda: admin.create_topic("no/good", read_queue_nums=1, write_queue_nums=1))
        wrong = type(queue)("orders", queue.broker_name, 99)
        fails(lambda: client.pull(wrong, 0))
        fails(lambda: producer.send(Message("orders", b"x"), wrong))


def _administer(namesrv: str) -> None:
    with AdminClient(namesrv) as admin:
        broker = admin.cluster_info().broker_addr_table["broker-a"].broker_addrs[0]
        admin.broker_runtime_info(broker)
        admin.broker_config(broker)
        admin.topic_configs(broker)
        admin.subscription_groups(broker)
        admin.topic_stats("orders")
        admin.topic_consumers("orders")
        admin.consume_stats("orderly")
        admin.consumer_connection("orderly")
        admin.producer_connection("wide", "orders")
        admin.all_producers(broker)
        admin.query_message("tagged", "key-a")
        admin.ha_status(broker)
        admin.broker_consume_stats(broker)
        admin.update_broker_config({"maxMessageSize": "4194304"}, broker=broker)
        admin.create_topic("doomed", read_queue_nums=1, write_queue_nums=1)
        with Producer(namesrv, producer_group="dooms") as producer:
            producer.send(Message("doomed", b"x"))
        admin.create_subscription_group("doomed")
        admin.delete_subscription_group("doomed", remove_offset=True)
        admin.delete_topic("doomed")
