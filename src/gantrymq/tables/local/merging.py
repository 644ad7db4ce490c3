"""Lands a step in a table with one row for each key: the newest message of a key replaces its row, or removes it.

The obvious way is MERGE of the format. Parquet has none, PyIceberg's upsert holds both sides in memory, delta-rs' MERGE
commits by itself, without our positions. Equality deletes would be cheap to write, but no library of ours writes them,
and few read them. So this is copy-on-write over :class:`gantrymq.tables.local.contents.TableContents`, as maintenance
is: files that have rows of the step's keys are written again without these rows. The new files, the removed ones and
the positions are one commit, pinned to the version that was read.

1. The rows of a step are read once and kept (:class:`KeptRows`): in memory, and from 128 MB on in an unlinked file of
   TMPDIR, because a second reading of a source costs as much as the first. Of each row stay its key and its time.
2. The last row of each key is written, unless it removes the row of the key.
3. The files of the table are searched for the keys of the step. The statistics in a footer exclude files whose keys
   are all smaller or larger; footers are read once. Of the others only the key is read.
4. The files with such rows are written again without them. All is committed.

**The order of messages.** In a step the one with the later store timestamp is the newer one; within a queue timestamps
count as rising, so that the offset decides. Equal ones keep the order in which the source reads them. Across commits
the later commit is the newer one. So messages of one key belong into one queue, as RocketMQ's ordered sends have it.

=============================================  =======================================================================
case                                           what happens
=============================================  =======================================================================
a key is several times in a step               only its last message counts
a delete of a key that is not in the table     nothing but the positions
a kill before the commit                       the files belong to no commit; the next landing reads the step again
a kill after the commit, Parquet               the next landing renames and removes, as after any commit
another lander commits first                   its ``commit_id`` is in the table: AnotherLanderError, nothing is written
another program commits meanwhile (OPTIMIZE)   TableChangedError: the files of the table are searched again, 3 times
another program adds rows of a key             the next message of the key removes all of them
deletion vectors of another program (Delta)    TableError with the way to remove them
a file without the column of the key           its rows have no key: they stay
a wider type of the key (INT to BIGINT)        keys are compared in the widest type
=============================================  =======================================================================

The memory is that of a landing, plus the keys of one step, one after the other the keys of one file, and a bit for
each row of the files that are written again.

Thread rule: one thread.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gantrymq.fs.descriptors import named_errors
from gantrymq.tables.bodies.evolution import aligned
from gantrymq.tables.engine import Head
from gantrymq.tables.errors import TableChangedError, TableError
from gantrymq.tables.local.contents import DataFile, Rewrite, TableContents
from gantrymq.tables.local.format_table import FormatTable, UnknownCommitError, head_at
from gantrymq.tables.maintenance.rewriting import Rewriting
from gantrymq.tables.state import TableFile, TableState
from gantrymq.tables.upserts import UpsertRule

KEPT_BYTES = 128 << 20  # of rows in memory
_TRIES = 3
_NO_TIME = -(1 << 62)
_QUEUE = ("broker", "topic", "queue_id")


class KeptRows:
    """The rows of one step, until the last one of each key is known."""

    def __init__(self, rule: UpsertRule) -> None:
        self._rule = rule
        self._batches: list[pa.RecordBatch] = []
        self._batches_bytes = 0
        self._file: IO[bytes] | None = None
        self._in_file: list[tuple[pa.Schema, int]] = []
        self._schema: pa.Schema | None = None
        self._keys: list[pa.Array] = []
        self._times: list[NDArray[np.int64]] = []
        self._is_delete: list[NDArray[np.bool_]] = []
        self._last_times: dict[tuple[Any, ...], int] = {}
        self.messages = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add messages in the order of their queues. Raises StoreError, DiskFullError, OSError."""
        self.messages += rows.num_rows
        changes = self._rule.changes(rows)
        self._schema = changes.rows.schema
        self._keys.append(changes.keys)
        self._times.append(self._rising_times(changes.rows))
        self._is_delete.append(changes.is_delete)
        self._batches.append(changes.rows)
        self._batches_bytes += changes.rows.nbytes
        if self._batches_bytes >= KEPT_BYTES:
            self._move_to_file()

    def _rising_times(self, rows: pa.RecordBatch) -> NDArray[np.int64]:
        """The store timestamps, each at least as late as those before it in its queue."""
        times: NDArray[np.int64] = rows.column("store_timestamp").cast(pa.int64()).fill_null(_NO_TIME).to_numpy().copy()
        columns = [rows.column(name) for name in _QUEUE]
        codes = np.zeros(len(times), np.int64)
        for column in columns:
            encoded = column.dictionary_encode()
            codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        bounds = np.flatnonzero(np.diff(codes[order], prepend=-1))
        for run in np.split(order, bounds[1:]):
            if len(run):
                queue = tuple(column[int(run[0])].as_py() for column in columns)
                last = self._last_times.get(queue, _NO_TIME)
                times[run] = np.maximum.accumulate(np.maximum(times[run], last))
                self._last_times[queue] = int(times[run[-1]])
        return times

    def _move_to_file(self) -> None:
        self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the rows
        with named_errors(Path(tempfile.gettempdir()), self._batches_bytes):
            for batch in self._batches:
                written = batch.serialize()
                self._file.write(memoryview(written))
                self._in_file.append((batch.schema, written.size))
            self._file.flush()
        self._batches, self._batches_bytes = [], 0

    def last_rows(self) -> LastRows:
        """The last row of each key."""
        if not self._keys:
            return LastRows(pa.array([], pa.string()), np.zeros(0, np.bool_))
        encoded = pa.chunked_array(self._keys).dictionary_encode().unify_dictionaries()
        codes = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])
        order = np.lexsort((np.concatenate(self._times), codes))  # stable: equal ones stay in the order of reading
        is_last = np.zeros(len(codes), np.bool_)
        is_last[order[np.flatnonzero(np.diff(codes[order], append=-1))]] = True
        return LastRows(encoded.chunk(0).dictionary, is_last & ~np.concatenate(self._is_delete))

    def rows(self, is_wanted: NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
        """The rows that a mask over all of them selects, with the columns of the newest."""
        at = 0
        for batch in self._every():
            mask = is_wanted[at : at + batch.num_rows]
            at += batch.num_rows
            if mask.any():
                yield aligned(batch if mask.all() else batch.filter(pa.array(mask)), self._schema)

    def _every(self) -> Iterator[pa.RecordBatch]:
        if self._file is not None:
            self._file.seek(0)
            for schema, size in self._in_file:
                yield pa.ipc.read_record_batch(pa.py_buffer(self._file.read(size)), schema)
        yield from self._batches

    def close(self) -> None:
        """Forget the rows."""
        self._batches = []
        if self._file is not None:
            self._file.close()


@dataclass(frozen=True, slots=True)
class LastRows:
    """All keys of a step, and a mask of the rows that the table has of them after it."""

    keys: pa.Array
    is_wanted: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Footer:
    """What is kept of a file's footer: the smallest and largest key if they are known, and the schemas."""

    bounds: tuple[pa.Scalar, pa.Scalar] | None
    columns: list[str]
    schema: pa.Schema


class Merger:
    """Removes the rows of keys from the files of one table, commit by commit."""

    def __init__(self, table: FormatTable, rule: UpsertRule) -> None:
        self._table, self._rule = table, rule
        self._footers: dict[str, _Footer] = {}

    def commit(self, head: Head, files: Sequence[TableFile], state: TableState, keys: pa.Array) -> Head:
        """Add the files, remove all rows of ``keys`` that the table has, and set the state, in one commit.

        Raises AnotherLanderError, TableChangedError, UnknownCommitError, TableError, DiskFullError, OSError. Of all but
        UnknownCommitError no rewritten file is left.
        """
        for left in reversed(range(_TRIES)):
            current = head_at(self._table, head)
            rewriting = self._rewritten(current, keys)
            rewrite = Rewrite(rewriting.removed) if rewriting.removed else None
            try:
                return self._table.commit(current, [*files, *rewriting.added], state, rewrite)
            except UnknownCommitError:
                raise
            except TableChangedError:
                rewriting.abandon()
                if not left:
                    raise
            except TableError:
                rewriting.abandon()
                raise
        raise AssertionError

    def _rewritten(self, head: Head, keys: pa.Array) -> Rewriting:
        """The files with rows of ``keys``, written again without them."""
        contents = self._table.contents(head)
        files = contents.data_files()
        known = {file.path for file in files}
        self._footers = {path: footer for path, footer in self._footers.items() if path in known}
        rewriting = Rewriting(self._table, head, contents)
        masks: dict[str, NDArray[np.uint8]] = {}  # a bit for each row
        groups: dict[str, list[DataFile]] = {}
        try:
            for file in files:
                footer = self._footer(contents, file)
                is_kept = self._other_keys(contents, file, footer, keys)
                if is_kept is None:
                    continue
                if not is_kept.any():
                    rewriting.drop(file)
                    continue
                masks[file.path] = np.packbits(is_kept)
                groups.setdefault(str(footer.schema), []).append(file)
            for group in groups.values():
                rewriting.rewrite(group, self._footer(contents, group[0]).schema, partial(_chosen, masks))
        except BaseException:
            rewriting.abandon()
            raise
        return rewriting

    def _other_keys(
        self, contents: TableContents, file: DataFile, footer: _Footer, keys: pa.Array
    ) -> NDArray[np.bool_] | None:
        """A mask of the rows of a file that have other keys; None if all have."""
        if not footer.columns or not len(keys) or (footer.bounds is not None and _all_outside(keys, footer.bounds)):
            return None
        stored = [self._rule.stored_keys(batch) for batch in contents.batches(file, footer.columns)]
        is_found = [pc.is_in(array, value_set=keys.cast(array.type)).to_numpy(zero_copy_only=False) for array in stored]
        is_kept: NDArray[np.bool_] = ~np.concatenate(is_found or [np.zeros(0, np.bool_)])
        return None if is_kept.all() else is_kept

    def _footer(self, contents: TableContents, file: DataFile) -> _Footer:
        if file.path not in self._footers:
            with contents.open(file) as stream:
                footer = pq.read_metadata(stream)
            columns = self._rule.stored_columns(footer.schema.to_arrow_schema())
            self._footers[file.path] = _Footer(_bounds(footer, self._rule.by), columns, contents.schema_of(footer))
        return self._footers[file.path]


def _chosen(masks: Mapping[str, NDArray[np.uint8]], file: DataFile, at: int, rows: pa.RecordBatch) -> pa.BooleanArray:
    first, stop = at // 8, at + rows.num_rows
    bits = np.unpackbits(masks[file.path][first : (stop + 7) // 8])
    return pa.array(bits[at - 8 * first : stop - 8 * first].astype(np.bool_))


def _bounds(footer: pq.FileMetaData, column: str) -> tuple[pa.Scalar, pa.Scalar] | None:
    """The smallest and largest value of a column of integers or texts, if each part of the file knows them."""
    numbers = [at for at in range(footer.num_columns) if footer.schema.column(at).path == column]
    ends: list[Any] = []
    for group in range(footer.num_row_groups):
        for number in numbers:
            statistics = footer.row_group(group).column(number).statistics
            if statistics is None or not (statistics.has_min_max or statistics.num_values == 0):
                return None
            if statistics.has_min_max:
                ends += (statistics.min, statistics.max)
    if not ends or not all(type(end) is type(ends[0]) and isinstance(end, (int, str)) for end in ends):
        return None
    return pa.scalar(min(ends)), pa.scalar(max(ends))


def _all_outside(keys: pa.Array, bounds: tuple[pa.Scalar, pa.Scalar]) -> bool:
    if keys.type != bounds[0].type:
        return False
    is_inside = pc.and_(pc.greater_equal(keys, bounds[0]), pc.less_equal(keys, bounds[1]))
    return not pc.any(is_inside).as_py()
