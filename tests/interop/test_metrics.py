"""The metrics of the real broker and of ours, scraped under the same load: names, types, labels, and counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from .fixed_ports import fixed_port
from .java import Setting
from .java_cluster import JavaCluster
from .metrics_load import Scrape, Series, run_load, scrape
from .metrics_wide_load import run_wide_load
from .our_broker import OurBroker

# Counters that the load determines. (The others depend on how often clients ask.)
EXACT = (
    ("rocketmq_messages_in_total", {"topic": "made"}),
    ("rocketmq_messages_in_total", {"topic": "made", "message_type": "fifo"}),
    ("rocketmq_messages_in_total", {"topic": "delayed"}),
    ("rocketmq_messages_in_total", {"topic": "SCHEDULE_TOPIC_XXXX"}),
    ("rocketmq_messages_in_total", {"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "message_type": "transaction"}),
    ("rocketmq_message_size_count", {"topic": "made"}),
    ("rocketmq_send_to_dlq_messages_total", {"consumer_group": "pushed", "topic": "made"}),
    ("rocketmq_commit_messages_total", {"topic": "made"}),
    ("rocketmq_rollback_messages_total", {"topic": "made"}),
    ("rocketmq_half_messages", {"topic": "made"}),
    ("rocketmq_finish_message_latency_milliseconds_count", {"topic": "made"}),
    ("rocketmq_timer_enqueue_total", {"topic": "timed"}),
    ("rocketmq_timer_dequeue_total", {"topic": "timed"}),
    ("rocketmq_delay_message_latency_seconds_count", {"topic": "timed"}),
    ("rocketmq_topic_create_execution_time_milliseconds_count", {"invocation_status": "success"}),
    ("rocketmq_consumer_group_create_execution_time_milliseconds_count", {"invocation_status": "success"}),
    ("rocketmq_consumer_connections", {"consumer_group": "pushed"}),
    ("rocketmq_consumer_lag_messages", {"consumer_group": "pushed", "topic": "made"}),
    ("rocketmq_pop_revive_retry_messages_total", {"consumer_group": "popped"}),
    ("rocketmq_broker_permission", {}),
)
# Labels whose values are words of RocketMQ.
WORDS = (
    ("rocketmq_messages_in_total", "message_type"),
    ("rocketmq_messages_in_total", "is_system"),
    ("rocketmq_messages_out_total", "is_retry"),
    ("rocketmq_processor_watermark", "processor"),
    ("rocketmq_consumer_connections", "consume_mode"),
    ("rocketmq_consumer_connections", "language"),
    ("rocketmq_consumer_connections", "version"),
    ("rocketmq_rpc_latency_milliseconds_count", "protocol_type"),
    ("rocketmq_rpc_latency_milliseconds_count", "is_long_polling"),
    ("rocketmq_rpc_latency_milliseconds_count", "result"),
    ("rocketmq_rpc_latency_milliseconds_bucket", "le"),
    ("rocketmq_message_size_bucket", "le"),
    ("rocketmq_finish_message_latency_milliseconds_bucket", "le"),
    ("rocketmq_delay_message_latency_seconds_bucket", "le"),
    ("rocketmq_pop_buffer_scan_time_consume_milliseconds_bucket", "le"),
    ("rocketmq_topic_create_execution_time_milliseconds_bucket", "le"),
    ("rocketmq_timer_message_snapshot", "timer_bound_s"),
    ("rocketmq_pop_revive_in_message_total", "revive_message_type"),
    ("rocketmq_pop_revive_in_message_total", "put_status"),
    ("rocketmq_pop_revive_lag_milliseconds", "queue_id"),
    ("rocketmq_storage_size_bytes", "storage_type"),
)


# Requests of consumers whose answers depend on moments: a pull waits or does not, a new member asks again.
IN_THE_BACKGROUND = ("pull_message", "lite_pull_message", "pop_message", "query_consumer_offset")


class Two(NamedTuple):
    """The scrapes of the real broker and of ours."""

    theirs: Scrape
    ours: Scrape


def series_of(one: Scrape) -> set[Series]:
    """All series of RocketMQ's metrics, without what depends on moments.

    A pop takes any queue of the revive topic. RocketMQ keeps the series of a deleted topic.
    """
    found = set[Series]()
    for series in one.values:
        labels = dict(series.labels)
        if (
            labels.get("request_code") in IN_THE_BACKGROUND
            or labels.get("topic") == "doomed"
            or series.name.startswith("gantrymq_")
        ):
            continue
        if series.name == "rocketmq_pop_revive_out_message_total":
            del labels["queue_id"]
        found.add(Series(series.name, tuple(sorted(labels.items()))))
    return found


@contextmanager
def brokers(
    folder: Path, more: Mapping[str, Setting] | None = None
) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """The real cluster and ours, as (name server, address of the metrics)."""
    port, our_port = fixed_port(), fixed_port()
    common = {"metricsExporterType": "PROM", "metricsPromExporterHost": "127.0.0.1", "timerWheelEnable": True}
    common |= {
        "metricsLabel": "az-1:one,1st:first,none",
        "enablePropertyFilter": True,
        "brokerName": "broker-a",
        "autoCreateSubscriptionGroup": True,
    }
    common |= more or {}
    with (
        JavaCluster(folder / "theirs", common | {"metricsPromExporterPort": port}) as java,
        JavaCluster(None, broker=False) as names,
        OurBroker(folder / "ours", common | {"metricsPromExporterPort": our_port}, namesrv=names.namesrv),
    ):
        yield (java.namesrv, f"127.0.0.1:{port}"), (names.namesrv, f"127.0.0.1:{our_port}")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_scrape_equals_that_of_real_broker(tmp_path: Path) -> None:
    with brokers(tmp_path) as both:
        two = Two(*(run_load(namesrv, lambda at=at: scrape(at)) for namesrv, at in both))
    (tmp_path / "theirs.txt").write_text(two.theirs.text)
    (tmp_path / "ours.txt").write_text(two.ours.text)
    kinds = {name: kind for name, kind in two.ours.kinds.items() if not name.startswith("gantrymq_")}
    assert kinds == two.theirs.kinds
    wrong = {
        name: (found, two.ours.label_sets().get(name))
        for name, found in two.theirs.label_sets().items()
        if found != two.ours.label_sets().get(name)
    }
    assert wrong == {}
    assert {one: two.ours.values_of(*one) for one in WORDS} == {one: two.theirs.values_of(*one) for one in WORDS}
    assert {str(one): two.ours.value(one[0], **one[1]) for one in EXACT} == {
        str(one): two.theirs.value(one[0], **one[1]) for one in EXACT
    }
    theirs, ours = (one.answers() for one in two)
    assert {one for one in theirs if one[1] == "success"} <= ours


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_metric_series_equal_those_of_real_broker(tmp_path: Path) -> None:
    with brokers(tmp_path) as both:
        scrapes = []
        for number, (namesrv, at) in enumerate(both):
            folder = tmp_path / f"offsets{number}"
            folder.mkdir()
            scrapes.append(run_wide_load(namesrv, folder, lambda at=at: scrape(at)))  # type: ignore[misc]
    two = Two(*scrapes)
    (tmp_path / "theirs.txt").write_text(two.theirs.text)
    (tmp_path / "ours.txt").write_text(two.ours.text)
    theirs, ours = (series_of(one) for one in two)
    assert (theirs - ours, ours - theirs) == (set(), set())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_label_limit_and_delta_equal_those_of_real_broker(tmp_path: Path) -> None:
    with brokers(tmp_path, {"metricsOtelCardinalityLimit": 6, "metricsInDelta": True}) as both:
        two = Two(*(run_load(namesrv, lambda at=at: scrape(at)) for namesrv, at in both))
    overflow = ("otel_metric_overflow", "otel_scope_name")
    theirs, ours = ({name for name, sets in one.label_sets().items() if overflow in sets} for one in two)
    assert ours == theirs
    assert "rocketmq_messages_in_total" in ours
    for one in two:
        assert one.values_of("rocketmq_broker_permission", "aggregation") == {"delta"}
        assert len([series for series in one.values if series.name == "rocketmq_messages_in_total"]) == 6
