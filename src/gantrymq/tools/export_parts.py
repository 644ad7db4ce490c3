"""The files of an export: which rows go into which, and when they are written.

Memory is bounded: rows of many topics wait in memory until there are enough of one, and the largest go first.

Thread rule: one thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import pyarrow as pa

from gantrymq.tools.export_files import ExportFile, ExportFormat
from gantrymq.tools.loss import LossAccount, LostRange

_WAITING_BYTES = 256 << 20  # rows of all topics together
_WORTH_WRITING_BYTES = 32 << 20  # rows of one topic: a row group
_LARGEST_FILE_BYTES = 512 << 20
_LAST_DAY = 2_932_896  # of the year 9999
_LONGEST_NAME = 255  # bytes, of what most file systems allow
_HASH_DIGITS = 16
# Not "topic": the files have that column, and pyarrow and pandas refuse one that is a directory as well. A directory's
# name may also be cut, and readers take one that looks like a number for a number.
_TOPIC_KEY = "topic_dir"
_UNKNOWN_DAY = "__HIVE_DEFAULT_PARTITION__"

Partition = tuple[str, int]


@dataclass(slots=True)
class ExportReport:
    """What was written, and the ``account`` of what the store said it had and is not written.

    ``undecodable`` says of messages why their body cannot be decompressed, ``undecodable_places`` the same by their
    place in the log.
    """

    rows: int = 0
    files: int = 0
    file_bytes: int = 0
    topics: dict[str, int] = field(default_factory=dict)
    missing_topics: list[str] = field(default_factory=list)
    account: LossAccount = field(default_factory=LossAccount)
    undecodable: list[str] = field(default_factory=list)
    undecodable_places: dict[int, str] = field(default_factory=dict)

    @property
    def lost(self) -> list[LostRange]:
        """The places of the log without a whole record."""
        return self.account.ranges

    @property
    def is_whole(self) -> bool:
        """Whether everything is there: exit code 0."""
        account = self.account
        return account.is_compared and not (account.ranges or account.messages or self.undecodable)


class ExportTarget(Protocol):
    """Takes rows."""

    def add(self, topic: str, day: int, rows: pa.RecordBatch) -> None:
        """Rows of one topic and day (days since 1970, UTC), in order."""
        ...


class ExportParts:
    """The files of an export. A partition has one open file at most, and that of a day that is over is ended."""

    def __init__(self, root: Path, kind: ExportFormat, report: ExportReport, prefix: str = "part-") -> None:
        self._root = root
        self._prefix = prefix
        self._kind = kind
        self._report = report
        self._waiting: dict[str, list[pa.RecordBatch]] = {}
        self._waiting_bytes: dict[str, int] = {}
        self._all_waiting_bytes = 0
        self._day: dict[str, int] = {}
        self._open: dict[str, ExportFile] = {}
        self._numbers: dict[Partition, int] = {}

    def add(self, topic: str, day: int, rows: pa.RecordBatch) -> None:
        """Rows of one topic and day, in order."""
        if self._day.get(topic, day) != day:
            self._end(topic)
        self._day[topic] = day
        self._waiting.setdefault(topic, []).append(rows)
        self._waiting_bytes[topic] = self._waiting_bytes.get(topic, 0) + rows.nbytes
        self._all_waiting_bytes += rows.nbytes
        if self._waiting_bytes[topic] >= _WORTH_WRITING_BYTES:
            self._write(topic)
        elif self._all_waiting_bytes >= _WAITING_BYTES:
            self._write(max(self._waiting_bytes, key=self._waiting_bytes.__getitem__))

    def finish(self) -> None:
        """End every file."""
        for topic in list(self._day):
            self._end(topic)

    def abandon(self) -> None:
        """Remove what is not whole."""
        for file in self._open.values():
            file.abandon()

    def _write(self, topic: str) -> None:
        rows = self._waiting.pop(topic, [])
        self._all_waiting_bytes -= self._waiting_bytes.pop(topic, 0)
        if not rows:
            return
        if topic not in self._open:
            self._open[topic] = ExportFile(self._next_path(topic), self._kind)
        file = self._open[topic]
        (joined,) = pa.Table.from_batches(rows).combine_chunks().to_batches()
        file.write(joined)
        self._report.rows += joined.num_rows
        self._report.topics[topic] = self._report.topics.get(topic, 0) + joined.num_rows
        if file.size_bytes >= _LARGEST_FILE_BYTES:
            self._commit(topic)

    def _next_path(self, topic: str) -> Path:
        day = self._day[topic]
        number = self._numbers.get((topic, day), 0)
        self._numbers[topic, day] = number + 1
        return (
            self._root / topic_directory(topic) / f"day={_day_text(day)}" / f"{self._prefix}{number:05d}.{self._kind}"
        )

    def _end(self, topic: str) -> None:
        self._write(topic)
        self._day.pop(topic, None)
        self._commit(topic)

    def _commit(self, topic: str) -> None:
        if topic in self._open:
            self._report.file_bytes += self._open[topic].commit()
            self._report.files += 1
            del self._open[topic]


def topic_directory(topic: str) -> str:
    """The name of a topic's directory: percent-encoded, and where that is too long, cut and closed with ``~HASH``.

    It is cut between two characters, for readers decode it.
    """
    name = f"{_TOPIC_KEY}={quote(topic, safe='')}"
    if len(name) <= _LONGEST_NAME:
        return name
    end = "~" + sha256(topic.encode()).hexdigest()[:_HASH_DIGITS]
    while len(name) > _LONGEST_NAME - len(end):
        topic = topic[:-1]
        name = f"{_TOPIC_KEY}={quote(topic, safe='')}"
    return name + end


def _day_text(day: int) -> str:
    if not 0 <= day <= _LAST_DAY:
        return _UNKNOWN_DAY
    return f"{datetime.fromtimestamp(day * 86_400, UTC):%Y-%m-%d}"
