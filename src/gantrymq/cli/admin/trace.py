"""``message trace``: what producers and consumers have recorded of a message in the trace topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.admin.messages import in_this_time
from gantrymq.cli.admin.session import Session, admin_command
from gantrymq.cli.options import Begin, End, whole_number
from gantrymq.model.system_names import TRACE_TOPIC

if TYPE_CHECKING:
    from gantrymq.client.requests.received import ReceivedMessage
    from gantrymq.format.trace import TraceRecord


@admin_command
def trace(
    session: Session,
    msg_id: Annotated[str, typer.Argument(metavar="ID", help="The producer's id.", show_default=False)],
    topic: Annotated[
        str | None,
        typer.Option("--trace-topic", metavar="TOPIC", help="Where traces are.", show_default=TRACE_TOPIC),
    ] = None,
    begin: Begin = None,
    end: End = None,
    max_records: Annotated[
        int, typer.Option("--max", metavar="N", parser=whole_number(1), help="The maximum number.")
    ] = 64,
) -> None:
    """Show the trace of a message: sends, deliveries, decisions of transactions, recalls.

    Clients record traces if they are told to (enableMsgTrace). The exit code is
    1 if there is no record of the message.

    Examples of use:

        gantrymq admin message trace 7F00000100002A9F0000000000000000
        gantrymq admin message trace 7F00000100002A9F0000000000000000 --trace-topic traces --json
    """
    from gantrymq.client.admin.messages import FOREVER_MS

    name = topic or TRACE_TOPIC
    messages = session.admin.query_message(
        name, msg_id, max_num=max_records, begin_ms=begin or 0, end_ms=FOREVER_MS if end is None else end
    )
    rows = sorted(
        (row for message in messages for row in _records(session, message, msg_id)), key=lambda row: row["timestamp"]
    )
    columns = {
        "shownTimestamp": "time",
        "type": "type",
        "group": "group",
        "clientHost": "client",
        "costMs": ">ms",
        "success": "success",
        "retryTimes": ">retries",
    }
    shown = rows if session.is_json else [{**row, "shownTimestamp": row["timestamp"]} for row in rows]
    session.rows(shown, columns)
    if not rows:
        when = in_this_time(begin, end)
        session.finding(f"{name} has no record{when} of message {msg_id}; its clients may not record traces")


def _records(session: Session, message: ReceivedMessage, msg_id: str) -> Iterator[dict[str, int | str | bool]]:
    """The records of a trace message that are about ``msg_id``."""
    from gantrymq.format.trace import decode_traces

    records, unread = decode_traces(bytes(message.body).decode("utf-8", "replace"))
    for part in unread:
        session.finding(f"trace message {message.msg_id} has a part that is no record: {part[:60]!r}")
    for record in records:
        if msg_id in (record.msg_id, record.offset_msg_id):
            yield _fields(record, str(message.born_host).rpartition(":")[0])


def _fields(record: TraceRecord, sender: str) -> dict[str, int | str | bool]:
    return {
        "type": record.type.value,
        "timestamp": record.timestamp_ms,
        "group": record.group,
        "topic": record.topic,
        "msgId": record.msg_id,
        "offsetMsgId": record.offset_msg_id,
        "tags": record.tags,
        "keys": record.keys,
        "storeHost": record.store_host,
        "clientHost": record.client_host or sender,
        "costMs": record.cost_ms,
        "success": record.is_success,
        "requestId": record.request_id,
        "retryTimes": record.retry_times,
        "contextCode": record.context_code,
        "transactionId": record.transaction_id,
        "transactionState": record.transaction_state,
        "fromCheck": record.is_from_check,
    }
