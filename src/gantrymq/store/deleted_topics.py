"""The topics that were deleted, and the end of their messages in the log, so that recovery does not restore them.

The messages of a deleted topic stay in the log until retention removes them, and recovery dispatches every record
without a unit. Without a note of the deletion, the next start brings the messages back (as in RocketMQ 5.5.0), even
into a topic of the same name that was created since.

``config/deletedTopics.json`` has, by topic, where its last message begins and ends. It is written before the queues are
removed, so after a kill in between the next start deletes them. An entry counts only while that message is where it
was: if the log was cut before it, later messages may be there, and none of them may be lost.

Thread rule: changed by one thread at a time, under the put lock. Read by the dispatcher.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from gantrymq.format.names import DELETED_TOPICS
from gantrymq.fs.api import FileSystem
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
    same for delayed messages that wait for delivery to it.
    """

    def __init__(self, fs: FileSystem, paths: StorePaths, record_at: RecordAt, min_offset: int) -> None:
        self._file = ConfigFile(fs, paths.config / DELETED_TOPICS)
        kept = self._file.load()
        for problem in table_problems(DELETED_TOPICS, kept):
            _LOGGER.warning("%s: %s; ignored: messages of that topic may reappear", self._file.path, problem)
        self._deletions = {
            topic: deletion
            for topic, deletion in _read(kept).items()
            if deletion.end_offset > min_offset and _is_certain(topic, deletion, record_at)
        }
        self._find_ends()

    def _find_ends(self) -> None:
        self.ends: Mapping[str, int] = {topic: one.end_offset for topic, one in self._deletions.items()}
        self.delayed_ends: Mapping[str, int] = {topic: one.delayed_end for topic, one in self._deletions.items()}

    def add(self, topic: str, last_offset: int, end_offset: int, delayed_end: int, min_offset: int) -> None:
        """Record the deletion of a topic. Returns when it is durable. Raises DiskFullError, OSError.

        ``last_offset`` and ``end_offset`` are where its last message begins and ends. ``delayed_end`` is the end of the
        log, which must be on the disk up to there. Entries for messages before ``min_offset``, where the log begins,
        are dropped.
        """
        self._deletions[topic] = _Deletion(last_offset, end_offset, delayed_end)
        self._deletions = {name: one for name, one in self._deletions.items() if one.end_offset > min_offset}
        table = {
            name: {_LAST: one.last_offset, _END: one.end_offset, _DELAYED: one.delayed_end}
            for name, one in self._deletions.items()
        }
        self._file.save({_TABLE: table})
        self._find_ends()


def _read(kept: Mapping[str, object]) -> dict[str, _Deletion]:
    table = kept.get(_TABLE)
    deletions = {}
    for topic, entry in table.items() if isinstance(table, dict) else ():
        last, end = (entry.get(_LAST), entry.get(_END)) if isinstance(entry, dict) else (None, None)
        if type(last) is int and type(end) is int and min(last, end) >= 0:
            delayed = entry.get(_DELAYED)
            deletions[topic] = _Deletion(last, end, delayed if type(delayed) is int and delayed >= 0 else end)
    return deletions


def _is_certain(topic: str, deletion: _Deletion, record_at: RecordAt) -> bool:
    if record_at(deletion.last_offset) == (topic, deletion.end_offset):
        return True
    text = "topic %s was deleted, but its last message is no longer at offset %d of the log: older ones may reappear"
    _LOGGER.warning(text, topic, deletion.last_offset)
    return False
