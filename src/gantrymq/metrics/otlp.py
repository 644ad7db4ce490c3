"""Exports through OpenTelemetry: to a collector over gRPC (OTLP_GRPC), or as OTLP JSON lines to the log (LOG).

The instruments are those of Prometheus' endpoint; a snapshot is turned into OpenTelemetry's data classes, and its
exporter sends them. So there is one set of instruments, no global meter provider, and nothing of OpenTelemetry in the
code that measures. The packages are imported when an exporter is constructed.

Thread rule: :meth:`Exports.export` runs on one thread at a time, not on an event loop's.

Source: BrokerMetricsManager.init, BatchSplittingMetricExporter, OtlpJsonLoggingMetricExporter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gantrymq.logs import get_logger
from gantrymq.metrics.instruments import OVERFLOW_LABEL, Family, HistogramValue, Kind, LabelValues, Value, encodable

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData

log = get_logger("gantrymq.metrics")


class MetricSink(Protocol):
    """The end of an export. ``send`` returns whether it succeeded."""

    def send(self, data: MetricsData) -> bool:
        """Send one export."""
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

    def send(self, data: MetricsData) -> bool:
        """Send one export."""
        from opentelemetry.sdk.metrics.export import MetricExportResult

        return self._exporter.export(data) is MetricExportResult.SUCCESS

    def close(self) -> None:
        """Release the connection."""
        self._exporter.shutdown()


class LogSink:
    """Writes OTLP JSON to the log, one line an export. Raises ImportError without the extra ``metrics``."""

    def __init__(self) -> None:
        from google.protobuf.json_format import MessageToJson
        from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

        self._encode, self._to_json = encode_metrics, MessageToJson

    def send(self, data: MetricsData) -> bool:
        """Write one export."""
        for one in self._encode(data).resource_metrics:
            text = self._to_json(one, indent=None, use_integers_for_enums=True)
            log.info("metrics", otlp=text)
        return True

    def close(self) -> None:
        """Do nothing."""


class Exports:
    """Turns snapshots into exports for a sink.

    ``scope`` is the name of the meter, ``common`` are the labels of every series. With ``is_delta`` counters and
    histograms are the difference to the last export; a difference whose export fails is lost, as with OpenTelemetry.
    """

    def __init__(
        self, sink: MetricSink, scope: str, common: Mapping[str, str], now_ns: Callable[[], int], *, is_delta: bool
    ) -> None:
        self._sink, self._scope, self._common, self._now_ns = sink, scope, dict(common), now_ns
        self._is_delta = is_delta
        self._began_ns = now_ns()
        self._last: dict[tuple[str, LabelValues | None], Value] = {}

    def export(self, families: Sequence[Family]) -> bool:
        """Send a snapshot. Returns whether that succeeded."""
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

        metrics = [self._metric(one, now_ns) for one in families if one.points or one.overflow is not None]
        scope = ScopeMetrics(scope=InstrumentationScope(self._scope), metrics=metrics, schema_url="")
        resource = ResourceMetrics(resource=Resource.get_empty(), scope_metrics=[scope], schema_url="")
        return MetricsData(resource_metrics=[resource])

    def _metric(self, family: Family, now_ns: int) -> Any:
        from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Histogram, Metric, Sum

        metric = family.metric
        points = [self._point(family, labels, value, now_ns) for labels, value in family.points]
        if family.overflow is not None:
            points.append(self._point(family, None, family.overflow, now_ns))
        temporality = AggregationTemporality.DELTA if self._is_delta else AggregationTemporality.CUMULATIVE
        data: Any
        if metric.kind is Kind.GAUGE:
            data = Gauge(data_points=points)
        elif metric.kind is Kind.COUNTER:
            data = Sum(data_points=points, aggregation_temporality=temporality, is_monotonic=True)
        else:
            data = Histogram(data_points=points, aggregation_temporality=temporality)
        return Metric(name=metric.name, description=metric.description, unit=metric.unit, data=data)

    def _point(self, family: Family, labels: LabelValues | None, value: Value, now_ns: int) -> Any:
        """A data point. ``labels`` None is the series of the overflow."""
        from opentelemetry.sdk.metrics.export import HistogramDataPoint, NumberDataPoint

        metric = family.metric
        attributes = dict(self._common)
        if labels is None:
            attributes[OVERFLOW_LABEL.replace("_", ".")] = "true"
        else:
            attributes |= {
                name: encodable(one) for name, one in zip(metric.labels, labels, strict=True) if one is not None
            }
        if metric.kind is not Kind.GAUGE and self._is_delta:
            key = (metric.name, labels)
            value, self._last[key] = _difference(value, self._last.get(key)), value
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
