"""A store on a remote file system for planning: reads ranges of consume queues and single records, without a copy.

It replaces :class:`gantrymq.store.reader.StoreReader`, which maps local files and computes the result of a recovery.
Here nothing is recovered, so a store that was not closed cleanly is refused. Stores on object stores are archives and
backups, which are closed.

Thread rule: one thread.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from gantrymq.errors import StoreError
from gantrymq.format.names import ABORT, COMMIT_LOG, CONSUME_QUEUE
from gantrymq.model.message import StoredMessage
from gantrymq.spark.log_file import message_at
from gantrymq.spark.plan.log_tail import LogTail
from gantrymq.spark.plan.remote_units import PLANNED_BLOCK_UNITS, RemoteUnits, files_in
from gantrymq.store.queue.queue_listing import queue_id_of
from gantrymq.tools.locations import Location, entries_of

_NEVER_MS = -(1 << 63)


class RemoteQueue(RemoteUnits):
    """A queue of a remote store: its units with its name, from ``min_offset`` on."""

    def __init__(self, topic: str, queue_id: int, directory: Location, log_begin: int) -> None:
        super().__init__(directory, PLANNED_BLOCK_UNITS)
        self.topic, self.queue_id = topic, queue_id
        self.min_offset, self.max_offset = self.first_at(log_begin), self.end


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
        self._location = location
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
        root = self._location / CONSUME_QUEUE
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
            while (unit_end := _end_of(queue, last)) > self._end:
                last -= 1
            end = max(end, unit_end)
        tail = LogTail(self._location / COMMIT_LOG, self.log.file_size, end)
        tail.refresh()
        return tail.end

    def message_at(self, phy_offset: int) -> StoredMessage | None:
        """The record that begins at ``phy_offset``, or None."""
        if not self._begin <= phy_offset < self._end:
            return None
        return message_at(self._location / COMMIT_LOG, self.log.file_size, phy_offset)

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The first queue offset stored at ``timestamp_ms`` or later; the max offset if there is none.

        0 for a missing queue.
        """
        queue = next(
            (queue for queue in self.consume_queues if (queue.topic, queue.queue_id) == (topic, queue_id)), None
        )
        if queue is None:
            return 0
        offsets = range(queue.min_offset, queue.max_offset)
        return offsets.start + bisect_left(offsets, timestamp_ms, key=lambda offset: self._stored_ms(queue, offset))

    def _stored_ms(self, queue: RemoteQueue, queue_offset: int) -> int:
        """The store timestamp of a message in ms; below every time if it cannot be read."""
        entry = queue.message_at_or_before(queue_offset)
        message = None if entry is None else self.message_at(entry.phy_offset)
        return _NEVER_MS if message is None else message.store_timestamp_ms

    def record_at_or_after(self, phy_offset: int) -> int:
        """The physical offset of the first queue record at or after ``phy_offset``, else the file's end."""
        units = [queue.message_at_or_before(queue.first_at(phy_offset)) for queue in self.consume_queues]
        file_end = phy_offset - phy_offset % self.log.file_size + self.log.file_size
        phy_offsets = sorted(unit.phy_offset for unit in units if unit is not None and unit.phy_offset < file_end)
        return next((phy_offset for phy_offset in phy_offsets if self.message_at(phy_offset) is not None), file_end)

    def close(self) -> None:
        """Do nothing: no file stays open."""


def _end_of(queue: RemoteQueue, queue_offset: int) -> int:
    """The end of the message that a unit points to, as a physical offset."""
    entry = queue.message_at_or_before(queue_offset)
    return 0 if entry is None else entry.phy_offset + entry.size_bytes
