"""The summary of an open store: its state, its files, and how much is in it.

The command line prints it (`store info`), and the console shows it. It costs O(queues), whatever the size of the log.

Thread rule: plain functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gantrymq.errors import StoreError
from gantrymq.format.checkpoint import Checkpoint
from gantrymq.format.names import is_index_name
from gantrymq.fs.lock_holder import lock_holder
from gantrymq.fs.real import RealFileSystem
from gantrymq.store.lost_routes import lost_routes
from gantrymq.store.paths import StorePaths
from gantrymq.store.reader import StoreReader


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic's number of queues, and of the messages between their min and max offsets."""

    topic: str
    queues: int
    messages: int


@dataclass(frozen=True, slots=True)
class StoreSummary:
    """The summary of the store at ``path``. Sizes are in bytes, offsets are physical.

    ``lock_holder`` is the id of the process that writes to the store, None without one. ``index_sizes`` are the sizes
    of the index files on the disk. ``problems`` are (path, text) of files that are missing, wrong or unreadable;
    ``notes`` the same, for what keeps no writer from opening the store.
    """

    path: Path
    min_phy_offset: int
    max_phy_offset: int
    last_exit_ok: bool
    lock_holder: int | None
    checkpoint: Checkpoint
    log_file_size: int
    log_files: int
    queue_file_size: int | None
    queue_files: int
    index_sizes: tuple[int, ...]
    topics: tuple[TopicSummary, ...]
    problems: tuple[tuple[Path, str], ...]
    notes: tuple[tuple[Path, str], ...]

    @property
    def queues(self) -> int:
        """The number of queues."""
        return sum(topic.queues for topic in self.topics)

    @property
    def messages(self) -> int:
        """The sum of max offset - min offset over the queues."""
        return sum(topic.messages for topic in self.topics)

    @property
    def record_bytes(self) -> int:
        """The size of the log from its begin to its end."""
        return max(self.max_phy_offset - max(self.min_phy_offset, 0), 0)

    @property
    def state(self) -> str:
        """The state of the store in words."""
        if self.lock_holder is not None:
            return f"open: process {self.lock_holder} writes to it"
        return (
            "closed"
            if self.last_exit_ok
            else "not closed: its writer ended without closing it; the next start recovers it"
        )


def summarize(path: Path, reader: StoreReader) -> StoreSummary:
    """Summarize the store at ``path``, which ``reader`` has open."""
    log, queues = reader.log, list(reader.consume_queues)
    topics: dict[str, list[int]] = {}
    for queue in queues:
        row = topics.setdefault(queue.topic, [0, 0])
        row[0] += 1
        row[1] += queue.max_offset - queue.min_offset
    routes = _lost_routes(path)
    return StoreSummary(
        path,
        log.min_offset,
        log.max_offset,
        reader.last_exit_ok,
        lock_holder(StorePaths(path).lock),
        reader.checkpoint,
        log.file_size,
        len(log.queue.files),
        next((queue.files.file_size for queue in queues), None),
        sum(len(queue.files.files) for queue in queues),
        tuple(_index_sizes(path)),
        tuple(TopicSummary(topic, *row) for topic, row in topics.items()),
        tuple((problem.path, problem.reason) for problem in reader.problems),
        (*((note.path, note.reason) for note in reader.notes), *((path / "config", text) for text in routes)),
    )


def _index_sizes(store: Path) -> list[int]:
    """The sizes of the index files on disk. What a recovery would drop of them is unknown without reading them."""
    try:
        entries = RealFileSystem().scan(StorePaths(store).index)
    except StoreError:
        return []  # verify reports an unlisted directory
    return [entry.size_bytes for entry in entries if is_index_name(entry.name)]


def _lost_routes(store: Path) -> list[str]:
    try:
        text = lost_routes(RealFileSystem(), StorePaths(store))
    except (OSError, StoreError):
        return []  # verify reports an unreadable file
    return [text] if text is not None else []
