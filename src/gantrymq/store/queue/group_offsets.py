"""Compares the committed offsets of consumer groups and delay levels (``config/``) with the ends of their queues.

A group that is ahead of its queue skips the next messages: they get the offsets that it has already committed. The
causes are a power cut (the table was written, the end of the log was not), a log that was cut or salvaged, and an older
copy of a queue beside a newer table. RocketMQ moves a group back to the queue's end at its next pull, but by then the
queue may have grown past the group. Here every start, ``rebuild`` and ``salvage`` set such a group to the queue's end
before a message gets an offset.

The offset of the group that revives popped messages is that of the last record that it has handled, not of the next.
So its largest offset is one before the end.

``consumerOffset.json`` has the groups, ``delayOffset.json`` the delay levels. Light queues and static topics are not
checked, because their offsets are those of another queue, nor is a topic without any queue.

Thread rule: plain functions.

Source: ConsumerOffsetManager, ScheduleMessageService.correctDelayOffset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from gantrymq.errors import StoreError
from gantrymq.format.names import CONSUMER_OFFSET, DELAY_OFFSET, is_topic_storable
from gantrymq.fs.api import FileSystem
from gantrymq.model.java import INT_MAX, parse_number
from gantrymq.model.message import REVIVE_GROUP, SCHEDULE_TOPIC
from gantrymq.store.config_files import ConfigFile
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queues import ConsumeQueues, is_light

_OFFSETS, _RESETS, _PULLED = "offsetTable", "resetOffsetTable", "pullOffsetTable"
_STATIC_TOPICS, _STATIC = "topicQueueMapping.json", "topicQueueMappingInfoMap"
_SEPARATOR = "@"
_LONGEST_QUEUE = 1 << 50


class GroupOffset(NamedTuple):
    """``group`` has committed ``offset``, its next message of a queue. A delay level has no group (``""``)."""

    group: str
    topic: str
    queue_id: int
    offset: int

    @property
    def name(self) -> str:
        """The name of the group or the delay level, for people."""
        return f"group {self.group}" if self.group else f"delay level {self.queue_id + 1}"

    @property
    def file_name(self) -> str:
        """The file of ``config/`` that holds the offset."""
        return CONSUMER_OFFSET if self.group else DELAY_OFFSET


class GroupTable(NamedTuple):
    """The committed offsets of ``group`` in one topic as (queue id, offset).

    A queue id may occur twice (``1``, ``+1``).
    """

    group: str
    topic: str
    offsets: list[tuple[int, int]]


class GroupAhead(NamedTuple):
    """A committed offset ``at`` that is past the queue's end ``end``."""

    at: GroupOffset
    end: int

    @property
    def back_to(self) -> int:
        """The offset to which the group is set back, so that its next message is the one at the end."""
        return _last_offset(self.at.group, self.end)


def _last_offset(group: str, end: int) -> int:
    """The largest offset that a group may have committed."""
    return end - 1 if group == REVIVE_GROUP else end


# Returns the end of a queue by topic and queue id, or None if it is not known.
EndOf = Callable[[str, int], int | None]


def read_group_offsets(fs: FileSystem, paths: StorePaths) -> list[GroupTable]:
    """Return every committed offset. Unreadable or malformed tables are ignored.

    There is one object for each group and topic, not for each offset: a broker may have hundreds of thousands.
    """
    static = _table(_load(fs, paths, _STATIC_TOPICS), _STATIC)
    group_offsets = [*_groups(_load(fs, paths, CONSUMER_OFFSET)), *_levels(_load(fs, paths, DELAY_OFFSET))]
    return [
        group_offset
        for group_offset in group_offsets
        if not is_light(group_offset.topic) and group_offset.topic not in static
    ]


def groups_ahead(tables: Iterable[GroupTable], end_of: EndOf) -> list[GroupAhead]:
    """Return the offsets that are past the end of their queue, sorted."""
    return sorted(
        {
            GroupAhead(GroupOffset(group, topic, queue_id, offset), end)
            for group, topic, offsets in tables
            for queue_id, offset in offsets
            if (end := end_of(topic, queue_id)) is not None and offset > _last_offset(group, end)
        }
    )


def end_in(queues: ConsumeQueues, topics: Iterable[str] = ()) -> EndOf:
    """Return a function that gives the ends of these queues.

    A missing queue ends at 0 if its topic has other queues or is among ``topics``.
    """
    topics = {*topics, *(queue.topic for queue in queues)}

    def end_of(topic: str, queue_id: int) -> int | None:
        queue = queues.get(topic, queue_id)
        return queue.max_offset if queue is not None else 0 if topic in topics else None

    return end_of


def begin_missing_queues(tables: Iterable[GroupTable], queues: ConsumeQueues) -> None:
    """Let each queue that does not exist begin at the largest offset that a group has committed there.

    A slave lacks the queues without a message in its master's log. At 0 their messages would be behind their groups.
    Raises DiskFullError.
    """
    begins: dict[tuple[str, int], int] = {}
    for _, topic, offsets in tables:
        for queue_id, offset in offsets:
            if is_topic_storable(topic) and queues.get(topic, queue_id) is None:
                begins[topic, queue_id] = max(offset, begins.get((topic, queue_id), 0))
    for (topic, queue_id), offset in begins.items():
        if 0 < offset <= _LONGEST_QUEUE:
            queues.get_or_create(topic, queue_id).begin_at(offset)


def set_back(fs: FileSystem, paths: StorePaths, ahead: Sequence[GroupAhead]) -> None:
    """Set each of these groups to the end of its queue. Returns when that is durable. Raises DiskFullError."""
    for name in {group_ahead.at.file_name for group_ahead in ahead}:
        file = ConfigFile(fs, paths.config / name)
        value = file.read(dict, keeps_edits=True) or {}
        _lower(value, [group_ahead for group_ahead in ahead if group_ahead.at.file_name == name])
        file.save(_with_number_keys(value, is_of_levels=name == DELAY_OFFSET))


def _load(fs: FileSystem, paths: StorePaths, name: str) -> Mapping[str, Any]:
    """Return the object of a file as a broker reads it.

    A file that was edited by hand is not replaced by its ``.bak``.
    """
    with suppress(StoreError, OSError):
        return ConfigFile(fs, paths.config / name).read(dict, keeps_edits=True) or {}
    return {}


def _table(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = value.get(key)
    return table if isinstance(table, dict) else {}


def _groups(value: Mapping[str, Any]) -> Iterator[GroupTable]:
    for key in (_OFFSETS, _RESETS):
        for name, queues in _table(value, key).items():
            topic, separator, group = name.partition(_SEPARATOR)
            if separator and group and _SEPARATOR not in group and isinstance(queues, dict):
                yield GroupTable(group, topic, _numbers(queues, min_number=0))


def _levels(value: Mapping[str, Any]) -> Iterator[GroupTable]:
    levels = _numbers(_table(value, _OFFSETS), min_number=1)
    yield GroupTable("", SCHEDULE_TOPIC, [(level - 1, offset) for level, offset in levels])


def _numbers(table: Mapping[str, Any], *, min_number: int) -> list[tuple[int, int]]:
    """Return (number, offset) of the entries of ``table`` with an offset and a number of at least ``min_number``."""
    return [
        (number, offset)
        for text, offset in table.items()
        if (number := _number(text)) >= min_number and type(offset) is int
    ]


def _lower(value: dict[str, Any], ahead: Iterable[GroupAhead]) -> None:
    ends = defaultdict[tuple[str, str], dict[int, int]](dict)
    for group_ahead in ahead:
        at = group_ahead.at
        ends[at.topic, at.group][at.queue_id if at.group else at.queue_id + 1] = group_ahead.back_to
    for (topic, group), end_of in ends.items():
        for table in (_table(value, key) for key in (_OFFSETS, _RESETS)):
            own = _table(table, f"{topic}{_SEPARATOR}{group}") if group else table
            for text, offset in own.items():
                if type(offset) is int and offset > end_of.get(_number(text), offset):
                    own[text] = end_of[_number(text)]  # type: ignore[index]


def _with_number_keys(value: dict[str, Any], *, is_of_levels: bool) -> dict[str, Any]:
    """Return the file's object as RocketMQ writes it: numbers of queues and levels without quotes.

    Those of the resets have quotes: RocketMQ does not know this table, and could not skip it without them.
    """
    if is_of_levels:
        return {key: _numbered(table) if key == _OFFSETS else table for key, table in value.items()}
    tables = (_OFFSETS, _PULLED)
    return {
        key: {name: _numbered(queues) for name, queues in table.items()}
        if key in tables and isinstance(table, dict)
        else table
        for key, table in value.items()
    }


def _numbered(table: Any) -> Any:
    if not isinstance(table, dict):
        return table
    return {_number(text) if _number(text) >= 0 else text: offset for text, offset in table.items()}


@lru_cache(maxsize=4096)  # the tables of all groups repeat a few numbers
def _number(text: str) -> int:
    """Return the number that ``text`` represents, or -1 if it is not a number."""
    try:
        return parse_number(text, INT_MAX)
    except ValueError:
        return -1
