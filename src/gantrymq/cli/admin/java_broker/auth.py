"""Users of RocketMQ 5 and what each may do: ``user list|get|create|update|delete|copy``, ``acl …`` in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.admin.session import Broker, Cluster, Session, Target, admin_command, require

if TYPE_CHECKING:
    from gantrymq.errors import MQClientError
    from gantrymq.remoting.bodies.auth import AclInfo, UserInfo

Username = Annotated[str, typer.Argument(metavar="USER", help="The name of the user.", show_default=False)]
Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="As User:alice.", show_default=False)]
Source = Annotated[str, typer.Option("--from", metavar="BROKER", help="Copy from this broker.", show_default=False)]
Copies = Annotated[str, typer.Option("--to", metavar="BROKER", help="Copy to this broker.", show_default=False)]
Password = Annotated[
    str | None,
    typer.Option(
        "--password",
        metavar="TEXT",
        envvar="GANTRYMQ_USER_PASSWORD",
        help="`ps` shows it to others.",
        show_default=False,
        show_envvar=True,
    ),
]
UserType = Annotated[
    str | None, typer.Option("--type", metavar="TYPE", help="Super or Normal (Normal).", show_default=False)
]
Resources = Annotated[
    list[str],
    typer.Option("--resource", metavar="NAME", help="As Topic:orders or Group:*; may be repeated.", show_default=False),
]
Actions = Annotated[
    list[str],
    typer.Option(
        "--action",
        metavar="ACTION",
        help="All, Pub, Sub, Create, Update, Delete, Get or List; may be repeated.",
        show_default=False,
    ),
]
Decision = Annotated[str, typer.Option("--decision", metavar="DECISION", help="Allow or Deny.", show_default=False)]
Sources = Annotated[
    list[str] | None,
    typer.Option("--source-ip", metavar="IP", help="Only from this address or network; may be repeated."),
]

_USER_COLUMNS = {"brokerName": "broker", "username": "user", "userType": "type", "userStatus": "status"}
_ACL_COLUMNS = {
    "brokerName": "broker",
    "subject": "subject",
    "policyType": "policy",
    "resource": "resource",
    "actions": "actions",
    "sourceIps": "from",
    "decision": "decision",
}
_DONE_COLUMNS = {"brokerName": "broker", "address": "address", "subject": "of", "done": "done"}


def _user_fields(target: Target, user: UserInfo) -> dict[str, object]:
    return {
        **target.fields(),
        "username": user.username,
        "password": user.password,
        "userType": user.user_type,
        "userStatus": user.user_status,
    }


def _acl_rows(target: Target, acl: AclInfo) -> Iterable[dict[str, object]]:
    """A row for each entry; one with empty fields for a subject without policies."""
    rows = [
        {
            **target.fields(),
            "subject": acl.subject,
            "policyType": policy.policy_type,
            "resource": entry.resource,
            "actions": entry.actions or [],
            "sourceIps": entry.source_ips or [],
            "decision": entry.decision,
        }
        for policy in acl.policies
        for entry in policy.entries
    ]
    empty = dict.fromkeys(("policyType", "resource", "actions", "sourceIps", "decision"))
    return rows or [{**target.fields(), "subject": acl.subject, **empty}]


def _change(session: Session, targets: list[Target], subject: str, done: str, call: Callable[[Target], object]) -> None:
    """Change something at each broker, and print a row for each."""
    answers = session.each(targets, call)
    rows = [{**target.fields(), "subject": subject, "done": done} for target, _ in answers]
    session.rows(rows, _DONE_COLUMNS)


def _missing(kind: str, name: str) -> MQClientError:
    from gantrymq.errors import MQClientError

    return MQClientError(f"there is no {kind} {name}; `gantrymq admin {kind} list` shows what there is")


def _one_broker(session: Session, broker: str) -> Target:
    return session.brokers(broker)[0]


@admin_command
def user_list(
    session: Session,
    name_filter: Annotated[str | None, typer.Option("--filter", metavar="TEXT", help="Names with this text.")] = None,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """List the users of brokers. Passwords are in --json alone.

    Examples of use:

        gantrymq admin user list
        gantrymq admin user list --filter ali -b broker-a --json
    """
    answers = session.each(
        session.masters(broker, cluster), lambda target: session.admin.users(target.address, name_filter)
    )
    rows = [_user_fields(target, user) for target, users in answers for user in users]
    session.rows(rows, _USER_COLUMNS, none="there is no such user")


@admin_command
def user_get(session: Session, username: Username, broker: Broker = None, cluster: Cluster = None) -> None:
    """Show a user at each broker that has it. The password is in --json alone.

    Examples of use:

        gantrymq admin user get alice
    """
    answers = session.each(
        session.masters(broker, cluster), lambda target: session.admin.user(target.address, username)
    )
    rows = [_user_fields(target, user) for target, user in answers if user is not None]
    if not rows and not session.code:
        raise _missing("user", username)
    session.rows(rows, _USER_COLUMNS)


@admin_command
def user_create(
    session: Session,
    username: Username,
    password: Password = None,
    user_type: UserType = None,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Create a user at all brokers, slaves included, or at those of --broker or --cluster.

    Examples of use:

        GANTRYMQ_USER_PASSWORD=secret12 gantrymq admin user create alice -c DefaultCluster
        gantrymq admin user create root --password secret12 --type Super -b broker-a
    """
    require(password, "give --password, or set GANTRYMQ_USER_PASSWORD")
    _change(
        session,
        session.brokers(broker, cluster),
        username,
        "created",
        lambda target: session.admin.create_user(target.address, username, password or "", user_type),
    )


@admin_command
def user_update(
    session: Session,
    username: Username,
    password: Password = None,
    user_type: UserType = None,
    status: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="enable or disable.", show_default=False)
    ] = None,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Change the password, the type or the status of a user.

    Examples of use:

        gantrymq admin user update alice --status disable
        gantrymq admin user update alice --type Super -b broker-a
    """
    require(password or user_type or status, "give --password, --type or --status")
    _change(
        session,
        session.brokers(broker, cluster),
        username,
        "updated",
        lambda target: session.admin.update_user(
            target.address, username, password=password, user_type=user_type, user_status=status
        ),
    )


@admin_command
def user_delete(session: Session, username: Username, broker: Broker = None, cluster: Cluster = None) -> None:
    """Delete a user. Its policies stay: see `acl delete`.

    Examples of use:

        gantrymq admin user delete alice -c DefaultCluster
    """
    targets = session.brokers(broker, cluster)
    _change(session, targets, username, "deleted", lambda target: session.admin.delete_user(target.address, username))


@admin_command
def user_copy(
    session: Session,
    source: Source,
    target: Copies,
    usernames: Annotated[
        list[str] | None, typer.Argument(metavar="[USER…]", help="Only these users.", show_default=False)
    ] = None,
) -> None:
    """Copy users with their passwords from one broker to another. An existing user is changed.

    Examples of use:

        gantrymq admin user copy --from broker-a --to broker-b
        gantrymq admin user copy alice bob --from broker-a --to 10.0.0.2:10911
    """
    origin, other, admin = _one_broker(session, source), _one_broker(session, target), session.admin
    rows = []
    for user in (
        admin.users(origin.address) if not usernames else [_user_at(session, origin, name) for name in usernames]
    ):
        name = user.username or ""
        if admin.user(other.address, name) is None:
            admin.create_user(other.address, name, user.password or "", user.user_type)
        else:
            admin.update_user(
                other.address, name, password=user.password, user_type=user.user_type, user_status=user.user_status
            )
        rows.append({**other.fields(), "subject": name, "done": f"copied from {origin.name}"})
    session.rows(rows, _DONE_COLUMNS, none=f"{origin.name} has no user")


def _user_at(session: Session, target: Target, name: str) -> UserInfo:
    user = session.admin.user(target.address, name)
    if user is None:
        raise _missing("user", name)
    return user


@admin_command
def acl_list(
    session: Session,
    subject: Annotated[str | None, typer.Option("--subject", metavar="TEXT", help="Subjects with this text.")] = None,
    resource: Annotated[
        str | None, typer.Option("--resource", metavar="TEXT", help="Resources with this text.")
    ] = None,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """List what each subject may do, resource by resource.

    Examples of use:

        gantrymq admin acl list
        gantrymq admin acl list --subject alice --resource orders --json
    """
    answers = session.each(
        session.masters(broker, cluster), lambda target: session.admin.acls(target.address, subject, resource)
    )
    rows = [row for target, acls in answers for acl in acls for row in _acl_rows(target, acl)]
    session.rows(rows, _ACL_COLUMNS, none="there is no such policy")


@admin_command
def acl_get(session: Session, subject: Subject, broker: Broker = None, cluster: Cluster = None) -> None:
    """Show what a subject may do, at each broker that has policies of it.

    Examples of use:

        gantrymq admin acl get User:alice
    """
    answers = session.each(session.masters(broker, cluster), lambda target: session.admin.acl(target.address, subject))
    rows = [row for target, acl in answers if acl is not None for row in _acl_rows(target, acl)]
    if not rows and not session.code:
        raise _missing("acl", subject)
    session.rows(rows, _ACL_COLUMNS)


@admin_command
def acl_create(
    session: Session,
    subject: Subject,
    resource: Resources,
    action: Actions,
    decision: Decision,
    source_ip: Sources = None,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Give a subject the same policy for each resource, at all brokers or those that are chosen.

    Examples of use:

        gantrymq admin acl create User:alice --resource Topic:orders --action Pub --action Sub --decision Allow
    """
    from gantrymq.client.admin.auth import policies

    wanted = policies(subject, resource, action, decision, source_ip)
    _change(
        session,
        session.brokers(broker, cluster),
        subject,
        "created",
        lambda target: session.admin.create_acl(target.address, wanted),
    )


@admin_command
def acl_update(
    session: Session,
    subject: Subject,
    resource: Resources,
    action: Actions,
    decision: Decision,
    source_ip: Sources = None,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Add policies to those of a subject, or replace those of the same resources.

    Examples of use:

        gantrymq admin acl update User:alice --resource Topic:orders --action Sub --decision Allow
    """
    from gantrymq.client.admin.auth import policies

    wanted = policies(subject, resource, action, decision, source_ip)
    _change(
        session,
        session.brokers(broker, cluster),
        subject,
        "updated",
        lambda target: session.admin.update_acl(target.address, wanted),
    )


@admin_command
def acl_delete(
    session: Session,
    subject: Subject,
    resource: Annotated[
        str | None, typer.Option("--resource", metavar="NAME", help="Only of this resource.", show_default=False)
    ] = None,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Delete the policies of a subject, or those of one resource.

    Examples of use:

        gantrymq admin acl delete User:alice --resource Topic:orders
        gantrymq admin acl delete User:alice -c DefaultCluster
    """
    targets = session.brokers(broker, cluster)
    _change(
        session, targets, subject, "deleted", lambda target: session.admin.delete_acl(target.address, subject, resource)
    )


@admin_command
def acl_copy(
    session: Session,
    source: Source,
    target: Copies,
    subjects: Annotated[
        list[str] | None, typer.Argument(metavar="[SUBJECT…]", help="Only of these subjects.", show_default=False)
    ] = None,
) -> None:
    """Copy policies from one broker to another.

    Examples of use:

        gantrymq admin acl copy --from broker-a --to broker-b
        gantrymq admin acl copy User:alice --from broker-a --to 10.0.0.2:10911
    """
    origin, other, admin = _one_broker(session, source), _one_broker(session, target), session.admin
    rows = []
    for acl in admin.acls(origin.address) if not subjects else [_acl_at(session, origin, name) for name in subjects]:
        subject = acl.subject or ""
        if admin.acl(other.address, subject) is None:
            admin.create_acl(other.address, acl)
        else:
            admin.update_acl(other.address, acl)
        rows.append({**other.fields(), "subject": subject, "done": f"copied from {origin.name}"})
    session.rows(rows, _DONE_COLUMNS, none=f"{origin.name} has no policies")


def _acl_at(session: Session, target: Target, subject: str) -> AclInfo:
    acl = session.admin.acl(target.address, subject)
    if acl is None:
        raise _missing("acl", subject)
    return acl
