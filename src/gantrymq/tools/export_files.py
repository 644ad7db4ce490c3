"""The files of an export: which rows go into which file, their formats, and when they are written.

Memory is bounded: rows of many topics wait in memory until there are enough of one topic, and the largest are written
first. A file has a hidden name until it is complete. Readers that know Hive's layout (Spark, DuckDB,
``pyarrow.dataset``) skip hidden names, so none of them reads a half-written file.

Thread rule: one thread.
"""

from __future__ import annotations

import base64
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol
from urllib.parse import quote

import orjson

from gantrymq.errors import DiskFullError
from gantrymq.fs.descriptors import is_disk_full
from gantrymq.tools.reports import LossAccount, LostRange

if TYPE_CHECKING:  # a report is made without the extra, too
    import pyarrow as pa

_AS_JSON = ("keys", "properties")
_TIMES = ("born_timestamp", "store_timestamp")
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 and 9999
_WAITING_BYTES = 256 << 20  # bytes of waiting rows of all topics
_WORTH_WRITING_BYTES = 32 << 20  # bytes of waiting rows of one topic: a row group
_LARGEST_FILE_BYTES = 512 << 20
_LAST_DAY = 2_932_896  # of the year 9999
_LONGEST_NAME = 255  # bytes: the limit of most file systems
_HASH_DIGITS = 16
# The key is not "topic": the files have that column, and pyarrow and pandas refuse a partition key of the same name.
# Also, a directory name may be cut, and readers turn one that looks like a number into a number.
_TOPIC_KEY = "topic_dir"
_UNKNOWN_DAY = "__HIVE_DEFAULT_PARTITION__"


class ExportFormat(StrEnum):
    """The format of the exported files."""

    PARQUET = "parquet"
    JSONL = "jsonl"
    CSV = "csv"


class MessageWriter(Protocol):
    """Writes record batches of MESSAGE_SCHEMA."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows."""
        ...

    def close(self) -> None:
        """End the file."""
        ...

    def abandon(self) -> None:
        """Stop writing, without an end of the file."""
        ...


class ExportFile:
    """A file that is renamed to ``path`` when :meth:`commit` completes it. Raises DiskFullError, OSError."""

    def __init__(self, path: Path, kind: ExportFormat) -> None:
        """Create the directories of the topic and the day. Their parent must exist."""
        self.path = path
        self.rows = 0
        self._hidden = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        path.parent.parent.mkdir(exist_ok=True)
        path.parent.mkdir(exist_ok=True)
        self._stream = self._hidden.open("wb")
        self._writer = open_writer(kind, self._stream)

    @property
    def size_bytes(self) -> int:
        """The number of bytes written so far."""
        return self._stream.tell()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of ``batch``."""
        with self._named_errors(batch.nbytes):
            self._writer.write(batch)
        self.rows += batch.num_rows

    def commit(self) -> int:
        """Make the file durable and rename it to ``path``; returns its size in bytes."""
        with self._named_errors():
            self._writer.close()
            self._stream.flush()
            size = self._stream.tell()
            os.fsync(self._stream.fileno())
        self._stream.close()
        self._hidden.rename(self.path)
        return size

    def abandon(self) -> None:
        """Remove the unfinished file."""
        self._writer.abandon()
        with suppress(OSError):  # buffered bytes may not fit on the disk
            self._stream.close()
        self._hidden.unlink(missing_ok=True)

    @contextmanager
    def _named_errors(self, needed_bytes: int = 0) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if is_disk_full(error):
                raise DiskFullError(self.path, needed_bytes) from error
            raise


class _Parquet:
    def __init__(self, stream: BinaryIO) -> None:
        import pyarrow.parquet as pq

        from gantrymq.tools.arrow import MESSAGE_SCHEMA

        self._writer = pq.ParquetWriter(stream, MESSAGE_SCHEMA, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        self._writer.is_open = False  # otherwise its destructor writes a footer


class _JsonLines:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, batch: pa.RecordBatch) -> None:
        rows = _with_dates(batch).to_pylist(maps_as_pydicts="strict") if batch.num_rows else []
        lines = (orjson.dumps(_plain(row), option=orjson.OPT_APPEND_NEWLINE) for row in rows)
        self._stream.write(b"".join(lines))

    def close(self) -> None:
        """Nothing is left to write."""

    def abandon(self) -> None:
        """Nothing would be written."""


class _Csv:
    def __init__(self, stream: BinaryIO) -> None:
        import pyarrow as pa
        import pyarrow.csv as pc

        from gantrymq.tools.arrow import MESSAGE_SCHEMA

        fields = [field for field in MESSAGE_SCHEMA if field.name not in _AS_JSON and field.name != "body"]
        self._names = [field.name for field in fields]
        fields = [pa.field(field.name, pa.string()) if field.name in _TIMES else field for field in fields]
        texts = [pa.field(name, pa.string()) for name in (*_AS_JSON, "body", "body_base64")]
        self._schema = pa.schema([*fields, *texts])
        self._writer = pc.CSVWriter(stream, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        rows = [_plain(row) for row in batch.select([*_AS_JSON, "body"]).to_pylist(maps_as_pydicts="strict")]
        batch = _with_dates(batch)
        columns = [_texts(batch.column(name)) if name in _TIMES else batch.column(name) for name in self._names]
        columns += [pa.array([orjson.dumps(row[name]).decode() for row in rows], pa.string()) for name in _AS_JSON]
        columns += [pa.array([row.get(name) for row in rows], pa.string()) for name in ("body", "body_base64")]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        """Nothing would be written."""


_WRITERS: dict[ExportFormat, type[_Parquet] | type[_JsonLines] | type[_Csv]] = {
    ExportFormat.PARQUET: _Parquet,
    ExportFormat.JSONL: _JsonLines,
    ExportFormat.CSV: _Csv,
}


def open_writer(kind: ExportFormat, stream: BinaryIO) -> MessageWriter:
    """A writer of the format. It does not close ``stream``."""
    return _WRITERS[kind](stream)


def _with_dates(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace times outside of the years 1 to 9999 with null, because text formats have four digits for a year."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in _TIMES:
        times = batch.column(name)
        first, last = (pa.scalar(bound, times.type) for bound in (_FIRST_US, _LAST_US))
        dated = pc.if_else(pc.and_(pc.less_equal(first, times), pc.less_equal(times, last)), times, None)
        batch = batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), dated)
    return batch


def _texts(times: pa.Array) -> pa.Array:
    """Times as text, in the form that JSON lines use."""
    import pyarrow as pa

    return pa.array([time.isoformat() if time is not None else None for time in times.to_pylist()], pa.string())


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Make a row fit for JSON.

    A UTF-8 body goes to ``body``, any other in base64 to ``body_base64``; the other one is null.
    """
    body, row["body_base64"] = row["body"], None
    try:
        row["body"] = body.decode("utf-8")
    except UnicodeDecodeError:
        row["body"] = None
        row["body_base64"] = base64.b64encode(body).decode("ascii")
    return row


Partition = tuple[str, int]


@dataclass(slots=True)
class ExportReport:
    """What was written, and the ``account`` of what the store had and the export lacks.

    ``undecodable`` has a message for each body that cannot be decompressed, ``undecodable_places`` the reason by
    physical offset.
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
        """The ranges of the log without a whole record."""
        return self.account.ranges

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing (exit code 0)."""
        account = self.account
        return account.is_compared and not (
            account.ranges or account.messages or account.quarantined or self.undecodable
        )


class ExportTarget(Protocol):
    """Where an export writes its rows: files, or stdout."""

    def add(self, topic: str, day: int, rows: pa.RecordBatch) -> None:
        """Add rows of one topic and day (days since 1970-01-01, UTC), in the order of the log."""
        ...


class ExportParts:
    """Writes the files of an export, with at most one open file for each topic. A new day closes the topic's file."""

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
        """Add rows of one topic and day (days since 1970-01-01, UTC), in the order of the log."""
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
        """Complete every file."""
        for topic in list(self._day):
            self._end(topic)

    def abandon(self) -> None:
        """Remove the unfinished files."""
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
        import pyarrow as pa

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
    """The directory name of a topic: percent-encoded. A name that is too long is cut and ends with ``~HASH``.

    The cut is between two characters, because readers decode the name.
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
