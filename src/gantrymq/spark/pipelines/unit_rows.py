"""Units of consume queues in Spark's shuffle, which turns the order of the log into that of each queue.

A row has the units of one batch of the log for one queue, at most a few thousand, so that no row is large; the shuffle
moves about 36 bytes per message. Each queue's rows go to one task, sorted in the order of the log. Rows without a topic
carry the results of the tasks that read the log.

Topics are distinguished by their bytes, queues by their names: two topics of malformed UTF-8 may have the same name.

Thread rule: a task's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from gantrymq.format.names import is_topic_storable
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.format.queue_units import Units
from gantrymq.kernels import codes
from gantrymq.model.java import decode_utf8
from gantrymq.spark.pipelines.jobs import (
    Mount,
    collected,
    guarded,
    item_numbers,
    numbered_partitions,
    packed,
    reduce_tasks,
    worth_a_task,
)
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.store.queue.queue_units import QueueNumbers, QueueUnits, queue_units

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("queue_id", pa.int32()),
        pa.field("batch", pa.int64()),
        pa.field("first", pa.int64()),
        pa.field("raw_topic", pa.binary()),
        pa.field("units", pa.binary()),
        pa.field("queue_offsets", pa.binary()),
        pa.field("store_times_ms", pa.binary()),
        pa.field("result", pa.binary()),
    ]
)
_DDL = (
    "topic string, queue_id int, batch long, first long, raw_topic binary, units binary, queue_offsets binary, "
    "store_times_ms binary, result binary"
)
_NO_QUEUE = (None,) * (len(_SCHEMA) - 1)
_ROWS_A_BATCH = 256

QueueRows = tuple[str, int, Iterator[QueueUnits]]
"""Topic, queue id, and the queue's units batch by batch."""


class UnitRow(NamedTuple):
    """The units of one queue in one batch of the log; ``first`` is the physical offset of their first record."""

    topic: str
    queue_id: int
    batch: int
    first: int
    raw_topic: bytes
    units: bytes
    queue_offsets: bytes
    store_times_ms: bytes
    result: None = None

    def queue_units(self) -> QueueUnits:
        """The units in the form that the dispatcher uses."""
        units = Units(self.units)
        offsets, times = (np.frombuffer(raw, np.int64) for raw in (self.queue_offsets, self.store_times_ms))
        starts = np.array([0, len(units)], np.int64)
        return QueueUnits(units.raw, offsets, units.phy_offsets, units.sizes, times, starts)


class UnitRows:
    """Makes the rows of one log file, batch by batch, as a dispatcher that writes rows instead of queues."""

    def __init__(self, delay_levels_ms: Sequence[int], left_out: Collection[int] = ()) -> None:
        self._left_out = np.array(sorted(left_out), np.int64)
        self._delay_levels_ms = np.array(delay_levels_ms, np.int64)
        self._numbers = QueueNumbers()
        self._queues: list[tuple[bytes, str, int] | None] = []
        self.last_record: tuple[int, int] | None = None
        """(store time in ms, physical offset) of the last record that has a unit."""

    def of(self, batch: RecordBatch) -> Iterator[UnitRow]:
        """Yield the rows of a batch. Sets PHY_OFFSET of its records to where they lie."""
        batch.trust_positions()
        start = batch.start_offset
        numbers = self._numbers.assign(batch, self._add_queue)
        if len(self._left_out):
            numbers = np.where(np.isin(batch.columns[codes.PHY_OFFSET, : batch.count], self._left_out), -1, numbers)
        if (numbers < 0).any():
            batch, numbers = batch.take(numbers >= 0), numbers[numbers >= 0]
        if not batch.count:
            return
        grouped = queue_units(batch, numbers, len(self._queues), self._delay_levels_ms)
        for number in np.flatnonzero(np.diff(grouped.starts)).tolist():
            if (queue := self._queues[number]) is not None:
                yield self._row(queue, start, grouped, slice(*grouped.starts[number : number + 2].tolist()))
        last = batch.columns[:, batch.count - 1]
        self.last_record = int(last[codes.STORE_TIMESTAMP]), int(last[codes.PHY_OFFSET])

    @staticmethod
    def _row(queue: tuple[bytes, str, int], start: int, grouped: QueueUnits, some: slice) -> UnitRow:
        raw, name, queue_id = queue
        units = grouped.units[some.start * UNIT_SIZE : some.stop * UNIT_SIZE].tobytes()
        offsets, times = grouped.queue_offsets[some].tobytes(), grouped.store_times_ms[some].tobytes()
        return UnitRow(name, queue_id, start, int(grouped.phy_offsets[some.start]), raw, units, offsets, times)

    def _add_queue(self, topic: bytes, queue_id: int) -> None:
        name = decode_utf8(topic)
        storable = is_topic_storable(name) and queue_id >= 0
        self._queues.append((topic, name, queue_id) if storable else None)


def by_queue(
    spark: SparkSession,
    files: Sequence[LogFile],
    read: Callable[[LogFile], Iterator[UnitRow | bytes]],
    write: Callable[[Iterator[QueueRows]], Iterator[Any]],
    mount: Mount,
) -> list[Any]:
    """Run ``read(file)`` for every log file, shuffle its rows, and run ``write`` over the queues of each task.

    ``mount`` is what both require of their host. Returns the results of both, in no order; those of ``read`` are what
    it yields as :func:`result`. Raises the errors of gantrymq that they raise, and StoreError if the Spark job fails.
    """
    groups = worth_a_task(files, lambda file: file.size_bytes)

    def run_read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in item_numbers(batches):
            for file in groups[number]:
                yield from _batches(guarded(partial(_read_mounted, mount, read, file), _read_row))

    def run_write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        passed: list[bytes] = []
        own = list(guarded(lambda: _write_mounted(mount, write, _rows(batches, passed)), packed))
        yield pa.RecordBatch.from_arrays([pa.array([*passed, *own], pa.binary())], ["result"])

    frame = (
        numbered_partitions(spark, len(groups))
        .mapInArrow(run_read, _DDL)
        .repartition(reduce_tasks(spark, len(groups)), "topic", "queue_id")
        .sortWithinPartitions("topic", "queue_id", "batch", "first")
        .mapInArrow(run_write, "result binary")
    )
    return [value for (value,) in collected(frame)]


def _read_mounted(
    mount: Mount, read: Callable[[LogFile], Iterator[UnitRow | bytes]], file: LogFile
) -> Iterator[UnitRow | bytes]:
    mount.require([file])
    yield from read(file)


def _write_mounted(
    mount: Mount, write: Callable[[Iterator[QueueRows]], Iterator[Any]], rows: Iterator[UnitRow]
) -> Iterator[Any]:
    mount.require()
    yield from write(_queues(rows))


def result(value: object) -> bytes:
    """Pack a result of a reading task, to be yielded among its rows."""
    return packed(value)


def _read_row(row: Any) -> tuple[Any, ...]:
    if isinstance(row, UnitRow):
        return row
    return (*_NO_QUEUE, row if isinstance(row, bytes) else packed(row))


def _batches(rows: Iterable[tuple[Any, ...]]) -> Iterator[pa.RecordBatch]:
    held: list[tuple[Any, ...]] = []
    for row in rows:
        held.append(row)
        if len(held) == _ROWS_A_BATCH:
            yield _batch(held)
            held = []
    if held:
        yield _batch(held)


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _rows(batches: Iterator[pa.RecordBatch], passed: list[bytes]) -> Iterator[UnitRow]:
    """Yield the rows with units. Results are added to ``passed``."""
    for batch in batches:
        for columns in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if columns[0] is None:
                passed.append(columns[-1])
            else:
                yield UnitRow(*columns)


def _queues(rows: Iterator[UnitRow]) -> Iterator[QueueRows]:
    for (topic, queue_id), some in groupby(rows, itemgetter(0, 1)):
        yield topic, queue_id, _in_dispatch_order(some)


def _in_dispatch_order(rows: Iterator[UnitRow]) -> Iterator[QueueUnits]:
    """The rows of one queue in dispatch order: within a batch, topics in the order of their first appearance."""
    turn: dict[bytes, int] = {}
    for _, some in groupby(rows, itemgetter(2)):
        for row in sorted(some, key=lambda row: turn.setdefault(row.raw_topic, len(turn))):
            yield row.queue_units()
