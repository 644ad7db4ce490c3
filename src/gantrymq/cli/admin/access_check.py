"""``acl check``: whether a user may do something, and which entry of which policy decides it."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gantrymq.cli.admin.access import ACTIONS, choice, entry_text
from gantrymq.cli.admin.session import Broker, Session, Target, admin_command, require
from gantrymq.cli.terminal import FINDINGS, warn

if TYPE_CHECKING:
    from gantrymq.auth.decision import ResourceAccess, Verdict

_SUBJECT = "User:"


@admin_command
def acl_check(
    session: Session,
    username: Annotated[
        str, typer.Argument(metavar="USER", help="The name of the user, or User:NAME.", show_default=False)
    ],
    topic: Annotated[str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="On this topic.")] = None,
    group: Annotated[str | None, typer.Option("-g", "--group", metavar="GROUP", help="On this group.")] = None,
    on_cluster: Annotated[bool, typer.Option("--cluster", help="On the cluster of the broker.")] = False,
    pub: Annotated[bool, typer.Option("--pub", help="Send: the action Pub.")] = False,
    sub: Annotated[bool, typer.Option("--sub", help="Receive: the action Sub.")] = False,
    action: Annotated[
        str | None,
        typer.Option("--action", metavar="ACTION", parser=choice(*ACTIONS), help=f"One of {', '.join(ACTIONS)}."),
    ] = None,
    source_ip: Annotated[
        str | None, typer.Option("--from", metavar="IP", help="The client's address; this machine's without it.")
    ] = None,
    broker: Broker = None,
) -> None:
    """Say whether a user may do something, and which entry of which policy decides.

    The users and policies are those of the broker, also of RocketMQ's. The exit
    code is 0 for Allow and 1 for Deny. A user that is unknown or disabled is
    denied. Without --broker all masters are asked, and must agree.

    Examples of use:

        gantrymq admin acl check alice --topic orders --pub
        gantrymq admin acl check alice --group invoices --sub --from 10.0.0.7 --json
        gantrymq admin acl check alice --cluster --action Get -b broker-a
    """
    require((topic is not None) + (group is not None) + on_cluster == 1, "give one of --topic, --group and --cluster")
    require(pub + sub + (action is not None) == 1, "give one of --pub, --sub and --action")
    name = username.removeprefix(_SUBJECT)
    wanted = action or ("Pub" if pub else "Sub")
    for option, text in (("--topic", topic), ("--group", group)):
        _require_name(option, text)
    checked = [
        (target, _checked(session, target, name, _access(target, topic, group, wanted), _address(source_ip, target)))
        for target in session.masters(broker)
    ]
    _require_same(checked)
    fields = checked[0][1]
    session.pairs(f"{fields['decision']}: {fields['reason']}", fields, _shown(fields))
    if fields["decision"] != "Allow":
        session.code = FINDINGS


def _require_name(option: str, text: str | None) -> None:
    from gantrymq.auth.users import wrong_name

    wrong = wrong_name(text) if text is not None else None
    require(wrong is None, f"{option}: the name {wrong}")


def _access(target: Target, topic: str | None, group: str | None, action_name: str) -> ResourceAccess:
    """What a request needs. A retry topic belongs to its group, as at the broker."""
    from gantrymq.auth.decision import ResourceAccess
    from gantrymq.auth.policies import Action, Resource, ResourceType
    from gantrymq.broker.acl.permissions import group_access, topic_access

    action = Action(action_name)
    if topic is not None:
        return topic_access(topic, (action,))
    if group is not None:
        return group_access(group, (action,))
    require(target.cluster, f"{target.address} is registered at no name server, so its cluster is not known")
    return ResourceAccess(Resource(ResourceType.CLUSTER, target.cluster), (action,))


def _address(given: str | None, target: Target) -> str:
    """The address of the client: the given one, or that of this machine on the way to the broker."""
    if given is not None:
        try:
            return str(ipaddress.ip_address(given))
        except ValueError:
            raise typer.BadParameter(f"--from: {given!r} is no address") from None
    host, _, port = target.address.rpartition(":")
    family, _, _, _, remote = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as datagrams:  # connecting sends nothing
        datagrams.connect(remote)
        return str(datagrams.getsockname()[0])


def _checked(session: Session, target: Target, name: str, access: ResourceAccess, ip: str) -> dict[str, object]:
    from gantrymq.auth.bodies import policies_of, user_of_info
    from gantrymq.auth.decision import check_name
    from gantrymq.auth.directory import subject_of
    from gantrymq.auth.policies import Acl
    from gantrymq.errors import AccessError, MQClientError

    info = session.admin.user(target.address, name)
    acl = session.admin.acl(target.address, subject_of(name)) if info is not None else None
    _warn_if_open(session, target)
    try:
        policies = Acl(tuple(policies_of(acl))) if acl is not None else None
    except AccessError as error:
        raise MQClientError(f"{target.name}: {subject_of(name)} has a policy that is not read here: {error}") from None
    verdict = check_name(name, user_of_info(info) if info is not None else None, policies, access, ip)
    return _fields(name, verdict, access, ip)


def _warn_if_open(session: Session, target: Target) -> None:
    """Warn of a broker that reads no policies: there every user may do everything."""
    if session.admin.broker_config(target.address).get("authorizationEnabled", "true") == "false":
        warn(f"{target.name} has authorizationEnabled=false: it reads no policies, and every user may do everything")


def _fields(name: str, verdict: Verdict, access: ResourceAccess, ip: str) -> dict[str, object]:
    from gantrymq.auth.files import entry_value

    return {
        "username": name,
        "resource": access.resource.key,
        "action": access.actions[0].value,
        "sourceIp": ip,
        "decision": verdict.decision.value,
        "policy": verdict.policy.value if verdict.policy is not None else None,
        "entry": entry_value(verdict.entry) if verdict.entry is not None else None,
        "reason": verdict.reason,
    }


def _shown(fields: dict[str, Any]) -> dict[str, object]:
    text = entry_text(fields["entry"]) if fields["entry"] else None
    access = f"{fields['action']} of {fields['resource']} from {fields['sourceIp']}"
    return {"user": fields["username"], "access": access, "policy": fields["policy"], "entry": text}


def _require_same(checked: list[tuple[Target, dict[str, object]]]) -> None:
    """Raise MQClientError if the brokers decide differently."""
    from gantrymq.errors import MQClientError

    decisions = {target.name: fields["decision"] for target, fields in checked}
    if len(set(decisions.values())) > 1:
        listed = ", ".join(f"{name} {decision}" for name, decision in decisions.items())
        raise MQClientError(f"the brokers differ: {listed}; choose one with -b, and see `gantrymq admin acl list`")
