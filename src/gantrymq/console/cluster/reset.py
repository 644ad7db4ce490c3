"""Resetting the offsets of a group for a topic: a preview, a confirmation, and the change.

The confirmation carries the committed offsets of the preview. If another operator moved the group meanwhile, nothing is
done, and a new preview tells so. Offsets of connected consumers advance all the time, so for them only a step back
counts as another operator's work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from gantrymq.client.admin.groups import TO_THE_END
from gantrymq.console.cluster.groups import connection_of, group_settings, progress
from gantrymq.console.cluster.source import ClusterSession, ClusterSource
from gantrymq.console.failures import failure_text
from gantrymq.console.page_request import PageRequest, action, get
from gantrymq.console.rendering import url
from gantrymq.errors import GantrymqError, MQClientError
from gantrymq.model.java import INT_MAX
from gantrymq.model.message_queue import MessageQueue

RESET_POINTS = {"earliest": "the first message", "latest": "the end", "time": "a time", "offset": "an offset"}


@dataclass(frozen=True)
class ResetRequest:
    """Where a group shall go. ``broker`` and ``queue_id`` choose queues; None means all of the topic."""

    group: str
    topic: str
    to: str
    time_ms: int | None
    offset: int | None
    broker: str | None
    queue_id: int | None

    @classmethod
    def of(cls, request: PageRequest) -> ResetRequest:
        """The values of a form. Raises a 400."""
        to = request.text("to", "earliest")
        if to not in RESET_POINTS:
            raise HTTPException(400, f"to: {to!r} is none of {', '.join(RESET_POINTS)}")
        time_ms = request.moment_ms("time") if to == "time" else None
        offset = request.optional_number("offset") if to == "offset" else None
        if to == "time" and time_ms is None:
            raise HTTPException(400, "time: enter the time to go to")
        if to == "offset" and offset is None:
            raise HTTPException(400, "offset: enter the offset to go to")
        for name in ("group", "topic"):
            if not request.text(name):
                raise HTTPException(400, f"{name}: it is missing")
        return cls(
            request.text("group"),
            request.text("topic"),
            to,
            time_ms,
            offset,
            request.text("broker") or None,
            request.optional_number("queue", maximum=INT_MAX),
        )

    @property
    def is_whole_topic(self) -> bool:
        """Whether all queues of the topic move to a time, which the brokers find themselves."""
        return self.broker is None and self.queue_id is None and self.to != "offset"

    @property
    def timestamp_ms(self) -> int:
        """The time for the brokers; ``TO_THE_END`` for the end."""
        return {"earliest": 0, "latest": TO_THE_END}.get(self.to, self.time_ms or 0)


@dataclass(frozen=True)
class Move:
    """A queue's part of the reset. ``committed`` is None if the group has no offset there."""

    queue: MessageQueue
    first: int
    end: int
    committed: int | None
    target: int

    @property
    def difference(self) -> int | None:
        """Messages that are skipped (positive), or consumed again (negative)."""
        return None if self.committed is None else self.target - max(self.committed, self.first)

    @property
    def key(self) -> str:
        """The queue's name in the form."""
        return f"{self.queue.broker_name}/{self.queue.queue_id}"


class ResetPages:
    """The preview and the reset."""

    def __init__(self, source: ClusterSource) -> None:
        self._source = source

    def routes(self) -> list[Route]:
        """The preview (GET) and the reset (POST)."""
        return [get("/reset", self.preview), action("/reset", self.reset)]

    def preview(self, request: PageRequest) -> Response:
        """What a reset would do. Nothing is changed."""
        with self._source.session(request) as session:
            return _preview(request, session, ResetRequest.of(request))

    def reset(self, request: PageRequest) -> Response:
        """POST: move the group, unless another operator has moved it since the preview."""
        wanted = ResetRequest.of(request)
        with self._source.session(request) as session:
            moves = _moves(session, wanted)
            seen, had_members = _seen(request), request.text("members") == "yes"
            moved = [move for move in moves if _was_moved(move, seen, had_members=had_members)]
            if moved or seen.keys() != {move.key for move in moves}:
                names = ", ".join(move.key for move in moved) or "the topic's queues"
                text = f"Nothing was changed: since the preview another operator or a consumer has moved {names}."
                return _preview(request, session, wanted, conflict=text, status=409)
            done, problems = _apply(session, wanted, moves)
        text = f"{wanted.group} was reset in {done} of {len(moves)} queues of {wanted.topic}."
        return request.done(url("/groups", wanted.group), " ".join([text, *problems]), is_problem=bool(problems))


def _preview(
    request: PageRequest, session: ClusterSession, wanted: ResetRequest, *, conflict: str = "", status: int = 200
) -> Response:
    moves = _moves(session, wanted)
    connection = connection_of(session, wanted.group)
    seen = {move.key: move.committed for move in moves}
    return request.page(
        "cluster/reset.html.j2",
        status=status,
        wanted=wanted,
        moves=moves,
        place=RESET_POINTS[wanted.to],
        conflict=conflict,
        members=len(connection.connection_set) if connection else 0,
        seen=json.dumps(seen),
        time_text=request.text("time"),
        again=sum(-(move.difference or 0) for move in moves if (move.difference or 0) < 0),
        skipped=sum(move.difference or 0 for move in moves if (move.difference or 0) > 0),
    )


def _moves(session: ClusterSession, wanted: ResetRequest) -> list[Move]:
    """The moves of all chosen queues. Raises MQClientError if group, topic or queue do not exist."""
    if not group_settings(session, wanted.group):
        raise MQClientError(
            f"There is no group {wanted.group}."
        )  # otherwise offsets of a misspelt name would be stored
    queues = [
        queue
        for queue in session.pull.queues(wanted.topic)
        if wanted.broker in (None, queue.broker_name) and wanted.queue_id in (None, queue.queue_id)
    ]
    if not queues:
        raise MQClientError(f"{wanted.topic} has no such queue that may be read.")
    committed = progress(session, wanted.group, wanted.topic)
    return [
        _move(session, wanted, queue, committed[queue].consumer_offset if queue in committed else None)
        for queue in queues
    ]


def _move(session: ClusterSession, wanted: ResetRequest, queue: MessageQueue, committed: int | None) -> Move:
    first, end = session.pull.min_offset(queue), session.pull.max_offset(queue)
    match wanted.to:
        case "earliest":
            target = first
        case "latest":
            target = end
        case "offset":
            target = min(max(wanted.offset or 0, first), end)
        case _:
            target = session.pull.search_offset(queue, wanted.timestamp_ms)
    return Move(queue, first, end, None if committed is None or committed < 0 else committed, target)


def _seen(request: PageRequest) -> dict[str, int | None]:
    """The committed offsets that the preview showed, by queue. Raises a 400."""
    try:
        seen = json.loads(request.text("seen"))
    except (ValueError, RecursionError):
        seen = None
    if not isinstance(seen, dict) or not all(offset is None or type(offset) is int for offset in seen.values()):
        raise HTTPException(400, "seen: the form is not one of this page")
    return seen


def _was_moved(move: Move, seen: Mapping[str, int | None], *, had_members: bool) -> bool:
    before = seen.get(move.key)
    if had_members:
        return move.committed is not None and before is not None and move.committed < before
    return move.committed != before


def _apply(session: ClusterSession, wanted: ResetRequest, moves: Sequence[Move]) -> tuple[int, list[str]]:
    """Move the group. Returns the number of moved queues, and what failed."""
    problems = list[str]()
    if wanted.is_whole_topic:
        offsets = session.admin.reset_offset_by_time(wanted.group, wanted.topic, wanted.timestamp_ms)
        return len(offsets), problems
    done = 0
    for move in moves:
        try:
            session.admin.reset_offset_of_queue(wanted.group, move.queue, move.target)
            done += 1
        except GantrymqError as error:
            problems.append(f"{move.key}: {failure_text(error)}")
    return done, problems
