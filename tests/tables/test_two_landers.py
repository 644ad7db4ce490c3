"""Of two landings in one table the slower one ends with an error, and none of its rows is in the table."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from gantrymq.errors import ConfigError
from gantrymq.tables.errors import AnotherLanderError, ForeignTableError
from gantrymq.tables.local.engine import LocalEngine
from gantrymq.tables.local.target import TableFormat
from gantrymq.tables.options import LandOptions
from gantrymq.tables.partitions import PartitionBy
from golden_stores import unpack
from store_cases import tree
from tables.landing_cases import ALL, FORMATS, Lake, land, landing_of


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return unpack("direct-propcrc", tmp_path) / "store"


def files_below(path: Path) -> set[str]:
    return {name for name in tree(path) if name.endswith((".parquet", ".staged"))}


@pytest.mark.parametrize("kind", FORMATS)
def test_frozen_lander_that_wakes_writes_nothing(kind: TableFormat, tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", kind)
    frozen = landing_of(lake, store, commit_rows=300).run_pass()
    next(frozen)  # one commit; the plan of all others is made
    land(lake, store, commit_rows=300)
    whole, files = lake.messages(), files_below(tmp_path / "lake")
    with pytest.raises(AnotherLanderError, match="another `table land`"):
        next(frozen)
    assert lake.messages() == whole
    assert len(set(whole)) == len(whole)
    assert files_below(tmp_path / "lake") == files


@pytest.mark.parametrize("kind", FORMATS)
def test_second_lander_of_new_table_ends(kind: TableFormat, tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", kind)
    first, second = (landing_of(lake, store, commit_rows=500) for _ in range(2))
    second._opened()  # it has seen that there is no table
    (begun, *_) = list(first.run_pass())
    messages = lake.messages()
    with pytest.raises((AnotherLanderError, ForeignTableError)):
        list(second.run_pass())
    assert begun.totals.rows
    assert lake.messages() == messages
    assert len(set(messages)) == len(messages)


@pytest.mark.parametrize("kind", FORMATS)
def test_lander_frozen_before_commit_of_dead_rows_loses_none(
    kind: TableFormat, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake", kind)
    schema = tmp_path / "orders.ddl"
    schema.write_text("id BIGINT")
    options = LandOptions(pattern="orders", body="json", schema=str(schema))
    frozen = landing_of(lake, store, options, commit_rows=100)
    passing = frozen.run_pass()
    assert next(passing).totals.rows == 0
    dead = len(lake.rows("__dead"))
    table = frozen._engine._table  # type: ignore[attr-defined]
    commit = table.commit

    def late(*arguments: Any) -> Any:
        LocalEngine(lake.target.open()).open()  # a lander whose source is away
        return commit(*arguments)

    monkeypatch.setattr(table, "commit", late)
    with suppress(AnotherLanderError):
        next(passing)
        dead += 100
    monkeypatch.undo()
    assert len(lake.rows("__dead")) == dead


@pytest.mark.parametrize("kind", [TableFormat.DELTA, TableFormat.ICEBERG])
def test_foreign_commit_in_between_is_kept(kind: TableFormat, tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", kind)
    landing = landing_of(lake, store, commit_rows=400).run_pass()
    next(landing)
    _foreign_commit(lake)
    assert list(landing)
    messages = lake.messages()
    assert len(set(messages)) == len(messages)
    assert land(lake, store)[1].commits == 0


def _foreign_commit(lake: Lake) -> None:
    """Compact the table, or delete one row."""
    if lake.format is TableFormat.DELTA:
        DeltaTable(lake.table).optimize.compact()
        return
    table = lake.target.open()._opened()  # type: ignore[attr-defined]
    table.transaction().set_properties(owner="another program").commit_transaction()


def test_positions_outlive_compaction_checkpoint_and_clean_up_of_delta(tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", TableFormat.DELTA)
    commits, _ = land(lake, store, commit_rows=300)
    table = DeltaTable(lake.table)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    table = DeltaTable(lake.table)
    table.optimize.compact()
    table.create_checkpoint()
    table.cleanup_metadata()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    names = {path.name for path in (Path(lake.table) / "_delta_log").glob("*.json")}
    assert f"{commits[-1].version:020d}.json" not in names
    before = lake.messages()
    assert land(lake, store)[1].commits == 0
    assert lake.messages() == before


def test_positions_outlive_expiry_of_all_but_foreign_iceberg_snapshot(tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", TableFormat.ICEBERG)
    land(lake, store, commit_rows=300)
    table = lake.target.open()._opened()  # type: ignore[attr-defined]
    table.delete("queue_offset = 0")
    newest = table.current_snapshot().snapshot_id
    others = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot.snapshot_id != newest]
    table.maintenance.expire_snapshots().by_ids(others).commit()
    assert len(table.snapshots()) == 1
    before = lake.messages()
    assert land(lake, store)[1].commits == 0
    assert lake.messages() == before


def test_table_of_other_program_is_refused_and_unchanged(tmp_path: Path, store: Path) -> None:
    delta, parquet = Lake(tmp_path / "one", TableFormat.DELTA), Lake(tmp_path / "two", TableFormat.PARQUET)
    write_deltalake(delta.table, pa.table({"topic": ["a"]}))
    Path(parquet.table).mkdir(parents=True)
    (Path(parquet.table) / "rows.parquet").write_bytes(b"PAR1")
    iceberg = Lake(tmp_path / "three", TableFormat.ICEBERG)
    catalog = iceberg.target.open()._catalog  # type: ignore[attr-defined]
    catalog.create_namespace("sales")
    catalog.create_table("sales.orders", pa.schema([("topic", pa.string())]))
    for lake in (delta, parquet, iceberg):
        before = tree(lake.root)
        with pytest.raises(ForeignTableError, match="left unchanged"):
            land(lake, store)
        assert tree(lake.root) == before


def test_directory_of_other_format_is_refused(tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", TableFormat.PARQUET)
    land(lake, store)
    with pytest.raises(ForeignTableError):
        land(Lake(tmp_path / "lake", TableFormat.DELTA), store)


@pytest.mark.parametrize("kind", FORMATS)
def test_options_are_remembered_and_other_partition_is_refused(kind: TableFormat, tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", kind)
    options = LandOptions(pattern="orders", partition_by=PartitionBy(("hour",)), body="text")
    landing = landing_of(lake, store, options, commit_rows=200).run_pass()
    next(landing)
    land(lake, store, LandOptions())
    assert {message[0] for message in lake.messages()} == {"orders"}
    schema = lake.read().schema  # type: ignore[union-attr]
    assert schema.field("body").type in (pa.string(), pa.large_string(), pa.string_view())
    with pytest.raises(ConfigError, match="partition-by"):
        land(lake, store, LandOptions(partition_by=PartitionBy(("day",))))


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_of_file_are_sorted_by_queue_and_of_one_day(kind: TableFormat, tmp_path: Path, store: Path) -> None:
    import pyarrow.parquet as pq

    lake = Lake(tmp_path / "lake", kind)
    land(lake, store, ALL)
    files = [path for path in lake.root.rglob("*.parquet") if "__" not in str(path)]
    assert files
    for file in files:
        rows = pq.ParquetFile(file).read(columns=["topic", "queue_id", "queue_offset", "store_timestamp"]).to_pylist()
        keys = [(row["topic"], row["queue_id"], row["queue_offset"]) for row in rows]
        assert all(before < after for before, after in pairwise(keys))
        assert len({row["store_timestamp"].date() for row in rows}) == 1
