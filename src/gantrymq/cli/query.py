"""``gantrymq store query``."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.opened import end_reading, read_options
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store, moment_ms, require_range, whole_number
from gantrymq.cli.terminal import DONE, FINDINGS, print_error, warn

if TYPE_CHECKING:
    from gantrymq.store.reader import StoreReader
    from gantrymq.tools.read.record_rows import Record, RecordRows


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
    max_messages: Annotated[
        int | None,
        typer.Option(
            "--max",
            metavar="N",
            parser=whole_number(1),
            help="At most this many answers.",
            show_default="maxMsgsNumBatch, 64",
        ),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="All answers of the index, of any topic and key.")] = False,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Find the messages with a key through the index, newest first.

    The index has only hash codes. Messages of another topic or key with the
    same hash are left out; --raw prints them too, as RocketMQ does. A message
    that is no longer in the log, or cannot be read, is printed as its offset
    alone, because its key is not known. Store times in the index are up to a
    second too early, so set --begin one second earlier. The output is that of
    the store after a recovery. Nothing is written.

    Examples of use:

        gantrymq store query /data/store orders 4711
        gantrymq store query /data/store orders 4711 --max 1000 --json
        gantrymq store query /data/store orders 'T#paid'
        gantrymq store query /data/store orders 4711 --raw
    """
    from gantrymq.cli.opened import open_reader
    from gantrymq.store.index.index_service import EVERYTHING_MS
    from gantrymq.tools.read.record_rows import RecordRows

    require_range(begin, end, includes_end=True)
    with closing(open_reader(store, read_options(config, set_))) as reader:
        rows = RecordRows(reader.log, print_error)
        times = begin, EVERYTHING_MS if end is None else end
        answers = _answers(reader, rows, (topic, key), times, max_messages, is_raw=raw)
        _warn_of_no_topic(reader, topic, answers)
        _print_json(reader, answers) if json else _print_text(answers, with_topic=raw)
        end_reading(reader.problems, FINDINGS if rows.errors else DONE, reader.notes)


def _answers(
    reader: StoreReader,
    rows: RecordRows,
    wanted: tuple[str, str],
    times: tuple[int, int],
    max_messages: int | None,
    *,
    is_raw: bool,
) -> list[tuple[int, Record | None]]:
    """The offsets of a topic and key with their records. A record that cannot be read may have the key."""
    from gantrymq.store.lookup import take_exact

    def find(limit: int) -> list[int]:
        return reader.query_offsets(*wanted, begin_ms=times[0], end_ms=times[1], max_num=limit)

    def read(offset: int) -> tuple[int, Record | None] | None:
        record = rows.at(offset)
        return (offset, record) if is_raw or record is None or record.has_index_key(*wanted) else None

    return take_exact(
        find, partial(map, read), reader.config.max_msgs_num_batch if max_messages is None else max_messages
    )


def _warn_of_no_topic(reader: StoreReader, topic: str, answers: list[tuple[int, Record | None]]) -> None:
    if not answers and not any(queue.topic == topic for queue in reader.consume_queues):
        warn(f"there is no topic {topic}")


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


def _print_text(answers: list[tuple[int, Record | None]], *, with_topic: bool) -> None:
    from gantrymq.cli.records import heading, record_text
    from gantrymq.cli.terminal import print_line
    from gantrymq.kernels import codes
    from gantrymq.model.texts import count_text

    if answers:
        print(heading("topic/queue@offset" if with_topic else "queue@offset"))
    for offset, record in answers:
        if record is None:
            print(f"{offset:>14}  no longer in the log")
        else:
            row = record.row
            topic = f"{record.topic}/" if with_topic else ""
            print_line(record_text(record, f"{topic}{row[codes.QUEUE_ID]}@{row[codes.QUEUE_OFFSET]}"))
    print(count_text(len(answers), "answer") if answers else "nothing found")
