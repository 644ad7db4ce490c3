"""Dead letters: how many each group has, the letters of one group, and sending them again.

A dead letter stays in its topic, so sending it twice delivers it twice. The console remembers what it sent again since
its start, marks it, and tells a second operator who sends the same letters.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from gantrymq.broker.names import DLQ_PREFIX, dlq_topic, retry_topic
from gantrymq.client.admin.dead_letters import copy_to_send
from gantrymq.client.producer.producer import Producer
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.clock import Clock, SystemClock
from gantrymq.console.cluster.browse import Found, newest
from gantrymq.console.cluster.source import ClusterSession, ClusterSource
from gantrymq.console.failures import failure_text
from gantrymq.console.rendering import url
from gantrymq.console.view import View, action, get
from gantrymq.errors import GantrymqError, NoRouteError
from gantrymq.model.message import PROPERTY_RETRY_TOPIC
from gantrymq.model.message_queue import MessageQueue

_MOST = 100  # letters of a page
_MAX_SENT = 1_000  # letters of one sending
_MAX_REMEMBERED = 10_000


@dataclass(frozen=True)
class Letter:
    """The place of a dead letter: broker, queue and offset in the group's DLQ topic."""

    broker: str
    queue_id: int
    offset: int

    @property
    def text(self) -> str:
        """Its value in a form."""
        return f"{self.broker}/{self.queue_id}/{self.offset}"

    @classmethod
    def of(cls, text: str) -> Letter:
        """The inverse of :attr:`text`. Raises a 400."""
        broker, *numbers = text.rsplit("/", 2)
        if len(numbers) != 2 or not all(one.isascii() and one.isdecimal() and len(one) < 19 for one in numbers):
            raise HTTPException(400, f"letter: {text!r} is not BROKER/QUEUE/OFFSET")
        return cls(broker, int(numbers[0]), int(numbers[1]))


class SentAgain:
    """When the console sent letters again, by group and place. Thread rule: any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: OrderedDict[tuple[str, str], int] = OrderedDict()

    def time_ms(self, group: str, letter: str) -> int | None:
        """When a letter was last sent again; None if it was not."""
        with self._lock:
            return self._times.get((group, letter))

    def note(self, group: str, letter: str, time_ms: int) -> None:
        """Remember that a letter was sent again."""
        with self._lock:
            self._times[group, letter] = time_ms
            self._times.move_to_end((group, letter))
            while len(self._times) > _MAX_REMEMBERED:
                self._times.popitem(last=False)


class DeadLetterPages:
    """The dead letters of a cluster."""

    def __init__(self, source: ClusterSource, clock: Clock | None = None) -> None:
        self._source, self._clock, self._sent = source, clock or SystemClock(), SentAgain()
        self._sending = threading.Lock()  # two operators who send the same letters: the second one is told

    def routes(self) -> list[Route]:
        """The groups, the letters of one, the question before sending, and the sending."""
        return [
            get("/dlq", self.groups),
            get("/dlq/{name:path}", self.letters),
            get("/resend", self.ask),
            action("/resend", self.resend),
        ]

    def groups(self, view: View) -> Response:
        """The groups that have dead letters."""
        with self._source.session(view) as session:
            rows = []
            for topic in session.admin.topics():
                if not topic.startswith(DLQ_PREFIX):
                    continue
                stats = session.optional(topic, partial(session.admin.topic_stats, topic))
                if stats is not None:
                    count = sum(one.max_offset - one.min_offset for one in stats.values())
                    last_ms = max((one.last_update_timestamp for one in stats.values()), default=0)
                    rows.append((topic.removeprefix(DLQ_PREFIX), topic, count, last_ms))
        return view.page("cluster/dlq.html.j2", rows=rows)

    def letters(self, view: View) -> Response:
        """The newest letters of a group, within store times."""
        group = view.name()
        with self._source.session(view) as session:
            begin_ms, end_ms = view.moment_ms("begin"), view.moment_ms("end")
            try:
                found = newest(session, dlq_topic(group), most=_MOST, begin_ms=begin_ms, end_ms=end_ms)
            except NoRouteError:  # the topic is made with the first dead letter
                found = Found()
        rows = [
            (one, letter, one.properties.get(PROPERTY_RETRY_TOPIC), self._sent.time_ms(group, letter))
            for one in found.rows
            for letter in [Letter(one.queue.broker_name, one.queue.queue_id, one.queue_offset).text]
        ]
        return view.page(
            "cluster/dead_letters.html.j2", group=group, rows=rows, notes=found.notes, most=_MOST, most_sent=_MAX_SENT,
        )  # fmt: skip

    def ask(self, view: View) -> Response:
        """The question before letters are sent again: which, and to where. With ``all`` the newest in a time."""
        group = view.text("group")
        with self._source.session(view) as session:
            letters = _in_time(view, session, group) if view.text("all") else _letters(view)
            return self._question(view, session, group, letters)

    def _question(
        self, view: View, session: ClusterSession, group: str, letters: Sequence[Letter], *, conflict: str = ""
    ) -> Response:
        found = [(one, _letter(session, group, one), self._sent.time_ms(group, one.text)) for one in letters[:_MOST]]
        return view.page(
            "cluster/resend.html.j2",
            status=409 if conflict else 200,
            group=group, letters=found, chosen=[one.text for one in letters],
            target=retry_topic(group), conflict=conflict, now_ms=self._clock.now_ms(),
            is_cut=len(letters) == _MAX_SENT,
            origins=sorted({_origin(one) or "?" for _, one, _ in found if one is not None}),
        )  # fmt: skip

    def resend(self, view: View) -> Response:
        """POST: send letters again, to the group's retry topic, or to the topic that they came from."""
        group, letters, to = view.text("group"), _letters(view), view.text("to", "group")
        if to not in ("group", "topic"):
            raise HTTPException(400, f"to: {to!r} is neither group nor topic")
        asked_ms = view.number("asked_ms", 0)
        with self._source.session(view) as session, self._sending:
            meanwhile = [one for one in letters if (self._sent.time_ms(group, one.text) or 0) > asked_ms]
            if meanwhile:
                text = f"Nothing was sent: {len(meanwhile)} of these letters were resent since the page was loaded."
                return self._question(view, session, group, letters, conflict=text)
            found = [(one, _letter(session, group, one)) for one in letters]
            done, problems = self._send(session, group, found, to)
        text = f"{done} of {len(letters)} dead letters were resent."
        return view.done(url("/dlq", group), " ".join([text, *problems]), is_problem=bool(problems))

    def _send(
        self, session: ClusterSession, group: str, found: Sequence[tuple[Letter, ReceivedMessage | None]], to: str
    ) -> tuple[int, list[str]]:
        done, problems = 0, list[str]()
        with Producer(session.producer_config()) as producer:
            for letter, message in found:
                origin = _origin(message) if message is not None else None
                if message is None or origin is None:
                    reason = "it is not there any more" if message is None else "it does not name its topic"
                    problems.append(f"{letter.text}: {reason}.")
                    continue
                try:
                    result = producer.send(copy_to_send(message, retry_topic(group) if to == "group" else origin))
                except GantrymqError as error:
                    problems.append(f"{letter.text}: {failure_text(error)}.")
                    continue
                self._sent.note(group, letter.text, self._clock.now_ms())
                done += 1
                if result.status.name != "SEND_OK":
                    problems.append(f"{letter.text}: {result.status.name}; it is stored, but may be lost.")
        return done, problems


def _letters(view: View) -> list[Letter]:
    """The letters of a form. Raises a 400 if there are none, or too many."""
    chosen = [Letter.of(one) for one in dict.fromkeys(view.texts("letter"))]
    if not 0 < len(chosen) <= _MAX_SENT:
        raise HTTPException(400, f"Choose 1 to {_MAX_SENT:,} dead letters.")
    return chosen


def _in_time(view: View, session: ClusterSession, group: str) -> list[Letter]:
    """The newest letters with store times in [begin, end), oldest first."""
    begin_ms, end_ms = view.moment_ms("begin"), view.moment_ms("end")
    found = newest(session, dlq_topic(group), most=_MAX_SENT, begin_ms=begin_ms, end_ms=end_ms).rows
    if not found:
        raise HTTPException(404, f"{group} has no dead letters in this time.")
    return [Letter(one.queue.broker_name, one.queue.queue_id, one.queue_offset) for one in reversed(found)]


def _letter(session: ClusterSession, group: str, letter: Letter) -> ReceivedMessage | None:
    queue = MessageQueue(dlq_topic(group), letter.broker, letter.queue_id)
    return session.admin.message_at(queue, letter.offset)


def _origin(message: ReceivedMessage) -> str | None:
    return message.properties.get(PROPERTY_RETRY_TOPIC)
