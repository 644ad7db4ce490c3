"""``gantrymq store query``."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.opened import end_reading, read_options
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store, moment_ms, whole_number
from gantrymq.cli.terminal import DONE, FINDINGS, print_error, warn

if TYPE_CHECKING:
    from gantrymq.store.reader import StoreReader
    from gantrymq.tools.read.record_rows import Record


def query(
    store: Store,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)],
    key: Annotated[
        str,
        typer.Argument(metavar="KEY", help="A key, a unique key, or T#TAG for a tag (5.5.0).", show_default=False),
    ],
    begin: Annotated[
        int,
        typer.Option(
            "--begin",
            metavar="TIME",
            parser=moment_ms,
            help="Stored at this time or later, by the index's time: ms, or ISO 8601 (UTC).",
        ),
    ] = 0,
    end: Annotated[
        int | None,
        typer.Option(
            "--end",
            metavar="TIME",
            parser=moment_ms,
            help="Stored at this time or earlier, by the index's time.",
            show_default="for ever",
        ),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            "--max",
            metavar="N",
            parser=whole_number(1),
            help="At most this many answers.",
            show_default="maxMsgsNumBatch, 64",
        ),
    ] = None,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Find the messages with a key through the index, newest first.

    As in RocketMQ, hash codes are compared, not keys, so messages of another
    key with the same hash are found too. A message that is no longer in the
    log is printed as its offset alone. Store times in the index are up to a
    second too early, so set --begin one second earlier. The output is that of
    the store after a recovery. Nothing is written.

    Examples of use:

        gantrymq store query /data/store orders 4711
        gantrymq store query /data/store orders 4711 --max 1000 --json
        gantrymq store query /data/store orders 'T#paid'
    """
    from gantrymq.cli.opened import open_reader
    from gantrymq.store.index.index_service import EVERYTHING_MS
    from gantrymq.tools.read.record_rows import RecordRows

    with closing(open_reader(store, read_options(config, set_))) as reader:
        end_ms = EVERYTHING_MS if end is None else end
        offsets = reader.query_offsets(topic, key, begin_ms=begin, end_ms=end_ms, max_num=most)
        rows = RecordRows(reader.log, print_error)
        answers = [(offset, rows.at(offset)) for offset in offsets]
        if not answers and not any(queue.topic == topic for queue in reader.consume_queues):
            warn(f"there is no topic {topic}")
        if json:
            _print_json(reader, answers)
        else:
            _print_text(answers)
        end_reading(reader.problems, FINDINGS if rows.errors else DONE, reader.notes)


def _print_json(reader: StoreReader, answers: list[tuple[int, Record | None]]) -> None:
    from gantrymq.cli.json_lines import JsonLines

    with JsonLines() as out:
        for offset, record in answers:
            if record is None:
                out.write({"phyOffset": offset, "readable": False})
            else:
                out.write(_fields(reader, offset, record))


def _fields(reader: StoreReader, offset: int, record: Record) -> dict[str, object]:
    """The line of ``dump``; without tagsCode if no queue entry points to the record (half message, expired unit)."""
    from gantrymq.kernels import codes

    row, topic = record.row, record.topic
    queue = reader.consume_queues.get(topic, row[codes.QUEUE_ID])
    unit = queue.entry(row[codes.QUEUE_OFFSET]) if queue else None
    return {
        "kind": "message",
        "topic": topic,
        "queueId": row[codes.QUEUE_ID],
        "queueOffset": row[codes.QUEUE_OFFSET],
        "phyOffset": offset,
        "size": row[codes.SIZE],
        **({"tagsCode": queue.tags_code(unit.tags_code)} if queue and unit and unit.phy_offset == offset else {}),
        **record.fields(),
    }


def _print_text(answers: list[tuple[int, Record | None]]) -> None:
    from gantrymq.cli.records import heading, record_text
    from gantrymq.cli.terminal import print_line
    from gantrymq.kernels import codes
    from gantrymq.model.texts import count_text

    if answers:
        print(heading("queue@offset"))
    for offset, record in answers:
        if record is None:
            print(f"{offset:>14}  no longer in the log")
        else:
            row = record.row
            print_line(record_text(record, f"{row[codes.QUEUE_ID]}@{row[codes.QUEUE_OFFSET]}"))
    print(count_text(len(answers), "answer") if answers else "nothing found")
