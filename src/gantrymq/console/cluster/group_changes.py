"""Creating, changing and deleting consumer groups.

As with topics, a form carries a fingerprint of the settings that its page showed. If they have changed meanwhile,
nothing is done, and the page tells so.
"""

from __future__ import annotations

from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from gantrymq.broker.names import wrong_group
from gantrymq.console.cluster.fingerprint import conflict, fingerprint
from gantrymq.console.cluster.groups import connection_of, group_settings, progress
from gantrymq.console.cluster.source import Broker, ClusterSession, ClusterSource
from gantrymq.console.failures import failure_text
from gantrymq.console.names import is_own_group
from gantrymq.console.rendering import url
from gantrymq.console.view import View, action, get
from gantrymq.errors import GantrymqError, MQClientError
from gantrymq.model.java import INT_MAX
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig

_UNLIMITED = -1  # retries, in RocketMQ's settings
_MAX_QUEUES = 1024
_FLAGS = ("consume_enable", "consume_broadcast_enable", "consume_message_orderly")


class GroupChangePages:
    """The changes of groups."""

    def __init__(self, source: ClusterSource) -> None:
        self._source = source

    def routes(self) -> list[Route]:
        """The question before a deletion, and the changes."""
        return [
            get("/delete-group", self.ask_delete),
            action("/groups/create", self.create),
            action("/groups/change", self.change),
            action("/groups/delete", self.delete),
        ]

    def create(self, view: View) -> Response:
        """POST: a new group, at one master or all."""
        name, broker = view.text("group"), view.text("broker")
        reason = wrong_group(name)
        if reason is not None:
            raise HTTPException(400, reason)
        with self._source.session(view) as session:
            targets = [one for one in session.masters() if broker in ("", one.name)]
            if not targets:
                raise MQClientError("There is no such master broker.")
            before = [one.name for one, _ in group_settings(session, name) if one in targets]
            if before:
                return _conflict(view, name, f"{name} exists already at {', '.join(before)}. Nothing was changed.")
            wanted = _wanted(view, SubscriptionGroupConfig(group_name=name))
            return _put(view, session, name, [(one, wanted) for one in targets], "created")

    def change(self, view: View) -> Response:
        """POST: other settings, at each broker that has the group."""
        name = view.text("group")
        with self._source.session(view) as session:
            found = group_settings(session, name)
            if not found or fingerprint(found) != view.text("seen"):
                return _conflict(view, name, _meanwhile(name))
            wanted = [(one, _wanted(view, replace(config, attributes={}))) for one, config in found]
            return _put(view, session, name, wanted, "changed")

    def ask_delete(self, view: View) -> Response:
        """The question before a deletion."""
        name = view.text("group")
        with self._source.session(view) as session:
            found = group_settings(session, name)
            if not found:
                raise MQClientError(f"There is no group {name}.")
            connection, queues = connection_of(session, name), progress(session, name)
            return view.page(
                "cluster/group_delete.html.j2",
                name=name, brokers=[one.name for one, _ in found], seen=fingerprint(found),
                members=len(connection.connection_set) if connection else 0,
                behind=sum(max(one.broker_offset - one.consumer_offset, 0) for one in queues.values()),
            )  # fmt: skip

    def delete(self, view: View) -> Response:
        """POST: delete a group whose name was typed again, with its offsets if that is chosen."""
        name = view.text("group")
        if view.text("again") != name:
            raise HTTPException(400, f"Type the name of the group, {name}, to delete it. Nothing was changed.")
        if not is_own_group(name):
            raise HTTPException(400, f"{name} is a group of RocketMQ itself. Nothing was changed.")
        with self._source.session(view) as session:
            found = group_settings(session, name)
            if not found:
                return _conflict(view, name, f"{name} has been deleted meanwhile.")
            if fingerprint(found) != view.text("seen"):
                return _conflict(view, name, _meanwhile(name))
            done, problems = list[str](), list[str]()
            for broker, _ in found:
                try:
                    removes = bool(view.text("offsets"))
                    session.admin.delete_subscription_group(name, remove_offset=removes, broker=broker.address)
                    done.append(broker.name)
                except GantrymqError as error:
                    problems.append(f"{broker.name}: {failure_text(error)}.")
        text = f"{name} was deleted at {', '.join(done)}." if done else f"{name} was not deleted."
        return view.done("/groups", " ".join([text, *problems]), is_problem=bool(problems))


def _wanted(view: View, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
    """The settings of a form. A check box that is not checked sends nothing."""
    flags = {name: bool(view.text(name)) for name in _FLAGS}
    return replace(
        config,
        retry_max_times=view.number("retries", config.retry_max_times, least=_UNLIMITED, most=INT_MAX),
        retry_queue_nums=view.number("retry_queues", config.retry_queue_nums, most=_MAX_QUEUES),
        **flags,
    )


def _put(
    view: View,
    session: ClusterSession,
    name: str,
    wanted: list[tuple[Broker, SubscriptionGroupConfig]],
    what: str,
) -> Response:
    """Store the settings at each broker, and read them back."""
    problems, done = list[str](), list[str]()
    for broker, config in wanted:
        try:
            session.admin.create_subscription_group(name, config, broker=broker.address)
        except GantrymqError as error:
            problems.append(f"{broker.name}: {failure_text(error)}.")
    now = {broker.name: config for broker, config in group_settings(session, name)}
    for broker, config in wanted:
        if broker.name in now and _shown(now[broker.name]) == _shown(config):
            done.append(broker.name)
        elif not any(one.startswith(f"{broker.name}: ") for one in problems):
            problems.append(f"{broker.name} has it otherwise: another operator changed it at the same time.")
    text = f"{name} was {what} at {', '.join(done)}." if done else f"{name} was not {what}."
    path = url("/groups", name) if done else "/groups"
    return view.done(path, " ".join([text, *problems]), is_problem=bool(problems))


def _shown(config: SubscriptionGroupConfig) -> tuple[object, ...]:
    """The settings that the forms have."""
    return (config.retry_max_times, config.retry_queue_nums, *(getattr(config, name) for name in _FLAGS))


def _meanwhile(name: str) -> str:
    return f"{name} has been changed since the page was loaded. Nothing was changed now: look at it, and try again."


def _conflict(view: View, name: str, text: str) -> Response:
    return conflict(view, text, f"Group {name}", url("/groups", name))
