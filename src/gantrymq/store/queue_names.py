"""Which directories below consumequeue/ are consume queues: TOPIC/QUEUE, whatever else lies there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gantrymq.errors import StorePermissionError
from gantrymq.fs.api import Entry, FileSystem
from gantrymq.model.java import INT_MAX, parse_number

QueueName = tuple[str, int]
"""Topic and queue id."""
_NO_TOPIC = frozenset("+~# ")  # in names of other programs' directories, as lost+found


def queue_id_of(name: str) -> int | None:
    """The queue whose directory has this name, as Java's int writes it; None where no queue's has."""
    try:
        queue_id = parse_number(name, INT_MAX)
    except ValueError:
        return None
    return queue_id if queue_id >= 0 and str(queue_id) == name else None


def queue_directories(fs: FileSystem, directory: Path) -> Iterator[QueueName]:
    """Every queue that has a directory, in the order of the directories."""
    for topic in fs.scan(directory):
        for queue in scan_topic(fs, directory / topic.name) if topic.is_directory else ():
            queue_id = queue_id_of(queue.name) if queue.is_directory else None
            if queue_id is not None:
                yield topic.name, queue_id


def scan_topic(fs: FileSystem, directory: Path) -> list[Entry]:
    """What is in a topic's directory; nothing where it may not be read and has a name that no topic has."""
    try:
        return fs.scan(directory)
    except StorePermissionError:
        if is_topic_name(directory.name):
            raise
        return []


def is_topic_name(name: str) -> bool:
    """Whether a topic may be named so: no broker takes these characters in one."""
    return _NO_TOPIC.isdisjoint(name)
