"""The tables of metrics that the site has in metrics.md, from the broker's catalog and that of gRPC."""

from __future__ import annotations

from gantrymq.broker.metrics import catalog
from gantrymq.grpc import metrics as grpc_metrics
from gantrymq.metrics.instruments import Kind, Metric
from gantrymq.tables import metrics as table_metrics

TITLES = {
    "enableStatsMetrics": "Broker",
    "enableRequestMetrics": "Messages and administration",
    "enableConnectionMetrics": "Clients",
    "enableLagAndDlqMetrics": "Lag and dead letters",
    "enableTransactionMetrics": "Transactions",
    "enableRemotingMetrics": "Requests",
    "enableMessageStoreMetrics": "Store and timers",
    "enablePopMetrics": "POP",
}


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
    about = metric.description
    if metric.kind is Kind.HISTOGRAM:
        about += f" Buckets: {', '.join(map(str, metric.buckets))}."
    return f"| `{metric.prometheus_name}` | {metric.kind.value} | {metric.unit or '–'} | {labels} | {about} |"


def _table(metrics: list[Metric]) -> str:
    head = "| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n"
    return head + "".join(f"{_row(metric)}\n" for metric in metrics)


def reference() -> str:
    """The tables, one for each switch, and that of our own metrics."""
    parts = []
    for switch, title in TITLES.items():
        of_switch = [metric for metric in catalog.ALL if metric in catalog.SWITCHES[switch]]
        parts.append(f"### {title}\n\n`{switch}=false` turns them off.\n\n{_table(of_switch)}")
    parts.append(
        f"### gRPC\n\nFrom a broker with `--grpc-port`, and from `gantrymq proxy`.\n\n{_table(list(grpc_metrics.ALL))}"
    )
    parts.append(
        f'### Tables\n\nFrom `gantrymq table land`, with `node_type="lander"`.\n\n{_table(list(table_metrics.ALL))}'
    )
    switched = frozenset[Metric]().union(*catalog.SWITCHES.values())
    parts.append(f"### Not RocketMQ's\n\n{_table([metric for metric in catalog.ALL if metric not in switched])}")
    return "\n".join(parts)
