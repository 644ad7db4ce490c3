"""The settings of the exporter of metrics, which a broker and a proxy have under the same keys.

Source: BrokerConfig, ProxyConfig.
"""

from gantrymq.config.frozen import settings
from gantrymq.config.keys import key

DISABLE, OTLP_GRPC, PROM, LOG = "DISABLE", "OTLP_GRPC", "PROM", "LOG"
_EXPORTERS = f"{DISABLE}|{OTLP_GRPC}|{PROM}|{LOG}"


@settings(frozen=True)
class ExporterConfig:
    """How the metrics of a server are exported. An empty ``metrics_prom_exporter_host`` is the server's bindAddress."""

    metrics_exporter_type: str = key("metricsExporterType", DISABLE, allowed=_EXPORTERS, at_start=True)
    metrics_prom_exporter_host: str = key("metricsPromExporterHost", "", at_start=True)
    metrics_prom_exporter_port: int = key("metricsPromExporterPort", 5557, min_value=0, max_value=65535, at_start=True)
    metrics_grpc_exporter_target: str = key("metricsGrpcExporterTarget", "", at_start=True)
    metrics_grpc_exporter_header: str = key("metricsGrpcExporterHeader", "", at_start=True)
    metric_grpc_exporter_timeout_ms: int = key("metricGrpcExporterTimeOutInMills", 3_000, min_value=1, at_start=True)
    metric_grpc_exporter_interval_ms: int = key("metricGrpcExporterIntervalInMills", 60_000, min_value=1)
    metric_logging_exporter_interval_ms: int = key("metricLoggingExporterIntervalInMills", 10_000, min_value=1)
    # A key of the broker in RocketMQ, whose proxy has one metric.
    metrics_export_batch_max_data_points: int = key(
        "metricsExportBatchMaxDataPoints", 1_000, min_value=1, at_start=True
    )
    metrics_label: str = key("metricsLabel", "", at_start=True)
    metrics_in_delta: bool = key("metricsInDelta", False, at_start=True)
