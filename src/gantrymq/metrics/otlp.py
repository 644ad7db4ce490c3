"""Exports through OpenTelemetry: to a collector over gRPC (OTLP_GRPC), or as OTLP JSON lines to the log (LOG).

The instruments are those of Prometheus' endpoint; a snapshot is turned into OpenTelemetry's data classes, and its
exporter sends them. So there is one set of instruments, no global meter provider, and nothing of OpenTelemetry in the
code that measures. The packages are imported when an exporter is constructed.

Thread rule: :meth:`Exports.export` runs on one thread at a time, not on an event loop's.

Source: BrokerMetricsManager.init, BatchSplittingMetricExporter, OtlpJsonLoggingMetricExporter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gantrymq.logs import get_logger
from gantrymq.metrics.instruments import (
    OVERFLOW_LABEL,
    Family,
    HistogramValue,
    Kind,
    LabelValues,
    Metric,
    Value,
    encodable,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData

_EXPORTERS_LOGGER = "opentelemetry.exporter.otlp.proto.grpc.exporter"
_MAX_OF_A_LINE = 300
# The labels whose values are no texts in RocketMQ.
_TYPED: Mapping[str, Callable[[str], bool | int]] = {
    **dict.fromkeys(("is_system", "is_retry", "is_long_polling"), lambda text: text == "true"),
    "queue_id": int,
}

log = get_logger("gantrymq.metrics")


class MetricSink(Protocol):
    """The end of an export."""

    def send(self, data: MetricsData) -> str:
        """Send one export. Returns why that failed; an empty text if it succeeded."""
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


@dataclass(frozen=True)
class GrpcTarget:
    """A collector. ``endpoint`` without ``http://`` is reached over TLS, as by RocketMQ."""

    endpoint: str
    headers: Mapping[str, str]
    timeout_ms: int
    most_points: int


class GrpcSink:
    """Sends to a collector. Raises ImportError without the extra ``metrics``."""

    def __init__(self, target: GrpcTarget) -> None:
        from grpc import Compression
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

        endpoint = target.endpoint if target.endpoint.startswith("http") else f"https://{target.endpoint}"
        self._exporter = OTLPMetricExporter(
            endpoint=endpoint,
            insecure=endpoint.startswith("http://"),
            headers={name.lower(): value for name, value in target.headers.items()},
            timeout=target.timeout_ms / 1000,
            compression=Compression.Gzip,
            max_export_batch_size=target.most_points,
        )
        self._last_line = _LastLine()
        logging.getLogger(_EXPORTERS_LOGGER).addHandler(self._last_line)

    def send(self, data: MetricsData) -> str:
        """Send one export. Returns why that failed; an empty text if it succeeded."""
        from opentelemetry.sdk.metrics.export import MetricExportResult

        is_sent = self._exporter.export(data) is MetricExportResult.SUCCESS
        return "" if is_sent else self._last_line.text or "no reason is known"

    def close(self) -> None:
        """Release the connection."""
        self._exporter.shutdown()
        logging.getLogger(_EXPORTERS_LOGGER).removeHandler(self._last_line)


class _LastLine(logging.Handler):
    """Keeps the exporter's last line, which has the reason of a failure.

    Without a handler Python writes the exporter's warnings to stderr: two lines each interval while a collector is
    away.
    """

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.text = record.getMessage()[:_MAX_OF_A_LINE]


class LogSink:
    """Writes OTLP JSON to the log, one line an export. Raises ImportError without the extra ``metrics``."""

    def __init__(self) -> None:
        from google.protobuf.json_format import MessageToJson
        from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

        self._encode, self._to_json = encode_metrics, MessageToJson

    def send(self, data: MetricsData) -> str:
        """Write one export. Returns an empty text."""
        for resource in self._encode(data).resource_metrics:
            text = self._to_json(resource, indent=None, use_integers_for_enums=True)
            log.info("metrics", otlp=text)
        return ""

    def close(self) -> None:
        """Do nothing."""


class Exports:
    """Turns snapshots into exports for a sink.

    ``scope`` is the name of the meter, ``common`` are the labels of every series. With ``is_delta`` counters and
    histograms are the difference to the last export, and a series without one is left out; a difference whose export
    fails is lost. OpenTelemetry does the same.
    """

    def __init__(
        self, sink: MetricSink, scope: str, common: Mapping[str, str], now_ns: Callable[[], int], *, is_delta: bool
    ) -> None:
        self._sink, self._scope, self._common, self._now_ns = sink, scope, dict(common), now_ns
        self._is_delta = is_delta
        self._began_ns = now_ns()
        self._last: dict[tuple[str, LabelValues | None], Value] = {}

    def export(self, families: Sequence[Family]) -> str:
        """Send a snapshot. Returns why that failed; an empty text if it succeeded."""
        now_ns = self._now_ns()
        data = self._data(families, now_ns)
        if self._is_delta:
            self._began_ns = now_ns
        return self._sink.send(data)

    def close(self) -> None:
        """Release the sink."""
        self._sink.close()

    def _data(self, families: Sequence[Family], now_ns: int) -> MetricsData:
        from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        families_now = (self._metric(family, now_ns) for family in families)
        metrics = [metric for metric in families_now if metric.data.data_points]
        scope = ScopeMetrics(scope=InstrumentationScope(self._scope), metrics=metrics, schema_url="")
        resource = ResourceMetrics(resource=Resource.get_empty(), scope_metrics=[scope], schema_url="")
        return MetricsData(resource_metrics=[resource])

    def _metric(self, family: Family, now_ns: int) -> Any:
        from opentelemetry.sdk.metrics import export

        metric = family.metric
        series: list[tuple[LabelValues | None, Value]] = [*family.points]
        if family.overflow is not None:
            series.append((None, family.overflow))
        if self._is_delta and metric.kind is not Kind.GAUGE:
            series = self._changed(metric.name, series)
        points = [self._point(metric, labels, value, now_ns) for labels, value in series]
        kinds = export.AggregationTemporality
        temporality = kinds.DELTA if self._is_delta else kinds.CUMULATIVE
        data: Any
        if metric.kind is Kind.GAUGE:
            data = export.Gauge(data_points=points)
        elif metric.kind is Kind.COUNTER:
            data = export.Sum(data_points=points, aggregation_temporality=temporality, is_monotonic=True)
        else:
            data = export.Histogram(data_points=points, aggregation_temporality=temporality)
        return export.Metric(name=metric.name, description=metric.description, unit=metric.unit, data=data)

    def _changed(
        self, name: str, series: list[tuple[LabelValues | None, Value]]
    ) -> list[tuple[LabelValues | None, Value]]:
        """What was added to the series since the last export, without those to which nothing was added."""
        changed: list[tuple[LabelValues | None, Value]] = []
        for labels, value in series:
            added = _difference(value, self._last.get((name, labels)))
            self._last[name, labels] = value
            if added.total if isinstance(added, HistogramValue) else added:
                changed.append((labels, added))
        return changed

    def _point(self, metric: Metric, labels: LabelValues | None, value: Value, now_ns: int) -> Any:
        """A data point. ``labels`` None is the series of the overflow."""
        from opentelemetry.sdk.metrics.export import HistogramDataPoint, NumberDataPoint

        attributes: dict[str, bool | int | str]
        if labels is None:
            attributes = {OVERFLOW_LABEL.replace("_", "."): True}
        else:
            attributes = {**self._common, **_attributes(metric.labels, labels)}
        if not isinstance(value, HistogramValue):
            return NumberDataPoint(
                attributes=attributes, start_time_unix_nano=self._began_ns, time_unix_nano=now_ns, value=value
            )
        return HistogramDataPoint(
            attributes=attributes,
            start_time_unix_nano=self._began_ns,
            time_unix_nano=now_ns,
            count=value.total,
            sum=value.sum,
            bucket_counts=value.counts,
            explicit_bounds=metric.buckets,
            min=None,  # type: ignore[arg-type]  # optional in OTLP, and not kept
            max=None,  # type: ignore[arg-type]
        )


def _attributes(names: tuple[str, ...], labels: LabelValues) -> dict[str, bool | int | str]:
    return {
        name: _TYPED.get(name, encodable)(value) for name, value in zip(names, labels, strict=True) if value is not None
    }


def _difference(value: Value, last: Value | None) -> Value:
    """What was added since ``last``. A series that began again, after its topic was deleted, counts from 0."""
    if isinstance(value, HistogramValue):
        if not isinstance(last, HistogramValue) or last.total > value.total:
            return value
        counts = tuple(new - old for new, old in zip(value.counts, last.counts, strict=True))
        return HistogramValue(counts, value.sum - last.sum)
    if last is None or isinstance(last, HistogramValue) or last > value:
        return value
    return value - last
