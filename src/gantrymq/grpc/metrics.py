"""The metrics of the gRPC protocol: whether it is served, and how long calls take.

RocketMQ's proxy has one metric, ``rocketmq_proxy_up``: requests that its clients send over gRPC are in no request
metric, neither in CLUSTER mode nor in LOCAL mode, where they do not pass the broker's remoting server. The latency of
calls is gantrymq's.

Thread rule: the event loop's thread.

Source: ProxyMetricsManager, ProxyMetricsConstant.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from gantrymq.grpc.protocol.codes import Code
from gantrymq.metrics.exporter import CLUSTER, NODE_ID, NODE_TYPE
from gantrymq.metrics.instruments import Distribution, Family, Histogram, Kind, Metric, value_now

LOCAL_MODE, CLUSTER_MODE = "local", "cluster"
_PROXY_MODE = "proxy_mode"
_UNKNOWN = "unknown"
_MAX_SERIES = 10_000

PROXY_UP = Metric(
    "rocketmq_proxy_up",
    Kind.GAUGE,
    "Always 1.",
    (CLUSTER, NODE_ID, NODE_TYPE, _PROXY_MODE),
)
GRPC_LATENCY = Metric(
    "gantrymq_grpc_latency",
    Kind.HISTOGRAM,
    "The time between a call of a gRPC client and its answer, in whole milliseconds; that of ReceiveMessage has the "
    "wait for messages.",
    ("method", "code"),
    "milliseconds",
    (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000),
)
ALL = (PROXY_UP, GRPC_LATENCY)


def proxy_name(name: str = "") -> str:
    """proxyName, or by default the name of this machine."""
    return name or socket.gethostname() or "DEFAULT_PROXY"


class GrpcMetrics:
    """The metrics of one gRPC server. ``labels`` are those of the proxy: cluster, name and mode."""

    def __init__(self, cluster: str, name: str, mode: str) -> None:
        self._labels = {CLUSTER: cluster, NODE_ID: name, NODE_TYPE: "proxy", _PROXY_MODE: mode}
        self._latency = Histogram(GRPC_LATENCY, _MAX_SERIES)
        self._series: dict[tuple[str, int], Distribution] = {}

    def answered(self, method: str, code: int, took_s: float) -> None:
        """Record the answer to a call."""
        key = (method, code)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = self._new_series(*key)
        series.record(int(took_s * 1000))

    def _new_series(self, method: str, code: int) -> Distribution:
        """Make a series of its key alone, so that a label whose value the key lacks cannot be set."""
        known = Code._value2member_map_.get(code)
        return self._latency.series(method=method, code=known.name.lower() if known is not None else _UNKNOWN)

    def families(self) -> Sequence[Family]:
        """A snapshot of all metrics of gRPC."""
        return [value_now(PROXY_UP, 1, **self._labels), self._latency.family()]

    async def collect(self) -> Sequence[Family]:
        """A snapshot, for an exporter of a proxy."""
        return self.families()
