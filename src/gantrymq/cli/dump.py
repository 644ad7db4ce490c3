"""``gantrymq store dump``."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from gantrymq.cli.opened import end_reading, read_options
from gantrymq.cli.options import AsJson, Begin, ConfigFile, End, Settings, Store, count, queue_number, require_range
from gantrymq.cli.terminal import DONE, FINDINGS, print_error, warn

if TYPE_CHECKING:
    from gantrymq.cli.terminal import Report
    from gantrymq.store.queue.consume_queue import ConsumeQueue
    from gantrymq.store.reader import StoreReader
    from gantrymq.tools.read.record_rows import Record

_STEP = "Reading messages"


def dump(
    store: Store,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Only the queues of this topic.")
    ] = None,
    queue: Annotated[
        int | None, typer.Option("--queue", metavar="QUEUE", parser=queue_number, help="Only queues of this number.")
    ] = None,
    from_: Annotated[
        int | None, typer.Option("--from", metavar="N", parser=count, help="Begin each queue at this queue offset.")
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", metavar="N", parser=count, help="The last N messages of each queue.")
    ] = None,
    begin: Begin = None,
    end: End = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Only messages with this tag.")] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max", metavar="N", parser=count, help="At most this many messages.")
    ] = None,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Print the queues, and every message that they point to, in queue order.

    The output is that of the store after a recovery. Nothing is written. The
    exit code is 1 if a queue points to an unreadable record, or to a body
    with a wrong CRC. --from and --tail apply to each queue, --max to all
    queues together. Times are local, with their offset from UTC.

    Examples of use:

        gantrymq store dump /data/store --topic orders --tail 10
        gantrymq store dump /data/store --topic orders --queue 0 --from 4711 --max 5
        gantrymq store dump /data/store --begin 2026-11-24T08:00:00+01:00 --tag paid
        gantrymq store dump /data/store --json > messages.jsonl
    """
    from gantrymq.cli.opened import open_reader

    reading = read_options(config, set_)
    require_range(begin, end)
    records = RecordChoice(begin_ms=begin, end_ms=end, tag=tag)
    wanted = _Wanted(
        topic=topic, queue_id=queue, begin=from_ or 0, tail=tail, max_messages=max_messages, records=records
    )
    with closing(open_reader(store, reading, reads_queue=wanted.reads_all_of)) as reader:
        entries = _Entries(reader, wanted)
        if topic is not None and not entries.queues:
            warn(f"there is no topic {topic}" if queue is None else f"topic {topic} has no queue {queue}")
        print_all = _print_json if json else _print_text
        print_all(store, reader, entries)
        end_reading(reader.problems, FINDINGS if entries.unreadable or entries.wrong_crc else DONE, reader.notes)


@dataclass(frozen=True, kw_only=True)
class RecordChoice:
    """The options that select messages by the contents of their records. None means no restriction."""

    begin_ms: int | None = None
    end_ms: int | None = None
    tag: str | None = None

    def __bool__(self) -> bool:
        """Whether any option restricts the selection."""
        return self != RecordChoice()

    def takes(self, record: Record | None) -> bool:
        """Whether a message is selected. An unreadable one counts as selected."""
        if record is None:
            return True
        from gantrymq.kernels import codes
        from gantrymq.model.message import PROPERTY_TAGS

        stored_ms = record.row[codes.STORE_TIMESTAMP]
        is_late = self.begin_ms is None or stored_ms >= self.begin_ms
        is_early = self.end_ms is None or stored_ms < self.end_ms
        return is_late and is_early and self.tag in (None, record.properties.get(PROPERTY_TAGS))


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """The options that select messages. None means no restriction."""

    topic: str | None
    queue_id: int | None
    begin: int
    tail: int | None
    max_messages: int | None
    records: RecordChoice

    def takes_queue(self, queue: ConsumeQueue) -> bool:
        """Whether the selection takes messages of a queue."""
        return self.topic in (None, queue.topic) and self.queue_id in (None, queue.queue_id)

    def reads_all_of(self, queue: ConsumeQueue) -> bool:
        """Whether all entries of a queue are read."""
        is_part = self.max_messages is not None or self.begin > 0 or (self.tail is not None and not self.records)
        return self.takes_queue(queue) and not is_part


class _Entry(NamedTuple):
    """A unit of a queue, and its record; None if no record can be read."""

    queue_offset: int
    phy_offset: int
    size: int
    tags_code: int
    record: Record | None


class _Entries:
    """The selected queues and their selected entries."""

    def __init__(self, reader: StoreReader, wanted: _Wanted) -> None:
        from gantrymq.tools.read.record_rows import RecordRows

        self.queues = [queue for queue in reader.consume_queues if wanted.takes_queue(queue)]
        self.unreadable = self.wrong_crc = 0
        self._rows = RecordRows(reader.log, print_error)
        self._wanted = wanted
        self._read = 0
        self._total = sum(max(queue.max_offset - self._first(queue), 0) for queue in self.queues)
        self._left = self._total if wanted.max_messages is None else wanted.max_messages
        if not wanted.records:
            self._total = min(self._total, self._left)

    def _first(self, queue: ConsumeQueue) -> int:
        first = max(queue.min_offset, self._wanted.begin)
        if self._wanted.tail is None or self._wanted.records:
            return first
        return max(first, queue.max_offset - self._wanted.tail)

    def of(self, queue: ConsumeQueue, report: Report | None) -> Iterator[_Entry]:
        """Yield the selected entries in order, without blank units."""
        entries: Iterable[_Entry] = self._all(queue, report)
        if self._wanted.records:
            entries = (entry for entry in entries if self._wanted.records.takes(entry.record))
            entries = entries if self._wanted.tail is None else deque(entries, self._wanted.tail)
        for entry in entries if self._left else ():
            self.unreadable += entry.record is None
            self.wrong_crc += entry.record is not None and not entry.record.is_body_whole
            self._left -= 1
            yield entry
            if not self._left:
                break
        if report is not None and (not self._left or queue is self.queues[-1]):
            report(_STEP, self._total, self._total)

    def _all(self, queue: ConsumeQueue, report: Report | None) -> Iterator[_Entry]:
        from gantrymq.format.queue_ext import is_address
        from gantrymq.format.queue_units import Units
        from gantrymq.tools.read.record_rows import MAX_AT_ONCE

        offset = self._first(queue)
        while offset < queue.max_offset:
            max_units = MAX_AT_ONCE if self._wanted.records else min(MAX_AT_ONCE, self._left)
            units = queue.entries(offset, min(max_units, queue.max_offset - offset))
            if not len(units):
                return
            records = self._rows.read(units["phy_offset"].astype("=i8"))
            is_filler = Units(units).is_filler.tolist()
            for (phy_offset, size, tags_code), record, is_skipped in zip(
                units.tolist(), records, is_filler, strict=True
            ):
                if not is_skipped:
                    if record is not None and record.size != size:
                        record = None
                    if is_address(tags_code):
                        tags_code = queue.tags_code(tags_code)
                    yield _Entry(offset, phy_offset, size, tags_code, record)
                offset += 1
            self._read += len(units)
            if report is not None:
                report(_STEP, min(self._read, self._total), self._total)


def _print_json(path: Path, reader: StoreReader, entries: _Entries) -> None:
    from gantrymq.cli.json_lines import JsonLines
    from gantrymq.cli.terminal import progress

    with JsonLines() as out, progress("messages", shown=not sys.stdout.isatty()) as report:
        store = {"minPhyOffset": reader.min_phy_offset, "maxPhyOffset": reader.max_phy_offset, "loaded": True}
        out.write({"kind": "store", **store})
        for queue in entries.queues:
            offsets = {"minOffset": queue.min_offset, "maxOffset": queue.max_offset}
            out.write({"kind": "queue", "topic": queue.topic, "queueId": queue.queue_id, **offsets})
        for queue in entries.queues:
            queue_fields = {"topic": queue.topic, "queueId": queue.queue_id}
            for offset, phy_offset, size, tags_code, record in entries.of(queue, report):
                entry = {**queue_fields, "queueOffset": offset, "phyOffset": phy_offset}
                if record is None:
                    out.write({"kind": "unreadable", **entry})
                else:
                    fields = {**entry, "size": size, "tagsCode": tags_code, **record.fields()}
                    out.write({"kind": "message", **fields, **({} if record.is_body_whole else {"crcOk": False})})


def _print_text(path: Path, reader: StoreReader, entries: _Entries) -> None:
    from gantrymq.cli.records import heading, record_text
    from gantrymq.cli.terminal import print_line, print_table
    from gantrymq.model.texts import count_text

    print_line(f"{path}: offsets {reader.min_phy_offset} to {reader.max_phy_offset}")
    rows = [
        (queue.topic, str(queue.queue_id), str(queue.min_offset), str(queue.max_offset)) for queue in entries.queues
    ]
    print_table(["topic", ">queue", ">min offset", ">max offset"], rows)
    for queue in entries.queues:
        for number, (offset, phy_offset, _, _, record) in enumerate(entries.of(queue, None)):
            if number == 0:
                print_line(f"{queue.topic}, queue {queue.queue_id}")
                print(f"{'offset':>10}  {heading()}")
            text = record_text(record) if record else f"{phy_offset:>14}  unreadable"
            text += "" if record is None or record.is_body_whole else "  WRONG CRC"
            print_line(f"{offset:>10}  {text}")
    if entries.unreadable:
        count = count_text(entries.unreadable, "entry")
        print(f"{count} of the queues point to no readable record")
    if entries.wrong_crc:
        print(f"{count_text(entries.wrong_crc, 'message')} with a body that has a wrong CRC")
