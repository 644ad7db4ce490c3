"""``user list|get|create|update|delete|copy``: users, at a broker of either kind. No output has a password."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.admin.access import DONE_COLUMNS, CopySource, CopyTarget, change_access, choice, missing, one_broker
from gantrymq.cli.admin.session import Broker, Cluster, Session, Target, admin_command, require

if TYPE_CHECKING:
    from gantrymq.remoting.bodies.auth import UserInfo

Username = Annotated[str, typer.Argument(metavar="USER", help="The name of the user.", show_default=False)]
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
    str | None,
    typer.Option(
        "--type", metavar="TYPE", parser=choice("Super", "Normal"), help="Super or Normal (Normal).", show_default=False
    ),
]
Status = Annotated[
    str | None,
    typer.Option(
        "--status", metavar="STATUS", parser=choice("enable", "disable"), help="enable or disable.", show_default=False
    ),
]
_USER_COLUMNS = {"brokerName": "broker", "username": "user", "userType": "type", "userStatus": "status"}


def _user_fields(target: Target, user: UserInfo) -> dict[str, object]:
    return {
        **target.fields(),
        "username": user.username,
        "userType": user.user_type,
        "userStatus": user.user_status,
    }


@admin_command
def user_list(
    session: Session,
    name_filter: Annotated[str | None, typer.Option("--filter", metavar="TEXT", help="Names with this text.")] = None,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """List the users of brokers.

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
    """Show a user at each broker that has it.

    Examples of use:

        gantrymq admin user get alice
    """
    answers = session.each(
        session.masters(broker, cluster), lambda target: session.admin.user(target.address, username)
    )
    rows = [_user_fields(target, user) for target, user in answers if user is not None]
    if not rows and not session.code:
        raise missing("user", username)
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
    change_access(
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
    status: Status = None,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Change the password, the type or the status of a user.

    Examples of use:

        gantrymq admin user update alice --status disable
        gantrymq admin user update alice --type Super -b broker-a
    """
    require(password or user_type or status, "give --password, --type or --status")
    change_access(
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
    """Delete a user and its policies.

    Examples of use:

        gantrymq admin user delete alice -c DefaultCluster
    """
    targets = session.brokers(broker, cluster)
    change_access(
        session, targets, username, "deleted", lambda target: session.admin.delete_user(target.address, username)
    )


@admin_command
def user_copy(
    session: Session,
    source: CopySource,
    target: CopyTarget,
    usernames: Annotated[
        list[str] | None, typer.Argument(metavar="[USER…]", help="Only these users.", show_default=False)
    ] = None,
) -> None:
    """Copy users with their passwords from one of RocketMQ's brokers. An existing user is changed.

    A broker of gantrymq returns no passwords: from it only type and status of
    existing users are copied.

    Examples of use:

        gantrymq admin user copy --from broker-a --to broker-b
        gantrymq admin user copy alice bob --from broker-a --to 10.0.0.2:10911
    """
    origin, other, admin = one_broker(session, source), one_broker(session, target), session.admin
    rows = []
    for user in (
        admin.users(origin.address) if not usernames else [_user_at(session, origin, name) for name in usernames]
    ):
        name = user.username or ""
        if admin.user(other.address, name) is None:
            if not user.password:
                session.finding(f"{name}: {origin.name} returns no password (no broker of gantrymq does), so create it")
                continue
            admin.create_user(other.address, name, user.password, user.user_type, user.user_status)
        else:
            admin.update_user(
                other.address, name, password=user.password, user_type=user.user_type, user_status=user.user_status
            )
        rows.append({**other.fields(), "subject": name, "done": f"copied from {origin.name}"})
    session.rows(rows, DONE_COLUMNS, none="" if session.code else f"{origin.name} has no user")


def _user_at(session: Session, target: Target, name: str) -> UserInfo:
    user = session.admin.user(target.address, name)
    if user is None:
        raise missing("user", name)
    return user
