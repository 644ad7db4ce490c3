"""Consumer groups set back to the end of queues that a tool has made: :mod:`gantrymq.store.queue.group_offsets`.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from gantrymq.fs.api import FileSystem
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.group_offsets import EndOf, GroupAhead, groups_ahead, read_group_offsets, set_back
from gantrymq.tools.queue_files import QueueFiles, queue_directories


def queue_ends(fs: FileSystem, paths: StorePaths, file_size: int, topics: Iterable[str] = ()) -> EndOf:
    """Where the queues of a store end, by their files.

    One that is not there has no message, if its topic has others or is among ``topics``.
    """
    directories = {(topic, queue_id): path for topic, queue_id, path in queue_directories(fs, paths.consume_queue)[0]}
    known = {*topics, *(topic for topic, _ in directories)}

    @cache
    def end_of(topic: str, queue_id: int) -> int | None:
        path = directories.get((topic, queue_id))
        if path is None:
            return 0 if topic in known else None
        files = QueueFiles(fs, path, topic, queue_id, file_size)
        files.load()
        return files.end

    return end_of


def set_groups_back(fs: FileSystem, paths: StorePaths, end_of: EndOf) -> list[GroupAhead]:
    """Set the groups of the store at ``paths`` that are ahead back to the end of their queue; these are returned.

    Raises DiskFullError.
    """
    ahead = groups_ahead(read_group_offsets(fs, paths), end_of)
    set_back(fs, paths, ahead)
    return ahead
