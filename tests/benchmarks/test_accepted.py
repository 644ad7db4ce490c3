"""Ratios beside those accepted: only a collapse counts, and only when it comes twice."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.race import accepted, machine
from benchmarks.race.race import JAVA, OURS, Race, Row
from benchmarks.race.run import Run, compare, run_races, try_places
from benchmarks.race.track import Track


@pytest.fixture(autouse=True)
def the_machine_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "limits", lambda scratch: {})


def race(name: str, *ours: float) -> Race:
    """A race that the other side always runs at 1; ours as given, the last for ever."""
    left = list(ours)

    def side(folder: Path) -> dict[str, float]:
        return {"rate": left.pop(0) if len(left) > 1 else left[0]}

    return Race([Row(name, "rate", "x/s")], {JAVA: lambda _: {"rate": 1.0}, OURS: side})


def once(tmp_path: Path) -> Run:
    return Run(Track(None), 1, (), tmp_path, tmp_path / "out", as_json=False)


def compared(tmp_path: Path, *races: Race) -> list[str]:
    ratios, run = {"even": 4.0, "other": 2.0, "not run": 9.0}, once(tmp_path)
    outcomes = run_races(races, run)
    kept = (tmp_path / "out" / "bench.json").read_bytes()
    collapsed = [change.name for change in compare(races, outcomes, ratios, run)]
    assert (tmp_path / "out" / "bench.json").read_bytes() == kept, "racing some again lost the rest of the result"
    return collapsed


@pytest.mark.parametrize(
    ("ours", "collapsed"),
    [([4.0], []), ([2.1], []), ([2.0], ["even"]), ([1.0, 3.0], []), ([9.0], [])],
    ids=["as before", "a bit more than half", "half", "half only once", "better"],
)
def test_halved_ratio_is_collapse_only_if_repeated(tmp_path: Path, ours: list[float], collapsed: list[str]) -> None:
    assert compared(tmp_path, race("even", *ours), race("other", 2.0), race("new", 0.1)) == collapsed


def test_row_that_asks_for_a_larger_share_collapses_at_it(tmp_path: Path) -> None:
    strict = race("even", 3.2)
    strict = Race([replace(strict.rows[0], least_share=0.8)], strict.sides)
    assert compared(tmp_path, strict) == ["even"]


def test_failed_race_is_collapse(tmp_path: Path) -> None:
    def broken(folder: Path) -> dict[str, float]:
        raise RuntimeError("no")

    assert compared(tmp_path, Race([Row("even", "rate", "x/s")], {JAVA: broken, OURS: broken})) == ["even"]


def test_saved_ratios_are_read_back(tmp_path: Path) -> None:
    accepted.save(tmp_path / "kept.json", run_races([race("even", 4.0), race("other", 2.0)], once(tmp_path)))
    assert accepted.load(tmp_path / "kept.json") == {"even": 4.0, "other": 2.0}


def test_writable_output_paths_stay_unchanged(tmp_path: Path) -> None:
    kept, new = tmp_path / "kept.json", tmp_path / "new.json"
    kept.write_text("{}")
    for accept in (kept, new, None):
        try_places(tmp_path / "out", accept)
    assert (kept.read_text(), new.exists(), list((tmp_path / "out").iterdir())) == ("{}", False, [])


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"a": "b"}', b'{"a": 0}', b'{"\xff": 1}'])
def test_invalid_ratios_file_is_named_in_error(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "a.json").write_bytes(raw)
    with pytest.raises(accepted.AcceptedError, match=r"a\.json"):
        accepted.load(tmp_path / "a.json")
