"""Topics, queues, groups and dead letters of a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from gantrymq.broker.names import DLQ_PREFIX
from gantrymq.console.names import DLQ, kind_of
from gantrymq.console.page_request import PageRequest, get
from gantrymq.console.store.looking import looking, state_of
from gantrymq.console.store.opened import OpenStore, Snapshot
from gantrymq.store.queue.consume_queue import ConsumeQueue

STEP = 100


class StoreTopicPages:
    """The lists and the single topics and groups."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        """The routes of the pages."""
        return [
            get("/topics", looking(self._store, self.topics)),
            get("/topics/{name:path}", looking(self._store, self.topic)),
            get("/groups", looking(self._store, self.groups)),
            get("/groups/{name:path}", looking(self._store, self.group)),
            get("/dlq", looking(self._store, self.dead_letters)),
        ]

    def topics(self, request: PageRequest, snapshot: Snapshot) -> Response:
        """All topics with consume queues."""
        wanted, kind = request.text("q").lower(), request.text("kind")
        rows = [
            (summary, kind_of(summary.topic))
            for summary in snapshot.summary.topics
            if wanted in summary.topic.lower() and kind in ("", kind_of(summary.topic))
        ]
        return self._list(request, snapshot, "store/topics.html.j2", rows, kind=kind)

    def topic(self, request: PageRequest, snapshot: Snapshot) -> Response:
        """One topic: its queues, and the groups that consume it."""
        topic = request.name()
        queues = snapshot.queues.get(topic)
        if queues is None:
            raise HTTPException(404, f"The store has no consume queue of a topic {topic}.")
        start = request.number("start", 0)
        shown = queues[start : start + STEP]
        return request.page(
            "store/topic.html.j2",
            **state_of(self._store, snapshot),
            topic=topic,
            kind=kind_of(topic),
            queues=[(queue, _last_stored_ms(snapshot, queue)) for queue in shown],
            messages=sum(queue.max_offset - queue.min_offset for queue in queues),
            groups=snapshot.lags_of_topic.get(topic, ()),
            group_problem=snapshot.group_problem,
            **_part(start, shown, queues),
        )

    def groups(self, request: PageRequest, snapshot: Snapshot) -> Response:
        """All groups with a committed offset, those that are furthest behind first."""
        wanted = request.text("q").lower()
        lags = (lag for lag in snapshot.lags.values() if wanted in lag.group.lower())
        rows = sorted(lags, key=lambda lag: (-lag.behind, lag.group))
        return self._list(request, snapshot, "store/groups.html.j2", rows, group_problem=snapshot.group_problem)

    def group(self, request: PageRequest, snapshot: Snapshot) -> Response:
        """One group: its progress in each queue."""
        lag = snapshot.lags.get(request.name())
        if lag is None:
            raise HTTPException(404, f"The store has no committed offset of a group {request.name()}.")
        return self._list(request, snapshot, "store/group.html.j2", lag.queues, lag=lag)

    def dead_letters(self, request: PageRequest, snapshot: Snapshot) -> Response:
        """The topics of dead letters, with the newest message of each."""
        topics = [summary for summary in snapshot.summary.topics if kind_of(summary.topic) == DLQ]
        start = request.number("start", 0)
        rows = [
            (summary, summary.topic.removeprefix(DLQ_PREFIX), _newest(snapshot, snapshot.queues.get(summary.topic, ())))
            for summary in topics[start : start + STEP]
        ]
        return request.page(
            "store/dlq.html.j2", **state_of(self._store, snapshot), rows=rows, **_part(start, rows, topics)
        )

    def _list(
        self, request: PageRequest, snapshot: Snapshot, template: str, rows: Sequence[object], **values: Any
    ) -> Response:
        start = request.number("start", 0)
        shown = rows[start : start + STEP]
        state = state_of(self._store, snapshot)
        return request.page(template, **state, rows=shown, q=request.text("q"), **_part(start, shown, rows), **values)


def _part(start: int, shown: Sequence[object], rows: Sequence[object]) -> dict[str, Any]:
    """The values for links to the other parts of a list."""
    return {"start": start, "shown": len(shown), "total": len(rows), "step": STEP}


def _last_stored_ms(snapshot: Snapshot, queue: ConsumeQueue) -> int | None:
    """The store time (ms) of a queue's last message; None if there is none, or it cannot be read."""
    if queue.max_offset == queue.min_offset:
        return None
    stored_ms = snapshot.reader.store_timestamp_ms(queue.topic, queue.queue_id, queue.max_offset - 1)
    return stored_ms if stored_ms > 0 else None


def _newest(snapshot: Snapshot, queues: Sequence[ConsumeQueue]) -> tuple[ConsumeQueue, int] | None:
    """The queue with the newest message of some queues, and its store time (ms)."""
    times = [(queue, _last_stored_ms(snapshot, queue)) for queue in queues]
    known = [(queue, stored_ms) for queue, stored_ms in times if stored_ms is not None]
    return max(known, key=lambda item: item[1], default=None)
