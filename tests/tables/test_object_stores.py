"""Tables on an object store: an S3 server of its own, and what is refused before anything is written."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from gantrymq.errors import ConfigError
from gantrymq.tables.errors import TableError
from gantrymq.tables.local.delta import DeltaFormatTable
from gantrymq.tables.local.directory import Directory
from gantrymq.tables.local.target import TableFormat, TableTarget
from gantrymq.tables.query.sources import Views
from gantrymq.tables.state import TableState
from golden_stores import unpack
from s3_server import s3_server
from tables.landing_cases import ALL, Lake, MessageName, land


def test_store_that_overwrites_commits_is_refused_and_probe_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object store without conditional writes takes both commits of one version."""
    table = DeltaFormatTable(Directory(str(tmp_path / "orders")))
    table._require_conditional_writes(TableState().next())
    assert not list(tmp_path.rglob("*.json"))
    commit = DeltaTable.create_write_transaction

    def overwriting(self: DeltaTable, *arguments: Any, **options: Any) -> None:
        for path in tmp_path.rglob("00000000000000000001.json"):
            path.unlink()
        commit(self, *arguments, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", overwriting)
    with pytest.raises(TableError, match="ignores If-None-Match"):
        table._require_conditional_writes(TableState().next())
    assert not list(tmp_path.rglob("*.json"))


def test_uri_of_warehouse_without_catalog_and_of_query_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--catalog NAME"):
        TableTarget("sales.orders", None, "s3://lake/warehouse").open()
    with pytest.raises(ConfigError, match="in a directory"):
        Views(["s3://lake/orders"], pytest.fail, pytest.fail)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server on this machine with the bucket ``lake``, and the environment that names it."""
    with s3_server(tmp_path_factory.mktemp("s3"), "lake") as environment:
        yield environment


class Bucket:
    """One table on the server, by the command and by the libraries that know nothing of gantrymq."""

    def __init__(self, kind: TableFormat, root: Path, endpoint: str) -> None:
        self._kind = kind
        self._settings = {
            "type": "sql",
            "uri": f"sqlite:///{root / 'catalog.db'}",
            "warehouse": f"s3://lake/{root.name}",
            "s3.endpoint": endpoint,
            "s3.region": "us-east-1",
        }
        self._table = "sales.orders" if kind is TableFormat.ICEBERG else f"s3://lake/{root.name}/orders"

    def command(self, store: Path) -> list[str]:
        options = ["--topics", ".*", "--commit-rows", "400", "--partition-by", "topic,day"]
        if self._kind is TableFormat.ICEBERG:
            options += ["--catalog", "lake"]
            for key, value in self._settings.items():
                options += ["--catalog-set", f"{key}={value}"]
        return [sys.executable, "-m", "gantrymq", "table", "land", str(store), self._table, *options]

    def messages(self) -> list[MessageName]:
        names = ("topic", "queue_id", "queue_offset", "generation")
        if self._kind is TableFormat.ICEBERG:
            from pyiceberg.catalog import load_catalog

            table = load_catalog("lake", **self._settings).load_table(self._table).scan().to_arrow()
        else:
            table = DeltaTable(self._table).to_pyarrow_table()
        return sorted(zip(*(table.column(name).to_pylist() for name in names), strict=True))


@pytest.fixture(params=[TableFormat.DELTA, TableFormat.ICEBERG])
def bucket(
    request: pytest.FixtureRequest, s3: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Bucket:
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    return Bucket(request.param, tmp_path, s3["AWS_ENDPOINT_URL"])


@pytest.mark.slow
def test_landing_on_s3_after_sigkills_has_each_message_once(bucket: Bucket, tmp_path: Path, rng: random.Random) -> None:
    store = unpack("direct-mixed", tmp_path) / "store"
    whole = Lake(tmp_path / "whole", TableFormat.PARQUET)
    land(whole, store, ALL)
    for _ in range(6):
        process = subprocess.Popen(bucket.command(store), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        for _ in range(rng.randrange(3)):
            process.stdout.readline()  # of a commit
        time.sleep(rng.uniform(0.0, 0.5))
        process.kill()
        process.communicate()
    last = subprocess.run(bucket.command(store), check=False, capture_output=True, text=True)
    assert last.returncode == 0, last.stderr
    assert bucket.messages() == whole.messages()


@pytest.mark.slow
def test_one_of_two_landers_on_s3_ends_and_no_row_is_there_twice(bucket: Bucket, tmp_path: Path) -> None:
    store = unpack("direct-mixed", tmp_path) / "store"
    whole = Lake(tmp_path / "whole", TableFormat.PARQUET)
    land(whole, store, ALL)
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    landers = [subprocess.Popen(bucket.command(store), **pipes) for _ in range(2)]
    for lander, errors in [(lander, lander.communicate()[1]) for lander in landers]:
        assert lander.returncode == 0 or (lander.returncode == 3 and errors.count("\n") == 1), errors
    last = subprocess.run(bucket.command(store), check=False, capture_output=True, text=True)
    assert last.returncode == 0, last.stderr
    assert bucket.messages() == whole.messages()
