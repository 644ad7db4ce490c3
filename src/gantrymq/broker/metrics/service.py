"""The metrics of one broker: the meters that its parts call, and the exporter.

Thread rule: the event loop's thread.

Source: BrokerMetricsManager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gantrymq.broker.context import BrokerContext
from gantrymq.broker.metrics.collector import BrokerCollector
from gantrymq.broker.metrics.meter import NO_METER, BrokerMeter
from gantrymq.broker.metrics.recorder import RecordingMeter
from gantrymq.broker.tables.subscription_groups import SubscriptionGroupManager
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.config.exporter_settings import DISABLE
from gantrymq.metrics.exporter import CLUSTER, NODE_ID, NODE_TYPE, MetricsExporter
from gantrymq.metrics.instruments import Family
from gantrymq.remoting.transport.meter import RequestMeter
from gantrymq.store import meter as store_meter


class BrokerMetrics:
    """The meters that a broker's parts call, and the exporter of what they measure."""

    def __init__(
        self, config: LiveConfig, clock: Clock, topics: TopicConfigManager, groups: SubscriptionGroupManager
    ) -> None:
        self._config = config
        broker = config.broker
        self._recorder: RecordingMeter | None = None
        self._collector: BrokerCollector | None = None
        self._exporter: MetricsExporter | None = None
        self._others: list[Callable[[], Sequence[Family]]] = []
        if broker.metrics_exporter_type == DISABLE:
            return
        self._recorder = RecordingMeter(
            clock, topics.is_system_topic, groups.__contains__, broker.metrics_cardinality_limit
        )
        node = {NODE_TYPE: "broker", CLUSTER: broker.broker_cluster_name, NODE_ID: broker.broker_name}
        self._exporter = MetricsExporter(lambda: self._config.broker, self._collect, node)

    @property
    def meter(self) -> BrokerMeter:
        """The meter for the broker's parts."""
        return self._recorder if self._recorder is not None else NO_METER

    @property
    def request_meter(self) -> RequestMeter | None:
        """The meter for the server; None if no latencies are measured."""
        return self._recorder if self._config.broker.enable_remoting_metrics else None

    @property
    def store_meter(self) -> store_meter.StoreMeter:
        """The meter for the store."""
        return self._recorder.store if self._recorder is not None else store_meter.NO_METER

    @property
    def address(self) -> str:
        """``host:port`` of Prometheus' endpoint; empty without one."""
        return self._exporter.address if self._exporter is not None else ""

    @property
    def is_on(self) -> bool:
        """Whether metrics are exported."""
        return self._exporter is not None

    def add(self, families: Callable[[], Sequence[Family]]) -> None:
        """Export the families of another part of the process, too."""
        self._others.append(families)

    def bind(self) -> None:
        """Take the port of PROM, or construct the exporter.

        Raises RemotingError if the port is taken, ConfigError if a package or the target is missing.
        """
        if self._exporter is not None:
            self._exporter.bind(self._config.broker.bind_address)

    def start(self, context: BrokerContext, connections: Callable[[], int]) -> None:
        """Begin to export. ``connections`` returns the number of open ones."""
        if self._exporter is not None and self._recorder is not None:
            self._collector = BrokerCollector(context, self._recorder, connections)
            self._exporter.start()

    async def close(self, *, is_last_exported: bool = True) -> None:
        """Export a last time, unless ``is_last_exported`` is False, and release the port."""
        if self._exporter is not None:
            await self._exporter.close(is_last_exported=is_last_exported)

    async def _collect(self) -> Sequence[Family]:
        assert self._collector is not None, "an exporter collects after the start"
        return [*await self._collector.collect(), *(family for other in self._others for family in other())]
