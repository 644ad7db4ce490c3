"""The tables of ``config/`` as they fit the end of an archive: no offset is behind a queue's end.

The tables are newer than the last whole log file. What consumers have committed counts, up to the ends of the queues.
What the broker itself had done is another matter: it takes a delayed message, a timer, a half message or a pop from one
place of the log, and puts it at the end. If that end is not in the archive, a broker on a copy must do it again. So the
broker's own progress is set back to what it was ten minutes before the newest record of the archive. A copy may deliver
twice what was due in these minutes. It does not deliver what was due earlier and was delivered after the archive's end,
which happens if the end is between a long stop of the broker and the end of its catching up.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import NamedTuple

import numpy as np

from gantrymq.archive.source import ArchiveSource
from gantrymq.errors import StoreError
from gantrymq.format import names
from gantrymq.format.queue_units import Units
from gantrymq.fs.api import FileSystem
from gantrymq.fs.replaced_file import ReplacedFile
from gantrymq.kernels.arrays import Int64s
from gantrymq.model.message import REVIVE_GROUP, TIMER_TOPIC, TRANS_GROUP
from gantrymq.store.config_files import ConfigFile, parse_config, require_tables
from gantrymq.store.deleted_topics import DeletedTopics
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.group_offsets import GroupAhead, GroupOffset, groups_ahead, read_group_offsets, set_back
from gantrymq.store.timer.timer_files import TimerCheckpointFile
from gantrymq.tools.read.log_places import log_files
from gantrymq.tools.read.queue_files import QueueFiles
from gantrymq.tools.read.record_lookup import RecordLookup

_STEP_UNITS = 4096
_TABLE, _END, _DELAYED = "deletedTopics", "endOffset", "delayedOffset"
_OF_BROKER = (TRANS_GROUP, REVIVE_GROUP)


class ArchivedEnd(NamedTuple):
    """The end of the archived log, and where (physical offset) and when (ms) the log was ten minutes before it."""

    end: int
    settled_offset: int
    settled_ms: int


class ArchivedTables:
    """Makes the tables of a store at ``paths``, on ``fs``, of those of ``source``."""

    def __init__(self, source: ArchiveSource, fs: FileSystem, paths: StorePaths) -> None:
        self._source, self._fs, self._paths = source, fs, paths

    def deleted_ends(self, end: int) -> Mapping[str, int]:
        """The physical offset before which the messages of each deleted topic are deleted, in a log up to ``end``."""
        files, _ = log_files(self._source.fs, self._source.paths)
        begin = files[0].base if files else 0
        with closing(RecordLookup.of(self._source.fs, files)) as lookup:
            ends = DeletedTopics(self._source.fs, self._source.paths, lookup.topic_and_end, begin).ends
        return {topic: offset for topic, offset in ends.items() if offset <= end}

    def copy(self, at: ArchivedEnd, ends: Mapping[tuple[str, int], int]) -> list[str]:
        """Copy the tables for a log that ends ``at`` and has queues with these ``ends``.

        Returns the names of unusable ones, of which the version before stays. Raises DiskFullError.
        """
        unusable = self._copy_as_they_are()
        self._forget_later_deletions(at.end)
        self._set_back_progress(at, ends)
        self._set_back_timers(at, ends)
        topics = {topic for topic, _ in ends}

        def end_of(topic: str, queue_id: int) -> int | None:
            return ends.get((topic, queue_id), 0 if topic in topics else None)

        set_back(self._fs, self._paths, groups_ahead(read_group_offsets(self._fs, self._paths), end_of))
        return unusable

    def _copy_as_they_are(self) -> list[str]:
        unusable, present = [], set[str]()
        self._fs.make_directory(self._paths.config)
        for entry in self._source.fs.scan(self._source.paths.config):
            name = entry.name
            if entry.is_directory or entry.is_special or not name.endswith(".json"):
                continue
            present.add(name)
            raw = self._usable(name)
            if raw is None:
                unusable.append(name)
            elif raw:
                (self._paths.config / name).write_bytes(raw)
        for entry in self._fs.scan(self._paths.config):
            if entry.name.endswith(".json") and entry.name not in present:
                self._fs.remove(self._paths.config / entry.name)
        return unusable

    def _usable(self, name: str) -> bytes | None:
        """The bytes of a table, or of its backup; empty if both are blank, None if neither can be used."""
        is_blank = True
        for raw in self._versions(name):
            try:
                if raw.strip(b"\0 \t\r\n"):
                    is_blank = False
                    require_tables(name, parse_config(raw))
                    return raw
            except ValueError:
                continue
        return b"" if is_blank else None

    def _versions(self, name: str) -> list[bytes]:
        with suppress(OSError, StoreError):
            return list(ReplacedFile(self._source.fs, self._source.paths.config / name).versions())
        return [b"unreadable"]

    def _forget_later_deletions(self, end: int) -> None:
        """Keep only deletions whose messages all lie in the archived log: before the others, the topics existed."""
        file = ConfigFile(self._fs, self._paths.config / names.DELETED_TOPICS)
        table = file.load().get(_TABLE)
        if not isinstance(table, dict):
            return
        remaining = {}
        for topic, deletion in table.items():
            if isinstance(deletion, dict) and type(deletion.get(_END)) is int and deletion[_END] <= end:
                delayed = deletion.get(_DELAYED)
                remaining[topic] = {**deletion, _DELAYED: min(delayed, end) if type(delayed) is int else deletion[_END]}
        file.save({_TABLE: remaining})

    def _set_back_progress(self, at: ArchivedEnd, ends: Mapping[tuple[str, int], int]) -> None:
        back = []
        for group, topic, offsets in read_group_offsets(self._fs, self._paths):
            if group and group not in _OF_BROKER:
                continue
            for queue_id, offset in offsets:
                end = min(ends.get((topic, queue_id), 0), offset)
                first = self._first_unit(topic, queue_id, end, _before(at, is_delay=not group))
                if first < offset:
                    of_revive = group == REVIVE_GROUP  # its offset is that of the last record it has handled
                    back.append(GroupAhead(GroupOffset(group, topic, queue_id, offset), first + of_revive))
        set_back(self._fs, self._paths, back)

    def _first_unit(self, topic: str, queue_id: int, end: int, is_before: Callable[[Units], Int64s]) -> int:
        """The first queue offset from which on no unit up to ``end`` is before the time."""
        paths, size = self._source.paths, self._source.config.mapped_file_size_consume_queue
        directory = paths.consume_queue / topic / str(queue_id)
        queue = QueueFiles.loaded(self._source.fs, directory, topic, queue_id, size)
        while end > queue.first:
            begin = max(end - _STEP_UNITS, queue.first)
            before = is_before(queue.units(begin, end))
            if len(before):
                return begin + int(before[-1]) + 1
            end = begin
        return end

    def _set_back_timers(self, at: ArchivedEnd, ends: Mapping[tuple[str, int], int]) -> None:
        """Let a start read the timer topic from its first message: wheel and timer log are not archived."""
        path = self._source.paths.timer_checkpoint
        old = TimerCheckpointFile(self._source.fs, path)
        with suppress(OSError, StoreError):  # without it what is due is delivered again
            old.load()
        if old.is_missing:
            self._fs.remove(self._paths.timer_checkpoint)
            return
        page = old.page
        settled = min(max(page.timer_queue_offset, page.master_timer_queue_offset), ends.get((TIMER_TOPIC, 0), 0))
        made = TimerCheckpointFile(self._fs, self._paths.timer_checkpoint)
        made.save(min(page.last_read_time_ms, at.settled_ms), 0, 0, settled, page.timestamp_ms)


def _before(at: ArchivedEnd, *, is_delay: bool) -> Callable[[Units], Int64s]:
    """A function that gives the rows of units which were settled ten minutes before the end.

    The unit of a delayed message has the time of its delivery; other records are settled soon after they are stored.
    """

    def rows(units: Units) -> Int64s:
        if is_delay:
            return np.flatnonzero(~units.is_filler & (units.tags_codes < at.settled_ms))
        return np.flatnonzero(~units.is_filler & (units.phy_offsets < at.settled_offset))

    return rows
