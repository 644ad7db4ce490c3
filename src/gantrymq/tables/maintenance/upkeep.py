"""Removes the old rows of one table, and compacts its files.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from gantrymq.tables.engine import Head
from gantrymq.tables.local.contents import DataFile, TableContents, row_bytes
from gantrymq.tables.local.format_table import FormatTable
from gantrymq.tables.maintenance.old_rows import old_files
from gantrymq.tables.maintenance.options import Maintained
from gantrymq.tables.maintenance.rewriting import COMMIT_BYTES, Rewriting, newer_than
from gantrymq.tables.maintenance.small_files import SizedFile, candidates, groups

Write = Callable[[Rewriting], None]


class TableUpkeep:
    """The rewriting of the files of one table: the messages, the dead rows, or the account."""

    def __init__(self, table: FormatTable) -> None:
        self.table = table
        self._sizes: dict[str, tuple[int, pa.Schema]] = {}

    def remove_old_rows(self, head: Head, before_us: int, slack_us: int) -> tuple[Head, Maintained] | None:
        """Remove rows older than a time in µs in one commit; None if there are none.

        A row in a file with newer ones may stay for ``slack_us``. Raises AnotherLanderError, TableChangedError,
        TableError, DiskFullError, OSError.
        """
        contents = self.table.contents(head)
        old = old_files(contents, contents.data_files(), before_us, slack_us)
        if not old.whole and not old.in_part:
            return None

        def write(rewriting: Rewriting) -> None:
            for file in old.whole:
                rewriting.drop(file)
            for file in old.in_part:
                rewriting.rewrite([file], self._sized(contents, file).schema, newer_than(before_us))

        return self._committed(Rewriting(self.table, head, contents), contents, write)

    def compact(self, head: Head, *, is_exact: bool) -> tuple[Head, Maintained] | None:
        """Rewrite the small files of some partitions in one commit; None if there are none. Raises as above."""
        contents = self.table.contents(head)
        files = contents.data_files()
        known = {file.path for file in files}
        self._sizes = {path: size for path, size in self._sizes.items() if path in known}
        some = _of_one_commit(self._groups(contents, files, is_exact=is_exact))
        if not some:
            return None

        def write(rewriting: Rewriting) -> None:
            for group in some:
                rewriting.rewrite([sized.file for sized in group], group[0].schema)

        return self._committed(Rewriting(self.table, head, contents), contents, write)

    def _committed(self, rewriting: Rewriting, contents: TableContents, write: Write) -> tuple[Head, Maintained]:
        try:
            write(rewriting)
        except BaseException:
            rewriting.abandon()
            raise
        head = rewriting.commit()
        removed = rewriting.removed if contents.removes_at_once else ()
        is_compaction = not rewriting.dropped_rows
        return head, Maintained(
            len(rewriting.removed) if is_compaction else 0,
            len(rewriting.added) if is_compaction else 0,
            rewriting.dropped_rows,
            len(removed),
            sum(file.size_bytes for file in removed),
        )

    def _groups(self, contents: TableContents, files: list[DataFile], *, is_exact: bool) -> Iterator[list[SizedFile]]:
        for some in candidates(files, is_exact=is_exact):
            yield from groups([self._sized(contents, file) for file in some], is_exact=is_exact)

    def _sized(self, contents: TableContents, file: DataFile) -> SizedFile:
        """The file with what its footer says, which is read once."""
        if file.path not in self._sizes:
            with contents.open(file) as stream:
                footer = pq.read_metadata(stream)
            self._sizes[file.path] = row_bytes(footer), contents.schema_of(footer)
        return SizedFile(file, *self._sizes[file.path])


def _of_one_commit(every: Iterator[list[SizedFile]]) -> list[list[SizedFile]]:
    """The first groups, as many as one commit rewrites."""
    some: list[list[SizedFile]] = []
    size_bytes = 0
    for group in every:
        some.append(group)
        size_bytes += sum(sized.row_bytes for sized in group)
        if size_bytes >= COMMIT_BYTES:
            break
    return some
