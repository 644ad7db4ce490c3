"""The order of the rows in the files of a table."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from gantrymq.tables.local.part_files import in_order


def _table(rows: list[tuple[str, int, int]], batch_rows: int) -> pa.Table:
    schema = pa.schema([("topic", pa.string()), ("queue_id", pa.int32()), ("queue_offset", pa.int64())])
    batches = [
        pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(zip(*part, strict=True), schema, strict=True)],
            schema=schema,
        )
        for part in (rows[begin : begin + batch_rows] for begin in range(0, len(rows), batch_rows))
    ]
    return pa.Table.from_batches(batches)


def _values(table: pa.Table) -> list[tuple[str, int, int]]:
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("run_rows", [1, 7, 400], ids=["single rows", "short runs", "long runs"])
def test_rows_of_runs_of_any_length_are_sorted_by_queue_and_offset(run_rows: int) -> None:
    runs = [
        [("b" if queue % 2 else "a", queue, run * run_rows + row) for row in range(run_rows)]
        for run in range(3)
        for queue in range(4)
    ]
    rows = [row for run in runs for row in run]
    assert _values(in_order(_table(rows, 150))) == sorted(rows)


def test_rows_in_their_order_are_the_table_itself() -> None:
    table = _table([("a", 0, offset) for offset in range(300)], 100)
    assert in_order(table) is table


def test_long_runs_share_the_memory_of_the_batches() -> None:
    rows = [("a", queue, offset) for queue in (1, 0) for offset in range(500)]
    table = _table(rows, 500)
    before = pa.total_allocated_bytes()
    ordered = in_order(table)
    assert pa.total_allocated_bytes() - before < table.nbytes // 2
    assert _values(ordered) == sorted(rows)


def test_shuffled_rows_are_sorted(seed: int) -> None:
    rows = [("a", queue, offset) for queue in range(3) for offset in range(200)]
    random.Random(seed).shuffle(rows)
    assert _values(in_order(_table(rows, 64))) == sorted(rows)
