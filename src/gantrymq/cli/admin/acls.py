"""``acl list|get|create|update|delete|copy``: what users may do, at a broker of either kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.admin.access import (
    ACTIONS,
    DONE_COLUMNS,
    CopySource,
    CopyTarget,
    change_access,
    choice,
    missing,
    one_broker,
)
from gantrymq.cli.admin.session import Broker, Cluster, Session, Target, admin_command

if TYPE_CHECKING:
    from gantrymq.remoting.bodies.auth import AclInfo

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="As User:alice.", show_default=False)]
Resources = Annotated[
    list[str],
    typer.Option("--resource", metavar="NAME", help="As Topic:orders or Group:*; may be repeated.", show_default=False),
]
Actions = Annotated[
    list[str],
    typer.Option(
        "--action",
        metavar="ACTION",
        parser=choice("All", *ACTIONS),
        help="All, Pub, Sub, Create, Update, Delete, Get or List; may be repeated.",
        show_default=False,
    ),
]
Decision = Annotated[
    str,
    typer.Option(
        "--decision", metavar="DECISION", parser=choice("Allow", "Deny"), help="Allow or Deny.", show_default=False
    ),
]
Sources = Annotated[
    list[str] | None,
    typer.Option("--source-ip", metavar="IP", help="Only from this address or network; may be repeated."),
]
_ACL_COLUMNS = {
    "brokerName": "broker",
    "subject": "subject",
    "policyType": "policy",
    "resource": "resource",
    "actions": "actions",
    "sourceIps": "from",
    "decision": "decision",
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
        raise missing("acl", subject)
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
    change_access(
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
    change_access(
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
    change_access(
        session, targets, subject, "deleted", lambda target: session.admin.delete_acl(target.address, subject, resource)
    )


@admin_command
def acl_copy(
    session: Session,
    source: CopySource,
    target: CopyTarget,
    subjects: Annotated[
        list[str] | None, typer.Argument(metavar="[SUBJECT…]", help="Only of these subjects.", show_default=False)
    ] = None,
) -> None:
    """Copy policies from one broker to another.

    Examples of use:

        gantrymq admin acl copy --from broker-a --to broker-b
        gantrymq admin acl copy User:alice --from broker-a --to 10.0.0.2:10911
    """
    origin, other, admin = one_broker(session, source), one_broker(session, target), session.admin
    rows = []
    for acl in admin.acls(origin.address) if not subjects else [_acl_at(session, origin, name) for name in subjects]:
        subject = acl.subject or ""
        if admin.acl(other.address, subject) is None:
            admin.create_acl(other.address, acl)
        else:
            admin.update_acl(other.address, acl)
        rows.append({**other.fields(), "subject": subject, "done": f"copied from {origin.name}"})
    session.rows(rows, DONE_COLUMNS, none=f"{origin.name} has no policies")


def _acl_at(session: Session, target: Target, subject: str) -> AclInfo:
    acl = session.admin.acl(target.address, subject)
    if acl is None:
        raise missing("acl", subject)
    return acl
