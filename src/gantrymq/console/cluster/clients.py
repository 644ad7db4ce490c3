"""Clients: the producers and consumers that are connected, and what a consumer reports of itself."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import Response
from starlette.routing import Route

from gantrymq.console.cluster.groups import Member, connection_of
from gantrymq.console.cluster.source import ClusterSession, ClusterSource
from gantrymq.console.names import is_own_group
from gantrymq.console.page_request import PageRequest, get
from gantrymq.console.rendering import lines
from gantrymq.remoting.bodies.client import SubscriptionData
from gantrymq.remoting.body import by_queue
from gantrymq.remoting.codes import version_name

_MAX_GROUPS = 200


@dataclass(frozen=True)
class ConsumerRow:
    """A member of a group, with the group's subscriptions and message model."""

    group: str
    client: Member
    model: str
    topics: str


@dataclass(frozen=True)
class ProducerRow:
    """A producer, and the brokers that it is connected to."""

    group: str
    client_id: str
    address: str
    language: str
    version: str
    last_ms: int
    brokers: tuple[str, ...]


class ClientPages:
    """The clients of a cluster."""

    def __init__(self, source: ClusterSource) -> None:
        self._source = source

    def routes(self) -> list[Route]:
        """The list, and one consumer."""
        return [get("/clients", self.clients), get("/consumer", self.consumer)]

    def clients(self, request: PageRequest) -> Response:
        """The producers and the consumers whose group, id or address contains ``q``."""
        wanted = request.text("q").lower()
        with self._source.session(request) as session:
            producers = [
                producer
                for producer in _producers(session)
                if wanted in f"{producer.group} {producer.client_id} {producer.address}".lower()
            ]
            consumers, is_cut = _consumers(session)
        consumers = [
            consumer
            for consumer in consumers
            if wanted in f"{consumer.group} {consumer.client.client_id} {consumer.client.address}".lower()
        ]
        return request.page(
            "cluster/clients.html.j2", producers=producers, consumers=consumers, wanted=request.text("q"), is_cut=is_cut
        )

    def consumer(self, request: PageRequest) -> Response:
        """One consumer: its queues, subscriptions, rates and settings; with ``threads`` what its threads do."""
        group, client_id, wants_threads = request.text("group"), request.text("client"), bool(request.text("threads"))
        with self._source.session(request) as session:
            info = session.admin.consumer_running_info(group, client_id, jstack=wants_threads)
        pop = {queue: ("pop", state) for queue, state in by_queue(info.mq_pop_table).items()}
        return request.page(
            "cluster/consumer.html.j2",
            group=group,
            client_id=client_id,
            threads=lines(info.jstack or "") if wants_threads else None,
            properties=sorted(info.properties.items()),
            subscriptions=sorted(info.subscription_set, key=lambda subscription: subscription.topic),
            queues=sorted(by_queue(info.mq_table).items()),
            pop_queues=sorted(pop),
            rates=sorted(info.status_table.items()),
        )


def _producers(session: ClusterSession) -> list[ProducerRow]:
    """A row for each producer. Several brokers list the same producer, which is one row."""
    rows: dict[tuple[str, str], ProducerRow] = {}
    for broker, groups in session.each(session.masters(), lambda master: session.admin.all_producers(master.address)):
        for group, members in groups.items():
            for member in members:
                key = (group, member.client_id or "")
                before = rows[key].brokers if key in rows else ()
                rows[key] = ProducerRow(
                    *key,
                    (member.remote_ip or "").removeprefix("/"),
                    member.language or "",
                    version_name(member.version),
                    member.last_update_timestamp,
                    (*before, broker.name),
                )
    return [rows[key] for key in sorted(rows)]


def _consumers(session: ClusterSession) -> tuple[list[ConsumerRow], bool]:
    """A row for each member of each group; whether there are more groups than are asked."""
    tables = session.each(session.masters(), lambda master: session.admin.subscription_groups(master.address))
    groups = sorted({name for _, table in tables for name in table if is_own_group(name)})
    rows = list[ConsumerRow]()
    for group in groups[:_MAX_GROUPS]:
        connection = connection_of(session, group)
        if connection is None:
            continue
        topics = ", ".join(
            _subscription_text(subscription) for _, subscription in sorted(connection.subscription_table.items())
        )
        model = connection.message_model or ""
        rows += [
            ConsumerRow(group, Member.of(member), model, topics)
            for member in sorted(connection.connection_set, key=lambda item: item.client_id or "")
        ]
    return rows, len(groups) > _MAX_GROUPS


def _subscription_text(subscription: SubscriptionData) -> str:
    """``orders`` or ``orders (paid || sent)``."""
    return (
        subscription.topic
        if subscription.sub_string in (None, "", "*")
        else f"{subscription.topic} ({subscription.sub_string})"
    )
