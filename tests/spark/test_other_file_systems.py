"""Stores that lie on other file systems, read through pyarrow: here a local one that goes by another name."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline_cases import index_damaged
from pyarrow import ArrowException, fs
from spark_cases import damage_unit, expected_rows, in_log_order, partitions_of, rows_of
from stream_cases import Stream, bodies

from gantrymq.clock import ManualClock
from gantrymq.errors import ConfigError, StoreError, StorePermissionError
from gantrymq.spark.options import ReadOptions
from gantrymq.spark.plan import key_index
from gantrymq.spark.plan import key_index as key_spans
from gantrymq.spark.plan.batch import plan_batch
from gantrymq.spark.plan.boundaries import starting
from gantrymq.spark.plan.remote_store import RemoteStore
from gantrymq.spark.plan.store_origin import StoreOrigin
from gantrymq.tools import locations as places
from gantrymq.tools.queue_key import QueueKey
from store_cases import KEYS, SMALL_KEYS, fill, numbered, open_store

SCHEME = "elsewhere://"
LATER_MS = 4_000_000_000_000  # than any clock of ours says


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that only pyarrow reads: nothing is opened by its path."""
    known = places._opened

    def opened(uri: str | None, path: str = "/") -> tuple[Any, str]:
        if uri is None or not uri.startswith(SCHEME):
            return known(uri, path)
        return fs.LocalFileSystem(), uri.removeprefix(SCHEME)

    monkeypatch.setattr(places, "_opened", opened)


@pytest.fixture
def path(tmp_path: Path, rng: random.Random) -> Path:
    with open_store(path=tmp_path / "broker-a") as store:
        fill(store, 400, rng)
        store.put_batch(numbered(150, topic="invoices") + numbered(30, topic="late", queue_id=2))
    return tmp_path / "broker-a"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"minPartitions": 7},
        {"maxRecordsPerPartition": 11},
        {"subscribe": "orders"},
        {"subscribe": "invoices", "startingOffsets": '{"invoices":{"0":17}}', "endingOffsets": '{"invoices":{"0":90}}'},
        {"subscribe": "late", "minPartitions": 3},
        {"startingTimestamp": 0},
        {"endingTimestamp": 0},
        {"subscribePattern": "o.*", "tags": "paid"},
    ],
    ids=str,
)
def test_rows_of_other_file_system_equal_those_of_local_store(path: Path, options: dict[str, object]) -> None:
    found = [row for part in partitions_of(f"{SCHEME}{path}", **options) for row in part]
    assert in_log_order(found) == in_log_order(rows_of(path, **options))
    if not options:
        assert in_log_order(found) == expected_rows(path)


@pytest.mark.parametrize("options", [{"maxRecordsPerPartition": 50}, {"minPartitions": 3}], ids=str)
def test_damaged_unit_at_begin_of_partition_on_other_file_system_loses_no_row(
    tmp_path: Path, options: dict[str, object]
) -> None:
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(150))
    expected = expected_rows(tmp_path)
    for number in (50, 51):
        damage_unit(tmp_path, "orders", number, expected[number]["phy_offset"] + 7)
    parts = partitions_of(f"{SCHEME}{tmp_path}", **options)
    assert [row for part in parts for row in part] == expected


@pytest.mark.parametrize("place", [1 << 33, 1 << 62])
@pytest.mark.parametrize("topic", ["orders", "other"])
def test_damaged_last_unit_is_not_taken_for_end_of_log(tmp_path: Path, topic: str, place: int) -> None:
    """It says where the log ends, and is not believed: nothing behind that is planned, and no message is lost."""
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(300) + numbered(20, topic="other"))
    expected, where = expected_rows(tmp_path), f"{SCHEME}{tmp_path}"
    damage_unit(tmp_path, topic, 299 if topic == "orders" else 19, place)
    assert planned_bytes(where) == expected[-1]["phy_offset"] + expected[-1]["size"]
    assert rows_of(where) == expected
    wanted = [row for row in expected if row["topic"] == topic]
    assert rows_of(where, subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":3}}}}') == wanted[3:]


@pytest.mark.parametrize("damaged", [0, 7, 18])
def test_damaged_last_unit_on_other_file_system_loses_no_row(tmp_path: Path, damaged: int) -> None:
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(20) + numbered(100, topic="other"))
    expected = expected_rows(tmp_path)[:20]
    damage_unit(tmp_path, "orders", damaged, None)
    assert rows_of(f"{SCHEME}{tmp_path}", subscribe="orders") == expected


def test_times_select_rows_on_other_file_system(path: Path, rng: random.Random) -> None:
    times = sorted({row["store_timestamp"].timestamp() for row in expected_rows(path)})
    for _ in range(4):
        at = int(rng.choice(times) * 1000) + rng.choice([-1, 0, 1])
        options = {"subscribe": "orders", "endingTimestamp": at}
        assert rows_of(f"{SCHEME}{path}", **options) == rows_of(path, **options)


def planned_bytes(path: str, **options: str) -> int:
    runs = plan_batch(ReadOptions.parse({"path": path, **options}))
    return sum(piece.stop - piece.start for run in runs for piece in run.pieces)


@pytest.mark.parametrize("conf", [SMALL_KEYS, {"maxHashSlotNum": 100, "maxIndexNum": 190}, {}], ids=str)
def test_keys_select_rows_on_other_file_system(
    path: Path, monkeypatch: pytest.MonkeyPatch, conf: dict[str, int], rng: random.Random
) -> None:
    """Ranges of the index files are read where a broker.conf says how these are made; else the log is."""
    monkeypatch.setattr(key_spans, "NEAR_BYTES", 0)
    (path.parent / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in conf.items()))
    where = f"{SCHEME}{path}"
    for key in [*KEYS, "none"]:
        wanted = [row for row in expected_rows(path) if key in row["keys"]]
        assert in_log_order(rows_of(where, keys=key, brokerName=path.name)) == wanted
        fewer = planned_bytes(where, keys=key) < planned_bytes(where)
        assert fewer == (conf == SMALL_KEYS)
    index_damaged(path, rng)
    for key in KEYS:
        right = [row for row in expected_rows(path) if key in row["keys"]]
        assert all(row in right for row in rows_of(where, keys=key, brokerName=path.name))


def test_key_of_many_messages_is_searched_in_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is read where to follow the index would take more requests than that."""
    (path.parent / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in SMALL_KEYS.items()))
    monkeypatch.setattr(key_index, "MAX_REMOTE_STEPS", 1)
    wanted = [row for row in expected_rows(path) if KEYS[0] in row["keys"]]
    assert in_log_order(rows_of(f"{SCHEME}{path}", keys=KEYS[0], brokerName=path.name)) == wanted


def test_globs_and_streams_work_on_other_file_system(path: Path) -> None:
    with Stream(f"{SCHEME}{path.parent}/broker-*", subscribe="invoices", startingOffsets="earliest",
                maxOffsetsPerTrigger=60) as stream:  # fmt: skip
        found = [stream.batch() for _ in range(2)]
        with open_store(path=path) as store:
            store.put_batch(numbered(20, first=150, topic="invoices"))
        found += stream.batches()
    assert [body for batch in found for body in bodies(batch)] == [b"%08d" % number for number in range(170)]


def test_timestamp_is_searched_only_in_new_messages(path: Path) -> None:
    given = {"path": f"{SCHEME}{path}", "subscribe": "late", "startingTimestamp": str(LATER_MS)}
    options = ReadOptions.parse({**given, "startingOffsetsByTimestampStrategy": "latest"}, streaming=True)
    origin = StoreOrigin(options)
    origin.extents()
    for count, now_ms in ((20, LATER_MS - 1), (7, LATER_MS)):
        with open_store(path=path, clock=ManualClock(now_ms)) as store:
            store.put_batch(numbered(count, topic="late", queue_id=2) + numbered(count, topic="late"))
    begins = {QueueKey("broker-a", "late", 0): 20, QueueKey("broker-a", "late", 2): 50}
    assert starting(options, origin, origin.extents(), streaming=True) == begins


def test_timestamp_of_missing_queue_is_offset_0(path: Path) -> None:
    store = RemoteStore(places.Location(str(path), f"{SCHEME}{path}"))
    assert store.offset_at("nowhere", 0, 0) == 0


def test_retention_on_other_file_system_is_no_loss(path: Path) -> None:
    for file in sorted((path / "commitlog").iterdir())[:2]:
        file.unlink()
    there = rows_of(f"{SCHEME}{path}", subscribe="orders")
    assert in_log_order(there) == in_log_order(rows_of(path, subscribe="orders"))


def test_unclosed_remote_store_is_refused(path: Path) -> None:
    (path / "abort").touch()
    with pytest.raises(StoreError, match="recover it, or copy it to a local disk"):
        rows_of(f"{SCHEME}{path}")


class Failing:
    """The file system of ``elsewhere``, which gives no answer about one path."""

    def __init__(self, path: Path, error: Exception) -> None:
        self._inner, self._path, self._error = fs.LocalFileSystem(), str(path), error

    def get_file_info(self, selector: fs.FileSelector) -> Any:
        return self._answer(selector.base_dir, self._inner.get_file_info, selector)

    def open_input_stream(self, path: str) -> Any:
        return self._answer(path, self._inner.open_input_stream, path)

    def open_input_file(self, path: str) -> Any:
        return self._inner.open_input_file(path)

    def _answer(self, path: str, ask: Callable[[Any], Any], what: Any) -> Any:
        if path == self._path:
            raise self._error
        return ask(what)


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, Exception], None]:
    """Lets the file system fail at a path."""

    def fail(path: Path, error: Exception) -> None:
        monkeypatch.setattr(
            places, "_opened", lambda uri, text="/": (Failing(path, error), (uri or "").removeprefix(SCHEME) or text)
        )

    return fail


PARTS = ("", "commitlog", "consumequeue", "consumequeue/orders", "consumequeue/orders/0", "config/topics.json")


@pytest.mark.parametrize("part", [*PARTS, "broker.conf", "../broker.conf"])
def test_failed_file_system_is_not_read_as_empty(
    path: Path, part: str, fail: Callable[[Path, Exception], None]
) -> None:
    fail((path / part).resolve(), OSError("AWS Error SLOW_DOWN during ListObjectsV2"))
    with pytest.raises(StoreError, match=r"cannot be (listed|read): AWS Error SLOW_DOWN"):
        rows_of(f"{SCHEME}{path}", subscribe="orders")


DENIED = (PermissionError(13, "Permission denied"), OSError("AWS Error ACCESS_DENIED during HeadObject"))


@pytest.mark.parametrize("error", DENIED, ids=str)
def test_unreadable_paths_outside_store_are_ignored(
    path: Path, fail: Callable[[Path, Exception], None], error: OSError
) -> None:
    """The directory above a store is nobody's promise, nor what else a glob matches; the store's own parts are."""
    expected = rows_of(path)
    fail(path.parent / "broker.conf", error)
    assert rows_of(f"{SCHEME}{path}") == expected
    (path.parent / "lost+found").mkdir()
    fail(path.parent / "lost+found", error)
    assert rows_of(f"{SCHEME}{path.parent}/*") == expected
    fail(path / "consumequeue", error)
    with pytest.raises(StorePermissionError, match="cannot be listed"):
        rows_of(f"{SCHEME}{path}")


def test_path_list_longer_than_file_name_limit_is_read(path: Path) -> None:
    assert rows_of(",".join([str(path)] * 300)) == rows_of(path)


def test_empty_store_on_other_file_system_has_no_rows(tmp_path: Path) -> None:
    with open_store(path=tmp_path / "empty"):
        pass
    assert rows_of(f"{SCHEME}{tmp_path}/empty") == []


def test_unknown_file_system_is_refused() -> None:
    with pytest.raises(ConfigError, match="a file system that pyarrow or fsspec knows"):
        rows_of("nobody://host/store")


def test_file_uri_is_read_as_local_path(path: Path) -> None:
    assert rows_of(f"file://{path}", subscribe="orders") == rows_of(path, subscribe="orders")


@pytest.mark.parametrize("scheme", ["s3a", "S3N", "s3"])
def test_s3a_addresses_are_read_as_s3(path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """With the options of the URI; batches, streams and globs."""
    asked: set[str] = set()

    class FileSystems:
        @staticmethod
        def from_uri(uri: str) -> tuple[Any, str]:
            asked.add(uri)
            return fs.LocalFileSystem(), uri.removeprefix("s3:/").partition("?")[0]

    monkeypatch.setattr(fs, "FileSystem", FileSystems)
    uri = f"{scheme}:/{path}?region=eu-west-1"
    expected = rows_of(path, "topic", "body")
    assert rows_of(uri, "topic", "body") == expected
    with Stream(uri, "topic", "body", startingOffsets="earliest") as stream:
        assert stream.batch() == expected
    assert asked == {f"s3:/{path}?region=eu-west-1"}


def test_pyarrow_error_outside_OSError_is_one_line(path: Path, fail: Callable[[Path, Exception], None]) -> None:
    fail(path, ArrowException("Check for support failed:\n  no token"))
    with pytest.raises(StoreError, match=r"broker-a: cannot be listed: Check for support failed: no token$"):
        rows_of(f"{SCHEME}{path}")
