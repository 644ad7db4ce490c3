"""What writes into a store leave behind, and that it goes: at once, or when nobody can come back for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from sink_cases import batch, expected, leftovers, sink, staged, store_of_ten, stored


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
