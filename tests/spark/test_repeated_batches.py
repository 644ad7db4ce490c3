"""Batches of a query that come again, come late or are another query's: in once, or refused by name; never left out."""

from __future__ import annotations

import logging
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from sink_cases import batch, commit_until_killed, expected, leftovers, schema_of, sink, staged, store_of_ten, stored

from gantrymq.errors import StoreError
from gantrymq.spark import RocketMQDataSource
from gantrymq.spark.write.store import Staged


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return store_of_ten(tmp_path)


class Task:
    """What a task knows of its query."""

    def __init__(self, query: str, batch: int) -> None:
        self._properties = {"sql.streaming.queryId": query, "streaming.sql.batchId": str(batch)}

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)

    def partitionId(self) -> int:
        return 0


def write(
    monkeypatch: pytest.MonkeyPatch, path: Path, query: str, number: int, *rows: Any, **options: object
) -> tuple[Any, list[Any]]:
    """The writer of a batch, and what its tasks have staged."""
    given = {"path": str(path), **{name: str(value) for name, value in options.items()}}
    writer = RocketMQDataSource(given).streamWriter(schema_of("topic string, body string"), False)
    monkeypatch.setattr(TaskContext, "get", classmethod(lambda cls: Task(query, number)))
    return writer, [writer.write(iter([one])) for one in rows]


def commit(monkeypatch: pytest.MonkeyPatch, path: Path, query: str, number: int, *rows: Any, **options: object) -> None:
    writer, messages = write(monkeypatch, path, query, number, *rows, **options)
    try:
        writer.commit(messages, number)
    except StoreError:
        writer.abort(messages, number)
        raise


def test_repeated_last_batch_adds_no_row(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (0, 1, 1):
        commit(monkeypatch, path, "q", number, batch(5, 5 * number))
    assert stored(path) == expected(10)
    assert caplog.text == ""


def test_repeated_last_batch_with_other_rows_logs_warning(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit(monkeypatch, path, "q", 0, batch(5))
    commit(monkeypatch, path, "q", 0, batch(7))
    assert stored(path) == expected(5)
    assert f"{path} has 5 rows of batch 0 of q already: the 7 rows of batch 0, which were written again" in caplog.text


def test_checkpoint_set_back_raises(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its next batch has the number of one that is in the store, and rows that are not."""
    for number in range(3):
        commit(monkeypatch, path, "q", number, batch(5, 5 * number))
    with pytest.raises(StoreError, match=r"this is batch 1 of query q, but the store has its batches up to 2"):
        commit(monkeypatch, path, "q", 1, batch(50, 5))
    assert stored(path) == expected(15)
    assert leftovers(path) == ["spark/ledger", "spark/staging"]
    commit(monkeypatch, path, "q", 1, batch(10, 15), txnAppId="again", txnVersion=0)
    assert stored(path) == expected(25)


@pytest.mark.parametrize("number", [0, 1, 7])
def test_app_name_of_other_query_raises(path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A new checkpoint counts from 0 again, or two queries run under one name."""
    for known in range(2):
        commit(monkeypatch, path, "first", known, batch(5, 5 * known), txnAppId="app", txnVersion=0)
    with pytest.raises(
        StoreError, match=r"txnAppId app up to 1 are of query first, and this is batch . of query second"
    ):
        commit(monkeypatch, path, "second", number, batch(5, 10), txnAppId="app", txnVersion=0)
    commit(monkeypatch, path, "first", 2, batch(5, 10), txnAppId="app", txnVersion=0)
    assert stored(path) == expected(15)


def test_ledger_line_of_older_version_has_no_query_id(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sink(path).commit("q", 0, staged(path, batch(5)))
    commit(monkeypatch, path, "q", 1, batch(5, 5))
    assert stored(path) == expected(10)


@pytest.mark.parametrize("kill_at", [3, 6])
def test_batch_finished_by_other_query_keeps_query_id(
    path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: int
) -> None:
    monkeypatch.setattr("gantrymq.spark.write.store_sink._PUT_ROWS", 10)
    _, (one,) = write(monkeypatch, path, "first", 1, batch(30), txnAppId="app", txnVersion=0)
    assert commit_until_killed(path, [Path(one.path)], kill_at, app="app", query="first")
    commit(monkeypatch, path, "other", 0, batch(5, 30))
    assert stored(path) == expected(35)
    with pytest.raises(StoreError, match="are of query first"):
        commit(monkeypatch, path, "second", 2, batch(5, 35), txnAppId="app", txnVersion=0)


def test_rewritten_version_with_other_rows_causes_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert sink(path).commit("job", 3, staged(path, batch(5), app="job", version=3))
    with caplog.at_level(logging.INFO, "gantrymq.spark"):
        assert not sink(path).commit("job", 3, staged(path, batch(5), app="job", version=3))
    assert [record.levelno for record in caplog.records] == [logging.INFO]
    assert not sink(path).commit("job", 2, staged(path, batch(5, 5), app="job", version=2))
    assert caplog.records[-1].levelno == logging.WARNING
    assert "5 rows of batch 3 of job already: the 5 rows of batch 2" in caplog.text


def test_task_without_commit_message_raises(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, messages = write(monkeypatch, path, "q", 0, batch(5))
    with pytest.raises(StoreError, match="1 of 2 tasks did not report what they staged: nothing is stored"):
        writer.commit([*messages, None], 0)
    given = {"path": str(path)}
    rows = RocketMQDataSource(given).writer(schema_of("topic string, body string"), False)
    with pytest.raises(StoreError, match="1 of 2 tasks did not report"):
        rows.commit([None, rows.write(iter([batch(5)]))])
    assert stored(path) == []


def lose(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    os.truncate(file, 0)


@pytest.mark.parametrize("harm", [lose, cut, empty])
def test_incomplete_staged_file_raises_and_is_named(path: Path, harm: Any) -> None:
    files = staged(path, batch(50), batch(50, 50))
    harm(files[1])
    with pytest.raises(StoreError, match=f"{files[1].name}.*(is missing|cannot be read)"):
        sink(path).commit("q", 0, files)
    assert stored(path) == []
    assert sink(path).commit("other", 0, staged(path, batch(5), app="other"))
    assert stored(path) == expected(5)


@pytest.mark.parametrize("mount", ["none", "empty", "other"])
def test_executor_without_store_raises_and_names_host(path: Path, monkeypatch: pytest.MonkeyPatch, mount: str) -> None:
    writer, _ = write(monkeypatch, path, "q", 0)
    shutil.rmtree(path)
    if mount == "empty":
        path.mkdir()
    elif mount == "other":
        path.mkdir()
        (path / "notes").touch()
    with pytest.raises(StoreError, match=f"on host {socket.gethostname()} is no store: mount the driver's store there"):
        writer.write(iter([batch(5)]))
    assert not (path / "spark").exists()


def test_driver_without_staged_files_names_their_path(path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = store_of_ten(tmp_path_factory.mktemp("elsewhere"))
    (file,) = staged(elsewhere, batch(5))
    with pytest.raises(StoreError, match="Does the host of each executor have this store under this path"):
        sink(path).commit("q", 0, [path / file.relative_to(elsewhere)])
    assert Staged("q", str(file), 5).query is None
