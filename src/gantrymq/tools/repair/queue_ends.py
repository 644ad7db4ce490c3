"""Keeps the ends of queues whose newest messages are lost, and sets consumer groups back to them.

If the newest messages of a queue lie in a damaged part of the log, a queue that is made from the log ends before them.
Their offsets would be assigned again, and a consumer that has passed them would never get the new messages. The units
of the old files are therefore appended to the new ones. They keep pointing to the lost places instead of to nothing
like a filled slot, because RocketMQ takes the last unit for the progress of its queues.

Consumer groups ahead of the end are set back to it (:mod:`gantrymq.store.queue.group_offsets`).

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.queue_entry import UNIT_SIZE, encode_entry
from gantrymq.format.queue_ext import is_address
from gantrymq.fs.api import FileSystem
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.queue.consume_queues import ConsumeQueues
from gantrymq.store.queue.group_offsets import EndOf, GroupAhead, groups_ahead, read_group_offsets, set_back
from gantrymq.tools.read.intact_records import FoundRecords
from gantrymq.tools.read.log_extent import LostPlaces
from gantrymq.tools.read.queue_files import QueueFiles, queue_directories


def preserve_queue_ends(
    fs: FileSystem, old: StorePaths, roots: Iterable[StorePaths], config: MessageStoreConfig, contents: FoundRecords
) -> int:
    """Append the old units that point into lost ranges of the log, so that queues end no earlier than before.

    ``roots`` have the new queues of a log with these ``contents``; ``old`` is the old store. Returns the number of
    units that were added; they are durable. Raises DiskFullError.
    """
    if not (ranges := contents.lost()):
        return 0
    lost, added = LostPlaces(ranges), 0
    for root in roots:
        queues = ConsumeQueues(fs, root, config)
        for topic, queue_id, _ in queue_directories(fs, root.consume_queue)[0]:
            directory = old.consume_queue / topic / str(queue_id)
            files = QueueFiles.loaded(fs, directory, topic, queue_id, config.mapped_file_size_consume_queue)
            queue = queues.get_or_create(topic, queue_id)
            queue.load()
            try:
                queue.recover(contents.end_offset)
                before = queue.max_offset
                _append(queue, files, lost)
                added += queue.max_offset - before
                queue.flush()
            finally:
                queue.close()
    return added


def _append(queue: ConsumeQueue, files: QueueFiles, lost: LostPlaces) -> None:
    begin = queue.max_offset
    units = files.units(begin, _unbroken_end(files, begin))
    for row in np.flatnonzero(lost.has(units.phy_offsets)).tolist():
        unit = units[row]
        end = unit.phy_offset + unit.size_bytes
        if unit.size_bytes <= 0 or unit.phy_offset < queue.max_physic_offset:
            continue
        if is_address(unit.tags_code):  # an address of an extended unit, which is recreated too
            unit = unit._replace(tags_code=0)
        queue.append_units(begin + row, memoryview(encode_entry(unit)), np.zeros(1, np.int64), end)


def _unbroken_end(files: QueueFiles, begin: int) -> int:
    """The end of the units from ``begin`` on without a missing file. A stray file name must not add a huge gap."""
    base = begin * UNIT_SIZE // files.file_size * files.file_size
    while base in files.sizes:
        base += files.file_size
    return max(min(files.end, base // UNIT_SIZE), begin)


def queue_ends(fs: FileSystem, paths: StorePaths, file_size: int, topics: Iterable[str] = ()) -> EndOf:
    """A function that returns where a queue of the store ends, by its files.

    It returns 0 for a missing queue whose topic has other queues or is in ``topics``, and None for an unknown topic.
    """
    directories = {(topic, queue_id): path for topic, queue_id, path in queue_directories(fs, paths.consume_queue)[0]}
    known = {*topics, *(topic for topic, _ in directories)}

    @cache
    def end_of(topic: str, queue_id: int) -> int | None:
        path = directories.get((topic, queue_id))
        if path is None:
            return 0 if topic in known else None
        return QueueFiles.loaded(fs, path, topic, queue_id, file_size).end

    return end_of


def set_groups_back(fs: FileSystem, paths: StorePaths, end_of: EndOf) -> list[GroupAhead]:
    """Set consumer groups that are ahead back to the end of their queue. Returns these groups.

    Raises DiskFullError.
    """
    ahead = groups_ahead(read_group_offsets(fs, paths), end_of)
    set_back(fs, paths, ahead)
    return ahead
