"""Brokers: the list, and one broker with its statistics, replication and settings."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import Route

from gantrymq.console.cluster.broker_state import broker_state
from gantrymq.console.cluster.overview import ClusterWatch
from gantrymq.console.cluster.source import ClusterSource
from gantrymq.console.page_request import PageRequest, get


class BrokerPages:
    """The brokers of a cluster."""

    def __init__(self, source: ClusterSource, watch: ClusterWatch) -> None:
        self._source, self._watch = source, watch

    def routes(self) -> list[Route]:
        """The list and a broker."""
        return [get("/brokers", self.brokers), get("/brokers/{name:path}", self.broker)]

    def brokers(self, request: PageRequest) -> Response:
        """All brokers, and the settings of the name servers."""
        look = self._watch.look()
        request.missing.extend(look.missing)
        return request.page("cluster/brokers.html.j2", look=look, name_servers=look.name_servers)

    def broker(self, request: PageRequest) -> Response:
        """One broker; ``id`` is its number, 0 for the master. ``q`` filters its settings."""
        wanted = request.text("q").lower()
        with self._source.session(request) as session:
            broker = session.broker(request.name(), request.number("id", 0))
            admin, address = session.admin, broker.address
            info = session.optional(address, lambda: admin.broker_runtime_info(address))
            config = session.optional(f"{address}: settings", lambda: admin.broker_config(address))
            replication = session.optional(f"{address}: replication", lambda: admin.ha_status(address))
            return request.page(
                "cluster/broker.html.j2",
                broker=broker,
                state=None if info is None else broker_state(broker, info),
                info=_matching(info or {}, wanted),
                config=_matching(config or {}, wanted),
                ha=replication,
            )


def _matching(table: dict[str, str], wanted: str) -> list[tuple[str, str]]:
    return sorted((key, value) for key, value in table.items() if wanted in key.lower() or wanted in value.lower())
