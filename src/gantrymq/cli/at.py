"""``gantrymq store at``."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from gantrymq.cli.opened import end_reading, read_options
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store, moment_ms, queue_number
from gantrymq.cli.terminal import print_line, warn


def at(
    store: Store,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)],
    queue: Annotated[
        int, typer.Argument(metavar="QUEUE", parser=queue_number, help="The queue's number.", show_default=False)
    ],
    timestamp: Annotated[
        int,
        typer.Argument(
            metavar="TIMESTAMP_MS|TIME",
            parser=moment_ms,
            help="Milliseconds since 1970, or ISO 8601 (UTC).",
            show_default=False,
        ),
    ],
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Find the first queue offset that was stored at a time or later.

    After the last message this is the queue's max offset. The result is that
    of the store after a recovery. Nothing is written.

    Examples of use:

        gantrymq store at /data/store orders 0 1767225600000
        gantrymq store at /data/store orders 0 2026-11-24T08:30:00+01:00
    """
    from gantrymq.cli.opened import open_reader

    with closing(open_reader(store, read_options(config, set_))) as reader:
        offset = reader.offset_at(topic, queue, timestamp)
        consume_queue = reader.consume_queues.get(topic, queue)
    if consume_queue is None:
        warn(f"{store} has no queue {queue} of topic {topic}")
    if json:
        from gantrymq.cli.json_lines import JsonLines

        with JsonLines() as out:
            out.write({"topic": topic, "queueId": queue, "timestamp": timestamp, "queueOffset": offset})
    else:
        from gantrymq.model.texts import time_text

        behind = consume_queue is not None and offset == consume_queue.max_offset
        remark = " (the queue's end: nothing was stored then or later)" if behind else ""
        print_line(f"{topic}, queue {queue}, from {time_text(timestamp)}: queue offset {offset}{remark}")
    end_reading(reader.problems, notes=reader.notes)
