"""A store whose commit log its broker.conf puts elsewhere, on one disk or several, of which one may be away."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from spark_cases import fields, rows_of
from stream_cases import Stream, bodies

from gantrymq import MessageStore
from gantrymq.errors import StoreError
from gantrymq.spark import RocketMQDataSource
from gantrymq.spark.data_loss import DataLossError
from store_cases import GEOMETRY_KEYS, SMALL, numbered


def open_spread(path: Path, directories: list[Path]) -> MessageStore:
    config = replace(SMALL, store_path_commit_log=",".join(map(str, directories)))
    return MessageStore.open(path, config, given=GEOMETRY_KEYS, housekeeping=False)


@pytest.fixture(params=[1, 3], ids=["one disk", "three disks"])
def spread(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[Path]]:
    directories = [tmp_path / f"disk-{number}" for number in range(request.param)]
    path = tmp_path / "broker-a" / "store"
    with open_spread(path, directories) as store:
        store.put_batch(numbered(600))
    (path.parent / "broker.conf").write_text(f"storePathCommitLog={','.join(map(str, directories))}\n")
    return path, directories


@pytest.mark.parametrize("most", [600, 50])
def test_batch_reads_log_in_other_directory(spread: tuple[Path, list[Path]], most: int) -> None:
    rows = rows_of(spread[0], "queue_offset", maxRecordsPerPartition=most)
    assert [row["queue_offset"] for row in rows] == list(range(600))


def test_stream_follows_log_in_other_directory(spread: tuple[Path, list[Path]]) -> None:
    path, directories = spread
    with Stream(path, "body", startingOffsets="earliest", maxOffsetsPerTrigger=250) as stream:
        assert sum(map(len, stream.batches())) == 600
        with open_spread(path, directories) as store:
            store.put_batch(numbered(300, first=600))
        stream.reader.stop()
        assert bodies([row for batch in stream.batches() for row in batch]) == [b"%08d" % at for at in range(600, 900)]


def test_unmounted_log_disk_raises(spread: tuple[Path, list[Path]], caplog: pytest.LogCaptureFixture) -> None:
    path, directories = spread
    shutil.rmtree(directories[-1])
    if len(directories) == 1:
        with pytest.raises(StoreError, match=r"disk-0: is missing or has no log file.*mount the disk of the log"):
            rows_of(path, failOnDataLoss=False)
        return
    with pytest.raises((DataLossError, StoreError), match=r"is missing|are missing"):
        rows_of(path)
    assert len(rows_of(path, failOnDataLoss=False)) < 600
    assert "is missing: the records at physical offsets" in caplog.text


@pytest.fixture
def front_elsewhere(tmp_path: Path) -> tuple[Path, list[Path]]:
    """A store whose oldest log files lie on one disk, all others on another one."""
    directories = [tmp_path / "old", tmp_path / "new"]
    path = tmp_path / "broker-a" / "store"
    for number, given in enumerate((directories[:1], directories)):
        read_only = str(directories[0]) if number else ""
        config = replace(
            SMALL, store_path_commit_log=",".join(map(str, given)), read_only_commit_log_store_paths=read_only
        )
        with MessageStore.open(path, config, given=GEOMETRY_KEYS, housekeeping=False) as store:
            store.put_batch(numbered(600, first=600 * number))
    return path, directories


def rows_with(path: Path, directories: list[Path]) -> list[Any]:
    setting = {"store.storePathCommitLog": ",".join(map(str, directories))}
    return rows_of(path, "queue_offset", failOnDataLoss=False, **setting)


@pytest.mark.parametrize("mount", ["removed", "empty"])
def test_unmounted_disk_of_oldest_files_is_not_taken_for_retention(
    front_elsewhere: tuple[Path, list[Path]], mount: str
) -> None:
    path, directories = front_elsewhere
    assert len(rows_with(path, directories)) == 1200
    shutil.rmtree(directories[0])
    if mount == "empty":
        directories[0].mkdir()
    with pytest.raises(StoreError, match=f"^{directories[0]}: .*the log lacks its first files.*mount its disk"):
        rows_with(path, directories)


def test_missing_option_for_directory_of_oldest_files_is_reported(
    front_elsewhere: tuple[Path, list[Path]], caplog: pytest.LogCaptureFixture
) -> None:
    path, directories = front_elsewhere
    assert 0 < len(rows_with(path, directories[1:])) < 1200
    assert "not all directories of the log are given" in caplog.text


@pytest.mark.parametrize("mount", ["removed", "empty"])
def test_executor_without_disk_of_oldest_files_raises(front_elsewhere: tuple[Path, list[Path]], mount: str) -> None:
    path, directories = front_elsewhere
    setting = {"store.storePathCommitLog": ",".join(map(str, directories))}
    reader = RocketMQDataSource({"path": str(path), "failOnDataLoss": "false", **setting}).reader(fields())
    parts = list(reader.partitions())
    shutil.rmtree(directories[0])
    if mount == "empty":
        directories[0].mkdir()
    with pytest.raises(StoreError, match=f"{directories[0]}: on host .* is missing or has no log file"):
        [batch for part in parts for batch in reader.read(part)]
