"""Pending messages of a store by kind and due time: a job that counts them, a chart, totals, and those due first."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import Response
from starlette.routing import Route

from gantrymq.console.page_request import PageRequest, action, get
from gantrymq.console.store.jobs import JobSlot
from gantrymq.console.store.looking import looking, state_of
from gantrymq.console.store.opened import OpenStore, Snapshot
from gantrymq.console.store.work import PendingResult
from gantrymq.tools.pending.due_times import DueTimes
from gantrymq.tools.pending.pending import holds_pending
from gantrymq.tools.pending.waiting import PendingKind

MAX_BARS = 60
_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
_STEPS_MS = (
    *(count * _SECOND_MS for count in (1, 2, 5, 10, 15, 30)),
    *(count * _MINUTE_MS for count in (1, 2, 5, 10, 15, 30)),
    *(count * _HOUR_MS for count in (1, 2, 3, 6, 12)),
    *(count * _DAY_MS for count in (1, 2, 7)),
)
_CHARTED_MS = 60 * _DAY_MS
_STARTS_BY_ITSELF = 100_000  # entries of the waiting topics; more take seconds
_HEIGHT = 100.0
_WAIT_S = 1.5


@dataclass(frozen=True, slots=True)
class BarSegment:
    """A part of a bar: the messages of one kind. Lengths are in percent of the chart's height."""

    kind: PendingKind
    count: int
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class ChartBar:
    """The messages that are due in [``begin_ms``, ``end_ms``). ``number`` is the number of the bar."""

    number: int
    begin_ms: int
    end_ms: int
    count: int
    segments: list[BarSegment]


@dataclass(frozen=True, slots=True)
class Chart:
    """A bar for each step of time; ``highest`` is the count of the highest one. ``later`` messages are not in it."""

    bars: list[ChartBar]
    highest: int
    later: int


def chart_of(due_times: DueTimes) -> Chart:
    """The chart of the messages that are due in the next 60 days."""
    bars = due_times.bars(MAX_BARS, _STEPS_MS, _CHARTED_MS)
    highest = max((sum(bar.counts.values()) for bar in bars), default=0)
    drawn = []
    for number, bar in enumerate(bars):
        segments, y = [], _HEIGHT
        for kind in PendingKind:
            if count := bar.counts.get(kind, 0):
                height = _HEIGHT * count / highest
                y -= height
                segments.append(BarSegment(kind, count, round(y, 3), round(height, 3)))
        drawn.append(ChartBar(number, bar.begin_ms, bar.end_ms, sum(bar.counts.values()), segments))
    return Chart(drawn, highest, due_times.later(_CHARTED_MS))


class StorePendingPages:
    """The page, and the buttons that start and cancel the count."""

    def __init__(self, store: OpenStore, slot: JobSlot[PendingResult]) -> None:
        self._store, self._slot = store, slot

    def routes(self) -> list[Route]:
        """The page, its polled part, and its two actions."""
        return [
            get("/pending", looking(self._store, self.pending)),
            get("/pending/part", looking(self._store, self.part)),
            action("/pending/start", self.start, changes=False),
            action("/pending/cancel", self.cancel, changes=False),
        ]

    def pending(self, request: PageRequest, snapshot: Snapshot) -> Response:
        """The whole page. A count of few messages starts by itself."""
        if self._slot.view is None and _waiting_entries(snapshot) <= _STARTS_BY_ITSELF:
            self._slot.start()
            self._slot.wait(_WAIT_S)
        return self._shown(request, snapshot, "store/pending.html.j2")

    def part(self, request: PageRequest, snapshot: Snapshot) -> Response:
        """The progress and the numbers, which htmx polls."""
        return self._shown(request, snapshot, "store/pending_part.html.j2")

    def start(self, request: PageRequest) -> Response:
        """POST: count again."""
        self._slot.start()
        return request.done("/pending", "The messages are counted.")

    def cancel(self, request: PageRequest) -> Response:
        """POST: end the count."""
        self._slot.cancel()
        return request.done("/pending", "The count is cancelled.")

    def _shown(self, request: PageRequest, snapshot: Snapshot, template: str) -> Response:
        job = self._slot.view
        result = job.result if job is not None else None
        return request.page(
            template,
            **state_of(self._store, snapshot),
            job=job,
            result=result,
            chart=chart_of(result.due_times) if result is not None else None,
            overdue=sum(result.due_times.overdue.values()) if result is not None else 0,
            messages=sum(total.messages for total in result.totals) if result is not None else 0,
            waiting=_waiting_entries(snapshot),
            kinds=list(PendingKind),
        )


def _waiting_entries(snapshot: Snapshot) -> int:
    """How many entries the queues have in which messages wait: more than are pending."""
    return sum(
        queue.max_offset - queue.min_offset
        for queues in snapshot.queues.values()
        for queue in queues
        if holds_pending(queue)
    )
