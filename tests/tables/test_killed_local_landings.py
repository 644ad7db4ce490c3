"""A landing may be killed between any two changes: the next ones leave every message once, or named."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from gantrymq.tables.local.target import TableFormat
from gantrymq.tables.options import LandOptions
from gantrymq.tables.partitions import PartitionBy
from golden_stores import unpack
from tables.kill_points import Killed, KillPoint, kill_point_of
from tables.landing_cases import FORMATS, Lake, land, landing_of, line, put

AS_TEXT = LandOptions(pattern=".*", body="text")
COMMIT_ROWS = 450
MOST_STEPS = 40  # changes of a landing that is killed
COMPACTION = {TableFormat.DELTA: 8, TableFormat.ICEBERG: 4, TableFormat.PARQUET: 10}  # steps of a table's
SIDES = ("", "__dead", "__audit")


@pytest.fixture
def kill_point(monkeypatch: pytest.MonkeyPatch) -> KillPoint:
    return kill_point_of(monkeypatch)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(("partition_by", "most_steps"), [("day", MOST_STEPS), ("topic,queue_id", 3 * MOST_STEPS)])
def test_landing_after_random_kills_has_each_message_once(
    kind: TableFormat, partition_by: str, most_steps: int, tmp_path: Path, rng: random.Random, kill_point: KillPoint
) -> None:
    options = replace(AS_TEXT, partition_by=PartitionBy.parse(partition_by))
    folder = unpack("bad-crc", tmp_path)
    (tmp_path / "whole").mkdir()
    whole, lake = Lake(tmp_path / "whole", kind), Lake(tmp_path, kind)
    _, summary = land(whole, folder / "store", AS_TEXT)
    assert summary.totals.dead
    assert summary.totals.missing
    kills = 0
    for attempt in range(60):
        kill_point.arm(rng.randrange(most_steps if attempt else 8))
        try:
            land(lake, folder / "store", options, COMMIT_ROWS)
            if not kill_point.is_dead:
                break
        except Killed:
            kills += 1
    kill_point.disarm()
    _, after = land(lake, folder / "store", options, COMMIT_ROWS)
    assert kills
    assert lake.messages() == whole.messages()
    for suffix in ("__dead", "__audit"):
        assert _places(lake, suffix) == _places(whole, suffix)
    assert after.positions == summary.positions


def _places(lake: Lake, suffix: str) -> list[tuple[Any, ...]]:
    offset = "queue_offset" if suffix == "__dead" else "from_offset"
    return sorted((row["topic"], row["queue_id"], row[offset], row["reason"]) for row in lake.rows(suffix))


@pytest.mark.parametrize("kind", FORMATS)
def test_maintenance_after_random_kills_has_each_row_once(
    kind: TableFormat, tmp_path: Path, rng: random.Random, kill_point: KillPoint
) -> None:
    folder = unpack("bad-crc", tmp_path)
    lake = Lake(tmp_path, kind)
    _, summary = land(lake, folder / "store", AS_TEXT, COMMIT_ROWS)
    before = [sorted(map(repr, lake.rows(suffix))) for suffix in SIDES]
    kills = 0
    for attempt in range(8):
        kill_point.arm(rng.randrange((1 + attempt) * COMPACTION[kind]))
        try:
            landing = landing_of(lake, folder / "store", AS_TEXT)
            list(landing.run_pass())
            landing.maintain(compact=True, is_exact=True)
            if not kill_point.is_dead:
                break
        except Killed:
            kills += 1
            kill_point.disarm()
            readable = [sorted(map(repr, lake.rows(suffix))) for suffix in SIDES]
            assert kind is TableFormat.PARQUET or readable == before
    kill_point.disarm()
    _, after = land(lake, folder / "store", AS_TEXT)
    assert kills
    assert [sorted(map(repr, lake.rows(suffix))) for suffix in SIDES] == before
    assert (after.commits, after.positions) == (0, summary.positions)


@pytest.mark.parametrize("kind", FORMATS)
def test_compaction_after_sigkill_loses_and_doubles_nothing(
    kind: TableFormat, tmp_path: Path, rng: random.Random
) -> None:
    folder = unpack("direct-propcrc", tmp_path)
    lake = Lake(tmp_path, kind)
    land(lake, folder / "store", commit_rows=300)
    before, files = sorted(map(repr, lake.rows())), lake.target.open().count_files()
    number = str(rng.randrange(COMPACTION[kind]))
    command = [sys.executable, "-m", "tables.kill_points", str(folder / "store"), str(tmp_path), kind.value, number]
    root = Path(__file__).resolve().parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (root, root / "support")))}
    done = subprocess.run(command, check=False, cwd=root, capture_output=True, text=True, env=environment)
    assert done.returncode == -signal.SIGKILL, done.stderr
    landing = landing_of(lake, folder / "store")
    assert not list(landing.run_pass())
    assert sorted(map(repr, lake.rows())) == before
    landing.maintain(compact=True, is_exact=True)
    assert sorted(map(repr, lake.rows())) == before
    assert lake.target.open().count_files() < files
    if kind is TableFormat.PARQUET:
        read = duckdb.sql(f"select count(*) from read_parquet('{lake.table}/**/*.parquet')")
        assert read.fetchall() == [(len(before),)]


def test_manifest_left_by_killed_process_is_not_written_again(tmp_path: Path) -> None:
    store = unpack("direct-propcrc", tmp_path) / "store"
    lake = Lake(tmp_path, TableFormat.PARQUET)
    land(lake, store)
    root = Path(lake.table)
    manifest = max((root / "_gantrymq").glob("manifest-*"))
    commit_id = json.loads(manifest.read_bytes())["state"]["commitId"]
    os.link(manifest, root / "_gantrymq" / f".{commit_id}.tmp")
    (root / f"part-00000009-{'0' * 32}.parquet").write_bytes(b"PAR1")
    os.utime(manifest, (1, 1))
    land(lake, store)  # removes that file, after a commit
    assert manifest.stat().st_mtime == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_command_after_sigkill_lands_each_message_once(kind: TableFormat, tmp_path: Path, rng: random.Random) -> None:
    folder = unpack("direct-mixed", tmp_path)
    (tmp_path / "whole").mkdir()
    whole, lake = Lake(tmp_path / "whole", kind), Lake(tmp_path, kind)
    land(whole, folder / "store")
    _land_under_sigkills(lake, folder / "store", rng, "--topics", ".*", "--commit-rows", "60")
    assert lake.messages() == whole.messages()


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_command_with_upserts_after_sigkill_leaves_last_row_of_each_key(
    kind: TableFormat, tmp_path: Path, rng: random.Random
) -> None:
    store, lake, rows, bodies = tmp_path / "broker-a" / "store", Lake(tmp_path, kind), dict[int, int](), []
    for number in range(900):
        key = rng.randrange(60)
        is_delete = rng.random() < 0.25
        bodies.append(line(id=key, n=number, op="d" if is_delete else "u"))
        rows[key] = number
        if is_delete:
            del rows[key]
    put(store, bodies)
    options = ["--body", "json", "--schema", "infer", "--upsert-by", "id", "--op-field", "op"]
    _land_under_sigkills(lake, store, rng, "--topic", "orders", *options, "--commit-rows", "60")
    assert sorted((row["id"], row["n"]) for row in lake.rows()) == sorted(rows.items())


def _land_under_sigkills(lake: Lake, store: Path, rng: random.Random, *options: str) -> None:
    """Land by the command, killed at random moments, and then to the end."""
    command = [sys.executable, "-m", "gantrymq", "table", "land", str(store), *lake.arguments, *options]
    lived_s = 12.0
    for _ in range(12):
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=rng.uniform(0.3, 1.0) * lived_s)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            continue
        lived_s = time.monotonic() - began
        break
    last = subprocess.run(command, check=False, capture_output=True, text=True)
    assert last.returncode == 0, last.stderr
