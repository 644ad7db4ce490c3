"""The ends of queues whose newest messages are lost: their offsets stay used, and groups are set back to them.

Where the newest messages of a queue lie in a damaged part of the log, a queue that is made from the log ends before
them. Their offsets would be assigned again, and a consumer that has passed them would never get the new messages. The
units of the old files therefore follow the new ones. They point to the lost places, as before, and not to nothing like
a filled slot, because RocketMQ takes the last unit for the progress of its queues.

Consumer groups ahead of the end are set back to it (:mod:`gantrymq.store.queue.group_offsets`).

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.format.queue_ext import is_address
from gantrymq.fs.api import FileSystem
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.queue.consume_queues import ConsumeQueues
from gantrymq.store.queue.group_offsets import EndOf, GroupAhead, groups_ahead, read_group_offsets, set_back
from gantrymq.tools.loss.queue_account import LostPlaces
from gantrymq.tools.read.intact_records import FoundRecords
from gantrymq.tools.read.queue_files import QueueFiles, as_units, queue_directories


def preserve_queue_ends(
    fs: FileSystem, old: StorePaths, roots: Iterable[StorePaths], config: MessageStoreConfig, found: FoundRecords
) -> int:
    """Let the queues below ``roots`` end no earlier than those of ``old``, as far as these point at what is lost.

    ``found`` is what the new ones were made of. Returns how many units came in; they are durable. Raises DiskFullError.
    """
    if not (ranges := found.lost()):
        return 0
    lost, added = LostPlaces(ranges), 0
    for root in roots:
        queues = ConsumeQueues(fs, root, config)
        for topic, queue_id, _ in queue_directories(fs, root.consume_queue)[0]:
            directory = old.consume_queue / topic / str(queue_id)
            files = QueueFiles(fs, directory, topic, queue_id, config.mapped_file_size_consume_queue)
            files.load()
            queue = queues.get_or_create(topic, queue_id)
            queue.load()
            try:
                queue.recover(found.end_offset)
                before = queue.max_offset
                _append(queue, files, lost)
                added += queue.max_offset - before
                queue.flush()
            finally:
                queue.close()
    return added


def _append(queue: ConsumeQueue, files: QueueFiles, lost: LostPlaces) -> None:
    begin = queue.max_offset
    units = as_units(files.units(begin, _unbroken_end(files, begin)))
    for row in np.flatnonzero(lost.has(units["phy_offset"].astype(np.int64))).tolist():
        unit = units[row : row + 1].copy()
        offset, size = int(unit["phy_offset"][0]), int(unit["size"][0])
        if size <= 0 or offset < queue.max_physic_offset:
            continue
        if is_address(int(unit["tags_code"][0])):  # of extended units that are made anew as well
            unit["tags_code"] = 0
        queue.append_units(begin + row, memoryview(unit.tobytes()), np.zeros(1, np.int64), offset + size)


def _unbroken_end(files: QueueFiles, begin: int) -> int:
    """Up to where there are units from ``begin`` on, with no file missing between: a name may be anything."""
    base = begin * UNIT_SIZE // files.file_size * files.file_size
    while base in files.sizes:
        base += files.file_size
    return max(min(files.end, base // UNIT_SIZE), begin)


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
