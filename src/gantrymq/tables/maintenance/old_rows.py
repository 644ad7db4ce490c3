"""Which files of a table have rows that are too old.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from gantrymq.tables.local.contents import DataFile, TableContents, TimeSpan, parquet_batches

_TIME = "store_timestamp"


class OldFiles(NamedTuple):
    """Files whose rows are all too old, and files with newer rows, too."""

    whole: list[DataFile]
    in_part: list[DataFile]


def old_files(contents: TableContents, files: Sequence[DataFile], before_us: int, slack_us: int) -> OldFiles:
    """The files with rows older than a time in µs. Such a row may stay with newer ones for ``slack_us``.

    A row without a store timestamp stays.
    """
    old = OldFiles([], [])
    for file in files:
        span = file.span or _span_of_rows(contents, file)
        if span is None or span.oldest_us >= before_us:
            continue
        if span.newest_us < before_us and file.span is not None:
            old.whole.append(file)
        elif span.oldest_us < before_us - slack_us or span.newest_us < before_us:
            old.in_part.append(file)
    return old


def _span_of_rows(contents: TableContents, file: DataFile) -> TimeSpan | None:
    """The span of a file without statistics."""
    ends: list[int] = []
    with contents.open(file) as stream:
        for batch in parquet_batches(stream, [_TIME]):
            if batch.num_columns and batch.column(0).null_count < batch.num_rows:
                bounds = pc.min_max(batch.column(0).cast(pa.int64()))
                ends += (bounds["min"].as_py(), bounds["max"].as_py())
    return TimeSpan(min(ends), max(ends)) if ends else None
