"""Dead letters, the messages of a group's topic ``%DLQ%GROUP``: ``dlq list|export|resend``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.admin.messages import json_fields, list_messages, read_messages
from gantrymq.cli.admin.session import Session, admin_command, new_file, require
from gantrymq.cli.options import Begin, End, whole_number

if TYPE_CHECKING:
    from gantrymq.client.requests.received import ReceivedMessage

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.", show_default=False)]
_STDOUT = Path("-")


@admin_command
def dlq_list(
    session: Session,
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", show_default=False)] = None,
    begin: Begin = None,
    end: End = None,
    most: Annotated[int, typer.Option("--max", metavar="N", parser=whole_number(1), help="The maximum number.")] = 100,
) -> None:
    """List the dead letters of a group; without a group, the number of each group.

    Examples of use:

        gantrymq admin dlq list
        gantrymq admin dlq list invoices --begin 2026-11-24 --json
    """
    if group is None:
        require(begin is None and end is None, "--begin and --end need a GROUP")
        columns = {"group": "group", "topic": "topic", "messages": ">messages", "lastUpdateTimestamp": "last"}
        session.rows(_counts(session), columns, none="no group has dead letters")
        return
    topic = _topic(session, group)
    found = read_messages(session, topic, begin_ms=begin, end_ms=end, most=most)
    list_messages(session, found, none=f"{group} has no dead letters")


def _counts(session: Session) -> Iterator[dict[str, object]]:
    from gantrymq.broker.names import DLQ_PREFIX
    from gantrymq.errors import GantrymqError

    for topic in session.admin.topics():
        if not topic.startswith(DLQ_PREFIX):
            continue
        try:
            stats = session.admin.topic_stats(topic).values()
        except GantrymqError as error:
            session.missing(topic, error)
            continue
        yield {
            "group": topic.removeprefix(DLQ_PREFIX),
            "topic": topic,
            "messages": sum(one.max_offset - one.min_offset for one in stats),
            "lastUpdateTimestamp": max((one.last_update_timestamp for one in stats), default=0),
        }


def _topic(session: Session, group: str) -> str:
    """The topic of a group's dead letters. Raises MQClientError if there is none."""
    from gantrymq.broker.names import dlq_topic
    from gantrymq.errors import MQClientError

    topic = dlq_topic(group)
    if topic not in session.admin.topics():
        raise MQClientError(f"{group} has no dead letters; `gantrymq admin dlq list` shows the groups that have some")
    return topic


@admin_command
def dlq_export(
    session: Session,
    group: Group,
    out: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, or - for stdout.", show_default=False)],
    begin: Begin = None,
    end: End = None,
) -> None:
    """Write the dead letters of a group as JSON lines, with properties and bodies. They stay where they are.

    Examples of use:

        gantrymq admin dlq export invoices dead.jsonl
        gantrymq admin dlq export invoices - --begin 2026-11-24
    """
    from gantrymq.cli.json_lines import json_line

    found = read_messages(session, _topic(session, group), begin_ms=begin, end_ms=end)
    if out == _STDOUT:
        sys.stdout.flush()
        for message in found:
            sys.stdout.buffer.write(json_line(json_fields(session, message)))
        sys.stdout.buffer.flush()
        return
    count = 0
    with new_file(out) as file:
        for message in found:
            file.write(json_line(json_fields(session, message)))
            count += 1
    row = {"group": group, "out": str(out), "messages": count}
    session.rows([row], {"group": "group", "out": "file", "messages": ">messages"})


@admin_command
def dlq_resend(
    session: Session,
    group: Group,
    ids: Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="This message; may be repeated.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All dead letters of the group.")] = False,
    begin: Begin = None,
    end: End = None,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Send to this topic.", show_default="the group alone")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Send nothing, show what would be sent.")] = False,
) -> None:
    """Send dead letters again. Say which: --id, --begin and --end, or --all.

    They go to the group's retry topic, so this group alone consumes them, under
    their own topic. With --topic every group of that topic consumes them. A dead
    letter stays in the DLQ, so sending it twice delivers it twice. The exit code
    is 1 if an id was not found or a message was not stored.

    Examples of use:

        gantrymq admin dlq resend invoices --id 7F00000100002A9F0000000000000000
        gantrymq admin dlq resend invoices --begin 2026-11-24 --dry-run
    """
    chosen = bool(ids) + everything + (begin is not None or end is not None)
    require(chosen == 1, "say which dead letters: --id, --begin and --end, or --all")
    found = read_messages(session, _topic(session, group), begin_ms=begin, end_ms=end)
    missing = set(ids or ())
    columns = {"msgId": "id", "topic": "to", "originTopic": "of topic", "status": "status", "newMsgId": "new id"}
    none = "" if ids else f"{group} has no such dead letters"
    letters = _with_ids(found, missing) if ids else found
    session.rows(_resent(session, group, letters, topic, dry_run=dry_run), columns, none=none)
    for msg_id in sorted(missing):
        session.finding(f"no dead letter of {group} has the id {msg_id}")


def _with_ids(letters: Iterator[ReceivedMessage], missing: set[str]) -> Iterator[ReceivedMessage]:
    """The messages with one of the ids, which are removed from ``missing`` as they are found."""
    wanted = frozenset(missing)
    for letter in letters:
        names = wanted & {letter.msg_id, letter.offset_msg_id}
        if names:
            missing -= names
            yield letter


def _resent(
    session: Session, group: str, found: Iterator[ReceivedMessage], topic: str | None, *, dry_run: bool
) -> Iterator[dict[str, object]]:
    from contextlib import nullcontext

    from gantrymq.broker.names import retry_topic
    from gantrymq.client.admin.dead_letters import copy_to_send
    from gantrymq.client.producer.producer import Producer
    from gantrymq.client.requests.records import or_as_stored
    from gantrymq.errors import GantrymqError
    from gantrymq.model.message import PROPERTY_RETRY_TOPIC

    target = retry_topic(group) if topic is None else topic
    limit = session.config.max_decompressed_body_size
    with nullcontext() if dry_run else Producer(session.producer_config()) as producer:
        for letter in found:
            origin = letter.properties.get(PROPERTY_RETRY_TOPIC)
            row = {"msgId": letter.msg_id, "topic": target, "originTopic": origin}
            if origin is None and topic is None:
                session.finding(f"{letter.msg_id} does not say of which topic it was; give --topic")
                yield {**row, "status": "FAILED", "newMsgId": None}
                continue
            if producer is None:
                yield {**row, "status": "DRY_RUN", "newMsgId": None}
                continue
            try:
                result = producer.send(copy_to_send(or_as_stored(letter, limit), target))
            except GantrymqError as error:
                session.missing(letter.msg_id, error)
                yield {**row, "status": "FAILED", "newMsgId": None}
            else:
                if result.status.name != "SEND_OK":
                    session.finding(f"{letter.msg_id}: {result.status.name}; the message is stored, but may be lost")
                yield {**row, "status": result.status.name, "newMsgId": result.msg_id}
