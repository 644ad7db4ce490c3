"""Brokers and name servers: ``cluster``, ``broker …``, ``ha``, ``kv …``, ``namesrv …``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.admin.session import Broker, Cluster, Session, Target, admin_command, require, watched

if TYPE_CHECKING:
    from gantrymq.remoting.bodies.group import ConsumeStatsList

Assignments = Annotated[list[str], typer.Argument(metavar="KEY=VALUE…", help="Settings.", show_default=False)]
Keys = Annotated[list[str] | None, typer.Argument(metavar="[KEY…]", help="Only these settings.", show_default=False)]
BrokerName = Annotated[str, typer.Argument(metavar="BROKERNAME", help="A broker's name.", show_default=False)]
Namespace = Annotated[str, typer.Argument(metavar="NAMESPACE", help="The namespace of the keys.", show_default=False)]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key.", show_default=False)]
Value = Annotated[str, typer.Argument(metavar="VALUE", help="The value.", show_default=False)]

_HOUR_MS = 3_600_000


@watched
def cluster(session: Session, cluster: Cluster = None) -> None:
    """Show the brokers of all clusters: version, rates, age and size of the log.

    A broker that does not answer is in the table too, and named on stderr; the
    exit code is then 1.

    Examples of use:

        gantrymq admin cluster -n 127.0.0.1:9876
        gantrymq admin cluster -c DefaultCluster --json
        gantrymq admin cluster --watch 2
    """
    rows = [{**target.fields(), **_state(session, target)} for target in session.brokers(cluster=cluster)]
    columns = {
        "cluster": "cluster",
        "brokerName": "broker",
        "brokerId": ">id",
        "address": "address",
        "version": "version",
        "inTps": ">in/s",
        "outTps": ">out/s",
        "inTotalToday": ">in today",
        "outTotalToday": ">out today",
        "hours": ">hours",
        "diskUsedRatio": ">disk",
        "active": "active",
    }
    session.rows(rows, columns, none="no broker is registered")


def _state(session: Session, target: Target) -> dict[str, object]:
    """A broker's row of the cluster's table. All its values are None if the broker does not answer."""
    from gantrymq.errors import GantrymqError

    try:
        info = session.admin.broker_runtime_info(target.address)
    except GantrymqError as error:
        session.missing(target.name, error)
        info = {}
    earliest = _number(info.get("earliestMessageTimeStamp"))
    age_ms = None if earliest is None or earliest < 0 else _now_ms() - earliest
    return {
        "version": info.get("brokerVersionDesc"),
        "inTps": _rate(info.get("putTps")),
        "outTps": _rate(info.get("getTransferredTps")),
        "inTotalYesterday": _between(info, "msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning"),
        "outTotalYesterday": _between(info, "msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning"),
        "inTotalToday": _between(info, "msgPutTotalTodayMorning", "msgPutTotalTodayNow"),
        "outTotalToday": _between(info, "msgGetTotalTodayMorning", "msgGetTotalTodayNow"),
        "hours": None if age_ms is None else age_ms / _HOUR_MS,
        "diskUsedRatio": _rate(info.get("commitLogDiskRatio")),
        "active": info["brokerActive"] == "true" if "brokerActive" in info else None,
        **{name: _number(info.get(name)) for name in _WAITS},
        **{name: _rate(info.get(name)) for name in ("timerEnqueueTps", "timerDequeueTps")},
    }


# How many requests wait and how long the first has waited, how long a put takes, and what timers have not done yet.
_WAITS = (
    *("sendThreadPoolQueueSize", "sendThreadPoolQueueHeadWaitTimeMills"),
    *("pullThreadPoolQueueSize", "pullThreadPoolQueueHeadWaitTimeMills"),
    *("ackThreadPoolQueueSize", "ackThreadPoolQueueHeadWaitTimeMills"),
    *("pageCacheLockTimeMills", "timerReadBehind", "timerOffsetBehind", "timerCongestNum"),
)


def _now_ms() -> int:
    from gantrymq.clock import SystemClock

    return SystemClock().now_ms()


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _rate(text: str | None) -> float | None:
    """The first of RocketMQ's three rates, of the last ten seconds. A young broker has measured none, which is 0."""
    try:
        return None if text is None else float([*text.split(), "0"][0])
    except ValueError:
        return None


def _between(info: dict[str, str], begin: str, end: str) -> int | None:
    first, last = _number(info.get(begin)), _number(info.get(end))
    return None if first is None or last is None else last - first


@watched
def broker_status(session: Session, broker: Broker = None, cluster: Cluster = None) -> None:
    """Show the statistics that brokers report of themselves.

    Examples of use:

        gantrymq admin broker status -b broker-a
        gantrymq admin broker status -c DefaultCluster --json
    """
    answers = session.each(
        session.brokers(broker, cluster), lambda target: session.admin.broker_runtime_info(target.address)
    )
    for target, status in answers:
        session.pairs(f"{target.name} {target.address}", {**target.fields(), "status": status}, shown=status)


@admin_command
def config_get(session: Session, keys: Keys = None, broker: Broker = None, cluster: Cluster = None) -> None:
    """Show settings of running brokers. The exit code is 1 if a broker does not have one of the KEYs.

    Examples of use:

        gantrymq admin broker config get -b broker-a
        gantrymq admin broker config get fileReservedTime flushDiskType --json
    """
    answers = session.each(session.brokers(broker, cluster), lambda target: session.admin.broker_config(target.address))
    for target, settings in answers:
        chosen = {key: settings[key] for key in keys or sorted(settings) if key in settings}
        session.pairs(f"{target.name} {target.address}", {**target.fields(), "config": chosen}, shown=chosen)
        for key in (key for key in keys or () if key not in settings):
            session.finding(f"{target.name} has no setting {key}; without a KEY all are shown")


@admin_command
def config_set(session: Session, assignments: Assignments, broker: Broker = None, cluster: Cluster = None) -> None:
    """Change settings of running brokers. Say which: --broker or --cluster.

    The settings are read back. The exit code is 1 if a broker does not have
    one, or if it has another value (another operator changed it too).

    Examples of use:

        gantrymq admin broker config set fileReservedTime=48 -b broker-a
        gantrymq admin broker config set slaveReadEnable=true -c DefaultCluster
    """
    require(broker or cluster, "give --broker or --cluster: a setting is not changed at all brokers by accident")
    wanted = assigned(assignments)

    def change(target: Target) -> dict[str, str]:
        session.admin.update_broker_config(wanted, broker=target.address)
        return session.admin.broker_config(target.address)

    rows = []
    for target, settings in session.each(session.masters(broker, cluster), change):
        rows += [{**target.fields(), "key": key, "value": settings.get(key)} for key in wanted]
        for key, value in wanted.items():
            if key not in settings:
                session.finding(f"{target.name} has no setting {key}: nothing was changed by it")
            elif not _is_same(settings[key], value):
                text = f"{target.name} has {key}={settings[key]}, not {value}"
                session.finding(f"{text}; another operator changed it, or the broker does not allow it")
    session.rows(rows, {"brokerName": "broker", "address": "address", "key": "key", "value": "value"})


def assigned(assignments: list[str]) -> dict[str, str]:
    """The settings of KEY=VALUE words. Raises a usage error."""
    pairs = [assignment.partition("=") for assignment in assignments]
    for key, separator, _ in pairs:
        require(separator and key, f"{key!r} is not KEY=VALUE")
    return {key: value for key, _, value in pairs}


def _is_same(first: str, other: str) -> bool:
    return first.strip().lower() == other.strip().lower()


@admin_command
def write_perm(
    session: Session,
    change: Annotated[str, typer.Argument(metavar="(wipe | add)", help="What to do.", show_default=False)],
    name: BrokerName,
) -> None:
    """Stop producers from choosing a broker (wipe), or let them choose it again (add).

    Use it before a broker is shut down: its topics lose their write permission
    at the name servers, so producers go to other brokers.

    Examples of use:

        gantrymq admin broker write-perm wipe broker-a
        gantrymq admin broker write-perm add broker-a
    """
    require(change in ("wipe", "add"), f"{change!r} is not wipe or add")
    session.brokers(name)
    changed = session.admin.wipe_write_perm(name) if change == "wipe" else session.admin.add_write_perm(name)
    rows = [{"namesrv": address, "brokerName": name, "topics": count} for address, count in changed.items()]
    session.rows(rows, {"namesrv": "name server", "brokerName": "broker", "topics": ">changed topics"})


@admin_command
def clean(
    session: Session,
    expired_queues: Annotated[bool, typer.Option("--expired-queues", help="Queues of deleted topics.")] = False,
    expired_logs: Annotated[bool, typer.Option("--expired-logs", help="Expired files of the commit log.")] = False,
    unused_topics: Annotated[
        bool, typer.Option("--unused-topics", help="Queues of topics without a configuration.")
    ] = False,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Make brokers delete now what they would delete later. Without a broker or cluster: all.

    Examples of use:

        gantrymq admin broker clean --expired-queues -b broker-a
        gantrymq admin broker clean --expired-logs --unused-topics
    """
    require(expired_queues or expired_logs or unused_topics, "say what: --expired-queues, --expired-logs, …")
    admin = session.admin
    calls = {
        "expiredQueues": (expired_queues, admin.clean_expired_consume_queue),
        "expiredLogs": (expired_logs, admin.delete_expired_commit_log),
        "unusedTopics": (unused_topics, admin.clean_unused_topic),
    }
    chosen = {name: call for name, (is_wanted, call) in calls.items() if is_wanted}

    def each(target: Target) -> None:
        for call in chosen.values():
            call(broker=target.address)

    done = session.each(session.masters(broker, cluster), each)
    rows = [{**target.fields(), "cleaned": list(chosen)} for target, _ in done]
    session.rows(rows, {"brokerName": "broker", "address": "address", "cleaned": "cleaned"})


@admin_command
def consume_stats(
    session: Session,
    broker: Broker = None,
    cluster: Cluster = None,
    behind: Annotated[int, typer.Option("--behind", metavar="N", min=0, help="Only queues that are N behind.")] = 0,
    is_order: Annotated[bool, typer.Option("--order", help="Only groups that consume in order.")] = False,
) -> None:
    """Show how far all groups of a broker are, queue by queue.

    Examples of use:

        gantrymq admin broker consume-stats -b broker-a
        gantrymq admin broker consume-stats --behind 1000 --json
    """
    chosen = session.masters(broker, cluster)
    answers = session.each(chosen, lambda target: session.admin.broker_consume_stats(target.address, is_order=is_order))
    rows = [
        {"brokerName": target.name, **row, "diffTotal": stats_list.total_diff}
        for target, stats_list in answers
        for row in _progress(stats_list)
        if int(str(row["diff"])) >= behind
    ]
    columns = {
        "group": "group",
        "topic": "topic",
        "brokerName": "broker",
        "queueId": ">queue",
        "brokerOffset": ">end",
        "consumerOffset": ">committed",
        "diff": ">behind",
        "lastTimestamp": "consumed up to",
    }
    session.rows(rows, columns, none="no group has consumed, or none is so far behind")
    if not session.is_json:
        from gantrymq.cli.terminal import print_line

        for name, total in {row["brokerName"]: row["diffTotal"] for row in rows}.items():
            print_line(f"all groups of {name} are {total:,} behind")


def _progress(stats_list: ConsumeStatsList) -> Iterator[dict[str, object]]:
    """A row for each queue of each group in a broker's table."""
    from gantrymq.remoting.body import by_queue

    for groups in stats_list.consume_stats_list:
        for group, tables in groups.items():
            for queue, wrapper in (pair for stats in tables for pair in by_queue(stats.offset_table).items()):
                yield {
                    "group": group,
                    "topic": queue.topic,
                    "queueId": queue.queue_id,
                    "brokerOffset": wrapper.broker_offset,
                    "consumerOffset": wrapper.consumer_offset,
                    "diff": wrapper.broker_offset - wrapper.consumer_offset,
                    "lastTimestamp": wrapper.last_timestamp,
                }


@watched
def ha(session: Session, broker: Broker = None, cluster: Cluster = None) -> None:
    """Show replication: the slaves of masters, how far each is behind, and its state.

    A slave shows its own copy of the master's log, and why it stands still.
    Slaves whose connection the master has closed within the last minute are
    shown with the reason as their state. A voter is a slave that
    acknowledgements of a SYNC_MASTER count. RocketMQ's brokers report neither.
    `ha promote` makes a slave the master.

    Examples of use:

        gantrymq admin ha
        gantrymq admin ha -b broker-a --watch 1
    """
    rows: list[dict[str, object]] = []
    chosen = session.brokers(broker, cluster)
    for target, info in session.each(chosen, lambda target: session.admin.ha_status(target.address)):
        base = {
            **target.fields(),
            "master": info.master,
            "maxOffset": info.master_commit_log_max_offset,
            "slaves": len(info.ha_connection_info),
        }
        closed = info.closed_connection_info or []
        slaves = [
            {
                "slave": slave.addr,
                "slaveOffset": slave.slave_ack_offset,
                "diff": slave.diff,
                "inSync": slave.in_sync,
                "bytesPerSecond": slave.transferred_byte_in_second,
                "transferFromWhere": slave.transfer_from_where,
                "state": slave.state,
                "voter": slave.voter,
            }
            for slave in [*info.ha_connection_info, *closed]
        ]
        own = info.ha_client_runtime_info
        if not info.master:
            base |= {
                "masterAddress": own.master_addr,
                "maxOffset": own.max_offset,
                "activated": own.activated,
                "bytesPerSecond": own.transferred_byte_in_second,
                "lastReadTimestamp": own.last_read_timestamp,
                "lastWriteTimestamp": own.last_write_timestamp,
                "masterFlushOffset": own.master_flush_offset,
                "state": own.state,
                "reason": own.reason,
                "slaveOffset": own.ack_offset,
                "diff": None if own.master_max_offset is None else max(own.master_max_offset - own.max_offset, 0),
            }
        if not info.master or not slaves:
            rows.append({**base, "inSyncSlaves": info.in_sync_slave_nums, "slave": None})
        rows += [{**base, "inSyncSlaves": info.in_sync_slave_nums, **slave} for slave in slaves]
    columns = {
        "brokerName": "broker",
        "brokerId": ">id",
        "address": "address",
        "maxOffset": ">end of log",
        "slave": "slave",
        "slaveOffset": ">acknowledged",
        "diff": ">behind",
        "inSync": "in sync",
        "state": "state",
        "voter": "voter",
        "reason": "reason",
        "bytesPerSecond": ">bytes/s",
    }
    session.rows(rows, columns)


@admin_command
def kv_get(session: Session, space: Namespace, key: Key) -> None:
    """Show a value stored at the name servers. The exit code is 1 if there is none.

    Examples of use:

        gantrymq admin kv get ORDER_TOPIC_CONFIG orders
    """
    value = session.admin.kv_config(space, key)
    if value is None:
        session.finding(f"there is no key {key} in {space}; `gantrymq admin kv list {space}` shows the keys")
    else:
        session.rows([{"namespace": space, "key": key, "value": value}], _KV_COLUMNS)


_KV_COLUMNS = {"namespace": "namespace", "key": "key", "value": "value"}


@admin_command
def kv_list(session: Session, space: Namespace) -> None:
    """Show all values of a namespace at the name servers.

    Examples of use:

        gantrymq admin kv list ORDER_TOPIC_CONFIG
    """
    pairs = sorted(session.admin.kv_configs(space).items())
    rows = [{"namespace": space, "key": key, "value": value} for key, value in pairs]
    session.rows(rows, _KV_COLUMNS, none=f"there is no key in {space}")


@admin_command
def kv_put(session: Session, space: Namespace, key: Key, value: Value) -> None:
    """Store a value at all name servers.

    Examples of use:

        gantrymq admin kv put ORDER_TOPIC_CONFIG orders broker-a:4
    """
    session.admin.put_kv_config(space, key, value)
    session.rows([{"namespace": space, "key": key, "value": value}], _KV_COLUMNS)


@admin_command
def kv_delete(session: Session, space: Namespace, key: Key) -> None:
    """Delete a value at all name servers. Deleting what is not there is no error.

    Examples of use:

        gantrymq admin kv delete ORDER_TOPIC_CONFIG orders
    """
    session.admin.delete_kv_config(space, key)
    session.rows([{"namespace": space, "key": key, "value": None}], _KV_COLUMNS)


@admin_command
def namesrv_get(session: Session, keys: Keys = None) -> None:
    """Show the settings of the name servers.

    Examples of use:

        gantrymq admin namesrv get
        gantrymq admin namesrv get orderMessageEnable --json
    """
    for address, settings in session.admin.name_server_config().items():
        chosen = {key: settings[key] for key in keys or sorted(settings) if key in settings}
        session.pairs(address, {"namesrv": address, "config": chosen}, shown=chosen)
        for key in (key for key in keys or () if key not in settings):
            session.finding(f"{address} has no setting {key}; without a KEY all are shown")


@admin_command
def namesrv_set(session: Session, assignments: Assignments) -> None:
    """Change settings of all running name servers.

    Examples of use:

        gantrymq admin namesrv set orderMessageEnable=true
    """
    wanted = assigned(assignments)
    session.admin.update_name_server_config(wanted)
    rows = [
        {"namesrv": address, "key": key, "value": settings.get(key)}
        for address, settings in session.admin.name_server_config().items()
        for key in wanted
    ]
    for row in rows:
        if row["value"] is None or not _is_same(str(row["value"]), wanted[str(row["key"])]):
            session.finding(f"{row['namesrv']} has {row['key']}={row['value']}, not {wanted[str(row['key'])]}")
    session.rows(rows, {"namesrv": "name server", "key": "key", "value": "value"})
