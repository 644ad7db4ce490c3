"""What cannot be honoured is refused with one line, and nothing is changed."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gantrymq.errors import ConfigError
from gantrymq.fs.real import RealFileSystem
from gantrymq.tables.errors import TableError
from gantrymq.tables.landing import tables_of
from gantrymq.tables.local.engine import LocalEngine
from gantrymq.tables.local.target import TableFormat, TableTarget
from gantrymq.tables.options import LandOptions
from gantrymq.tables.patience import Patience
from gantrymq.tables.sources.stores import StoreMessages
from store_cases import await_dispatch, numbered, open_store
from tables.landing_cases import Lake, land

ORDERS = LandOptions(topics=("orders",))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "broker-a" / "store"
    put(path, "orders", 5)
    return path


def put(path: Path, topic: str, count: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    with open_store(RealFileSystem(), path) as writer:
        for message in numbered(count, topic=topic):
            writer.put(message)
        await_dispatch(writer)


def _repartition(path: str) -> None:
    from deltalake import DeltaTable, write_deltalake

    rows = DeltaTable(path).to_pyarrow_table()
    write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite", partition_by=["topic"])


def _constrain(path: str) -> None:
    from deltalake import DeltaTable

    DeltaTable(path).alter.add_constraint({"few": "queue_offset < 7"})


def _retype(path: str) -> None:
    from deltalake import DeltaTable, write_deltalake

    rows = DeltaTable(path).to_pyarrow_table()
    index = rows.schema.get_field_index("generation")
    texts = rows.set_column(index, "generation", rows.column(index).cast("string"))
    write_deltalake(path, texts, mode="overwrite", schema_mode="overwrite", partition_by=["landed_day"])


@pytest.mark.parametrize(
    ("change", "why"),
    [(_repartition, "by topic"), (_constrain, "few"), (_retype, "generation is STRING and cannot become INT")],
)
def test_delta_table_with_foreign_partition_constraint_or_type_is_refused(
    change: Callable[[str], None], why: str, tmp_path: Path, store: Path
) -> None:
    """delta-rs takes a file with any value of any partition: the topic of our rows would become a day."""
    lake = Lake(tmp_path / "lake", TableFormat.DELTA)
    land(lake, store, ORDERS)
    change(lake.table)
    put(store, "orders", 3)
    with pytest.raises(TableError, match=why):
        land(lake, store, LandOptions())
    assert [(row["topic"], row["queue_offset"]) for row in lake.rows()] == [("orders", n) for n in range(5)]


def test_iceberg_table_with_foreign_partition_is_refused(tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", TableFormat.ICEBERG)
    land(lake, store, ORDERS)
    from pyiceberg.catalog.sql import SqlCatalog

    (database,) = (lake.root / "lake").glob("*.db")
    catalog = SqlCatalog("default", uri=f"sqlite:///{database}", warehouse=f"file://{lake.root / 'lake'}")
    with catalog.load_table(lake.table).update_spec() as spec:
        spec.add_identity("queue_offset")
    put(store, "orders", 3)
    with pytest.raises(TableError, match="do not fit its partitions"):
        land(lake, store, LandOptions())
    assert len(lake.rows()) == 5


def test_two_topics_of_one_table_are_refused_before_first_landing(tmp_path: Path, store: Path) -> None:
    put(store, "a-b", 2)
    put(store, "a_b", 2)
    target = TableTarget("sales.{topic}", None, str(tmp_path / "lake"))
    options = LandOptions(pattern=".*")
    with pytest.raises(ConfigError, match=r"a-b and a_b are both sales\.a_b"):
        tables_of(target, options, lambda choice: StoreMessages([str(store)], choice))
    directories = TableTarget(f"{tmp_path}/lake/{{topic}}")
    assert len(tables_of(directories, options, lambda choice: StoreMessages([str(store)], choice))) == 3


@pytest.mark.parametrize("name", ["{topic}__dead", "orders__audit/", "orders__dead"])
def test_name_of_side_table_is_refused(name: str, tmp_path: Path, store: Path) -> None:
    target = TableTarget(str(tmp_path / name))
    with pytest.raises(ConfigError, match="beside a table"):
        tables_of(target, ORDERS, lambda choice: StoreMessages([str(store)], choice))


@pytest.mark.parametrize("name", ["", "/"])
def test_table_without_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="the path or the name"):
        TableTarget(name).open()


def test_invalid_catalog_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"no database" * 100)
    with pytest.raises(TableError, match=r"catalog\.db: cannot be read as a catalog: file is not a database"):
        TableTarget("sales.orders", None, str(tmp_path)).open()


def test_error_of_unreachable_catalog_is_retryable(unused_port: int) -> None:
    settings = {"type": "rest", "uri": f"http://127.0.0.1:{unused_port}"}
    target = TableTarget("sales.orders", None, None, "lake", settings)
    with pytest.raises(TableError, match="catalog lake: cannot be opened") as raised:
        target.open()
    assert Patience().allows(raised.value)


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_refusal_of_missing_catalog_creates_none(tmp_path: Path) -> None:
    target = TableTarget("sales.orders", None, str(tmp_path / "lake"))
    with pytest.raises(TableError, match="has no catalog"):
        target.refuse_missing_catalog()
    assert not (tmp_path / "lake").exists()
    LocalEngine(target.open())
    target.refuse_missing_catalog()


@pytest.mark.parametrize(
    "options",
    [{"message": "Order"}, {"message": "Order", "body": "json", "schema": "infer"}],
)
def test_protobuf_message_name_without_file_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="--body protobuf"):
        LandOptions(**options).body_format()
