"""``gantrymq store info``."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gantrymq.cli.opened import end_reading, read_options
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store

if TYPE_CHECKING:
    from gantrymq.store.reader import StoreReader


def info(store: Store, config: ConfigFile = None, set_: Settings = None, json: AsJson = False) -> None:
    """Print a summary of a store: offsets, messages, checkpoint, whether it was closed.

    The output is that of the store after a recovery. Nothing is written. The
    time does not depend on the size of a store that was closed, or that a
    broker has open: only its last records are read. `store verify` reads all.

    Examples of use:

        gantrymq store info /data/store
        gantrymq store info /data/store --json
    """
    from gantrymq.cli.opened import open_reader

    with closing(open_reader(store, read_options(config, set_), trusts_writer=True)) as reader:
        look = _Look(reader, _lock_holder(store), _index_sizes(store), _notes(store))
        if json:
            from gantrymq.cli.json_lines import JsonLines

            with JsonLines() as out:
                out.write(_fields(store, look))
        else:
            _print(store, look)
        end_reading(reader.problems, notes=reader.notes)


@dataclass(frozen=True, slots=True)
class _Look:
    """The data of the summary. ``lock_holder`` is the id of the process that writes to the store.

    ``notes`` are about config/ and change no exit code.
    """

    reader: StoreReader
    lock_holder: int | None
    index_sizes: list[int]
    notes: list[str]

    @property
    def messages(self) -> int:
        return sum(queue.max_offset - queue.min_offset for queue in self.reader.consume_queues)

    @property
    def bytes(self) -> int:
        return max(self.reader.max_phy_offset - max(self.reader.min_phy_offset, 0), 0)


def _lock_holder(store: Path) -> int | None:
    from gantrymq.fs.lock_holder import lock_holder
    from gantrymq.store.paths import StorePaths

    return lock_holder(StorePaths(store).lock)


def _index_sizes(store: Path) -> list[int]:
    """The sizes of the index files on disk. What a recovery would drop of them is unknown without reading them."""
    from gantrymq.errors import StoreError
    from gantrymq.format.names import is_index_name
    from gantrymq.fs.real import RealFileSystem
    from gantrymq.store.paths import StorePaths

    try:
        entries = RealFileSystem().scan(StorePaths(store).index)
    except StoreError:
        return []  # verify reports an unlisted directory
    return [entry.size_bytes for entry in entries if is_index_name(entry.name)]


def _notes(store: Path) -> list[str]:
    from gantrymq.errors import StoreError
    from gantrymq.fs.real import RealFileSystem
    from gantrymq.store.lost_routes import lost_routes
    from gantrymq.store.paths import StorePaths

    try:
        text = lost_routes(RealFileSystem(), StorePaths(store))
    except (OSError, StoreError):
        return []  # verify reports an unreadable file
    return [text] if text is not None else []


def _fields(store: Path, look: _Look) -> dict[str, object]:
    page, log, queues = look.reader.checkpoint, look.reader.log, list(look.reader.consume_queues)
    return {
        "store": str(store),
        "minPhyOffset": log.min_offset,
        "maxPhyOffset": log.max_offset,
        "abort": not look.reader.last_exit_ok,
        "lockedBy": look.lock_holder,
        "checkpoint": {
            "physicMsgTimestamp": page.physic_msg_timestamp_ms,
            "logicsMsgTimestamp": page.logics_msg_timestamp_ms,
            "indexMsgTimestamp": page.index_msg_timestamp_ms,
            "masterFlushedOffset": page.master_flushed_offset,
            "confirmPhyOffset": page.confirm_phy_offset,
            "logicsPhysicalOffset": page.logics_physical_offset,
        },
        "fileSizes": {
            "mappedFileSizeCommitLog": log.file_size,
            "mappedFileSizeConsumeQueue": next((queue.files.file_size for queue in queues), None),
            "index": max(look.index_sizes, default=None),
        },
        "files": {
            "commitLog": len(log.queue.files),
            "consumeQueue": sum(len(queue.files.files) for queue in queues),
            "index": len(look.index_sizes),
        },
        "topics": len({queue.topic for queue in queues}),
        "queues": len(queues),
        "messages": look.messages,
        "bytes": look.bytes,
        "problems": [
            *({"path": str(one.path), "text": one.reason} for one in (*look.reader.problems, *look.reader.notes)),
            *({"path": str(store / "config"), "text": text} for text in look.notes),
        ],
    }


def _print(store: Path, look: _Look) -> None:
    from gantrymq.cli.terminal import count_text, print_pairs, print_table, time_text
    from gantrymq.model.size import size_text

    log, page, queues = look.reader.log, look.reader.checkpoint, look.reader.consume_queues
    files = log.queue.files
    log_text = f"{count_text(len(files), 'file')} of {size_text(log.file_size)}"
    pairs = [
        ("state", _state(look)),
        ("commit log", f"{log_text}, offsets {log.min_offset} to {log.max_offset}" if files else "empty"),
        ("records", size_text(look.bytes)),
        ("index", f"{count_text(len(look.index_sizes), 'file')}, {size_text(sum(look.index_sizes))}"),
        ("messages", f"{look.messages:,} in {count_text(len(queues), 'queue')}"),
        ("checkpoint", f"log flushed up to   {time_text(page.physic_msg_timestamp_ms)}"),
        ("", f"queues flushed up to {time_text(page.logics_msg_timestamp_ms)}"),
        ("", f"index flushed up to  {time_text(page.index_msg_timestamp_ms)}"),
    ]
    pairs += [("config", text) for text in look.notes]
    print_pairs(str(store), pairs)
    topics: dict[str, list[int]] = {}
    for queue in queues:
        row = topics.setdefault(queue.topic, [0, 0])
        row[0] += 1
        row[1] += queue.max_offset - queue.min_offset
    if topics:
        rows = [(topic, f"{count:,}", f"{messages:,}") for topic, (count, messages) in topics.items()]
        print_table(["topic", ">queues", ">messages"], rows)


def _state(look: _Look) -> str:
    if look.lock_holder is not None:
        return f"open: process {look.lock_holder} writes to it"
    return "closed" if look.reader.last_exit_ok else "not closed: its writer ended without closing it; recover will"
