"""Topics: ``topic list|create|delete|route|status|perm|consumers``, and ``stats``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.admin.session import Broker, Cluster, Session, Target, admin_command, require, watched
from gantrymq.cli.terminal import warn

if TYPE_CHECKING:
    from gantrymq.remoting.bodies.topic import TopicConfig

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)]

_DEFAULT_QUEUES = 8  # mqadmin's
_UNIT, _UNIT_SUBSCRIPTION = 1, 2  # bits of topicSysFlag (TopicSysFlag)
_PERM_TEXTS = {"RW": 6, "WR": 6, "R": 4, "W": 2, "-": 0}


@admin_command
def topic_list(
    session: Session,
    cluster: Cluster = None,
    detail: Annotated[bool, typer.Option("--detail", help="With its cluster and the groups that consume it.")] = False,
) -> None:
    """List all topics, also those of the system and of groups (retries, dead letters).

    Examples of use:

        gantrymq admin topic list
        gantrymq admin topic list -c DefaultCluster --json
        gantrymq admin topic list --detail
    """
    admin = session.admin
    if cluster is not None:
        session.brokers(cluster=cluster)
    topics = admin.topics() if cluster is None else admin.topics_of_cluster(cluster)
    if not detail:
        rows: Iterable[dict[str, object]] = ({"topic": name, "kind": kind_of(name)} for name in topics)
        session.rows(rows, {"topic": "topic", "kind": "kind"}, none="there is no topic")
        return
    session.rows(_details(session, topics), {"cluster": "cluster", "topic": "topic", "group": "group"})


def kind_of(topic: str) -> str:
    """``retry`` or ``dlq`` for a topic of a group, ``system`` for RocketMQ's own, else ``normal``."""
    from gantrymq.broker import names

    if topic.startswith(names.RETRY_PREFIX):
        return "retry"
    if topic.startswith(names.DLQ_PREFIX):
        return "dlq"
    is_system = topic in names.SYSTEM_TOPICS or topic.startswith(names.SYSTEM_TOPIC_PREFIX)
    return "system" if is_system else "normal"


def _details(session: Session, topics: list[str]) -> Iterator[dict[str, object]]:
    from gantrymq.errors import GantrymqError

    clusters = {broker.name: broker.cluster for broker in session.brokers()}
    for topic in topics:
        if kind_of(topic) in ("retry", "dlq"):
            continue
        try:
            route = session.admin.topic_route(topic)
            names = sorted({clusters.get(data.broker_name, data.cluster) for data in route.broker_datas})
            groups = session.admin.topic_consumers(topic)
        except GantrymqError as error:
            session.missing(topic, error)
            continue
        for name in names:
            for group in (*groups,) or (None,):
                yield {"cluster": name, "topic": topic, "group": group}


@admin_command
def topic_create(
    session: Session,
    topic: Topic,
    read_queues: Annotated[
        int | None, typer.Option("--read-queues", metavar="N", min=0, max=65536, help="Queues to read (8).")
    ] = None,
    write_queues: Annotated[
        int | None, typer.Option("--write-queues", metavar="N", min=0, max=65536, help="Queues to write (8).")
    ] = None,
    queues: Annotated[
        int | None, typer.Option("--queues", metavar="N", min=0, max=65536, help="Queues to read and to write.")
    ] = None,
    perm: Annotated[str | None, typer.Option("--perm", metavar="PERM", help="RW, R, W, or 6, 4, 2.")] = None,
    is_order: Annotated[
        bool | None, typer.Option("--order/--no-order", help="Consumed in order.", show_default=False)
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option("--attribute", metavar="CHANGE", help="+message.type=FIFO sets one, -message.type removes it."),
    ] = None,
    is_unit: Annotated[bool | None, typer.Option("--unit/--no-unit", help="Of a unit.", show_default=False)] = None,
    has_unit_subscription: Annotated[
        bool | None, typer.Option("--unit-sub/--no-unit-sub", help="Consumed by units.", show_default=False)
    ] = None,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Create a topic, or change what is given of one that exists.

    Without a broker or cluster it is created at all masters. --order also enters
    it into ORDER_TOPIC_CONFIG of the name servers, --no-order removes it from
    there, and a new number of queues to write is entered, too. The result is read
    back; if it differs, another operator has changed the topic at the same time,
    and the exit code is 1.

    Examples of use:

        gantrymq admin topic create orders --queues 4
        gantrymq admin topic create orders --write-queues 8 -b broker-a
        gantrymq admin topic create payments --queues 8 --attribute +message.type=FIFO
    """
    from gantrymq.broker.names import wrong_topic

    require(queues is None or (read_queues is None and write_queues is None), "--queues is both; give it alone")
    reason = wrong_topic(topic)
    require(reason is None, reason or "")
    changes = {
        "read_queue_nums": read_queues if queues is None else queues,
        "write_queue_nums": write_queues if queues is None else queues,
        "perm": None if perm is None else perm_number(perm),
        "order": is_order,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    attributes = dict(attribute_change(text) for text in attribute or ())
    targets = session.masters(broker, cluster)
    flags = {_UNIT: is_unit, _UNIT_SUBSCRIPTION: has_unit_subscription}
    bits = {bit: is_on for bit, is_on in flags.items() if is_on is not None}
    if is_order is False:
        _remove_order(session, topic, {target.name for target in targets} if broker or cluster else None)
    change_topic(session, topic, given, targets, attributes=attributes, creates=True, sys_flags=bits)
    ordered = session.admin.order_config(topic)
    if is_order:
        session.admin.put_order_config(topic, ordered | _queues_at(session, topic, targets))
    elif ordered:
        session.admin.follow_queues(topic, _queues_at(session, topic, targets))
        for name in sorted({target.name for target in targets} - ordered.keys()):
            warn(
                f"ORDER_TOPIC_CONFIG orders {topic} without {name}, so producers do not send there; --order adds it, "
                f"`gantrymq admin topic create {topic} --no-order` removes the order"
            )


def _queues_at(session: Session, topic: str, targets: list[Target]) -> dict[str, int]:
    """The queues to write of a topic, by broker."""
    configs = {target.name: _config_at(session, topic, target) for target in targets}
    return {name: config.write_queue_nums for name, config in configs.items() if config is not None}


def _remove_order(session: Session, topic: str, chosen: set[str] | None) -> None:
    """Remove a topic from the order configuration. Otherwise the brokers would mark it as ordered at once again.

    Raises MQClientError if another registered broker than ``chosen`` is in it: a topic is ordered at all brokers, or
    at none.
    """
    from gantrymq.client.admin.topics import ORDER_TOPIC_CONFIG
    from gantrymq.errors import MQClientError

    ordered = session.admin.order_config(topic)
    if not ordered:
        return
    others = ordered.keys() & {broker.name for broker in session.brokers()} - (
        ordered.keys() if chosen is None else chosen
    )
    if others:
        raise MQClientError(
            f"ORDER_TOPIC_CONFIG orders {topic} also at {', '.join(sorted(others))}, and every broker follows it: "
            f"leave out --broker and --cluster, or run `gantrymq admin kv delete {ORDER_TOPIC_CONFIG} {topic}` before"
        )
    session.admin.put_order_config(topic, {})
    warn(f"{topic} was removed from ORDER_TOPIC_CONFIG of the name servers")


def perm_number(text: str) -> int:
    """RW, R, W, - or a number from 0 to 7 as RocketMQ's number. Raises a usage error."""
    if text.isascii() and text.isdecimal() and int(text) <= 7:
        return int(text)
    require(text.upper() in _PERM_TEXTS, f"{text!r} is no permission: RW, R, W, or 6, 4, 2")
    return _PERM_TEXTS[text.upper()]


def perm_text(perm: int) -> str:
    """The permission as mqadmin shows it: ``RW-``."""
    return f"{'R' if perm & 4 else '-'}{'W' if perm & 2 else '-'}{'X' if perm & 1 else '-'}"


def attribute_change(change: str) -> tuple[str, str]:
    """``+KEY=VALUE`` or ``-KEY`` as the key, with its sign, and the value. Raises a usage error."""
    require(change[:1] in ("+", "-") and len(change) > 1, f"{change!r} is not +KEY=VALUE or -KEY")
    key, _, value = change.partition("=")
    return key, value


def change_topic(
    session: Session,
    topic: str,
    given: Mapping[str, object],
    targets: list[Target],
    *,
    attributes: dict[str, str],
    creates: bool,
    sys_flags: Mapping[int, bool] | None = None,
) -> None:
    """Change fields of a topic at each broker, and bits of its topicSysFlag; read it back, and print it."""
    from msgspec.structs import replace

    from gantrymq.errors import MQClientError
    from gantrymq.remoting.bodies.topic import TopicConfig

    admin = session.admin
    new = TopicConfig(topic_name=topic, read_queue_nums=_DEFAULT_QUEUES, write_queue_nums=_DEFAULT_QUEUES)

    def change(target: Target) -> tuple[TopicConfig | None, TopicConfig]:
        before = _config_at(session, topic, target)
        if before is None and not creates:
            raise MQClientError(f"{target.name} has no topic {topic}; `gantrymq admin topic create` creates it")
        wanted = replace(before or new, topic_name=topic, attributes=attributes, **given)
        for bit, is_on in (sys_flags or {}).items():
            wanted.topic_sys_flag = wanted.topic_sys_flag | bit if is_on else wanted.topic_sys_flag & ~bit
        admin.put_topic_config(wanted, broker=target.address)
        return before, wanted

    rows = []
    for target, (before, wanted) in session.each(targets, change):
        now = _config_at(session, topic, target)
        if now is not None and "order" not in given:  # a name server may order it: ORDER_TOPIC_CONFIG
            wanted.order = now.order
        if now is None or replace(now, attributes={}) != replace(wanted, attributes={}):
            session.finding(
                f"{target.name}: {topic} is not as requested; another operator has changed or deleted it meanwhile"
            )
        rows.append({**config_fields(target, now or wanted), "created": before is None})
    session.rows(rows, {**CONFIG_COLUMNS, "created": "created"})


def _config_at(session: Session, topic: str, target: Target) -> TopicConfig | None:
    from gantrymq.errors import MQBrokerError
    from gantrymq.remoting.codes import ResponseCode

    try:
        return session.admin.topic_config(topic, target.address)
    except MQBrokerError as error:
        if error.response_code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        raise


CONFIG_COLUMNS = {
    "brokerName": "broker",
    "topic": "topic",
    "readQueueNums": ">read queues",
    "writeQueueNums": ">write queues",
    "permText": "perm",
    "order": "order",
    "attributes": "attributes",
}


def config_fields(target: Target, config: TopicConfig) -> dict[str, object]:
    """A topic's configuration at a broker, as JSON fields."""
    return {
        **target.fields(),
        "topic": config.topic_name,
        "readQueueNums": config.read_queue_nums,
        "writeQueueNums": config.write_queue_nums,
        "perm": config.perm,
        "permText": perm_text(config.perm),
        "order": config.order,
        "topicSysFlag": config.topic_sys_flag,
        "attributes": config.attributes,
    }


@admin_command
def topic_perm(
    session: Session,
    topic: Topic,
    perm: Annotated[str, typer.Argument(metavar="PERM", help="RW, R, W, or 6, 4, 2.", show_default=False)],
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Change whether a topic may be read and written. Everything else of it stays.

    Without a broker or cluster it is changed at all brokers that have it.

    Examples of use:

        gantrymq admin topic perm orders R
        gantrymq admin topic perm orders RW -b broker-a
    """
    has_it = {data.broker_name for data in session.admin.topic_route(topic).broker_datas}
    targets = session.masters(broker, cluster)
    if broker is None:
        targets = [target for target in targets if target.name in has_it]
        require(targets, f"no master of the cluster has topic {topic}")
    change_topic(session, topic, {"perm": perm_number(perm)}, targets, attributes={}, creates=False)


@admin_command
def topic_delete(session: Session, topic: Topic, cluster: Cluster = None) -> None:
    """Delete a topic at its brokers and at the name servers; its messages expire with the log.

    With a cluster it is deleted only there. A topic that is already gone is an
    error (exit code 3).

    Examples of use:

        gantrymq admin topic delete orders
        gantrymq admin topic delete orders -c DefaultCluster
    """
    from gantrymq.errors import MQClientError

    if topic not in session.admin.topics():
        raise MQClientError(f"there is no topic {topic}; `gantrymq admin topic list` shows the topics")
    session.admin.delete_topic(topic, cluster=cluster)
    session.rows([{"topic": topic, "cluster": cluster, "deleted": True}], {"topic": "topic", "deleted": "deleted"})


@admin_command
def topic_route(session: Session, topic: Topic) -> None:
    """Show which brokers have a topic, with their queues and permissions.

    Examples of use:

        gantrymq admin topic route orders
        gantrymq admin topic route orders --json
    """
    route = session.admin.topic_route(topic)
    brokers = {data.broker_name: data for data in route.broker_datas}
    rows = []
    for data in sorted(route.queue_datas, key=lambda queue_data: queue_data.broker_name):
        known = brokers.get(data.broker_name)
        rows.append(
            {
                "topic": topic,
                "cluster": known.cluster if known else None,
                "brokerName": data.broker_name,
                "addresses": {str(number): address for number, address in known.broker_addrs.items()} if known else {},
                "readQueueNums": data.read_queue_nums,
                "writeQueueNums": data.write_queue_nums,
                "perm": data.perm,
                "permText": perm_text(data.perm),
                "topicSysFlag": data.topic_sys_flag,
                "orderTopicConf": route.order_topic_conf,
                "enableActingMaster": known.enable_acting_master if known else None,
            }
        )
    columns = {
        "cluster": "cluster",
        "brokerName": "broker",
        "addresses": "addresses",
        "readQueueNums": ">read queues",
        "writeQueueNums": ">write queues",
        "permText": "perm",
    }
    session.rows(rows, columns)


@watched
def topic_status(session: Session, topic: Topic) -> None:
    """Show the first and the next offset of each queue, and when it last got a message.

    Examples of use:

        gantrymq admin topic status orders
        gantrymq admin topic status orders --watch 1
    """
    offsets, tps = session.admin.topic_stats_and_rate(topic)
    rows = [
        {
            "topic": topic,
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "minOffset": topic_offset.min_offset,
            "maxOffset": topic_offset.max_offset,
            "lastUpdateTimestamp": topic_offset.last_update_timestamp,
            "putTps": tps,
        }
        for queue, topic_offset in offsets.items()
    ]
    columns = {
        "brokerName": "broker",
        "queueId": ">queue",
        "minOffset": ">min",
        "maxOffset": ">max",
        "lastUpdateTimestamp": "last message",
    }
    session.rows(rows, columns)
    if not session.is_json:
        from gantrymq.cli.terminal import print_line

        print_line(f"{topic} gets {tps:,.2f} messages a second")


@admin_command
def topic_consumers(session: Session, topic: Topic) -> None:
    """Show the groups that consume a topic, or have consumed it.

    Examples of use:

        gantrymq admin topic consumers orders
    """
    rows = [{"topic": topic, "group": group} for group in session.admin.topic_consumers(topic)]
    session.rows(rows, {"topic": "topic", "group": "group"}, none=f"no group has consumed {topic}")


@admin_command
def topic_allocate(
    session: Session,
    topic: Topic,
    clients: Annotated[str, typer.Argument(metavar="CLIENT,CLIENT", help="Names of consumers.", show_default=False)],
) -> None:
    """Show which queues each of several consumers would get (averagely, RocketMQ's default).

    Examples of use:

        gantrymq admin topic allocate orders 10.0.0.1,10.0.0.2
    """
    from gantrymq.client.consumer.allocation import AllocateMessageQueueAveragely
    from gantrymq.client.requests.routes import TopicRoute

    members = sorted({client.strip() for client in clients.split(",") if client.strip()})
    require(members, "give the names of consumers, separated by commas")
    queues = sorted(TopicRoute.of(topic, session.admin.topic_route(topic)).subscribe)
    strategy = AllocateMessageQueueAveragely()
    rows = [
        {"topic": topic, "client": member, "brokerName": queue.broker_name, "queueId": queue.queue_id}
        for member in members
        for queue in strategy.allocate(member, queues, members)
    ]
    session.rows(rows, {"client": "client", "brokerName": "broker", "queueId": ">queue"})


@watched
def stats(
    session: Session,
    topic: Annotated[str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Only this topic.")] = None,
    active: Annotated[bool, typer.Option("--active", help="Only topics with messages in the last 24 hours.")] = False,
) -> None:
    """Show the traffic of topics, and of each group that consumes them.

    Rates are those of the last minute; accumulation is what a group has not
    consumed yet.

    Examples of use:

        gantrymq admin stats
        gantrymq admin stats -t orders --watch 5
        gantrymq admin stats --active --json
    """
    topics = [topic for topic in session.admin.topics() if kind_of(topic) not in ("retry", "dlq")]
    if topic is not None:
        session.admin.topic_route(topic)
        topics = [topic]
    columns = {
        "topic": "topic",
        "group": "group",
        "accumulation": ">behind",
        "inTps": ">in/s",
        "outTps": ">out/s",
        "inMsg24Hour": ">in 24 h",
        "outMsg24Hour": ">out 24 h",
    }
    session.rows(_traffic(session, topics, active=active), columns, none="no topic has traffic")


def _traffic(session: Session, topics: list[str], *, active: bool) -> Iterator[dict[str, object]]:
    from gantrymq.errors import GantrymqError

    masters = session.masters()
    for topic in topics:
        try:
            names = {data.broker_name for data in session.admin.topic_route(topic).broker_datas}
            groups = session.admin.topic_consumers(topic)
        except GantrymqError as error:
            session.missing(topic, error)
            continue
        brokers = [master for master in masters if master.name in names]
        in_tps, in_day = _counted(session, brokers, "TOPIC_PUT_NUMS", topic)
        for group in (*groups,) or (None,):
            out_tps, out_day = None, None
            behind: int | None = 0  # as mqadmin: without a group nothing accumulates
            if group is not None:
                out_tps, out_day = _counted(session, brokers, "GROUP_GET_NUMS", f"{topic}@{group}")
                behind = _accumulated(session, group, topic)
            if active and not in_day and not out_day:
                continue
            yield {
                "topic": topic,
                "group": group,
                "accumulation": behind,
                "inTps": in_tps,
                "outTps": out_tps,
                "inMsg24Hour": in_day,
                "outMsg24Hour": out_day,
            }


def _counted(session: Session, brokers: list[Target], name: str, key: str) -> tuple[float, int]:
    """The rate of the last minute and the sum of the last day, over brokers. A broker without the counter adds 0."""
    from gantrymq.errors import GantrymqError

    tps, day = 0.0, 0
    for target in brokers:
        try:
            stats = session.admin.broker_stats(target.address, name, key)
        except GantrymqError:
            continue
        tps += stats.stats_minute.tps if stats.stats_minute else 0
        sums = [item.sum if item else 0 for item in (stats.stats_day, stats.stats_hour, stats.stats_minute)]
        day += next(filter(None, sums), 0)  # as mqadmin: a young broker has no sum of a day yet
    return tps, day


def _accumulated(session: Session, group: str, topic: str) -> int | None:
    from gantrymq.errors import GantrymqError

    try:
        table = session.admin.consume_stats(group, topic)
    except GantrymqError:
        return None
    return max(0, sum(wrapper.broker_offset - wrapper.consumer_offset for wrapper in table.values()))
