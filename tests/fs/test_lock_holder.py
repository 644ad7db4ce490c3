"""Who holds a store's lock: found in the kernel's list by its device and its inode, and left alone."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantrymq.fs import lock_holder as module
from gantrymq.fs.lock_holder import lock_holder
from gantrymq.fs.real import RealFileSystem

pytestmark = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="no /proc/locks here")


@pytest.fixture
def lock_file(tmp_path: Path) -> Iterator[Path]:
    """A lock that this process holds."""
    held = RealFileSystem().lock(tmp_path / "lock", b"")
    yield tmp_path / "lock"
    held.release()


def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    """Let a list of the kernel's read as ``text``."""
    path = tmp_path / name
    path.write_text(text)
    monkeypatch.setattr(module, name, path)


def test_lock_holder_is_found_without_releasing_lock(lock_file: Path) -> None:
    for _ in range(2):
        assert lock_holder(lock_file) == os.getpid()


def test_file_missing_or_unlocked_has_no_lock_holder(tmp_path: Path) -> None:
    assert lock_holder(tmp_path / "lock") is None
    (tmp_path / "lock").touch()
    assert lock_holder(tmp_path / "lock") is None
    assert lock_holder(tmp_path / "nowhere" / "lock") is None


def test_lock_on_other_disk_has_other_holder(lock_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores that were made alike on two fresh disks have lock files of one inode."""
    inode = lock_file.stat().st_ino
    listed(tmp_path, monkeypatch, "_LOCKS", f"1: POSIX  ADVISORY  WRITE 4711 fff:ff:{inode} 0 0\n")
    assert lock_holder(lock_file) is None


def test_lock_holder_without_mount_table_is_found_by_inode(
    lock_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in a chroot sees none of the mounts that lie around it."""
    listed(tmp_path, monkeypatch, "_MOUNTS", "")
    assert lock_holder(lock_file) == os.getpid()
