"""``gantrymq store dump``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.given_settings import read_options
from gantrymq.cli.messages import DONE, FINDINGS
from gantrymq.cli.missing import end_reading
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store, count, queue_number

if TYPE_CHECKING:
    from gantrymq.cli.progress import Report
    from gantrymq.cli.record_rows import Record
    from gantrymq.store.consume_queue import ConsumeQueue
    from gantrymq.store.reader import StoreReader


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
    most: Annotated[
        int | None, typer.Option("--max", metavar="N", parser=count, help="At most so many messages.")
    ] = None,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Print the queues, and every message that they lead to, in queue order.

    Shows what a recovery would leave, without writing a byte. The exit code
    is 1 where a queue points at something that cannot be read. --from is
    about each queue, --max about all of them together.

    Examples of use:

        gantrymq store dump /data/store --topic orders --max 10
        gantrymq store dump /data/store --topic orders --queue 0 --from 4711
        gantrymq store dump /data/store --json > messages.jsonl
    """
    from gantrymq.cli.opened import open_reader

    reading = read_options(config, set_)
    with closing(open_reader(store, reading)) as reader:
        entries = _Entries(reader, topic, queue, from_ or 0, most)
        print_all = _print_json if json else _print_text
        end_reading(reader.problems, FINDINGS if print_all(store, reader, entries) else DONE)


class _Entries:
    """The queues that were asked for, and the entries of theirs that were."""

    def __init__(
        self, reader: StoreReader, topic: str | None, queue_id: int | None, begin: int, most: int | None
    ) -> None:
        self.queues = [
            queue
            for queue in reader.consume_queues
            if topic in (None, queue.topic) and queue_id in (None, queue.queue_id)
        ]
        self.unreadable = 0
        from gantrymq.cli.record_rows import RecordRows

        self._rows = RecordRows(reader.log)
        self._begin = begin
        self._left = sum(max(queue.max_offset - self._first(queue), 0) for queue in self.queues)
        self._left = self._total = self._left if most is None else min(most, self._left)

    def _first(self, queue: ConsumeQueue) -> int:
        return max(queue.min_offset, self._begin)

    def of(self, queue: ConsumeQueue, report: Report | None) -> Iterator[tuple[int, int, int, int, Record | None]]:
        """(queue offset, physical offset, size, tags code, record or None) in order; pre-blanks are passed over."""
        from gantrymq.cli.record_rows import MOST_AT_ONCE
        from gantrymq.format.queue_entry import BLANK_UNIT_SIZE
        from gantrymq.format.queue_ext import is_address

        offset = self._first(queue)
        while self._left > 0 and offset < queue.max_offset:
            units = queue.entries(offset, min(MOST_AT_ONCE, queue.max_offset - offset, self._left))
            if not len(units):
                return
            records = self._rows.read(units["phy_offset"].astype("=i8"))
            for (phy_offset, size, tags_code), record in zip(units.tolist(), records, strict=True):
                if size != BLANK_UNIT_SIZE:
                    if record is not None and record.size != size:
                        record = None
                    if is_address(tags_code):
                        tags_code = queue.tags_code(tags_code)
                    self.unreadable += record is None
                    self._left -= 1
                    yield offset, phy_offset, size, tags_code, record
                offset += 1
            if report is not None:
                report("Reading messages", self._total - self._left, self._total)


def _print_json(path: Path, reader: StoreReader, entries: _Entries) -> int:
    """Returns how many entries were unreadable."""
    from gantrymq.cli.json_lines import JsonLines
    from gantrymq.cli.progress import progress

    with JsonLines() as out, progress("messages", shown=not sys.stdout.isatty()) as report:
        store = {"minPhyOffset": reader.min_phy_offset, "maxPhyOffset": reader.max_phy_offset, "loaded": True}
        out.write({"kind": "store", **store})
        for queue in entries.queues:
            offsets = {"minOffset": queue.min_offset, "maxOffset": queue.max_offset}
            out.write({"kind": "queue", "topic": queue.topic, "queueId": queue.queue_id, **offsets})
        for queue in entries.queues:
            place = {"topic": queue.topic, "queueId": queue.queue_id}
            for offset, phy_offset, size, tags_code, record in entries.of(queue, report):
                entry = {**place, "queueOffset": offset, "phyOffset": phy_offset}
                if record is None:
                    out.write({"kind": "unreadable", **entry})
                else:
                    out.write({"kind": "message", **entry, "size": size, "tagsCode": tags_code, **record.fields()})
    return entries.unreadable


def _print_text(path: Path, reader: StoreReader, entries: _Entries) -> int:
    """Returns how many entries were unreadable."""
    from gantrymq.cli.lines import print_line
    from gantrymq.cli.record_text import heading, record_text
    from gantrymq.cli.text import count_text, print_table

    print_line(f"{path}: offsets {reader.min_phy_offset} to {reader.max_phy_offset}")
    rows = [
        (queue.topic, str(queue.queue_id), str(queue.min_offset), str(queue.max_offset)) for queue in entries.queues
    ]
    print_table(["topic", ">queue", ">min offset", ">max offset"], rows)
    for queue in entries.queues:
        for place, (offset, phy_offset, _, _, record) in enumerate(entries.of(queue, None)):
            if place == 0:
                print_line(f"{queue.topic}, queue {queue.queue_id}")
                print(f"{'offset':>10}  {heading()}")
            text = record_text(record) if record else f"{phy_offset:>14}  unreadable"
            print_line(f"{offset:>10}  {text}")
    if entries.unreadable:
        count = count_text(entries.unreadable, "entry")
        print(f"{count} of the queues point at nothing readable")
    return entries.unreadable
