"""A landing may be killed between any two changes: the next ones leave every message once, or named."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gantrymq.tables.local.target import TableFormat
from gantrymq.tables.options import LandOptions
from golden_stores import unpack
from tables.kill_points import Killed, KillPoint, kill_point_of
from tables.landing_cases import FORMATS, Lake, land

AS_TEXT = LandOptions(pattern=".*", body="text")
COMMIT_ROWS = 450
MOST_STEPS = 40  # changes of a landing that is killed


@pytest.fixture
def kill_point(monkeypatch: pytest.MonkeyPatch) -> KillPoint:
    return kill_point_of(monkeypatch)


@pytest.mark.parametrize("kind", FORMATS)
def test_landing_killed_at_random_changes_has_each_message_once(
    kind: TableFormat, tmp_path: Path, rng: random.Random, kill_point: KillPoint
) -> None:
    folder = unpack("bad-crc", tmp_path)
    (tmp_path / "whole").mkdir()
    whole, lake = Lake(tmp_path / "whole", kind), Lake(tmp_path, kind)
    _, summary = land(whole, folder / "store", AS_TEXT)
    assert summary.totals.dead
    assert summary.totals.missing
    kills = 0
    for attempt in range(60):
        kill_point.arm(rng.randrange(MOST_STEPS if attempt else 8))
        try:
            land(lake, folder / "store", AS_TEXT, COMMIT_ROWS)
            if not kill_point.is_dead:
                break
        except Killed:
            kills += 1
    kill_point.disarm()
    _, after = land(lake, folder / "store", AS_TEXT, COMMIT_ROWS)
    assert kills
    assert lake.messages() == whole.messages()
    for suffix in ("__dead", "__audit"):
        assert _places(lake, suffix) == _places(whole, suffix)
    assert after.positions == summary.positions


def _places(lake: Lake, suffix: str) -> list[tuple[Any, ...]]:
    offset = "queue_offset" if suffix == "__dead" else "from_offset"
    return sorted((row["topic"], row["queue_id"], row[offset], row["reason"]) for row in lake.rows(suffix))


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_command_killed_by_sigkill_lands_each_message_once(
    kind: TableFormat, tmp_path: Path, rng: random.Random
) -> None:
    folder = unpack("direct-mixed", tmp_path)
    (tmp_path / "whole").mkdir()
    whole, lake = Lake(tmp_path / "whole", kind), Lake(tmp_path, kind)
    land(whole, folder / "store")
    command = [sys.executable, "-m", "gantrymq", "table", "land", str(folder / "store"), *lake.arguments]
    command += ["--topics", ".*", "--commit-rows", "60"]
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
    assert lake.messages() == whole.messages()
