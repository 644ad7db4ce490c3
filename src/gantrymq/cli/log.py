"""``gantrymq store log``."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from gantrymq.cli.opened import end_reading, read_options, warn_of_contents
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store, count
from gantrymq.format.stop_reason import StopReason

if TYPE_CHECKING:
    from pathlib import Path

    from gantrymq.config.reading import Reading
    from gantrymq.errors import DiskError, StoreError
    from gantrymq.fs.reads import LostPages
    from gantrymq.store.log.commit_log import CommitLog
    from gantrymq.store.log.mapped_file import MappedFile
    from gantrymq.store.log.record_chain import RecordChain
    from gantrymq.store.recovery.log_passes import LostRecords
    from gantrymq.tools.read.record_rows import Record

_MAX_REACHED = "--max"


class Lost(NamedTuple):
    """Bytes of the log up to the next valid record. The disk cannot read some of them."""

    size: int
    error: DiskError


if TYPE_CHECKING:
    # A physical offset with a record, the size of a blank, lost bytes, or the reason of the end.
    Item = tuple[int, Record | int | Lost | str]


def log(
    store: Store,
    from_: Annotated[
        int | None,
        typer.Option("--from", metavar="OFFSET", parser=count, help="Begin at the record at this physical offset."),
    ] = None,
    max_items: Annotated[
        int | None, typer.Option("--max", metavar="N", parser=count, help="At most this many records.")
    ] = None,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Print the commit log record by record, as it is before any recovery.

    A wrong CRC and bytes that the disk cannot read are reported, and the
    output continues after them. It ends at the first other position without a
    valid record; the last line has the reason. Nothing is written.

    Examples of use:

        gantrymq store log /data/store
        gantrymq store log /data/store --from 1073741824 --max 20
        gantrymq store log /data/store --json | jq -c 'select(.crcOk == false)'
    """
    opened = open_log(store, read_options(config, set_))
    with closing(opened.log):
        items = _first(log_items(opened, opened.log.min_offset if from_ is None else from_), max_items)
        (print_json if json else print_text)(items)
    end_reading(opened.problems)


class OpenedLog(NamedTuple):
    """The log without a recovery. Blanks replace the ``missing`` parts, zeros the ``lost`` bytes."""

    log: CommitLog
    missing: list[StoreError]
    lost: LostPages

    @property
    def problems(self) -> list[StoreError]:
        """The missing parts, and the bytes that the disk could not read so far."""
        return [*self.missing, *self.lost.errors()]


def open_log(path: Path, reading: Reading) -> OpenedLog:
    """Open the log of the store at ``path`` in a private view: loading must not even remove an empty file."""
    from gantrymq.fs.overlay import OverlayFileSystem
    from gantrymq.fs.reads import LostPages
    from gantrymq.store.geometry import find_file_sizes, require_store
    from gantrymq.store.log.commit_log import CommitLog
    from gantrymq.store.paths import StorePaths
    from gantrymq.store.recovery.missing_log import log_state
    from gantrymq.store.recovery.reader_views import end_short_files, fill_view

    paths = StorePaths.of(path, reading.config)
    lost = LostPages((paths.root, *paths.commit_logs))
    fs = OverlayFileSystem(lost)
    require_store(fs, paths)
    warn_of_contents(path, reading)
    sizes = find_file_sizes(fs, paths, reading.config, reading.given)
    commit_log = CommitLog(fs, paths, sizes.mapped_file_size_commit_log)
    problems, _ = log_state(fs, paths, sizes)
    fill_view(fs, paths, sizes, problems)
    commit_log.load()
    end_short_files(commit_log, problems)
    return OpenedLog(commit_log, problems, lost)


def _first(items: Iterator[Item], max_records: int | None) -> Iterator[Item]:
    """The items up to the record ``max_records``. If another record follows, the last item says so."""
    from gantrymq.tools.read.record_rows import Record

    records = 0
    for offset, item in items:
        if isinstance(item, Record):
            if records == max_records:
                yield offset, _MAX_REACHED
                return
            records += 1
        yield offset, item


def log_items(opened: OpenedLog, offset: int) -> Iterator[Item]:
    """All items from ``offset`` on; the last one is the reason of the end. Raises StoreError for an offset outside."""
    from gantrymq.errors import StoreError
    from gantrymq.store.recovery.log_passes import LostRecords

    commit_log = opened.log
    lost, files = LostRecords(commit_log, opened.lost), commit_log.queue.files
    if not files:
        yield 0, "end of log"
        return
    if not commit_log.min_offset <= offset <= commit_log.max_offset:
        limits = f"{commit_log.min_offset} to {commit_log.max_offset}"
        raise StoreError(commit_log.queue.directory, f"offset {offset} is outside of the log, which spans {limits}")
    while (file := commit_log.queue.find(offset)) is not None:
        end, reason = yield from _items_of_file(file, offset - file.file_from_offset, lost)
        if reason and (error := lost.first_at(end)) is not None:
            following = lost.behind(end)
            yield end, Lost((file.file_from_offset + file.size if following is None else following) - end, error)
            reason, end = ("", following) if following is not None else (StopReason.UNREADABLE, end)
        if reason:
            yield end, reason
            return
        offset = end
    yield offset, "end of log"


def _items_of_file(file: MappedFile, position: int, lost: LostRecords) -> Generator[Item, None, tuple[int, str]]:
    """The records of one file. Returns their end, and the reason why the log ends there; "" if it continues."""
    from gantrymq.kernels import codes
    from gantrymq.store.log.log_scanner import MappedSource
    from gantrymq.store.log.record_batch import RecordScan
    from gantrymq.store.log.record_chain import RecordChain
    from gantrymq.tools.read.record_rows import Record

    chain = RecordChain(MappedSource(file), RecordScan(codes.CHECK_MARK), position, file.size)
    base = file.file_from_offset
    for batch in chain:
        buffer = batch.buffer.data
        for row in batch.columns[:, : batch.count].T.tolist():
            if file.file.lost_in(row[codes.POS], row[codes.SIZE]) is not None:
                return base + row[codes.POS], StopReason.UNREADABLE
            yield base + row[codes.POS], Record(buffer, row)
    if chain.stop is StopReason.BLANK:
        yield base + chain.position, chain.head[0]
        return base + file.size, ""
    return base + chain.position, _reason(chain, file.size)


def _reason(chain: RecordChain, file_size: int) -> str:
    """The reason why the log ends here, in the words of docs/cli.md."""
    stop, (size, magic) = chain.stop or StopReason.NO_BLANK, chain.head
    if stop is StopReason.MAGIC:
        return f"{stop} {magic:x}"
    if stop is StopReason.SIZE:
        # The size fits into the file, so the rest of the record is missing.
        return StopReason.HALF if 0 < size <= file_size - chain.position else f"{stop} {size}"
    return stop


def print_json(items: Iterator[Item]) -> None:
    """Print items as JSON lines."""
    from gantrymq.cli.json_lines import JsonLines
    from gantrymq.kernels import codes

    with JsonLines() as out:
        for offset, item in items:
            if isinstance(item, Lost):
                error = item.error
                fields = {"path": str(error.path), "position": error.position, "reason": error.cause}
                out.write({"kind": "unreadable", "phyOffset": offset, "bytes": item.size, **fields})
            elif isinstance(item, str):
                out.write({"kind": "end", "phyOffset": offset, "reason": item})
            elif isinstance(item, int):
                out.write({"kind": "blank", "phyOffset": offset, "size": item})
            else:
                row = item.row
                fields = {"topic": item.topic, "queueId": row[codes.QUEUE_ID], "queueOffset": row[codes.QUEUE_OFFSET]}
                state = {"version": row[codes.VERSION], "crcOk": row[codes.CRC_OK] == 1}
                head = {**fields, "phyOffset": offset, "size": row[codes.SIZE], **state}
                out.write({"kind": "message", **head, **item.fields()})


def print_text(items: Iterator[Item]) -> None:
    """Print items for people."""
    from gantrymq.cli.records import heading, record_text
    from gantrymq.cli.terminal import print_line
    from gantrymq.kernels import codes
    from gantrymq.model.texts import count_text

    print(heading("topic/queue@offset"))
    records = bad = 0
    for offset, item in items:
        if isinstance(item, Lost):
            print_line(f"{offset:>14}  {item.size:>8}  unreadable: {item.error}")
        elif isinstance(item, str):
            print(f"{offset:>14}  end of the records: {item}")
        elif isinstance(item, int):
            print(f"{offset:>14}  {item:>8}  blank: the rest of the file")
        else:
            row = item.row
            records += 1
            bad += not row[codes.CRC_OK]
            position = f"{item.topic}/{row[codes.QUEUE_ID]}@{row[codes.QUEUE_OFFSET]}"
            print_line(f"{record_text(item, position)}{'' if row[codes.CRC_OK] else '  WRONG CRC'}")
    print(f"{count_text(records, 'record')}, {count_text(bad, 'wrong CRC')}" if bad else count_text(records, "record"))
