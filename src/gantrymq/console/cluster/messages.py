"""Messages: the search, one message with its body, its trace, and which groups have consumed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from gantrymq.client.admin.messages import FOREVER_MS
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.client.requests.routes import TopicRoute
from gantrymq.console.body_view import VIEWS, body_view
from gantrymq.console.cluster.browse import Found, newest, row_of
from gantrymq.console.cluster.source import ClusterSession, ClusterSource
from gantrymq.console.failures import failure_text
from gantrymq.console.names import NORMAL, kind_of
from gantrymq.console.rendering import url
from gantrymq.console.view import View, get
from gantrymq.errors import GantrymqError, MQBrokerError, MQClientError
from gantrymq.format.trace import TRACE_TOPIC, TraceRecord, decode_traces
from gantrymq.model.flags import COMPRESSED
from gantrymq.model.java import INT_MAX
from gantrymq.model.message_queue import MessageQueue
from gantrymq.model.size import size_text
from gantrymq.remoting.codes import ResponseCode

KINDS = {
    "topic": "Topic and time",
    "key": "Key",
    "id": "Message id",
    "unique": "Unique key",
    "offset": "Offset",
}
_MOST = (20, 50, 100, 200)


class MessagePages:
    """The search for messages, and single messages."""

    def __init__(self, source: ClusterSource) -> None:
        self._source = source

    def routes(self) -> list[Route]:
        """The search, a message, its body as a file, its trace."""
        return [
            get("/messages", self.search),
            get("/message", self.message),
            get("/message/body", self.download),
            get("/trace", self.trace),
        ]

    def search(self, view: View) -> Response:
        """The form, and the messages that were found if it was sent."""
        by = view.text("by", "topic")
        if by not in KINDS:
            raise HTTPException(400, f"by: {by!r} is none of {', '.join(KINDS)}")
        with self._source.session(view) as session:
            servers = session.server_names()
            topics = [one for one in session.admin.topics() if kind_of(one, servers) == NORMAL]
            found = problem = None
            if view.text("topic"):
                try:
                    found = _search(view, session, by)
                except (MQClientError, MQBrokerError) as error:
                    problem = failure_text(error) if isinstance(error, MQClientError) else None
                    if problem is None:
                        raise
            return view.page(
                "cluster/messages.html.j2",
                by=by, kinds=KINDS, topics=topics, found=found, problem=problem, counts=_MOST,
            )  # fmt: skip

    def message(self, view: View) -> Response:
        """One message with its properties and its body."""
        with self._source.session(view) as session:
            message = message_of(view, session)
            place = _place(message, session)
            link = {name: view.text(name) for name in ("topic", "broker", "queue", "offset", "id")}
            body = body_view(bytes(message.body), view.text("view"))
            return view.page(
                "message.html.j2",
                title=f"Message of {message.topic}",
                subtitle=message.msg_id,
                facts=_facts(view, message, place),
                properties=sorted(message.properties.items()),
                body=body,
                body_links={one: url("/message", **link, view=one) for one in VIEWS},
                download=url("/message/body", **link),
                links=[
                    ("Trace and consumers", url("/trace", **{**link, "id": message.msg_id})),
                    ("Topic", url("/topics", message.topic)),
                    *_neighbours(link, message, place),
                ],
            )

    def download(self, view: View) -> Response:
        """The whole body as a file. Its type is never one that a browser shows."""
        with self._source.session(view) as session:
            message = message_of(view, session)
        name = "".join(one if one.isascii() and one.isalnum() else "-" for one in message.msg_id) or "body"
        headers = {"Content-Disposition": f'attachment; filename="{name}.bin"'}
        return Response(bytes(message.body), media_type="application/octet-stream", headers=headers)

    def trace(self, view: View) -> Response:
        """What clients have recorded of a message, and which groups of its topic have consumed it."""
        msg_id, trace_topic = view.text("id"), view.text("trace_topic", TRACE_TOPIC)
        with self._source.session(view) as session:
            records, problem = list[TraceRecord](), ""
            tracks: list[Track] | None = None
            if msg_id:
                try:
                    records = _records(session, trace_topic, msg_id)
                except (MQClientError, MQBrokerError) as error:
                    problem = failure_text(error)
                if view.text("topic"):
                    tracks = _tracks(session, message_of(view, session))
            return view.page(
                "cluster/trace.html.j2",
                msg_id=msg_id, trace_topic=trace_topic, records=records, tracks=tracks, problem=problem,
                link={name: view.text(name) for name in ("topic", "broker", "queue", "offset", "id")},
            )  # fmt: skip


def _search(view: View, session: ClusterSession, by: str) -> Found:
    topic, most = view.text("topic"), view.number("most", 50, least=1, most=1000)
    begin_ms, end_ms = view.moment_ms("begin"), view.moment_ms("end")
    what = view.text("key") if by in ("key", "unique") else view.text("id") if by == "id" else ""
    if by in ("key", "unique", "id") and not what:
        return Found(notes=["Enter what to search for."])
    match by:
        case "topic":
            tag = view.text("tag") or "*"
            return newest(
                session, topic, most=most, begin_ms=begin_ms, end_ms=end_ms, tag=tag,
                broker_name=view.text("broker") or None, queue_id=view.optional_number("queue", most=INT_MAX),
            )  # fmt: skip
        case "key":
            messages = session.admin.query_message(
                topic, what, max_num=most, begin_ms=begin_ms or 0, end_ms=FOREVER_MS if end_ms is None else end_ms
            )
        case "unique":
            messages = session.admin.query_message_by_unique_key(
                topic, what, begin_ms=begin_ms or 0, end_ms=FOREVER_MS if end_ms is None else end_ms
            )
        case "id":
            messages = [session.admin.view_message(topic, what)]
        case _:
            messages = _at_offset(view, session, topic)
    return Found([row_of(one, one.broker_name or _broker_name(one, session)) for one in reversed(messages)])


def _at_offset(view: View, session: ClusterSession, topic: str) -> list[ReceivedMessage]:
    """The messages at an offset: one of each broker that has the queue, unless a broker is given."""
    queue_id, offset = view.number("queue", 0, most=INT_MAX), view.number("offset", 0)
    queues = TopicRoute.of(topic, session.admin.topic_route(topic)).subscribe
    wanted = view.text("broker")
    chosen = [one for one in queues if one.queue_id == queue_id and wanted in ("", one.broker_name)]
    if not chosen:
        raise MQClientError(f"{topic} has no queue {queue_id} that may be read there.")
    found = [session.optional(one.broker_name, partial(session.admin.message_at, one, offset)) for one in chosen]
    return [one for one in found if one is not None]


def message_of(view: View, session: ClusterSession) -> ReceivedMessage:
    """The message of a link: by queue and offset, or by id. Raises a 404 if there is none."""
    topic = view.text("topic")
    if not topic:
        raise HTTPException(400, "topic: it is missing")
    if view.text("broker"):
        queue = MessageQueue(topic, view.text("broker"), view.number("queue", 0, most=INT_MAX))
        offset = view.number("offset", 0)
        found = session.admin.message_at(queue, offset)
        if found is None:
            raise HTTPException(404, f"No message is at offset {offset} of queue {queue.queue_id} of {topic}.")
        return found
    return session.admin.view_message(topic, view.text("id"))


def _broker_name(message: ReceivedMessage, session: ClusterSession) -> str:
    """The name of the broker that stored a message; empty if none has the address."""
    host = str(message.store_host)
    return next((one.name for one in session.brokers() if one.address == host), "")


def _place(message: ReceivedMessage, session: ClusterSession) -> MessageQueue:
    return MessageQueue(message.topic, message.broker_name or _broker_name(message, session), message.queue_id)


def _facts(view: View, message: ReceivedMessage, place: MessageQueue) -> list[tuple[str, object]]:
    from gantrymq.console.rendering import time_in

    compressed = message.sys_flag & COMPRESSED
    facts: list[tuple[str, object]] = [
        ("Topic", message.topic),
        ("Tag", message.tags or None),
        ("Keys", " ".join(message.keys) or None),
        ("Queue", f"{message.queue_id} at {place.broker_name or 'an unknown broker'}"),
        ("Queue offset", f"{message.queue_offset:,}"),
        ("Stored", time_in(view.zone, message.store_timestamp_ms)),
        ("Born", time_in(view.zone, message.born_timestamp_ms)),
        ("Born at", str(message.born_host)),
        ("Stored at", str(message.store_host)),
        ("Message id", message.msg_id),
        ("Broker's id", message.offset_msg_id),
        ("Physical offset", f"{message.phy_offset:,} ({size_text(message.size_bytes)} in the log)"),
        ("Reconsumed", f"{message.reconsume_times} times"),
        ("Flags", f"flag {message.flag}, sysFlag {message.sys_flag}"),
    ]
    if compressed:
        facts.append(("Body", "compressed as stored: it cannot be decompressed"))
    return facts


def _neighbours(link: Mapping[str, str], message: ReceivedMessage, place: MessageQueue) -> list[tuple[str, str]]:
    """Links to the messages before and after in the queue, for a message that was found by its offset."""
    if not link["broker"]:
        return []
    where = {"topic": link["topic"], "broker": place.broker_name, "queue": message.queue_id}
    before = [message.queue_offset - 1] if message.queue_offset > message.min_offset else []
    return [
        *(("← Offset before", url("/message", **where, offset=one)) for one in before),
        ("Offset after →", url("/message", **where, offset=message.queue_offset + 1)),
    ]


# Trace


def _records(session: ClusterSession, topic: str, msg_id: str) -> list[TraceRecord]:
    """The records of a message in the trace topic, oldest first."""
    found = list[TraceRecord]()
    for message in session.admin.query_message(topic, msg_id):
        records, unread = decode_traces(bytes(message.body).decode("utf-8", "replace"))
        found += [one for one in records if msg_id in (one.msg_id, one.offset_msg_id)]
        if unread:
            session.missing.append((f"trace message {message.msg_id}", "a part of it is no record"))
    return sorted(found, key=lambda one: one.timestamp_ms)


@dataclass(frozen=True)
class Track:
    """A group of the message's topic: its state, its committed offset there, and whether consumers are connected."""

    group: str
    state: str
    committed: int | None
    is_online: bool


def _tracks(session: ClusterSession, message: ReceivedMessage) -> list[Track]:
    names = {message.broker_name or _broker_name(message, session)}
    try:
        groups = session.admin.topic_consumers(message.topic)
    except GantrymqError as error:
        session.note_missing(message.topic, error)
        return []
    return [_track(session, message, group, names) for group in groups]


def _track(session: ClusterSession, message: ReceivedMessage, group: str, names: set[str]) -> Track:
    stats = session.optional(group, lambda: session.admin.consume_stats(group, message.topic)) or {}
    places = [one for one in stats if one.queue_id == message.queue_id and one.broker_name in names]
    committed = max((stats[queue].consumer_offset for queue in places), default=None)
    online = is_online(session, group)
    if committed is not None and committed > message.queue_offset:
        return Track(group, "consumed, or skipped by its filter", committed, online)
    return Track(group, "not consumed yet" if online else "no consumer is connected", committed, online)


def is_online(session: ClusterSession, group: str) -> bool:
    """Whether consumers of a group are connected."""
    try:
        return bool(session.admin.consumer_connection(group).connection_set)
    except MQBrokerError as error:
        if error.response_code == ResponseCode.CONSUMER_NOT_ONLINE:
            return False
        raise
    except MQClientError:
        return False
