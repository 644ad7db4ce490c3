"""Maintenance keeps each row once: compaction, the TTL, expiry, also with kills and other programs in between."""

from __future__ import annotations

import json
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from gantrymq import Message
from gantrymq.clock import ManualClock
from gantrymq.fs.real import RealFileSystem
from gantrymq.tables.errors import AnotherLanderError, TableError
from gantrymq.tables.local.engine import LocalEngine
from gantrymq.tables.local.target import TableFormat
from gantrymq.tables.maintenance.options import Maintained
from gantrymq.tables.maintenance.rewriting import Rewriting
from gantrymq.tables.options import LandOptions
from gantrymq.tables.partitions import PartitionBy
from golden_stores import unpack
from store_cases import await_dispatch, numbered, open_store
from tables.landing_cases import ALL, FORMATS, Lake, land, landing_of

DAY_MS = 86_400_000
LONG_AGO_S = 8 * 86_400
_ROW_1 = "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg0rr91"  # a Roaring bitmap of the number 1


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """40 messages of two queues, stored now."""
    return stored(tmp_path / "broker-a" / "store", [0])


def stored(path: Path, ages_days: list[float], clock: ManualClock | None = None) -> Path:
    """40 messages of each age, in a store."""
    clock = clock or ManualClock()
    now_ms = time.time_ns() // 1_000_000
    path.mkdir(parents=True, exist_ok=True)
    with open_store(RealFileSystem(), path, clock=clock) as writer:
        for age_days in ages_days:
            clock.advance(now_ms - int(age_days * DAY_MS) - clock.now_ms())
            for message in [*numbered(20, queue_id=1), *numbered(20)]:
                writer.put(message)
        await_dispatch(writer)
    return path


def maintained(
    lake: Lake, store: Path, options: LandOptions = ALL, *, compact: bool = False, is_exact: bool = True
) -> Maintained:
    """What a landing with maintenance does; the messages must have landed."""
    landing = landing_of(lake, store, options)
    assert not list(landing.run_pass())
    done = landing.maintain(compact=compact, is_exact=is_exact)
    assert done is not None
    return done


def rows_of(lake: Lake, suffix: str = "") -> list[str]:
    """The rows in any order, with all columns."""
    return sorted(map(repr, lake.rows(suffix)))


def files_of(lake: Lake) -> int:
    return lake.target.open().count_files()


def age(root: Path, seconds: int = LONG_AGO_S) -> None:
    """Make all files below a directory older."""
    then = time.time() - seconds
    for path in root.rglob("*"):
        if path.is_file() and path.suffix != ".db":
            os.utime(path, (then, then))


@pytest.mark.parametrize("kind", FORMATS)
def test_compaction_keeps_rows_positions_and_order(kind: TableFormat, tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", kind)
    _, summary = land(lake, store, commit_rows=10)
    before, files = rows_of(lake), files_of(lake)
    done = maintained(lake, store, compact=True)
    assert files == 4
    assert (done.compacted, done.into) == (files, files_of(lake))
    assert files_of(lake) == 1
    assert rows_of(lake) == before
    landing = landing_of(lake, store)
    assert not list(landing.run_pass())
    assert landing.summary.positions == summary.positions
    again = landing.maintain(compact=True, is_exact=True)
    assert again == Maintained()
    (file,) = _live_files(lake)
    rows = pq.ParquetFile(file).read(columns=["topic", "queue_id", "queue_offset"]).to_pylist()
    keys = [tuple(row.values()) for row in rows]
    assert all(before < after for before, after in pairwise(keys))


def _live_files(lake: Lake) -> list[Path]:
    table = lake.target.open()
    head = table.head()
    assert head is not None
    root = Path(lake.table) if lake.format is not TableFormat.ICEBERG else Path("/")
    return [root / str(file.path).removeprefix("file://") for file in table.contents(head).data_files()]


@pytest.mark.parametrize("kind", FORMATS)
def test_ttl_removes_old_rows_and_lands_none(kind: TableFormat, tmp_path: Path) -> None:
    store = stored(tmp_path / "broker-a" / "store", [40, 31.5, 30.01, 29.99, 1])
    lake = Lake(tmp_path / "lake", kind)
    land(lake, store, commit_rows=90)
    assert len(lake.messages()) == 200
    done = maintained(lake, store, LandOptions(ttl_s=30 * 86_400.0))
    assert done.expired_rows == 120
    assert [message[2] for message in lake.messages()] == [*range(60, 100), *range(60, 100)]
    assert count_rows(lake) == 80
    assert maintained(lake, store, LandOptions()) == Maintained()  # the table remembers the TTL
    fresh = Lake(tmp_path / "fresh", kind)
    _, summary = land(fresh, store, LandOptions(pattern=".*", ttl_s=30 * 86_400.0))
    assert summary.totals.rows == 80
    assert fresh.messages() == lake.messages()
    assert (
        land(fresh, store)[1].positions
        == land(lake, store)[1].positions
        == {"broker-a": {"orders": {"0": 100, "1": 100}}}
    )


@pytest.mark.parametrize("kind", FORMATS)
def test_ttl_of_table_without_partitions_removes_rows_from_files(kind: TableFormat, tmp_path: Path) -> None:
    store = stored(tmp_path / "broker-a" / "store", [40, 1])
    lake = Lake(tmp_path / "lake", kind)
    land(lake, store, LandOptions(pattern=".*", partition_by=PartitionBy()))
    assert files_of(lake) == 1
    assert maintained(lake, store, LandOptions(ttl_s=30 * 86_400.0)).expired_rows == 40
    assert {message[2] for message in lake.messages()} == set(range(20, 40))


@pytest.mark.parametrize("kind", FORMATS)
def test_ttl_removes_dead_rows_and_keeps_account(kind: TableFormat, tmp_path: Path) -> None:
    folder = unpack("bad-crc", tmp_path)
    lake = Lake(tmp_path / "lake", kind)
    _, summary = land(lake, folder / "store", LandOptions(pattern=".*", body="text"), 450)
    account = rows_of(lake, "__audit")
    assert summary.totals.dead
    assert account
    done = maintained(lake, folder / "store", LandOptions(ttl_s=1.0), compact=True)
    assert done.expired_rows == summary.totals.rows + summary.totals.dead
    assert (count_rows(lake), count_rows(lake, "__dead")) == (0, 0)
    assert lake.rows() == lake.rows("__dead") == []
    assert rows_of(lake, "__audit") == account


def count_rows(lake: Lake, suffix: str = "") -> int:
    return LocalEngine(lake.target.open()).count_rows(suffix)


@pytest.mark.parametrize("kind", FORMATS)
def test_ttl_is_remembered_without_new_message_until_reset(kind: TableFormat, tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", kind)
    land(lake, store)
    maintained(lake, store, LandOptions(ttl_s=86_400.0, expire_s=3_600.0))
    head = lake.target.open().head()
    assert head is not None
    assert (head.state.options["ttl"], head.state.options["expire"]) == (86_400, 3_600)
    maintained(lake, store, LandOptions(ttl_s=0.0, expire_s=0.0))
    landing = landing_of(lake, store)
    assert not list(landing.run_pass())
    assert landing.maintain(compact=False, is_exact=True) is None
    assert len(lake.messages()) == 40


@pytest.mark.parametrize("kind", [TableFormat.DELTA, TableFormat.ICEBERG])
def test_expiry_removes_old_versions_and_orphans_and_keeps_rest(kind: TableFormat, tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", kind)
    land(lake, store, commit_rows=10)
    before, live = rows_of(lake), _live_files(lake)
    orphan = live[0].with_name(f"part-00000009-{'0' * 32}.parquet")
    orphan.write_bytes(b"PAR1")
    assert maintained(lake, store, compact=True).removed_files == 0  # all are new
    age(lake.root)
    if kind is TableFormat.ICEBERG:
        assert maintained(lake, store, LandOptions(expire_s=3_600.0)).removed_files == 1  # snapshots are new
    done = maintained(lake, store, LandOptions(expire_s=0.001 if kind is TableFormat.ICEBERG else 3_600.0))
    assert not orphan.exists()
    assert not any(path.exists() for path in live)
    assert done.removed_files >= 4
    assert done.freed_bytes > 4 * 1_000
    assert rows_of(lake) == before
    assert land(lake, store)[1].commits == 0
    age(lake.root)
    assert maintained(lake, store).removed_files <= 3  # metadata of the last version
    assert maintained(lake, store) == Maintained()


def test_expiry_of_delta_keeps_versions_and_removals_of_span(tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", TableFormat.DELTA)
    land(lake, store, commit_rows=10)
    before, version = rows_of(lake), DeltaTable(lake.table).version()
    age(Path(lake.table))
    maintained(lake, store, compact=True)  # removes files that were written long ago
    maintained(lake, store, LandOptions(expire_s=3_600.0))
    old = DeltaTable(lake.table, version=version).to_pyarrow_table().to_pylist(maps_as_pydicts="strict")
    assert sorted(map(repr, old)) == before


def test_expiry_of_delta_removes_log_before_checkpoint(tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", TableFormat.DELTA)
    land(lake, store, commit_rows=10)
    DeltaTable(lake.table).create_checkpoint()
    version = DeltaTable(lake.table).version()
    before = rows_of(lake)
    age(Path(lake.table))
    maintained(lake, store, LandOptions(expire_s=3_600.0))
    names = sorted(path.name for path in (Path(lake.table) / "_delta_log").glob("*.json"))
    assert names[0] == f"{version:020d}.json"
    assert rows_of(lake) == before
    assert land(lake, store)[1].commits == 0


@pytest.mark.parametrize("kind", FORMATS)
def test_lander_that_began_before_maintenance_ends_and_loses_nothing(
    kind: TableFormat, tmp_path: Path, store: Path
) -> None:
    lake = Lake(tmp_path / "lake", kind)
    frozen = landing_of(lake, store, commit_rows=10)
    commits = frozen.run_pass()
    next(commits)
    next(commits)
    other = landing_of(lake, store)
    other._opened()
    other.maintain(compact=True, is_exact=True)
    with pytest.raises(AnotherLanderError, match="another `table land`"):
        next(commits)
    with pytest.raises(AnotherLanderError):
        frozen.maintain(compact=True, is_exact=True)
    assert land(lake, store)[1].totals.rows == 20
    messages = lake.messages()
    assert len(messages) == len(set(messages)) == 40


@pytest.mark.parametrize("kind", [TableFormat.DELTA, TableFormat.ICEBERG])
def test_foreign_commit_while_files_are_rewritten_is_kept(
    kind: TableFormat, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake", kind)
    land(lake, store, commit_rows=10)
    rewrite, deleted = Rewriting.rewrite, []

    def with_a_deletion(*arguments: Any) -> None:
        rewrite(*arguments)
        if not deleted:
            deleted.append(delete_first(lake))

    monkeypatch.setattr(Rewriting, "rewrite", with_a_deletion)
    maintained(lake, store, compact=True)
    assert deleted
    assert files_of(lake) == 1
    assert len(lake.messages()) == 38
    assert not [message for message in lake.messages() if message[2] == 0]


def delete_first(lake: Lake) -> bool:
    """Delete the first message of each queue, as another program."""
    if lake.format is TableFormat.DELTA:
        DeltaTable(lake.table).delete("queue_offset = 0")
    else:
        lake.target.open()._opened().delete("queue_offset = 0")  # type: ignore[attr-defined]
    return True


@pytest.mark.parametrize("kind", FORMATS)
def test_repeated_run_with_enough_files_compacts(kind: TableFormat, tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", kind)
    land(lake, store, LandOptions(pattern=".*", partition_by=PartitionBy()), commit_rows=3)
    assert files_of(lake) == 14
    assert maintained(lake, store, compact=True, is_exact=False) == Maintained()
    with open_store(RealFileSystem(), store) as writer:
        for message in numbered(2):
            writer.put(message)
        await_dispatch(writer)
    land(lake, store, commit_rows=1)
    done = maintained(lake, store, compact=True, is_exact=False)
    assert (done.compacted, done.into) == (16, 1)
    assert len(set(lake.messages())) == len(lake.messages()) == 42


@pytest.mark.parametrize("kind", FORMATS)
def test_compaction_of_typed_bodies_keeps_nested_values(kind: TableFormat, tmp_path: Path) -> None:
    lake, store = Lake(tmp_path / "lake", kind), tmp_path / "broker-a" / "store"
    store.mkdir(parents=True)
    options = LandOptions(pattern=".*", body="json", schema="infer")
    for number, body in enumerate(
        (b'{"a":{"b":[1,2]},"c":"x"}', b'{"a":{"b":[],"d":{"e":2.5}},"f":[{"g":true}]}', b"{}")
    ):
        with open_store(RealFileSystem(), store) as writer:
            writer.put(Message("orders", body, keys=[str(number)]))
            writer.put(Message("orders", body, tags="paid"))
            await_dispatch(writer)
        land(lake, store, options)
    before = rows_of(lake)
    assert files_of(lake) == 3
    done = maintained(lake, store, LandOptions(), compact=True)
    assert (done.compacted, done.into) == ((2, 1) if kind is TableFormat.PARQUET else (3, 1))
    after = rows_of(lake)
    if kind is TableFormat.ICEBERG:  # PyIceberg reads null lists of structs as empty lists
        (file,) = _live_files(lake)
        columns = lake.rows()[0].keys()
        rows = pq.ParquetFile(file).read().select(columns).to_pylist(maps_as_pydicts="strict")
        after = [text.replace("'f': []", "'f': None") for text in sorted(map(repr, rows))]
        before = [text.replace("'f': []", "'f': None") for text in before]
        assert [row["f"] for row in rows if row["a"] is None] == [None, None]
    assert after == before


def test_files_with_deletion_vectors_are_not_rewritten(tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", TableFormat.DELTA)
    land(lake, store, commit_rows=10)
    live = len(_live_files(lake))
    mark_a_row_as_deleted(Path(lake.table))
    assert count_marked(lake) == 1
    done = maintained(lake, store, compact=True)
    assert (done.compacted, done.into) == (live - 1, 1)
    assert count_marked(lake) == 1
    files = files_of(lake)
    with pytest.raises(TableError, match="deletion vectors"):
        maintained(lake, store, LandOptions(ttl_s=0.001))
    assert files_of(lake) == files


def mark_a_row_as_deleted(table: Path) -> None:
    """Commit a deletion vector of row 1, as Spark's DELETE does; delta-rs writes none."""
    log = sorted((table / "_delta_log").glob("*.json"))
    (add,) = [json.loads(line)["add"] for line in log[-1].read_text().splitlines() if '"add"' in line]
    vector = {"storageType": "i", "pathOrInlineDv": _ROW_1, "sizeInBytes": 34, "cardinality": 1}
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}},
        {"add": {**add, "deletionVector": vector}},
    ]
    newest = table / "_delta_log" / f"{len(log):020d}.json"
    newest.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def count_marked(lake: Lake) -> int:
    table = lake.target.open()
    head = table.head()
    assert head is not None
    return sum(not file.is_whole for file in table.contents(head).data_files())


@pytest.mark.parametrize("kind", FORMATS)
def test_repeated_run_rewrites_file_with_late_old_rows(kind: TableFormat, tmp_path: Path) -> None:
    store = stored(tmp_path / "broker-a" / "store", [10.2, 1])
    lake = Lake(tmp_path / "lake", kind)
    land(lake, store, LandOptions(pattern=".*", partition_by=PartitionBy()))
    late = LandOptions(ttl_s=10 * 86_400.0)
    assert maintained(lake, store, late, is_exact=False).expired_rows == 0  # late by 0.2 of 10 days
    assert maintained(lake, store, LandOptions(ttl_s=9.5 * 86_400), is_exact=False).expired_rows == 40
    assert len(lake.messages()) == 40
