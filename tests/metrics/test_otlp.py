"""Exports through OpenTelemetry: to a collector, and to the log."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gantrymq.broker.server import BrokerServer
from gantrymq.config.broker_settings import BrokerConfig, LiveConfig
from gantrymq.config.exporter_settings import ExporterConfig
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.metrics.background import BackgroundExporter
from gantrymq.metrics.exporter import MetricsExporter
from gantrymq.metrics.instruments import Counter, Family, Histogram, Kind, Metric, value_now
from gantrymq.metrics.otlp import Exports, GrpcSink, GrpcTarget, LogSink

SENDS = Metric("sends_total", Kind.COUNTER, "Sends.", ("topic", "kind"))
SIZE = Metric("size", Kind.HISTOGRAM, "Sizes.", ("topic",), "bytes", (10, 100))
AGE = Metric("age", Kind.GAUGE, "Ages.", (), "ms")


class Kept:
    """A sink that keeps what it gets: points by metric."""

    def __init__(self) -> None:
        self.exports: list[dict[str, list[Any]]] = []

    def send(self, data: Any) -> str:
        metrics = data.resource_metrics[0].scope_metrics[0].metrics
        self.exports.append({one.name: list(one.data.data_points) for one in metrics})
        return ""

    def close(self) -> None:
        pass


@pytest.mark.parametrize("is_delta", [False, True])
def test_exports_are_sums_or_differences(is_delta: bool) -> None:
    sends, sizes, kept, now_ns = Counter(SENDS, 2), Histogram(SIZE, 10), Kept(), iter(range(100, 900, 100))
    exports = Exports(kept, "meter", {"az": "1"}, lambda: next(now_ns), is_delta=is_delta)
    for added in (3, 4):
        sends.series(topic="T", kind=None).value += added
        sends.series(topic="U", kind="a").value += 1  # above the limit
        sizes.series(topic="T").record(5, added)
        exports.export([sends.family(), sizes.family(), value_now(AGE, added)])
    first, second = kept.exports
    assert first["sends_total"][0].attributes == {"az": "1", "topic": "T"}
    assert first["sends_total"][1].attributes == {"otel.metric.overflow": True}
    assert [one["sends_total"][0].value for one in (first, second)] == ([3, 4] if is_delta else [3, 7])
    assert [one["size"][0].bucket_counts for one in (first, second)] == [
        (3, 0, 0),
        (4, 0, 0) if is_delta else (7, 0, 0),
    ]
    assert [one["size"][0].sum for one in (first, second)] == ([15, 20] if is_delta else [15, 35])
    assert [one["age"][0].value for one in (first, second)] == [3, 4]
    assert second["sends_total"][0].start_time_unix_nano == (200 if is_delta else 100)


def test_otlp_labels_have_types_of_rocketmq() -> None:
    lag, kept = Counter(Metric("lag_total", Kind.COUNTER, "Lag.", ("topic", "is_system", "queue_id")), 3), Kept()
    lag.series(topic="T", is_system="true", queue_id="7").value += 1
    Exports(kept, "meter", {}, lambda: 1, is_delta=False).export([lag.family()])
    [point] = kept.exports[0]["lag_total"]
    assert point.attributes == {"topic": "T", "is_system": True, "queue_id": 7}


def test_zero_delta_is_omitted() -> None:
    sends, sizes, kept = Counter(SENDS, 3), Histogram(SIZE, 3), Kept()
    exports = Exports(kept, "meter", {}, lambda: 1, is_delta=True)
    sizes.series(topic="T").record(0)
    for added in (1, 0, 2):
        sends.series(topic="T", kind="a").value += added
        sends.series(topic="U", kind="a").value += 1
        exports.export([sends.family(), sizes.family(), value_now(AGE, 0)])
    assert [[point.value for point in one["sends_total"]] for one in kept.exports] == [[1, 1], [1], [2, 1]]
    assert [sorted(one) for one in kept.exports] == [["age", "sends_total", "size"], *[["age", "sends_total"]] * 2]


def test_log_exporter_writes_otlp_json() -> None:
    sends = Counter(SENDS, 2)
    sends.series(topic="T", kind="a").value += 3
    with capture_logs() as lines:
        Exports(LogSink(), "meter", {}, lambda: 1, is_delta=False).export([sends.family()])
    [line] = [one for one in lines if "otlp" in one]
    scope = json.loads(line["otlp"])["scopeMetrics"][0]
    assert scope["scope"]["name"] == "meter"
    assert scope["metrics"][0]["sum"]["dataPoints"][0]["asInt"] == "3"


@pytest.mark.slow
def test_collector_gets_metrics_of_broker(tmp_path: Path) -> None:
    """A real gRPC server with OpenTelemetry's service; the broker exports to it at its end."""
    import grpc
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as messages
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as service

    found: list[Any] = []
    headers: list[dict[str, str]] = []

    class Collector(service.MetricsServiceServicer):  # type: ignore[misc]
        def Export(self, request: Any, context: Any) -> Any:
            headers.append(dict(context.invocation_metadata()))
            found.extend(one for of in request.resource_metrics for scope in of.scope_metrics for one in scope.metrics)
            return messages.ExportMetricsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(1))
    service.add_MetricsServiceServicer_to_server(Collector(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    broker = BrokerConfig(
        listen_port=0, metrics_exporter_type="OTLP_GRPC", metrics_grpc_exporter_target=f"http://127.0.0.1:{port}",
        metrics_grpc_exporter_header="X-Account:me", metrics_export_batch_max_data_points=10,
    )  # fmt: skip

    async def run() -> None:
        one = BrokerServer(
            tmp_path / "store", LiveConfig(broker, MessageStoreConfig(mapped_file_size_commit_log=1 << 20))
        )
        await one.start()
        await one.shutdown()

    asyncio.run(run())
    server.stop(None)
    by_name = {one.name: one for one in found}
    assert len(headers) > 1, "the export is split"
    assert headers[0]["x-account"] == "me"
    [permission] = by_name["rocketmq_broker_permission"].gauge.data_points
    assert permission.as_int == 6
    assert {one.key: one.value.string_value for one in permission.attributes}["node_id"] == "broker-a"
    assert by_name["rocketmq_storage_size"].unit == "bytes"


@pytest.mark.slow
def test_unreachable_collector_is_logged_once(capfd: pytest.CaptureFixture[str]) -> None:
    sink = GrpcSink(GrpcTarget("http://127.0.0.1:1", {}, 200, 100))
    families = [value_now(AGE, 1)]

    async def collect() -> Sequence[Family]:
        return families

    async def run() -> None:
        exporter = MetricsExporter(ExporterConfig, collect, {})
        exports = Exports(sink, "meter", {}, lambda: 1, is_delta=False)
        for _ in range(3):
            await exporter._export(exports)
        await exporter._export(Exports(Kept(), "meter", {}, lambda: 1, is_delta=False))

    with capture_logs() as lines:
        asyncio.run(run())
    sink.close()
    assert [line["event"] for line in lines] == ["metrics cannot be exported", "metrics are exported again"]
    assert "127.0.0.1:1" in lines[0]["error"]
    assert capfd.readouterr().err == ""


def test_collector_that_does_not_answer_does_not_fail_close(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, asked = threading.Event(), threading.Event()

    def wait(exports: Exports, families: Sequence[Family]) -> str:
        asked.set()
        answered.wait(60)
        return ""

    monkeypatch.setattr("gantrymq.metrics.background._CLOSE_S", 0.2)
    config = ExporterConfig(metrics_exporter_type="LOG")
    monkeypatch.setattr(Exports, "export", wait)
    with capture_logs() as lines:
        BackgroundExporter(config, list, {}).close()
    answered.set()
    assert asked.is_set()
    assert [line["event"] for line in lines] == ["the last metrics were not exported in time"]
