"""The exporter of a server: metricsExporterType and the keys that belong to it.

With PROM the port is taken before the server starts, so that a start with a taken port changes nothing. Scrapes are
answered once the server serves. prometheus-client and OpenTelemetry are imported when an exporter that needs them is
bound.

Thread rule: the event loop's thread.

Source: BrokerMetricsManager, ProxyMetricsManager.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from gantrymq.config.exporter_settings import LOG, OTLP_GRPC, PROM, ExporterConfig
from gantrymq.errors import ConfigError
from gantrymq.logs import get_logger
from gantrymq.metrics.otlp import Exports, GrpcSink, GrpcTarget, LogSink
from gantrymq.service.intervals import sleep_interval

if TYPE_CHECKING:
    from gantrymq.metrics.prometheus import Collect, ScrapeServer

METER_NAME = "broker-meter"  # of the proxy, too (OPEN_TELEMETRY_METER_NAME)
# The labels of every series.
NODE_TYPE, CLUSTER, NODE_ID, AGGREGATION = "node_type", "cluster", "node_id", "aggregation"

log = get_logger("gantrymq.metrics")


class MetricsExporter:
    """Exports what ``collect`` returns, under the labels ``node`` and those of metricsLabel.

    ``config`` returns the settings in force: the intervals can change.
    """

    def __init__(self, config: Callable[[], ExporterConfig], collect: Collect, node: Mapping[str, str]) -> None:
        self._config, self._collect, self._node = config, collect, dict(node)
        self._kind = config().metrics_exporter_type
        self._scrapes: ScrapeServer | None = None
        self._exports: Exports | None = None
        self._periodic: asyncio.Task[None] | None = None
        self._has_failed = False

    @property
    def address(self) -> str:
        """``host:port`` of Prometheus' endpoint; empty without one."""
        return f"{self._scrapes.host}:{self._scrapes.port}" if self._scrapes is not None else ""

    def bind(self, host: str) -> None:
        """Take the port of PROM, or construct the exporter. ``host`` is the default of metricsPromExporterHost.

        Raises RemotingError if the port is taken, ConfigError if a package or the target is missing.
        """
        config = self._config()
        try:
            if self._kind == PROM:
                self._scrapes = self._scrape_server()
            elif self._kind in (OTLP_GRPC, LOG):
                sink = self._grpc_sink() if self._kind == OTLP_GRPC else LogSink()
                self._exports = Exports(
                    sink, METER_NAME, self._labels(), time.time_ns, is_delta=config.metrics_in_delta
                )
        except ImportError as error:
            allowed = f"DISABLE, unless {error.name} is installed (pip install 'gantrymq[metrics]')"
            raise ConfigError("metricsExporterType", self._kind, allowed) from error
        if self._scrapes is not None:
            self._scrapes.bind(config.metrics_prom_exporter_host or host, config.metrics_prom_exporter_port)

    def _scrape_server(self) -> ScrapeServer:
        from gantrymq.metrics.prometheus import SCOPE_LABEL, ScrapeServer

        return ScrapeServer(self._collect, {SCOPE_LABEL: METER_NAME} | self._labels())

    def _grpc_sink(self) -> GrpcSink:
        config = self._config()
        target = config.metrics_grpc_exporter_target
        if not target.strip():
            allowed = "a collector's address, because metricsExporterType is OTLP_GRPC"
            raise ConfigError("metricsGrpcExporterTarget", target, allowed)
        headers = _pairs("metricsGrpcExporterHeader", config.metrics_grpc_exporter_header)
        timeout_ms = config.metric_grpc_exporter_timeout_ms
        max_points = config.metrics_export_batch_max_data_points
        return GrpcSink(GrpcTarget(target, headers, timeout_ms, max_points))

    def start(self) -> None:
        """Begin to export."""
        if self._scrapes is not None:
            self._scrapes.serve()
            log.info("metrics are served", address=self.address)
        if self._exports is not None:
            self._periodic = asyncio.ensure_future(self._export_periodically(self._exports))

    async def close(self, *, is_last_exported: bool = True) -> None:
        """Export a last time after a start, unless ``is_last_exported`` is False, and release the port. Idempotent."""
        scrapes, self._scrapes = self._scrapes, None
        exports, self._exports = self._exports, None
        periodic, self._periodic = self._periodic, None
        if scrapes is not None:
            scrapes.close()
        if periodic is not None:
            periodic.cancel()
            with suppress(asyncio.CancelledError):
                await periodic
        if exports is not None:
            if periodic is not None and is_last_exported:
                await self._export(exports)
            await asyncio.get_running_loop().run_in_executor(None, exports.close)

    async def _export_periodically(self, exports: Exports) -> None:
        while True:
            await sleep_interval(self._interval_ms)
            try:
                await self._export(exports)
            except Exception:
                log.exception("metrics could not be exported")

    def _interval_ms(self) -> int:
        config = self._config()
        if self._kind == OTLP_GRPC:
            return config.metric_grpc_exporter_interval_ms
        return config.metric_logging_exporter_interval_ms

    async def _export(self, exports: Exports) -> None:
        families = await self._collect()
        error = await asyncio.get_running_loop().run_in_executor(None, exports.export, families)
        target = self._config().metrics_grpc_exporter_target
        if error and not self._has_failed:
            log.warning("metrics cannot be exported", target=target, error=error)
        elif self._has_failed and not error:
            log.info("metrics are exported again", target=target)
        self._has_failed = bool(error)

    def _labels(self) -> dict[str, str]:
        """The labels of every series, sorted by name."""
        config = self._config()
        labels = _pairs("metricsLabel", config.metrics_label)
        if config.metrics_in_delta:
            labels[AGGREGATION] = "delta"
        return dict(sorted((labels | self._node).items()))


def _pairs(key: str, text: str) -> dict[str, str]:
    """The pairs of ``name:value,name:value``. A part that is no pair is left out with a warning, as in RocketMQ."""
    pairs: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, colon, value = part.partition(":")
        if colon and name and ":" not in value:
            pairs[name] = value
        else:
            log.warning("a part of a setting is not name:value", key=key, part=part)
    return pairs
