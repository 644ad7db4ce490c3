"""An executor or a later look that finds another log than the planned one: an error whatever failOnDataLoss says."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from spark_cases import Row, expected_rows, fields, rows_of
from stream_cases import Stream

from gantrymq.errors import NotAStoreError, StoreError
from gantrymq.format.names import offset_name
from gantrymq.spark import RocketMQDataSource
from gantrymq.spark.data_loss import DataLossError
from gantrymq.spark.plan.store_view import StoreView
from gantrymq.tools import locations as places
from gantrymq.tools.locations import Location, NamedStore
from store_cases import SMALL, numbered, open_store

FILE_BYTES = SMALL.mapped_file_size_commit_log
SCHEME = "elsewhere://"
Read = Callable[[], list[Row]]


def make_store(path: Path, count: int = 600, topic: str = "orders") -> None:
    with open_store(path=path) as store:
        store.put_batch(numbered(count, topic=topic))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Several log files."""
    make_store(tmp_path / "broker-a")
    assert len(list((tmp_path / "broker-a" / "commitlog").iterdir())) > 3
    return tmp_path / "broker-a"


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that only pyarrow reads."""
    known = places._opened

    def opened(uri: str | None, path: str = "/") -> tuple[Any, str]:
        if uri is None or not uri.startswith(SCHEME):
            return known(uri, path)
        return fs.LocalFileSystem(), uri.removeprefix(SCHEME)

    monkeypatch.setattr(places, "_opened", opened)


def planned(path: Path | str, **options: str) -> Read:
    """The rows of a lenient batch that is planned now and read, as executors do it, when it is called."""
    reader = RocketMQDataSource({"path": str(path), "failOnDataLoss": "false", **options}).reader(fields())
    parts = reader.partitions()
    return lambda: [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def log_file(store: Path, number: int) -> Path:
    return sorted((store / "commitlog").iterdir())[number]


def empty_mount(store: Path) -> None:
    shutil.rmtree(store)
    store.mkdir()


def only_an_empty_log(store: Path) -> None:
    shutil.rmtree(store / "commitlog")
    (store / "commitlog").mkdir()


def swap(store: Path, make: Callable[[Path], None]) -> None:
    shutil.rmtree(store)
    make(store)


def as_a_file(store: Path) -> None:
    shutil.rmtree(store)
    store.write_bytes(b"")


def shorten(store: Path) -> None:
    os.truncate(log_file(store, 1), 100)


NOT_MOUNTED = {
    "no store": shutil.rmtree,
    "an empty mount": empty_mount,
    "a file in its place": as_a_file,
    "no log": lambda store: shutil.rmtree(store / "commitlog"),
    "an empty log": only_an_empty_log,
}
NOT_RETENTION = {
    "a file gone in the middle": lambda store: log_file(store, 1).unlink(),
    "the last file gone": lambda store: log_file(store, -1).unlink(),
    "a file that was cut": shorten,
    "another store": lambda store: swap(store, lambda path: make_store(path, topic="others")),
    "a smaller store": lambda store: swap(store, lambda path: make_store(path, 3)),
    "an empty store": lambda store: swap(store, lambda path: make_store(path, 0)),
}


@pytest.mark.parametrize("harm", NOT_MOUNTED.values(), ids=NOT_MOUNTED)
@pytest.mark.parametrize("scheme", ["", SCHEME], ids=["local", "remote"])
@pytest.mark.usefixtures("elsewhere")
def test_executor_without_store_raises_and_names_host(store: Path, harm: Callable[[Path], None], scheme: str) -> None:
    read = planned(f"{scheme}{store}")
    assert len(read()) == 600
    harm(store)
    with pytest.raises(StoreError, match=f"on host {socket.gethostname()} is missing or has no log file"):
        read()


@pytest.mark.parametrize("harm", NOT_RETENTION.values(), ids=NOT_RETENTION)
@pytest.mark.parametrize("scheme", ["", SCHEME], ids=["local", "remote"])
@pytest.mark.parametrize("most", ["600", "50"], ids=["one run", "many runs"])
@pytest.mark.usefixtures("elsewhere")
def test_executor_with_other_log_raises(store: Path, harm: Callable[[Path], None], scheme: str, most: str) -> None:
    read = planned(f"{scheme}{store}", maxRecordsPerPartition=most)
    harm(store)
    with pytest.raises(StoreError, match=r"that the query was planned on|did not delete it|was longer|is missing"):
        read()


def test_later_log_of_other_store_raises(store: Path) -> None:
    """Its first file is behind the planned one, as after retention, but it does not end as the planned log did."""
    read = planned(store)
    make_store(store.parent / "other", 2000, topic="others")
    shutil.rmtree(store)
    (store.parent / "other").rename(store)
    log_file(store, 0).unlink()
    with pytest.raises(StoreError, match="not the file that the query was planned on"):
        read()


def test_retention_during_query_is_data_loss(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    left = [row["queue_offset"] for row in expected_rows(store) if row["phy_offset"] >= FILE_BYTES]
    read = planned(store)
    log_file(store, 0).unlink()
    assert [row["queue_offset"] for row in read()] == left
    assert f"{offset_name(0)}: the file went away" in caplog.text


def test_unreadable_file_on_executor_raises(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, opened = planned(store), os.open

    def refuses(path: str, *how: Any, **more: Any) -> int:
        if str(path).endswith(offset_name(FILE_BYTES)):
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, *how, **more)

    monkeypatch.setattr(os, "open", refuses)
    with pytest.raises(StoreError, match="cannot be opened: Permission denied"):
        read()


def test_bad_sector_loses_only_its_messages_and_is_named(
    store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = expected_rows(store)
    bad = range(FILE_BYTES + 4096, FILE_BYTES + 8192)
    read, preadv = planned(store), os.preadv

    def fails(fd: int, buffers: Any, position: int) -> int:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(offset_name(FILE_BYTES)):
            at = FILE_BYTES + position
            if at in bad:
                raise OSError(errno.EIO, "Input/output error")
            if at < bad.start:
                buffers = [buffers[0][: bad.start - at]]
        return preadv(fd, buffers, position)

    monkeypatch.setattr(os, "preadv", fails)
    touched = [row for row in rows if row["phy_offset"] < bad.stop and row["phy_offset"] + row["size"] > bad.start]
    assert len(touched) > 1
    assert [row["phy_offset"] for row in read()] == [row["phy_offset"] for row in rows if row not in touched]
    assert f"{offset_name(FILE_BYTES)}: cannot be read at 4096: Input/output error" in caplog.text
    with pytest.raises(StoreError, match="cannot be read at 4096: Input/output error"):
        rows_of(store)


@pytest.mark.parametrize("scheme", ["", SCHEME], ids=["local", "remote"])
@pytest.mark.usefixtures("elsewhere")
def test_missing_log_beside_queues_raises_on_driver(store: Path, scheme: str) -> None:
    only_an_empty_log(store)
    with pytest.raises(StoreError, match=r"commitlog.*is missing or has no log file.*mount the disk"):
        rows_of(f"{scheme}{store}", failOnDataLoss=False)
    (store / "checkpoint").unlink()
    with pytest.raises(StoreError, match="consumequeue/orders/0 holds units"):
        rows_of(f"{scheme}{store}", failOnDataLoss=False)


@pytest.mark.usefixtures("elsewhere")
def test_remote_store_without_queues_raises(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    with pytest.raises(StoreError, match="has no queue, although the log has messages"):
        rows_of(f"{SCHEME}{store}", failOnDataLoss=False)


def test_short_file_at_planning_is_data_loss_naming_file_and_offsets(store: Path) -> None:
    file, losses = log_file(store, 1), list[str]()
    with StoreView(NamedStore("broker-a", Location(str(store)))) as view:
        os.truncate(file, 1000)
        pieces = view.pieces(0, view.end, losses)
        assert [piece.stop - piece.start for piece in pieces[:2]] == [FILE_BYTES, 1000]
        assert losses == [
            f"{file} ends at 1000: the records at physical offsets {FILE_BYTES + 1000} to {2 * FILE_BYTES - 1} are "
            "missing"
        ]


def test_path_of_file_is_refused_as_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotAStoreError, match="is a file, not the directory of a store"):
        rows_of(tmp_path / "file")


@pytest.mark.parametrize("scheme", ["", SCHEME], ids=["local", "remote"])
@pytest.mark.usefixtures("elsewhere")
def test_messages_whose_queue_is_missing_are_named(
    tmp_path: Path, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(20) + numbered(10, topic="lost", queue_id=3))
    shutil.rmtree(tmp_path / "consumequeue" / "lost")
    rows = rows_of(f"{scheme}{tmp_path}")
    assert len(rows) == 30 or "topic lost, queue 3" in caplog.text
    caplog.clear()
    rows_of(f"{scheme}{tmp_path}", subscribe="orders")
    assert "topic lost" not in caplog.text


ENDS = {
    "last file gone": lambda store: log_file(store, -1).unlink(),
    "last two files gone": lambda store: [log_file(store, -1).unlink() for _ in range(2)],
    "last file cut": lambda store: os.truncate(log_file(store, -1), 300),
    "last file empty": lambda store: os.truncate(log_file(store, -1), 0),
    "last file zeroed": lambda store: log_file(store, -1).write_bytes(bytes(FILE_BYTES)),
}


@pytest.mark.parametrize("harm", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("options", [{}, {"subscribe": "orders"}], ids=["all", "a topic"])
def test_log_ending_before_its_queues_is_data_loss(
    store: Path, harm: Callable[[Path], None], options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    harm(store)
    with pytest.raises(DataLossError, match=r"queue 0: the messages at offsets \d+ to 599 are missing: the log in"):
        rows_of(store, **options)
    found = {row["queue_offset"] for row in rows_of(store, failOnDataLoss=False, **options)}
    assert found == set(range(len(found)))
    assert f"the messages at offsets {len(found)} to 599 are missing" in caplog.text
    caplog.clear()
    (store / "abort").touch()  # after a crash a recovery cuts such units, which is as usual
    assert {row["queue_offset"] for row in rows_of(store, **options)} == found
    assert (
        f"after a crash, continuing after: topic orders, broker broker-a, queue 0: the messages at offsets {len(found)}"
        in (caplog.text)
    )


@pytest.mark.usefixtures("elsewhere")
def test_remote_log_ending_before_its_queues_is_data_loss(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    log_file(store, -1).unlink()
    with pytest.raises(DataLossError, match=r"queue 0: the messages at offsets \d+ to 599 are missing: the log in"):
        rows_of(f"{SCHEME}{store}")
    found = {row["queue_offset"] for row in rows_of(f"{SCHEME}{store}", failOnDataLoss=False)}
    assert f"the messages at offsets {len(found)} to 599 are missing" in caplog.text


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("scheme", ["", SCHEME], ids=["local", "remote"])
@pytest.mark.usefixtures("elsewhere")
def test_batch_over_whole_queues_opens_no_queue_file(store: Path, number: int, scheme: str) -> None:
    make_store(store, 50, topic="others")  # behind them in the log
    sorted((store / "consumequeue" / "orders" / "0").iterdir())[number].unlink()
    rows = rows_of(f"{scheme}{store}", subscribe="orders", failOnDataLoss=False)
    assert [row["queue_offset"] for row in rows] == list(range(600))


def test_lenient_read_logs_range_of_every_skipped_record(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copy(log_file(store, 2), log_file(store, 1))
    raw = bytearray(log_file(store, 3).read_bytes())
    raw[:5000] = bytes(5000)
    log_file(store, 3).write_bytes(raw)
    rows_of(store, failOnDataLoss=False)
    assert f"no readable record at offset {FILE_BYTES}: it names another physical offset; so do" in caplog.text
    assert f"at offset {3 * FILE_BYTES}: zeros; the physical offsets {3 * FILE_BYTES} to 5" in caplog.text


@pytest.mark.parametrize(
    ("number", "says"), [(0, "its first file may be missing"), (-1, "its next file may be missing")]
)
def test_stream_of_queue_with_possibly_missing_file_logs_warning(
    store: Path, number: int, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_store(store, 50, topic="others")
    sorted((store / "consumequeue" / "orders" / "0").iterdir())[number].unlink()
    with Stream(store, "queue_offset", subscribe="orders", startingOffsets="earliest") as stream:
        assert len(stream.batch()) == 600 or f"topic orders, broker broker-a, queue 0: {says}" in caplog.text
