"""The account of loss: what the old store had and the result of a tool does not have.

``salvage``, ``rebuild``, ``recover`` and ``export`` all report one :class:`LossAccount`, whichever engine does the
work. :mod:`gantrymq.tools.loss.queue_account` fills it from the consume queues, :mod:`gantrymq.tools.loss.loss_account`
from the checkpoint and the index.

Thread rule: plain values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.group_offsets import GroupAhead


@dataclass(frozen=True, slots=True)
class LostRange:
    """A range [start, end) of the log without a whole record of its own; ``reason`` is text for people.

    ``has_records`` says that whole records lie there that belong elsewhere in the log; a recovery reads past them.
    ``stated_offset`` is the physical offset that they carry, or -1.
    """

    path: Path
    start: int
    end: int
    reason: str
    has_records: bool = False
    stated_offset: int = -1

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


@dataclass(frozen=True, slots=True)
class RepairedRecord:
    """A record with a wrong field that is in the result all the same, at ``queue_offset`` of its queue.

    ``stated`` describes the wrong field. ``stated_slot`` is the wrong topic, queue id and queue offset in the record,
    or None; the record enters that queue whenever the log is dispatched again.
    """

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    size_bytes: int
    stated: str
    stated_slot: tuple[str, int, int] | None = None

    def as_json(self) -> dict[str, Any]:
        """The object that ``--json`` prints."""
        stated = None
        if self.stated_slot is not None:
            stated = dict(zip(("topic", "queueId", "queueOffset"), self.stated_slot, strict=True))
        return {
            "topic": self.topic,
            "queueId": self.queue_id,
            "queueOffset": self.queue_offset,
            "phyOffset": self.phy_offset,
            "bytes": self.size_bytes,
            "reason": self.stated,
            "said": stated,
        }


@dataclass(frozen=True, slots=True)
class ShortQueue:
    """A queue that ended at offset ``was_end`` and now ends at ``end``: the offsets between are given out again."""

    topic: str
    queue_id: int
    was_end: int
    end: int

    def as_json(self) -> dict[str, Any]:
        """The object that ``--json`` prints."""
        return {"topic": self.topic, "queueId": self.queue_id, "wasMaxOffset": self.was_end, "maxOffset": self.end}


@dataclass(frozen=True, slots=True)
class FilledSlots:
    """The slots [begin, end) of a queue that point to no message."""

    topic: str
    queue_id: int
    begin: int
    end: int

    def as_json(self) -> dict[str, Any]:
        """The object that ``--json`` prints; ``to`` is the last offset."""
        count = self.end - self.begin
        return {"topic": self.topic, "queueId": self.queue_id, "from": self.begin, "to": self.end - 1, "count": count}


@dataclass(frozen=True, slots=True)
class NotCompared:
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


@dataclass(frozen=True, slots=True)
class MisfiledQueue:
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
    message that is in neither is in the result, or is ``expired``: it lay before the log's begin, where retention
    deletes. ``groups_ahead`` are consumer groups whose committed offset was after their queue's end in the result. They
    are set back to that end, or they would skip the next messages. That is not a loss.
    """

    ranges: list[LostRange] = field(default_factory=list)
    messages: list[LostMessages] = field(default_factory=list)
    repaired: list[RepairedRecord] = field(default_factory=list)
    short_queues: list[ShortQueue] = field(default_factory=list)
    filled: list[FilledSlots] = field(default_factory=list)
    expired: list[FilledSlots] = field(default_factory=list)
    not_compared: list[NotCompared] = field(default_factory=list)
    groups_ahead: list[GroupAhead] = field(default_factory=list)
    misfiled: list[MisfiledQueue] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known to be lost and nothing had to be repaired."""
        return not (self.ranges or self.messages or self.repaired or self.short_queues)

    @property
    def is_compared(self) -> bool:
        """Whether no damaged file prevented the comparison. Only then is "lost nothing" true."""
        return not any(one.is_damage for one in self.not_compared) and all(one.owner for one in self.misfiled)

    @property
    def message_count(self) -> int:
        """The number of messages that are known to be lost."""
        return sum(one.count for one in self.messages)

    def as_json(self, store: Path) -> dict[str, Any]:
        """The fields that ``--json`` prints."""
        single = {one.phy_offset: one for one in self.messages if one.count == 1}
        return {
            "lost": [{**one.as_json(store), **_queue_of(single.get(one.start))} for one in self.ranges],
            "lostMessages": [one.as_json() for one in self.messages],
            "repaired": [one.as_json() for one in self.repaired],
            "shortQueues": [one.as_json() for one in self.short_queues],
            "filledSlots": [one.as_json() for one in self.filled],
            "expiredMessages": [one.as_json() for one in self.expired],
            "notCompared": [one.as_json(store) for one in self.not_compared],
            "consumersAhead": [_group_json(one) for one in self.groups_ahead],
            "misfiledQueues": [one.as_json(store) for one in self.misfiled],
        }

    def lines(self, store: Path, most: int) -> list[tuple[str, str]]:
        """(label, text) pairs for people, at most ``most`` of each kind."""
        ranges = [
            f"{StorePaths(store).name_of(one.path)}, offset {one.start}, {one.end - one.start} bytes: {one.reason}"
            for one in self.ranges
        ]
        messages = [f"{one.name}: {one.reason}" for one in self.messages]
        repaired = [
            f"{one.topic}/{one.queue_id} offset {one.queue_offset}, at offset {one.phy_offset} of the log, "
            f"named {one.stated}"
            for one in self.repaired
        ]
        short = [
            f"{one.topic}/{one.queue_id}: max offset was {one.was_end}, is {one.end}; offsets from {one.end} on are "
            "assigned again"
            for one in self.short_queues
        ]
        filled = [f"{one.topic}/{one.queue_id}: offsets {one.begin} to {one.end - 1}" for one in self.filled]
        expired = sum(one.end - one.begin for one in self.expired)
        gone = [f"{expired} messages before the begin of the log: by retention, or with the first files of the log"]
        kinds = {
            "lost": ranges,
            "lost message": messages,
            "repaired": repaired,
            "shorter": short,
            "filled": filled,
            "expired": gone if expired else [],
            "set back": [
                f"{one.name}, {one.topic}/{one.queue_id}: committed offset was {one.offset}, is {end}, the queue's end"
                for one, end in self.groups_ahead
            ],
            "misfiled": [one.as_text(store) for one in self.misfiled],
            "not compared": [f"{StorePaths(store).name_of(one.path)}: {one.reason}" for one in self.not_compared],
        }
        return [line for label, texts in kinds.items() for line in _shown(label, texts, most)]


def _group_json(ahead: GroupAhead) -> dict[str, Any]:
    one, end = ahead
    return {
        "group": one.group or None,
        "topic": one.topic,
        "queueId": one.queue_id,
        "committedOffset": one.offset,
        "maxOffset": end,
    }


def _queue_of(message: LostMessages | None) -> dict[str, Any]:
    """The queue fields for a range of the log whose only message is known."""
    if message is None:
        return {}
    return {"topic": message.topic, "queueId": message.queue_id, "queueOffset": message.begin}


def _shown(label: str, texts: Sequence[str], most: int) -> list[tuple[str, str]]:
    more = len(texts) - most
    lines = [(label, text) for text in texts[:most]]
    return [*lines, ("", f"… and {more} more (--json prints all)")] if more > 0 else lines
