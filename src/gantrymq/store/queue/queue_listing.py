"""Lists the directories and files of all consume queues.

A walk over ten thousand queue directories costs as much as all checks of them, so walks are shared. The checks of the
log's files share one :class:`QueueListing`, which walks only as far as one of them asks. The check for misfiled queues
uses what the load of the queues has found (``ConsumeQueues.listed``).

The load walks by itself, because its order counts: a reader beside a writer must list the queues after it has read the
checkpoint and listed the log.

Thread rule: belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gantrymq.errors import StorePermissionError
from gantrymq.fs.api import Entry, FileSystem
from gantrymq.model.java import INT_MAX, parse_number
from gantrymq.store.paths import OffsetFile, offset_files

QueueName = tuple[str, int]
"""Topic and queue id."""
_NO_TOPIC = frozenset("+~# ")  # characters in directory names of other programs, such as lost+found


def queue_id_of(name: str) -> int | None:
    """Return the queue id that is the name of a queue directory (as Java's int prints it), or None for another name."""
    try:
        queue_id = parse_number(name, INT_MAX)
    except ValueError:
        return None
    return queue_id if queue_id >= 0 and str(queue_id) == name else None


def queue_directories(fs: FileSystem, directory: Path) -> Iterator[QueueName]:
    """Yield every queue that has a directory, in the order of the directories."""
    for topic in fs.scan(directory):
        for queue in scan_topic(fs, directory / topic.name) if topic.is_directory else ():
            queue_id = queue_id_of(queue.name) if queue.is_directory else None
            if queue_id is not None:
                yield topic.name, queue_id


def scan_topic(fs: FileSystem, directory: Path) -> list[Entry]:
    """Return the entries of a topic's directory.

    An unreadable directory counts as empty if its name cannot be a topic's. Raises StorePermissionError otherwise.
    """
    try:
        return fs.scan(directory)
    except StorePermissionError:
        if is_topic_name(directory.name):
            raise
        return []


def is_topic_name(name: str) -> bool:
    """Whether a topic may have this name: no broker accepts these characters in a topic."""
    return _NO_TOPIC.isdisjoint(name)


class ListedQueue(NamedTuple):
    """A queue, its directory, and its files sorted by offset."""

    name: QueueName
    directory: Path
    files: list[OffsetFile]


def list_queues(fs: FileSystem, directory: Path) -> Iterator[ListedQueue]:
    """Yield every queue below ``directory`` (consumequeue/), in the order of the directories.

    Raises StorePermissionError.
    """
    for name in queue_directories(fs, directory):
        own = directory / name[0] / str(name[1])
        yield ListedQueue(name, own, offset_files(fs, [own]))


class QueueListing:
    """Like :func:`list_queues`, for several checks: what one of them has listed is not listed again."""

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._rest = list_queues(fs, directory)
        self._listed: list[ListedQueue] = []

    def __iter__(self) -> Iterator[ListedQueue]:
        """Yield all queues, from the first one on."""
        yield from self._listed
        for queue in self._rest:
            self._listed.append(queue)
            yield queue
