"""``gantrymq store pending``."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.opened import end_reading, read_options
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store, count, moment_ms
from gantrymq.cli.terminal import DONE, FINDINGS, warn

if TYPE_CHECKING:
    from gantrymq.store.reader import StoreReader
    from gantrymq.tools.pending.pending import PendingMessages, Totals
    from gantrymq.tools.pending.waiting import PendingMessage

_MAX_SHOWN = 20


def kind_name(text: str) -> str:
    """A parser of kinds of pending messages."""
    from gantrymq.tools.pending.waiting import PendingKind

    if text not in tuple(PendingKind):
        raise typer.BadParameter(f"{text!r} is none of {', '.join(PendingKind)}")
    return text


def pending(
    store: Store,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind", parser=kind_name, metavar="KIND", help="Only delay, timer, half or pop; may be repeated."
        ),
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only messages to this topic.")] = None,
    due_before: Annotated[
        int | None,
        typer.Option(
            "--due-before", metavar="TIME", parser=moment_ms, help="Due before this time: ms, or ISO 8601 (UTC)."
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Print single messages, those that are due first.")] = False,
    max_shown: Annotated[
        int, typer.Option("-n", "--max", metavar="N", parser=count, help="At most N messages with --list.")
    ] = _MAX_SHOWN,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Print the pending messages of a store, by kind, topic and due time.

    delay: messages with a delay level that is not over. timer: messages with a
    due time. half: transactions that are neither committed nor rolled back;
    they are due when the broker may ask their producer. pop: messages that
    were popped and not acknowledged; they are due when they are visible again.

    The output is that of a broker that starts now. Nothing is written. A
    broker that has the store open writes its tables every few seconds, so its
    last deliveries still count.

    Examples of use:

        gantrymq store pending /data/store
        gantrymq store pending /data/store --kind timer --topic orders --list -n 100
        gantrymq store pending /data/store --due-before 2026-12-01 --json
    """
    from gantrymq.cli.opened import open_reader
    from gantrymq.cli.terminal import progress
    from gantrymq.clock import SystemClock
    from gantrymq.tools.pending.pending import PendingMessages, Totals, first_due, holds_pending
    from gantrymq.tools.pending.waiting import PendingKind

    kinds = tuple(map(PendingKind, kind)) if kind else tuple(PendingKind)
    now_ms = SystemClock().now_ms()
    reading = read_options(config, set_)
    with closing(open_reader(store, reading, trusts_writer=True, reads_queue=holds_pending)) as reader:
        with progress("messages") as report:
            pending_messages = PendingMessages(reader, now_ms, kinds, topic, due_before, report)
            totals = Totals(now_ms)
            counted: Iterator[PendingMessage] = totals.counted(pending_messages)
            messages = first_due(counted, max_shown if list_ else 0)
            deque(counted, maxlen=0)  # without a list no message was read
        for problem in pending_messages.problems:
            warn(problem)
        print_all = _print_json if json else _print_text
        print_all(store, reader, now_ms, totals, messages, pending_messages)
        if pending_messages.unreadable and not json:
            warn(f"{pending_messages.unreadable:,} entries of the waiting topics point to no readable record")
        end_reading(
            reader.problems,
            FINDINGS if pending_messages.unreadable or pending_messages.problems else DONE,
            reader.notes,
        )


def _print_json(
    path: Path,
    reader: StoreReader,
    now_ms: int,
    totals: Totals,
    messages: list[PendingMessage],
    pending_messages: PendingMessages,
) -> None:
    from gantrymq.cli.json_lines import JsonLines

    with JsonLines() as out:
        offsets = {"minPhyOffset": reader.min_phy_offset, "maxPhyOffset": reader.max_phy_offset}
        out.write({"kind": "store", "store": str(path), **offsets, "timestamp": now_ms})
        count = 0
        for total in totals:
            count += total.messages
            due, minute, hour, day, later = total.within
            out.write(
                {
                    "kind": "total",
                    "pending": total.kind,
                    "topic": total.topic,
                    "group": total.group,
                    "messages": total.messages,
                    "due": due,
                    "withinMinute": minute,
                    "withinHour": hour,
                    "withinDay": day,
                    "later": later,
                    "firstDueTimestamp": total.first_due_ms,
                    "lastDueTimestamp": total.last_due_ms,
                }
            )
        for message in messages:
            out.write(
                {
                    "kind": "message",
                    "pending": message.kind,
                    "topic": message.topic,
                    "queueId": message.queue_id,
                    "queueOffset": message.queue_offset if message.queue_offset >= 0 else None,
                    "group": message.group,
                    "dueTimestamp": message.due_ms,
                    "waitsIn": message.waits_in,
                    "phyOffset": message.phy_offset,
                }
            )
        out.write(
            {
                "kind": "end",
                "messages": count,
                "unreadable": pending_messages.unreadable,
                "passedOver": pending_messages.passed_over,
                "problems": list(pending_messages.problems),
            }
        )


def _print_text(
    path: Path,
    reader: StoreReader,
    now_ms: int,
    totals: Totals,
    messages: list[PendingMessage],
    pending_messages: PendingMessages,
) -> None:
    from gantrymq.cli.terminal import print_line, print_table
    from gantrymq.model.texts import count_text, time_text

    rows = [
        (
            total.kind,
            total.topic + (f" ({total.group})" if total.group else ""),
            f"{total.messages:,}",
            *(f"{count:,}" if count else "" for count in total.within),
            time_text(total.first_due_ms),
            time_text(total.last_due_ms),
        )
        for total in totals
    ]
    count = sum(total.messages for total in totals)
    print_line(
        f"{path}: {count_text(count, 'message')} pending at {time_text(now_ms)}"
        if rows
        else f"{path}: nothing is pending"
    )
    if rows:
        horizons = (">due", ">< 1 min", ">< 1 h", ">< 1 d", ">later")
        print_table(["kind", "topic", ">messages", *horizons, "first", "last"], rows)
    if messages:
        print_table(
            ["due", "kind", "topic", ">queue", "group", ">phy offset", ">queue offset"],
            [
                (
                    time_text(message.due_ms),
                    message.kind,
                    message.topic,
                    str(message.queue_id),
                    message.group or "",
                    str(message.phy_offset),
                    str(message.queue_offset) if message.queue_offset >= 0 else "",
                )
                for message in messages
            ],
        )
    if pending_messages.passed_over:
        print_line(
            f"{count_text(pending_messages.passed_over, 'record')} that no broker delivers: the topic was deleted, "
            "or the record does not say where it belongs"
        )
