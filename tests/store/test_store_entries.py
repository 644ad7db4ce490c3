"""A new file of the store directory is one row of store/entries.py, and all tools take it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gantrymq.console.store.files import Part, _part_of
from gantrymq.errors import NotAStoreError, StoreError
from gantrymq.format import names
from gantrymq.fs.real import RealFileSystem
from gantrymq.store import entries
from gantrymq.store.entries import ENTRIES, Group, StoreName, Use, group_of, is_for, names_for
from gantrymq.store.geometry import require_store
from gantrymq.store.paths import StorePaths
from gantrymq.tools.check.small_files_check import check_names
from gantrymq.tools.preflight import _name_reasons
from gantrymq.tools.repair.result_directory import SalvageTarget

FS = RealFileSystem()
IMAGINED = "ledger"


@pytest.fixture
def imagined(monkeypatch: pytest.MonkeyPatch) -> StoreName:
    """A directory that RocketMQ might add, with every use."""
    entry = StoreName(IMAGINED, ~Use.LEFT_ALONE, Group.INDEX)
    monkeypatch.setattr(entries, "ENTRIES", (entry, *ENTRIES))
    return entry


def store_with(root: Path, name: str) -> StorePaths:
    """A directory that has a store and one more entry, a directory."""
    for directory in (names.COMMIT_LOG, name):
        (root / directory).mkdir(parents=True)
    return StorePaths(root)


def test_unknown_name_is_foreign_and_not_taken_by_salvage(tmp_path: Path) -> None:
    paths = store_with(tmp_path / "store", IMAGINED)
    assert [str(one.path) for one in check_names(FS, paths)] == [IMAGINED]
    assert [one.name for one in _name_reasons(FS, paths)] == [IMAGINED]
    (tmp_path / "salvaged" / names.SALVAGE_MARK).mkdir(parents=True)
    (tmp_path / "salvaged" / IMAGINED).mkdir()
    with pytest.raises(StoreError, match="was not made by the salvage"):
        SalvageTarget(FS, tmp_path / "salvaged").require_free()
    (tmp_path / "alone" / IMAGINED).mkdir(parents=True)
    with pytest.raises(NotAStoreError):
        require_store(FS, StorePaths(tmp_path / "alone"), creates=True)
    assert group_of(IMAGINED) is Group.OTHERS


@pytest.mark.usefixtures("imagined")
def test_name_with_a_row_is_known_to_verify_and_preflight(tmp_path: Path) -> None:
    paths = store_with(tmp_path, IMAGINED)
    assert list(check_names(FS, paths)) == []
    assert list(_name_reasons(FS, paths)) == []


@pytest.mark.usefixtures("imagined")
def test_file_in_place_of_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / IMAGINED).touch()
    [finding] = check_names(FS, StorePaths(tmp_path))
    assert "is a file where a directory is needed" in finding.text


@pytest.mark.usefixtures("imagined")
def test_salvage_moves_what_has_a_row_and_removes_leftovers(tmp_path: Path) -> None:
    root = tmp_path / "salvaged"
    target = SalvageTarget(FS, root)
    target.begin(tmp_path)
    (root / IMAGINED).mkdir()
    target.require_free()
    target.begin(tmp_path)
    assert not (root / IMAGINED).exists()
    for name in (names.COMMIT_LOG, IMAGINED):
        (target.work / name).mkdir()
    target.finish()
    assert sorted(path.name for path in root.iterdir()) == sorted([names.COMMIT_LOG, IMAGINED])


@pytest.mark.usefixtures("imagined")
def test_table_row_decides_whether_directory_is_store(tmp_path: Path) -> None:
    (tmp_path / IMAGINED).mkdir()
    require_store(FS, StorePaths(tmp_path))
    assert set(names_for(Use.REBUILT)) == {IMAGINED, names.CONSUME_QUEUE, names.CONSUME_QUEUE_EXT, names.INDEX}
    assert IMAGINED in names_for(Use.QUARANTINED)
    assert _part_of(Path(IMAGINED) / "0") is Part.INDEX
    assert group_of(IMAGINED) is Group.INDEX


def test_every_store_path_has_table_row() -> None:
    """A new property of StorePaths needs a row, or verify calls its file foreign."""
    root = Path("/store")
    paths = StorePaths(root)
    found = {name: getattr(paths, name) for name, one in vars(StorePaths).items() if isinstance(one, property)}
    first = {path.relative_to(root).parts[0] for path in found.values() if isinstance(path, Path)}
    missing = sorted(name for name in first if not is_for(name, Use.KNOWN))
    assert not missing, f"{missing} has no row in store/entries.py: say there what each tool does with it"


def test_log_is_moved_last_by_salvage() -> None:
    assert names_for(Use.SALVAGED)[-1] == names.COMMIT_LOG


def test_names_with_known_prefix_are_accepted() -> None:
    assert is_for("timerwheel.1700000000000", Use.KNOWN)
    assert is_for("dledger-n0", Use.KNOWN)
    assert not is_for("dledger", Use.KNOWN)
    assert not is_for(names.LOST_FOUND, Use.KNOWN)


def test_every_entry_group_is_part_of_store_map() -> None:
    assert {group.value for group in Group} == {part.value for part in Part}
