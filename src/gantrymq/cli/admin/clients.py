"""The clients of a cluster: ``group members|state``, ``producer list``, ``connection …``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.admin.session import Broker, Cluster, Session, Target, admin_command, watched

if TYPE_CHECKING:
    from gantrymq.errors import MQClientError
    from gantrymq.model.message_queue import MessageQueue
    from gantrymq.remoting.bodies.client import ClientConnection, ConsumerConnection, ConsumerRunningInfo

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.", show_default=False)]


def _client_fields(connection: ClientConnection) -> dict[str, object]:
    from gantrymq.remoting.codes import version_name

    return {
        "clientId": connection.client_id,
        "address": connection.client_addr,
        "language": connection.language,
        "version": version_name(connection.version),
    }


def queue_owners(session: Session, group: str) -> dict[MessageQueue, str]:
    """The client that has each queue of a group."""
    from gantrymq.errors import GantrymqError
    from gantrymq.remoting.body import by_queue

    owners: dict[MessageQueue, str] = {}
    for member in _members(session, group):
        client = member.client_id or ""
        try:
            info = session.admin.consumer_running_info(group, client)
        except GantrymqError as error:
            session.missing(client, error)
            continue
        owners |= dict.fromkeys(by_queue(info.mq_table), client)
    return owners


def connected(session: Session, group: str) -> ConsumerConnection | None:
    """The members of a group; None if there are none. Raises MQClientError if there is no such group."""
    from gantrymq.errors import MQBrokerError, NoRouteError
    from gantrymq.remoting.codes import ResponseCode

    try:
        return session.admin.consumer_connection(group)
    except NoRouteError:
        require_group(session, group)
        return None
    except MQBrokerError as error:
        if error.response_code == ResponseCode.CONSUMER_NOT_ONLINE:
            return None
        raise


def require_group(session: Session, group: str, targets: list[Target] | None = None) -> None:
    """Raise MQClientError unless one of the brokers has the group.

    All groups are read, because RocketMQ creates a group when it is asked for one.
    """
    brokers = session.masters() if targets is None else targets
    answers = session.each(brokers, lambda target: session.admin.subscription_groups(target.address))
    if not any(group in groups for _, groups in list(answers)):
        raise no_group(group)


def no_group(group: str) -> MQClientError:
    """The error for a group that no broker has."""
    from gantrymq.errors import MQClientError

    return MQClientError(f"there is no group {group}; `gantrymq admin group list` shows the groups")


def _members(session: Session, group: str) -> list[ClientConnection]:
    connection = connected(session, group)
    return sorted(connection.connection_set, key=lambda member: member.client_id or "") if connection else []


@watched
def group_members(session: Session, group: Group) -> None:
    """Show the consumers of a group that are connected, and what they subscribe to.

    A group without members is reported on stderr; that is no error.

    Examples of use:

        gantrymq admin group members invoices
        gantrymq admin group members invoices --watch 1
    """
    connection = connected(session, group)
    subscriptions = (
        {topic: subscription.sub_string for topic, subscription in sorted(connection.subscription_table.items())}
        if connection
        else {}
    )
    rows = [
        {
            "group": group,
            **_client_fields(member),
            "consumeType": connection.consume_type,
            "messageModel": connection.message_model,
            "consumeFromWhere": connection.consume_from_where,
            "subscriptions": subscriptions,
        }
        for member in (sorted(connection.connection_set, key=lambda item: item.client_id or "") if connection else [])
        if connection is not None
    ]
    columns = {
        "clientId": "client",
        "address": "address",
        "language": "language",
        "version": "version",
        "messageModel": "model",
        "subscriptions": "subscriptions",
    }
    session.rows(rows, columns, none=f"no consumer of group {group} is connected; start one, or see `group progress`")


@admin_command
def group_state(
    session: Session,
    group: Group,
    client: Annotated[str | None, typer.Option("--client", metavar="ID", help="Only this consumer.")] = None,
    jstack: Annotated[bool, typer.Option("--jstack", help="With the stacks of its threads.")] = False,
) -> None:
    """Show what the consumers of a group report of themselves: queues, rates, settings.

    The problems that mqadmin's consumerStatus finds are named: different
    subscriptions, a queue that is not consumed or cannot be locked.

    Examples of use:

        gantrymq admin group state invoices
        gantrymq admin group state invoices --client 10.0.0.1@4711#1 --jstack
    """
    from msgspec import to_builtins

    from gantrymq.cli.admin.diagnosis import has_one_subscription, problems_of
    from gantrymq.clock import SystemClock
    from gantrymq.errors import GantrymqError

    versions = {str(fields["clientId"]): fields["version"] for fields in map(_client_fields, _members(session, group))}
    clients = list(versions) if client is None else [client]
    if not clients:
        session.finding(f"no consumer of group {group} is connected")
    infos: dict[str, ConsumerRunningInfo] = {}
    for client_id in clients:
        try:
            infos[client_id] = session.admin.consumer_running_info(group, client_id, jstack=jstack)
        except GantrymqError as error:
            if len(clients) == 1:
                raise
            session.missing(client_id, error)
    now_ms = SystemClock().now_ms()
    is_same = has_one_subscription(infos, now_ms)
    for client_id, info in infos.items():
        problems = problems_of(info, now_ms) if is_same else []
        client_fields = {
            "version": versions.get(client_id),
            "sameSubscription": is_same,
            "rebalanceOk": is_same,
            "problems": problems,
        }
        fields = {"group": group, "clientId": client_id, **client_fields, **to_builtins(info)}
        session.pairs(f"{group} {client_id}", fields, shown=_state_shown(info, problems, jstack=jstack))
    if infos and not session.is_json:
        from gantrymq.cli.terminal import print_line

        same = "the same subscription" if is_same else "DIFFERENT subscriptions: give all of them the same one"
        print_line(f"the consumers of {group} have {same}")


def _state_shown(info: ConsumerRunningInfo, problems: list[str], *, jstack: bool) -> dict[str, object]:
    """The state of a consumer as people read it: settings, subscriptions, rates, then queues."""
    from msgspec import Struct
    from msgspec.structs import asdict

    from gantrymq.remoting.body import by_queue

    def line(value: Struct) -> str:
        return ", ".join(f"{name} {count}" for name, count in asdict(value).items() if count)

    return {
        **info.properties,
        **{f"subscribes to {subscription.topic}": subscription.sub_string for subscription in info.subscription_set},
        **{f"rates of {topic}": line(rates) or "none" for topic, rates in info.status_table.items()},
        **{
            f"{queue_of_state.topic} {queue_of_state.broker_name} {queue_of_state.queue_id}": line(state)
            for queue_of_state, state in by_queue(info.mq_table).items()
        },
        **{
            f"POP {queue_of_state.topic} {queue_of_state.broker_name} {queue_of_state.queue_id}": line(state)
            for queue_of_state, state in by_queue(info.mq_pop_table).items()
        },
        **info.user_consumer_info,
        **({"problems": "; ".join(problems)} if problems else {}),
        **({"stacks": info.jstack or ""} if jstack else {}),
    }


@watched
def producer_list(session: Session, broker: Broker = None, cluster: Cluster = None) -> None:
    """List the producers that are connected to brokers.

    Examples of use:

        gantrymq admin producer list
        gantrymq admin producer list -b broker-a --watch 2
    """
    from gantrymq.remoting.codes import version_name

    def rows() -> Iterator[dict[str, object]]:
        answers = session.each(
            session.brokers(broker, cluster), lambda target: session.admin.all_producers(target.address)
        )
        for target, groups in answers:
            for group, members in groups.items():
                for client in members:
                    yield {
                        **target.fields(),
                        "group": group,
                        "clientId": client.client_id,
                        "remoteAddress": client.remote_ip,
                        "language": client.language,
                        "version": version_name(client.version),
                        "lastUpdateTimestamp": client.last_update_timestamp,
                    }

    columns = {
        "brokerName": "broker",
        "group": "group",
        "clientId": "client",
        "remoteAddress": "address",
        "language": "language",
        "version": "version",
        "lastUpdateTimestamp": "last heartbeat",
    }
    session.rows(rows(), columns, none="no producer is connected")


@watched
def connection_producers(
    session: Session,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The producer group.", show_default=False)],
    topic: Annotated[str, typer.Option("-t", "--topic", metavar="TOPIC", help="The topic.", show_default=False)],
) -> None:
    """Show the connections of a producer group that sends to a topic.

    Examples of use:

        gantrymq admin connection producers shop -t orders
    """
    from gantrymq.errors import MQBrokerError, MQClientError, NoRouteError

    try:
        producers = session.admin.producer_connection(group, topic).connection_set
    except NoRouteError:
        raise
    except (MQBrokerError, MQClientError) as error:
        if "not exist" not in str(error) and "Not found" not in str(error):
            raise
        raise MQClientError(
            f"no producer of group {group} is connected that sends to {topic};"
            " `gantrymq admin producer list` shows the producers"
        ) from error
    rows = [
        {"group": group, **_client_fields(producer)}
        for producer in sorted(producers, key=lambda producer: producer.client_id or "")
    ]
    session.rows(rows, {"clientId": "client", "address": "address", "language": "language", "version": "version"})
