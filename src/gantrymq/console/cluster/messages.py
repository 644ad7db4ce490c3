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
from gantrymq.console.cluster.browse import MessageTable, message_row, newest_messages
from gantrymq.console.cluster.source import ClusterSession, ClusterSource
from gantrymq.console.failures import failure_text
from gantrymq.console.names import NORMAL, kind_of
from gantrymq.console.page_request import PageRequest, get
from gantrymq.console.rendering import url
from gantrymq.errors import GantrymqError, MQBrokerError, MQClientError
from gantrymq.format.trace import TraceRecord, decode_traces
from gantrymq.model.flags import COMPRESSED
from gantrymq.model.java import INT_MAX
from gantrymq.model.message_queue import MessageQueue
from gantrymq.model.size import size_text
from gantrymq.model.system_names import TRACE_TOPIC
from gantrymq.remoting.codes import ResponseCode

KINDS = {
    "topic": "Topic and time",
    "key": "Key",
    "id": "Message id",
    "unique": "Unique key",
    "offset": "Offset",
}
_COUNTS = (20, 50, 100, 200)


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

    def search(self, request: PageRequest) -> Response:
        """The form, and the messages that were found if it was sent."""
        by = request.text("by", "topic")
        if by not in KINDS:
            raise HTTPException(400, f"by: {by!r} is none of {', '.join(KINDS)}")
        with self._source.session(request) as session:
            servers = session.server_names()
            topics = [topic for topic in session.admin.topics() if kind_of(topic, servers) == NORMAL]
            result = problem = None
            if request.text("topic"):
                try:
                    result = _search(request, session, by)
                except (MQClientError, MQBrokerError) as error:
                    problem = failure_text(error) if isinstance(error, MQClientError) else None
                    if problem is None:
                        raise
            return request.page(
                "cluster/messages.html.j2",
                by=by,
                kinds=KINDS,
                topics=topics,
                found=result,
                problem=problem,
                counts=_COUNTS,
            )

    def message(self, request: PageRequest) -> Response:
        """One message with its properties and its body."""
        with self._source.session(request) as session:
            message = message_of(request, session)
            message_queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
            link = {name: request.text(name) for name in ("topic", "broker", "queue", "offset", "id")}
            body = body_view(bytes(message.body), request.text("view"))
            return request.page(
                "message.html.j2",
                title=f"Message of {message.topic}",
                subtitle=message.msg_id,
                facts=_facts(request, message, message_queue),
                properties=sorted(message.properties.items()),
                body=body,
                body_links={view: url("/message", **link, view=view) for view in VIEWS},
                download=url("/message/body", **link),
                links=[
                    ("Trace and consumers", url("/trace", **{**link, "id": message.msg_id})),
                    ("Topic", url("/topics", message.topic)),
                    *_neighbours(link, message, message_queue),
                ],
            )

    def download(self, request: PageRequest) -> Response:
        """The whole body as a file. Its type is never one that a browser shows."""
        with self._source.session(request) as session:
            message = message_of(request, session)
        name = (
            "".join(character if character.isascii() and character.isalnum() else "-" for character in message.msg_id)
            or "body"
        )
        headers = {"Content-Disposition": f'attachment; filename="{name}.bin"'}
        return Response(bytes(message.body), media_type="application/octet-stream", headers=headers)

    def trace(self, request: PageRequest) -> Response:
        """What clients have recorded of a message, and which groups of its topic have consumed it."""
        msg_id, trace_topic = request.text("id"), request.text("trace_topic", TRACE_TOPIC)
        with self._source.session(request) as session:
            records, problem = list[TraceRecord](), ""
            tracks: list[Track] | None = None
            if msg_id:
                try:
                    records = _records(session, trace_topic, msg_id)
                except (MQClientError, MQBrokerError) as error:
                    problem = failure_text(error)
                if request.text("topic"):
                    tracks = _tracks(session, message_of(request, session))
            return request.page(
                "cluster/trace.html.j2",
                msg_id=msg_id,
                trace_topic=trace_topic,
                records=records,
                tracks=tracks,
                problem=problem,
                link={name: request.text(name) for name in ("topic", "broker", "queue", "offset", "id")},
            )


def _search(request: PageRequest, session: ClusterSession, by: str) -> MessageTable:
    topic, max_messages = request.text("topic"), request.number("most", 50, minimum=1, maximum=1000)
    begin_ms, end_ms = request.times_ms()
    what = request.text("key") if by in ("key", "unique") else request.text("id") if by == "id" else ""
    if by in ("key", "unique", "id") and not what:
        return MessageTable(notes=["Enter what to search for."])
    match by:
        case "topic":
            tag = request.text("tag") or "*"
            return newest_messages(
                session,
                topic,
                max_messages=max_messages,
                begin_ms=begin_ms,
                end_ms=end_ms,
                tag=tag,
                broker_name=request.text("broker") or None,
                queue_id=request.optional_number("queue", maximum=INT_MAX),
            )
        case "key":
            messages = session.admin.query_message(
                topic,
                what,
                max_num=max_messages,
                begin_ms=begin_ms or 0,
                end_ms=FOREVER_MS if end_ms is None else end_ms,
            )
        case "unique":
            messages = session.admin.query_message_by_unique_key(
                topic, what, begin_ms=begin_ms or 0, end_ms=FOREVER_MS if end_ms is None else end_ms
            )
        case "id":
            messages = [session.admin.view_message(topic, what)]
        case _:
            messages = _at_offset(request, session, topic)
    return MessageTable([message_row(message, message.broker_name) for message in reversed(messages)])


def _at_offset(request: PageRequest, session: ClusterSession, topic: str) -> list[ReceivedMessage]:
    """The messages at an offset: one of each broker that has the queue, unless a broker is given."""
    queue_id, offset = request.number("queue", 0, maximum=INT_MAX), request.number("offset", 0)
    queues = TopicRoute.of(topic, session.admin.topic_route(topic)).subscribe
    wanted = request.text("broker")
    chosen = [queue for queue in queues if queue.queue_id == queue_id and wanted in ("", queue.broker_name)]
    if not chosen:
        raise MQClientError(f"{topic} has no queue {queue_id} that may be read there.")
    messages = [
        session.optional(matching.broker_name, partial(session.admin.message_at, matching, offset))
        for matching in chosen
    ]
    return [message for message in messages if message is not None]


def message_of(request: PageRequest, session: ClusterSession) -> ReceivedMessage:
    """The message of a link: by queue and offset, or by id. Raises a 404 if there is none."""
    topic = request.text("topic")
    if not topic:
        raise HTTPException(400, "topic: it is missing")
    if request.text("broker"):
        queue = MessageQueue(topic, request.text("broker"), request.number("queue", 0, maximum=INT_MAX))
        offset = request.number("offset", 0)
        message = session.admin.message_at(queue, offset)
        if message is None:
            raise HTTPException(404, f"No message is at offset {offset} of queue {queue.queue_id} of {topic}.")
        return message
    return session.admin.view_message(topic, request.text("id"))


def _facts(request: PageRequest, message: ReceivedMessage, message_queue: MessageQueue) -> list[tuple[str, object]]:
    from gantrymq.console.rendering import time_in

    compressed = message.sys_flag & COMPRESSED
    facts: list[tuple[str, object]] = [
        ("Topic", message.topic),
        ("Tag", message.tags or None),
        ("Keys", " ".join(message.keys) or None),
        ("Queue", f"{message.queue_id} at {message_queue.broker_name or 'an unknown broker'}"),
        ("Queue offset", f"{message.queue_offset:,}"),
        ("Stored", time_in(request.zone, message.store_timestamp_ms)),
        ("Born", time_in(request.zone, message.born_timestamp_ms)),
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


def _neighbours(
    link: Mapping[str, str], message: ReceivedMessage, message_queue: MessageQueue
) -> list[tuple[str, str]]:
    """Links to the messages before and after in the queue, for a message that was found by its offset."""
    if not link["broker"]:
        return []
    where = {"topic": link["topic"], "broker": message_queue.broker_name, "queue": message.queue_id}
    before = [message.queue_offset - 1] if message.queue_offset > message.min_offset else []
    return [
        *(("← Offset before", url("/message", **where, offset=other)) for other in before),
        ("Offset after →", url("/message", **where, offset=message.queue_offset + 1)),
    ]


# Trace


def _records(session: ClusterSession, topic: str, msg_id: str) -> list[TraceRecord]:
    """The records of a message in the trace topic, oldest first."""
    found_records = list[TraceRecord]()
    for message in session.admin.query_message(topic, msg_id):
        records, unread = decode_traces(bytes(message.body).decode("utf-8", "replace"))
        found_records += [record for record in records if msg_id in (record.msg_id, record.offset_msg_id)]
        if unread:
            session.missing.append((f"trace message {message.msg_id}", "a part of it is no record"))
    return sorted(found_records, key=lambda record: record.timestamp_ms)


@dataclass(frozen=True)
class Track:
    """A group of the message's topic: its state, its committed offset there, and whether consumers are connected."""

    group: str
    state: str
    committed: int | None
    is_online: bool


def _tracks(session: ClusterSession, message: ReceivedMessage) -> list[Track]:
    try:
        groups = session.admin.topic_consumers(message.topic)
    except GantrymqError as error:
        session.note_missing(message.topic, error)
        return []
    return [_track(session, message, group) for group in groups]


def _track(session: ClusterSession, message: ReceivedMessage, group: str) -> Track:
    stats = session.optional(group, lambda: session.admin.consume_stats(group, message.topic)) or {}
    wrapper = stats.get(MessageQueue(message.topic, message.broker_name, message.queue_id))
    committed = None if wrapper is None else wrapper.consumer_offset
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
