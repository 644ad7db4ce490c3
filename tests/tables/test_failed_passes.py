"""A pass that fails, or whose source shrinks under it, is made good by the next one of the same process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gantrymq.tables.errors import LogDeletedError, TableError
from gantrymq.tables.local.engine import LocalEngine
from gantrymq.tables.local.format_table import UnknownCommitError
from gantrymq.tables.local.target import TableFormat
from golden_stores import unpack
from tables.landing_cases import FORMATS, Lake, land, landing_of


def log_files(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


@pytest.mark.parametrize("commit_rows", [400, 1_000_000])
@pytest.mark.parametrize("failed", [1, 2])
def test_pass_after_failed_pass_lands_its_rows(
    failed: int, commit_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = unpack("lost-queues-many-files", tmp_path) / "store"
    whole, lake = Lake(tmp_path / "whole", TableFormat.DELTA), Lake(tmp_path / "lake", TableFormat.DELTA)
    land(whole, store)
    calls = 0
    to_land = LocalEngine.land

    def failing(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == failed:
            raise TableError("orders", "the catalog is away")
        return to_land(*arguments)

    monkeypatch.setattr(LocalEngine, "land", failing)
    landing = landing_of(lake, store, commit_rows=commit_rows)
    if commit_rows == 400 or failed == 1:
        with pytest.raises(TableError, match="away"):
            list(landing.run_pass())
    list(landing.run_pass())
    assert lake.messages() == whole.messages()
    assert list(landing.run_pass()) == []


@pytest.mark.parametrize("kind", FORMATS)
def test_pass_after_commit_of_unknown_outcome_continues(
    kind: TableFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit has taken place, and its answer was lost."""
    store = unpack("lost-queues-many-files", tmp_path) / "store"
    whole, lake = Lake(tmp_path / "whole", kind), Lake(tmp_path / "lake", kind)
    land(whole, store)
    landing = landing_of(lake, store, commit_rows=400)
    passing = landing.run_pass()
    next(passing)
    to_complete = LocalEngine._complete

    def lost(engine: LocalEngine, head: Any) -> None:
        monkeypatch.setattr(LocalEngine, "_complete", to_complete)
        raise UnknownCommitError("orders", TimeoutError("no answer"))

    monkeypatch.setattr(LocalEngine, "_complete", lost)
    with pytest.raises(UnknownCommitError):
        next(passing)
    list(landing.run_pass())
    assert lake.messages() == whole.messages()


def test_log_file_deleted_after_planning_is_named(tmp_path: Path) -> None:
    store = unpack("lost-queues-many-files", tmp_path) / "store"
    whole, lake = Lake(tmp_path / "whole", TableFormat.DELTA), Lake(tmp_path / "lake", TableFormat.DELTA)
    land(whole, store)
    landing = landing_of(lake, store, commit_rows=400)
    passing = landing.run_pass()
    next(passing)
    for file in log_files(store)[:9]:
        file.unlink()
    list(passing)
    landed, missing = {name[:3] for name in lake.messages()}, set(lake.audited())
    assert missing
    assert not landed & missing
    assert landed | missing == {name[:3] for name in whole.messages()}
    assert landing.summary.totals.missing == len(missing)


def test_log_file_that_stays_away_ends_landing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gantrymq.tables.sources import log_part

    store = unpack("lost-queues-many-files", tmp_path) / "store"
    lake = Lake(tmp_path / "lake", TableFormat.DELTA)
    opened = log_part._PlannedFiles

    class Missing(opened):  # type: ignore[misc, valid-type]
        def open(self, path: Path, **options: Any) -> Any:
            raise LogDeletedError(path)

    monkeypatch.setattr(log_part, "_PlannedFiles", Missing)
    with pytest.raises(LogDeletedError, match="land again"):
        list(landing_of(lake, store).run_pass())
