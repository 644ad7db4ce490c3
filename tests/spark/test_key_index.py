"""A read of few keys goes through the index files, and finds what a read of the whole log finds."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from pipeline_cases import Damage, index_damaged
from pyspark.sql.datasource import EqualTo, In
from spark_cases import Row, expected_rows, rows_of

from gantrymq import Message
from gantrymq.errors import CorruptRecordError
from gantrymq.format.names import INDEX
from gantrymq.spark.options import ReadOptions
from gantrymq.spark.plan import key_index as key_spans
from gantrymq.spark.plan.batch import plan_batch
from gantrymq.spark.selection import RowFilter
from store_cases import KEYS, SMALL, await_dispatch, fill, kill_while_putting, numbered, open_store


@pytest.fixture(autouse=True)
def nothing_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_spans, "NEAR_BYTES", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Forty messages with a key of their own among many others; two keys have one hash, one topic is no other's."""
    with open_store(path=tmp_path / "a") as store:
        for number in range(40):
            store.put_batch(numbered(30, first=number))
            store.put(Message("orders", b"%d" % number, keys=[f"k{number}", "AaAa" if number % 2 else "BBBB"]))
            store.put(Message("invoices", b"%d" % number, keys=[f"k{number}"]))
        await_dispatch(store)
    assert len(list((tmp_path / "a" / INDEX).iterdir())) > 5
    return tmp_path / "a"


def planned_bytes(path: Path, **options: object) -> int:
    given = {"path": str(path), **{name: str(value) for name, value in options.items()}}
    return sum(piece.stop - piece.start for run in plan_batch(ReadOptions.parse(given)) for piece in run.pieces)


def those(path: Path, *keys: str, topic: str | None = None) -> list[Row]:
    return with_keys(expected_rows(path), *keys, topic=topic)


def with_keys(rows: list[Row], *keys: str, topic: str | None = None) -> list[Row]:
    return [row for row in rows if set(keys) & set(row["keys"]) and topic in (None, row["topic"])]


def test_key_filter_reads_records_named_by_index(path: Path) -> None:
    rows = expected_rows(path)
    for keys in (["k7"], ["k7", "k39", "none"], ["AaAa"], ["none"]):
        found = rows_of(path, keys=",".join(keys))
        assert found == with_keys(rows, *keys)
        assert found == rows_of(path, keys=",".join(keys), messageIndexEnable=False)
    assert rows_of(path, keys="k7", subscribe="invoices") == those(path, "k7", topic="invoices")
    everything = planned_bytes(path)
    assert planned_bytes(path, keys="k7") < everything / 50
    assert planned_bytes(path, keys="k7", subscribe="orders") < planned_bytes(path, keys="k7")
    assert planned_bytes(path, keys="k7", messageIndexEnable=False) == everything


def test_neighbouring_records_are_read_in_one_piece(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_spans, "NEAR_BYTES", 1 << 20)
    (run,) = plan_batch(ReadOptions.parse({"path": str(path), "keys": "k3,k30"}))
    assert all(one.stop == other.start for one, other in pairwise(run.pieces))
    assert planned_bytes(path) / 2 < planned_bytes(path, keys="k3,k30") < planned_bytes(path)
    assert rows_of(path, keys="k3,k30") == those(path, "k3", "k30")


@pytest.mark.parametrize("options", [{"minPartitions": 7}, {"maxRecordsPerPartition": 100}, {"tags": "none"}], ids=str)
def test_key_read_with_partition_options_returns_rows_of_key(path: Path, options: dict[str, object]) -> None:
    found = rows_of(path, keys="AaAa", **options)
    assert found == ([] if "tags" in options else those(path, "AaAa"))


def test_messages_after_end_of_index_are_found_in_log(path: Path) -> None:
    """The newest files are gone: what they answered for is read."""
    for file in sorted((path / INDEX).iterdir())[3:]:
        file.unlink()
    assert rows_of(path, keys="k1,k39") == those(path, "k1", "k39")
    shutil.rmtree(path / INDEX)
    assert rows_of(path, keys="k1,k39") == those(path, "k1", "k39")
    assert planned_bytes(path, keys="k1") == planned_bytes(path)


def test_keys_of_store_being_written_are_found(path: Path) -> None:
    with open_store(path=path) as store:
        store.put(Message("orders", b"new", keys=["k7"]))
        assert [row["body"] for row in rows_of(path, keys="k7", subscribe="orders")] == [b"7", b"new"]
        await_dispatch(store)
        store.put_batch(numbered(100))
        assert planned_bytes(path, keys="none") < planned_bytes(path) / 2


def test_keys_of_killed_store_are_found(tmp_path: Path) -> None:
    """Nobody says that the newest files are whole, so the log is read where they are."""
    kill_while_putting(tmp_path, 300, batch=10, seed=1)
    everything = expected_rows(tmp_path)
    for key in KEYS[::3]:
        assert rows_of(tmp_path, keys=key) == with_keys(everything, key)


def no_slots(store: Path, rng: random.Random) -> None:
    """Entries whose chains go elsewhere, or in circles."""
    for file in (store / INDEX).iterdir():
        raw = bytearray(file.read_bytes())
        for number in range(1, 200):
            at = 40 + 50 * 4 + number * 20 + 16
            raw[at : at + 4] = rng.choice([number, number + 3, -2]).to_bytes(4, "big", signed=True)
        file.write_bytes(raw)


def headers(store: Path, rng: random.Random) -> None:
    """Offsets at which no record begins, or in the wrong order, or counts that cannot be."""
    for number, file in enumerate(sorted((store / INDEX).iterdir())):
        raw = bytearray(file.read_bytes())
        at, size = ((16, 8), (24, 8), (36, 4))[number % 3]
        raw[at : at + size] = rng.choice([rng.randrange(1 << 20), (1 << 31) - 1, 0]).to_bytes(size, "big")
        file.write_bytes(raw)


@pytest.mark.parametrize("near_bytes", [0, 1000, 1 << 20])
@pytest.mark.parametrize(("at", "value"), [(4, 0), (0, 99), (28, 1)], ids=["magic", "size", "place"])
def test_damaged_wanted_message_is_loss(
    path: Path, at: int, value: int, near_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an error, or left out and logged, as where the log is read as a whole."""
    monkeypatch.setattr(key_spans, "NEAR_BYTES", near_bytes)
    everything = expected_rows(path)
    *_, victim = with_keys(everything[: len(everything) // 2], "AaAa")
    base = victim["phy_offset"] - victim["phy_offset"] % SMALL.mapped_file_size_commit_log
    with (path / "commitlog" / f"{base:020d}").open("r+b") as file:
        file.seek(victim["phy_offset"] - base + at)
        file.write(value.to_bytes(4, "big"))
    for key in ("AaAa", *(key for key in victim["keys"] if key != "AaAa")):
        with pytest.raises(CorruptRecordError, match=f"offset {victim['phy_offset']}: "):
            rows_of(path, keys=key)
        left = [row for row in with_keys(everything, key) if row is not victim]
        assert rows_of(path, keys=key, failOnDataLoss=False) == left


@pytest.mark.parametrize("is_gone", [False, True])
def test_record_with_keys_in_several_index_files_is_found_once(tmp_path: Path, is_gone: bool) -> None:
    """Where one of these is not believed, what the next one says of its first record is not all of it."""
    with open_store(path=tmp_path) as store:
        for number in range(300):
            keys = [f"many{one}" for one in range(500)] if number == 150 and not is_gone else [f"k{number}"]
            store.put(Message("orders", b"%d" % number, tags="paid", keys=["heavy", *keys]))
        await_dispatch(store)
    everything, whole = expected_rows(tmp_path), planned_bytes(tmp_path)
    for file in sorted((tmp_path / INDEX).iterdir()):
        raw = file.read_bytes()
        file.unlink() if is_gone else file.write_bytes(raw[:16] + (7).to_bytes(8, "big") + raw[24:])
        for key in ("heavy", "many0", "many250", "many499"):
            assert rows_of(tmp_path, keys=key) == with_keys(everything, key)
        assert planned_bytes(tmp_path, keys="none") < whole / 2
        file.write_bytes(raw)


@pytest.mark.parametrize("damage", [no_slots, headers])
def test_damaged_index_loses_nothing(path: Path, damage: Damage, rng: random.Random) -> None:
    damage(path, rng)
    everything = expected_rows(path)
    for key in ("k0", "k20", "k39", "BBBB"):
        assert rows_of(path, keys=key) == with_keys(everything, key)


def test_index_damaged_anywhere_raises_nothing(tmp_path: Path, rng: random.Random) -> None:
    with open_store(path=tmp_path) as store:
        fill(store, 300, rng)
    index_damaged(tmp_path, rng)
    everything = expected_rows(tmp_path)
    for key in KEYS[::2]:
        right = with_keys(everything, key)
        assert all(row in right for row in rows_of(tmp_path, keys=key))


def test_unusual_messages_are_found_by_key(tmp_path: Path, rng: random.Random) -> None:
    with open_store(path=tmp_path) as store:
        fill(store, 300, rng)
    everything = expected_rows(tmp_path)
    for key in KEYS:
        assert rows_of(tmp_path, keys=key) == with_keys(everything, key)
        assert planned_bytes(tmp_path, keys=key) < planned_bytes(tmp_path)


def test_keys_of_golden_stores_are_found(golden: Callable[[str], Path]) -> None:
    """An index that RocketMQ wrote, with UNIQ_KEY and tags among its entries."""
    store = golden("broker-features") / "store"
    everything = expected_rows(store)
    for key in sorted({key for row in everything for key in row["keys"]})[:5]:
        assert rows_of(store, keys=key) == with_keys(everything, key)


def test_pushed_key_filter_uses_index(path: Path) -> None:
    options = ReadOptions.parse({"path": str(path)})
    for condition, wanted in (
        (EqualTo(("keys",), ["k7", "AaAa"]), (frozenset(["k7"]), frozenset(["AaAa"]))),
        (In(("keys",), [["k7", "AaAa"], ["k8"]]), (frozenset(["k7", "k8"]),)),
    ):
        runs = plan_batch(options, [condition])
        assert {run.rows for run in runs} == {RowFilter(keys=wanted)}
        assert sum(piece.stop - piece.start for run in runs for piece in run.pieces) < planned_bytes(path) / 20
    for condition in (EqualTo(("keys",), []), In(("keys",), [["k7"], []]), In(("keys",), [["k7"], None])):
        assert plan_batch(options, [condition])[0].rows is None or not plan_batch(options, [condition])[0].rows.keys
