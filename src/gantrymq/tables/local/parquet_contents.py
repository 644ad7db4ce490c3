"""The files that a manifest of Parquet files lists.

No file of rows waits for its end: one that is replaced is removed after the commit, or by the next landing.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from gantrymq.tables.errors import TableError
from gantrymq.tables.local.contents import DataFile, ExpiredFiles, parquet_batches, span_of
from gantrymq.tables.local.directory import Directory, FoundFile
from gantrymq.tables.state import TableFile

STATES, UNLINKED = "_gantrymq", ".tmp"


class ParquetContents:
    """Implements :class:`gantrymq.tables.local.contents.TableContents`."""

    def __init__(self, directory: Directory, files: Sequence[TableFile]) -> None:
        self._directory, self._files = directory, files

    @property
    def removes_at_once(self) -> bool:
        """Readers see the files themselves."""
        return True

    def data_files(self) -> list[DataFile]:
        """The committed files."""
        return [DataFile(file.path, file.rows, file.size_bytes, file.partition, span_of(file)) for file in self._files]

    def open(self, file: DataFile) -> BinaryIO:
        """Open a file for reading. Raises TableError for one that is gone."""
        try:
            return self._directory.open_for_reading(file.path)
        except FileNotFoundError:
            raise TableError(self._directory.text, f"{file.path} is gone: another process has changed it") from None

    def batches(self, file: DataFile, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a file."""
        with self.open(file) as stream:
            yield from parquet_batches(stream, columns)

    def schema_of(self, footer: pq.FileMetaData) -> pa.Schema:
        """The columns of the file, which may be fewer than those of newer ones."""
        return footer.schema.to_arrow_schema().remove_metadata()

    def expired(self, before_us: int, pending: Collection[str]) -> ExpiredFiles:
        """Manifests that a killed process has not finished or not unlinked."""
        listed = self._directory.found_below(STATES, recursive=False)
        return ExpiredFiles(
            [file for file in listed if file.path.endswith(UNLINKED) and file.modified_us < before_us], []
        )

    def remove(self, files: Sequence[FoundFile]) -> None:
        """Remove files that are expired."""
        for file in files:
            self._directory.remove(file.path)
