"""A broker's metrics, as its endpoint serves them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from broker_cases import BrokerCase, StartBroker
from prometheus_client.parser import text_string_to_metric_families

from gantrymq.broker.metrics import catalog
from gantrymq.broker.metrics.recorder import message_type
from gantrymq.clock import ManualClock
from gantrymq.errors import ConfigError, RemotingError
from gantrymq.metrics.instruments import Kind
from gantrymq.model.flags import TRANSACTION_ROLLBACK
from gantrymq.model.message import parse_message_id
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.headers.offset import UpdateConsumerOffsetRequestHeader
from gantrymq.remoting.headers.pull import ViewMessageRequestHeader
from gantrymq.remoting.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    SendMessageResponseHeader,
)
from gantrymq.remoting.headers.topic import CreateTopicRequestHeader, DeleteTopicRequestHeader

pytestmark = pytest.mark.asyncio
PROM: Mapping[str, Any] = {"metrics_exporter_type": "PROM", "metrics_prom_exporter_port": 0}


class Scrape:
    """The samples of one scrape: (name, labels, value)."""

    def __init__(self, text: str) -> None:
        families = list(text_string_to_metric_families(text))
        self.samples = [(one.name, one.labels, one.value) for family in families for one in family.samples]
        self.names = {family.name for family in families}

    def value(self, name: str, **labels: str) -> float | None:
        """The sum of the samples with these labels; None without one."""
        found = [value for one, of, value in self.samples if one == name and labels.items() <= of.items()]
        return sum(found) if found else None


async def scrape(case: BrokerCase) -> Scrape:
    host, _, port = case.server.metrics.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    _, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return Scrape(body.decode())


async def test_requests_and_messages_are_counted(start_broker: StartBroker) -> None:
    case = await start_broker(**PROM, metrics_label="az:one,wrong")
    await case.heart_beat(topics=("T",), tags="a")
    for properties in ({}, {"__SHARDINGKEY": "k"}, {"TAGS": "a"}):
        await case.send(properties=properties)
    await asyncio.gather(*(case.send(body=b"x" * 2_000) for _ in range(20)))
    await case.dispatched(23)
    await case.pull(max_msg_nums=2)
    await case.ask(UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=0, commit_offset=1))
    await case.ask(77_777)
    found = await scrape(case)
    value = found.value
    assert value("rocketmq_messages_in_total", topic="T", message_type="normal", is_system="false") == 22
    assert value("rocketmq_messages_in_total", topic="T", message_type="fifo") == 1
    assert value("rocketmq_message_size_bucket", topic="T", le="1024.0", az="one", node_type="broker") == 3
    assert value("rocketmq_message_size_count", topic="T") == 23
    assert value("rocketmq_messages_out_total", topic="T", consumer_group="G") == 2
    assert value("rocketmq_rpc_latency_milliseconds_count", request_code="send_message_v2", result="success") == 23
    assert value("rocketmq_rpc_latency_milliseconds_count", request_code="unknown") == 1
    assert value("rocketmq_consumer_lag_messages", consumer_group="G", topic="T") == 1  # one of the rest has the tag
    assert value("rocketmq_consumer_inflight_messages", consumer_group="G") == 0
    assert (value("rocketmq_consumer_lag_latency_milliseconds", consumer_group="G") or 0) > 0
    assert value("rocketmq_consumer_connections", consumer_group="G", consume_mode="push", language="python") == 1
    assert value("rocketmq_producer_connections", version="v5_5_0") == 1
    throughput = value("rocketmq_throughput_in_total", topic="T")
    assert throughput == value("rocketmq_message_size_sum", topic="T") == case.server.store.max_phy_offset


async def test_exported_metrics_are_in_catalog(start_broker: StartBroker) -> None:
    case = await start_broker(**PROM)
    await case.send()
    found = await scrape(case)
    known = {metric.prometheus_name.removesuffix("_total") for metric in catalog.ALL}
    assert found.names - known == {"target_info"}
    plain = {one for one in catalog.ALL if not one.labels and one.kind is Kind.GAUGE}
    assert {one.prometheus_name for one in plain} <= found.names


async def test_deleted_topics_leave_no_series(start_broker: StartBroker) -> None:
    case = await start_broker(**PROM)
    await case.ask(
        CreateTopicRequestHeader(
            topic="T",
            default_topic="TBW102",
            read_queue_nums=1,
            write_queue_nums=1,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
    )
    await case.send()
    assert (await scrape(case)).value("rocketmq_messages_in_total", topic="T") == 1
    await case.ask(DeleteTopicRequestHeader(topic="T"))
    found = await scrape(case)
    assert found.value("rocketmq_messages_in_total", topic="T") is None
    assert found.value("rocketmq_topic_create_execution_time_milliseconds_count", invocation_status="success") == 1
    await case.send()
    assert (await scrape(case)).value("rocketmq_messages_in_total", topic="T") == 1


async def test_dead_letters_are_counted(start_broker: StartBroker) -> None:
    case = await start_broker(**PROM)
    await case.send()
    await case.dispatched(1)
    header = ConsumerSendMsgBackRequestHeader(offset=0, group="G", delay_level=-1, origin_topic="T")
    assert (await case.ask(header)).code == ResponseCode.SUCCESS
    assert (await scrape(case)).value("rocketmq_send_to_dlq_messages_total", consumer_group="G", topic="T") == 1


async def test_query_answer_has_no_long_polling_label(start_broker: StartBroker) -> None:
    case = await start_broker(**PROM)
    await case.send()
    for offset, code in ((0, ResponseCode.SUCCESS), (1 << 40, ResponseCode.SYSTEM_ERROR)):
        assert (await case.ask(ViewMessageRequestHeader(offset=offset))).code == code
    labels = {
        of["response_code"]: of.get("is_long_polling")
        for name, of, _ in (await scrape(case)).samples
        if name == "rocketmq_rpc_latency_milliseconds_count" and of["request_code"] == "view_message_by_id"
    }
    assert labels == {"success": None, "system_error": "false"}


async def test_metrics_settings_switch_and_limit_series(start_broker: StartBroker) -> None:
    case = await start_broker(
        **PROM, metrics_cardinality_limit=2, enable_message_store_metrics=False, enable_remoting_metrics=False
    )
    for number in range(5):
        await case.send(f"T{number}")
    found = await scrape(case)
    assert found.value("rocketmq_messages_in_total", otel_metric_overflow="true") == 4
    assert found.value("rocketmq_messages_in_total") == 5
    assert not any(name.startswith(("rocketmq_storage", "rocketmq_timer", "rocketmq_rpc")) for name in found.names)


async def test_two_brokers_of_process_have_separate_counts(start_broker: StartBroker, tmp_path: Path) -> None:
    first, second = await start_broker(**PROM), await start_broker(tmp_path / "second", **PROM, broker_name="broker-b")
    await first.send()
    assert (await scrape(first)).value("rocketmq_messages_in_total", node_id="broker-a") == 1
    assert (await scrape(second)).value("rocketmq_messages_in_total") is None
    assert (await scrape(second)).value("rocketmq_broker_permission", node_id="broker-b") == 6


async def test_used_metrics_port_fails_start_before_store_is_opened(start_broker: StartBroker, tmp_path: Path) -> None:
    first = await start_broker(**PROM)
    port = int(first.server.metrics.address.rpartition(":")[2])
    case = BrokerCase(tmp_path / "second", metrics_exporter_type="PROM", metrics_prom_exporter_port=port)
    with pytest.raises(RemotingError, match=f"cannot listen on 127.0.0.1:{port} for metrics"):
        await case.server.start()
    assert not (tmp_path / "second").exists()


@pytest.mark.parametrize("kind", ["PROM", "LOG", "OTLP_GRPC"])
async def test_missing_package_is_named_in_error(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("common.metrics_encoder", "grpc.metric_exporter"):
        monkeypatch.setitem(sys.modules, f"opentelemetry.exporter.otlp.proto.{name}", None)
    monkeypatch.setitem(sys.modules, "gantrymq.metrics.prometheus", None)
    case = BrokerCase(tmp_path / "store", metrics_exporter_type=kind, metrics_grpc_exporter_target="http://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"pip install 'gantrymq\[metrics\]'"):
        await case.server.start()
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        (None, "normal"),
        ("KEYS\x01DELAY\x02", "normal"),
        ("a\x01b\x02DELAY\x013\x02", "delay"),
        ("TIMER_DELAY_SEC\x013\x02", "delay"),
        ("__SHARDINGKEY\x01k\x02DELAY\x013\x02", "fifo"),
        ("TRAN_MSG\x01true\x02__SHARDINGKEY\x01k\x02", "transaction"),
        ("TRAN_MSG\x01false\x02", "normal"),
    ],
)
async def test_message_type_label_follows_properties(properties: str | None, kind: str) -> None:
    assert message_type(properties) == kind


async def test_deleted_topic_leaves_no_series(start_broker: StartBroker) -> None:
    """Its timers fall due after the deletion, and its half message is rolled back; neither counts below 0."""
    clock = ManualClock(1_700_000_000_000)
    case = await start_broker(**PROM, clock=clock, timer_precision_ms=100)
    due = {"TIMER_DELIVER_MS": str(clock.now_ms() + 5_000)}
    await case.send("gone")
    for _ in range(5):
        assert (await case.send("gone", properties=due)).code == ResponseCode.SUCCESS
    half = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "0" * 32}
    sent = await case.send("gone", properties=half, sys_flag=4)
    assert sent.code == ResponseCode.SUCCESS
    await case.send("stays", properties=due)
    timers = case.server.store.timers
    assert timers is not None
    while timers.metrics.count("gone") < 5 or timers.metrics.count("stays") < 1:
        clock.advance(100)
        await asyncio.sleep(0.01)
    found = await scrape(case)
    assert found.value("rocketmq_timing_messages", topic="gone") == 5
    assert found.value("rocketmq_half_messages", topic="gone") == 1
    assert (await case.ask(DeleteTopicRequestHeader(topic="gone"))).code == ResponseCode.SUCCESS
    clock.advance(10_000)
    while timers.metrics.count("stays"):
        await asyncio.sleep(0.01)
    end = EndTransactionRequestHeader(
        producer_group="P",
        tran_state_table_offset=0,
        commit_log_offset=parse_message_id(sent.read(SendMessageResponseHeader).msg_id)[1],
        commit_or_rollback=TRANSACTION_ROLLBACK,
    )
    assert (await case.ask(end)).code == ResponseCode.SUCCESS
    found = await scrape(case)
    gone = {name for name, labels, _ in found.samples if labels.get("topic") == "gone"}
    assert gone == {"rocketmq_rollback_messages_total"}  # of the half message, after the deletion
    names = {metric.prometheus_name for metric in catalog.ALL if metric.kind is Kind.GAUGE}
    assert min(value for name, _, value in found.samples if name in names) >= 0
