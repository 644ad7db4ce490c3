"""The mark of a rebuild that was killed moves what it says, or nothing."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from faulty_file_system import FaultyFileSystem, broken_disk
from gantrymq.errors import DiskError, StoreError, StorePermissionError
from gantrymq.format.checkpoint import Checkpoint
from gantrymq.fs.real import RealFileSystem
from gantrymq.store.paths import StorePaths
from gantrymq.store.recovery.swap_journal import FileSwap, ReadySwap
from memory_file_system import MemoryFileSystem
from store_cases import ROOT, files_of

WORK = ROOT / "rebuild.tmp"
MARK = WORK / "ready.json"
OLD, NEW, QUEUE = (
    ROOT / "consumequeue/订单/0/00000000000000000000",
    WORK / "consumequeue/订单/0/00000000000000000020",
    ROOT / "consumequeue/订单/0",
)


def write(fs: MemoryFileSystem, path: Path, data: bytes) -> None:
    fs.make_directory(path.parent)
    file = fs.open(path, writable=True, create=True)
    file.resize(0)
    file.write_at(0, data)


def marked(source: Path = NEW.parent, target: Path = QUEUE) -> MemoryFileSystem:
    """A store with an old file and a new one that is to take its place."""
    fs = MemoryFileSystem()
    write(fs, OLD, b"old")
    write(fs, NEW, b"new")
    swap = FileSwap(fs, ROOT)
    swap.moves.append((source, target, [NEW.name]))
    ReadySwap(fs, StorePaths(ROOT)).set(swap, Checkpoint(1, 2, 3), 0)
    return fs


def unmoved(fs: MemoryFileSystem) -> dict[Path, bytes]:
    """The store without the new file and its mark."""
    return {path: data for path, data in files_of(fs).items() if not path.is_relative_to(WORK)}


def finished(fs: MemoryFileSystem) -> dict[Path, bytes]:
    ReadySwap(fs, StorePaths(ROOT)).finish()
    return files_of(fs)


def test_swap_mark_decides_moved_files() -> None:
    moved = finished(marked())
    assert sorted(moved) == [ROOT / "checkpoint", QUEUE / NEW.name]


def test_swap_across_two_disks_is_refused_whole() -> None:
    class Apart(MemoryFileSystem):
        def can_rename(self, source: Path, target: Path) -> bool:
            return target != ROOT / "index"

    fs = Apart()
    for path in (OLD, NEW, WORK / "index/1"):
        write(fs, path, path.name.encode())
    swap = FileSwap(fs, ROOT)
    swap.moves += [(NEW.parent, QUEUE, [NEW.name]), (WORK / "index", ROOT / "index", ["1"])]
    ReadySwap(fs, StorePaths(ROOT)).set(swap, Checkpoint(1, 2, 3), 0)
    before = files_of(fs)
    with pytest.raises(StoreError, match="store/index: lies on another disk or mount"):
        finished(fs)
    assert files_of(fs) == before


def test_swap_mark_with_wrong_bit_moves_all_or_nothing() -> None:
    fs = marked()
    before, moved = files_of(fs), finished(fs.kill_clone())
    for at in range(8 * len(before[MARK])):
        damaged = bytearray(before[MARK])
        damaged[at // 8] ^= 1 << at % 8
        one = fs.kill_clone()
        write(one, MARK, bytes(damaged))
        assert finished(one) in (unmoved(fs), moved)


def test_transient_read_error_at_log_end_does_not_undo_swap() -> None:
    fs = MemoryFileSystem()
    write(fs, OLD, b"old")
    write(fs, NEW, b"new")
    log = ROOT / "commitlog" / f"{0:020d}"
    write(fs, log, b"records" * 100)
    swap = FileSwap(fs, ROOT)
    swap.moves.append((NEW.parent, QUEUE, [NEW.name]))
    ReadySwap(fs, StorePaths(ROOT)).set(swap, Checkpoint(1, 2, 3), 700)
    faulty = FaultyFileSystem(fs.kill_clone())
    ReadySwap(faulty, StorePaths(ROOT)).finish()
    moved = files_of(faulty.inner)
    for k, (operation, path) in enumerate(faulty.operations, 1):
        if path != log:
            continue
        disk = fs.kill_clone()
        with pytest.raises(DiskError, match="Input/output error"):
            ReadySwap(FaultyFileSystem(disk, k, broken_disk), StorePaths(ROOT)).finish()
        assert files_of(disk) == files_of(fs), operation
        assert finished(disk) == moved


def test_transient_error_while_setting_mark_does_not_undo_swap() -> None:
    fs = MemoryFileSystem()
    write(fs, OLD, b"old")
    write(fs, NEW, b"new")
    write(fs, ROOT / "commitlog" / f"{0:020d}", b"records" * 100)
    swap = FileSwap(fs, ROOT)
    swap.moves.append((NEW.parent, QUEUE, [NEW.name]))
    for k in range(1, 4):
        disk = fs.kill_clone()
        faulty = FaultyFileSystem(disk, k, broken_disk)
        with suppress(DiskError):
            ReadySwap(faulty, StorePaths(ROOT)).set(swap, Checkpoint(1, 2, 3), 700)
            assert sorted(finished(disk)) == sorted(
                [ROOT / "checkpoint", QUEUE / NEW.name, ROOT / "commitlog" / f"{0:020d}"]
            ), faulty.operations[k - 1]


@pytest.mark.parametrize("raw", [b"{}", b"[]", b"null", b"7", b'{"logEnd":1}', b"\xff", b"[" * 100_000])
def test_invalid_swap_mark_moves_no_file(raw: bytes) -> None:
    fs = marked()
    write(fs, MARK, raw)
    assert finished(fs) == unmoved(marked())
    assert not fs.exists(WORK)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (NEW.parent, ROOT / "../out"),
        (NEW.parent, ROOT / "consumequeue/../../out"),
        (NEW.parent, ROOT / "config"),
        (NEW.parent, ROOT),
        (OLD.parent, ROOT / "index"),
        (WORK / "../commitlog", ROOT / "index"),
    ],
)
def test_swap_mark_with_path_outside_store_moves_nothing(source: Path, target: Path) -> None:
    assert finished(marked(source, target)) == unmoved(marked())


def test_unremovable_files_do_not_prevent_open() -> None:
    class Denying(MemoryFileSystem):
        def remove(self, path: Path) -> None:
            raise StorePermissionError(path, "Permission denied")

    fs = Denying()
    write(fs, NEW, b"new")
    assert finished(fs) == {NEW: b"new"}


@pytest.mark.parametrize("name", ["rebuild.tmp", "rebuild.tmp/link", "rebuild.tmp/sub/link"])
def test_symbolic_link_is_not_followed_at_clearing(tmp_path: Path, name: str) -> None:
    (tmp_path / "elsewhere/sub").mkdir(parents=True)
    (tmp_path / "elsewhere/sub/file").write_bytes(b"precious")
    store, fs = StorePaths(tmp_path / "store"), RealFileSystem()
    (store.root / name).parent.mkdir(parents=True)
    (store.root / name).symlink_to(tmp_path / "elsewhere")
    ReadySwap(fs, store).finish()
    if name == "rebuild.tmp":
        with pytest.raises(StoreError, match=r"rebuild\.tmp: is no directory of this store"):
            ReadySwap(fs, store).clear()
    else:
        assert not (store.root / "rebuild.tmp").exists()
    assert (tmp_path / "elsewhere/sub/file").read_bytes() == b"precious"


def test_file_with_name_of_directory_does_not_prevent_open(tmp_path: Path) -> None:
    (tmp_path / "rebuild.tmp").write_bytes(b"something else")
    ReadySwap(RealFileSystem(), StorePaths(tmp_path)).finish()
    assert (tmp_path / "rebuild.tmp").read_bytes() == b"something else"
