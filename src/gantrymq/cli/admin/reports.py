"""The files that mqadmin exports: ``report configs|metrics|metadata``. Each is one JSON object with mqadmin's names.

Source: ExportConfigsCommand, ExportMetricsCommand, ExportMetadataCommand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gantrymq.cli.admin.session import Broker, Cluster, Session, Target, admin_command
from gantrymq.cli.admin.transfer import is_own
from gantrymq.model.message import SCHEDULE_TOPIC, TRANS_HALF_TOPIC

if TYPE_CHECKING:
    from gantrymq.client.admin.admin_client import AdminClient
    from gantrymq.remoting.bodies.broker import BrokerStatsData
    from gantrymq.remoting.body import Body

Folder = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FOLDER]", help="An existing file there is replaced.", show_default="rocketmq/export in TMPDIR"
    ),
]

_CONFIG_KEYS = (
    *("brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime", "filterServerNums"),
    *("flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName", "slaveReadEnable", "traceOn"),
    *("traceTopicEnable", "useTLS", "autoCreateTopicEnable", "autoCreateSubscriptionGroup"),
)


@admin_command
def report_configs(session: Session, folder: Folder = None, broker: Broker = None, cluster: Cluster = None) -> None:
    """Write configs.json: the size of the cluster, and the main settings of each broker.

    Examples of use:

        gantrymq admin report configs export -c DefaultCluster
    """
    brokers = session.brokers(broker, cluster)
    masters = [broker for broker in brokers if broker.broker_id == 0]
    answers = session.each(masters, lambda target: session.admin.broker_config(target.address))
    configs = {
        settings.get("brokerName", target.name): {key: settings[key] for key in _CONFIG_KEYS if key in settings}
        for target, settings in answers
    }
    scale = {
        "namesrvSize": len(session.config.name_server_list),
        "masterBrokerSize": len(masters),
        "slaveBrokerSize": len(brokers) - len(masters),
    }
    _write(session, folder, "configs.json", {"clusterScale": scale, "brokerConfigs": configs})


@admin_command
def report_metrics(session: Session, folder: Folder = None, broker: Broker = None, cluster: Cluster = None) -> None:
    """Write metrics.json: rates, counts of a day, disk use, topics, groups and client versions of each broker.

    Examples of use:

        gantrymq admin report metrics export -c DefaultCluster
    """
    answers = session.each(session.masters(broker, cluster), lambda target: _evaluated(session, target))
    reports = {target.name: report for target, report in answers}
    totals: dict[str, dict[str, float]] = {"totalTps": {}, "totalOneDayNum": {}}
    for report in reports.values():
        quota = report["runtimeQuota"]
        for name, value in quota["tps"].items():
            total = f"total{name[0].upper()}{name[1:]}"
            totals["totalTps"][total] = totals["totalTps"].get(total, 0.0) + value
        for name, value in quota["oneDayNum"].items():
            totals["totalOneDayNum"][name] = totals["totalOneDayNum"].get(name, 0) + value
    _write(session, folder, "metrics.json", {"totalData": totals, "evaluateReport": reports})


def _evaluated(session: Session, target: Target) -> dict[str, Any]:
    """mqadmin's report of one broker."""
    admin = session.admin
    info, settings = admin.broker_runtime_info(target.address), admin.broker_config(target.address)
    topics = [name for name in admin.topic_configs(target.address) if not is_own("topic", name, target)]
    groups = [name for name in admin.subscription_groups(target.address) if not is_own("group", name, target)]
    half, schedule = (_counter(admin, target, topic) for topic in (TRANS_HALF_TOPIC, SCHEDULE_TOPIC))
    environment = {
        "cpuNum": settings.get("clientCallbackExecutorThreads"),
        "totalMemKBytes": info.get("totalMemKBytes"),
    }
    return {
        "runtimeEnv": {name: value for name, value in environment.items() if value is not None},
        "runtimeQuota": {
            "diskRatio": {name: info.get(name) for name in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
            "tps": {
                "normalInTps": _first_rate(info.get("putTps")),
                "normalOutTps": _first_rate(info.get("getTransferredTps")),
                "transInTps": half.stats_minute.tps if half and half.stats_minute else 0.0,
                "scheduleInTps": schedule.stats_minute.tps if schedule and schedule.stats_minute else 0.0,
            },
            "oneDayNum": {
                "normalOneDayInNum": _yesterday(info, "msgPut"),
                "normalOneDayOutNum": _yesterday(info, "msgGet"),
                "transOneDayInNum": _day(half),
                "scheduleOneDayInNum": _day(schedule),
            },
            "messageAverageSize": info.get("putMessageAverageSize"),
            "topicSize": len(topics),
            "groupSize": len(groups),
        },
        "runtimeVersion": {
            "rocketmqVersion": info.get("brokerVersionDesc"),
            "clientInfo": sorted(set(_clients(session, groups))),
        },
    }


def _counter(admin: AdminClient, target: Target, topic: str) -> BrokerStatsData | None:
    from gantrymq.errors import MQBrokerError

    try:
        return admin.broker_stats(target.address, "TOPIC_PUT_NUMS", topic)
    except MQBrokerError:
        return None  # nothing has been counted


def _day(stats: BrokerStatsData | None) -> int:
    """The sum of a day; of an hour or a minute while the broker is younger (StatsAllSubCommand.compute24HourSum)."""
    sums = [item.sum for item in (stats.stats_day, stats.stats_hour, stats.stats_minute) if item] if stats else []
    return next(filter(None, sums), 0)


def _first_rate(text: str | None) -> float:
    try:
        return float([*(text or "").split(), "0"][0])
    except ValueError:
        return 0.0


def _yesterday(info: Mapping[str, str], kind: str) -> int:
    try:
        return int(info[f"{kind}TotalTodayMorning"]) - int(info[f"{kind}TotalYesterdayMorning"])
    except (KeyError, ValueError):
        return 0


def _clients(session: Session, groups: list[str]) -> Iterator[str]:
    """Language and version of the consumers of each group: ``JAVA%V5_5_0``."""
    from gantrymq.errors import GantrymqError
    from gantrymq.remoting.codes import version_name

    for group in groups:
        try:
            members = session.admin.consumer_connection(group).connection_set
        except GantrymqError:
            continue  # it has no member
        yield from (f"{member.language}%{version_name(member.version)}" for member in members)


@admin_command
def report_metadata(
    session: Session,
    folder: Folder = None,
    topics: Annotated[bool, typer.Option("--topics", help="Only topics: topic.json.")] = False,
    groups: Annotated[bool, typer.Option("--groups", help="Only groups: subscriptionGroup.json.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Also topics of retries and of the DLQ.")] = False,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Write metadata.json: topics and groups, with the queues of all brokers added up.

    `export` writes what each broker has, and `import` reads both.

    Examples of use:

        gantrymq admin report metadata export -c DefaultCluster
        gantrymq admin report metadata export -b broker-a --topics
    """
    both = topics == groups
    admin = session.admin
    table: dict[str, Any] = {"topicConfigTable": {}} if both or topics else {}
    table |= {"subscriptionGroupTable": {}} if both or groups else {}
    answers = session.each(
        session.masters(broker, cluster),
        lambda target: (
            admin.topic_configs(target.address) if both or topics else {},
            admin.subscription_groups(target.address) if both or groups else {},
        ),
    )
    for target, (its_topics, its_groups) in answers:
        for name, config in its_topics.items():
            if _is_exported(name, target, everything=everything):
                _add(table["topicConfigTable"], name, config, "readQueueNums", "writeQueueNums")
        for name, group in its_groups.items():
            if not is_own("group", name, target):
                _add(table["subscriptionGroupTable"], name, group, "retryQueueNums")
    name = "metadata.json" if both else "topic.json" if topics else "subscriptionGroup.json"
    _write(session, folder, name, {"exportTime": _now_ms(), **table})


def _add(table: dict[str, Any], name: str, config: Body, *counts: str) -> None:
    """Add a configuration to those of other brokers: its ``counts`` are summed, and its other fields replace theirs."""
    from msgspec import to_builtins

    fields: dict[str, Any] = _given(to_builtins(config))
    for count in counts:
        fields[count] += table.get(name, {}).get(count, 0)
    table[name] = fields


def _given(value: Any) -> Any:
    """A JSON value without fields that are null, which fastjson leaves out."""
    if isinstance(value, dict):
        return {name: _given(item) for name, item in value.items() if item is not None}
    return value


def _is_exported(name: str, target: Target, *, everything: bool) -> bool:
    from gantrymq.cli.admin.topics import kind_of

    return not is_own("topic", name, target) or (everything and kind_of(name) in ("retry", "dlq"))


def _now_ms() -> int:
    from gantrymq.clock import SystemClock

    return SystemClock().now_ms()


def _write(session: Session, folder: Path | None, name: str, report: Mapping[str, object]) -> None:
    path = (folder or Path(gettempdir()) / "rocketmq" / "export") / name  # mqadmin's default
    text = json.dumps(report, indent=2, ensure_ascii=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}") from None
    session.rows([{"out": str(path)}], {"out": "file"})
