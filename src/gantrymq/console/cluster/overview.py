"""The overview of a cluster: brokers, rates and lag now, and the last minutes as charts.

All requests share one look at the cluster, so that many open pages ask the brokers no more often than one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gantrymq.clock import Clock, SystemClock
from gantrymq.console.cluster.broker_state import BrokerState, broker_state
from gantrymq.console.cluster.lag import ClusterGroupLag, group_lags
from gantrymq.console.cluster.source import Broker, ClusterSession, ClusterSource
from gantrymq.console.names import DLQ, NORMAL, is_own_group, kind_of
from gantrymq.console.page_request import PageRequest, get
from gantrymq.errors import GantrymqError, MQBrokerError

_MIN_AGE_S = 0.9
_COST_SHARE = 5  # a look that took 1 s is used for 5 s
_MAX_POINTS = 900
_MAX_GROUPS = 10


@dataclass(frozen=True)
class ClusterSnapshot:
    """The cluster at one time. ``lags`` are sorted by how far they are behind, the largest first.

    ``name_servers`` has the settings of each name server that answers.
    """

    taken_ms: int
    name_servers: Mapping[str, Mapping[str, str]]
    brokers: tuple[BrokerState, ...]
    topics: int
    groups: int
    dead_letter_topics: int
    lags: tuple[ClusterGroupLag, ...]
    missing: tuple[tuple[str, str], ...]

    @property
    def totals(self) -> Mapping[str, float]:
        """Sums over the brokers that answer."""
        masters = [broker for broker in self.brokers if broker.broker.is_master]
        return {
            "in_tps": sum(master.in_tps or 0 for master in masters),
            "out_tps": sum(broker.out_tps or 0 for broker in self.brokers),
            "in_today": sum(master.in_today or 0 for master in masters),
            "out_today": sum(broker.out_today or 0 for broker in self.brokers),
            "behind": sum(lag.behind for lag in self.lags),
            "up": sum(broker.is_up for broker in self.brokers),
        }


class ClusterWatch:
    """The latest look at a cluster, and the points of the charts. Thread rule: any thread.

    A point is taken only while a page is open. The memory is bounded: 900 points.
    """

    def __init__(self, source: ClusterSource, clock: Clock | None = None) -> None:
        self._source, self._clock = source, clock or SystemClock()
        self._lock = threading.Lock()
        self._look: ClusterSnapshot | None = None
        self._failure: GantrymqError | None = None
        self._valid_until_s = 0.0
        self._points: deque[tuple[float, ...]] = deque(maxlen=_MAX_POINTS)

    def look(self) -> ClusterSnapshot:
        """The cluster as it is, or as it was a moment ago. Raises GantrymqError if no name server answers."""
        with self._lock:
            if self._clock.monotonic_s() >= self._valid_until_s:
                self._refresh()
            if self._failure is not None:
                raise self._failure
            assert self._look is not None
            return self._look

    def _refresh(self) -> None:
        """Take a look, and keep it, or why it failed, for a multiple of the time that it took.

        A failure is kept too: otherwise each of many open pages would wait for the timeouts of a cluster that is away.
        """
        begin_s = self._clock.monotonic_s()
        try:
            self._look, self._failure = self._look_now(), None
        except GantrymqError as error:
            self._failure = error
        else:
            totals = self._look.totals
            names = ("in_tps", "out_tps", "behind")
            self._points.append((self._look.taken_ms / 1000, *(totals[name] for name in names)))
        end_s = self._clock.monotonic_s()
        self._valid_until_s = end_s + max(_MIN_AGE_S, _COST_SHARE * (end_s - begin_s))

    def points(self, after_s: float) -> list[tuple[float, ...]]:
        """(time in seconds, received a second, delivered a second, messages behind), oldest first."""
        with self._lock:
            return [point for point in self._points if point[0] > after_s]

    def _look_now(self) -> ClusterSnapshot:
        missing: list[tuple[str, str]] = []
        with self._source.lent(missing) as session:
            brokers = session.brokers()
            states = [_state(session, broker) for broker in brokers]
            masters = [state.broker for state in states if state.is_up and state.broker.is_master]
            lags = group_lags(session, masters)
            groups = {
                name
                for _, group_names in session.each(
                    masters, lambda master: session.admin.subscription_groups(master.address)
                )
                for name in group_names
            }
            topics = session.admin.topics()
            ordered = sorted(lags.values(), key=lambda lag: (-lag.behind, lag.group))
            servers = session.server_names()
            return ClusterSnapshot(
                taken_ms=self._clock.now_ms(),
                name_servers=session.optional("name servers", session.admin.name_server_config) or {},
                brokers=tuple(states),
                topics=sum(kind_of(topic, servers) == NORMAL for topic in topics),
                groups=sum(map(is_own_group, groups)),
                dead_letter_topics=sum(kind_of(topic) == DLQ for topic in topics),
                lags=tuple(lag for lag in ordered if lag.queues and is_own_group(lag.group)),
                missing=tuple(missing),
            )


def _state(session: ClusterSession, broker: Broker) -> BrokerState:
    try:
        return broker_state(broker, session.admin.broker_runtime_info(broker.address))
    except GantrymqError as error:
        session.note_missing(f"{broker.name} ({broker.address})", error)
        return BrokerState(broker, problem="refuses" if isinstance(error, MQBrokerError) else "no answer")


class OverviewPages:
    """The overview, and what it polls."""

    def __init__(self, watch: ClusterWatch) -> None:
        self._watch = watch

    def routes(self) -> list[Route]:
        """The page, its polled part, and the points of the charts."""
        return [
            get("/", self.overview),
            get("/live/overview", self.part),
            get("/live/rates", self.rates),
        ]

    def overview(self, request: PageRequest) -> Response:
        """The page of the overview."""
        return self._shown(request, "cluster/overview.html.j2")

    def part(self, request: PageRequest) -> Response:
        """The numbers and tables, which htmx polls."""
        return self._shown(request, "cluster/overview_part.html.j2")

    def rates(self, request: PageRequest) -> Response:
        """The points of the charts since ``after`` (seconds) as JSON."""
        self._watch.look()
        return JSONResponse({"points": self._watch.points(request.number("after", 0))})

    def _shown(self, request: PageRequest, template: str) -> Response:
        look = self._watch.look()
        request.missing.extend(look.missing)
        return request.page(template, look=look, totals=look.totals, lags=look.lags[:_MAX_GROUPS])
