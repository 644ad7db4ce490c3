"""The engine: what a query may not do, errors in one line, landed tables, a live cluster."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from query_cases import make_store, open_views, rows_of, values

from gantrymq import Message, Producer
from gantrymq.client.pull.pull_client import PullClient
from gantrymq.client.settings import ClientConfig
from gantrymq.embedded.broker import EmbeddedBroker
from gantrymq.errors import StoreError
from gantrymq.tables.local.contents import DataFile
from gantrymq.tables.query.landed import open_table
from gantrymq.tables.query.sources import Views
from gantrymq.tables.query.statement import QueryError

DAYS = [datetime(2026, 11, day, tzinfo=UTC) for day in (1, 2, 3)]
TABLE = pa.table(
    {
        "topic": ["orders", "orders", "bills"],
        "queue_offset": pa.array([0, 1, 0], pa.int64()),
        "keys": pa.array([["a", "b"], [], None], pa.list_(pa.string())),
        "properties": pa.array([[("k", "v")], [], None], pa.map_(pa.string(), pa.string())),
        "store_timestamp": pa.array(DAYS, pa.timestamp("us", "UTC")),
        "body": [b"x", b"\xff", None],
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("engine") / "store", 40)


@pytest.fixture
def views(store: Path) -> Iterator[Views]:
    with open_views([store]) as opened:
        yield opened


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select * from order_s", "there is no topic or table order_s; the nearest names are orders"),
        ("select * from nois", "there is no topic or table nois; the nearest names are noise"),
        ("selec 1", 'syntax error at or near "selec"'),
        ("select nothing from orders", 'Referenced column "nothing" not found'),
        ("select body::int from orders", "Unimplemented type for cast"),
        ("select 1; select 2", "one statement is allowed, got 2"),
        ("", "one statement is allowed, got 0"),
        ("create table t as select 1", "only SELECT is allowed"),
        ("copy orders to 'out.csv'", "only SELECT is allowed"),
        ("set enable_external_access = true", "only SELECT is allowed"),
        ("attach 'x.db'", "only SELECT is allowed"),
        ("install httpfs", "only SELECT is allowed"),
        ("select * from 'secret.parquet'", "there is no topic or table secret.parquet"),
        ("select * from read_csv('FILE')", "disabled by configuration"),
        ("select * from read_text('FILE')", "disabled by configuration"),
        ("select * from glob('/*')", "disabled by configuration"),
        ("select * from parquet_scan('FILE')", "disabled by configuration"),
    ],
)
def test_wrong_or_forbidden_query_is_one_line(text: str, message: str, views: Views, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a\n1\n")
    with pytest.raises(QueryError) as raised:
        rows_of(views, text.replace("FILE", str(secret)))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "__scan" not in str(raised.value)


def test_variables_of_process_are_no_tables(views: Views) -> None:
    orders_frame = TABLE
    with pytest.raises(QueryError, match="there is no topic or table orders_frame"):
        rows_of(views, "select * from orders_frame")
    assert orders_frame.num_rows == 3


def test_unreadable_source_is_its_own_error(views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise StoreError("queue", "is away")

    monkeypatch.setattr("gantrymq.tables.query.store_queue.StoreGroup.records", fail)
    with pytest.raises(StoreError, match="queue: is away"):
        rows_of(views, "select body from orders")


def land(kind: str, directory: Path) -> Path:
    path = directory / "landed-orders"
    if kind == "parquet":
        path.mkdir()
        pq.write_table(TABLE.slice(0, 2), path / "part-0.parquet")
        pq.write_table(TABLE.slice(2), path / "part-1.parquet")
    elif kind == "delta":
        from deltalake import write_deltalake

        write_deltalake(path, TABLE.slice(0, 2))
        write_deltalake(path, TABLE.slice(2), mode="append")
    else:
        from pyiceberg.catalog.sql import SqlCatalog

        warehouse = directory / "warehouse"
        warehouse.mkdir()
        catalog = SqlCatalog("c", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}")
        catalog.create_namespace("n")
        table = catalog.create_table("n.landed-orders", TABLE.schema)
        table.append(TABLE.slice(0, 2))
        table.append(TABLE.slice(2))
        path = Path(table.location().removeprefix("file://"))
        # A metadata file of a commit that the catalogue does not have.
        (path / "metadata" / "99999-lost.metadata.json").write_text("{}")
    return path


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_landed_table_is_view_of_its_name(kind: str, store: Path, tmp_path: Path) -> None:
    path = land(kind, tmp_path)
    with open_views([path, store]) as views:
        assert "landed-orders" in views.names
        text = 'select topic, queue_offset, keys, body, store_timestamp from "landed-orders" order by all'
        names = ["topic", "queue_offset", "keys", "body", "store_timestamp"]
        rows = TABLE.select(names).to_pylist()
        assert rows_of(views, text) == sorted(rows, key=lambda row: (row["topic"], row["queue_offset"]))
        assert values(views, "select properties['k'] from \"landed-orders\" where list_contains(keys, 'a')") == ["v"]
        assert values(views, "select count(*) from \"landed-orders\" where store_timestamp >= '2026-11-02'") == [2]
        joined = 'select count(*) from orders join "landed-orders" l using (topic, queue_offset)'
        assert values(views, joined) == [4]


def test_landed_iceberg_table_is_read_file_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyIceberg 0.12.0: ``to_arrow_batch_reader`` has read all files when it gives the first batch."""
    from gantrymq.tables.local.iceberg_contents import IcebergContents

    opened: list[str] = []
    whole = IcebergContents.open

    def noting(contents: IcebergContents, file: DataFile) -> BinaryIO:
        opened.append(file.path)
        return whole(contents, file)

    monkeypatch.setattr(IcebergContents, "open", noting)
    batches = open_table(land("iceberg", tmp_path)).read(["topic"], None)
    first = next(batches)
    assert len(opened) == 1
    assert sorted(pa.Table.from_batches([first, *batches])["topic"].to_pylist()) == ["bills", "orders", "orders"]
    assert len(opened) == 2


def test_column_that_iceberg_file_lacks_has_value_of_its_partition(tmp_path: Path) -> None:
    """As a file that Spark's ``add_files`` takes from a Hive table."""
    from pyiceberg.catalog.memory import InMemoryCatalog
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.manifest import FileFormat
    from pyiceberg.typedef import Record

    catalog = InMemoryCatalog("c", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", pa.schema([("number", pa.int64()), ("country", pa.string())]))
    table.append(pa.table({"number": [2], "country": ["it"]}))
    with table.update_spec() as update:
        update.add_identity("country")
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for number, country in enumerate(["de", "fr"]):
            file = tmp_path / f"country={country}.parquet"
            field = pa.field("number", pa.int64(), metadata={"PARQUET:field_id": "1"})
            pq.write_table(pa.table([[number]], schema=pa.schema([field])), file)
            added = IcebergFile.from_args(
                file_path=f"file://{file}", file_format=FileFormat.PARQUET, partition=Record(country), record_count=1,
                file_size_in_bytes=file.stat().st_size,
            )  # fmt: skip
            added.spec_id = table.spec().spec_id
            append.append_data_file(added)
    with open_views([Path(table.location().removeprefix("file://"))]) as views:
        assert sorted(values(views, "select number, country from t")) == [(0, "de"), (1, "fr"), (2, "it")]
        assert values(views, "select number from t where country = 'fr'") == [1]


def test_unreadable_table_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "broken"
    (path / "_delta_log").mkdir(parents=True)
    (path / "_delta_log" / "00000000000000000000.json").write_text("no json\n")
    with open_views([path]) as views, pytest.raises(StoreError, match="is a delta table that cannot be read") as raised:
        rows_of(views, "select * from broken")
    assert "\n" not in str(raised.value)


def cluster_broker(config: ClientConfig) -> str:
    with PullClient(config) as client:
        (name,) = client.cluster().broker_addr_table
    return str(name)


def test_topics_of_live_cluster_are_views(rocketmq_session: EmbeddedBroker, rocketmq_topic: str) -> None:
    broker = rocketmq_session
    bodies = [b"%d" % number for number in range(50)]
    with Producer(broker.namesrv) as producer:
        for number, body in enumerate(bodies):
            producer.send(Message(rocketmq_topic, body, keys=[f"k{number}"], tags="A"))
    config = ClientConfig(broker.namesrv)
    with Views([f"namesrv://{broker.namesrv}"], lambda path: None, lambda address: config) as views:
        table = f'"{rocketmq_topic}"'
        assert values(views, f"select count(*) from {table}") == [50]
        assert sorted(values(views, f"select body from {table} where tags = 'A'")) == sorted(bodies)
        assert values(views, f"select body from {table} where list_contains(keys, 'k17')") == [b"17"]
        assert values(views, f"select count(*) from {table} where store_timestamp < '2020-01-01'") == [0]
        assert values(views, f"select distinct broker from {table}") == [cluster_broker(config)]
        assert views.skipped.count == 0
