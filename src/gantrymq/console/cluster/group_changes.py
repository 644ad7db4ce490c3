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
from gantrymq.console.page_request import PageRequest, action, get
from gantrymq.console.rendering import url
from gantrymq.errors import GantrymqError, MQClientError
from gantrymq.model.java import INT_MAX
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig

_UNLIMITED = -1  # retries, in RocketMQ's settings
_MAX_QUEUES = 1024
_FLAGS = ("consume_enable", "consume_broadcast_enable", "consume_message_orderly")


class GroupChangePages:
    """The pages that create, change and delete consumer groups."""

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

    def create(self, request: PageRequest) -> Response:
        """POST: a new group, at one master or all."""
        name, broker = request.text("group"), request.text("broker")
        reason = wrong_group(name)
        if reason is not None:
            raise HTTPException(400, reason)
        with self._source.session(request) as session:
            targets = [master for master in session.masters() if broker in ("", master.name)]
            if not targets:
                raise MQClientError("There is no such master broker.")
            before = [target.name for target, _ in group_settings(session, name) if target in targets]
            if before:
                return _conflict(request, name, f"{name} exists already at {', '.join(before)}. Nothing was changed.")
            wanted = _wanted(request, SubscriptionGroupConfig(group_name=name))
            return _put(request, session, name, [(target, wanted) for target in targets], "created")

    def change(self, request: PageRequest) -> Response:
        """POST: other settings, at each broker that has the group."""
        name = request.text("group")
        with self._source.session(request) as session:
            settings = group_settings(session, name)
            if not settings or fingerprint(settings) != request.text("seen"):
                return _conflict(request, name, _meanwhile(name))
            wanted = [(target, _wanted(request, replace(config, attributes={}))) for target, config in settings]
            return _put(request, session, name, wanted, "changed")

    def ask_delete(self, request: PageRequest) -> Response:
        """The question before a deletion."""
        name = request.text("group")
        with self._source.session(request) as session:
            settings = group_settings(session, name)
            if not settings:
                raise MQClientError(f"There is no group {name}.")
            connection, queues = connection_of(session, name), progress(session, name)
            return request.page(
                "cluster/group_delete.html.j2",
                name=name,
                brokers=[target.name for target, _ in settings],
                seen=fingerprint(settings),
                members=len(connection.connection_set) if connection else 0,
                behind=sum(max(wrapper.broker_offset - wrapper.consumer_offset, 0) for wrapper in queues.values()),
            )

    def delete(self, request: PageRequest) -> Response:
        """POST: delete a group whose name was typed again, with its offsets if that is chosen."""
        name = request.text("group")
        if request.text("again") != name:
            raise HTTPException(400, f"Type the name of the group, {name}, to delete it. Nothing was changed.")
        if not is_own_group(name):
            raise HTTPException(400, f"{name} is a group of RocketMQ itself. Nothing was changed.")
        with self._source.session(request) as session:
            settings = group_settings(session, name)
            if not settings:
                return _conflict(request, name, f"{name} has been deleted meanwhile.")
            if fingerprint(settings) != request.text("seen"):
                return _conflict(request, name, _meanwhile(name))
            done, problems = list[str](), list[str]()
            for broker, _ in settings:
                try:
                    removes = bool(request.text("offsets"))
                    session.admin.delete_subscription_group(name, remove_offset=removes, broker=broker.address)
                    done.append(broker.name)
                except GantrymqError as error:
                    problems.append(f"{broker.name}: {failure_text(error)}.")
        text = f"{name} was deleted at {', '.join(done)}." if done else f"{name} was not deleted."
        return request.done("/groups", " ".join([text, *problems]), is_problem=bool(problems))


def _wanted(request: PageRequest, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
    """The settings of a form. A check box that is not checked sends nothing."""
    flags = {name: bool(request.text(name)) for name in _FLAGS}
    return replace(
        config,
        retry_max_times=request.number("retries", config.retry_max_times, minimum=_UNLIMITED, maximum=INT_MAX),
        retry_queue_nums=request.number("retry_queues", config.retry_queue_nums, maximum=_MAX_QUEUES),
        **flags,
    )


def _put(
    request: PageRequest,
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
        elif not any(problem.startswith(f"{broker.name}: ") for problem in problems):
            problems.append(f"{broker.name} has it otherwise: another operator changed it at the same time.")
    text = f"{name} was {what} at {', '.join(done)}." if done else f"{name} was not {what}."
    path = url("/groups", name) if done else "/groups"
    return request.done(path, " ".join([text, *problems]), is_problem=bool(problems))


def _shown(config: SubscriptionGroupConfig) -> tuple[object, ...]:
    """The settings that the forms have."""
    return (config.retry_max_times, config.retry_queue_nums, *(getattr(config, name) for name in _FLAGS))


def _meanwhile(name: str) -> str:
    return f"{name} has been changed since the page was loaded. Nothing was changed now: look at it, and try again."


def _conflict(request: PageRequest, name: str, text: str) -> Response:
    return conflict(request, text, f"Group {name}", url("/groups", name))
