"""Parts of RocketMQ's broker that gantrymq's lacks: reads of cold data, RocksDB, epochs of a controller.

``broker cold-data …``, ``broker read-ahead|timer-engine|epoch|flush-offset|export-pop``, ``broker rocksdb …``
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gantrymq.cli.admin.session import Broker, Cluster, Session, Target, admin_command, require, watched
from gantrymq.cli.options import Begin, whole_number

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.", show_default=False)]

_ENGINES = {"F": "the files of the wheel", "R": "RocksDB"}
_KINDS = ("topics", "subscriptionGroups", "consumerOffsets")
_DONE_COLUMNS = {"brokerName": "broker", "address": "address", "done": "done"}
_CHECK_STATUS = ("ok", "not ok", "in progress", "error")
_MONTH_MS = 30 * 24 * 3_600_000


@watched
def cold_data_get(session: Session, broker: Broker = None, cluster: Cluster = None) -> None:
    """Show how much cold data the groups of each broker read, and their limits.

    Examples of use:

        gantrymq admin broker cold-data get -b broker-a
    """
    answers = session.each(
        session.brokers(broker, cluster), lambda target: session.admin.cold_data_flow(target.address)
    )
    for target, cold_data in answers:
        session.pairs(
            f"{target.name} {target.address}", {**target.fields(), "coldData": cold_data}, shown=_shown(cold_data)
        )


def _shown(cold_data: dict[str, Any] | None) -> dict[str, object]:
    return {"cold data": "this broker keeps no table of it"} if cold_data is None else cold_data


@admin_command
def cold_data_set(
    session: Session,
    group: Group,
    threshold: Annotated[
        int, typer.Argument(metavar="BYTES", parser=whole_number(0), help="In a period.", show_default=False)
    ],
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Limit the cold data that a group may read. RocketMQ applies it if coldDataFlowControlEnable=true.

    Examples of use:

        gantrymq admin broker cold-data set invoices 3145728 -c DefaultCluster
    """
    done = session.each(
        session.masters(broker, cluster),
        lambda target: session.admin.set_cold_data_threshold(target.address, group, threshold),
    )
    rows = [{**target.fields(), "group": group, "done": f"threshold {threshold}"} for target, _ in done]
    session.rows(rows, {**_DONE_COLUMNS, "group": "group"})


@admin_command
def cold_data_remove(session: Session, group: Group, broker: Broker = None, cluster: Cluster = None) -> None:
    """Remove the limit for a group's reads of cold data.

    Examples of use:

        gantrymq admin broker cold-data remove invoices -c DefaultCluster
    """
    done = session.each(
        session.masters(broker, cluster), lambda target: session.admin.remove_cold_data_threshold(target.address, group)
    )
    rows = [{**target.fields(), "group": group, "done": "removed"} for target, _ in done]
    session.rows(rows, {**_DONE_COLUMNS, "group": "group"})


@admin_command
def read_ahead(
    session: Session,
    mode: Annotated[str, typer.Argument(metavar="(normal | random)", help="How it is read.", show_default=False)],
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Tell the kernel how brokers read the files of their commit log. mqadmin's 0 is normal, 1 is random.

    Examples of use:

        gantrymq admin broker read-ahead random -b broker-a
    """
    names = {"normal": False, "0": False, "random": True, "1": True}
    require(mode in names, f"{mode!r} is not normal or random")
    done = session.each(
        session.brokers(broker, cluster),
        lambda target: session.admin.set_read_ahead(target.address, is_random=names[mode]),
    )
    rows = [{**target.fields(), "done": remark or "done"} for target, remark in done]
    session.rows(rows, _DONE_COLUMNS)


@admin_command
def timer_engine(
    session: Session,
    engine: Annotated[str, typer.Argument(metavar="(F | R)", help="Files or RocksDB.", show_default=False)],
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Choose where brokers store timer messages from now on: F in files, R in RocksDB.

    Examples of use:

        gantrymq admin broker timer-engine F -b broker-a
    """
    require(engine in _ENGINES, f"{engine!r} is not F or R")
    done = session.each(
        session.masters(broker, cluster), lambda target: session.admin.switch_timer_engine(target.address, engine)
    )
    session.rows([{**target.fields(), "done": _ENGINES[engine]} for target, _ in done], _DONE_COLUMNS)


@watched
def epoch(session: Session, broker: Broker = None, cluster: Cluster = None) -> None:
    """Show the epochs of brokers that have a controller: which master wrote which part of the log.

    Examples of use:

        gantrymq admin broker epoch -b broker-a
    """
    rows = []
    for target, epochs in session.each(
        session.brokers(broker, cluster), lambda target: session.admin.broker_epochs(target.address)
    ):
        entries = epochs.epoch_list
        ends = [*(entry.end_offset for entry in entries[:-1]), epochs.max_offset]
        rows += [
            {
                **target.fields(),
                "brokerId": epochs.broker_id,
                "epoch": entry.epoch,
                "startOffset": entry.start_offset,
                "endOffset": end,
            }
            for entry, end in zip(entries, ends, strict=False)
        ]
    columns = {
        "brokerName": "broker",
        "brokerId": ">id",
        "address": "address",
        "epoch": ">epoch",
        "startOffset": ">from",
        "endOffset": ">to",
    }
    session.rows(rows, columns, none="no broker has an epoch")


@admin_command
def flush_offset(
    session: Session,
    offset: Annotated[
        int, typer.Argument(metavar="OFFSET", parser=whole_number(0), help="Of the log.", show_default=False)
    ],
    broker: Broker = None,
) -> None:
    """Tell a slave up to which offset of the log its master has flushed. A master ignores it.

    Examples of use:

        gantrymq admin broker flush-offset 0 -b 10.0.0.2:10911
    """
    require(broker, "give --broker: the slave's host:port")
    done = session.each(
        session.brokers(broker), lambda target: session.admin.reset_master_flush_offset(target.address, offset)
    )
    session.rows([{**target.fields(), "done": f"master flush offset {offset}"} for target, _ in done], _DONE_COLUMNS)


@admin_command
def export_pop(
    session: Session,
    broker: Broker = None,
    cluster: Cluster = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Name the brokers, and change nothing.")] = False,
) -> None:
    """Make brokers move the records of popped messages from RocksDB back into files.

    Examples of use:

        gantrymq admin broker export-pop -b broker-a --dry-run
    """

    def move(target: Target) -> None:
        if not dry_run:
            session.admin.export_pop_records(target.address)

    answers = session.each(session.brokers(broker, cluster), move)
    rows = [
        {**target.fields(), "done": "nothing" if dry_run else "exported", "dryRun": dry_run} for target, _ in answers
    ]
    session.rows(rows, _DONE_COLUMNS)


@admin_command
def rocksdb_check(
    session: Session,
    topic: Annotated[str, typer.Option("-t", "--topic", metavar="TOPIC", help="Only this topic.")] = "",
    begin: Begin = None,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Make brokers compare their consume queues in RocksDB with those in files. They log the result.

    Without --begin messages of the last thirty days are compared.

    Examples of use:

        gantrymq admin broker rocksdb check -c DefaultCluster -t orders
    """
    from gantrymq.clock import SystemClock

    since = SystemClock().now_ms() - _MONTH_MS if begin is None else begin
    answers = session.each(
        session.masters(broker, cluster),
        lambda target: session.admin.check_rocksdb_queues(target.address, topic, since),
    )
    rows = []
    for target, answer in answers:
        known = 0 <= answer.check_status < len(_CHECK_STATUS)
        status = _CHECK_STATUS[answer.check_status] if known else str(answer.check_status)
        rows.append({**target.fields(), "status": status, "result": answer.check_result})
        if status in ("not ok", "error"):
            session.finding(f"{target.name}: {answer.check_result or status}")
    session.rows(rows, {"brokerName": "broker", "address": "address", "status": "status", "result": "result"})


@admin_command
def rocksdb_export(
    session: Session,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="TABLE", help="topics, subscriptionGroups or consumerOffsets (all)."),
    ] = None,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Make brokers write the tables that they keep in RocksDB into their JSON files.

    Examples of use:

        gantrymq admin broker rocksdb export -b broker-a
        gantrymq admin broker rocksdb export --kind topics -c DefaultCluster
    """
    kinds = kind or list(_KINDS)
    require(set(kinds) <= set(_KINDS), f"--kind is one of {', '.join(_KINDS)}")
    done = session.each(
        session.masters(broker, cluster), lambda target: session.admin.export_rocksdb_config(target.address, kinds)
    )
    session.rows([{**target.fields(), "done": ", ".join(kinds)} for target, _ in done], _DONE_COLUMNS)
