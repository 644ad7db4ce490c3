"""A snapshot of all metrics of a broker: what was recorded, and gauges that are read from its tables now.

Tables of the event loop's thread are read in slices of it. Nothing walks the store: the lag reads one message a queue,
on a thread (:mod:`gantrymq.broker.metrics.lag`), and the wheel of the timers is read there too.

Thread rule: the event loop's thread.

Source: BrokerMetricsManager, PopMetricsManager, DefaultStoreMetricsManager.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter as Counts
from collections.abc import Callable, Iterable
from functools import cache
from importlib import metadata

from gantrymq.broker import names
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.metrics import catalog
from gantrymq.broker.metrics.lag import POP, ConsumerLagCalculator, GroupLag
from gantrymq.broker.metrics.recorder import PROTOCOL, RecordingMeter, truth
from gantrymq.broker.sessions.consumers import CONSUME_ACTIVELY
from gantrymq.config.broker_settings import BrokerConfig
from gantrymq.errors import DiskError
from gantrymq.ha.slave import SlaveCopyView
from gantrymq.ha.slave_state import SlaveState
from gantrymq.metrics.instruments import Counter, Family, Histogram, LabelValues, Metric, Point, gauge, value_now
from gantrymq.model.message import TIMER_TOPIC
from gantrymq.remoting.codes import LanguageCode, version_name
from gantrymq.remoting.transport.turns import in_slices

# RocketMQ's thread pools. Only sends wait here; every other request is processed when it is read.
_PROCESSORS = (
    *("send", "async_put", "pull", "ack", "query_message", "client_manager", "heartbeat", "lite_pull", "transaction"),
    *("consumer_manager", "admin", "reply"),
)
_TIMER_BOUNDS_S = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)  # TimerMetrics.timerDist
_MODES = {CONSUME_ACTIVELY: "pull", POP: "pop"}


class BrokerCollector:
    """Collects the metrics of one broker. ``connections`` returns the number of open ones."""

    def __init__(self, context: BrokerContext, recorder: RecordingMeter, connections: Callable[[], int]) -> None:
        self._context, self._recorder, self._connections = context, recorder, connections
        self._lag = ConsumerLagCalculator(
            context.config,
            context.clock,
            context.storage.store,
            context.tables,
            context.sessions.consumers,
            context.pop,
        )

    @property
    def _max_series(self) -> int:
        return self._context.config.broker.metrics_cardinality_limit

    async def collect(self) -> list[Family]:
        """The families of all metrics that are not switched off."""
        broker = self._context.config.broker
        families = [await self._recorded(instrument) for instrument in self._recorder.instruments()]
        families += self._broker()
        families += self._pop()
        families += await asyncio.get_running_loop().run_in_executor(None, self._store)
        if broker.enable_connection_metrics:
            families += [await self._producers(), await self._consumers()]
        if broker.enable_lag_and_dlq_metrics:
            families += self._lags(await self._lag.calculate(self._max_series))
        off = _switched_off(broker)
        return [family for family in families if family.metric not in off]

    # Tables of the event loop's thread

    async def _recorded(self, instrument: Counter | Histogram) -> Family:
        """A snapshot of an instrument, which may have 50,000 series."""
        points = [point async for point in in_slices(instrument.points())]
        return Family(instrument.metric, points, instrument.overflow)

    def _broker(self) -> list[Family]:
        context, max_series = self._context, self._max_series
        waiting = {"send": len(context.storage.puts)}
        halves = context.tables.transaction_metrics.counts()
        return [
            gauge(
                catalog.PROCESSOR_WATERMARK,
                (
                    catalog.PROCESSOR_WATERMARK.point(waiting.get(processor, 0), processor=processor)
                    for processor in _PROCESSORS
                ),
                max_series,
            ),
            value_now(catalog.BROKER_PERMISSION, context.config.broker.broker_permission),
            value_now(catalog.TOPIC_NUMBER, len(context.tables.topics.table)),
            value_now(catalog.CONSUMER_GROUP_NUMBER, len(context.tables.groups.table)),
            gauge(
                catalog.HALF_MESSAGES,
                (catalog.HALF_MESSAGES.point(count, topic=topic) for topic, count in halves.items()),
                max_series,
            ),
            value_now(catalog.CONNECTIONS, self._connections()),
            value_now(catalog.HELD_PULLS, len(context.sessions.holds)),
            *self._slaves(),
            gauge(
                catalog.ACCEPTED_WITHOUT_EFFECT,
                (catalog.ACCEPTED_WITHOUT_EFFECT.point(1, name=key.name) for key in context.config.accepted),
                max_series,
            ),
        ]

    def _slaves(self) -> list[Family]:
        replication, max_series = self._context.replication, self._max_series
        slaves = [slave for slave in replication.slaves if slave.state is not SlaveState.CONNECTED]
        states = Counts(slave.state for slave in [*replication.slaves, *replication.closed_slaves])
        behind = ((slave.address, replication.behind_bytes(slave)) for slave in slaves)
        copy = replication.slave.view if replication.slave is not None else None
        return [
            *self._copy(copy),
            gauge(
                catalog.SLAVES, (catalog.SLAVES.point(n, state=str(state)) for state, n in states.items()), max_series
            ),
            gauge(
                catalog.SLAVE_BEHIND,
                (catalog.SLAVE_BEHIND.point(lacking, slave=address) for address, lacking in behind),
                max_series,
            ),
        ]

    def _copy(self, copy: SlaveCopyView | None) -> list[Family]:
        states = [] if copy is None else [catalog.SLAVE_COPY.point(1, state=str(copy.state))]
        behind = [] if copy is None else [catalog.SLAVE_COPY_BEHIND.point(copy.lag_bytes, master=copy.master)]
        return [
            gauge(catalog.SLAVE_COPY, states, self._max_series),
            gauge(catalog.SLAVE_COPY_BEHIND, behind, self._max_series),
        ]

    def _pop(self) -> list[Family]:
        pop, max_series = self._context.pop, self._max_series
        queues = pop.revive.progress() if pop.revive_log.has_timers else []
        lags = [catalog.POP_REVIVE_LAG.point(queue.behind_messages, queue_id=str(queue.queue_id)) for queue in queues]
        latencies = [
            catalog.POP_REVIVE_LATENCY.point(queue.behind_ms, queue_id=str(queue.queue_id)) for queue in queues
        ]
        return [
            value_now(catalog.POP_OFFSET_BUFFER_SIZE, pop.buffer.uncommitted),
            value_now(catalog.POP_CHECKPOINT_BUFFER_SIZE, len(pop.buffer)),
            gauge(catalog.POP_REVIVE_LAG, lags, max_series),
            gauge(catalog.POP_REVIVE_LATENCY, latencies, max_series),
        ]

    async def _producers(self) -> Family:
        counts = Counts[LabelValues]()
        groups = list(self._context.sessions.producers.groups.values())
        async for client in in_slices(client for group in groups for client in list(group.values())):
            labels = {
                "language": _language(client.language),
                "version": _version(client.version),
                "protocol_type": PROTOCOL,
            }
            counts[catalog.PRODUCER_CONNECTIONS.values(labels)] += 1
        return _counted(catalog.PRODUCER_CONNECTIONS, counts, self._max_series)

    async def _consumers(self) -> Family:
        counts = Counts[LabelValues]()
        groups = list(self._context.sessions.consumers.groups.values())
        async for group, client in in_slices(
            (group_state, client) for group_state in groups for client in group_state.clients
        ):
            mode, is_system = _MODES.get(group.consume_type or "", "push"), names.is_system_group(group.name.upper())
            labels = {
                "consumer_group": group.name,
                "language": _language(client.language),
                "version": _version(client.version),
                "consume_mode": mode,
                "protocol_type": PROTOCOL,
                "is_system": truth(is_system),
            }
            counts[catalog.CONSUMER_CONNECTIONS.values(labels)] += 1
        return _counted(catalog.CONSUMER_CONNECTIONS, counts, self._max_series)

    def _lags(self, lags: list[GroupLag]) -> list[Family]:
        labels = [self._lag_labels(lag) for lag in lags]
        values: tuple[tuple[Metric, list[int]], ...] = (
            (catalog.CONSUMER_LAG_MESSAGES, [lag.lag for lag in lags]),
            (catalog.CONSUMER_LAG_LATENCY, [lag.lag_ms for lag in lags]),
            (catalog.CONSUMER_INFLIGHT_MESSAGES, [lag.inflight for lag in lags]),
            (catalog.CONSUMER_QUEUEING_LATENCY, [lag.queueing_ms for lag in lags]),
            (catalog.CONSUMER_READY_MESSAGES, [lag.ready for lag in lags]),
        )
        return [
            gauge(
                metric, (metric.point(value, **of) for of, value in zip(labels, series, strict=True)), self._max_series
            )
            for metric, series in values
        ]

    def _lag_labels(self, lag: GroupLag) -> dict[str, str]:
        is_system = self._context.tables.topics.is_system_topic(lag.topic) or names.is_system_group(lag.group.upper())
        return {
            "consumer_group": lag.group,
            "topic": lag.topic,
            "is_retry": truth(lag.is_retry),
            "is_system": truth(is_system),
        }

    # The store, on a thread

    def _store(self) -> list[Family]:
        store, now_ms = self._context.storage.store, self._context.clock.now_ms()
        disk = shutil.disk_usage(store.path)
        behind = max(store.max_phy_offset - store.flushed_offset, 0)
        families = [
            value_now(catalog.STORAGE_SIZE, disk.used, **catalog.STORE_LABELS),
            value_now(catalog.FLUSH_BEHIND, behind, **catalog.STORE_LABELS),
            value_now(catalog.DISPATCH_BEHIND, store.dispatch_behind_bytes, **catalog.STORE_LABELS),
            value_now(catalog.DISK_USED_RATIO, store.disk_used_ratio),
            value_now(catalog.STORE_WRITABLE, int(store.is_writable)),
            value_now(catalog.BUILD_INFO, 1, version=_own_version()),
        ]
        try:
            first = store.message_at(store.min_phy_offset)
        except DiskError:
            first = None
        if first is not None:
            age_ms = max(now_ms - first.store_timestamp_ms, 0)
            families.append(value_now(catalog.MESSAGE_RESERVE_TIME, age_ms, **catalog.STORE_LABELS))
        return families + self._timers(now_ms)

    def _timers(self, now_ms: int) -> list[Family]:
        timers, max_series = self._context.storage.store.timers, self._max_series
        if timers is None:
            return []
        progress, labels = timers.progress, catalog.STORE_LABELS
        waiting, due = timers.metrics.counts(), timers.due_within(now_ms, _TIMER_BOUNDS_S)
        bounds = [
            catalog.TIMER_MESSAGE_SNAPSHOT.point(count, **labels, timer_bound_s=str(bound_s))
            for bound_s, count in zip(_TIMER_BOUNDS_S, due, strict=True)
        ]
        topics = [catalog.TIMING_MESSAGES.point(count, **labels, topic=topic) for topic, count in waiting.items()]
        behind = progress.behind_messages if progress is not None else 0
        late_ms = max(now_ms - progress.read_ms, 0) if progress is not None else 0
        return [
            value_now(catalog.TIMER_ENQUEUE_LAG, behind, **catalog.STORE_LABELS),
            value_now(catalog.TIMER_ENQUEUE_LATENCY, self._enqueue_latency_ms(behind, now_ms), **labels),
            value_now(catalog.TIMER_DEQUEUE_LAG, timers.congestion, **labels),
            value_now(catalog.TIMER_DEQUEUE_LATENCY, late_ms, **labels),
            gauge(catalog.TIMING_MESSAGES, topics, max_series),
            gauge(catalog.TIMER_MESSAGE_SNAPSHOT, bounds, max_series),
        ]

    def _enqueue_latency_ms(self, behind: int, now_ms: int) -> int:
        """The age of the oldest of ``behind`` timer messages that are not in the wheel."""
        store = self._context.storage.store
        offset = store.max_offset_in_queue(TIMER_TOPIC, 0) - behind
        try:
            stored_ms = store.store_timestamp_ms(TIMER_TOPIC, 0, offset) if behind else -1
        except DiskError:
            stored_ms = -1
        return max(now_ms - stored_ms, 0) if stored_ms > 0 else 0


def _switched_off(broker: BrokerConfig) -> frozenset[Metric]:
    is_on = {
        "enableStatsMetrics": broker.enable_stats_metrics,
        "enableRequestMetrics": broker.enable_request_metrics,
        "enableConnectionMetrics": broker.enable_connection_metrics,
        "enableLagAndDlqMetrics": broker.enable_lag_and_dlq_metrics,
        "enableTransactionMetrics": broker.enable_transaction_metrics,
        "enableRemotingMetrics": broker.enable_remoting_metrics,
        "enableMessageStoreMetrics": broker.enable_message_store_metrics,
        "enablePopMetrics": broker.enable_pop_metrics,
    }
    return frozenset[Metric]().union(*(metrics for key, metrics in catalog.SWITCHES.items() if not is_on[key]))


def _counted(metric: Metric, counts: Counts[LabelValues], max_series: int) -> Family:
    points: Iterable[Point] = (Point(labels, count) for labels, count in counts.items())
    return gauge(metric, points, max_series)


@cache
def _own_version() -> str:
    try:
        return metadata.version("gantrymq")
    except metadata.PackageNotFoundError:  # a copy of the sources
        return "unknown"


def _language(code: int) -> str:
    language = LanguageCode._value2member_map_.get(code, LanguageCode.OTHER)
    return language.name.lower()


def _version(number: int) -> str:
    return version_name(max(number, 0)).lower()
