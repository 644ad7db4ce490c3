"""The findings of verify, which most of the other tools report, too.

A finding is damage or a note. A note is something that recovery repairs without losing a whole record, or that RocketMQ
itself leaves behind. docs/cli.md describes every kind.

Thread rule: plain values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path

from gantrymq.store.index.index_file import REBUILD_INDEX
from gantrymq.store.log.mapped_file_queue import SALVAGE
from gantrymq.store.queue.consume_queue import REBUILD

RECOVER = "`gantrymq store recover` writes it again"
_IN_TEXT = None


class Severity(Enum):
    """The severity of a finding."""

    DAMAGE = "damage"
    NOTE = "note"


class StorePart(Enum):
    """The part of a store that a finding is about. It decides the next step that ``verify`` advises."""

    LOG = auto()
    QUEUES = auto()
    INDEX = auto()
    CHECKPOINT = auto()
    GROUPS = auto()
    CONFIG = auto()
    TIMERS = auto()
    FOREIGN = auto()  # not a part of the store
    OF_PATH = auto()  # any part: the path of the finding says which


class FindingKind(Enum):
    """The kinds of findings, one row a kind: (value, part of the store, remedy).

    ``gantrymq store verify --json`` prints the value. The remedy is appended to the text of damage; with ``_IN_TEXT``
    the text itself ends with it, because it depends on the file, or the kind is only a note.
    """

    part: StorePart
    remedy: str | None

    def __new__(cls, value: str, part: StorePart, remedy: str | None) -> FindingKind:
        """A member with its columns. Each row has all of them."""
        kind = object.__new__(cls)
        kind._value_, kind.part, kind.remedy = value, part, remedy
        return kind

    FILE_SIZE = "file-size", StorePart.OF_PATH, _IN_TEXT
    FILE_UNREADABLE = "file-unreadable", StorePart.OF_PATH, _IN_TEXT
    FOREIGN_FILE = "foreign-file", StorePart.FOREIGN, _IN_TEXT
    NOT_HONOURED = "not-honoured", StorePart.FOREIGN, _IN_TEXT

    LOG_MISSING = "log-missing", StorePart.LOG, _IN_TEXT
    LOG_FILE_MISSING = "log-file-missing", StorePart.LOG, f"mount or copy it back, or {SALVAGE}"
    LOG_FILE_FOREIGN = "log-file-foreign", StorePart.LOG, SALVAGE
    LOG_HOLE = "log-hole", StorePart.LOG, SALVAGE
    LOG_TAIL = "log-tail", StorePart.LOG, _IN_TEXT
    LENGTH_CHAIN = "length-chain", StorePart.LOG, SALVAGE
    BLANK_MISSING = "blank-missing", StorePart.LOG, SALVAGE
    BLANK_SIZE = "blank-size", StorePart.LOG, SALVAGE
    RECORD_CRC = "record-crc", StorePart.LOG, SALVAGE
    RECORD_TORN = "record-torn", StorePart.LOG, SALVAGE
    RECORD_PHY_OFFSET = "record-phy-offset", StorePart.LOG, SALVAGE
    RECORD_QUEUE = "record-queue", StorePart.LOG, SALVAGE

    QUEUE_FILE_MISSING = "queue-file-missing", StorePart.QUEUES, REBUILD
    QUEUE_HOLE = "queue-hole", StorePart.QUEUES, REBUILD
    QUEUE_FILLED = "queue-filled", StorePart.QUEUES, _IN_TEXT
    QUEUE_BEHIND = "queue-behind", StorePart.QUEUES, _IN_TEXT
    QUEUE_AHEAD = "queue-ahead", StorePart.QUEUES, _IN_TEXT
    QUEUE_MIN_OFFSET_STALE = "queue-min-offset-stale", StorePart.QUEUES, REBUILD
    QUEUE_ENTRY_NOWHERE = "queue-entry-nowhere", StorePart.QUEUES, REBUILD
    QUEUE_ENTRY_OTHER_QUEUE = "queue-entry-other-queue", StorePart.QUEUES, REBUILD
    QUEUE_ENTRY_ORDER = "queue-entry-order", StorePart.QUEUES, REBUILD
    QUEUE_ENTRY_RESTART = "queue-entry-anew", StorePart.QUEUES, _IN_TEXT
    QUEUE_ENTRY_SIZE = "queue-entry-size", StorePart.QUEUES, REBUILD
    QUEUE_ENTRY_TAGS_CODE = "queue-entry-tags-code", StorePart.QUEUES, REBUILD
    QUEUE_EXT_ENTRY = "queue-ext-entry", StorePart.QUEUES, REBUILD
    MESSAGE_WITHOUT_ENTRY = "message-without-entry", StorePart.QUEUES, REBUILD

    INDEX_HEADER = "index-header", StorePart.INDEX, REBUILD_INDEX
    INDEX_CHAIN_LOOP = "index-chain-loop", StorePart.INDEX, REBUILD_INDEX
    INDEX_CHAIN_BROKEN = "index-chain-broken", StorePart.INDEX, REBUILD_INDEX
    INDEX_SLOT = "index-slot", StorePart.INDEX, REBUILD_INDEX
    INDEX_ENTRY_NOWHERE = "index-entry-nowhere", StorePart.INDEX, REBUILD_INDEX
    INDEX_ENTRY_HASH = "index-entry-hash", StorePart.INDEX, REBUILD_INDEX
    INDEX_ENTRY_TIME = "index-entry-time", StorePart.INDEX, REBUILD_INDEX
    INDEX_INCOMPLETE = "index-incomplete", StorePart.INDEX, _IN_TEXT
    INDEX_WILL_BE_REBUILT = "index-will-be-rebuilt", StorePart.INDEX, _IN_TEXT

    CHECKPOINT_MISSING = "checkpoint-missing", StorePart.CHECKPOINT, _IN_TEXT
    CHECKPOINT_CORRUPT = "checkpoint-corrupt", StorePart.CHECKPOINT, _IN_TEXT
    CHECKPOINT_FUTURE = "checkpoint-future", StorePart.CHECKPOINT, _IN_TEXT
    CONFIG_JSON = "config-json", StorePart.CONFIG, _IN_TEXT
    CONSUMER_AHEAD = "consumer-ahead", StorePart.GROUPS, _IN_TEXT
    TOPICS_WITHOUT_ROUTE = "topics-without-route", StorePart.CONFIG, _IN_TEXT
    TIMER_LOG = "timer-log", StorePart.TIMERS, _IN_TEXT
    TIMER_WHEEL = "timer-wheel", StorePart.TIMERS, _IN_TEXT
    TIMER_CHECKPOINT = "timer-checkpoint", StorePart.TIMERS, _IN_TEXT


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. ``path`` is relative to the store. None means that a field does not apply to the kind.

    ``phy_offset`` and ``length_bytes`` are a range of the commit log. ``queue_offset`` is the first of ``count`` slots
    of the queue. ``entry`` is the number of an index entry; for a slot, of the entry that it names.
    """

    kind: FindingKind
    path: Path
    text: str
    level: Severity = Severity.DAMAGE
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    phy_offset: int | None = None
    length_bytes: int | None = None
    entry: int | None = None
    count: int = 1

    def with_remedy(self) -> Finding:
        """The finding with the repairing command appended to its text, unless the text ends with its own."""
        remedy = self.kind.remedy if self.level is Severity.DAMAGE else None
        return self if remedy is None or self.text.endswith(SALVAGE) else replace(self, text=f"{self.text}; {remedy}")

    def as_json(self) -> dict[str, object]:
        """The object that ``gantrymq store verify --json`` prints."""
        return {
            "kind": self.kind.value,
            "level": self.level.value,
            "path": str(self.path),
            "topic": self.topic,
            "queueId": self.queue_id,
            "queueOffset": self.queue_offset,
            "phyOffset": self.phy_offset,
            "bytes": self.length_bytes,
            "entry": self.entry,
            "count": self.count,
            "text": self.text,
        }
