"""Files of exported messages: one format each, written under a hidden name and renamed when whole.

Readers that know Hive's layout (Spark, DuckDB, ``pyarrow.dataset``) pass over hidden names, so nobody reads a file
that is half there.

Thread rule: one thread.
"""

from __future__ import annotations

import base64
import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import orjson
import pyarrow as pa

from gantrymq.errors import DiskFullError
from gantrymq.tools.message_schema import MESSAGE_SCHEMA


class ExportFormat(StrEnum):
    """What the files are."""

    PARQUET = "parquet"
    JSONL = "jsonl"
    CSV = "csv"


class MessageWriter(Protocol):
    """Writes batches of MESSAGE_SCHEMA."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows."""
        ...

    def close(self) -> None:
        """End the file."""
        ...

    def abandon(self) -> None:
        """Write nothing more."""
        ...


class ExportFile:
    """The file ``path``; it has that name from :meth:`commit` on. Raises DiskFullError, OSError."""

    def __init__(self, path: Path, kind: ExportFormat) -> None:
        """The topic's and the day's directory are made; what they are in has to be there still."""
        self.path = path
        self.rows = 0
        self._hidden = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        path.parent.parent.mkdir(exist_ok=True)
        path.parent.mkdir(exist_ok=True)
        self._stream = self._hidden.open("wb")
        self._writer = open_writer(kind, self._stream)

    @property
    def size_bytes(self) -> int:
        """How much has been written so far."""
        return self._stream.tell()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of ``batch``."""
        with self._named_errors(batch.nbytes):
            self._writer.write(batch)
        self.rows += batch.num_rows

    def commit(self) -> int:
        """Make the file durable and give it its name; returns its size."""
        with self._named_errors():
            self._writer.close()
            self._stream.flush()
            size = self._stream.tell()
            os.fsync(self._stream.fileno())
        self._stream.close()
        self._hidden.rename(self.path)
        return size

    def abandon(self) -> None:
        """Remove what was written."""
        self._writer.abandon()
        with suppress(OSError):  # what is still buffered may not fit on the disk
            self._stream.close()
        self._hidden.unlink(missing_ok=True)

    @contextmanager
    def _named_errors(self, needed_bytes: int = 0) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFullError(self.path, needed_bytes) from error
            raise


class _Parquet:
    def __init__(self, stream: BinaryIO) -> None:
        import pyarrow.parquet as pq

        self._writer = pq.ParquetWriter(stream, MESSAGE_SCHEMA, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        self._writer.is_open = False  # else its destructor writes a footer


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
        import pyarrow.csv as pc

        fields = [field for field in MESSAGE_SCHEMA if field.name not in _AS_JSON and field.name != "body"]
        self._names = [field.name for field in fields]
        fields = [pa.field(field.name, pa.string()) if field.name in _TIMES else field for field in fields]
        texts = [pa.field(name, pa.string()) for name in (*_AS_JSON, "body", "body_base64")]
        self._schema = pa.schema([*fields, *texts])
        self._writer = pc.CSVWriter(stream, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
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


_AS_JSON = ("keys", "properties")
_TIMES = ("born_timestamp", "store_timestamp")
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 and 9999
_WRITERS: dict[ExportFormat, type[_Parquet] | type[_JsonLines] | type[_Csv]] = {
    ExportFormat.PARQUET: _Parquet,
    ExportFormat.JSONL: _JsonLines,
    ExportFormat.CSV: _Csv,
}


def open_writer(kind: ExportFormat, stream: BinaryIO) -> MessageWriter:
    """A writer of the format, into a stream that it does not close."""
    return _WRITERS[kind](stream)


def _with_dates(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Null for times outside of the years 1 to 9999: text has four digits for a year, and pyarrow would cut others."""
    import pyarrow.compute as pc

    for name in _TIMES:
        times = batch.column(name)
        first, last = (pa.scalar(bound, times.type) for bound in (_FIRST_US, _LAST_US))
        dated = pc.if_else(pc.and_(pc.less_equal(first, times), pc.less_equal(times, last)), times, None)
        batch = batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), dated)
    return batch


def _texts(times: pa.Array) -> pa.Array:
    """Times in the form that JSON lines have them in."""
    return pa.array([time.isoformat() if time is not None else None for time in times.to_pylist()], pa.string())


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row for JSON: a body that is text stands as ``body``, any other in base64 as ``body_base64``; one is null."""
    body, row["body_base64"] = row["body"], None
    try:
        row["body"] = body.decode("utf-8")
    except UnicodeDecodeError:
        row["body"] = None
        row["body_base64"] = base64.b64encode(body).decode("ascii")
    return row
