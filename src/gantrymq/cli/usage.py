"""``gantrymq store usage``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gantrymq.cli.opened import end_reading, read_options
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store
from gantrymq.cli.terminal import DONE, FINDINGS, warn

if TYPE_CHECKING:
    from gantrymq.tools.disk_outlook import DiskOutlook, NextDeletion
    from gantrymq.tools.usage import Usage

_MAX_ROWS = 200
_FILES_SHOWN = 3
_MAX_PROBLEMS = 20


def usage(store: Store, config: ConfigFile = None, set_: Settings = None, json: AsJson = False) -> None:
    """Print what each topic takes on each day, when the disk is full, and what retention deletes next.

    Messages and bytes of records are counted from the units of the queues, so
    the log is not read, except for the heads of at most some 33,000 records.
    Days are in UTC, of the time of storing. The output is that of the store
    after a recovery. Nothing is written. Units that cannot be counted are
    named, and the exit code is then 1.

    Examples of use:

        gantrymq store usage /data/store
        gantrymq store usage /data/store --json
    """
    from gantrymq.cli.opened import open_reader
    from gantrymq.cli.terminal import progress
    from gantrymq.clock import SystemClock
    from gantrymq.fs.lock_holder import lock_holder
    from gantrymq.fs.real import RealFileSystem
    from gantrymq.tools.disk_outlook import disk_outlook, next_deletions
    from gantrymq.tools.usage import usage_of

    fs, now_ms = RealFileSystem(), SystemClock().now_ms()
    with closing(open_reader(store, read_options(config, set_), trusts_writer=True)) as reader:
        with progress("messages") as report:
            is_written = lock_holder(reader.paths.lock) is not None
            counted = usage_of(reader, now_ms if is_written else 0, report)
        disk = disk_outlook(reader, counted.growth, now_ms, fs)
        deletions = list(next_deletions(fs, reader.paths, reader.config, now_ms))
        (_print_json if json else _print_text)(str(store), counted, disk, deletions)
        for note in counted.notes:
            warn(note)
        for problem in counted.problems[:_MAX_PROBLEMS]:
            warn(problem)
        if len(counted.problems) > _MAX_PROBLEMS:
            warn(f"{len(counted.problems) - _MAX_PROBLEMS:,} more lines like these: --json prints all")
        end_reading(reader.problems, FINDINGS if counted.problems else DONE, reader.notes)


def _day_text(day: int) -> str:
    """The date of a day. A damaged store time may name a day without one."""
    try:
        return datetime.fromtimestamp(day * 86_400, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return f"day {day}"


def _date_text(moment_ms: int | None) -> str | None:
    return None if moment_ms is None else _day_text(moment_ms // 86_400_000)


def _print_json(store: str, counted: Usage, disk: DiskOutlook | None, deletions: Sequence[NextDeletion]) -> None:
    from gantrymq.cli.json_lines import JsonLines

    with JsonLines() as out:
        for (topic, day), (messages, size) in sorted(counted.rows.items()):
            line = {"topic": topic, "day": _day_text(day), "messages": messages, "bytes": size}
            out.write({"kind": "usage", **line})
        for topic in sorted(set(counted.topics) - {topic for topic, _ in counted.rows}):
            out.write({"kind": "empty", "topic": topic})
        if (growth := counted.growth) is not None:
            times = {"begin": growth.begin_ms, "end": growth.end_ms}
            rates = {"messages": growth.a_day(growth.messages), "bytes": growth.a_day(growth.log_bytes)}
            out.write({"kind": "growth", **times, **rates})
        if disk is not None:
            out.write(
                {
                    "kind": "disk",
                    "path": str(disk.path),
                    "usedPercent": round(disk.used_percent),
                    "freeBytes": disk.free_bytes,
                    "bytesPerDay": disk.bytes_a_day,
                    "refused": _date_text(disk.refused_ms),
                    "full": _date_text(disk.full_ms),
                }
            )
        for file in deletions:
            times = {"expires": file.expires_ms, "deleted": file.deleted_ms}
            out.write({"kind": "retention", "file": str(file.path), "bytes": file.size_bytes, **times})
        for problem in counted.problems:
            out.write({"kind": "problem", "text": problem})
        out.write({"kind": "summary", "messages": counted.messages, "bytes": counted.record_bytes})


def _print_text(store: str, counted: Usage, disk: DiskOutlook | None, deletions: Sequence[NextDeletion]) -> None:
    from gantrymq.cli.terminal import print_pairs, print_table
    from gantrymq.model.size import size_text
    from gantrymq.model.texts import count_text

    topics = count_text(len(counted.topics), "topic")
    pairs = [("messages", f"{counted.messages:,} in {topics}, {size_text(counted.record_bytes)} of records")]
    if (growth := counted.growth) is not None:
        rates = (
            f"{growth.a_day(growth.messages):,} messages and {size_text(growth.a_day(growth.log_bytes))} of log a day"
        )
        pairs.append(("growth", f"{rates}, {_date_text(growth.begin_ms)} to {_date_text(growth.end_ms)}"))
    else:
        pairs.append(("growth", "unknown: the log covers less than an hour"))
    if disk is not None:
        free = "unknown room" if disk.free_bytes is None else f"{size_text(disk.free_bytes)} free"
        pairs.append(("disk", f"{disk.used_percent:.0f} % used, {free}, at {disk.path}"))
        refused, full = _date_text(disk.refused_ms), _date_text(disk.full_ms)
        level = f"above {disk.refused_above_percent} % the broker refuses messages"
        if full is not None:
            pairs.append(("", f"full on {full} at this rate without retention; {level}: on {refused}"))
    pairs += _retention_pairs(deletions)
    print_pairs(store, pairs)
    rows = [
        (topic, _day_text(day), f"{messages:,}", size_text(size))
        for (topic, day), (messages, size) in sorted(counted.rows.items())
    ]
    if rows:
        print_table(["topic", "day (UTC)", ">messages", ">bytes"], rows[:_MAX_ROWS])
    if len(rows) > _MAX_ROWS:
        print(f"{len(rows) - _MAX_ROWS:,} more rows: --json prints all")


def _retention_pairs(deletions: Sequence[NextDeletion]) -> list[tuple[str, str]]:
    from gantrymq.model.size import size_text
    from gantrymq.model.texts import count_text, time_text

    if not deletions:
        return [("retention", "deletes nothing: the log has one file, which stays")]
    first = deletions[0].deleted_ms
    soon = [file for file in deletions if file.deleted_ms < first + 86_400_000]
    why = "for the disk" if deletions[0].is_for_space else "expired"
    size = size_text(sum(file.size_bytes for file in soon))
    pairs = [("retention", f"next: {count_text(len(soon), 'file')}, {size}, from {time_text(first)} on ({why})")]
    pairs += [
        ("", f"{file.path.name}, {size_text(file.size_bytes)}, expires {time_text(file.expires_ms)}")
        for file in deletions[:_FILES_SHOWN]
    ]
    return pairs
