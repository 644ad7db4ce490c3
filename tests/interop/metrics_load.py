"""The load under which the metrics of two brokers are compared: each kind of message and request, in one client."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from gantrymq import (
    AdminClient,
    ConsumeFromWhere,
    LocalTransactionState,
    Message,
    Producer,
    PullClient,
    PushConsumer,
    ReceivedMessage,
    SimpleConsumer,
    TransactionProducer,
)

WAIT_S = 60
DECISIONS = {
    b"commit": LocalTransactionState.COMMIT_MESSAGE,
    b"rollback": LocalTransactionState.ROLLBACK_MESSAGE,
    b"open": LocalTransactionState.UNKNOW,
}


class Series(NamedTuple):
    """One sample without its value."""

    name: str
    labels: tuple[tuple[str, str], ...]


class Scrape:
    """The families and samples of a scrape, read by Prometheus' own Python parser."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.kinds: dict[str, str] = {}
        self.values: dict[Series, float] = {}
        for family in text_string_to_metric_families(text):
            self.kinds[family.name] = family.type
            for sample in family.samples:
                self.values[Series(sample.name, tuple(sorted(sample.labels.items())))] = sample.value

    def label_sets(self) -> dict[str, set[tuple[str, ...]]]:
        """The sets of label names that the samples of each name have."""
        found: dict[str, set[tuple[str, ...]]] = {}
        for series in self.values:
            found.setdefault(series.name, set()).add(tuple(name for name, _ in series.labels))
        return found

    def values_of(self, name: str, label: str) -> set[str]:
        """The values of a label of one metric."""
        labels = [dict(series.labels) for series in self.values if series.name == name]
        return {one[label] for one in labels if label in one}

    def answers(self) -> set[tuple[str, str]]:
        """The request codes, each with a response code, whose latency was measured."""
        labels = [dict(one.labels) for one in self.values if one.name == "rocketmq_rpc_latency_milliseconds_count"]
        return {(one["request_code"], one["response_code"]) for one in labels}

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels."""
        found = [value for series, value in self.values.items() if series.name == name and _has(series, labels)]
        return sum(found)


def _has(series: Series, labels: dict[str, str]) -> bool:
    return labels.items() <= dict(series.labels).items()


def scrape(address: str) -> Scrape:
    """Scrape a broker's endpoint."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_S) as answer:
        return Scrape(answer.read().decode())


def until(is_true: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}"
        time.sleep(0.05)


def run_load(namesrv: str, meanwhile: Callable[[], Scrape]) -> Scrape:
    """Put the load on a broker. The scrape is taken while consumers are connected, after a popped message came back."""
    with AdminClient(namesrv) as admin:
        admin.create_topic("made", read_queue_nums=4, write_queue_nums=4)
        admin.create_subscription_group("pushed")
    _transact(namesrv)
    inbox, lock = Counter[bytes](), threading.Lock()

    def listen(messages: Sequence[ReceivedMessage], _: object) -> None:
        with lock:
            inbox.update(one.body for one in messages)
        if any(one.body == b"fails" for one in messages):
            raise RuntimeError("this message goes to the dead letters")

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    push = PushConsumer(namesrv, consumer_group="pushed", max_reconsume_times=0, consume_from_where=first)
    push.subscribe("made")
    push.subscribe("tagged", "wanted")
    push.listen(listen)
    pop = SimpleConsumer(
        namesrv, consumer_group="popped", invisible_duration_ms=1_000, await_duration_ms=1_000, consume_from_where=first
    )
    with Producer(namesrv, producer_group="sends") as producer, push, pop:
        _send(producer)
        _pull(namesrv)
        until(lambda: inbox[b"fails"] > 0 and inbox[b"normal"] == 3 and inbox[b"commit"] == 1, "all are consumed")
        pop.subscribe("timed")
        _pop(pop)
        lag = "rocketmq_consumer_lag_messages"  # a consumer commits its offsets every 5 s
        until(lambda: meanwhile().value(lag, consumer_group="pushed") == 0, "the offsets are committed")
        return meanwhile()


def _send(producer: Producer) -> None:
    for _ in range(3):
        producer.send(Message("made", b"normal"))
    producer.send(Message("made", b"fails"))
    producer.send(Message("made", b"in order", properties={"__SHARDINGKEY": "a"}))
    producer.send_oneway(Message("made", b"one-way"))
    producer.send_batch([Message("made", b"in a batch %d" % one) for one in range(3)])
    producer.send(Message("made", b"x" * 5_000))
    producer.send(Message("tagged", b"tagged", tags="wanted"))
    producer.send(Message("tagged", b"tagged", tags="other"))
    producer.send(Message("delayed", b"delayed", delay_level=1))
    for _ in range(2):
        producer.send(Message("timed", b"timed", properties={"TIMER_DELAY_SEC": "1"}))


def _pull(namesrv: str) -> None:
    with PullClient(namesrv) as client:
        for queue in client.queues("made"):
            client.pull(queue, client.min_offset(queue))


def _transact(namesrv: str) -> None:
    with TransactionProducer(
        namesrv, lambda message: LocalTransactionState.UNKNOW, topics=["made"], producer_group="transacts"
    ) as producer:
        for body in DECISIONS:
            producer.send_in_transaction(Message("made", body), lambda message, _: DECISIONS[bytes(message.body)])


def _pop(consumer: SimpleConsumer) -> None:
    """Pop two messages, acknowledge one, hide the other longer, and wait until it comes again."""
    found: list[ReceivedMessage] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < 2:
        assert time.monotonic() < deadline, "the timed messages do not come"
        found += consumer.receive(8, invisible_ms=15_000)
    consumer.ack(found[0])
    consumer.change_invisible_duration(found[1], 1_000)
    while not any(one.reconsume_times for one in consumer.receive(8, invisible_ms=15_000)):
        assert time.monotonic() < deadline, "the message that was not acknowledged does not come again"
