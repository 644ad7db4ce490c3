"""Tables by columns: each file has one value of each, and no row has another value than without partitions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gantrymq.errors import ConfigError
from gantrymq.tables.local import engine as local_engine
from gantrymq.tables.local.target import TableFormat
from gantrymq.tables.maintenance.options import Maintained
from gantrymq.tables.options import LandOptions
from gantrymq.tables.partitions import Partition, PartitionBy, hive_directory
from gantrymq.tables.query.landed import open_table
from store_cases import tree
from tables.landing_cases import FORMATS, Lake, Row, land, landing_of, line, put

DDL = "country STRING, n INT, price DECIMAL(10,2), is_new BOOLEAN, sold DATE, at TIMESTAMP"
ODD_TEXTS: Sequence[str | None] = (
    *(
        "DE",
        "de",
        "a/b",
        "..",
        "50%",
        "%41",
        " ",
        "x=y",
        "ä ß",
        "日本 😀",
        "null",
        "None",
        "01",
        "1",
        "\n\t\x00\x7f",
        "'\"`\\",
    ),
    *("__HIVE_DEFAULT_PARTITION__", "x" * 300, "x" * 299 + "y", "x" * 5000, "unknown", "", None),
)
ODD_VALUES: dict[str, Sequence[Any]] = {
    "country": ODD_TEXTS,
    "n": (0, -1, 2**31 - 1, -(2**31), None),
    "price": (0.0, -99999999.99, 0.01, None),
    "is_new": (True, False, None),
    "sold": ("0001-01-01", "1969-12-31", "9999-12-31", None),
    "at": ("0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.000001Z", None),
}


@pytest.fixture
def schema(tmp_path: Path) -> str:
    path = tmp_path / "orders.ddl"
    path.write_text(DDL)
    return str(path)


def options_of(schema: str, partition_by: str) -> LandOptions:
    partition = PartitionBy.parse(partition_by)
    return LandOptions(topics=("orders",), body="json", schema=schema, partition_by=partition)


def values(rows: list[Row]) -> list[str]:
    """The rows in one order, without the columns of partitions."""
    return sorted(repr({name: row[name] for name in row if not name.startswith("landed_")}) for row in rows)


def committed(lake: Lake) -> list[pa.Table]:
    """The rows of each file of the table."""
    table = lake.target.open()
    head = table.head()
    assert head is not None
    contents = table.contents(head)
    return [pa.Table.from_batches(contents.batches(file)) for file in contents.data_files()]


def assert_divided(lake: Lake, columns: Sequence[str], *, is_empty_null: bool) -> None:
    for rows in committed(lake):
        for name in columns:
            different = set(rows.column(name).to_pylist())
            assert len(different - {""} if is_empty_null and None in different else different) == 1


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    "partition_by", ["country,day", "is_new,sold,at", pytest.param("n,price", marks=pytest.mark.slow)]
)
def test_odd_values_of_partition_columns_are_those_of_table_without(
    kind: TableFormat, partition_by: str, tmp_path: Path, schema: str, rng: random.Random
) -> None:
    store = tmp_path / "broker-a" / "store"
    bodies = [line(**{name: rng.choice(some) for name, some in ODD_VALUES.items()}) for _ in range(12)]
    bodies += [line(**{name: value}) for name, some in ODD_VALUES.items() for value in some]
    put(store, bodies[::2])
    whole, lake = Lake(tmp_path / "whole", TableFormat.PARQUET), Lake(tmp_path / "lake", kind)
    options = options_of(schema, partition_by)
    _, summary = land(lake, store, options)
    assert (summary.totals.rows, summary.totals.dead) == ((len(bodies) + 1) // 2, 0)
    put(store, bodies[1::2])
    land(lake, store, LandOptions())
    land(whole, store, options_of(schema, "none"))
    expected = values(whole.rows())
    columns = PartitionBy.parse(partition_by).columns
    assert values(lake.rows()) == expected
    assert_divided(lake, columns, is_empty_null=kind is not TableFormat.ICEBERG)
    _assert_partitions(lake, columns)
    before = len(committed(lake))
    landing = landing_of(lake, store, LandOptions())
    assert not list(landing.run_pass())
    done = landing.maintain(compact=True, is_exact=True)
    assert done is not None
    assert done.compacted
    assert len(committed(lake)) < before
    assert landing.maintain(compact=True, is_exact=True) == Maintained()
    assert values(lake.rows()) == expected
    assert_divided(lake, columns, is_empty_null=kind is not TableFormat.ICEBERG)
    _assert_filters(lake, [row[columns[0]] for row in whole.rows()], columns[0])


def _assert_partitions(lake: Lake, columns: Sequence[str]) -> None:
    """The values of partitions are those of the columns: readers of Iceberg show the one in place of the other."""
    if lake.format is TableFormat.ICEBERG:
        table = lake.target.open()
        head = table.head()
        assert head is not None
        contents = table.contents(head)
        for file in contents.data_files():
            (rows,) = contents.batches(file, list(columns))
            of_file = [_as_number(rows.column(name)) for name in columns]
            assert [file.origin.file.partition[number] for number in range(len(columns))] == of_file
        return
    for row in lake.rows() if lake.format is TableFormat.DELTA else []:
        for name in columns:
            value, text = row[name], row[f"landed_{name}"]
            assert text == value if isinstance(value, str) and value else (text is None) == (value in (None, ""))


def _as_number(column: pa.Array) -> Any:
    """The first value, as a manifest has it."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())[0].as_py()
    return (column.cast(pa.int32()) if pa.types.is_date(column.type) else column)[0].as_py()


def _assert_filters(lake: Lake, expected: list[Any], name: str) -> None:
    """Values are found by a condition, with what files and partitions say of themselves."""
    root = lake.root / "orders"
    if lake.format is TableFormat.ICEBERG:
        root = next((lake.root / "lake").rglob("metadata")).parent
    with duckdb.connect() as connection:
        connection.register("landed", open_table(root))
        for value in list(dict.fromkeys(expected))[:6]:
            wanted = f"{name} = $1" if value is not None else f"{name} is null"
            query = f"select count(*) from landed where {wanted}"
            found = connection.execute(query, [value] if value is not None else []).fetchall()
            assert found == [(expected.count(value),)], value


@pytest.mark.parametrize(
    "text",
    ["", ",", "topic,", "topic,topic", "day,day", "none,topic", "none,none", "day,hour", "topic, day"],
)
def test_option_that_is_no_list_of_names_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--partition-by"):
        PartitionBy.parse(text).require_columns(pa.schema([pa.field("topic", pa.string())]))


@pytest.mark.parametrize(("body", "kind"), [("typed", TableFormat.DELTA), ("infer", TableFormat.ICEBERG)])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("keys", "keys is ARRAY<STRING>"), ("properties", "properties is MAP"), ("ratio", "ratio is DOUBLE"),
        ("list", "list is ARRAY"), ("missing", "a column of the table: broker"), ("Country", "a column of the table"),
        ("landed_day", "a column of the table"), ("origin_topic", "a column of the table"), ("a/b", "letters, digits"),
    ],
)  # fmt: skip
def test_column_that_cannot_be_partition_is_refused_before_any_change(
    body: str, kind: TableFormat, text: str, why: str, tmp_path: Path
) -> None:
    store, lake = tmp_path / "broker-a" / "store", Lake(tmp_path / "lake", kind)
    put(store, [line(country="DE", ratio=1.5, list=["a"], **{"a/b": 1})])
    schema = tmp_path / "orders.ddl"
    schema.write_text("country STRING, ratio DOUBLE, list ARRAY<STRING>, `a/b` BIGINT")
    options = options_of("infer" if body == "infer" else str(schema), text)
    lake.target.open()
    before = tree(tmp_path)
    with pytest.raises(ConfigError, match=why):
        land(lake, store, options)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("kind", FORMATS)
def test_inferred_column_divides_rows_that_lack_it(kind: TableFormat, tmp_path: Path) -> None:
    store, lake = tmp_path / "broker-a" / "store", Lake(tmp_path / "lake", kind)
    put(store, [line(id=1), line(id=2, n=1), line(id=3, n=1), line(id=4, n=2, store_timestamp_day=5, landed_n="x")])
    options = options_of("infer", "n,day")
    land(lake, store, options)
    put(store, [line(id=2**40, n=2**40)])
    land(lake, store, LandOptions())
    rows = {row["queue_offset"]: (row["id"], row["n"], row["body_landed_n"]) for row in lake.rows()}
    assert rows == {0: (1, None, None), 1: (2, 1, None), 2: (3, 1, None), 3: (4, 2, "x"), 4: (2**40, 2**40, None)}
    assert {row["body_store_timestamp_day"] for row in lake.rows()} == {5, None}
    assert sorted(len(rows) for rows in committed(lake)) == [1, 1, 1, 2]


@pytest.mark.parametrize("kind", FORMATS)
def test_commit_with_too_many_files_leaves_nothing_and_smaller_one_lands(
    kind: TableFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_engine, "MOST_FILES", 5)
    store, lake = tmp_path / "broker-a" / "store", Lake(tmp_path / "lake", kind)
    put(store, [line(id=number) for number in range(12)])
    options = options_of("infer", "msg_id")
    with pytest.raises(ConfigError, match=r"at most 5 files a commit: take a smaller --commit-rows"):
        land(lake, store, options)
    assert not lake.messages()
    assert not [name for name in tree(lake.root) if name.endswith((".parquet", ".staged")) and "/metadata/" not in name]
    land(lake, store, LandOptions(), commit_rows=5)
    assert len(lake.messages()) == len(committed(lake)) == 12


@pytest.mark.parametrize("kind", FORMATS)
def test_options_of_partition_are_remembered_and_others_refused(kind: TableFormat, tmp_path: Path) -> None:
    store, lake = tmp_path / "broker-a" / "store", Lake(tmp_path / "lake", kind)
    put(store, [line(id=1)])
    options = options_of("infer", "topic,id")
    land(lake, store, options)
    for other in ("id,topic", "topic", "day", "none"):
        with pytest.raises(ConfigError, match="topic,id, by which the table was made"):
            land(lake, store, LandOptions(partition_by=PartitionBy.parse(other)))
    assert not land(lake, store, options)[0]


@pytest.mark.parametrize("kind", FORMATS)
def test_upserted_row_moves_to_partition_of_its_new_value(kind: TableFormat, tmp_path: Path) -> None:
    store, lake = tmp_path / "broker-a" / "store", Lake(tmp_path / "lake", kind)
    put(store, [line(id=1, country="DE"), line(id=2, country="DE"), line(id=3, country="FR")])
    partition_by = PartitionBy.parse("country,id")
    options = LandOptions(topics=("orders",), body="json", schema="infer", partition_by=partition_by, upsert_by="id")
    land(lake, store, options)
    put(store, [line(id=2, country="FR"), line(id=3, country=""), line(id=3)])
    land(lake, store, LandOptions())
    assert sorted((row["id"], row["country"]) for row in lake.rows()) == [(1, "DE"), (2, "FR"), (3, None)]


def test_directory_of_partition_has_at_most_255_bytes_and_no_two_texts() -> None:
    texts = [text for text in ODD_TEXTS if text] + ["日" * 80, "%" * 80]
    directories = [hive_directory("landed_" + "n" * 100, text) for text in texts]
    assert len(set(directories)) == len(texts)
    assert all(len(directory.encode()) <= 255 and "/" not in directory for directory in directories)


def test_parquet_directories_are_read_by_hive_readers(tmp_path: Path) -> None:
    import pyarrow.dataset as ds

    texts: list[str | None] = ["a/b", "50%", "x=y", "ä ß", "01", None, "'\"`\\", "\n"]
    for number, text in enumerate(texts):
        directory = tmp_path / hive_directory("landed_a", text)
        directory.mkdir()
        pq.write_table(pa.table({"n": [number]}), directory / "rows.parquet")
    rows = ds.dataset(tmp_path, partitioning="hive").to_table().to_pylist()
    assert {row["n"]: row["landed_a"] for row in rows} == dict(enumerate(texts))
    assert dict(duckdb.sql(f"select n, landed_a from '{tmp_path}/*/*.parquet'").fetchall()) == dict(enumerate(texts))


def test_rows_are_divided_in_their_order_over_all_batches() -> None:
    names = ["topic", "queue_id"]
    batches = [
        pa.record_batch([pa.array(["b", "a", None]), pa.array([1, 1, 2], pa.int32())], names),
        pa.record_batch([pa.array(["a", "", "b"]), pa.array([1, 2, 1], pa.int32())], names),
    ]
    divided: dict[Partition, list[int]] = {}
    numbered = [
        batch.append_column("at", pa.array(range(number * 3, number * 3 + 3))) for number, batch in enumerate(batches)
    ]
    for partition, some in PartitionBy(("topic", "queue_id")).divided(numbered, None):
        divided[partition] = [at for batch in some for at in batch.column("at").to_pylist()]
    texts = {tuple(text for _, text in partition): rows for partition, rows in divided.items()}
    assert texts == {("b", "1"): [0, 5], ("a", "1"): [1, 3], (None, "2"): [2, 4]}
