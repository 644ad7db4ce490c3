"""The offsets of each consumer group by queue.

Thread rule: the event loop's thread.

Source: ConsumerOffsetManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from gantrymq.broker.names import is_system_group
from gantrymq.broker.tables.versioned_table import TableVersion, in_hash_map_order, persisted
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.errors import RemotingError
from gantrymq.remoting.bodies.group import ConsumerOffsetSerializeWrapper
from gantrymq.remoting.bodies.topic import DataVersion

SEPARATOR = "@"
MAX_ENTRIES = 500_000
_ENTRIES_OF_A_KEY = 2  # the memory of a pair of topic and group, beside that of its queues
_PARTS = 2
# The capacities of the hash maps from which RocketMQ writes groupTopicMap; they determine its order.
_GROUPS_AT_FIRST, _TOPICS_AT_FIRST = 128, 8

_Table = dict[str, dict[int, int]]


def offset_key(topic: str, group: str) -> str:
    """``topic@group``."""
    return f"{topic}{SEPARATOR}{group}"


class ConsumerOffsetManager:
    """Committed, pulled and reset offsets. ``edits`` counts changes, so that a caller can see whether to save.

    A reset offset is kept until the consumer's next pull has been moved to it. Until then the consumer's commits for
    that queue are ignored (useServerSideResetOffset). RocketMQ forgets it at a restart.
    """

    def __init__(self, config: LiveConfig, clock: Clock) -> None:
        self._config = config
        self._version = TableVersion(clock)
        self._offsets: _Table = {}
        self._pulled: _Table = {}
        self._reset: _Table = {}
        self._followed: _Table = {}  # the master's offsets at the last look, at a slave
        self.edits = self._commits = 0
        self._entries, self._has_removed = 0, False  # removed entries are subtracted only when the limit is reached

    def __len__(self) -> int:
        """The number of queues with a committed offset."""
        return sum(map(len, self._offsets.values()))

    # One queue

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The committed or reset offset; -1 without one."""
        key = offset_key(topic, group)
        if self._reset and self._config.broker.use_server_side_reset_offset:
            reset = self._reset.get(key, {}).get(queue_id)
            if reset is not None:
                return reset
        return self._offsets.get(key, {}).get(queue_id, -1)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Record a committed offset. Raises RemotingError if too many queues have one."""
        key = offset_key(topic, group)
        queues = self._offsets.get(key)
        if queues is None or queue_id not in queues:
            self._require_room(self._offsets, key)
            queues = self._offsets.setdefault(key, {})
        queues[queue_id] = offset
        self._committed()

    def _has_room(self, table: _Table, key: str, queues: int = 1) -> bool:
        """Whether the limit allows this many more queues with an offset. If it does, they are counted."""
        wanted = queues + (0 if key in table else _ENTRIES_OF_A_KEY)
        if self._entries + wanted > MAX_ENTRIES and self._has_removed:
            self._entries, self._has_removed = self._count(), False
        if self._entries + wanted > MAX_ENTRIES:
            return False
        self._entries += wanted
        return True

    def _require_room(self, table: _Table, key: str, queues: int = 1) -> None:
        if not self._has_room(table, key, queues):
            raise RemotingError(f"{MAX_ENTRIES} queues of groups have an offset, which is the maximum")

    def _count(self) -> int:
        tables = (self._offsets, self._pulled)
        return sum(len(queues) + _ENTRIES_OF_A_KEY for table in tables for queues in table.values())

    def query_pulled(self, group: str, topic: str, queue_id: int) -> int:
        """The pulled offset, or the committed one if the group has not pulled."""
        pulled = self._pulled.get(offset_key(topic, group), {}).get(queue_id)
        return self.query(group, topic, queue_id) if pulled is None else pulled

    def commit_pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Record a pulled offset."""
        key = offset_key(topic, group)
        queues = self._pulled.get(key)
        if queues is None or queue_id not in queues:
            if not self._has_room(self._pulled, key):
                return  # only administrative tools read it
            queues = self._pulled.setdefault(key, {})
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self.edits += 1

    def assign_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Move the group's next pull of this queue to ``offset``. Raises RemotingError as :meth:`commit` does."""
        if not topic or not group or queue_id < 0 or offset < 0:
            return
        key = offset_key(topic, group)
        if queue_id not in self._offsets.get(key, ()):
            self._require_room(self._offsets, key)
        if not is_system_group(group):
            self._reset.setdefault(key, {})[queue_id] = offset
        self._offsets.setdefault(key, {})[queue_id] = offset
        self.edits += 1

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset offset waits for the next pull."""
        return queue_id in self._reset.get(offset_key(topic, group), ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Remove and return the reset offset for the next pull; None without one."""
        if not self._reset:
            return None
        queues = self._reset.get(offset_key(topic, group))
        offset = queues.pop(queue_id, None) if queues is not None else None
        if offset is not None:
            self.edits += 1
        return offset

    def set_back(self, group: str, topic: str, queue_id: int, end: int) -> None:
        """Record that the store has set a group that was ahead of its queue back to the queue's ``end``.

        The file has the new offset already. Connected members still have the old one, so their next pull is moved to
        ``end``, as by a reset. The broker's own groups have no members, so their reset would never be used up.
        """
        for table in (self._offsets, self._reset):
            queues = table.get(offset_key(topic, group), {})
            if queues.get(queue_id, -1) > end:
                queues[queue_id] = end
                self.edits += 1
        if queue_id in self._offsets.get(offset_key(topic, group), {}) and not is_system_group(group):
            self._reset.setdefault(offset_key(topic, group), {}).setdefault(queue_id, end)

    # Topics and groups

    def of(self, group: str, topic: str) -> dict[int, int] | None:
        """The committed offsets of a group on a topic, by queue; None if it has none."""
        return self._offsets.get(offset_key(topic, group))

    def items(self) -> Iterable[tuple[str, str, dict[int, int]]]:
        """(topic, group, offsets by queue) for every well-formed key."""
        for key, queues in list(self._offsets.items()):
            parts = key.split(SEPARATOR)
            if len(parts) == 2:
                yield parts[0], parts[1], queues

    def topics_of(self, group: str) -> set[str]:
        """The topics on which a group has offsets (whichTopicByConsumer)."""
        return {_parts(key)[0] for key in _keys(self._offsets, group=group)}

    def topics_by_group(self) -> dict[str, set[str]]:
        """The topics on which each group has offsets."""
        topics_of: dict[str, set[str]] = {}
        for topic, group, _ in self.items():
            topics_of.setdefault(group, set()).add(topic)
        return topics_of

    def groups_of(self, topic: str) -> set[str]:
        """The groups that have offsets on a topic (whichGroupByTopic)."""
        return {_parts(key)[1] for key in _keys(self._offsets, topic=topic)}

    def clone(self, source: str, target: str, topic: str, *, is_connected: bool = False) -> None:
        """Copy the offsets of one group to another.

        A waiting reset of ``target`` is older, and is dropped. If the group ``is_connected``, its next pulls are moved
        to the new offsets, as by a reset: otherwise its members would overwrite them with their own.
        """
        offsets, key = self._offsets.get(offset_key(topic, source)), offset_key(topic, target)
        if offsets is not None:
            self._require_room(self._offsets, key, max(len(offsets) - len(self._offsets.get(key, ())), 0))
            self._offsets[key] = dict(offsets)
            self._reset.pop(key, None)
            if is_connected:
                self._reset[key] = dict(offsets)
            self._committed()

    def remove_group(self, group: str) -> None:
        """Delete the offsets of a group (removeOffset)."""
        for table in (self._offsets, self._pulled, self._reset):
            self._remove(table, _keys(table, group=group))

    def remove_topic(self, topic: str, connected: Iterable[str] = ()) -> None:
        """Delete the offsets of a topic (cleanOffsetByTopic).

        Consumers of the ``connected`` groups continue with their old offsets. These groups are reset to 0, so that no
        old offset applies to a topic of the same name that is created later.
        """
        resets = dict[str, dict[int, int]]()
        for group in connected:
            key = offset_key(topic, group)
            queue_ids = {*self._offsets.get(key, ()), *self._pulled.get(key, ())}
            if queue_ids:
                resets[key] = dict.fromkeys(sorted(queue_ids), 0)
        for table in (self._offsets, self._pulled, self._reset):
            self._remove(table, _keys(table, topic=topic))
        self._reset |= resets

    def least_of_all_groups(
        self, topic: str, min_offset: Callable[[str, int], int], without: Iterable[str] = ()
    ) -> dict[int, int]:
        """The lowest offset of all groups, by queue (queryMinOffsetInAllGroup).

        The groups in ``without`` are left out. RocketMQ also deletes their offsets, as a side effect.
        """
        left_out, min_offsets = set(without), dict[int, int]()
        for key in _keys(self._offsets, topic=topic):
            if _parts(key)[1] in left_out:
                continue
            for queue_id, offset in self._offsets[key].items():
                if offset >= min_offset(topic, queue_id):
                    min_offsets[queue_id] = min(min_offsets.get(queue_id, offset), offset)
        return min_offsets

    def _remove(self, table: _Table, keys: list[str]) -> None:
        for key in keys:
            del table[key]
        self._has_removed |= bool(keys)
        self.edits += len(keys)

    def forget_resets(self, is_needed: Callable[[str, str], bool]) -> None:
        """Drop reset offsets of groups that will not pull. ``is_needed(topic, group)`` says which groups will."""
        useless = [key for key in self._reset if len(parts := _parts(key)) == _PARTS and not is_needed(*parts)]
        self._remove(self._reset, useless)
        for key in [key for key, queues in self._reset.items() if not queues]:
            del self._reset[key]

    # At a slave

    def follow(self, master: ConsumerOffsetSerializeWrapper, *, is_same_run: bool) -> None:
        """Take a master's offsets; each queue's larger one counts, its own or the master's.

        An offset that the master has set back or deleted since the last look is a reset. Unless it is the
        ``is_same_run`` of the master: one that was killed begins with older offsets than it had.
        """
        before = self._followed if is_same_run else {}
        if before == master.offset_table and is_same_run:
            return
        for key, queues in before.items():
            left = master.offset_table.get(key, {})
            for queue_id in queues.keys() - left.keys():
                self._offsets.get(key, {}).pop(queue_id, None)
        for key, queues in master.offset_table.items():
            own, last = self._offsets.setdefault(key, {}), before.get(key, {})
            for queue_id, offset in queues.items():
                is_reset = offset < last.get(queue_id, offset)
                own[queue_id] = offset if is_reset else max(offset, own.get(queue_id, offset))
        self._offsets = {key: queues for key, queues in self._offsets.items() if queues}
        self._followed = _copy(master.offset_table)
        self._entries = self._count()
        if master.data_version is not None:
            self._version.value = master.data_version
        self.edits += 1

    def _committed(self) -> None:
        self.edits += 1
        self._commits += 1
        if self._commits % self._config.broker.consumer_offset_update_version_step == 0:
            self._version.next()

    # Saving and sending

    def to_body(self) -> ConsumerOffsetSerializeWrapper:
        """All current committed offsets."""
        table = {key: dict(queues) for key, queues in self._offsets.items()}
        return ConsumerOffsetSerializeWrapper(offset_table=table, data_version=self._version.value)

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """A function that makes the content of consumerOffset.json from the current tables.

        It may run on any thread.
        """
        resets = {key: queues for key, queues in self._reset.items() if queues}
        return partial(_to_json, self._version.value, _copy(self._offsets), _copy(self._pulled), _copy(resets))

    def to_json(self) -> dict[str, Any]:
        """The content of consumerOffset.json."""
        return self.snapshot()()

    def load(self, value: dict[str, Any]) -> None:
        """Load the content of consumerOffset.json. Raises msgspec.ValidationError."""
        saved = msgspec.convert(value, ConsumerOffsetSerializeWrapper, strict=False)
        self._offsets = saved.offset_table
        self._pulled = msgspec.convert(value.get("pullOffsetTable", {}), _Table, strict=False)
        resets = msgspec.convert(value.get("resetOffsetTable", {}), _Table, strict=False)
        self._reset = {key: queues for key, queues in resets.items() if not is_system_group(_parts(key)[-1])}
        self._entries = self._count()
        if saved.data_version is not None:
            self._version.value = saved.data_version


def _keys(table: _Table, *, topic: str = "", group: str = "") -> list[str]:
    """The well-formed keys of a topic or of a group.

    Compared by prefix and suffix, as there may be 100,000 other keys.
    """
    begin, end = topic and topic + SEPARATOR, group and SEPARATOR + group
    return [key for key in table if key.startswith(begin) and key.endswith(end) and key.count(SEPARATOR) == 1]


def _parts(key: str) -> list[str]:
    return key.split(SEPARATOR)


def _copy(table: _Table) -> _Table:
    return {key: dict(queues) for key, queues in table.items()}


def _to_json(version: DataVersion, offsets: _Table, pulled: _Table, resets: _Table) -> dict[str, Any]:
    groups: dict[str, list[str]] = {}
    for key in offsets:
        parts = key.split(SEPARATOR)
        if len(parts) == _PARTS:
            groups.setdefault(parts[1], []).append(parts[0])
    # RocketMQ skips this table, and fastjson2 cannot skip a number without quotes as a name: RocketMQ would not start.
    quoted = {key: {str(queue_id): offset for queue_id, offset in queues.items()} for key, queues in resets.items()}
    return {
        "dataVersion": persisted(version),
        "groupTopicMap": {
            group: in_hash_map_order(groups[group], _TOPICS_AT_FIRST)
            for group in in_hash_map_order(groups, _GROUPS_AT_FIRST)
        },
        "offsetTable": persisted(offsets),
        "pullOffsetTable": persisted(pulled),
    } | ({"resetOffsetTable": quoted} if resets else {})
