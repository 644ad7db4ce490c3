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
from gantrymq.console.page_request import PageRequest, action, get
from gantrymq.console.rendering import url
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

    def topics(self, request: PageRequest) -> Response:
        """The topics of a kind whose names contain ``q``."""
        kind, wanted, start = request.text("kind", NORMAL), request.text("q"), request.number("start", 0)
        if kind not in _KINDS:
            raise HTTPException(400, f"kind: {kind!r} is none of {', '.join(_KINDS)}")
        with self._source.session(request) as session:
            servers = session.server_names()
            names = [
                topic
                for topic in session.admin.topics()
                if kind in ("all", kind_of(topic, servers)) and wanted.lower() in topic.lower()
            ]
            masters = session.masters()
            tables = session.each(masters, lambda master: session.admin.topic_configs(master.address), is_needed=False)
        rows = [(name, _summary(name, tables)) for name in names[start : start + _STEP]]
        return request.page(
            "cluster/topics.html.j2",
            rows=rows,
            total=len(names),
            start=start,
            step=_STEP,
            kind=kind,
            kinds=_KINDS,
            wanted=wanted,
            brokers=masters,
            types=TYPES,
            perms=PERMS,
        )

    def topic(self, request: PageRequest) -> Response:
        """The page of one topic."""
        name = request.name()
        with self._source.session(request) as session:
            route = session.admin.topic_route(name)
            configs = _configs(session, name, is_needed=False)
            queues = session.optional(f"queues of {name}", lambda: session.admin.topic_stats(name)) or {}
            groups = session.optional(f"groups of {name}", lambda: session.admin.topic_consumers(name))
            return request.page(
                "cluster/topic.html.j2",
                name=name,
                kind=kind_of(name, session.server_names()),
                route=route,
                configs=configs,
                queues=queues,
                groups=groups,
                seen=fingerprint(configs),
                perm_text=perm_text,
                perms=PERMS,
                messages=sum(offsets.max_offset - offsets.min_offset for offsets in queues.values()),
                last_ms=max((offsets.last_update_timestamp for offsets in queues.values()), default=None),
            )

    def create(self, request: PageRequest) -> Response:
        """POST: create a topic."""
        name, kind = request.text("topic"), request.text("type")
        reason = wrong_topic(name)
        if reason is not None:
            raise HTTPException(400, reason)
        if kind not in TYPES:
            raise HTTPException(400, f"type: {kind!r} is none of {', '.join(TYPES[1:])}")
        config = _wanted(request, TopicConfig(topic_name=name, attributes={f"+{_TYPE}": kind} if kind else {}))
        with self._source.session(request) as session:
            targets = _targets(request, session)
            before = [broker.name for broker, config in _configs(session, name, targets) if config is not None]
            if before:
                return _conflict(request, name, f"{name} exists already at {', '.join(before)}. Nothing was changed.")
            return self._put(request, session, name, [(target, config) for target in targets], "created")

    def change(self, request: PageRequest) -> Response:
        """POST: other queues or another permission, at each broker that has the topic."""
        name = request.text("topic")
        with self._source.session(request) as session:
            configs = _configs(session, name)
            if fingerprint(configs) != request.text("seen"):
                return _conflict(request, name, _meanwhile(name))
            targets = [
                (broker, _wanted(request, replace(config, attributes={}))) for broker, config in configs if config
            ]
            return self._put(request, session, name, targets, "changed")

    def _put(
        self,
        request: PageRequest,
        session: ClusterSession,
        name: str,
        wanted: list[tuple[Broker, TopicConfig]],
        what: str,
    ) -> Response:
        """Store the settings at each broker, and read them back."""
        problems, done = list[str](), list[str]()
        for broker, config in wanted:
            try:
                session.admin.put_topic_config(config, broker=broker.address)
                now = _config_at(session, name, broker)
                session.admin.follow_queues(name, {broker.name: config.write_queue_nums})
            except GantrymqError as error:
                problems.append(f"{broker.name}: {failure_text(error)}.")
                continue
            if now is not None and not request.text("order"):  # a name server may order it: ORDER_TOPIC_CONFIG
                config.order = now.order
            if now is None or replace(now, attributes={}) != replace(config, attributes={}):
                problems.append(f"{broker.name} has it otherwise: another operator changed it at the same time")
            else:
                done.append(broker.name)
                if request.text("order"):
                    ordered = session.admin.order_config(name)
                    session.admin.put_order_config(name, ordered | {broker.name: config.write_queue_nums})
        text = f"{name} was {what} at {', '.join(done)}." if done else f"{name} was not {what}."
        path = url("/topics", name) if done else "/topics"
        return request.done(path, " ".join([text, *problems]), is_problem=bool(problems))

    def ask_delete(self, request: PageRequest) -> Response:
        """The question before a deletion."""
        name = request.text("topic")
        with self._source.session(request) as session:
            session.admin.topic_route(name)
            configs = _configs(session, name)
            queues = session.optional(f"queues of {name}", lambda: session.admin.topic_stats(name)) or {}
            groups = session.optional(f"groups of {name}", lambda: session.admin.topic_consumers(name)) or []
            return request.page(
                "cluster/topic_delete.html.j2",
                name=name,
                configs=configs,
                groups=groups,
                seen=fingerprint(configs),
                messages=sum(offsets.max_offset - offsets.min_offset for offsets in queues.values()),
            )

    def delete(self, request: PageRequest) -> Response:
        """POST: delete a topic whose name was typed again."""
        name = request.text("topic")
        if request.text("again") != name:
            raise HTTPException(400, f"Type the name of the topic, {name}, to delete it. Nothing was changed.")
        with self._source.session(request) as session:
            if kind_of(name, session.server_names()) == SYSTEM:
                raise HTTPException(400, f"{name} is a topic of RocketMQ itself. Nothing was changed.")
            if name not in session.admin.topics():
                return _conflict(request, name, f"{name} has been deleted meanwhile.")
            if fingerprint(_configs(session, name)) != request.text("seen"):
                return _conflict(request, name, _meanwhile(name))
            session.admin.delete_topic(name)
        return request.done("/topics", f"{name} was deleted. Its messages expire with the log.")


def _summary(name: str, tables: list[tuple[Broker, dict[str, TopicConfig]]]) -> Mapping[str, object]:
    """A topic's row: sums of queues over brokers, and the values that differ joined."""
    configs = [(broker.name, table[name]) for broker, table in tables if name in table]
    return {
        "read": sum(config.read_queue_nums for _, config in configs) if configs else None,
        "write": sum(config.write_queue_nums for _, config in configs) if configs else None,
        "perm": " / ".join(sorted({perm_text(config.perm) for _, config in configs})) or None,
        "type": " / ".join(sorted({config.attributes.get(_TYPE, "") for _, config in configs} - {""})) or None,
        "brokers": ", ".join(broker for broker, _ in configs) or None,
    }


def _configs(
    session: ClusterSession, name: str, targets: list[Broker] | None = None, *, is_needed: bool = True
) -> list[tuple[Broker, TopicConfig | None]]:
    """A topic's settings at each master that answers; None where it does not exist."""
    brokers = targets or session.masters()
    return session.each(brokers, lambda broker: _config_at(session, name, broker), is_needed=is_needed)


def _config_at(session: ClusterSession, name: str, broker: Broker) -> TopicConfig | None:
    try:
        return session.admin.topic_config(name, broker.address)
    except MQBrokerError as error:
        if error.response_code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        raise


def _wanted(request: PageRequest, config: TopicConfig) -> TopicConfig:
    """The settings of a form."""
    perm = request.number("perm", config.perm, maximum=7)
    return replace(
        config,
        read_queue_nums=request.number("read", config.read_queue_nums, maximum=_MAX_QUEUES),
        write_queue_nums=request.number("write", config.write_queue_nums, maximum=_MAX_QUEUES),
        perm=perm,
        order=config.order or bool(request.text("order")),
    )


def _targets(request: PageRequest, session: ClusterSession) -> list[Broker]:
    """The masters that a form names; all if it names none."""
    wanted = [text for text in request.texts("broker") if text]
    masters = [master for master in session.masters() if not wanted or master.name in wanted]
    if not masters:
        raise MQClientError("There is no such master broker.")
    return masters


def _meanwhile(name: str) -> str:
    return f"{name} has been changed since the page was loaded. Nothing was changed now: look at it, and try again."


def _conflict(request: PageRequest, name: str, text: str) -> Response:
    return conflict(request, text, f"Topic {name}", url("/topics", name))
