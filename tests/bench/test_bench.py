"""The race track: what is measured, kept and printed. Nothing here says how fast anything is."""

import json
import shutil
from pathlib import Path

import pytest

from gantrymq.bench.process import SideError
from gantrymq.bench.programme import chosen
from gantrymq.bench.race import JAVA, OURS, Race, run
from gantrymq.bench.races.growth import measure
from gantrymq.bench.session import Session
from gantrymq.bench.track import Track

QUICK = Track(java=None, scale=0.001)


def quiet(text: str) -> None:
    """Nobody listens."""


def test_sides_run_in_turn_and_the_ratio_is_that_of_medians(tmp_path: Path) -> None:
    order: list[str] = []
    java, ours = iter([1.0, 9.0, 2.0]), iter([4.0, 100.0, 6.0])

    def side(name: str, values) -> float:
        order.append(name)
        return next(values)

    race = Race("r", "x/s", {JAVA: lambda _: side(JAVA, java), OURS: lambda _: side(OURS, ours)}, 2.0)
    outcome = run(race, 3, tmp_path, quiet)
    assert order == [JAVA, OURS] * 3
    assert outcome.samples == {JAVA: [1.0, 9.0, 2.0], OURS: [4.0, 100.0, 6.0]}
    assert outcome.ratio == 3.0
    outcome.less_is_better = True
    assert outcome.ratio == pytest.approx(1 / 3)
    assert list(tmp_path.iterdir()) == []


def test_a_side_that_fails_ends_its_race_and_says_why(tmp_path: Path) -> None:
    def broken(folder: Path) -> float:
        raise SideError("it ended with 3")

    outcome = run(Race("r", "ms", {OURS: broken}), 2, tmp_path, quiet)
    assert (outcome.error, outcome.ratio) == ("it ended with 3", None)


def test_our_side_of_every_race_of_the_store_runs(tmp_path: Path) -> None:
    races = [race for race in chosen(QUICK, ()) if "1024" in race.name or "query" in race.name]
    assert len(races) > 5
    outcomes = Session(races, 1, (), tmp_path / "scratch").run(tmp_path / "out", as_json=False)
    assert [one.error for one in outcomes] == [""] * len(races)
    result = json.loads((tmp_path / "out" / "bench.json").read_bytes())
    assert [race["name"] for race in result["races"]] == [race.name for race in races]
    assert all(race["medians"][OURS] > 0 for race in result["races"])
    assert {"processor", "commit", "java", "limits"} <= result["machine"].keys()


def test_costs_by_size_come_from_stores_that_are_nearly_all_hole(tmp_path: Path) -> None:
    one, two = measure(tmp_path, (1, 2), quiet)
    assert (one["size_gib"], two["size_gib"]) == (1, 2)
    logs = sorted((tmp_path / "growing" / "commitlog").iterdir())
    used = [log.stat().st_blocks * 512 for log in logs]
    sizes = [log.stat().st_size for log in logs]
    shutil.rmtree(tmp_path / "growing")  # the last file's space is reserved
    assert sizes == [1 << 30] * 2
    assert used[0] < 1 << 25
