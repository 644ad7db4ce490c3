"""Topics: the list, one topic with its queues, route and consumers, and their creation, change and deletion.

A form that changes a topic carries a fingerprint of what its page showed. If the topic has changed meanwhile, nothing
is done, and the page tells so.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from gantrymq.broker.names import wrong_topic
from gantrymq.console.cluster.fingerprint import conflict, fingerprint
from gantrymq.console.cluster.source import Broker, ClusterSession, ClusterSource
from gantrymq.console.failures import failure_text
from gantrymq.console.names import DLQ, NORMAL, PERMS, RETRY, SYSTEM, kind_of, perm_text
from gantrymq.console.rendering import url
from gantrymq.console.view import View, action, get
from gantrymq.errors import GantrymqError, MQBrokerError, MQClientError
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.codes import ResponseCode

_KINDS = {NORMAL: "Normal", RETRY: "Retry", DLQ: "Dead letters", SYSTEM: "System", "all": "All"}
TYPES = (*" NORMAL FIFO DELAY TRANSACTION MIXED".split(" "),)  # of message.type; empty: not set
_TYPE = "message.type"
_STEP = 100
_MAX_QUEUES = 65_536


class TopicPages:
    """The topics of a cluster."""

    def __init__(self, source: ClusterSource) -> None:
        self._source = source

    def routes(self) -> list[Route]:
        """The list, a topic, the question before a deletion, and the changes."""
        return [
            get("/topics", self.topics),
            get("/topics/{name:path}", self.topic),
            get("/delete-topic", self.ask_delete),
            action("/topics/create", self.create),
            action("/topics/change", self.change),
            action("/topics/delete", self.delete),
        ]

    def topics(self, view: View) -> Response:
        """The topics of a kind whose names contain ``q``."""
        kind, wanted, start = view.text("kind", NORMAL), view.text("q"), view.number("start", 0)
        if kind not in _KINDS:
            raise HTTPException(400, f"kind: {kind!r} is none of {', '.join(_KINDS)}")
        with self._source.session(view) as session:
            servers = session.server_names()
            names = [
                one
                for one in session.admin.topics()
                if kind in ("all", kind_of(one, servers)) and wanted.lower() in one.lower()
            ]
            masters = session.masters()
            tables = session.each(masters, lambda one: session.admin.topic_configs(one.address), is_needed=False)
        rows = [(name, _summary(name, tables)) for name in names[start : start + _STEP]]
        return view.page(
            "cluster/topics.html.j2",
            rows=rows, total=len(names), start=start, step=_STEP, kind=kind, kinds=_KINDS, wanted=wanted,
            brokers=masters, types=TYPES, perms=PERMS,
        )  # fmt: skip

    def topic(self, view: View) -> Response:
        """One topic."""
        name = view.name()
        with self._source.session(view) as session:
            route = session.admin.topic_route(name)
            configs = _configs(session, name, is_needed=False)
            queues = session.optional(f"queues of {name}", lambda: session.admin.topic_stats(name)) or {}
            groups = session.optional(f"groups of {name}", lambda: session.admin.topic_consumers(name))
            return view.page(
                "cluster/topic.html.j2",
                name=name, kind=kind_of(name, session.server_names()), route=route, configs=configs,
                queues=queues, groups=groups, seen=fingerprint(configs), perm_text=perm_text, perms=PERMS,
                messages=sum(one.max_offset - one.min_offset for one in queues.values()),
                last_ms=max((one.last_update_timestamp for one in queues.values()), default=None),
            )  # fmt: skip

    def create(self, view: View) -> Response:
        """POST: a new topic."""
        name, kind = view.text("topic"), view.text("type")
        reason = wrong_topic(name)
        if reason is not None:
            raise HTTPException(400, reason)
        if kind not in TYPES:
            raise HTTPException(400, f"type: {kind!r} is none of {', '.join(TYPES[1:])}")
        config = _wanted(view, TopicConfig(topic_name=name, attributes={f"+{_TYPE}": kind} if kind else {}))
        with self._source.session(view) as session:
            targets = _targets(view, session)
            before = [broker.name for broker, found in _configs(session, name, targets) if found is not None]
            if before:
                return _conflict(view, name, f"{name} exists already at {', '.join(before)}. Nothing was changed.")
            return self._put(view, session, name, [(one, config) for one in targets], "created")

    def change(self, view: View) -> Response:
        """POST: other queues or another permission, at each broker that has the topic."""
        name = view.text("topic")
        with self._source.session(view) as session:
            configs = _configs(session, name)
            if fingerprint(configs) != view.text("seen"):
                return _conflict(view, name, _meanwhile(name))
            targets = [(one, _wanted(view, replace(found, attributes={}))) for one, found in configs if found]
            return self._put(view, session, name, targets, "changed")

    def _put(
        self, view: View, session: ClusterSession, name: str, wanted: list[tuple[Broker, TopicConfig]], what: str
    ) -> Response:
        """Store the settings at each broker, and read them back."""
        problems, done = list[str](), list[str]()
        for broker, config in wanted:
            try:
                session.admin.put_topic_config(config, broker=broker.address)
                now = _config_at(session, name, broker)
            except GantrymqError as error:
                problems.append(f"{broker.name}: {failure_text(error)}.")
                continue
            if now is None or replace(now, attributes={}) != replace(config, attributes={}):
                problems.append(f"{broker.name} has it otherwise: another operator changed it at the same time")
            else:
                done.append(broker.name)
        text = f"{name} was {what} at {', '.join(done)}." if done else f"{name} was not {what}."
        path = url("/topics", name) if done else "/topics"
        return view.done(path, " ".join([text, *problems]), is_problem=bool(problems))

    def ask_delete(self, view: View) -> Response:
        """The question before a deletion."""
        name = view.text("topic")
        with self._source.session(view) as session:
            session.admin.topic_route(name)
            configs = _configs(session, name)
            queues = session.optional(f"queues of {name}", lambda: session.admin.topic_stats(name)) or {}
            groups = session.optional(f"groups of {name}", lambda: session.admin.topic_consumers(name)) or []
            return view.page(
                "cluster/topic_delete.html.j2",
                name=name, configs=configs, groups=groups, seen=fingerprint(configs),
                messages=sum(one.max_offset - one.min_offset for one in queues.values()),
            )  # fmt: skip

    def delete(self, view: View) -> Response:
        """POST: delete a topic whose name was typed again."""
        name = view.text("topic")
        if view.text("again") != name:
            raise HTTPException(400, f"Type the name of the topic, {name}, to delete it. Nothing was changed.")
        with self._source.session(view) as session:
            if kind_of(name, session.server_names()) == SYSTEM:
                raise HTTPException(400, f"{name} is a topic of RocketMQ itself. Nothing was changed.")
            if name not in session.admin.topics():
                return _conflict(view, name, f"{name} has been deleted meanwhile.")
            if fingerprint(_configs(session, name)) != view.text("seen"):
                return _conflict(view, name, _meanwhile(name))
            session.admin.delete_topic(name)
        return view.done("/topics", f"{name} was deleted. Its messages expire with the log.")


def _summary(name: str, tables: list[tuple[Broker, dict[str, TopicConfig]]]) -> Mapping[str, object]:
    """A topic's row: sums of queues over brokers, and the values that differ joined."""
    found = [(broker.name, table[name]) for broker, table in tables if name in table]
    return {
        "read": sum(config.read_queue_nums for _, config in found) if found else None,
        "write": sum(config.write_queue_nums for _, config in found) if found else None,
        "perm": " / ".join(sorted({perm_text(config.perm) for _, config in found})) or None,
        "type": " / ".join(sorted({config.attributes.get(_TYPE, "") for _, config in found} - {""})) or None,
        "brokers": ", ".join(broker for broker, _ in found) or None,
    }


def _configs(
    session: ClusterSession, name: str, targets: list[Broker] | None = None, *, is_needed: bool = True
) -> list[tuple[Broker, TopicConfig | None]]:
    """A topic's settings at each master that answers; None where it does not exist."""
    brokers = targets or session.masters()
    return session.each(brokers, lambda one: _config_at(session, name, one), is_needed=is_needed)


def _config_at(session: ClusterSession, name: str, broker: Broker) -> TopicConfig | None:
    try:
        return session.admin.topic_config(name, broker.address)
    except MQBrokerError as error:
        if error.response_code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        raise


def _wanted(view: View, config: TopicConfig) -> TopicConfig:
    """The settings of a form."""
    perm = view.number("perm", config.perm, most=7)
    return replace(
        config,
        read_queue_nums=view.number("read", config.read_queue_nums, most=_MAX_QUEUES),
        write_queue_nums=view.number("write", config.write_queue_nums, most=_MAX_QUEUES),
        perm=perm,
        order=config.order or bool(view.text("order")),
    )


def _targets(view: View, session: ClusterSession) -> list[Broker]:
    """The masters that a form names; all if it names none."""
    wanted = [one for one in view.texts("broker") if one]
    masters = [one for one in session.masters() if not wanted or one.name in wanted]
    if not masters:
        raise MQClientError("There is no such master broker.")
    return masters


def _meanwhile(name: str) -> str:
    return f"{name} has been changed since the page was loaded. Nothing was changed now: look at it, and try again."


def _conflict(view: View, name: str, text: str) -> Response:
    return conflict(view, text, f"Topic {name}", url("/topics", name))
