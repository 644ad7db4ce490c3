"""Consumer groups: the list, and one group with its lag by queue, members, subscriptions and settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from gantrymq.console.cluster.fingerprint import fingerprint
from gantrymq.console.cluster.lag import ClusterGroupLag, group_lags, progress_of
from gantrymq.console.cluster.source import Broker, ClusterSession, ClusterSource
from gantrymq.console.names import is_own_group
from gantrymq.console.page_request import PageRequest, get
from gantrymq.errors import GantrymqError, MQBrokerError, MQClientError, NoRouteError, RemotingTimeoutError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.model.system_names import RETRY_PREFIX
from gantrymq.remoting.bodies.client import ClientConnection, ConsumerConnection
from gantrymq.remoting.bodies.group import OffsetWrapper, SubscriptionGroupConfig
from gantrymq.remoting.body import by_queue
from gantrymq.remoting.codes import ResponseCode, version_name

_STEP = 50
_MAX_MEMBERS = 32  # each is asked for its queues
_MAX_TIMEOUTS = 2  # of members that do not answer


@dataclass(frozen=True)
class Member:
    """A connected client of a group."""

    client_id: str
    address: str | None
    language: str | None
    version: str

    @classmethod
    def of(cls, connection: ClientConnection) -> Member:
        """The member of a connection."""
        return cls(
            connection.client_id or "", connection.client_addr, connection.language, version_name(connection.version)
        )


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

    def groups(self, request: PageRequest) -> Response:
        """The groups whose names contain ``q``: those of applications, or with ``kind=all`` all."""
        kind, wanted, start = request.text("kind", "own"), request.text("q"), request.number("start", 0)
        if kind not in ("own", "all"):
            raise HTTPException(400, f"kind: {kind!r} is neither own nor all")
        with self._source.session(request) as session:
            masters = session.masters()
            tables = session.each(masters, lambda master: session.admin.subscription_groups(master.address))
            lags = group_lags(session, masters) if tables else {}
            known = {name for _, table in tables for name in table} | {*lags}
            names = sorted(
                group for group in known if (kind == "all" or is_own_group(group)) and wanted.lower() in group.lower()
            )
            # A group's members are asked at each of its brokers: with one away that would be a timeout for each group.
            asks = not request.missing
            rows = [
                (name, lags.get(name) or ClusterGroupLag(name), connection_of(session, name) if asks else None)
                for name in names[start : start + _STEP]
            ]
        return request.page(
            "cluster/groups.html.j2",
            rows=rows,
            total=len(names),
            start=start,
            step=_STEP,
            kind=kind,
            wanted=wanted,
            knows_members=asks,
            brokers=masters,
        )

    def group(self, request: PageRequest) -> Response:
        """The page of one group."""
        return self._shown(request, request.name(), "cluster/group.html.j2")

    def live(self, request: PageRequest) -> Response:
        """The lag and the members of one group, which htmx polls."""
        return self._shown(request, request.text("group"), "cluster/group_part.html.j2")

    def _shown(self, request: PageRequest, name: str, template: str) -> Response:
        with self._source.session(request) as session:
            settings = group_settings(session, name)
            queues, connection = progress(session, name), connection_of(session, name)
            if not settings and not queues and connection is None and not request.missing:
                raise MQClientError(f"There is no group {name}.")
            members = [Member.of(item) for item in connection.connection_set] if connection else []
            owners = _owners(session, name, members)
            rows = [
                QueueLag(
                    queue,
                    wrapper.broker_offset,
                    wrapper.consumer_offset,
                    max(wrapper.pull_offset - wrapper.consumer_offset, 0),
                    wrapper.last_timestamp,
                    owners.get(queue, ""),
                )
                for queue, wrapper in queues.items()
            ]
            return request.page(
                template,
                name=name,
                queues=rows,
                connection=connection,
                settings=settings,
                seen=fingerprint(settings),
                is_own=is_own_group(name),
                members=sorted(members, key=lambda member: member.client_id),
                behind=sum(row.behind for row in rows),
                topics=sorted({row.queue.topic for row in rows if not row.queue.topic.startswith(RETRY_PREFIX)}),
            )


def group_settings(session: ClusterSession, name: str) -> list[tuple[Broker, SubscriptionGroupConfig]]:
    """A group's settings at each master that has it. All groups are read: RocketMQ creates one that is asked for."""
    tables = session.each(session.masters(), lambda master: session.admin.subscription_groups(master.address))
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
    for member in members[:_MAX_MEMBERS]:
        try:
            info = session.admin.consumer_running_info(name, member.client_id)
        except RemotingTimeoutError:  # the broker waits for the client
            timeouts += 1
            session.unanswered.clear()
            if timeouts == _MAX_TIMEOUTS:
                break
            continue
        except GantrymqError:
            continue  # clients of other languages may not answer this
        owners |= dict.fromkeys(by_queue({**info.mq_table, **info.mq_pop_table}), member.client_id)
    return owners
