"""``gantrymq store log``."""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.given_settings import read_options
from gantrymq.cli.messages import DONE, FINDINGS
from gantrymq.cli.missing import end_reading
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store, count

if TYPE_CHECKING:
    from pathlib import Path

    from gantrymq.cli.record_rows import Record
    from gantrymq.config.properties import Reading
    from gantrymq.errors import DiskError, StoreError
    from gantrymq.store.commit_log import CommitLog
    from gantrymq.store.mapped_file import MappedFile

    Item = tuple[int, Record | int | str]  # a physical offset, and a record there, a blank's size, or the end's reason

_RECORDS_A_SCAN = 4096
_WINDOW_BYTES = 8 << 20
_UNREADABLE = "unreadable"
_MAX_REACHED = "--max"
_HEAD = struct.Struct(">iI")


def log(
    store: Store,
    from_: Annotated[
        int | None,
        typer.Option("--from", metavar="OFFSET", parser=count, help="Begin at the record at this physical offset."),
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", metavar="N", parser=count, help="At most so many records.")
    ] = None,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Print the commit log record by record, as it is before any recovery.

    A wrong CRC is told and does not end it; the first thing that is no
    record does, and the last line says what that is. Nothing is written.

    Examples of use:

        gantrymq store log /data/store
        gantrymq store log /data/store --from 1073741824 --max 20
        gantrymq store log /data/store --json | jq -c 'select(.crcOk == false)'
    """
    commit_log, problems = open_log(store, read_options(config, set_))
    with closing(commit_log):
        items = _first(_items(commit_log, commit_log.min_offset if from_ is None else from_), most)
        is_unreadable = (_print_json if json else _print_text)(items)
    end_reading(problems, FINDINGS if is_unreadable else DONE)


def open_log(path: Path, reading: Reading) -> tuple[CommitLog, list[StoreError]]:
    """The log as its files are, and what is missing of it; a blank stands for that.

    The view is private: loading must not even remove an empty file.
    """
    from gantrymq.fs.overlay import OverlayFileSystem
    from gantrymq.store.commit_log import CommitLog
    from gantrymq.store.geometry import find_file_sizes, require_store
    from gantrymq.store.log_view import end_short_files, fill_view
    from gantrymq.store.missing_log import log_problems
    from gantrymq.store.paths import StorePaths

    fs, paths = OverlayFileSystem(), StorePaths.of(path, reading.config)
    require_store(fs, paths)
    sizes = find_file_sizes(fs, paths, reading.config, reading.given)
    commit_log = CommitLog(fs, paths, sizes.mapped_file_size_commit_log)
    problems = log_problems(fs, paths, sizes)
    fill_view(fs, paths, sizes, problems)
    commit_log.load()
    end_short_files(commit_log, problems)
    return commit_log, problems


def _first(items: Iterator[Item], most: int | None) -> Iterator[Item]:
    """The first ``most`` records, and what stands between them; then an end that says where the next one is."""
    from gantrymq.cli.record_rows import Record

    records = 0
    for offset, item in items:
        if isinstance(item, Record):
            if records == most:
                yield offset, _MAX_REACHED
                return
            records += 1
        yield offset, item


def _items(commit_log: CommitLog, offset: int) -> Iterator[Item]:
    """Everything from ``offset`` on; the last item is the end's reason. Raises StoreError for an offset outside."""
    from gantrymq.errors import StoreError

    files = commit_log.queue.files
    if not files:
        yield 0, "end of log"
        return
    if not commit_log.min_offset <= offset <= commit_log.max_offset:
        limits = f"{commit_log.min_offset} to {commit_log.max_offset}"
        raise StoreError(commit_log.queue.directory, f"offset {offset} is outside of the log, which spans {limits}")
    while (file := commit_log.queue.find(offset)) is not None:
        reason = yield from _items_of_file(file, offset - file.file_from_offset)
        if reason:
            return
        offset = file.file_from_offset + file.size
    yield offset, "end of log"


def _items_of_file(file: MappedFile, position: int) -> Generator[Item, None, bool]:
    """The records of one file; returns whether the log ends in it, which then was said."""
    from gantrymq.cli.record_rows import Record
    from gantrymq.kernels import codes
    from gantrymq.kernels.api import scan
    from gantrymq.kernels.arrays import new_columns, read_only

    array, size, base = read_only(file.array.data), file.size, file.file_from_offset
    buffer, columns = array.data, new_columns(_RECORDS_A_SCAN)
    code, window = codes.STOP_FULL, _WINDOW_BYTES
    while code == codes.STOP_FULL:
        limit, error = _readable_end(file, position, window)
        # The end is sought behind the file, so that a file without a blank is told.
        stop = size + 1 if limit == size else limit
        count, code, position = scan(array, position, stop, limit, codes.CHECK_MARK, columns)
        for row in columns[:, :count].T.tolist():
            yield base + row[codes.POS], Record(buffer, row)
        if limit == size or code == codes.STOP_FULL:
            continue
        if count or error is None:  # the next record goes on behind the window
            code, window = codes.STOP_FULL, _WINDOW_BYTES if count else 2 * window
            continue
        yield base + position, f"{_UNREADABLE}: {error}"
        return True
    if code == codes.STOP_BLANK:
        yield base + position, _HEAD.unpack_from(buffer, position)[0]
        return False
    yield base + position, _reason(buffer, position, size - position, code)
    return True


def _readable_end(file: MappedFile, position: int, length: int) -> tuple[int, DiskError | None]:
    """Where bytes from ``position`` on end that are in memory by now; and what the disk says of those behind them."""
    from gantrymq.errors import DiskError

    end = min(position + length, file.size)
    try:
        file.fetch(position, end - position)
    except DiskError as error:
        return max(error.position or position, position), error
    return end, None


def _reason(buffer: memoryview, position: int, rest: int, code: int) -> str:
    """Why the log ends here, in the contract's words."""
    from gantrymq.kernels import codes

    if code == codes.STOP_ZEROS:
        return "zeros"
    if code == codes.STOP_HALF:
        return "half a record"
    if code not in (codes.STOP_MAGIC, codes.STOP_SIZE):
        return "end of file without a blank"
    size, magic = _HEAD.unpack_from(buffer, position)
    if code == codes.STOP_MAGIC:
        return f"magic code {magic:x}"
    # Too small for any record, yet there: it is the rest of it that is missing.
    return "half a record" if 0 < size <= rest else f"size {size}"


def _print_json(items: Iterator[Item]) -> bool:
    """Returns whether the disk did not give back all of the log."""
    from gantrymq.cli.json_lines import JsonLines
    from gantrymq.kernels import codes

    is_unreadable = False
    with JsonLines() as out:
        for offset, item in items:
            if isinstance(item, str):
                is_unreadable = item.startswith(_UNREADABLE)
                out.write({"kind": "end", "phyOffset": offset, "reason": item})
            elif isinstance(item, int):
                out.write({"kind": "blank", "phyOffset": offset, "size": item})
            else:
                row = item.row
                place = {"topic": item.topic, "queueId": row[codes.QUEUE_ID], "queueOffset": row[codes.QUEUE_OFFSET]}
                state = {"version": row[codes.VERSION], "crcOk": row[codes.CRC_OK] == 1}
                head = {**place, "phyOffset": offset, "size": row[codes.SIZE], **state}
                out.write({"kind": "message", **head, **item.fields()})
    return is_unreadable


def _print_text(items: Iterator[Item]) -> bool:
    """Returns whether the disk did not give back all of the log."""
    from gantrymq.cli.lines import print_line
    from gantrymq.cli.record_text import heading, record_text
    from gantrymq.cli.text import count_text
    from gantrymq.kernels import codes

    print(heading("topic/queue@offset"))
    records = bad = 0
    is_unreadable = False
    for offset, item in items:
        if isinstance(item, str):
            is_unreadable = item.startswith(_UNREADABLE)
            print(f"{offset:>14}  end of the records: {item}")
        elif isinstance(item, int):
            print(f"{offset:>14}  {item:>8}  blank: the rest of the file")
        else:
            row = item.row
            records += 1
            bad += not row[codes.CRC_OK]
            place = f"{item.topic}/{row[codes.QUEUE_ID]}@{row[codes.QUEUE_OFFSET]}"
            print_line(f"{record_text(item, place)}{'' if row[codes.CRC_OK] else '  WRONG CRC'}")
    print(f"{count_text(records, 'record')}, {count_text(bad, 'wrong CRC')}" if bad else count_text(records, "record"))
    return is_unreadable
