"""Write the Grafana dashboard ``deploy/grafana/dashboards/gantrymq.json``.

Run it after a change of the panels below: ``python scripts/grafana_dashboard.py``. A test compares the file with it,
and every expression with the metrics that a broker exports.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).resolve().parent.parent / "deploy" / "grafana" / "dashboards" / "gantrymq.json"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
NODE = 'cluster=~"$cluster", node_id=~"$node"'
TOPIC = f'{NODE}, topic=~"$topic"'
GROUP = f'{TOPIC}, consumer_group=~"$group"'
RPC = "rocketmq_rpc_latency_milliseconds"
GRPC = "gantrymq_grpc_latency_milliseconds"
WIDTH, HEIGHT = 24, 8


class Panel(NamedTuple):
    """A panel: its title, its unit, and its queries by legend. Each query is one line of the graph."""

    title: str
    unit: str
    queries: dict[str, str]
    kind: str = "timeseries"


def rate(metric: str, by: str, labels: str) -> str:
    """The rate of a counter by labels."""
    return f"sum by ({by}) (rate({metric}{{{labels}}}[$__rate_interval]))"


def quantile(share: float, metric: str, by: str, labels: str) -> str:
    """A quantile of a histogram by labels."""
    return f"histogram_quantile({share}, {rate(metric + '_bucket', f'{by}, le', labels)})"


ROWS: dict[str, list[Panel]] = {
    "Overview": [
        Panel("Brokers", "short", {"{{node_id}}": f"gantrymq_build_info{{{NODE}}}"}, "stat"),
        Panel("Stores that take messages", "short", {"{{node_id}}": f"gantrymq_store_writable{{{NODE}}}"}, "stat"),
        Panel("Disk", "percentunit", {"{{node_id}}": f"gantrymq_disk_used_ratio{{{NODE}}}"}, "gauge"),
        Panel("Connections", "short", {"{{node_id}}": f"gantrymq_connections{{{NODE}}}"}),
        Panel(
            "Messages a second",
            "cps",
            {
                "in {{node_id}}": rate("rocketmq_messages_in_total", "node_id", NODE),
                "out {{node_id}}": rate("rocketmq_messages_out_total", "node_id", NODE),
            },
        ),
        Panel(
            "Bytes a second",
            "Bps",
            {
                "in {{node_id}}": rate("rocketmq_throughput_in_total", "node_id", NODE),
                "out {{node_id}}": rate("rocketmq_throughput_out_total", "node_id", NODE),
            },
        ),
    ],
    "Topics": [
        Panel("Messages in", "cps", {"{{topic}}": rate("rocketmq_messages_in_total", "topic", TOPIC)}),
        Panel("Messages out", "cps", {"{{topic}}": rate("rocketmq_messages_out_total", "topic", TOPIC)}),
        Panel("Types", "cps", {"{{message_type}}": rate("rocketmq_messages_in_total", "message_type", TOPIC)}),
        Panel(
            "Size of messages",
            "bytes",
            {
                "median": quantile(0.5, "rocketmq_message_size", "cluster", TOPIC),
                "99 %": quantile(0.99, "rocketmq_message_size", "cluster", TOPIC),
            },
        ),
        Panel(
            "Topics and groups",
            "short",
            {
                "topics {{node_id}}": f"rocketmq_topic_number{{{NODE}}}",
                "groups {{node_id}}": f"rocketmq_consumer_group_number{{{NODE}}}",
            },
        ),
    ],
    "Groups": [
        Panel(
            "Lag",
            "short",
            {
                "{{consumer_group}} {{topic}}": (
                    f"sum by (consumer_group, topic) (rocketmq_consumer_lag_messages{{{GROUP}}})"
                )
            },
        ),
        Panel(
            "Age of the oldest message that is not consumed",
            "ms",
            {
                "{{consumer_group}} {{topic}}": (
                    f"max by (consumer_group, topic) (rocketmq_consumer_lag_latency_milliseconds{{{GROUP}}})"
                )
            },
        ),
        Panel(
            "Delivered and not consumed",
            "short",
            {
                "{{consumer_group}} {{topic}}": (
                    f"sum by (consumer_group, topic) (rocketmq_consumer_inflight_messages{{{GROUP}}})"
                )
            },
        ),
        Panel(
            "Not delivered",
            "short",
            {
                "{{consumer_group}} {{topic}}": (
                    f"sum by (consumer_group, topic) (rocketmq_consumer_ready_messages{{{GROUP}}})"
                )
            },
        ),
        Panel(
            "Dead letters",
            "short",
            {
                "{{consumer_group}} {{topic}}": (
                    "sum by (consumer_group, topic) "
                    f"(increase(rocketmq_send_to_dlq_messages_total{{{GROUP}}}[$__rate_interval]))"
                )
            },
        ),
        Panel(
            "Clients",
            "short",
            {
                "{{consumer_group}}": (
                    f'sum by (consumer_group) (rocketmq_consumer_connections{{{NODE}, consumer_group=~"$group"}})'
                ),
                "producers": f"sum(rocketmq_producer_connections{{{NODE}}})",
            },
        ),
    ],
    "Store": [
        Panel("Used disk", "bytes", {"{{node_id}}": f"rocketmq_storage_size_bytes{{{NODE}}}"}),
        Panel("Not flushed", "bytes", {"{{node_id}}": f"rocketmq_storage_flush_behind_bytes{{{NODE}}}"}),
        Panel("Not dispatched", "bytes", {"{{node_id}}": f"rocketmq_storage_dispatch_behind_bytes{{{NODE}}}"}),
        Panel(
            "Age of the oldest message",
            "ms",
            {"{{node_id}}": f"rocketmq_storage_message_reserve_time_milliseconds{{{NODE}}}"},
        ),
    ],
    "Requests": [
        Panel("Requests a second", "reqps", {"{{request_code}}": rate(f"{RPC}_count", "request_code", NODE)}),
        Panel("Latency, 99 %", "ms", {"{{request_code}}": quantile(0.99, RPC, "request_code", NODE)}),
        Panel(
            "Answers other than success",
            "reqps",
            {
                "{{request_code}} {{response_code}}": rate(
                    f"{RPC}_count", "request_code, response_code", f'{NODE}, response_code!~"success|pull_not_found"'
                )
            },
        ),
        Panel(
            "Waiting requests",
            "short",
            {
                "{{processor}} {{node_id}}": f"rocketmq_processor_watermark{{{NODE}}} > 0",
                "held pulls {{node_id}}": f"gantrymq_held_pulls{{{NODE}}}",
            },
        ),
    ],
    "gRPC": [
        Panel("Calls a second", "reqps", {"{{method}} {{code}}": rate(f"{GRPC}_count", "method, code", NODE)}),
        Panel("Latency of calls, 99 %", "ms", {"{{method}}": quantile(0.99, GRPC, "method", NODE)}),
    ],
    "POP, timers and transactions": [
        Panel(
            "Checkpoints and acknowledgements",
            "cps",
            {"{{revive_message_type}}": rate("rocketmq_pop_revive_in_message_total", "revive_message_type", NODE)},
        ),
        Panel(
            "Revived messages",
            "cps",
            {"{{consumer_group}}": rate("rocketmq_pop_revive_retry_messages_total", "consumer_group", NODE)},
        ),
        Panel(
            "Behind",
            "ms",
            {
                "revive {{node_id}}": f"max by (node_id) (rocketmq_pop_revive_latency_milliseconds{{{NODE}}})",
                "timers {{node_id}}": f"rocketmq_timer_dequeue_latency_milliseconds{{{NODE}}}",
            },
        ),
        Panel("Timer messages that wait", "short", {"{{topic}}": f"rocketmq_timing_messages{{{TOPIC}}}"}),
        Panel(
            "Timer messages a second",
            "cps",
            {
                "scheduled": rate("rocketmq_timer_enqueue_total", "cluster", NODE),
                "delivered": rate("rocketmq_timer_dequeue_total", "cluster", NODE),
            },
        ),
        Panel(
            "Timer messages by due time",
            "short",
            {"within {{timer_bound_s}} s": (f"sum by (timer_bound_s) (rocketmq_timer_message_snapshot{{{NODE}}})")},
        ),
        Panel(
            "Transactions a second",
            "cps",
            {
                "committed": rate("rocketmq_commit_messages_total", "cluster", NODE),
                "rolled back": rate("rocketmq_rollback_messages_total", "cluster", NODE),
            },
        ),
        Panel("Open half messages", "short", {"{{topic}}": f"rocketmq_half_messages{{{TOPIC}}}"}),
    ],
}


def variables() -> list[dict[str, Any]]:
    """The selectors at the top: the data source, and clusters, brokers, topics and groups."""
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    queries = {
        "cluster": "label_values(gantrymq_build_info, cluster)",
        "node": 'label_values(gantrymq_build_info{cluster=~"$cluster"}, node_id)',
        "topic": f"label_values(rocketmq_messages_in_total{{{NODE}}}, topic)",
        "group": f"label_values(rocketmq_consumer_connections{{{NODE}}}, consumer_group)",
    }
    chosen = {"selected": True, "text": ["All"], "value": ["$__all"]}
    return [
        source,
        *(
            {
                "name": name, "label": name.capitalize(), "type": "query", "datasource": DATASOURCE, "query": query,
                "refresh": 2, "multi": True, "includeAll": True, "allValue": ".*", "current": chosen, "sort": 1,
            }
            for name, query in queries.items()
        ),
    ]  # fmt: skip


def panels() -> list[dict[str, Any]]:
    """All rows and panels with their places."""
    made: list[dict[str, Any]] = []
    top = 0
    for title, of_row in ROWS.items():
        place = {"h": 1, "w": WIDTH, "x": 0, "y": top}
        made.append(
            {"id": len(made) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        )
        top += 1
        for number, panel in enumerate(of_row):
            column, row = number % 3, number // 3
            place = {"h": HEIGHT, "w": WIDTH // 3, "x": column * WIDTH // 3, "y": top + row * HEIGHT}
            made.append(_panel(panel, len(made) + 1, place))
        top += -(-len(of_row) // 3) * HEIGHT
    return made


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.unit == "percentunit":
        steps = [{"color": "green", "value": None}, {"color": "orange", "value": 0.8}, {"color": "red", "value": 0.85}]
        defaults |= {"max": 1, "thresholds": {"mode": "absolute", "steps": steps}}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}} if panel.kind == "timeseries" else {},
        "targets": [
            {"refId": "ABCDEF"[at], "datasource": DATASOURCE, "expr": query, "legendFormat": legend}
            for at, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def dashboard() -> str:
    """The JSON of the dashboard."""
    made = {
        "uid": "gantrymq",
        "title": "gantrymq",
        "tags": ["gantrymq", "rocketmq"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables()},
        "panels": panels(),
    }
    return json.dumps(made, indent=1) + "\n"


if __name__ == "__main__":
    PAGE.write_text(dashboard(), "utf-8")
