"""One message of a store: its facts, its properties, and its body."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from gantrymq.console.body_view import VIEWS, body_view
from gantrymq.console.page_request import PageRequest, get
from gantrymq.console.rendering import time_in, url
from gantrymq.console.store.looking import looking
from gantrymq.console.store.opened import OpenStore, Snapshot
from gantrymq.kernels import codes
from gantrymq.tools.read.record_rows import Record, RecordRows


class MessagePage:
    """A message by its offset in the commit log, and its body as a file."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        """The page and the download."""
        return [
            get("/messages/{offset:int}", looking(self._store, self.message)),
            get("/messages/{offset:int}/body", looking(self._store, self.body)),
        ]

    def message(self, request: PageRequest, snapshot: Snapshot) -> Response:
        """The page of one message: its fields, its properties and its body."""
        offset, record = _record(request, snapshot)
        body, problem = record.plain_body(snapshot.reader.config.max_decompressed_body_size_bytes)
        row, here = record.row, url("/messages", offset)
        queue_id, queue_offset = row[codes.QUEUE_ID], row[codes.QUEUE_OFFSET]
        facts = _facts(request, record, len(body))
        if not record.is_body_whole:
            facts.insert(0, ("damaged", "the body does not have the CRC that the record names"))
        if problem:
            facts.insert(0, ("body", problem))
        return request.page(
            "message.html.j2",
            title=record.topic,
            subtitle=f"queue {queue_id}, offset {queue_offset:,}",
            facts=facts,
            properties=sorted(record.properties.items()),
            body=body_view(body, request.text("view")),
            body_links={name: url(here, view=name) for name in VIEWS},
            download=url("/messages", offset, "body"),
            links=[
                ("In its queue", url("/messages", by="queue", topic=record.topic, queue=queue_id, offset=queue_offset)),
                ("Topic", url("/topics", record.topic)),
                ("Next in the log", url("/messages", by="place", place=offset + record.size)),
            ],
            back=("Messages", "/messages"),
        )

    def body(self, request: PageRequest, snapshot: Snapshot) -> Response:
        """The decompressed body as a file; as it is stored, if that fails."""
        offset, record = _record(request, snapshot)
        body, _ = record.plain_body(snapshot.reader.config.max_decompressed_body_size_bytes)
        headers = {"Content-Disposition": f'attachment; filename="message-{offset}.bin"'}
        return Response(body, media_type="application/octet-stream", headers=headers)


def _record(request: PageRequest, snapshot: Snapshot) -> tuple[int, Record]:
    offset: int = request.request.path_params["offset"]
    errors: list[str] = []
    record = RecordRows(snapshot.reader.log, errors.append).at(offset) if offset < 1 << 63 else None
    if record is None:
        limits = f"{snapshot.reader.min_phy_offset:,} to {snapshot.reader.max_phy_offset:,}"
        reason = errors[0] if errors else f"The log spans {limits}."
        raise HTTPException(404, f"No readable message begins at offset {offset:,} of the log. {reason}")
    return offset, record


def _facts(request: PageRequest, record: Record, body_bytes: int) -> list[tuple[str, object]]:
    row, fields = record.row, record.fields()
    stored = f" ({row[codes.BODY_LENGTH]:,} as stored)" if row[codes.BODY_LENGTH] != body_bytes else ""
    return [
        ("message id", fields["msgId"]),
        ("commit log", f"offset {row[codes.PHY_OFFSET]}, {record.size:,} bytes"),
        ("stored", time_in(request.zone, row[codes.STORE_TIMESTAMP])),
        ("store host", fields["storeHost"]),
        ("born", time_in(request.zone, row[codes.BORN_TIMESTAMP])),
        ("born host", fields["bornHost"]),
        ("reconsumed", f"{row[codes.RECONSUME_TIMES]:,} times"),
        ("flags", f"flag {row[codes.FLAG]}, sysFlag {row[codes.SYS_FLAG]}"),
        ("prepared transaction offset", row[codes.PREPARED_OFFSET]),
        ("body", f"{body_bytes:,} bytes{stored}"),
    ]
