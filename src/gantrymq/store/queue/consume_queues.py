"""All consume queues of a store, by topic and queue id.

The names of a new queue become durable later (:class:`PendingDirectorySyncs`): a queue has three (the directory of its
topic, its own directory, its file), and three syncs were most of the cost of a new queue. They are synced before the
checkpoint covers units of the queue, and before a file of the log is removed, from which lost units could be made
again.

Light queues (RocketMQ's enableLmq) are read like any other. No code here adds units to one.

Thread rule: lookups from any thread. Queues are added, and copies of the table taken, under ``_guard``. Only the
dispatcher and recovery change a queue. PendingDirectorySyncs: any thread.

Source: ConsumeQueueStore, ConsumeQueue.multiDispatchLmqQueue, MixAll.isLmq.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.fs.api import FileSystem
from gantrymq.model.java import LONG_MAX, parse_number
from gantrymq.model.message import PROPERTY_INNER_MULTI_DISPATCH, PROPERTY_INNER_MULTI_QUEUE_OFFSET
from gantrymq.store.paths import OffsetFile, StorePaths
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.queue.consume_queue_ext import ConsumeQueueExt
from gantrymq.store.queue.queue_listing import QueueName, is_topic_name, queue_directories, queue_id_of, scan_topic

_PREFIX = "%LMQ%"
_SEPARATOR = ","


def is_light(topic: str) -> bool:
    """Whether this topic's queue is a light one. Its queue id is 0."""
    return topic.startswith(_PREFIX)


def light_offset(properties: Mapping[str, str], topic: str) -> int | None:
    """Return the offset of a record with these properties in the light queue ``topic``, or None if it is not in it."""
    names, offsets = (
        properties.get(name, "").split(_SEPARATOR)
        for name in (PROPERTY_INNER_MULTI_DISPATCH, PROPERTY_INNER_MULTI_QUEUE_OFFSET)
    )
    try:
        return parse_number(dict(zip(names, offsets, strict=True))[topic], LONG_MAX)
    except (KeyError, ValueError):
        return None


class PendingDirectorySyncs:
    """Queue directories whose names are not durable yet, each two levels below a directory of the store at ``root``."""

    def __init__(self, fs: FileSystem, root: Path) -> None:
        self._fs = fs
        self._root = root
        self._queues: dict[Path, None] = {}
        self._guard = threading.Lock()
        self._flushing = threading.Lock()

    def add(self, queue: Path) -> None:
        """Note that the names in the directory ``queue``, and the names of its parents, are not durable."""
        with self._guard:
            self._queues[queue] = None

    def flush(self) -> None:
        """Make the pending names durable. Raises SyncFailedError; they stay pending then."""
        with self._flushing:  # a second caller must wait until the first has synced
            with self._guard:
                queues, self._queues = self._queues, {}
            if not queues:
                return
            topics = dict.fromkeys(queue.parent for queue in queues)
            above = dict.fromkeys(topic.parent for topic in topics)
            try:
                self._fs.sync_directory(self._root, *above, *topics, *queues)
            except BaseException:
                with self._guard:
                    self._queues = queues | self._queues
                raise


class ConsumeQueues:
    """The queues of the store at ``paths``. With enableConsumeQueueExt each has extended units."""

    def __init__(self, fs: FileSystem, paths: StorePaths, config: MessageStoreConfig) -> None:
        self._fs = fs
        self._paths = paths
        self._file_size = config.mapped_file_size_consume_queue
        self._ext_file_size = config.mapped_file_size_consume_queue_ext if config.enable_consume_queue_ext else 0
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._guard = threading.Lock()
        self._flushing = threading.Lock()
        self._names = PendingDirectorySyncs(fs, paths.root)

    def load(self) -> None:
        """Find the queues and load their files. Other directories are ignored. Raises WrongFileSizeError."""
        for topic, queue_id in queue_directories(self._fs, self._paths.consume_queue):
            self.get_or_create(topic, queue_id).load()

    def listed(self) -> Iterator[tuple[QueueName, list[OffsetFile]]]:
        """Yield the files of each queue."""
        for queue in self:
            files = queue.files
            listed = [OffsetFile(file.path, file.file_from_offset, file.size) for file in files.files]
            yield (queue.topic, queue.queue_id), listed

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, or None."""
        return self._queues.get((topic, queue_id))

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue, a new one if it is missing. Its directory is created with its first file."""
        key = (topic, queue_id)
        queue = self._queues.get(key)
        if queue is None:
            with self._guard:
                queue = self._queues.get(key)
                if queue is None:
                    queue = self._queues[key] = self._new(topic, queue_id)
        return queue

    def _new(self, topic: str, queue_id: int) -> ConsumeQueue:
        fs, paths, add = self._fs, self._paths, self._names.add
        ext = None
        if self._ext_file_size:
            ext = ConsumeQueueExt(fs, paths.consume_queue_ext, topic, queue_id, self._ext_file_size, add)
        return ConsumeQueue(fs, paths.consume_queue, topic, queue_id, self._file_size, ext, add)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        """Iterate over the queues, sorted by topic, then queue id."""
        return iter(sorted(self._all(), key=lambda queue: (queue.topic, queue.queue_id)))

    def _all(self) -> list[ConsumeQueue]:
        with self._guard:
            return list(self._queues.values())

    def __len__(self) -> int:
        """Return the number of queues."""
        return len(self._queues)

    @property
    def max_phy_offset(self) -> int:
        """The physical offset after the newest record that a queue points to, or -1 without units."""
        return max((queue.max_physic_offset for queue in self._all()), default=-1)

    @property
    def last_phy_offset(self) -> int:
        """The physical offset of the newest record that a queue points to, or -1 without units."""
        newest = max(self._all(), key=lambda queue: queue.max_physic_offset, default=None)
        return newest.last_phy_offset if newest else -1

    def begin_of_lost_units(self) -> int | None:
        """Return the physical offset from which records may have lost their units, or None if no queue has lost any.

        Call it after :meth:`recover`, for a store that was closed: after a kill an empty last file is normal.
        """
        queues = (queue for queue in self._all() if queue.files.had_empty_file or queue.had_units_behind)
        lost = [max(queue.last_phy_offset, 0) for queue in queues if not is_light(queue.topic)]
        return min(lost, default=None)

    def drop_false_ends(self, is_true: Callable[[ConsumeQueue, int], bool]) -> None:
        """Drop the last units that do not point to their own record, in queues with bytes past the end that was found.

        ``is_true(queue, queue_offset)`` says whether a unit does.
        """
        for queue in self:
            if queue.had_units_behind and not is_light(queue.topic):
                queue.drop_false_end(is_true)

    def recover(self, log_limit: int) -> dict[tuple[str, int], int]:
        """Find the end of every queue. ``log_limit`` is the end of the log's files.

        Returns how many units each queue's files held, including those that are dropped.
        """
        held = {}
        for queue in self:
            held[queue.topic, queue.queue_id] = queue.recover(log_limit)
            queue.close_if_idle()
        return held

    def drop_deleted(self, ends: Mapping[str, int]) -> None:
        """Remove the queues of deleted topics: all their units point before their topic's end in ``ends``."""
        for queue in self:
            if 0 <= queue.max_physic_offset <= ends.get(queue.topic, -1):
                queue.destroy()
        for topic in ends:
            self.remove_empty_directories(topic)

    def topic_directories(self) -> set[str]:
        """Return the topics that have a directory, with or without queues."""
        roots = (self._paths.consume_queue, self._paths.consume_queue_ext)
        return {
            entry.name
            for root in roots
            for entry in self._fs.scan(root)
            if entry.is_directory and is_topic_name(entry.name)
        }

    def remove_empty_directories(self, topic: str) -> None:
        """Remove the directories of a topic that hold nothing. No unit may be added to its queues meanwhile.

        The removal need not be durable: an empty directory that a power cut brings back is removed by the next start.
        """
        for root in (self._paths.consume_queue, self._paths.consume_queue_ext):
            directory = root / topic
            for entry in scan_topic(self._fs, directory):
                if entry.is_directory and queue_id_of(entry.name) is not None:
                    self._fs.remove_directory(directory / entry.name)
            self._fs.remove_directory(directory)

    def drop_from(self, phy_offset: int, is_true: Callable[[ConsumeQueue, int], bool]) -> None:
        """Drop the units that the checkpoint does not cover, after an abnormal exit.

        Units of light queues stay, because no code here puts them again.
        """
        for queue in self:
            if not is_light(queue.topic):
                queue.drop_from(phy_offset, is_true)

    def truncate(self, phy_offset: int) -> None:
        """Drop every unit that points to or past ``phy_offset``."""
        for queue in self:
            queue.truncate(phy_offset)

    def drop_unused_files(self) -> None:
        """Remove last files without a unit: RocketMQ treats the first unit of such a file as written."""
        for queue in self:
            queue.files.drop_unused()

    def correct_min_offset(self, min_phy_offset: int) -> None:
        """Set every queue's first offset after the removed part of the log. This is the last step of a recovery."""
        for queue in self:
            queue.correct_min_offset(min_phy_offset)
            queue.close_if_idle()

    def next_offsets(self) -> dict[tuple[str, int], int]:
        """Return the next offset of every queue (recoverTopicQueueTable)."""
        return {(queue.topic, queue.queue_id): queue.max_offset for queue in self}

    def unit_counts(self) -> dict[tuple[str, int], int]:
        """Return how many units each queue's files hold."""
        return {(queue.topic, queue.queue_id): queue.unit_count for queue in self._all()}

    def flush(self, least_pages: int = 0) -> None:
        """Flush every queue, and the names of new ones. With ``least_pages``, only queues with that many dirty pages.

        Raises SyncFailedError. Thread rule: retention may call it while the flush service does.
        """
        with self._flushing:
            if not least_pages:
                self._names.flush()  # first: a sync of many names also writes the units
                for queue in self:
                    queue.begin_flush()
            for queue in self:
                queue.flush(least_pages)

    def destroy(self) -> list[ConsumeQueue]:
        """Remove every queue (destroyLogics). Returns them."""
        queues = list(self)
        for queue in queues:
            queue.destroy()
        with self._guard:
            self._queues = {}
        return queues

    def close(self) -> None:
        """Close every queue."""
        for queue in self:
            queue.close()
