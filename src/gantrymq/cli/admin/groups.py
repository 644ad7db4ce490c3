"""Consumer groups: ``group list|config|create|delete|progress|reset|clone|mode``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.admin.clients import connected, no_group, queue_owners, require_group
from gantrymq.cli.admin.session import Broker, Cluster, Session, Target, admin_command, require, watched
from gantrymq.cli.admin.topics import attribute_change

if TYPE_CHECKING:
    from gantrymq.model.message_queue import MessageQueue
    from gantrymq.remoting.bodies.group import GroupRetryPolicy, OffsetWrapper, SubscriptionGroupConfig

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.", show_default=False)]
OneTopic = Annotated[str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Only this topic.")]
Switch = Annotated[bool | None, typer.Option(show_default=False)]

_FIRST_TIME_MS = 100_000_000_000  # a time in 1973; a smaller number is an offset


@admin_command
def group_list(session: Session, broker: Broker = None, cluster: Cluster = None) -> None:
    """List all groups with their settings, and at which brokers they exist.

    Examples of use:

        gantrymq admin group list
        gantrymq admin group list -b broker-a --json
    """
    rows = []
    for target, groups in session.each(
        session.masters(broker, cluster), lambda target: session.admin.subscription_groups(target.address)
    ):
        rows += [config_fields(target, config) for config in groups.values()]
    session.rows(sorted(rows, key=lambda row: (str(row["group"]), str(row["brokerName"]))), _CONFIG_COLUMNS)


_CONFIG_COLUMNS = {
    "group": "group",
    "brokerName": "broker",
    "consumeEnable": "may consume",
    "consumeBroadcastEnable": "broadcast",
    "consumeMessageOrderly": "orderly",
    "retryQueueNums": ">retry queues",
    "retryMaxTimes": ">retries",
}


def config_fields(target: Target, config: SubscriptionGroupConfig) -> dict[str, object]:
    """A group's configuration at a broker, as JSON fields."""
    from msgspec import to_builtins

    return {
        **target.fields(),
        "group": config.group_name,
        "consumeEnable": config.consume_enable,
        "consumeFromMinEnable": config.consume_from_min_enable,
        "consumeBroadcastEnable": config.consume_broadcast_enable,
        "consumeMessageOrderly": config.consume_message_orderly,
        "retryQueueNums": config.retry_queue_nums,
        "retryMaxTimes": config.retry_max_times,
        "whichBrokerWhenConsumeSlowly": config.which_broker_when_consume_slowly,
        "notifyConsumerIdsChangedEnable": config.notify_consumer_ids_changed_enable,
        "consumeTimeoutMinute": config.consume_timeout_minute,
        "groupSysFlag": config.group_sys_flag,
        "groupRetryPolicy": to_builtins(config.group_retry_policy),
        "groupBrokerId": config.broker_id,
        "subscriptionDataSet": to_builtins(config.subscription_data_set),
        "attributes": config.attributes,
    }


@admin_command
def group_config(session: Session, group: Group, broker: Broker = None, cluster: Cluster = None) -> None:
    """Show the settings of a group at each broker that has it.

    Examples of use:

        gantrymq admin group config invoices
    """
    answers = session.each(session.masters(broker, cluster), lambda target: _config_at(session, group, target))
    rows = [config_fields(target, config) for target, config in answers if config is not None]
    if not rows and not session.code:
        raise no_group(group)
    session.rows(rows, _CONFIG_COLUMNS)


def _config_at(session: Session, group: str, target: Target) -> SubscriptionGroupConfig | None:
    """A group's settings at a broker; None if the broker does not have it.

    All groups are read, because RocketMQ creates a group when it is asked for one.
    """
    return session.admin.subscription_groups(target.address).get(group)


@admin_command
def group_create(
    session: Session,
    group: Group,
    retry_max: Annotated[
        int | None, typer.Option("--retry-max", metavar="N", help="Retries before the DLQ (16).")
    ] = None,
    retry_queues: Annotated[
        int | None, typer.Option("--retry-queues", metavar="N", min=0, help="Queues of the retry topic (1).")
    ] = None,
    is_enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Whether it may consume.", show_default=False)
    ] = None,
    is_orderly: Annotated[bool | None, typer.Option("--orderly/--no-orderly", show_default=False)] = None,
    may_broadcast: Annotated[bool | None, typer.Option("--broadcast/--no-broadcast", show_default=False)] = None,
    from_min: Annotated[bool | None, typer.Option("--from-min/--no-from-min", show_default=False)] = None,
    notify: Annotated[
        bool | None, typer.Option("--notify/--no-notify", help="Tell members of changes.", show_default=False)
    ] = None,
    slow_broker: Annotated[
        int | None, typer.Option("--slow-broker", metavar="ID", help="Broker id for slow consumers (1).")
    ] = None,
    broker_id: Annotated[
        int | None, typer.Option("--broker-id", metavar="ID", help="Broker id that it consumes from (0).")
    ] = None,
    retry_policy: Annotated[
        str | None, typer.Option("--retry-policy", metavar="JSON", help="groupRetryPolicy, as RocketMQ writes it.")
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option("--attribute", metavar="CHANGE", help="+KEY=VALUE sets one, -KEY removes it; may be repeated."),
    ] = None,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Create a group, or change what is given of one that exists.

    Without a broker or cluster it is created at all masters. The result is read
    back; the exit code is 1 if another operator has changed it meanwhile.

    Examples of use:

        gantrymq admin group create invoices
        gantrymq admin group create invoices --retry-max 3 -b broker-a
        gantrymq admin group create invoices --disable
    """
    from gantrymq.broker.names import wrong_group

    reason = wrong_group(group)
    require(reason is None, reason or "")
    given = {
        "retry_max_times": retry_max,
        "retry_queue_nums": retry_queues,
        "consume_enable": is_enabled,
        "consume_message_orderly": is_orderly,
        "consume_broadcast_enable": may_broadcast,
        "consume_from_min_enable": from_min,
        "notify_consumer_ids_changed_enable": notify,
        "which_broker_when_consume_slowly": slow_broker,
        "broker_id": broker_id,
        "group_retry_policy": None if retry_policy is None else _retry_policy(retry_policy),
    }
    changes = {name: value for name, value in given.items() if value is not None}
    attributes = dict(attribute_change(text) for text in attribute or ())

    answers = session.each(
        session.masters(broker, cluster), lambda target: _put(session, group, target, changes, attributes)
    )
    session.rows([row for _, row in answers], {**_CONFIG_COLUMNS, "created": "created"})


def _put(
    session: Session, group: str, target: Target, changes: Mapping[str, object], attributes: dict[str, str]
) -> dict[str, object]:
    """Change fields of a group at a broker, or create it; read it back. ``attributes`` are changes."""
    from msgspec.structs import replace

    from gantrymq.remoting.bodies.group import SubscriptionGroupConfig

    before = _config_at(session, group, target)
    wanted = replace(before or SubscriptionGroupConfig(), group_name=group, attributes=attributes, **changes)
    session.admin.create_subscription_group(group, wanted, broker=target.address)
    now = _config_at(session, group, target)
    if now is None or any(getattr(now, name) != value for name, value in changes.items()):
        session.finding(f"{target.name}: {group} is not as requested; another operator has changed it meanwhile")
    return {**config_fields(target, now or wanted), "created": before is None}


def _retry_policy(text: str) -> GroupRetryPolicy:
    from gantrymq.errors import RemotingCommandError
    from gantrymq.remoting.bodies.group import GroupRetryPolicy
    from gantrymq.remoting.body import decode_edited

    try:
        return decode_edited(GroupRetryPolicy, text.encode())
    except RemotingCommandError as error:
        raise typer.BadParameter(f"--retry-policy: {error}") from None


@admin_command
def group_delete(
    session: Session,
    group: Group,
    remove_offset: Annotated[bool, typer.Option("--remove-offset", help="Its committed offsets too.")] = False,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Delete a group. Its offsets stay unless --remove-offset is given.

    Its retry and dead letter topics stay, too; `admin topic delete` deletes them.
    A group that has connected consumers is created again by their heartbeats. A
    group that is already gone is an error (exit code 3).

    Examples of use:

        gantrymq admin group delete invoices
        gantrymq admin group delete invoices --remove-offset -b broker-a
    """

    def delete(target: Target) -> bool:
        has_it = _config_at(session, group, target) is not None
        if has_it:
            session.admin.delete_subscription_group(group, remove_offset=remove_offset, broker=target.address)
        return has_it

    answers = list(session.each(session.masters(broker, cluster), delete))
    deleted = [target for target, had_it in answers if had_it]
    if not deleted:
        raise no_group(group)
    rows = [{**target.fields(), "group": group, "removedOffset": remove_offset} for target in deleted]
    session.rows(rows, {"group": "group", "brokerName": "broker", "removedOffset": "offsets removed"})


@watched
def group_progress(
    session: Session,
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", show_default=False)] = None,
    topic: OneTopic = None,
    members: Annotated[bool, typer.Option("--members", help="With the client that has each queue.")] = False,
) -> None:
    """Show how far a group is behind, queue by queue; without a group, all groups.

    Examples of use:

        gantrymq admin group progress
        gantrymq admin group progress invoices --watch 2
        gantrymq admin group progress invoices -t orders --members --json
    """
    if group is None:
        require(topic is None, "--topic needs a GROUP")
        _all_progress(session)
        return
    owners = queue_owners(session, group) if members else {}
    wrappers, tps = _stats(session, group, topic)
    rows: list[dict[str, object]] = [
        {
            "group": group,
            "topic": queue.topic,
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "brokerOffset": wrapper.broker_offset,
            "consumerOffset": wrapper.consumer_offset,
            **({"client": owners.get(queue)} if members else {}),
            "diff": wrapper.broker_offset - wrapper.consumer_offset,
            "inflight": wrapper.pull_offset - wrapper.consumer_offset,
            "lastTimestamp": wrapper.last_timestamp,
            "consumeTps": tps,
        }
        for queue, wrapper in wrappers.items()
    ]
    columns = {
        "topic": "topic",
        "brokerName": "broker",
        "queueId": ">queue",
        "brokerOffset": ">end",
        "consumerOffset": ">committed",
        **({"client": "client"} if members else {}),
        "diff": ">behind",
        "inflight": ">in flight",
        "lastTimestamp": "consumed up to",
    }
    session.rows(rows, columns, none=f"{group} has consumed nothing yet")
    if not session.is_json and rows:
        from gantrymq.cli.terminal import print_line

        behind, in_flight = (sum(int(str(row[name])) for row in rows) for name in ("diff", "inflight"))
        print_line(f"{group} is {behind:,} behind, has {in_flight:,} in flight, consumes {tps:,.2f} a second")


def _stats(session: Session, group: str, topic: str | None) -> tuple[dict[MessageQueue, OffsetWrapper], float]:
    """The progress of a group, empty if it exists and has not consumed, and its messages per second."""
    from gantrymq.errors import NoRouteError

    try:
        return session.admin.consume_stats_and_rate(group, topic)
    except NoRouteError:
        if topic is not None:
            raise
        require_group(session, group)
        return {}, 0.0


def _all_progress(session: Session) -> None:
    """One row for each group that has consumed."""
    columns = {
        "group": "group",
        "count": ">members",
        "version": "version",
        "type": "type",
        "messageModel": "model",
        "consumeTps": ">/s",
        "diffTotal": ">behind",
    }
    groups = groups_with_retries(session)
    session.rows((_progress_of(session, group) for group in groups), columns, none="no group has consumed")


def groups_with_retries(session: Session) -> list[str]:
    """The groups that have consumed, as mqadmin finds them: by their retry topics.

    A retry topic of POP counts for its group. mqadmin takes the rest of its name, ``group_topic``, for a group.
    """
    from gantrymq.broker.names import RETRY_PREFIX

    topics = session.admin.topics()
    retries = [topic.removeprefix(RETRY_PREFIX) for topic in topics if topic.startswith(RETRY_PREFIX)]
    if all("_" not in retry and "+" not in retry for retry in retries):
        return retries
    tables = session.each(session.masters(), lambda target: session.admin.subscription_groups(target.address))
    known = {group for _, table in tables for group in table}
    deleted = set(retries) - known
    return list(dict.fromkeys(_group_of(retry, known, deleted, topics) for retry in retries))


def _group_of(retry: str, known: Collection[str], deleted: Collection[str] = (), topics: Collection[str] = ()) -> str:
    """The group of a retry topic, of which ``retry`` is the name without its prefix.

    A group that was deleted still has its own retry topic, and those of POP for its topics.
    """
    if retry in known:
        return retry
    group, plus, _ = retry.partition("+")
    if plus:
        return group
    owners = [group for group in known if retry.startswith(f"{group}_")]
    owners += [group for group in deleted if retry.startswith(f"{group}_") and retry[len(group) + 1 :] in topics]
    return max(owners, key=len, default=retry)


_TYPES = {"CONSUME_ACTIVELY": "PULL", "CONSUME_PASSIVELY": "PUSH"}


def _progress_of(session: Session, group: str) -> dict[str, object]:
    from gantrymq.errors import GantrymqError, RemotingError
    from gantrymq.remoting.codes import version_name

    connection, behind, tps = connected(session, group), None, None
    try:
        table, tps = session.admin.consume_stats_and_rate(group)
        behind = sum(wrapper.broker_offset - wrapper.consumer_offset for wrapper in table.values())
    except RemotingError as error:
        session.missing(group, error)
    except GantrymqError:
        pass  # without an offset there is no progress
    members = connection.connection_set if connection else []
    return {
        "group": group,
        "count": len(members),
        "version": version_name(min(member.version for member in members)) if members else None,
        "type": _TYPES.get(connection.consume_type or "") if connection else None,
        "consumeType": connection.consume_type if connection else None,
        "messageModel": connection.message_model if connection else None,
        "consumeTps": tps,
        "diffTotal": behind,
    }


@admin_command
def group_reset(
    session: Session,
    group: Group,
    topic: Annotated[str, typer.Option("-t", "--topic", metavar="TOPIC", help="The topic.", show_default=False)],
    to: Annotated[
        str,
        typer.Option("--to", metavar="WHERE", help="earliest, latest, a TIME, or an OFFSET.", show_default=False),
    ],
    broker: Broker = None,
    queue: Annotated[int | None, typer.Option("-q", "--queue", metavar="Q", min=0, help="Only this queue.")] = None,
    only_back: Annotated[bool, typer.Option("--only-back", help="Move no queue forward.")] = False,
) -> None:
    """Move a group to another place of a topic. Connected consumers follow.

    A TIME is ISO 8601, or milliseconds since 1970; the group goes to the first
    message stored then or later. A number below 100000000000 is an OFFSET, in
    every queue, at most its end and at least its begin. With --queue it must be
    within the queue; if several brokers have that queue, give --broker too.

    Examples of use:

        gantrymq admin group reset invoices -t orders --to earliest
        gantrymq admin group reset invoices -t orders --to 2026-11-24T08:30:00+01:00
        gantrymq admin group reset invoices -t orders --to 4711 --queue 0 -b broker-a
    """
    # A misspelt name would store offsets for a group that does not exist.
    names = {data.broker_name for data in session.admin.topic_route(topic).broker_datas}
    require_group(session, group, [master for master in session.masters() if master.name in names])
    is_offset = to.isascii() and to.isdecimal() and int(to) < _FIRST_TIME_MS
    if queue is None and broker is None and not is_offset:
        moved = session.admin.reset_offset_by_time(group, topic, _timestamp_ms(to), force=not only_back)
    else:
        require(not only_back, "--only-back needs a time, and all queues")
        targets = _targets(session, topic, to, broker, queue, is_offset=is_offset)
        for target, offset in targets.items():
            session.admin.reset_offset_of_queue(group, target, offset)
        moved = targets
    rows = [
        {"group": group, "topic": topic, "brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": offset}
        for queue, offset in moved.items()
    ]
    session.rows(
        rows,
        {"brokerName": "broker", "queueId": ">queue", "offset": ">offset"},
        none=f"no queue of {topic} was moved: {group} has consumed none of it, and no consumer is connected",
    )


def _timestamp_ms(text: str) -> int:
    from gantrymq.cli.options import moment_ms
    from gantrymq.client.admin.groups import TO_THE_END

    match text.lower():
        case "earliest":
            return 0
        case "latest":
            return TO_THE_END
    return moment_ms(text)


def _targets(
    session: Session, topic: str, to: str, broker: str | None, number: int | None, *, is_offset: bool
) -> dict[MessageQueue, int]:
    """The new offset of each chosen queue. Raises before any queue is moved."""
    from gantrymq.client.admin.groups import TO_THE_END
    from gantrymq.client.pull.pull_client import PullClient
    from gantrymq.errors import MQClientError

    names = {named_broker.name for named_broker in session.brokers(broker)}
    targets: dict[MessageQueue, int] = {}
    with PullClient(session.config) as client:
        queues = [
            queue for queue in client.queues(topic) if number in (None, queue.queue_id) and queue.broker_name in names
        ]
        if not queues:
            which = "queue" if number is None else f"queue {number}"
            raise MQClientError(f"{topic} has no {which} there; `gantrymq admin topic status {topic}` shows its queues")
        require(
            number is None or len(queues) == 1,
            f"{len(queues)} brokers have queue {number} of {topic}; give --broker too",
        )
        timestamp_ms = 0 if is_offset else _timestamp_ms(to)
        for queue in queues:
            min_offset, max_offset = client.min_offset(queue), client.max_offset(queue)
            if is_offset:
                wanted = int(to)
                require(
                    number is None or min_offset <= wanted <= max_offset,
                    f"offset {wanted} is not within {min_offset} to {max_offset} of queue {number}",
                )
                targets[queue] = min(max(wanted, min_offset), max_offset)
            else:
                targets[queue] = max_offset if timestamp_ms == TO_THE_END else client.search_offset(queue, timestamp_ms)
    return targets


@admin_command
def group_clone(
    session: Session,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The group to copy from.", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The group to copy to.", show_default=False)],
    topic: Annotated[str, typer.Option("-t", "--topic", metavar="TOPIC", help="The topic.", show_default=False)],
    is_offline: Annotated[bool, typer.Option("--offline", help="Also if the target has connected consumers.")] = False,
) -> None:
    """Give a group the offsets that another group has of a topic.

    Examples of use:

        gantrymq admin group clone invoices invoices2 -t orders
    """
    session.admin.clone_group_offset(source, target, topic, is_offline=is_offline)
    row = {"source": source, "target": target, "topic": topic}
    session.rows([row], {"source": "from", "target": "to", "topic": "topic"})


@admin_command
def group_mode(
    session: Session,
    group: Group,
    mode: Annotated[str, typer.Argument(metavar="(PULL | POP)", help="How it receives.", show_default=False)],
    topic: Annotated[str, typer.Option("-t", "--topic", metavar="TOPIC", help="The topic.", show_default=False)],
    share_queues: Annotated[int, typer.Option("--share-queues", metavar="N", min=-1, help="POP: queues to share.")] = 0,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Set whether a group receives a topic by PULL or by POP.

    Examples of use:

        gantrymq admin group mode invoices PULL -t orders
    """
    require(mode.upper() in ("PULL", "POP"), f"{mode!r} is not PULL or POP")
    done = session.each(
        session.masters(broker, cluster),
        lambda target: session.admin.set_message_request_mode(
            topic, group, mode.upper(), pop_share_queue_num=share_queues, broker=target.address
        ),
    )
    rows = [
        {**target.fields(), "group": group, "topic": topic, "mode": mode.upper(), "popShareQueueNum": share_queues}
        for target, _ in done
    ]
    session.rows(rows, {"brokerName": "broker", "group": "group", "topic": "topic", "mode": "mode"})
