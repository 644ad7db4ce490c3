"""How the files of a table are divided: ``--partition-by``.

Each member is ``day`` or ``hour`` of the store timestamp in UTC, or a column. All rows of a file have the same value of
each member. Iceberg keeps these values itself, for its own transforms ``day``, ``hour`` and ``identity``.

The obvious way in Delta and Parquet is to partition by the column itself. Then it is not in the files, and its values
are texts of the log or of a directory: Delta and Hive read an empty text as null, and Hive's readers guess the type, so
that 01 becomes 1. So the column stays in the files, and a column ``landed_COLUMN`` beside it has the partition. There
null and the empty text are one partition.

Thread rule: values.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gantrymq.errors import ConfigError
from gantrymq.tables.bodies.evolution import sql_name
from gantrymq.tables.bodies.names import LANDED

OPTION = "--partition-by"

_NONE = "none"
_HOUR_US = 3_600_000_000
_UNITS_US = {"day": 24 * _HOUR_US, "hour": _HOUR_US}
_UNKNOWN_TIME = "unknown"
_NO_TIME = -(1 << 62)
_NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"[\x00-\x7f](?<![A-Za-z0-9_.~-])")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_.-]")
_MOST_NAME_BYTES, _MOST_TEXT_BYTES = 100, 120  # of the 255 that the name of a directory may have
_KEPT_CHARACTERS, _DIGEST_DIGITS = 20, 32
_EXPRESSION = "none, or day, hour and columns of the table, each once, such as topic,day"

Partition = tuple[tuple[str, str | None], ...]
"""The name ``landed_MEMBER`` and the text of each member; empty in a table without partitions."""


@dataclass(frozen=True, slots=True)
class PartitionBy:
    """The members, in their order."""

    members: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> PartitionBy:
        """The members of an option. Raises ConfigError for a text that is no list of different names."""
        members = tuple(text.split(","))
        if members == (_NONE,):
            return cls()
        if _NONE in members or "" in members or len(set(members)) < len(members):
            raise ConfigError(OPTION, text, _EXPRESSION)
        if set(_UNITS_US) <= set(members):
            raise ConfigError(OPTION, text, "hour without day: an hour has its day")
        return cls(members)

    def __str__(self) -> str:
        """The text of the option."""
        return ",".join(self.members) or _NONE

    @property
    def columns(self) -> tuple[str, ...]:
        """The members that are columns of the table."""
        return tuple(member for member in self.members if member not in _UNITS_US)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the partition in formats whose partitions are columns."""
        return tuple(f"{LANDED}{member}" for member in self.members)

    def require_columns(self, schema: pa.Schema) -> None:
        """Raise ConfigError if a table of that schema lacks a member, or has one that cannot be a partition."""
        for name in self.columns:
            if name not in schema.names:
                raise ConfigError(OPTION, str(self), f"day, hour, or a column of the table: {', '.join(schema.names)}")
            kind = schema.field(name).type
            if not _is_partition(kind):
                allowed = f"a column of texts, integers, decimals, booleans or times, and {name} is {sql_name(kind)}"
                raise ConfigError(OPTION, str(self), allowed)
            if _escaped(name) != name or len(name.encode()) > _MOST_NAME_BYTES:
                allowed = f"columns whose names have letters, digits, _ and -, and at most {_MOST_NAME_BYTES} bytes"
                raise ConfigError(OPTION, str(self), allowed)

    def divided(
        self, batches: Sequence[pa.RecordBatch], empty: str | None
    ) -> Iterator[tuple[Partition, Sequence[pa.RecordBatch]]]:
        """The rows of each partition, in their order. The batches have one schema.

        ``empty`` is the text of a partition of empty texts.
        """
        if not self.members:
            yield (), batches
            return
        table = pa.Table.from_batches(batches)
        each = [_numbered(table, member, empty) for member in self.members]
        groups = np.zeros(table.num_rows, np.int64)
        for texts, numbers in each:
            groups = np.unique(groups * len(texts) + numbers, return_inverse=True)[1]
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(np.diff(groups[order], prepend=-1)).tolist()
        combined = table.combine_chunks() if len(starts) > 1 else None
        for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
            rows = order[start:end]
            names = zip(self.names, each, strict=True)
            partition = tuple((name, texts[numbers[rows[0]]]) for name, (texts, numbers) in names)
            # A copy: a slice would keep the rows of all partitions in memory.
            yield partition, batches if combined is None else combined.take(pa.array(rows)).to_batches()


def _is_partition(kind: pa.DataType) -> bool:
    types = pa.types
    tests = (types.is_string, types.is_integer, types.is_decimal, types.is_boolean, types.is_date, types.is_timestamp)
    return any(test(kind) for test in tests)


def _numbered(table: pa.Table, member: str, empty: str | None) -> tuple[list[str | None], NDArray[np.int64]]:
    """Different texts of a member, and the number of that of each row."""
    if member in _UNITS_US:
        return _times(table, member)
    if member not in table.schema.names:  # bodies that lack a column have null in it
        return [None], np.zeros(table.num_rows, np.int64)
    encoded = table.column(member).dictionary_encode().unify_dictionaries()
    texts = encoded.chunk(0).dictionary.cast(pa.string()).to_pylist() if encoded.num_chunks else []
    indices = [chunk.indices.fill_null(len(texts)).to_numpy() for chunk in encoded.chunks]
    return _merged([*(empty if text == "" else text for text in texts), None], np.concatenate(indices))


def _merged(texts: list[str | None], numbers: NDArray[np.int64]) -> tuple[list[str | None], NDArray[np.int64]]:
    """Equal texts under one number."""
    first: dict[str | None, int] = {}
    mapping = np.array([first.setdefault(text, len(first)) for text in texts], np.int64)
    return list(first), mapping[numbers]


def _times(table: pa.Table, unit: str) -> tuple[list[str | None], NDArray[np.int64]]:
    times = pc.fill_null(table.column("store_timestamp").cast(pa.int64()), _NO_TIME).to_numpy()
    units, numbers = np.unique(times // _UNITS_US[unit], return_inverse=True)
    return [_time_text(number, unit) for number in units.tolist()], numbers


def _time_text(number: int, unit: str) -> str:
    """A day as 2026-11-29, an hour as 2026-11-29-08; ``unknown`` for rows without a store timestamp."""
    if number == _NO_TIME // _UNITS_US[unit]:
        return _UNKNOWN_TIME
    text = str(np.datetime64(number * _UNITS_US[unit] // 1_000_000, "s"))  # 2026-11-29T08:00:00
    return text[: -len("T08:00:00")] if unit == "day" else text[: -len(":00:00")].replace("T", "-")


def hive_directory(name: str, text: str | None) -> str:
    """The name of the directory of a partition, as Hive's readers expect it: ``landed_country=DE``.

    All of the text but letters, digits and ``_.~-`` is escaped, but no character outside of ASCII, which Spark would
    not restore. Of a long text the directory has the begin and a hash.
    """
    return f"{name}={_NULL if text is None else _bounded(text)}"


def plain_text(text: str | None) -> str:
    """A text for the name of a directory that no program takes for a value. Several may have one."""
    return _NULL if text is None else _NOT_PLAIN.sub("_", text[: _KEPT_CHARACTERS * 2])


def _escaped(text: str) -> str:
    escaped = _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)
    return f"%5F{escaped[1:]}" if escaped == _NULL else escaped


def _bounded(text: str) -> str:
    escaped = _escaped(text)
    if len(escaped.encode()) <= _MOST_TEXT_BYTES:
        return escaped
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"{_ESCAPED.sub('_', text[:_KEPT_CHARACTERS])}~{digest}"
