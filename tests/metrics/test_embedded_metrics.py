"""The metrics of an embedded broker, and what they read of its store."""

from __future__ import annotations

import time
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from gantrymq import EmbeddedBroker, Message, Producer
from gantrymq.embedded.stored import messages_of
from gantrymq.model.message import tag_code

WAIT_S = 60


def scrape(url: str) -> dict[tuple[str, str], float]:
    """The samples by name and by the label that a test looks at."""
    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        (sample.name, sample.labels.get("timer_bound_s") or sample.labels.get("topic") or ""): sample.value
        for family in families
        for sample in family.samples
    }


def test_embedded_broker_serves_its_metrics() -> None:
    with EmbeddedBroker(settings={"metricsExporterType": "PROM"}) as broker, Producer(broker.namesrv) as producer:
        for tag in ("a", "b") * 5:
            producer.send(Message("T", b"body", tags=tag))
        producer.send(Message("T", b"later", properties={"TIMER_DELAY_SEC": "50"}))
        # The counters change one after another while the timer goes into the wheel: a scrape can fall between them.
        timer = {
            ("rocketmq_timing_messages", "T"),
            ("rocketmq_timer_enqueue_total", "T"),
            ("rocketmq_timer_dequeue_lag", ""),
        }
        deadline = time.monotonic() + WAIT_S
        while {one: (found := scrape(broker.metrics_url)).get(one) for one in timer} != dict.fromkeys(timer, 1):
            assert time.monotonic() < deadline, "the timer message is not in the wheel"
            time.sleep(0.05)
        assert found["rocketmq_messages_in_total", "T"] == 10
        due = {bound: found["rocketmq_timer_message_snapshot", bound] for bound in ("5", "60", "300")}
        assert due == {"5": 0, "60": 1, "300": 0}
        assert found["rocketmq_storage_message_reserve_time_milliseconds", ""] >= 0
    with EmbeddedBroker() as broker:
        assert broker.metrics_url == ""


def test_estimate_of_matching_messages_is_exact_within_limits() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("T", queues=1)
        with Producer(broker.namesrv) as producer:
            producer.send_batch([Message("T", b"x", tags="a" if number % 4 == 0 else "b") for number in range(1_200)])
        broker.wait_for_messages("T", 1_200)
        store = broker._life.store
        assert store is not None
        assert len(messages_of(store, "T", 1 << 20)) == 1_200

        def estimate(begin: int, end: int, *, units: int = 20_000, matches: int = 5_000) -> int:
            return store.lookup.estimate_matches(
                "T", 0, begin, end, {tag_code("a")}, most_units=units, most_matches=matches
            )

        assert estimate(0, 1_200) == 300
        assert estimate(1, 5) == 1
        assert estimate(5, 5) == 0
        assert estimate(0, 1_200, units=400) == 300  # a third is read, and a quarter of it matches
        assert estimate(0, 1_200, matches=1) == 300
        assert store.lookup.estimate_matches("none", 0, 0, 9, {1}, most_units=9, most_matches=9) == 0
