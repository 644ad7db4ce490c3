"""What writes into a store leave behind, and that it goes: at once, or when nobody can come back for it."""

from __future__ import annotations

from pathlib import Path

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
from gantrymq.spark import store_sink


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with small files and ten messages."""
    return store_of_ten(tmp_path / "s")


def test_files_that_do_not_go_fail_no_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_write_without_a_name_leaves_nothing(path: Path) -> None:
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


def test_a_write_without_a_name_that_is_committed_again_puts_nothing(path: Path) -> None:
    """Spark commits a writer once. If it ever did so twice, the error would be better than the rows."""
    task = writer(path)
    done = task.write(iter([batch(5)]))
    task.commit([done])
    with pytest.raises(StoreError, match=r"is gone: the rows of batch 0 of batch-\w+ cannot be put"):
        task.commit([done])
    task.abort([done])
    assert stored(path) == expected(5)


@pytest.mark.parametrize("kill_at", range(2, STEPS))
def test_a_write_without_a_name_that_is_killed(path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: int) -> None:
    """Its line goes when no commit is under way any more: until then it says that the rows are in."""
    monkeypatch.setattr(store_sink, "_PUT_ROWS", 10)
    task = writer(path)
    files = [Path(task.write(iter([batch(30)])).path)]
    assert commit_until_killed(path, files, kill_at, app=files[0].parent.name, batch=0)
    sink(path).commit("q", 0, staged(path, batch(5, 30)))
    assert stored(path) == expected(35)
    assert everything(path) == ["ledger", "ledger/q.json", "staging"]


def test_lines_that_do_not_go_fail_no_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, unlink = writer(path), Path.unlink

    def refused(file: Path, missing_ok: bool = False) -> None:
        if file.parent.name == "ledger":
            raise PermissionError(13, "not yours", str(file))
        unlink(file, missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    task.commit([task.write(iter([batch(5)]))])
    assert stored(path) == expected(5)


def test_nobody_else_may_have_a_name_of_a_write_without_one(path: Path) -> None:
    """Such a line is not kept, and a version of that app would be in twice."""
    name = f"batch-{7:032x}"
    with pytest.raises(ConfigError, match="another name: the ledger keeps none of this form"):
        writer(path, txnAppId=name, txnVersion=0)
    for allowed in (f"batch-{7:031x}", f"batch-{7:033x}", f"Batch-{7:032x}", f"my-batch-{7:032x}"):
        writer(path, txnAppId=allowed, txnVersion=0)
