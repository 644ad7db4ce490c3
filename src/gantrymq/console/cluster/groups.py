"""Consumer groups: the list, and one group with its lag by queue, members, subscriptions and settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from gantrymq.console.cluster.fingerprint import fingerprint
from gantrymq.console.cluster.lag import GroupLag, group_lags, progress_of
from gantrymq.console.cluster.source import Broker, ClusterSession, ClusterSource
from gantrymq.console.names import is_own_group
from gantrymq.console.view import View, get
from gantrymq.errors import GantrymqError, MQBrokerError, MQClientError, NoRouteError, RemotingTimeoutError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import Connection, ConsumerConnection
from gantrymq.remoting.bodies.group import OffsetWrapper, SubscriptionGroupConfig
from gantrymq.remoting.body import by_queue
from gantrymq.remoting.codes import ResponseCode, version_name

_STEP = 50
_MAX_MEMBERS = 32  # each is asked for its queues
_MAX_TIMEOUTS = 2  # of members that do not answer


@dataclass(frozen=True)
class Member:
    """A connected client."""

    client_id: str
    address: str | None
    language: str | None
    version: str

    @classmethod
    def of(cls, one: Connection) -> Member:
        """The member of a connection."""
        return cls(one.client_id or "", one.client_addr, one.language, version_name(one.version))


@dataclass(frozen=True)
class QueueLag:
    """A group's progress in a queue. ``owner`` is the client that has the queue, if it is known."""

    queue: MessageQueue
    end: int
    committed: int
    in_flight: int
    consumed_ms: int
    owner: str

    @property
    def behind(self) -> int:
        """The number of messages that are not consumed."""
        return self.end - self.committed


class GroupPages:
    """The consumer groups of a cluster."""

    def __init__(self, source: ClusterSource) -> None:
        self._source = source

    def routes(self) -> list[Route]:
        """The list, a group, and its polled part."""
        return [
            get("/groups", self.groups),
            get("/live/group", self.live),
            get("/groups/{name:path}", self.group),
        ]

    def groups(self, view: View) -> Response:
        """The groups whose names contain ``q``: those of applications, or with ``kind=all`` all."""
        kind, wanted, start = view.text("kind", "own"), view.text("q"), view.number("start", 0)
        if kind not in ("own", "all"):
            raise HTTPException(400, f"kind: {kind!r} is neither own nor all")
        with self._source.session(view) as session:
            masters = session.masters()
            tables = session.each(masters, lambda one: session.admin.subscription_groups(one.address))
            lags = group_lags(session, masters) if tables else {}
            known = {name for _, table in tables for name in table} | {*lags}
            names = sorted(
                one for one in known if (kind == "all" or is_own_group(one)) and wanted.lower() in one.lower()
            )
            # A group's members are asked at each of its brokers: with one away that would be a timeout for each group.
            asks = not view.missing
            rows = [
                (name, lags.get(name) or GroupLag(name), connection_of(session, name) if asks else None)
                for name in names[start : start + _STEP]
            ]
        return view.page(
            "cluster/groups.html.j2",
            rows=rows, total=len(names), start=start, step=_STEP, kind=kind, wanted=wanted, knows_members=asks,
            brokers=masters,
        )  # fmt: skip

    def group(self, view: View) -> Response:
        """One group."""
        return self._shown(view, view.name(), "cluster/group.html.j2")

    def live(self, view: View) -> Response:
        """The lag and the members of one group, which htmx polls."""
        return self._shown(view, view.text("group"), "cluster/group_part.html.j2")

    def _shown(self, view: View, name: str, template: str) -> Response:
        with self._source.session(view) as session:
            settings = group_settings(session, name)
            queues, connection = progress(session, name), connection_of(session, name)
            if not settings and not queues and connection is None and not view.missing:
                raise MQClientError(f"There is no group {name}.")
            members = [Member.of(one) for one in connection.connection_set] if connection else []
            owners = _owners(session, name, members)
            rows = [
                QueueLag(
                    queue,
                    one.broker_offset,
                    one.consumer_offset,
                    max(one.pull_offset - one.consumer_offset, 0),
                    one.last_timestamp,
                    owners.get(queue, ""),
                )
                for queue, one in queues.items()
            ]
            return view.page(
                template,
                name=name, queues=rows, connection=connection, settings=settings, seen=fingerprint(settings),
                is_own=is_own_group(name),
                members=sorted(members, key=lambda one: one.client_id),
                behind=sum(one.behind for one in rows),
                topics=sorted({one.queue.topic for one in rows if not one.queue.topic.startswith("%RETRY%")}),
            )  # fmt: skip


def group_settings(session: ClusterSession, name: str) -> list[tuple[Broker, SubscriptionGroupConfig]]:
    """A group's settings at each master that has it. All groups are read: RocketMQ creates one that is asked for."""
    tables = session.each(session.masters(), lambda one: session.admin.subscription_groups(one.address))
    return [(broker, table[name]) for broker, table in tables if name in table]


def progress(session: ClusterSession, name: str, topic: str | None = None) -> dict[MessageQueue, OffsetWrapper]:
    """The progress of a group by queue; empty if it has consumed nothing."""
    try:
        return session.admin.consume_stats(name, topic)
    except NoRouteError:  # it has no retry topic: its offsets were written by another program
        return progress_of(session, session.masters(), name) if topic is None else {}
    except (MQBrokerError, MQClientError):
        return {}
    except GantrymqError as error:
        session.note_missing(f"progress of {name}", error)
        return {}


def connection_of(session: ClusterSession, name: str) -> ConsumerConnection | None:
    """The members of a group; None if there are none, or if they are not known."""
    try:
        return session.admin.consumer_connection(name)
    except MQBrokerError as error:
        if error.response_code != ResponseCode.CONSUMER_NOT_ONLINE:
            session.note_missing(f"members of {name}", error)
    except MQClientError:
        pass  # a group that has consumed nothing has no route
    except GantrymqError as error:
        session.note_missing(f"members of {name}", error)
    return None


def _owners(session: ClusterSession, name: str, members: Sequence[Member]) -> dict[MessageQueue, str]:
    """The client that has each queue, as the clients say. A client that does not answer has none."""
    owners: dict[MessageQueue, str] = {}
    timeouts = 0
    for one in members[:_MAX_MEMBERS]:
        try:
            info = session.admin.consumer_running_info(name, one.client_id)
        except RemotingTimeoutError:  # the broker waits for the client
            timeouts += 1
            session.unanswered.clear()
            if timeouts == _MAX_TIMEOUTS:
                break
            continue
        except GantrymqError:
            continue  # clients of other languages may not answer this
        owners |= dict.fromkeys(by_queue({**info.mq_table, **info.mq_pop_table}), one.client_id)
    return owners
