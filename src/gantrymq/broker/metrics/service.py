"""The metrics of one broker: a meter, and the exporter that metricsExporterType names.

With PROM the port is taken before the store is opened, so that a start with a taken port changes nothing. Scrapes are
answered once the broker serves.

Thread rule: the event loop's thread.

Source: BrokerMetricsManager.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from gantrymq.broker.metrics import catalog
from gantrymq.broker.metrics.meter import NO_METER, BrokerMeter
from gantrymq.broker.metrics.recorder import RecordingMeter
from gantrymq.broker.schedule import Schedule
from gantrymq.broker.tables.subscription_groups import SubscriptionGroupManager
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.errors import ConfigError
from gantrymq.logs import get_logger
from gantrymq.metrics.endpoint import MetricsEndpoint
from gantrymq.metrics.instruments import Family
from gantrymq.metrics.otlp import Exports, GrpcSink, GrpcTarget, LogSink
from gantrymq.metrics.prometheus_text import SCOPE_LABEL
from gantrymq.remoting.transport.limited_log import LimitedLog
from gantrymq.remoting.transport.meter import RequestMeter
from gantrymq.store import meter as store_meter

DISABLE, OTLP_GRPC, PROM, LOG = "DISABLE", "OTLP_GRPC", "PROM", "LOG"

log = get_logger("gantrymq.broker")

Collect = Callable[[], Awaitable[Sequence[Family]]]


class BrokerMetrics:
    """Constructed with the broker's tables, bound before its store is opened, started when it serves."""

    def __init__(
        self, config: LiveConfig, clock: Clock, topics: TopicConfigManager, groups: SubscriptionGroupManager
    ) -> None:
        self._config = config
        broker = config.broker
        self._kind = broker.metrics_exporter_type
        self.recorder: RecordingMeter | None = None
        if self._kind != DISABLE:
            self.recorder = RecordingMeter(
                clock, topics.is_system_topic, groups.__contains__, broker.metrics_cardinality_limit
            )
        self._collect: Collect | None = None
        self._endpoint: MetricsEndpoint | None = None
        self._exports: Exports | None = None
        self._log = LimitedLog(asyncio.get_running_loop().time)

    @property
    def meter(self) -> BrokerMeter:
        """The meter for the broker's parts."""
        return self.recorder if self.recorder is not None else NO_METER

    @property
    def request_meter(self) -> RequestMeter | None:
        """The meter for the server; None if no latencies are measured."""
        return self.recorder if self._config.broker.enable_remoting_metrics else None

    @property
    def store_meter(self) -> store_meter.StoreMeter:
        """The meter for the store."""
        return self.recorder.store if self.recorder is not None else store_meter.NO_METER

    @property
    def address(self) -> str:
        """``host:port`` of Prometheus' endpoint; empty without one."""
        return f"{self._endpoint.host}:{self._endpoint.port}" if self._endpoint is not None else ""

    async def bind(self) -> None:
        """Take the port of PROM, or construct the exporter.

        Raises RemotingError if the port is taken, ConfigError if a package or the target is missing.
        """
        broker = self._config.broker
        if self._kind == PROM:
            self._endpoint = MetricsEndpoint(self._families, {SCOPE_LABEL: catalog.METER_NAME} | self._labels())
            host = broker.metrics_prom_exporter_host or broker.bind_address
            await self._endpoint.bind(host, broker.metrics_prom_exporter_port)
        elif self._kind in (OTLP_GRPC, LOG):
            sink = self._grpc_sink() if self._kind == OTLP_GRPC else LogSink()
            self._exports = Exports(
                sink, catalog.METER_NAME, self._labels(), time.time_ns, is_delta=broker.metrics_in_delta
            )

    def _grpc_sink(self) -> GrpcSink:
        broker = self._config.broker
        if not broker.metrics_grpc_exporter_target.strip():
            raise ConfigError(
                "metricsGrpcExporterTarget", "", "a collector's address, because metricsExporterType is OTLP_GRPC"
            )
        headers = _pairs("metricsGrpcExporterHeader", broker.metrics_grpc_exporter_header)
        return GrpcSink(
            GrpcTarget(
                broker.metrics_grpc_exporter_target, headers, broker.metric_grpc_exporter_timeout_ms,
                broker.metrics_export_batch_max_data_points,
            )
        )  # fmt: skip

    async def start(self, collect: Collect, schedule: Schedule) -> None:
        """Begin to export what ``collect`` returns."""
        self._collect = collect
        if self._endpoint is not None:
            await self._endpoint.serve()
            log.info("metrics are served", address=self.address)
        if self._exports is not None:
            schedule.every("metrics", self._interval_ms, self._export)

    def _interval_ms(self) -> int:
        broker = self._config.broker
        if self._kind == OTLP_GRPC:
            return broker.metric_grpc_exporter_interval_ms
        return broker.metric_logging_exporter_interval_ms

    async def close(self) -> None:
        """Export a last time, and release the port."""
        endpoint, self._endpoint = self._endpoint, None
        exports, self._exports = self._exports, None
        if endpoint is not None:
            await endpoint.close()
        if exports is not None:
            if self._collect is not None:
                await self._send(exports)
            await asyncio.get_running_loop().run_in_executor(None, exports.close)

    async def abandon(self) -> None:
        """Release the port without a last export."""
        self._collect = None
        await self.close()

    async def _families(self) -> Sequence[Family]:
        assert self._collect is not None, "the endpoint serves after the start"
        return await self._collect()

    async def _export(self) -> None:
        if self._exports is not None:
            await self._send(self._exports)

    async def _send(self, exports: Exports) -> None:
        families = await self._families()
        if not await asyncio.get_running_loop().run_in_executor(None, exports.export, families):
            target = self._config.broker.metrics_grpc_exporter_target
            self._log.warning("metrics could not be exported", target=target)

    def _labels(self) -> dict[str, str]:
        """The labels of every series, sorted by name."""
        broker = self._config.broker
        labels = _pairs("metricsLabel", broker.metrics_label)
        if broker.metrics_in_delta:
            labels[catalog.AGGREGATION] = "delta"
        labels |= {
            catalog.NODE_TYPE: "broker",
            catalog.CLUSTER: broker.broker_cluster_name,
            catalog.NODE_ID: broker.broker_name,
        }
        return dict(sorted(labels.items()))


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
