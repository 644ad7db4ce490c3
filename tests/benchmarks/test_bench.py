"""The race track: what is measured, kept and printed. Nothing here says how fast anything is."""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.race import report
from benchmarks.race.process import JavaSide, SideError, run_ours, serve_ours, serving
from benchmarks.race.programme import chosen
from benchmarks.race.race import JAVA, OURS, Race, Row, run
from benchmarks.race.races.growth import measure
from benchmarks.race.session import Session
from benchmarks.race.track import Track

QUICK = Track(java=None, scale=0.001)


def quiet(text: str) -> None:
    """Nobody listens."""


def test_sides_run_in_turn_and_ratio_is_of_medians(tmp_path: Path) -> None:
    order: list[str] = []
    java, ours = iter([1.0, 9.0, 2.0]), iter([4.0, 100.0, 6.0])

    def side(name: str, values: Iterator[float]) -> dict[str, float]:
        order.append(name)
        value = next(values)
        return {"rate": value, "time": value}

    rows = [Row("r", "rate", "x/s", 2.0), Row("t", "time", "ms", less_is_better=True)]
    race = Race(rows, {JAVA: lambda _: side(JAVA, java), OURS: lambda _: side(OURS, ours)})
    rate, took = run(race, 3, tmp_path, quiet)
    assert order == [JAVA, OURS] * 3
    assert rate.samples == took.samples == {JAVA: [1.0, 9.0, 2.0], OURS: [4.0, 100.0, 6.0]}
    assert rate.ratio == 3.0
    assert took.ratio == pytest.approx(1 / 3)
    assert list(tmp_path.iterdir()) == []


def test_sides_with_different_work_have_no_ratio(tmp_path: Path) -> None:
    ends = iter([7.0, 7.0, 7.0, 8.0])

    def side(folder: Path) -> dict[str, float]:
        return {"rate": 1.0, "end": next(ends)}

    [outcome] = run(Race([Row("r", "rate", "x/s")], {JAVA: side, OURS: side}, ("end",)), 3, tmp_path, quiet)
    assert outcome.ratio is None
    assert outcome.error == "the sides did not do the same: end are {'RocketMQ': [7.0], 'gantrymq': [8.0]}"
    assert report.remarks([outcome]) == [f"r failed: {outcome.error}"]


@pytest.mark.parametrize(
    ("error", "said"), [(SideError("it ended with 3"), "it ended with 3"), (KeyError(), "KeyError")]
)
def test_failed_side_ends_its_race_with_reason(tmp_path: Path, error: Exception, said: str) -> None:
    def broken(folder: Path) -> dict[str, float]:
        raise error

    [outcome] = run(Race([Row("r", "took", "ms")], {OURS: broken}), 2, tmp_path, quiet)
    assert (outcome.error, outcome.ratio) == (said, None)


def test_servers_run_from_first_to_last_round_of_race(tmp_path: Path) -> None:
    told: list[str] = []

    @contextmanager
    def standing(folder: Path) -> Iterator[None]:
        assert folder.is_dir()
        told.append("begin")
        yield
        told.append("end")

    def side(folder: Path) -> dict[str, float]:
        told.append("round")
        return {"rate": 1.0}

    run(Race([Row("r", "rate", "x/s")], {OURS: side}, standing=standing), 2, tmp_path, quiet)
    assert told == ["begin", "round", "round", "end"]


def test_own_servers_start_by_command_and_are_killed(tmp_path: Path) -> None:
    with serving(serve_ours(tmp_path / "store", {"flushDiskType": "ASYNC_FLUSH"})) as ready:
        assert {"namesrv", "broker"} <= ready.keys()
        assert (tmp_path / "store" / "abort").exists()
    assert (tmp_path / "store" / "abort").exists()


def test_failed_server_start_raises_with_last_output_lines(tmp_path: Path) -> None:
    with (
        pytest.raises(SideError, match="ended with 1: no port"),
        serving([sys.executable, "-c", "raise SystemExit('no port')"]),
    ):
        pytest.fail("it stands")


@pytest.mark.slow
def test_both_brokers_are_raced_with_real_client(tmp_path: Path) -> None:
    java = JavaSide.find(None)
    if java is None:
        pytest.skip("no RocketMQ to race against")
    races = chosen(Track(java, 0.001), ("broker batch", "broker push"))
    assert len(races) == 2
    assert [outcome.error for race in races for outcome in run(race, 1, tmp_path, quiet)] == ["", ""]


@pytest.mark.slow  # `make bench-smoke` runs both sides in CI
def test_race_sides_do_same_work(tmp_path: Path) -> None:
    java = JavaSide.find(None)
    if java is None:
        pytest.skip("no RocketMQ to race against")
    # CI races the others for their ratios: `make bench-smoke` fails where one has none.
    words = ("put list 1024", "SYNC_FLUSH 1024 B, 16 producers", "clean exit")
    outcomes = [outcome for race in chosen(Track(java, 0.005), words) for outcome in run(race, 1, tmp_path, quiet)]
    assert [outcome.error for outcome in outcomes] == [""] * len(words)
    assert all(outcome.ratio for outcome in outcomes)
    assert java.version == "5.5.0"


def test_unacknowledged_messages_of_side_are_error(tmp_path: Path) -> None:
    work = {"count": 1000, "batch": 100, "body_size": 10, "warm_up": 0}
    with pytest.raises(SideError, match="not acknowledged"):
        run_ours("put_list", store=tmp_path / "store", settings={"maxMessageSize": 5}, **work)


@pytest.mark.slow
def test_our_side_of_every_race_of_store_runs(tmp_path: Path) -> None:
    races = chosen(QUICK, ("1024", "QUERY"))
    assert len(races) > 5
    outcomes = Session(QUICK, races, 1, (), tmp_path / "scratch").run(tmp_path / "out", as_json=False)
    names = [row.name for race in races for row in race.rows]
    assert [(one.name, one.error) for one in outcomes] == [(name, "") for name in names]
    result = json.loads((tmp_path / "out" / "bench.json").read_bytes())
    assert [race["name"] for race in result["races"]] == names
    assert all(race["medians"][OURS] > 0 for race in result["races"])
    assert {"processor", "commit", "java", "rocketmq", "scale", "rounds", "limits"} <= result["machine"].keys()


def test_interrupted_run_keeps_finished_races(tmp_path: Path) -> None:
    def ended(folder: Path) -> dict[str, float]:
        raise KeyboardInterrupt

    sides = {"done": lambda folder: {"rate": 1.0}, "ended": ended}
    races = [Race([Row(name, "rate", "x/s")], {OURS: side}) for name, side in sides.items()]
    with pytest.raises(KeyboardInterrupt):
        Session(QUICK, races, 1, (), tmp_path / "scratch").run(tmp_path / "out", as_json=False)
    result = json.loads((tmp_path / "out" / "bench.json").read_bytes())
    assert [race["name"] for race in result["races"]] == ["done"]
    assert {"commit", "limits"} <= result["machine"].keys()
    assert "| done: x/s |" in (tmp_path / "out" / "bench.md").read_text()


@pytest.mark.slow
def test_size_cost_race_uses_sparse_stores(tmp_path: Path) -> None:
    one, two = measure(Track(JavaSide.find(None)), tmp_path, (1, 2), quiet)
    assert (one["size_gib"], two["size_gib"]) == (1, 2)
    assert all(cost > 0 for cost in two.values())
    report.save_growth_plot([one, two], tmp_path / "growth.svg")
    assert all(name in (tmp_path / "growth.svg").read_text() for name in ("store, GiB", "get, µs", "memory, MiB"))
    logs = sorted((tmp_path / "growing" / "commitlog").iterdir())
    used = [log.stat().st_blocks * 512 for log in logs]
    sizes = [log.stat().st_size for log in logs]
    shutil.rmtree(tmp_path / "growing")  # the last file's space is reserved
    assert sizes == [1 << 30] * 2
    assert used[0] < 1 << 25


def test_spark_race_without_its_requirements_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def names(java: JavaSide | None) -> list[str]:
        return [race.name for race in chosen(Track(java), ("Spark",))]

    here = JavaSide(tmp_path / "interop.jar")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert len(names(here)) == 10
    assert {"Spark reads a store 1024 B, to noop", "table land 100 B, Spark"} <= set(names(here))
    assert names(None) == []
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert names(here) == []
