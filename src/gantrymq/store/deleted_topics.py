"""The topics that were deleted, and the end of their messages in the log, so that recovery does not restore them.

The messages of a deleted topic stay in the log until retention removes them, and recovery dispatches every record
without a unit. Without a note of the deletion, the next start brings the messages back (as in RocketMQ 5.5.0), even
into a topic of the same name that was created since.

``config/deletedTopics.json`` has, by topic, where its last message begins and ends. It is written before the queues are
removed, so after a kill in between the next start deletes them. An entry counts only while that message is where it
was: if the log was cut before it, later messages may be there, and none of them may be lost.

A message that waits for its delivery to a topic is deleted with the topic, and so is a checkpoint or an acknowledgement
of POP for it: in a topic of the same name that was created since, its queue offsets name other messages. A record is of
the deleted topic if it was put before ``delayedOffset``, the end of the log at the deletion.

Thread rule: changed by one thread at a time, under ``guard`` and the put lock. Read by the dispatcher. Who delivers a
waiting message holds ``guard`` from :meth:`DeletedTopics.is_deleted` to the end of the put, so that no topic is deleted
in between; ``guard`` is taken before the put lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from gantrymq.format.names import DELETED_TOPICS
from gantrymq.fs.api import FileSystem
from gantrymq.model.message import REVIVE_TOPIC_PREFIX
from gantrymq.store.config_files import ConfigFile, table_problems
from gantrymq.store.paths import StorePaths

_TABLE, _LAST, _END, _DELAYED = "deletedTopics", "lastOffset", "endOffset", "delayedOffset"
_LOGGER = logging.getLogger(__name__)

# Returns the topic of the record at a physical offset and the offset after it, or None if there is no record.
RecordAt = Callable[[int], tuple[str, int] | None]


class _Deletion(NamedTuple):
    last_offset: int
    end_offset: int
    delayed_end: int


class DeletedTopics:
    """The deletions of the store at ``paths``. ``record_at`` reads the store's log, which begins at ``min_offset``.

    ``ends`` maps a topic to the physical offset before which all its messages are deleted. ``delayed_ends`` does the
    same for messages that wait for delivery to it; it also has topics without messages that were deleted since the
    start.
    """

    def __init__(self, fs: FileSystem, paths: StorePaths, record_at: RecordAt, min_offset: int) -> None:
        self.guard = threading.Lock()
        self._without_messages: dict[str, int] = {}
        self._file = ConfigFile(fs, paths.config / DELETED_TOPICS)
        saved, self._min_offset, self._is_saved = self._file.load(), min_offset, True
        for problem in table_problems(DELETED_TOPICS, saved):
            _LOGGER.warning("%s: %s; ignored: messages of that topic may reappear", self._file.path, problem)
        self._deletions = {
            topic: deletion
            for topic, deletion in _read(saved).items()
            if deletion.delayed_end > min_offset and self._is_certain(topic, deletion, record_at)
        }
        self._find_ends()

    def _find_ends(self) -> None:
        self.ends: Mapping[str, int] = {
            topic: deletion.end_offset
            for topic, deletion in self._deletions.items()
            if deletion.end_offset > self._min_offset
        }
        delayed_ends = {topic: deletion.delayed_end for topic, deletion in self._deletions.items()}
        self.delayed_ends: Mapping[str, int] = self._without_messages | delayed_ends
        self._newest_end = max(self.delayed_ends.values(), default=0)

    def is_deleted(self, topic: str, phy_offset: int, body: bytes) -> bool:
        """Whether a topic was deleted after the record at ``phy_offset`` was put, to be delivered to it later.

        A record for a revive topic, with this ``body``, counts as one for the topic that was popped.
        """
        if phy_offset >= self._newest_end:
            return False
        owner = _popped_topic(body) if topic.startswith(REVIVE_TOPIC_PREFIX) else topic
        return phy_offset < self.delayed_ends.get(owner, 0)

    def add_without_messages(self, topic: str, delayed_end: int) -> None:
        """Remember, until the store is closed, that a topic without messages was deleted."""
        self._without_messages[topic] = delayed_end
        self._find_ends()

    def add(self, topic: str, last_offset: int, end_offset: int, delayed_end: int, min_offset: int) -> None:
        """Record the deletion of a topic. Returns when it is durable. Raises DiskFullError, OSError.

        ``last_offset`` and ``end_offset`` are where its last message begins and ends. ``delayed_end`` is the end of the
        log, which must be on the disk up to there. Entries for messages before ``min_offset``, where the log begins,
        are dropped.
        """
        self._without_messages.pop(topic, None)
        self._deletions[topic] = _Deletion(last_offset, end_offset, delayed_end)
        self._min_offset = min_offset
        self._deletions = {
            name: deletion for name, deletion in self._deletions.items() if deletion.delayed_end > min_offset
        }
        self._save()
        self._find_ends()

    def confirm(self, log_end: int) -> None:
        """Write the table without what no longer counts. Call it after a recovery, with the end of the log.

        Later starts cannot check a deletion whose last message retention has removed, so they rely on the file.
        """
        for topic, deletion in self._deletions.items():
            if deletion.delayed_end > log_end:  # the log was cut, and new records will be there
                self._deletions[topic] = deletion._replace(delayed_end=log_end)
                self._is_saved = False
        if not self._is_saved:
            self._save()
            self._find_ends()

    def _save(self) -> None:
        table = {
            name: {_LAST: deletion.last_offset, _END: deletion.end_offset, _DELAYED: deletion.delayed_end}
            for name, deletion in self._deletions.items()
        }
        self._file.save({_TABLE: table})
        self._is_saved = True

    def _is_certain(self, topic: str, deletion: _Deletion, record_at: RecordAt) -> bool:
        if deletion.last_offset < self._min_offset or record_at(deletion.last_offset) == (topic, deletion.end_offset):
            return True
        text = (
            "topic %s was deleted, but its last message is no longer at offset %d of the log: older ones may reappear"
        )
        _LOGGER.warning(text, topic, deletion.last_offset)
        self._is_saved = False
        return False


def _popped_topic(body: bytes) -> str:
    # It imports msgspec, a twentieth of a start, and few stores ever delete a topic that is popped.
    from gantrymq.format.pop_checkpoint import popped_topic

    return popped_topic(body)


def _read(saved: Mapping[str, object]) -> dict[str, _Deletion]:
    table = saved.get(_TABLE)
    deletions = {}
    for topic, entry in table.items() if isinstance(table, dict) else ():
        last, end = (entry.get(_LAST), entry.get(_END)) if isinstance(entry, dict) else (None, None)
        if type(last) is int and type(end) is int and min(last, end) >= 0:
            delayed = entry.get(_DELAYED)
            deletions[topic] = _Deletion(last, end, delayed if type(delayed) is int and delayed >= 0 else end)
    return deletions
