"""Dead rows that have become readable are moved into their table, with the values that a landing would have given."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from gantrymq.cli.main import exit_code
from gantrymq.fs.real import RealFileSystem
from gantrymq.model import flags
from gantrymq.model.message import Message
from gantrymq.model.size import MAX_DECOMPRESSED_BODY_SIZE
from gantrymq.model.status import PutMessageStatus
from gantrymq.tables.errors import AnotherLanderError, TableError
from gantrymq.tables.local.engine import LocalEngine
from gantrymq.tables.local.retry import Retried
from gantrymq.tables.local.retry import retry as run_retry
from gantrymq.tables.local.target import TableFormat
from gantrymq.tables.options import LandOptions
from store_cases import await_dispatch, open_store
from tables.kill_points import Killed, KillPoint, kill_point_of
from tables.landing_cases import FORMATS, Lake, Row, land, line, put

BIG = 1 << 40
BODIES = [line(id=1), line(id=BIG, note="big"), b"\xff", line(id=3), line(id="x"), line(id=BIG + 1)]
OLD, NEW = "id INT", "id BIGINT, note STRING"


@pytest.fixture
def kill_point(monkeypatch: pytest.MonkeyPatch) -> KillPoint:
    return kill_point_of(monkeypatch)


def schema_file(folder: Path, text: str) -> str:
    path = folder / f"schema-{len(text)}.ddl"
    path.write_text(text)
    return str(path)


def retry(lake: Lake, schema: str | None = None, max_body_bytes: int = MAX_DECOMPRESSED_BODY_SIZE) -> Retried:
    return run_retry(lake.target.open(), LandOptions(schema=schema), max_body_bytes)


def landed(lake: Lake, folder: Path, schema: str, bodies: list[bytes] = BODIES, **options: Any) -> Path:
    """A table of ``bodies``; returns the store."""
    path = folder / "broker-a" / "store"
    if not path.exists():
        put(path, bodies)
    land(lake, path, LandOptions(topics=("orders",), body="json", schema=schema_file(folder, schema), **options))
    return path


def by_offset(lake: Lake, suffix: str = "") -> dict[int, Row]:
    rows = lake.rows(suffix)
    found = {row["queue_offset"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def without_nulls(rows: dict[int, Row]) -> list[Row]:
    """Rows of Parquet files that differ in their columns."""
    return [{name: value for name, value in row.items() if value is not None} for _, row in sorted(rows.items())]


@pytest.mark.parametrize("kind", FORMATS)
def test_retry_with_new_schema_gives_rows_of_landing_with_it(kind: TableFormat, tmp_path: Path) -> None:
    lake, other = Lake(tmp_path / "lake", kind), Lake(tmp_path / "other", kind)
    store = landed(lake, tmp_path, OLD)
    landed(other, tmp_path, NEW)
    assert sorted(by_offset(lake, "__dead")) == [1, 2, 4, 5]
    versions = {row["schema_version"] for row in lake.rows("__dead")}
    assert retry(lake, schema_file(tmp_path, NEW)) == Retried(2, 2)
    assert without_nulls(by_offset(lake)) == without_nulls(by_offset(other))
    assert by_offset(lake, "__dead") == by_offset(other, "__dead")
    assert versions.isdisjoint(row["schema_version"] for row in lake.rows("__dead"))
    totals = LocalEngine(lake.target.open()).look().state.totals
    assert (totals.rows, totals.dead) == (4, 2)
    put(store, [line(id=BIG + 2, note="later")])
    assert land(lake, store, LandOptions())[1].totals.rows == 1
    assert by_offset(lake)[6]["note"] == "later"


@pytest.mark.parametrize("kind", [TableFormat.DELTA, TableFormat.PARQUET])
def test_retry_repeated_commits_nothing(kind: TableFormat, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", kind)
    landed(lake, tmp_path, OLD)
    assert retry(lake) == Retried(0, 4)
    version = LocalEngine(lake.target.open()).look()
    assert retry(lake) == Retried(0, 4)
    assert LocalEngine(lake.target.open()).look() == version
    assert retry(lake, schema_file(tmp_path, NEW)) == Retried(2, 2)
    assert retry(lake) == Retried(0, 2)
    assert sorted(by_offset(lake)) == [0, 1, 3, 5]


@pytest.mark.parametrize("kind", FORMATS)
def test_retry_that_moves_all_rows_leaves_empty_dead_letter_table(kind: TableFormat, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", kind)
    store = landed(lake, tmp_path, OLD, [line(id=BIG), line(id=2)])
    assert retry(lake, schema_file(tmp_path, NEW)) == Retried(1, 0)
    assert not lake.rows("__dead")
    put(store, [b""])
    land(lake, store, LandOptions())
    assert sorted(by_offset(lake, "__dead")) == [2]
    assert sorted(by_offset(lake)) == [0, 1]


def test_schema_of_retry_without_dead_rows_becomes_schema_of_table(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", TableFormat.DELTA)
    store = landed(lake, tmp_path, OLD, [line(id=2)])
    assert retry(lake, schema_file(tmp_path, NEW)) == Retried(0, 0)
    put(store, [line(id=BIG)])
    assert land(lake, store, LandOptions())[1].totals.dead == 0


def test_retry_with_inferred_schema_keeps_reasons(tmp_path: Path) -> None:
    lake, path = Lake(tmp_path / "lake", TableFormat.PARQUET), tmp_path / "store"
    put(path, [line(id=1)])
    land(lake, path, LandOptions(topics=("orders",), body="json", schema="infer"))
    put(path, [line(id="one"), line(id=2, more=True)])
    land(lake, path, LandOptions())
    assert retry(lake) == Retried(0, 1)
    assert "id" in by_offset(lake, "__dead")[1]["reason"]


def test_retry_without_table_names_next_step(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="does not exist; `gantrymq table land` makes it"):
        retry(Lake(tmp_path / "lake", TableFormat.DELTA))


def test_compressed_body_with_higher_limit_becomes_row(tmp_path: Path) -> None:
    lake, path = Lake(tmp_path / "lake", TableFormat.PARQUET), tmp_path / "store"
    path.mkdir()
    text = b'{"id": 7}' + b" " * MAX_DECOMPRESSED_BODY_SIZE
    with open_store(RealFileSystem(), path) as store:
        for packed in (zstandard.compress(text), b"no stream"):
            message = Message("orders", packed, sys_flag=flags.COMPRESSED | flags.COMPRESSION_ZSTD)
            assert store.put(message).status is PutMessageStatus.PUT_OK
        await_dispatch(store)
    land(lake, path, LandOptions(topics=("orders",)))
    assert "maxDecompressedBodySize" in by_offset(lake, "__dead")[0]["reason"]
    assert retry(lake) == Retried(0, 2)
    assert retry(lake, max_body_bytes=2 * MAX_DECOMPRESSED_BODY_SIZE) == Retried(1, 1)
    (row,) = lake.rows()
    assert row["body"] == text
    assert bytes(by_offset(lake, "__dead")[1]["body"]) == b"no stream"


@pytest.mark.parametrize("kind", FORMATS)
def test_retry_beside_landing_ends_and_changes_nothing(
    kind: TableFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake", kind)
    store = landed(lake, tmp_path, OLD)
    put(store, [line(id=8), b"more"])
    table = lake.target.open()
    commit = table.commit

    def late(*arguments: Any) -> Any:
        land(lake, store, LandOptions())
        return commit(*arguments)

    monkeypatch.setattr(table, "commit", late)
    with pytest.raises(AnotherLanderError):
        run_retry(table, LandOptions(schema=schema_file(tmp_path, NEW)), MAX_DECOMPRESSED_BODY_SIZE)
    assert sorted(by_offset(lake)) == [0, 3, 6]
    assert sorted(by_offset(lake, "__dead")) == [1, 2, 4, 5, 7]
    assert retry(lake, schema_file(tmp_path, NEW)) == Retried(2, 3)


@pytest.mark.parametrize("kind", FORMATS)
def test_retry_after_kill_moves_nothing_twice(
    kind: TableFormat, tmp_path: Path, rng: random.Random, kill_point: KillPoint
) -> None:
    lake = Lake(tmp_path / "lake", kind)
    store = landed(lake, tmp_path, OLD)
    new = schema_file(tmp_path, NEW)
    kills = 0
    for number in _kill_numbers(rng):
        kill_point.arm(number)
        try:
            retry(lake, new)
        except Killed:
            kills += 1
        is_done, _ = not kill_point.is_dead, kill_point.disarm()
        if rng.random() < 0.5:
            land(lake, store, LandOptions())
            places = sorted([*by_offset(lake), *by_offset(lake, "__dead")])
            assert places == list(range(len(BODIES)))
        if is_done:
            break
    assert kills
    assert retry(lake, new).left == 2
    assert sorted(by_offset(lake)) == [0, 1, 3, 5]
    assert sorted(by_offset(lake, "__dead")) == [2, 4]


def _kill_numbers(rng: random.Random) -> Iterator[int]:
    """Few changes first, so that most kills come before the commit or just after it."""
    for most in (6, 12, 18, 24, 30, 36, 1000):
        yield rng.randrange(most // 2, most)


def test_retry_command_with_rows_left_prints_summary_and_ends_with_1(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(tmp_path / "lake", TableFormat.ICEBERG)
    landed(lake, tmp_path, OLD)
    arguments = ["table", "retry", lake.table, "--warehouse", str(tmp_path / "lake" / "lake")]
    assert exit_code([*arguments, "--schema", schema_file(tmp_path, NEW), "--json"]) == 1
    assert json.loads(capfd.readouterr().out) == {"kind": "summary", "moved": 2, "left": 2}
    assert exit_code(arguments) == 1
    assert capfd.readouterr().out == "0 rows moved; 2 dead rows left\n"
    assert exit_code([*arguments, "--schema", str(tmp_path / "none.ddl")]) in (2, 3)
    assert capfd.readouterr().err.count("\n") == 1
    assert exit_code(["table", "retry", str(tmp_path / "none")]) == 3
    assert capfd.readouterr().err.startswith(f"gantrymq: {tmp_path / 'none'}: does not exist")


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_retry_command_after_sigkill_moves_each_row_once(kind: TableFormat, tmp_path: Path, rng: random.Random) -> None:
    lake, path = Lake(tmp_path / "lake", kind), tmp_path / "store"
    put(path, [line(id=number << 33) if number % 3 else b"{" for number in range(300)])
    land(lake, path, LandOptions(topics=("orders",), body="json", schema=schema_file(tmp_path, OLD)))
    assert len(by_offset(lake, "__dead")) == 299 + 1 - len(by_offset(lake))
    warehouse = lake.arguments[3:]
    command = [sys.executable, "-m", "gantrymq", "table", "retry", lake.table, *warehouse]
    command += ["--schema", schema_file(tmp_path, NEW), "--json"]
    lived_s, kills = 8.0, 0
    for _ in range(8):
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=rng.uniform(0.4, 1.0) * lived_s)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
            continue
        lived_s = time.monotonic() - began
        if kills > 3:
            break
    last = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (last.returncode, last.stderr) == (1, "")
    assert json.loads(last.stdout)["left"] == 100
    assert sorted(by_offset(lake)) == [number for number in range(300) if number % 3]
    assert sorted(by_offset(lake, "__dead")) == list(range(0, 300, 3))
