"""Lands dead rows that are readable now: ``gantrymq table retry``.

The obvious way is to add the readable rows to the table and to delete them from ``__dead``. No format commits two
tables together, so a kill in between leaves rows in both, and nothing says which of them are meant. Deletion first
loses rows.

So a retry is a landing whose source is ``__dead``. It reads that table batch by batch and writes two sets of files: the
rows that are readable now as files of the table, and the dead rows that are left, with new reasons, as files of
``__dead``. Then it commits the table. This commit adds the readable rows, and its state names the other files as
``pending`` and the table ``__dead`` as ``replaced``: its files take the place of all others. Completion does that,
once, because ``__dead`` notes the landing that it has. The next landing or retry completes before it reads anything.

==============================================  ======================================================================
a kill                                          what the next landing or retry finds
==============================================  ======================================================================
while the rows are read and written             The table and ``__dead`` as before. The files belong to no commit:
                                                Parquet removes them, VACUUM or a removal of orphan files the others
after columns were added for a new schema       The same. The columns are null until the next retry; the schema is not
                                                the table's yet
before or while the table is committed          The commit took place or not: its id is in the state of the table
after that, before ``__dead`` is committed      The moved rows are in both tables, the state names the files that are
                                                left: completion replaces the files of ``__dead``
while ``__dead`` is committed                   ``__dead`` has the number of the landing or not; completion if not
Parquet: after that, before all old files are   The manifest has the new files only: the renames are finished and the
removed                                         old files removed
==============================================  ======================================================================

Another process that has landed meanwhile has changed the ``commit_id`` of the table, so the commit fails and ``__dead``
stays as it was. A process that is frozen before its commit fails in the same way. One that is frozen after it finds
that ``__dead`` has its landing.

All files are replaced, not those that were read, because another program may have compacted ``__dead`` since. Rows that
another program adds or deletes there between the reading and the completion do not survive.

A table with one row for each key is refused: nothing tells whether a newer message has removed the key of a dead row.

Nothing is committed if no row is moved, no reason is another one, and the schema is the same.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from gantrymq.format.packed_body import decompress
from gantrymq.model import flags
from gantrymq.tables.columns import COMPRESSION, DEAD, DEAD_SCHEMA, message_from_dead
from gantrymq.tables.engine import Head
from gantrymq.tables.errors import TableError
from gantrymq.tables.local.engine import LocalEngine, Writing
from gantrymq.tables.local.format_table import FormatTable
from gantrymq.tables.options import LandOptions
from gantrymq.tables.rows import BodyRows, Conversion, RowKind, undecodable
from gantrymq.tables.state import LandedCounts

_NOT_RETRIED = (
    "has one row for each key (--upsert-by), and a dead row may be older than what has replaced or removed the row of "
    "its key since: land the topic into a new table, with the new schema"
)


@dataclass(frozen=True, slots=True)
class Retried:
    """The numbers of dead rows that were moved into the table, and that are left."""

    moved: int
    left: int


def retry(table: FormatTable, given: LandOptions, max_body_bytes: int) -> Retried:
    """Move the readable rows of ``__dead`` into ``table``, in one commit.

    ``given`` may have a new schema, which becomes the table's. Compressed bodies are decompressed up to
    ``max_body_bytes``.

    Raises: TableError without a table, AnotherLanderError, ConfigError, SchemaError, DiskFullError, OSError.
    """
    engine = LocalEngine(table)
    head = engine.open() or engine.look()
    options = given.merged(head.state.options)
    if options.upsert_by is not None:
        raise TableError(table.name, _NOT_RETRIED)
    conversion = Conversion(options.choice(), options.body_format(), max_body_bytes)
    state = replace(head.state.next(), options=options.as_json())
    writing = Writing(table, state, conversion)
    try:
        retrying = _Retrying(writing)
        dead = table.beside(DEAD)
        dead_head = dead.head()
        if dead_head is not None:
            contents = dead.contents(dead_head)
            for batch in chain.from_iterable(map(contents.batches, contents.data_files())):
                retrying.read(batch)
        state = replace(state, options={**state.options, "bodies": writing.growth.bodies.remembered()})
        if retrying.finds_nothing_new(head) and state.options == head.state.options:
            writing.abandon()
            return retrying.numbers
        moved, left = retrying.numbers.moved, retrying.numbers.left
        files, state = writing.finish(state, LandedCounts(moved, left - head.state.totals.dead), (DEAD,))
    except BaseException:
        writing.abandon()
        raise
    engine.commit(head, writing, files, state)
    return retrying.numbers


class _Retrying:
    """Divides dead rows into rows of the table and those that stay dead."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._conversion = writing.conversion
        self._rows = BodyRows(writing.conversion, writing.growth)
        self._has_other_reasons = False
        self.numbers = Retried(0, 0)

    def finds_nothing_new(self, head: Head) -> bool:
        """Whether ``__dead`` would be as it is, and the numbers of ``head`` are right."""
        return self.numbers == Retried(0, head.state.totals.dead) and not self._has_other_reasons

    def read(self, batch: pa.RecordBatch) -> None:
        """Decode dead rows. The files may have been written by another program."""
        dead = _with_our_types(batch)
        is_packed = dead.column(COMPRESSION).is_valid()
        self._decode(dead.filter(pc.invert(is_packed)))
        packed = dead.filter(is_packed)
        for row in range(packed.num_rows):  # one at a time: a body may decompress to the limit
            self._unpack(packed.slice(row, 1))

    def _unpack(self, dead: pa.RecordBatch) -> None:
        """Decode a row whose body is compressed."""
        kind, body = dead.column(COMPRESSION)[0].as_py(), dead.column("body")[0].as_py()
        try:
            unpacked = decompress(body, kind | flags.COMPRESSED, self._conversion.max_body_bytes)
        except ValueError as error:
            self._keep(dead, [undecodable(str(error))])
            return
        columns = {"body": pa.array([unpacked], pa.binary()), COMPRESSION: pa.nulls(1, pa.int32())}
        self._decode(_with_columns(dead, columns))

    def _decode(self, dead: pa.RecordBatch) -> None:
        if not dead.num_rows:
            return
        message = message_from_dead(dead, has_origin=self._conversion.choice.has_origin)
        rows, reasons = self._rows.decode(message, dead.column("body"))
        if rows.num_rows:
            self._writing.add(RowKind.ROWS, rows, ())
            self.numbers = replace(self.numbers, moved=self.numbers.moved + rows.num_rows)
        is_bad = pa.array([reason is not None for reason in reasons], pa.bool_())
        self._keep(dead.filter(is_bad), [reason for reason in reasons if reason is not None])

    def _keep(self, dead: pa.RecordBatch, reasons: Sequence[str]) -> None:
        """Leave rows dead, with new reasons."""
        if not dead.num_rows:
            return
        versions = pa.repeat(self._rows.version, dead.num_rows)
        still_dead = _with_columns(dead, {"reason": pa.array(reasons, pa.string()), "schema_version": versions})
        self._has_other_reasons |= not still_dead.equals(dead)
        self._writing.add(RowKind.DEAD, still_dead, ())
        self.numbers = replace(self.numbers, left=self.numbers.left + still_dead.num_rows)


def _with_our_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns as they were written. Libraries have larger offsets, views, and other names of fields."""
    names = batch.schema.names
    arrays = [
        batch.column(field.name).cast(field.type) if field.name in names else pa.nulls(batch.num_rows, field.type)
        for field in DEAD_SCHEMA
    ]
    dead = pa.RecordBatch.from_arrays(arrays, schema=DEAD_SCHEMA)
    return _with_columns(dead, {"body": dead.column("body").fill_null(b"")})


def _with_columns(dead: pa.RecordBatch, changed: dict[str, pa.Array]) -> pa.RecordBatch:
    arrays = [changed.get(field.name, dead.column(field.name)) for field in DEAD_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=DEAD_SCHEMA)
