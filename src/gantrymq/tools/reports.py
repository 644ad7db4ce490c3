"""The account of loss: what a store had and the result of a tool does not have, and what was repaired.

``salvage``, ``rebuild``, ``recover`` and ``export`` all report one :class:`LossAccount`, whichever engine does the
work. :mod:`gantrymq.tools.audit.queue_account` fills it from the consume queues,
:mod:`gantrymq.tools.audit.loss_account` from the checkpoint and the index.

Every start of ``recover`` imports this module, so its classes are cheap to make: named tuples where they can be.

Thread rule: plain values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.group_offsets import GroupAhead


class LostRange(NamedTuple):
    """A range [start, end) of the log without a whole record of its own; ``reason`` is text for people.

    ``has_records`` says that whole records lie there that belong elsewhere in the log; a recovery reads past them.
    ``stated_offset`` is the physical offset that they carry, or -1. With ``has_right_body`` it is one record that is
    damaged elsewhere than in its body: the start of a closed store takes it, unless the start ends before.
    """

    path: Path
    start: int
    end: int
    reason: str
    has_records: bool = False
    stated_offset: int = -1
    has_right_body: bool = False

    def as_json(self, store: Path) -> dict[str, Any]:
        """The object that ``--json`` prints; the path is relative to the store."""
        path = str(StorePaths(store).name_of(self.path))
        return {"path": path, "phyOffset": self.start, "bytes": self.end - self.start, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class LostMessages:
    """The messages [begin, end) of one queue, by queue offset, that the result does not have.

    The first of them lay at ``phy_offset``, the last one ended at ``phy_end``; both are -1 if unknown.
    """

    topic: str
    queue_id: int
    begin: int
    end: int
    phy_offset: int
    phy_end: int
    reason: str

    @property
    def count(self) -> int:
        """The number of messages."""
        return self.end - self.begin

    @property
    def name(self) -> str:
        """The messages as text: TOPIC/QUEUE and the first and last queue offset."""
        last = f" to {self.end - 1}" if self.count > 1 else ""
        return f"{self.topic}/{self.queue_id} offset {self.begin}{last}"

    def as_json(self) -> dict[str, Any]:
        """The object that ``--json`` prints; ``to`` is the last offset."""
        return {
            "topic": self.topic,
            "queueId": self.queue_id,
            "from": self.begin,
            "to": self.end - 1,
            "count": self.count,
            "phyOffset": self.phy_offset if self.phy_offset >= 0 else None,
            "phyEnd": self.phy_end if self.phy_end >= 0 else None,
            "reason": self.reason,
        }


class Quarantined(NamedTuple):
    """A whole record whose queue nothing proves. It names ``topic``, ``queue_id`` and ``queue_offset``.

    It is in no queue of the result. ``likely`` is the topic, queue id and queue offset where it probably belongs, or
    None.
    """

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    size_bytes: int
    reason: str
    likely: tuple[str, int, int] | None = None

    @property
    def slot(self) -> tuple[str, int, int]:
        """The topic, queue id and queue offset that the record names."""
        return self.topic, self.queue_id, self.queue_offset

    @property
    def text(self) -> str:
        """One line of text for the report."""
        home = f", likely {_slot_text(self.likely)}" if self.likely is not None else ""
        return f"{_slot_text(self.slot)}, at offset {self.phy_offset} of the log{home}: {self.reason}"

    def as_json(self) -> dict[str, Any]:
        """The object that ``--json`` prints."""
        return {
            **_slot_json(self.slot),
            "phyOffset": self.phy_offset,
            "bytes": self.size_bytes,
            "reason": self.reason,
            "likely": _slot_json(self.likely) if self.likely is not None else None,
        }


def _slot_text(slot: tuple[str, int, int]) -> str:
    return f"{slot[0]}/{slot[1]} offset {slot[2]}"


def _slot_json(slot: tuple[str, int, int]) -> dict[str, Any]:
    return dict(zip(("topic", "queueId", "queueOffset"), slot, strict=True))


class RepairedRecord(NamedTuple):
    """A record with a wrong field that is in the result all the same, at ``queue_offset`` of its queue.

    ``stated`` describes the wrong field.
    """

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    size_bytes: int
    stated: str

    def as_json(self) -> dict[str, Any]:
        """The object that ``--json`` prints. A record that names another queue is quarantined, so ``said`` is null."""
        return {
            "topic": self.topic,
            "queueId": self.queue_id,
            "queueOffset": self.queue_offset,
            "phyOffset": self.phy_offset,
            "bytes": self.size_bytes,
            "reason": self.stated,
            "said": None,
        }


class ShortQueue(NamedTuple):
    """A queue that ended at offset ``was_end`` and now ends at ``end``: the offsets between are given out again."""

    topic: str
    queue_id: int
    was_end: int
    end: int

    def as_json(self) -> dict[str, Any]:
        """The object that ``--json`` prints."""
        return {"topic": self.topic, "queueId": self.queue_id, "wasMaxOffset": self.was_end, "maxOffset": self.end}


class FilledSlots(NamedTuple):
    """The slots [begin, end) of a queue that point to no message."""

    topic: str
    queue_id: int
    begin: int
    end: int

    def as_json(self) -> dict[str, Any]:
        """The object that ``--json`` prints; ``to`` is the last offset."""
        count = self.end - self.begin
        return {"topic": self.topic, "queueId": self.queue_id, "from": self.begin, "to": self.end - 1, "count": count}


class NotCompared(NamedTuple):
    """A file of the store that could not be compared with the result.

    ``is_damage``: the file cannot be read or has impossible content. Otherwise it only lacks information, as after a
    kill.
    """

    path: Path
    reason: str
    is_damage: bool = True

    def as_json(self, store: Path) -> dict[str, Any]:
        """The object that ``--json`` prints; the path is relative to the store."""
        return {"path": str(StorePaths(store).name_of(self.path)), "reason": self.reason}


class MisfiledQueue(NamedTuple):
    """``files`` of the directory ``path`` of an old queue hold entries of queue ``owner`` and are used for it.

    ``owner`` is (topic, queue id), or None: the entries point to no record of this log and are of another store.
    """

    path: Path
    owner: tuple[str, int] | None
    files: int

    def as_json(self, store: Path) -> dict[str, Any]:
        """The object that ``--json`` prints; the path is relative to the store."""
        topic, queue_id = self.owner or (None, None)
        path = str(StorePaths(store).name_of(self.path))
        return {"path": path, "topic": topic, "queueId": queue_id, "files": self.files}

    def as_text(self, store: Path) -> str:
        """One line of text for the report."""
        path, files = StorePaths(store).name_of(self.path), f"{self.files} file{'s' * (self.files > 1)}"
        if self.owner is None:
            return f"{path}: {files} of entries that point to no record of this log, possibly of another store"
        return f"{path}: {files} of entries of queue {self.owner[1]} of {self.owner[0]}, taken as its own"


@dataclass(slots=True)
class LossAccount:
    """Everything that a store had and the result does not have, and what was repaired.

    ``ranges`` are parts of the log, ``messages`` the messages that are known to be lost; one loss may be in both. A
    message that is in neither is in the result, is ``quarantined``, or is ``expired``: it lay before the log's begin,
    where retention deletes. ``groups_ahead`` are consumer groups whose committed offset was after their queue's end in
    the result. They are set back to that end, or they would skip the next messages. That is not a loss.
    """

    ranges: list[LostRange] = field(default_factory=list)
    messages: list[LostMessages] = field(default_factory=list)
    repaired: list[RepairedRecord] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    short_queues: list[ShortQueue] = field(default_factory=list)
    filled: list[FilledSlots] = field(default_factory=list)
    expired: list[FilledSlots] = field(default_factory=list)
    not_compared: list[NotCompared] = field(default_factory=list)
    groups_ahead: list[GroupAhead] = field(default_factory=list)
    misfiled: list[MisfiledQueue] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known to be lost and nothing had to be repaired."""
        return not (self.ranges or self.messages or self.repaired or self.quarantined or self.short_queues)

    @property
    def is_compared(self) -> bool:
        """Whether no damaged file prevented the comparison. Only then is "lost nothing" true."""
        return not any(file.is_damage for file in self.not_compared) and all(queue.owner for queue in self.misfiled)

    def quarantine(self, records: Sequence[Quarantined]) -> None:
        """Report whole records as quarantined instead of lost, each with the message that it likely is."""
        phy_offsets = {record.phy_offset for record in records}
        homes = {record.likely for record in records}
        self.ranges = [
            gap
            for gap in self.ranges
            if gap.start not in phy_offsets or not (gap.has_records or gap.stated_offset >= 0)
        ]
        self.messages = [
            lost for lost in self.messages if lost.count > 1 or (lost.topic, lost.queue_id, lost.begin) not in homes
        ]
        self.quarantined = sorted(records, key=lambda record: record.phy_offset)

    @property
    def message_count(self) -> int:
        """The number of messages that are known to be lost."""
        return sum(lost.count for lost in self.messages)

    def as_json(self, store: Path) -> dict[str, Any]:
        """The fields that ``--json`` prints."""
        single = {lost.phy_offset: lost for lost in self.messages if lost.count == 1}
        return {
            "lost": [{**gap.as_json(store), **_queue_of(single.get(gap.start))} for gap in self.ranges],
            "lostMessages": [lost.as_json() for lost in self.messages],
            "repaired": [record.as_json() for record in self.repaired],
            "quarantined": [record.as_json() for record in self.quarantined],
            "shortQueues": [queue.as_json() for queue in self.short_queues],
            "filledSlots": [slots.as_json() for slots in self.filled],
            "expiredMessages": [slots.as_json() for slots in self.expired],
            "notCompared": [file.as_json(store) for file in self.not_compared],
            "consumersAhead": [_group_json(group) for group in self.groups_ahead],
            "misfiledQueues": [queue.as_json(store) for queue in self.misfiled],
        }

    def lines(self, store: Path, max_lines: int) -> list[tuple[str, str]]:
        """(label, text) pairs for people, at most ``max_lines`` of each kind."""
        ranges = [
            f"{StorePaths(store).name_of(gap.path)}, offset {gap.start}, {gap.end - gap.start} bytes: {gap.reason}"
            for gap in self.ranges
        ]
        messages = [f"{lost.name}: {lost.reason}" for lost in self.messages]
        repaired = [
            f"{record.topic}/{record.queue_id} offset {record.queue_offset}, at offset {record.phy_offset} of the log, "
            f"named {record.stated}"
            for record in self.repaired
        ]
        short = [
            f"{queue.topic}/{queue.queue_id}: max offset was {queue.was_end}, is {queue.end}; offsets from {queue.end} "
            "on are assigned again"
            for queue in self.short_queues
        ]
        filled = [f"{slots.topic}/{slots.queue_id}: offsets {slots.begin} to {slots.end - 1}" for slots in self.filled]
        expired = sum(slots.end - slots.begin for slots in self.expired)
        expiry = [f"{expired} messages before the begin of the log: by retention, or with the first files of the log"]
        kinds = {
            "lost": ranges,
            "lost message": messages,
            "repaired": repaired,
            "quarantined": [record.text for record in self.quarantined],
            "shorter": short,
            "filled": filled,
            "expired": expiry if expired else [],
            "set back": [
                f"{group.name}, {group.topic}/{group.queue_id}: committed offset was {group.offset}, is {end}, "
                "the queue's end"
                for group, end in self.groups_ahead
            ],
            "misfiled": [queue.as_text(store) for queue in self.misfiled],
            "not compared": [f"{StorePaths(store).name_of(file.path)}: {file.reason}" for file in self.not_compared],
        }
        return [line for label, texts in kinds.items() for line in _shown(label, texts, max_lines)]


def _group_json(ahead: GroupAhead) -> dict[str, Any]:
    group, end = ahead
    return {
        "group": group.group or None,
        "topic": group.topic,
        "queueId": group.queue_id,
        "committedOffset": group.offset,
        "maxOffset": end,
    }


def _queue_of(message: LostMessages | None) -> dict[str, Any]:
    """The queue fields for a range of the log whose only message is known."""
    if message is None:
        return {}
    return {"topic": message.topic, "queueId": message.queue_id, "queueOffset": message.begin}


def _shown(label: str, texts: Sequence[str], max_lines: int) -> list[tuple[str, str]]:
    more = len(texts) - max_lines
    lines = [(label, text) for text in texts[:max_lines]]
    return [*lines, ("", f"… and {more} more (--json prints all)")] if more > 0 else lines
