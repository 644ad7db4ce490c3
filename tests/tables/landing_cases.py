"""Stores to land, and what a table has after it, read by libraries that know nothing of gantrymq."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.tables.landing import DEFAULT_COMMIT_ROWS, Commit, Landing, Summary
from gantrymq.tables.local.engine import LocalEngine
from gantrymq.tables.local.target import TableFormat, TableTarget
from gantrymq.tables.options import LandOptions
from gantrymq.tables.sources.stores import StoreMessages
from store_cases import await_dispatch, open_store

FORMATS = tuple(TableFormat)
ALL = LandOptions(pattern=".*")
Row = dict[str, Any]
MessageName = tuple[str, int, int, int]


@dataclass(frozen=True)
class Lake:
    """One table of a format below a directory, and the ways to read it."""

    root: Path
    format: TableFormat

    @property
    def table(self) -> str:
        return "sales.orders" if self.format is TableFormat.ICEBERG else str(self.root / "orders")

    @property
    def target(self) -> TableTarget:
        warehouse = str(self.root / "lake") if self.format is TableFormat.ICEBERG else None
        return TableTarget(self.table, self.format, warehouse)

    @property
    def arguments(self) -> list[str]:
        """The table as arguments of the command."""
        warehouse = ["--warehouse", str(self.root / "lake")] if self.format is TableFormat.ICEBERG else []
        return [self.table, "--format", self.format.value, *warehouse]

    def read(self, suffix: str = "") -> pa.Table | None:
        """The rows of the table, or of the one beside it; None if it does not exist."""
        name = f"{self.table}{suffix}"
        if self.format is TableFormat.DELTA:
            from deltalake import DeltaTable

            return DeltaTable(name).to_pyarrow_table() if DeltaTable.is_deltatable(name) else None
        if self.format is TableFormat.ICEBERG:
            from pyiceberg.catalog import load_catalog

            (database,) = (self.root / "lake").glob("*.db")
            settings = {"type": "sql", "uri": f"sqlite:///{database}", "warehouse": f"file://{self.root / 'lake'}"}
            catalog = load_catalog("default", **settings)
            return catalog.load_table(name).scan().to_arrow() if catalog.table_exists(name) else None
        files = sorted(Path(name).rglob("*.parquet"))
        if not files:
            return None
        return pa.concat_tables([pq.ParquetFile(file).read() for file in files], promote_options="permissive")

    def rows(self, suffix: str = "") -> list[Row]:
        table = self.read(suffix)
        return [] if table is None else table.to_pylist(maps_as_pydicts="strict")

    def messages(self) -> list[MessageName]:
        """The message of each row, sorted."""
        table = self.read()
        if table is None:
            return []
        names = ("topic", "queue_id", "queue_offset", "generation")
        return sorted(zip(*(table.column(name).to_pylist() for name in names), strict=True))

    def audited(self) -> list[tuple[str, int, int]]:
        """Each missing message of the account: topic, queue, offset."""
        return sorted(
            (row["topic"], row["queue_id"], offset)
            for row in self.rows("__audit")
            if row["topic"] is not None and "generation" not in row["reason"] and "another record" not in row["reason"]
            for offset in range(row["from_offset"], row["to_offset"] + 1)
        )


def land(
    lake: Lake,
    stores: Sequence[Path] | Path,
    options: LandOptions = ALL,
    commit_rows: int = DEFAULT_COMMIT_ROWS,
) -> tuple[list[Commit], Summary]:
    """One landing."""
    landing = landing_of(lake, stores, options, commit_rows)
    return list(landing.run_pass()), landing.summary


def landing_of(
    lake: Lake,
    stores: Sequence[Path] | Path,
    options: LandOptions = ALL,
    commit_rows: int = DEFAULT_COMMIT_ROWS,
) -> Landing:
    """A landing that has not begun."""
    paths = [str(path) for path in ([stores] if isinstance(stores, Path) else stores)]
    return Landing(LocalEngine(lake.target.open()), lambda choice: StoreMessages(paths, choice), options, commit_rows)


def by_java(folder: Path) -> dict[tuple[str, int, int], Row]:
    """What the real RocketMQ reads from a golden store, by topic, queue and offset."""
    return {(row["topic"], row["queueId"], row["queueOffset"]): row for row in _messages(folder)}


def _messages(folder: Path) -> Iterator[Row]:
    for line in (folder / "expected.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["kind"] == "message":
            yield row


def put(path: Path, bodies: list[bytes]) -> None:
    """Add messages of the topic orders to a store."""
    path.mkdir(parents=True, exist_ok=True)
    with open_store(RealFileSystem(), path) as store:
        for body in bodies:
            message = Message("orders", body, keys=("k1", "k2"), tags="paid")
            assert store.put(message).status is PutMessageStatus.PUT_OK
        await_dispatch(store)


def line(**fields: Any) -> bytes:
    """A JSON body."""
    return json.dumps(fields).encode()
