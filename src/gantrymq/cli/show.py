"""``gantrymq store show``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from gantrymq.cli.body_lines import body_lines
from gantrymq.cli.opened import end_reading, read_options
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store, count
from gantrymq.cli.terminal import DONE, FINDINGS, print_error
from gantrymq.format.body_text import body_text

if TYPE_CHECKING:
    from gantrymq.config.reading import Reading
    from gantrymq.errors import StoreError
    from gantrymq.store.log.commit_log import CommitLog
    from gantrymq.store.reader import StoreReader
    from gantrymq.tools.read.record_rows import Record

_MSG_ID_DIGITS = (32, 56)


def show(
    store: Store,
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="(OFFSET | MSGID | TOPIC KEY)",
            help="A physical offset, the broker's message id, or a topic and a key (or a unique key) of it.",
            show_default=False,
        ),
    ],
    body: Annotated[bool, typer.Option("--body", help="Write only the body to stdout, byte for byte.")] = False,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Print one message with its body.

    The body is decompressed, and printed as JSON, as text, or in hexadecimal.
    A key selects the newest message that has it. The exit code is 1 if there
    is no such message, or its body has a wrong CRC. Nothing is written.

    Examples of use:

        gantrymq store show /data/store 1073741824
        gantrymq store show /data/store 0A00000100002A9F0000000040000000
        gantrymq store show /data/store orders 4711 --json
        gantrymq store show /data/store orders 4711 --body > body.bin
    """
    reading = read_options(config, set_)
    if len(what) > 2:
        raise typer.BadParameter(f"{len(what)} words; give an offset, a message id, or a topic and a key")
    look = _by_key if len(what) == 2 else _by_position
    with look(store, reading, what) as (shown, problems):
        if shown.record is None:
            print_error(shown.text)
        else:
            _show(reading, shown.record, shown.text, body=body, json=json)
        is_right = shown.record is not None and shown.record.is_body_whole
        end_reading(problems, DONE if is_right else FINDINGS)


class _ShownRecord(NamedTuple):
    """The message with a remark, or the reason why there is none."""

    record: Record | None
    text: str = ""


@contextmanager
def _by_position(store: Path, reading: Reading, what: list[str]) -> Iterator[tuple[_ShownRecord, Sequence[StoreError]]]:
    """Find a message by its offset in the log or a message id. The log is read as it is, without a recovery."""
    from gantrymq.cli.log import open_log

    offset, host = _parse_position(what[0])
    opened = open_log(store, reading)
    with closing(opened.log):
        shown = _at(store, opened.log, offset, host)
        yield shown, opened.problems


def _parse_position(word: str) -> tuple[int, str | None]:
    """The offset, and the store host if the word is a message id."""
    if word.isascii() and word.isdecimal() and len(word) not in _MSG_ID_DIGITS:
        return count(word), None
    from gantrymq.model.message import parse_message_id

    try:
        host, offset = parse_message_id(word)
    except ValueError:
        raise typer.BadParameter(f"{word!r} is no offset and no message id; give a key after its topic") from None
    return offset, str(host)


def _at(store: Path, commit_log: CommitLog, offset: int, host: str | None) -> _ShownRecord:
    from gantrymq.tools.read.record_rows import RecordRows

    record = RecordRows(commit_log, print_error).at(offset)
    if record is not None and host in (None, record.fields()["storeHost"]):
        return _ShownRecord(record)
    limits = f"{commit_log.min_offset} to {commit_log.max_offset}"
    text = f"{store}: no message begins at offset {offset} of the log, which spans {limits}"
    hint = "" if host is None else "; the id of a producer is a key: give it after its topic"
    return _ShownRecord(None, text + hint)


@contextmanager
def _by_key(store: Path, reading: Reading, what: list[str]) -> Iterator[tuple[_ShownRecord, Sequence[StoreError]]]:
    """Find the newest message with a key, through the index."""
    from gantrymq.cli.opened import open_reader

    with closing(open_reader(store, reading, trusts_writer=True)) as reader:
        shown = _newest(store, reader, *what)
        yield shown, reader.problems


def _newest(store: Path, reader: StoreReader, topic: str, key: str) -> _ShownRecord:
    from gantrymq.store.lookup import take_exact
    from gantrymq.tools.read.record_rows import RecordRows

    rows = RecordRows(reader.log, print_error)

    def read(offset: int) -> Record | None:
        record = rows.at(offset)
        return record if record is not None and record.has_index_key(topic, key) else None

    max_messages = reader.config.max_msgs_num_batch
    having = take_exact(lambda limit: reader.query_offsets(topic, key, max_num=limit), partial(map, read), max_messages)
    if having:
        more = f"newest of {len(having)} with this key; store query lists them" if len(having) > 1 else ""
        return _ShownRecord(having[0], more)
    is_known = any(queue.topic == topic for queue in reader.consume_queues)
    text = f"no message of topic {topic} has the key {key}" if is_known else f"there is no topic {topic}"
    return _ShownRecord(None, f"{store}: {text}")


def _show(reading: Reading, record: Record, remark: str, *, body: bool, json: bool) -> None:
    raw, note = record.plain_body(reading.config.max_decompressed_body_size_bytes)
    if body:
        sys.stdout.flush()
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
        if note:
            print_error(note)
    elif json:
        _print_json(record, raw)
    else:
        _print_text(record, raw, [text for text in (note, remark) if text])


def _print_json(record: Record, body: bytes) -> None:
    from base64 import b64encode

    from gantrymq.cli.json_lines import JsonLines

    text = body_text(body)
    with JsonLines() as out:
        fields = {**_place_of(record), **record.fields(), "crcOk": record.is_body_whole, "body": text}
        out.write({**fields, "bodyBase64": b64encode(body).decode("ascii") if text is None else None})


def _place_of(record: Record) -> dict[str, object]:
    from gantrymq.kernels import codes

    row = record.row
    return {
        "kind": "message",
        "topic": record.topic,
        "queueId": row[codes.QUEUE_ID],
        "queueOffset": row[codes.QUEUE_OFFSET],
        "phyOffset": row[codes.PHY_OFFSET],
        "size": row[codes.SIZE],
    }


def _print_text(record: Record, body: bytes, remarks: list[str]) -> None:
    from gantrymq.cli.terminal import print_line, print_pairs
    from gantrymq.kernels import codes
    from gantrymq.model.texts import time_text

    row, fields = record.row, record.fields()
    pairs = [
        ("message id", str(fields["msgId"])),
        ("log", f"offset {row[codes.PHY_OFFSET]}, {row[codes.SIZE]} bytes"),
        ("stored", f"{time_text(row[codes.STORE_TIMESTAMP])} at {fields['storeHost']}"),
        ("born", f"{time_text(row[codes.BORN_TIMESTAMP])} at {fields['bornHost']}"),
        *((name, value) for name, value in sorted(record.properties.items())),
        *([("reconsumed", f"{fields['reconsumeTimes']} times")] if fields["reconsumeTimes"] else []),
        ("flags", f"flag {fields['flag']}, sysFlag {fields['sysFlag']}"),
        ("body", f"{len(body)} bytes{'' if record.is_body_whole else ', WRONG CRC'}"),
        *(("", text) for text in remarks),
    ]
    print_pairs(f"{record.topic}, queue {row[codes.QUEUE_ID]}, offset {row[codes.QUEUE_OFFSET]}", pairs)
    print()
    for line in body_lines(body):
        print_line(line)
