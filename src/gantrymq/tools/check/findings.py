"""The kinds of findings of verify, each with a fixed name.

A finding is damage or a note. A note is something that recovery repairs without losing a whole record, or that RocketMQ
itself leaves behind. docs/cli.md describes every kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from gantrymq.store.log.mapped_file_queue import SALVAGE
from gantrymq.store.queue.consume_queue import REBUILD


class Level(Enum):
    """The severity of a finding."""

    DAMAGE = "damage"
    NOTE = "note"


class Kind(Enum):
    """The kinds, grouped by where they are found. ``gantrymq store verify --json`` prints the values."""

    FILE_SIZE = "file-size"
    FILE_UNREADABLE = "file-unreadable"
    FOREIGN_FILE = "foreign-file"

    LOG_MISSING = "log-missing"
    LOG_FILE_MISSING = "log-file-missing"
    LOG_FILE_FOREIGN = "log-file-foreign"
    LOG_HOLE = "log-hole"
    LOG_TAIL = "log-tail"
    LENGTH_CHAIN = "length-chain"
    BLANK_MISSING = "blank-missing"
    BLANK_SIZE = "blank-size"
    RECORD_CRC = "record-crc"
    RECORD_TORN = "record-torn"
    RECORD_PHY_OFFSET = "record-phy-offset"
    RECORD_QUEUE = "record-queue"

    QUEUE_FILE_MISSING = "queue-file-missing"
    QUEUE_HOLE = "queue-hole"
    QUEUE_FILLED = "queue-filled"
    QUEUE_BEHIND = "queue-behind"
    QUEUE_AHEAD = "queue-ahead"
    QUEUE_MIN_OFFSET_STALE = "queue-min-offset-stale"
    QUEUE_ENTRY_NOWHERE = "queue-entry-nowhere"
    QUEUE_ENTRY_OTHER_QUEUE = "queue-entry-other-queue"
    QUEUE_ENTRY_ORDER = "queue-entry-order"
    QUEUE_ENTRY_RESTART = "queue-entry-anew"
    QUEUE_ENTRY_SIZE = "queue-entry-size"
    QUEUE_ENTRY_TAGS_CODE = "queue-entry-tags-code"
    QUEUE_EXT_ENTRY = "queue-ext-entry"
    MESSAGE_WITHOUT_ENTRY = "message-without-entry"

    INDEX_HEADER = "index-header"
    INDEX_CHAIN_LOOP = "index-chain-loop"
    INDEX_CHAIN_BROKEN = "index-chain-broken"
    INDEX_SLOT = "index-slot"
    INDEX_ENTRY_NOWHERE = "index-entry-nowhere"
    INDEX_ENTRY_HASH = "index-entry-hash"
    INDEX_ENTRY_TIME = "index-entry-time"
    INDEX_INCOMPLETE = "index-incomplete"
    INDEX_WILL_BE_REBUILT = "index-will-be-rebuilt"

    CHECKPOINT_MISSING = "checkpoint-missing"
    CHECKPOINT_CORRUPT = "checkpoint-corrupt"
    CHECKPOINT_FUTURE = "checkpoint-future"
    CONFIG_JSON = "config-json"
    CONSUMER_AHEAD = "consumer-ahead"
    TOPICS_WITHOUT_ROUTE = "topics-without-route"
    TIMER_LOG = "timer-log"
    TIMER_WHEEL = "timer-wheel"
    TIMER_CHECKPOINT = "timer-checkpoint"


RECOVER = "`gantrymq store recover` writes it again"
REBUILD_INDEX = "`gantrymq store rebuild --index` rebuilds the index from the commit log"

REMEDIES: Mapping[Kind, str] = {
    Kind.LOG_FILE_MISSING: f"mount or copy it back, or {SALVAGE}",
    **dict.fromkeys(
        (
            *(Kind.LOG_FILE_FOREIGN, Kind.LOG_HOLE, Kind.LENGTH_CHAIN, Kind.BLANK_MISSING, Kind.BLANK_SIZE),
            *(Kind.RECORD_CRC, Kind.RECORD_TORN, Kind.RECORD_PHY_OFFSET, Kind.RECORD_QUEUE),
        ),
        SALVAGE,
    ),
    **dict.fromkeys(
        (
            *(Kind.QUEUE_FILE_MISSING, Kind.QUEUE_HOLE, Kind.QUEUE_MIN_OFFSET_STALE, Kind.MESSAGE_WITHOUT_ENTRY),
            *(Kind.QUEUE_ENTRY_NOWHERE, Kind.QUEUE_ENTRY_OTHER_QUEUE, Kind.QUEUE_ENTRY_ORDER, Kind.QUEUE_ENTRY_SIZE),
            *(Kind.QUEUE_ENTRY_TAGS_CODE, Kind.QUEUE_EXT_ENTRY),
        ),
        REBUILD,
    ),
    **dict.fromkeys(
        (
            *(Kind.INDEX_HEADER, Kind.INDEX_CHAIN_LOOP, Kind.INDEX_CHAIN_BROKEN, Kind.INDEX_SLOT),
            *(Kind.INDEX_ENTRY_NOWHERE, Kind.INDEX_ENTRY_HASH, Kind.INDEX_ENTRY_TIME),
        ),
        REBUILD_INDEX,
    ),
}
"""The command that repairs damage of a kind. Other kinds have theirs in the text, because it depends on the file."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. ``path`` is relative to the store. None means that a field does not apply to the kind.

    ``phy_offset`` and ``length_bytes`` are a range of the commit log. ``queue_offset`` is the first of ``count`` slots
    of the queue. ``entry`` is the number of an index entry; for a slot, of the entry that it names.
    """

    kind: Kind
    path: Path
    text: str
    level: Level = Level.DAMAGE
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    phy_offset: int | None = None
    length_bytes: int | None = None
    entry: int | None = None
    count: int = 1

    def with_remedy(self) -> Finding:
        """The finding with the repairing command appended to its text, unless the text ends with its own."""
        remedy = REMEDIES.get(self.kind) if self.level is Level.DAMAGE else None
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
