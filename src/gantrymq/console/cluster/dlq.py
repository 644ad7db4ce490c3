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

from gantrymq.broker.names import DLQ_PREFIX, dlq_topic
from gantrymq.client.admin.dead_letter_sender import DeadLetterSender
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.clock import Clock, SystemClock
from gantrymq.console.cluster.browse import MessageTable, newest_messages
from gantrymq.console.cluster.source import ClusterSession, ClusterSource
from gantrymq.console.failures import failure_text
from gantrymq.console.page_request import PageRequest, action, get
from gantrymq.console.rendering import url
from gantrymq.errors import GantrymqError, NoRouteError
from gantrymq.model.message_queue import MessageQueue

_MAX_SHOWN = 100  # letters of a page
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
        """Parse BROKER/QUEUE/OFFSET, as :attr:`text` writes it. Raises HTTPException 400."""
        broker, *numbers = text.rsplit("/", 2)
        if len(numbers) != 2 or not all(
            digits.isascii() and digits.isdecimal() and len(digits) < 19 for digits in numbers
        ):
            raise HTTPException(400, f"letter: {text!r} is not BROKER/QUEUE/OFFSET")
        return cls(broker, int(numbers[0]), int(numbers[1]))


class ResendTimes:
    """The times at which the console sent letters again, by group and letter. Thread rule: any thread."""

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
        self._source, self._clock, self._sent = source, clock or SystemClock(), ResendTimes()
        self._sending = threading.Lock()  # two operators who send the same letters: the second one is told

    def routes(self) -> list[Route]:
        """The groups, the letters of one, the question before sending, and the sending."""
        return [
            get("/dlq", self.groups),
            get("/dlq/{name:path}", self.letters),
            get("/resend", self.show_form),
            action("/resend", self.resend),
        ]

    def groups(self, request: PageRequest) -> Response:
        """The groups that have dead letters."""
        with self._source.session(request) as session:
            rows = []
            for topic in session.admin.topics():
                if not topic.startswith(DLQ_PREFIX):
                    continue
                stats = session.optional(topic, partial(session.admin.topic_stats, topic))
                if stats is not None:
                    count = sum(stat.max_offset - stat.min_offset for stat in stats.values())
                    last_ms = max((stat.last_update_timestamp for stat in stats.values()), default=0)
                    rows.append((topic.removeprefix(DLQ_PREFIX), topic, count, last_ms))
        return request.page("cluster/dlq.html.j2", rows=rows)

    def letters(self, request: PageRequest) -> Response:
        """The newest letters of a group, within store times."""
        group = request.name()
        with self._source.session(request) as session:
            begin_ms, end_ms = request.times_ms()
            try:
                listed = newest_messages(
                    session, dlq_topic(group), max_messages=_MAX_SHOWN, begin_ms=begin_ms, end_ms=end_ms
                )
            except NoRouteError:  # the topic is made with the first dead letter
                listed = MessageTable()
        sender = DeadLetterSender(session.admin, session.producer_config(), group)
        rows = [
            (row, letter, sender.origin(row.properties), self._sent.time_ms(group, letter))
            for row in listed.rows
            for letter in [Letter(row.queue.broker_name, row.queue.queue_id, row.queue_offset).text]
        ]
        return request.page(
            "cluster/dead_letters.html.j2",
            group=group,
            rows=rows,
            notes=listed.notes,
            max_shown=_MAX_SHOWN,
            most_sent=_MAX_SENT,
        )

    def show_form(self, request: PageRequest) -> Response:
        """The form that asks which letters to send again, and to which topic. ``all`` takes the newest of a time."""
        group = request.text("group")
        with self._source.session(request) as session:
            letters = _in_time(request, session, group) if request.text("all") else _letters(request)
            return self._question(request, session, group, letters)

    def _question(
        self,
        request: PageRequest,
        session: ClusterSession,
        group: str,
        letters: Sequence[Letter],
        *,
        conflict: str = "",
    ) -> Response:
        rows = [
            (letter, _letter(session, group, letter), self._sent.time_ms(group, letter.text))
            for letter in letters[:_MAX_SHOWN]
        ]
        targets, origins = dict[str, None](), dict[str, str | None]()
        with DeadLetterSender(session.admin, session.producer_config(), group) as sender:
            for letter, message, _ in rows:
                if message is not None:
                    origins[letter.text] = sender.origin(message.properties)
                    try:
                        targets[sender.target(message).topic] = None
                    except GantrymqError as error:
                        session.note_missing(letter.text, error)
        return request.page(
            "cluster/resend.html.j2",
            status=409 if conflict else 200,
            group=group,
            letters=rows,
            chosen=[letter.text for letter in letters],
            targets=list(targets),
            origin=origins,
            conflict=conflict,
            now_ms=self._clock.now_ms(),
            is_cut=len(letters) == _MAX_SENT,
            origins=sorted({origin or "?" for origin in origins.values()}),
        )

    def resend(self, request: PageRequest) -> Response:
        """POST: send letters again, to the retry topic that its consumers read, or to the topic that they came from."""
        group, letters, to = request.text("group"), _letters(request), request.text("to", "group")
        if to not in ("group", "topic"):
            raise HTTPException(400, f"to: {to!r} is neither group nor topic")
        asked_ms = request.number("asked_ms", 0)
        with self._source.session(request) as session, self._sending:
            meanwhile = [letter for letter in letters if (self._sent.time_ms(group, letter.text) or 0) > asked_ms]
            if meanwhile:
                text = f"Nothing was sent: {len(meanwhile)} of these letters were resent since the page was loaded."
                return self._question(request, session, group, letters, conflict=text)
            letter_messages = [(letter, _letter(session, group, letter)) for letter in letters]
            done, problems = self._send(session, group, letter_messages, to)
        text = f"{done} of {len(letters)} dead letters were resent."
        return request.done(url("/dlq", group), " ".join([text, *problems]), is_problem=bool(problems))

    def _send(
        self,
        session: ClusterSession,
        group: str,
        letter_messages: Sequence[tuple[Letter, ReceivedMessage | None]],
        to: str,
    ) -> tuple[int, list[str]]:
        done, problems = 0, list[str]()
        with DeadLetterSender(session.admin, session.producer_config(), group) as sender:
            for letter, message in letter_messages:
                origin = sender.origin(message.properties) if message is not None else None
                if message is None or origin is None:
                    reason = "it is not there any more" if message is None else "it does not name its topic"
                    problems.append(f"{letter.text}: {reason}.")
                    continue
                try:
                    result = sender.send(message, sender.target(message) if to == "group" else origin)
                except GantrymqError as error:
                    problems.append(f"{letter.text}: {failure_text(error)}.")
                    continue
                self._sent.note(group, letter.text, self._clock.now_ms())
                done += 1
                if result.status.name != "SEND_OK":
                    problems.append(f"{letter.text}: {result.status.name}; it is stored, but may be lost.")
        return done, problems


def _letters(request: PageRequest) -> list[Letter]:
    """The letters of a form. Raises a 400 if there are none, or too many."""
    chosen = [Letter.of(letter_text) for letter_text in dict.fromkeys(request.texts("letter"))]
    if not 0 < len(chosen) <= _MAX_SENT:
        raise HTTPException(400, f"Choose 1 to {_MAX_SENT:,} dead letters.")
    return chosen


def _in_time(request: PageRequest, session: ClusterSession, group: str) -> list[Letter]:
    """The newest letters with store times in [begin, end), oldest first."""
    begin_ms, end_ms = request.times_ms()
    rows = newest_messages(session, dlq_topic(group), max_messages=_MAX_SENT, begin_ms=begin_ms, end_ms=end_ms).rows
    if not rows:
        raise HTTPException(404, f"{group} has no dead letters in this time.")
    return [Letter(row.queue.broker_name, row.queue.queue_id, row.queue_offset) for row in reversed(rows)]


def _letter(session: ClusterSession, group: str, letter: Letter) -> ReceivedMessage | None:
    queue = MessageQueue(dlq_topic(group), letter.broker, letter.queue_id)
    return session.admin.message_at(queue, letter.offset)
