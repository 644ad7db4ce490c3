"""Typed bodies as columns of a table: dead rows, inferred fields, and a schema that grows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyarrow import fs

from gantrymq.tables.errors import TableError
from gantrymq.tables.local.target import TableFormat
from gantrymq.tables.options import LandOptions
from gantrymq.tables.query.landed import open_table
from tables.landing_cases import FORMATS, Lake, land, line, put


def columns(lake: Lake, *names: str) -> list[tuple[Any, ...]]:
    """Values of the rows, in the order of their offsets; None for a column that a file lacks."""
    rows = sorted(lake.rows(), key=lambda row: row["queue_offset"])
    return [tuple(row.get(name) for name in names) for row in rows]


@pytest.mark.parametrize("kind", FORMATS)
def test_body_that_does_not_fit_becomes_dead_row_with_its_message(kind: Any, tmp_path: Path) -> None:
    lake, path = Lake(tmp_path / "lake", kind), tmp_path / "store"
    put(path, [line(id=1, price=2.5), b"\xff", line(id="x"), b"", line(id=4)])
    schema = tmp_path / "orders.ddl"
    schema.write_text("id BIGINT, price DOUBLE")
    options = LandOptions(topics=("orders",), body="json", schema=str(schema))
    _, summary = land(lake, path, options)
    assert columns(lake, "queue_offset", "id", "price") == [(0, 1, 2.5), (4, 4, None)]
    assert (summary.totals.rows, summary.totals.dead, summary.totals.missing) == (2, 3, 0)
    assert not summary.is_clean
    dead = sorted(lake.rows("__dead"), key=lambda row: row["queue_offset"])
    assert [(row["queue_offset"], bytes(row["body"])) for row in dead] == [(1, b"\xff"), (2, b'{"id": "x"}'), (3, b"")]
    assert "id" in dead[1]["reason"]
    assert all(row["schema_version"] and row["landed_keys"] == ["k1", "k2"] for row in dead)
    assert land(lake, path, LandOptions())[1].commits == 0


@pytest.mark.parametrize("kind", FORMATS)
def test_inferred_schema_adds_columns_and_is_remembered(kind: Any, tmp_path: Path) -> None:
    lake, path = Lake(tmp_path / "lake", kind), tmp_path / "store"
    put(path, [line(id=1), line(id=2, user={"name": "a"})])
    land(lake, path, LandOptions(topics=("orders",), body="json", schema="infer"))
    put(path, [line(id=3, paid=True, user={"name": "b", "age": 7}), line(id="four")])
    _, summary = land(lake, path, LandOptions())
    assert (summary.totals.rows, summary.totals.dead) == (1, 1)
    assert [row[0] for row in columns(lake, "id")] == [1, 2, 3]
    last = max(lake.rows(), key=lambda row: row["queue_offset"])
    assert (last["paid"], last["user"]) == (True, {"name": "b", "age": 7})
    put(path, [line(id=5)])
    assert land(lake, path, LandOptions())[1].totals.rows == 1
    assert [row[0] for row in columns(lake, "id")] == [1, 2, 3, 5]


@pytest.mark.parametrize("kind", FORMATS)
def test_later_schema_file_adds_fields_and_widens_int(kind: Any, tmp_path: Path) -> None:
    lake, path = Lake(tmp_path / "lake", kind), tmp_path / "store"
    old, new = tmp_path / "old.ddl", tmp_path / "new.ddl"
    old.write_text("id INT")
    new.write_text("note STRING, id BIGINT")
    put(path, [line(id=1)])
    land(lake, path, LandOptions(topics=("orders",), body="json", schema=str(old)))
    put(path, [line(id=1 << 40, note="big")])
    _, summary = land(lake, path, LandOptions(schema=str(new)))
    assert summary.totals.dead == 0
    if kind == "parquet":  # its files have types of their own
        rows = open_table(Path(lake.table)).to_table().sort_by("queue_offset")
        assert (rows.column("id").to_pylist(), rows.column("note").to_pylist()) == ([1, 1 << 40], [None, "big"])
    else:
        assert columns(lake, "id", "note") == [(1, None), (1 << 40, "big")]
    put(path, [line(id=3)])
    assert land(lake, path, LandOptions())[1].totals.rows == 1
    assert len(lake.rows()) == 3 if kind != "parquet" else True


def test_field_named_like_message_column_lands_under_other_name(tmp_path: Path) -> None:
    lake, path = Lake(tmp_path / "lake", FORMATS[0]), tmp_path / "store"
    put(path, [line(topic="mine", Tags=3)])
    schema = tmp_path / "orders.ddl"
    schema.write_text("topic STRING, Tags BIGINT")
    land(lake, path, LandOptions(topics=("orders",), body="json", schema=str(schema)))
    (row,) = lake.rows()
    assert (row["topic"], row["tags"], row["body_topic"], row["body_Tags"]) == ("orders", "paid", "mine", 3)


@pytest.mark.parametrize("kind", FORMATS)
def test_field_named_like_partition_lands_under_other_name(kind: Any, tmp_path: Path) -> None:
    lake, path = Lake(tmp_path / "lake", kind), tmp_path / "store"
    put(path, [line(landed_day=1, Landed_Hour="x", _file=2)])
    options = LandOptions(topics=("orders",), body="json", schema="infer")
    assert land(lake, path, options)[1].totals.rows == 1
    assert columns(lake, "body_landed_day", "body_Landed_Hour", "body__file") == [(1, "x", 2)]


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_dead_rows_of_recreated_table_are_distinct_from_old_ones(kind: Any, tmp_path: Path) -> None:
    lake, path = Lake(tmp_path / "lake", kind), tmp_path / "store"
    options = LandOptions(topics=("orders",), body="text")
    for number in range(3):
        put(path, [b"\xff%d" % number])
        land(lake, path, options)
    shutil.rmtree(lake.table)
    put(path, [b"\xffnew"])
    with pytest.raises(TableError, match="__dead: has later landings"):
        land(lake, path, options)
    shutil.rmtree(f"{lake.table}__dead")
    land(lake, path, options)
    assert sorted(row["queue_offset"] for row in lake.rows("__dead")) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", FORMATS)
def test_condition_on_any_column_finds_its_rows(kind: TableFormat, tmp_path: Path) -> None:
    """deltalake takes a bound that a file lacks for null, and so excludes the file from every condition."""
    store, lake = tmp_path / "broker-a" / "store", Lake(tmp_path / "lake", kind)
    schema = tmp_path / "orders.ddl"
    schema.write_text("s STRING, f DOUBLE, d DECIMAL(10,2), day DATE, at TIMESTAMP, b BOOLEAN, n BIGINT, e INT")
    fields = {
        "s": "x" * 200,
        "f": 1.5,
        "d": 1.25,
        "day": "2026-01-01",
        "at": "2026-01-01T00:00:00Z",
        "b": False,
        "n": 3,
    }
    put(store, [line(**fields), line(s="😀" * 99, f=-0.0)])
    land(lake, store, LandOptions(topics=("orders",), body="json", schema=str(schema)))
    put(store, [line(s="\U0010ffff" * 99)])
    land(lake, store, LandOptions(topics=("orders",), body="json", schema=str(schema)))
    root = Path(lake.table) if kind is not TableFormat.ICEBERG else next(lake.root.rglob("metadata")).parent
    views = [open_table(root)]
    if kind is TableFormat.DELTA:
        files = fs.SubTreeFileSystem(lake.table, fs.LocalFileSystem())
        views.append(DeltaTable(lake.table).to_pyarrow_dataset(filesystem=files))
    for row in lake.rows():
        for name in row:
            if isinstance(row[name], (list, dict)):
                continue
            wanted = ds.field(name).is_null() if row[name] is None else ds.field(name) == row[name]
            for view in views:
                numbers = view.scanner(columns=["queue_offset"], filter=wanted).to_reader().read_all()
                assert row["queue_offset"] in numbers.column("queue_offset").to_pylist(), name
