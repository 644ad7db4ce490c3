"""What DuckDB scans: an Arrow dataset whose rows are read by us, with the columns and the filter of the query.

DuckDB pushes neither columns nor filters into a stream of Arrow batches. It does both for a
``pyarrow.dataset.Dataset``: it calls ``scanner(columns=…, filter=…)`` of the object's class for each scan of a
statement, and expects that the filter is applied. So :class:`ScannedView` is a Dataset without files. A view that is
scanned twice is read twice.

A filter is an Arrow expression, which has no public parts. Two questions suffice: which columns it reads
(:func:`columns_of`), and which parts of a source it excludes (:func:`not_excluded`). Arrow answers the second for
fragments of a dataset with a guarantee (a partition expression), so each part is asked as such a fragment.

Thread rule: scans run in DuckDB's threads, several at a time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

_ROW = "__row"


class ScannedView(ds.Dataset):  # type: ignore[misc]
    """A view with ``schema``; :meth:`read` makes its rows. Errors of a read are kept, because DuckDB rewrites them."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.errors: list[BaseException] = []

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._schema

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> _Scan:
        """One scan of the rows that pass ``filter``; DuckDB calls this by keyword."""
        return _Scan(self, list(columns) if columns else self._schema.names, filter)

    @abstractmethod
    def read(self, columns: list[str], condition: Any) -> Iterator[pa.RecordBatch]:
        """Yield batches of ``columns`` with the rows that pass ``condition`` (an Arrow expression, or None)."""
        ...


class _Scan:
    def __init__(self, view: ScannedView, columns: list[str], condition: Any) -> None:
        self._view, self._columns, self._condition = view, columns, condition

    def to_reader(self) -> pa.RecordBatchReader:
        schema = pa.schema([self._view.schema.field(name) for name in self._columns])
        return pa.RecordBatchReader.from_batches(schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._view.read(self._columns, self._condition)
        except BaseException as error:
            self._view.errors.append(error)
            raise


def columns_of(condition: Any, schema: pa.Schema) -> list[str]:
    """The columns of ``schema`` that an expression reads."""
    if condition is None:
        return []
    names = []
    for name in schema.names:
        rest = pa.schema([field for field in schema if field.name != name])
        try:
            rest.empty_table().filter(condition)
        except pa.ArrowInvalid:  # No match for FieldRef
            names.append(name)
    return names


def matching_rows(batch: pa.RecordBatch, condition: Any) -> pa.Array:
    """The numbers of the rows that pass an expression."""
    numbered = pa.Table.from_batches([batch]).append_column(_ROW, pa.array(range(batch.num_rows), pa.int64()))
    return numbered.filter(condition).column(_ROW).combine_chunks()


def not_excluded(guarantees: Sequence[Any], condition: Any, schema: pa.Schema) -> list[int]:
    """The numbers of the parts in which rows may pass ``condition``.

    ``guarantees[i]`` is an expression that is true for each row of part i.
    """
    if condition is None:
        return list(range(len(guarantees)))
    files, no_files = ds.ParquetFileFormat(), fs.LocalFileSystem()
    fragments = [
        files.make_fragment(str(number), no_files, partition_expression=guarantee)
        for number, guarantee in enumerate(guarantees)
    ]
    parts = ds.FileSystemDataset(fragments, schema, files, no_files)
    return [int(fragment.path) for fragment in parts.get_fragments(condition)]
