"""A store on a remote file system for planning: reads ranges of consume queues and single records, without a copy.

It replaces :class:`gantrymq.store.reader.StoreReader`, which maps local files and computes the result of a recovery.
Here nothing is recovered, so a store that was not closed cleanly is refused. Stores on object stores are archives and
backups, which are closed.

Thread rule: one thread.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import StoreError
from gantrymq.format.names import ABORT, COMMIT_LOG, CONSUME_QUEUE, parse_offset_name
from gantrymq.format.queue_entry import BLANK_UNIT_SIZE, UNIT_SIZE, QueueEntry
from gantrymq.model.message import StoredMessage
from gantrymq.spark.locations import Location, entries_of
from gantrymq.spark.log_file import LogFile, message_at
from gantrymq.spark.plan.log_tail import LogTail
from gantrymq.store.queue.consume_queue import UNIT_DTYPE
from gantrymq.store.queue.queue_listing import queue_id_of

_BLOCK_UNITS = 3_276  # 64 KiB: an object store returns this as quickly as less
_BLOCKS_KEPT = 256
_NEVER_MS = -(1 << 63)


class OffsetFile(NamedTuple):
    """A file of the log or of a queue, and the offset of its first byte."""

    location: Location
    begin: int
    size_bytes: int


class RemoteQueue:
    """One consume queue, with the methods of ``ConsumeQueue`` that planning uses."""

    def __init__(self, topic: str, queue_id: int, directory: Location, log_begin: int) -> None:
        self.topic, self.queue_id = topic, queue_id
        self._files = files_in(directory)
        self._block = lru_cache(_BLOCKS_KEPT)(self._read_block)
        self._first = self._files[0].begin // UNIT_SIZE if self._files else 0
        self.max_offset = self._end()
        self.min_offset = self.find_first(log_begin)

    def _end(self) -> int:
        """The queue offset after the last unit. The last file reads as zeros from there on."""
        for file in reversed(self._files):
            slots = range(file.begin // UNIT_SIZE, (file.begin + file.size_bytes) // UNIT_SIZE)
            count = bisect_left(slots, True, key=lambda slot: self._units(slot, 1)["size"][0] <= 0)
            if count:
                return slots.start + count
        return self._first

    def entry(self, queue_offset: int) -> QueueEntry | None:
        """The unit of a queue offset, or None."""
        if not self._first <= queue_offset < self.max_offset:
            return None
        return QueueEntry(*self._units(queue_offset, 1)[0].item())

    def real_entry(self, queue_offset: int) -> QueueEntry | None:
        """The unit; for an empty slot, the nearest real one before it; None if there is none."""
        while (entry := self.entry(queue_offset)) is not None and entry.size_bytes == BLANK_UNIT_SIZE:
            queue_offset -= 1
        return entry

    def entries(self, queue_offset: int, count: int) -> NDArray[np.void]:
        """The units from a queue offset on that lie in one block."""
        return self._units(queue_offset, min(count, self.max_offset - queue_offset))

    def find_first(self, phy_offset: int) -> int:
        """The first queue offset whose unit points at or after ``phy_offset``; ``max_offset`` if there is none."""
        offsets = range(self._first, self.max_offset)
        return self._first + bisect_left(offsets, phy_offset, key=self._phy_offset)

    def _phy_offset(self, queue_offset: int) -> int:
        entry = self.real_entry(queue_offset)
        return -1 if entry is None else entry.phy_offset

    def _units(self, queue_offset: int, count: int) -> NDArray[np.void]:
        block, at = divmod(queue_offset, _BLOCK_UNITS)
        return self._block(block)[at : at + max(count, 0)]

    def _read_block(self, number: int) -> NDArray[np.void]:
        """The units of a block; zeros where there is no file."""
        data = bytearray(_BLOCK_UNITS * UNIT_SIZE)
        begin = number * len(data)
        for file in self._files:
            low, high = max(file.begin, begin), min(file.begin + file.size_bytes, begin + len(data))
            if low < high:
                with LogFile(file.location) as opened:
                    opened.read_into(memoryview(data)[low - begin : high - begin], low - file.begin)
        return np.frombuffer(data, UNIT_DTYPE)


@dataclass(frozen=True, slots=True)
class RemoteLog:
    """The properties of a commit log that planning uses."""

    file_size: int


class RemoteStore:
    """An open store. Raises StoreError if it was not closed cleanly, or its log files differ in size."""

    last_exit_ok = True  # others are refused

    def __init__(self, location: Location) -> None:
        if any(entry.base_name == ABORT for entry in entries_of(location) or ()):
            reason = "was not closed cleanly (it has a file abort); recover it, or copy it to a local disk"
            raise StoreError(str(location), reason)
        self._place = location
        files = files_in(location / COMMIT_LOG)
        sizes = {file.size_bytes for file in files}
        if len(sizes) > 1:
            raise StoreError(str(location / COMMIT_LOG), f"has files of several sizes: {sorted(sizes)}")
        self.log = RemoteLog(max(sizes, default=1 << 30))
        self._begin = self.min_phy_offset = files[0].begin if files else 0
        self._end = files[-1].begin + files[-1].size_bytes if files else 0
        self.consume_queues = list(self._queues())
        if files and not self.consume_queues and message_at(location / COMMIT_LOG, self.log.file_size, self._begin):
            reason = "has no queue, although the log has messages; copy the store as a whole, or `store rebuild` it"
            raise StoreError(str(location / CONSUME_QUEUE), reason)
        self.max_phy_offset = self._log_end()

    def _queues(self) -> list[RemoteQueue]:
        root = self._place / CONSUME_QUEUE
        return [
            RemoteQueue(topic.base_name, queue_id, root / topic.base_name / queue.base_name, self._begin)
            for topic in entries_of(root) or ()
            for queue in entries_of(root / topic.base_name) or ()
            if (queue_id := queue_id_of(queue.base_name)) is not None
        ]

    def _log_end(self) -> int:
        """The end of the log: after the last record that a queue names and the records that follow it.

        A unit that points past the files proves nothing, and a queue may be missing.
        """
        end = self.min_phy_offset
        for queue in self.consume_queues:
            last = queue.max_offset - 1
            while (found := _end_of(queue, last)) > self._end:
                last -= 1
            end = max(end, found)
        tail = LogTail(self._place / COMMIT_LOG, self.log.file_size, end)
        tail.refresh()
        return tail.end

    def message_at(self, phy_offset: int) -> StoredMessage | None:
        """The record that begins at ``phy_offset``, or None."""
        if not self._begin <= phy_offset < self._end:
            return None
        return message_at(self._place / COMMIT_LOG, self.log.file_size, phy_offset)

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The first queue offset stored at ``timestamp_ms`` or later; the max offset if there is none.

        0 for a missing queue.
        """
        queue = next((one for one in self.consume_queues if (one.topic, one.queue_id) == (topic, queue_id)), None)
        if queue is None:
            return 0
        offsets = range(queue.min_offset, queue.max_offset)
        return offsets.start + bisect_left(offsets, timestamp_ms, key=lambda offset: self._stored_ms(queue, offset))

    def _stored_ms(self, queue: RemoteQueue, queue_offset: int) -> int:
        """The store timestamp of a message in ms; below every time if it cannot be read."""
        entry = queue.real_entry(queue_offset)
        message = None if entry is None else self.message_at(entry.phy_offset)
        return _NEVER_MS if message is None else message.store_timestamp_ms

    def record_at_or_after(self, phy_offset: int) -> int:
        """The physical offset of the first queue record at or after ``phy_offset``, else the file's end."""
        found = [queue.real_entry(queue.find_first(phy_offset)) for queue in self.consume_queues]
        file_end = phy_offset - phy_offset % self.log.file_size + self.log.file_size
        places = sorted(unit.phy_offset for unit in found if unit is not None and unit.phy_offset < file_end)
        return next((place for place in places if self.message_at(place) is not None), file_end)

    def close(self) -> None:
        """Do nothing: no file stays open."""


def _end_of(queue: RemoteQueue, queue_offset: int) -> int:
    """The end of the message that a unit points to, as a physical offset."""
    entry = queue.real_entry(queue_offset)
    return 0 if entry is None else entry.phy_offset + entry.size_bytes


def files_in(directory: Location) -> list[OffsetFile]:
    """The files of a directory that are named by an offset, in order."""
    found = (
        (parse_offset_name(entry.base_name), entry.base_name, entry.size)
        for entry in entries_of(directory) or ()
        if entry.is_file
    )
    return sorted(
        (OffsetFile(directory / name, begin, size) for begin, name, size in found if begin is not None),
        key=lambda file: file.begin,
    )
