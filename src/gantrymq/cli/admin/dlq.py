"""Dead letters, the messages of a group's topic ``%DLQ%GROUP``: ``dlq list|export|resend``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from gantrymq.cli.admin.messages import in_this_time, json_fields, list_messages, newest_messages, read_messages
from gantrymq.cli.admin.session import Session, admin_command, new_file, require
from gantrymq.cli.advice import advised
from gantrymq.cli.options import Begin, End, whole_number
from gantrymq.cli.terminal import warn

if TYPE_CHECKING:
    from gantrymq.client.requests.received import ReceivedMessage
    from gantrymq.model.message import StoredMessage

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.", show_default=False)]
_STDOUT = Path("-")


@admin_command
def dlq_list(
    session: Session,
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", show_default=False)] = None,
    begin: Begin = None,
    end: End = None,
    max_messages: Annotated[
        int, typer.Option("--max", metavar="N", parser=whole_number(1), help="The maximum number.")
    ] = 100,
) -> None:
    """List the newest dead letters of a group, oldest first; without a group, the number of each group.

    Examples of use:

        gantrymq admin dlq list
        gantrymq admin dlq list invoices --begin 2026-11-24 --json
    """
    if group is None:
        require(begin is None and end is None, "--begin and --end need a GROUP")
        columns = {"group": "group", "topic": "topic", "messages": ">messages", "lastUpdateTimestamp": "last"}
        session.rows(_counts(session), columns, none="no group has dead letters")
        return
    messages, total = newest_messages(session, _topic(session, group), max_messages, begin, end)
    list_messages(session, iter(messages), none=_none(group, begin, end), origin=partial(_origin, session, group))
    if total > max_messages:
        warn(f"these are the newest {max_messages} of {total}; --max {total} lists all")


def _origin(session: Session, group: str, letter: StoredMessage) -> str | None:
    from gantrymq.client.admin.dead_letters import displayed_origin_topic

    return displayed_origin_topic(letter.properties, group, session.config.namespace)


def _none(group: str, begin: int | None, end: int | None) -> str:
    return f"{group} has no dead letters{in_this_time(begin, end)}"


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
            "messages": sum(stat.max_offset - stat.min_offset for stat in stats),
            "lastUpdateTimestamp": max((stat.last_update_timestamp for stat in stats), default=0),
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
    letters = read_messages(session, _topic(session, group), begin_ms=begin, end_ms=end)
    if out == _STDOUT:
        sys.stdout.flush()
        count = _write(session, group, sys.stdout.buffer, letters)
        sys.stdout.buffer.flush()
    else:
        with new_file(out) as file:
            count = _write(session, group, file, letters)
        row = {"group": group, "out": str(out), "messages": count}
        session.rows([row], {"group": "group", "out": "file", "messages": ">messages"})
    if not count:
        warn(_none(group, begin, end))


def _write(session: Session, group: str, file: BinaryIO, letters: Iterator[ReceivedMessage]) -> int:
    """Write messages as JSON lines. Returns how many."""
    from gantrymq.cli.json_lines import json_line

    count = 0
    for message in letters:
        file.write(json_line({**json_fields(session, message), "originTopic": _origin(session, group, message)}))
        count += 1
    return count


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

    They go to the retry topic that the group's consumers read, so this group alone
    consumes them, under their own topic: %RETRY%GROUP if it pulls that topic,
    %RETRY%GROUP_TOPIC if it pops it. With --topic every group of that topic
    consumes them. A dead letter stays in the DLQ, so sending it twice delivers it twice. The exit code
    is 1 if an id was not found or a message was not stored.

    Examples of use:

        gantrymq admin dlq resend invoices --id 7F00000100002A9F0000000000000000
        gantrymq admin dlq resend invoices --begin 2026-11-24 --dry-run
    """
    chosen = bool(ids) + everything + (begin is not None or end is not None)
    require(chosen == 1, "say which dead letters: --id, --begin and --end, or --all")
    all_letters = read_messages(session, _topic(session, group), begin_ms=begin, end_ms=end)
    missing = set(ids or ())
    columns = {"msgId": "id", "topic": "to", "originTopic": "of topic", "status": "status", "newMsgId": "new id"}
    none = "" if ids else _none(group, begin, end)
    letters = _with_ids(all_letters, missing) if ids else all_letters
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
    session: Session, group: str, letters: Iterator[ReceivedMessage], topic: str | None, *, dry_run: bool
) -> Iterator[dict[str, object]]:
    from gantrymq.client.admin.dead_letter_sender import DeadLetterSender
    from gantrymq.client.requests.records import or_as_stored
    from gantrymq.errors import GantrymqError

    limit = session.config.max_decompressed_body_size
    with DeadLetterSender(session.admin, session.producer_config(), group) as sender:
        for letter in letters:
            row = {"msgId": letter.msg_id, "topic": topic, "originTopic": sender.origin(letter.properties)}
            try:
                target = sender.target(letter) if topic is None else topic
                row["topic"] = target if isinstance(target, str) else target.topic
                if dry_run:
                    yield {**row, "status": "DRY_RUN", "newMsgId": None}
                    continue
                result = sender.send(or_as_stored(letter, limit), target)
            except GantrymqError as error:
                session.finding(f"{letter.msg_id}: {advised(error)}")
                yield {**row, "status": "FAILED", "newMsgId": None}
            else:
                if result.status.name != "SEND_OK":
                    session.finding(f"{letter.msg_id}: {result.status.name}; the message is stored, but may be lost")
                yield {**row, "status": result.status.name, "newMsgId": result.msg_id}
