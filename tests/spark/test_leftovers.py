"""Leftovers of writes into a store, and their removal: at once, or when no retry can need them."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sink_cases import (
    STEPS,
    batch,
    commit_until_killed,
    expected,
    leftovers,
    sink,
    staged,
    store_of_ten,
    stored,
    writer,
)

from gantrymq.errors import ConfigError, StoreError
from gantrymq.fs.real import RealFileSystem
from gantrymq.spark.write import staging, store_sink


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with small files and ten messages."""
    return store_of_ten(tmp_path / "s")


def test_undeletable_files_do_not_fail_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that failed is run again, and the rows of this one are in."""
    files, unlink = staged(path, batch(5)), Path.unlink

    def refused(file: Path, missing_ok: bool = False) -> None:
        if file.suffix == ".arrow":
            raise PermissionError(13, "not yours", str(file))
        unlink(file, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refused)
        assert sink(path).commit("q", 0, files)
    assert files[0].exists()
    assert sink(path).commit("q", 1, staged(path, batch(5, 5), version=1))
    assert stored(path) == expected(10)
    assert leftovers(path) == ["spark/ledger", "spark/staging"]


def everything(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path / "spark")) for file in (path / "spark").rglob("*"))


def test_unnamed_write_leaves_no_files(path: Path) -> None:
    """A task that its driver did not choose is done before the commit; and what older versions left goes, too."""
    assert sink(path).commit("q", 0, staged(path, batch(5)))
    for left in (f"batch-{7:032x}.json", f"batch-{8:032x}.new"):
        (path / "spark" / "ledger" / left).write_text("{}")
    assert sink(path).commit("batch-7", 0, staged(path, batch(5, 5), app="batch-7"))
    task = writer(path)
    chosen, _ = task.write(iter([batch(5, 10)])), task.write(iter([batch(5, 10)]))
    task.commit([chosen])
    assert stored(path) == expected(15)
    assert everything(path) == ["ledger", "ledger/batch-7.json", "ledger/q.json", "staging"]


def test_second_commit_of_unnamed_write_stores_nothing(path: Path) -> None:
    """Spark commits a writer once. If it ever did so twice, the error would be better than the rows."""
    task = writer(path)
    done = task.write(iter([batch(5)]))
    task.commit([done])
    with pytest.raises(StoreError, match=r"is missing: rows of batch 0 of batch-\w+ cannot be put"):
        task.commit([done])
    task.abort([done])
    assert stored(path) == expected(5)


@pytest.mark.parametrize("kill_at", range(2, STEPS))
def test_killed_unnamed_write_stores_each_row_once(path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: int) -> None:
    """Its line goes when no commit is under way any more: until then it says that the rows are in."""
    monkeypatch.setattr(store_sink, "_PUT_ROWS", 10)
    task = writer(path)
    files = [Path(task.write(iter([batch(30)])).path)]
    assert commit_until_killed(path, files, kill_at, app=files[0].parent.name, batch=0)
    sink(path).commit("q", 0, staged(path, batch(5, 30)))
    assert stored(path) == expected(35)
    assert everything(path) == ["ledger", "ledger/q.json", "staging"]


def test_undeletable_ledger_lines_do_not_fail_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, unlink = writer(path), Path.unlink

    def refused(file: Path, missing_ok: bool = False) -> None:
        if file.parent.name == "ledger":
            raise PermissionError(13, "not yours", str(file))
        unlink(file, missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    task.commit([task.write(iter([batch(5)]))])
    assert stored(path) == expected(5)


def test_generated_name_of_unnamed_write_is_refused_as_option(path: Path) -> None:
    """Such a line is not kept, and a version of that app would be in twice."""
    name = f"batch-{7:032x}"
    with pytest.raises(ConfigError, match="another name: names of this form are reserved"):
        writer(path, txnAppId=name, txnVersion=0)
    for allowed in (f"batch-{7:031x}", f"batch-{7:033x}", f"Batch-{7:032x}", f"my-batch-{7:032x}"):
        writer(path, txnAppId=allowed, txnVersion=0)


WEEK_S = 7 * 24 * 3600


def left_by_a_killed_driver(path: Path, app: str, *names: str) -> list[Path]:
    folder = path / "spark" / "staging" / app
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"half a fi")
    return [folder / name for name in names]


def age(files: list[Path], by_s: float) -> None:
    for file in files:
        os.utime(file, (time.time() - by_s,) * 2)


def test_leftovers_of_killed_drivers_are_removed_after_a_week(path: Path) -> None:
    """Of plain writes, of queries that never came back, of versions whose files had no number, of late tasks."""
    unnamed, query = f"batch-{7:032x}", "5d8e1f0a-6c1b-4b0e-9d2b-3a1f2c4d5e6f"
    left = left_by_a_killed_driver(path, unnamed, "0-1.arrow", "0-2.arrow")
    left += left_by_a_killed_driver(path, query, "8-1.arrow", f"{9:032x}.arrow")
    left += left_by_a_killed_driver(path, f"batch-{8:032x}", "given-up", "0-3.arrow")
    age(left, WEEK_S - 600)
    assert sink(path).commit("q", 0, staged(path, batch(5)))
    assert all(file.exists() for file in left)
    age(left, WEEK_S + 600)
    assert sink(path).commit("q", 1, staged(path, batch(5, 5), version=1))
    assert everything(path) == ["ledger", "ledger/q.json", "staging"]
    assert stored(path) == expected(10)


def test_age_of_batch_is_that_of_newest_file(path: Path) -> None:
    """Its driver waits for the slowest task, and a task is at work as long as it writes."""
    waiting = staged(path, batch(5), batch(5, 5), app="slow")
    left = left_by_a_killed_driver(path, "slow", f"{9:032x}.arrow", "1-2.arrow")
    age([*left, waiting[0]], WEEK_S + 600)
    assert sink(path).commit("q", 0, staged(path, batch(5, 10)))
    assert [file.exists() for file in (*waiting, *left)] == [True, True, False, False]
    assert sink(path).commit("slow", 0, waiting)
    assert Counter(stored(path)) == Counter(expected(15))


def test_files_of_task_ending_after_commit_are_removed(path: Path) -> None:
    """Spark runs a task twice where it is slow, takes the first that is done, and waits for no other."""
    task = writer(path)
    task.commit([task.write(iter([batch(5)]))])
    late = Path(task.write(iter([batch(5)])).path)
    age([late], WEEK_S + 600)
    assert sink(path).commit("q", 0, staged(path, batch(5, 5)))
    assert stored(path) == expected(10)
    assert everything(path) == ["ledger", "ledger/q.json", "staging"]


def test_files_of_running_commit_are_kept_at_any_age(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what the commit at work puts, nor what it finishes for a driver that was killed."""
    monkeypatch.setattr(store_sink, "_PUT_ROWS", 10)
    killed, own = staged(path, batch(30)), staged(path, batch(5, 30), app="own")
    assert commit_until_killed(path, killed, 3, batch=0)
    age([*killed, *own], 10 * WEEK_S)
    assert sink(path).commit("own", 0, own)
    assert stored(path) == expected(35)


def test_failed_search_for_leftovers_does_not_fail_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of another driver takes its file back in that moment."""
    left_by_a_killed_driver(path, "other", "0-1.arrow")
    task, stat = writer(path), Path.stat
    done = task.write(iter([batch(5)]))

    def gone(file: Path, **how: Any) -> os.stat_result:
        if file.parent.name == "other":
            raise FileNotFoundError(2, "gone", str(file))
        return stat(file, **how)

    monkeypatch.setattr(Path, "stat", gone)
    task.commit([done])
    assert stored(path) == expected(5)


def test_folder_removed_during_start_of_task_is_created_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_wanted, cleared = staging._require_wanted, []

    def clear_once(folder: Path) -> None:
        require_wanted(folder)
        if not cleared:
            cleared.append(folder)
            folder.rmdir()

    monkeypatch.setattr(staging, "_require_wanted", clear_once)
    assert sink(path).commit("q", 0, staged(path, batch(5)))
    assert stored(path) == expected(5)


def test_parent_directories_of_durable_files_are_synced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A staged file, or the line that says that a batch is in, would be lost with a directory whose name is."""
    names, synced = RealFileSystem.sync_directory, set[Path]()

    def note(fs: RealFileSystem, *directories: Path) -> None:
        synced.update(directories)
        names(fs, *directories)

    monkeypatch.setattr(RealFileSystem, "sync_directory", note)
    files = staged(path, batch(5))
    assert synced >= {files[0].parent, files[0].parent.parent, path / "spark", path}
    synced.clear()
    assert sink(path).commit("q", 0, files)
    assert synced >= {path / "spark" / "ledger", path / "spark", path}
