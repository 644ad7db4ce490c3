"""The dead letters of a group as a file of JSON lines, in the shape of ``gantrymq admin dlq export``."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from gantrymq.broker.names import dlq_topic
from gantrymq.client.admin.dead_letters import displayed_origin_topic
from gantrymq.client.requests.calls import PullStatus
from gantrymq.client.requests.records import decode_records, or_as_stored
from gantrymq.console.cluster.source import ClusterSession, ClusterSource
from gantrymq.console.page_request import PageRequest, get
from gantrymq.format.message_json import message_fields
from gantrymq.model.message_queue import MessageQueue

_CHUNK = 32


class DeadLetterExport:
    """The download of the dead letters of a group as JSON lines."""

    def __init__(self, source: ClusterSource) -> None:
        self._source = source

    def routes(self) -> list[Route]:
        """The route of the download."""
        return [get("/dlq-export/{name:path}", self.export)]

    def export(self, request: PageRequest) -> Response:
        """All letters of a group with store times in [begin, end), by queue and offset.

        The file is sent while it is read. If a broker fails meanwhile, the download breaks off, so that a browser tells
        it from a whole one.
        """
        group, (begin_ms, end_ms) = request.name(), request.times_ms()
        with self._source.session(request) as session:
            ranges = [
                (queue, _bounds(session, queue, begin_ms, end_ms)) for queue in session.pull.queues(dlq_topic(group))
            ]

        def lines() -> Iterator[bytes]:
            with self._source.lent([]) as session:
                for queue, offsets in ranges:
                    yield from _lines(session, group, queue, offsets)

        name = "".join(
            character if character.isascii() and (character.isalnum() or character in "-_") else "-"
            for character in group
        )
        headers = {"Content-Disposition": f'attachment; filename="dead-letters-{name}.jsonl"'}
        return StreamingResponse(lines(), media_type="application/octet-stream", headers=headers)


def _bounds(session: ClusterSession, queue: MessageQueue, begin_ms: int | None, end_ms: int | None) -> range:
    first = session.pull.min_offset(queue) if begin_ms is None else session.pull.search_offset(queue, begin_ms)
    last = session.pull.max_offset(queue) if end_ms is None else session.pull.search_offset(queue, end_ms)
    return range(first, last)


def _lines(session: ClusterSession, group: str, queue: MessageQueue, offsets: range) -> Iterator[bytes]:
    limit, at = session.config.max_decompressed_body_size, offsets.start
    while at < offsets.stop:
        pulled = session.pull.pull(queue, at, min(offsets.stop - at, _CHUNK))
        for message in decode_records(pulled.records, decompressed=False):
            if message.queue_offset < offsets.stop:
                fields = message_fields(message, or_as_stored(message, limit).body, queue.broker_name)
                fields["originTopic"] = displayed_origin_topic(message.properties, group, session.config.namespace)
                yield orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
        if pulled.next_begin_offset <= at or pulled.status is PullStatus.NO_NEW_MSG:
            return
        at = pulled.next_begin_offset
