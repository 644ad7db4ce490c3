"""Which files of a table are compacted.

A file is small below three quarters of the size that a landing fills. The sizes are those of the rows in memory: on
disk a full file of well compressed bodies is small, too.

A run that ends merges all small files of a partition if fewer files come out. A run that repeats itself would write a
growing file again after each commit. So it waits for 16 small files in a partition, and merges them with the larger
ones up to a file that is as large as all smaller ones together: each rewriting of a row at least doubles its file.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from gantrymq.tables.local.contents import DataFile
from gantrymq.tables.local.part_files import FILE_BYTES

SMALL_BYTES = FILE_BYTES * 3 // 4
FEW = 16


@dataclass(frozen=True, slots=True)
class SizedFile:
    """A file, the size of its rows in memory, and the schema for files with its rows."""

    file: DataFile
    row_bytes: int
    schema: pa.Schema


def candidates(files: Iterable[DataFile], *, is_exact: bool) -> list[list[DataFile]]:
    """The files of each partition that may be small, where there are enough of them. No file is opened for it."""
    partitions: dict[object, list[DataFile]] = {}
    for file in files:
        if file.is_whole and file.size_bytes < SMALL_BYTES:
            partitions.setdefault(file.partition, []).append(file)
    return [some for some in partitions.values() if len(some) >= (2 if is_exact else FEW)]


def groups(files: Sequence[SizedFile], *, is_exact: bool) -> list[list[SizedFile]]:
    """The files of a partition that are merged, by their schema."""
    by_schema: dict[str, list[SizedFile]] = {}
    for file in files:
        if file.row_bytes < SMALL_BYTES:
            by_schema.setdefault(str(file.schema), []).append(file)
    return [some for group in by_schema.values() if (some := _merged(group, is_exact=is_exact))]


def _merged(files: Sequence[SizedFile], *, is_exact: bool) -> list[SizedFile]:
    smallest_first = sorted(files, key=lambda sized: sized.row_bytes)
    count, below = (len(files), 0) if is_exact else (0, 0)
    if not is_exact:
        for number, sized in enumerate(smallest_first, 1):
            if number >= FEW and sized.row_bytes <= below:
                count = number
            below += sized.row_bytes
    chosen = smallest_first[:count]
    if -(-sum(sized.row_bytes for sized in chosen) // FILE_BYTES) >= len(chosen):
        return []
    return sorted(chosen, key=lambda sized: (sized.file.span or (0, 0), sized.file.path))
