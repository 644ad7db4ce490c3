"""What a table remembers of its landings: positions, generations, the logs that were read, and the options.

The state after a commit is a part of that commit, as one JSON document (:meth:`TableState.to_json`), so that a restart
needs the table alone. Each commit has another ``commit_id``: after a commit with an unknown outcome the table's own
state shows whether it is this one, and a commit of another process is recognized in the same way.

Thread rule: values.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from gantrymq.tables.errors import TableError
from gantrymq.tables.partitions import Partition
from gantrymq.tools.queue_key import QueueKey

FORMAT = 1
_KEPT_COMMITS = 10
_RANDOM_BITS = 24  # a Delta transaction's version is a Java long, and must grow


class QueuePosition(NamedTuple):
    """The offset of the next message to land, and the generation of the queue that is being read."""

    next_offset: int
    generation: int = 0


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far the log of a broker's store was read.

    ``marks`` recognize the log (:mod:`gantrymq.tools.read.log_fingerprint`). ``topics`` names the choice of topics that
    was read up to ``phy_offset``: with another choice the log is read from its begin, for queues without a position.
    """

    phy_offset: int
    marks: Mapping[int, int]
    topics: str


@dataclass(frozen=True, slots=True)
class LandedCounts:
    """Numbers of messages of all landings."""

    rows: int = 0
    dead: int = 0
    missing: int = 0

    def plus(self, other: LandedCounts) -> LandedCounts:
        """The sums."""
        return LandedCounts(self.rows + other.rows, self.dead + other.dead, self.missing + other.missing)


class CommitNote(NamedTuple):
    """A commit: the number of the landing, its time, and its numbers. ``dead`` of a retry is negative."""

    landing: int
    time_ms: int
    rows: int
    dead: int
    missing: int


@dataclass(frozen=True, slots=True)
class TableFile:
    """A Parquet file of a table.

    ``path`` is relative to the table's location. ``stats`` has the smallest and largest value of some columns, as JSON
    values.
    """

    path: str
    rows: int
    size_bytes: int
    partition: Partition = ()
    stats: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TableFile:
        """The file of what ``dataclasses.asdict`` makes of it, as JSON."""
        return cls(**{**document, "partition": tuple((name, text) for name, text in document["partition"] or ())})


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of a table after ``landings`` commits.

    ``pending`` has the files of dead rows and of the account that belong to the last commit, by the suffix of their
    table. They are added to those tables after the commit, or by the next process
    (:mod:`gantrymq.tables.local.engine`). In the tables that ``replaced`` names they take the place of all other files.
    ``told`` are hashes of findings without a queue position, so that each is told once. ``commits`` are the last ones,
    the newest at the end.
    """

    landings: int = 0
    commit_id: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    queues: Mapping[QueueKey, QueuePosition] = field(default_factory=dict)
    logs: Mapping[str, LogPosition] = field(default_factory=dict)
    totals: LandedCounts = LandedCounts()
    told: tuple[int, ...] = ()
    pending: Mapping[str, tuple[TableFile, ...]] = field(default_factory=dict)
    replaced: tuple[str, ...] = ()
    commits: tuple[CommitNote, ...] = ()

    def next(self) -> TableState:
        """The state of the next commit, with an id of its own."""
        landings = self.landings + 1
        commit_id = max(landings << _RANDOM_BITS, self.commit_id + 1) + secrets.randbits(_RANDOM_BITS)
        return replace(self, landings=landings, commit_id=commit_id, pending={}, replaced=())

    def counted(self, counts: LandedCounts, now_ms: int) -> TableState:
        """The state with the numbers of its commit, which is made now."""
        note = CommitNote(self.landings, now_ms, counts.rows, counts.dead, counts.missing)
        return replace(self, totals=self.totals.plus(counts), commits=(*self.commits, note)[-_KEPT_COMMITS:])

    def rewritten(self) -> TableState:
        """The state of a commit between two landings. It has an id of its own, so a landing that had begun ends."""
        return replace(self, commit_id=self.commit_id + 1 + secrets.randbits(_RANDOM_BITS))

    def positions(self) -> dict[str, dict[str, dict[str, int]]]:
        """``{broker: {topic: {queue: next offset}}}``, as the command prints it."""
        return positions_json(self.queues)

    def to_json(self) -> str:
        """The document that a commit keeps."""
        document = {
            "format": FORMAT,
            "landings": self.landings,
            "commitId": self.commit_id,
            "options": dict(self.options),
            "positions": self.positions(),
            "generations": _nested(
                {key: position.generation for key, position in self.queues.items() if position.generation}
            ),
            "logs": {
                broker: {
                    "phyOffset": log.phy_offset,
                    "marks": {str(at): mark for at, mark in log.marks.items()},
                    "topics": log.topics,
                }
                for broker, log in self.logs.items()
            },
            "totals": asdict(self.totals),
            "told": list(self.told),
            "pending": {side: [asdict(file) for file in files] for side, files in self.pending.items()},
            "replaced": list(self.replaced),
            "commits": [list(note) for note in self.commits],
        }
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, table: str, text: str | bytes) -> TableState:
        """Parse a document. Raises TableError if it is none, or of a newer release."""
        try:
            document = json.loads(text)
            version = int(document["format"])
            if version != FORMAT:
                raise TableError(table, f"its state has the format {version}; this release reads {FORMAT}: upgrade it")
            generations = _flat(document["generations"])
            return cls(
                document["landings"],
                document["commitId"],
                document["options"],
                {
                    key: QueuePosition(offset, generations.get(key, 0))
                    for key, offset in _flat(document["positions"]).items()
                },
                {
                    broker: LogPosition(
                        log["phyOffset"], {int(at): mark for at, mark in log["marks"].items()}, log["topics"]
                    )
                    for broker, log in document["logs"].items()
                },
                LandedCounts(**document["totals"]),
                tuple(document["told"]),
                {side: tuple(map(TableFile.from_json, files)) for side, files in document["pending"].items()},
                tuple(document.get("replaced", ())),
                tuple(CommitNote(*note) for note in document.get("commits", ())),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise TableError(table, f"its state cannot be read: {error!r}") from error


def positions_json(queues: Mapping[QueueKey, QueuePosition]) -> dict[str, dict[str, dict[str, int]]]:
    """``{broker: {topic: {queue: next offset}}}``."""
    return _nested({key: position.next_offset for key, position in queues.items()})


def _nested(values: Mapping[QueueKey, int]) -> dict[str, dict[str, dict[str, int]]]:
    nested: dict[str, dict[str, dict[str, int]]] = {}
    for key in sorted(values):
        nested.setdefault(key.broker, {}).setdefault(key.topic, {})[str(key.queue_id)] = values[key]
    return nested


def _flat(nested: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[QueueKey, int]:
    return {
        QueueKey(broker, topic, int(queue)): value
        for broker, topics in nested.items()
        for topic, queues in topics.items()
        for queue, value in queues.items()
    }
