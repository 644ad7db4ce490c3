"""The file system in memory: what is synced survives, what is not may not, and a full disk says so."""

from pathlib import Path

import numpy as np
import pytest

from gantrymq.errors import DiskFullError, StoreLockedError
from memory_file_system import PAGE_SIZE, MemoryFile, MemoryFileSystem

DIRECTORY = Path("/data")
PATH = DIRECTORY / "file"


def new_file(fs: MemoryFileSystem, pages: int = 8) -> MemoryFile:
    fs.make_directory(DIRECTORY)
    file = fs.open(PATH, writable=True, create=True)
    file.resize(pages * PAGE_SIZE)
    file.reserve(0, pages * PAGE_SIZE)
    return file


def after(fs: MemoryFileSystem, unsynced_fraction: float = 0.0, seed: int = 0, **options: int) -> bytes:
    clone = fs.crash_clone(unsynced_fraction, seed, **options)
    return clone.open(PATH).read_at(0, 1 << 30) if clone.exists(PATH) else b"no file"


def test_read_returns_written_bytes() -> None:
    file = new_file(MemoryFileSystem())
    file.write_at(10, b"hello")
    assert file.read_at(8, 9) == b"\0\0hello\0\0"
    assert file.read_at(8 * PAGE_SIZE - 2, 9) == b"\0\0"
    file.write_at(8 * PAGE_SIZE, b"more")
    assert file.size() == 8 * PAGE_SIZE + 4


def test_mapping_shares_bytes_with_file() -> None:
    fs = MemoryFileSystem()
    file = new_file(fs)
    array = file.map()
    array[3:6] = np.frombuffer(b"abc", np.uint8)
    assert fs.open(PATH).read_at(3, 3) == b"abc"
    file.write_at(4, b"X")
    assert array[4] == ord("X")
    with pytest.raises(ValueError, match="read-only"):
        fs.open(PATH).map()[0] = 1


def test_power_cut_may_drop_unsynced_bytes() -> None:
    fs = MemoryFileSystem()
    file = new_file(fs)
    assert after(fs) == b"no file"
    fs.sync_directory(DIRECTORY)
    assert after(fs) == b""
    file.sync()
    file.write_at(0, b"later")
    assert after(fs) == bytes(8 * PAGE_SIZE)
    file.sync()
    assert after(fs)[:5] == b"later"


def test_kill_keeps_unsynced_bytes() -> None:
    fs = MemoryFileSystem()
    file = new_file(fs)
    file.map()[:] = 7
    assert after(fs, 1.0) == bytes([7]) * 8 * PAGE_SIZE


def test_kill_loses_nothing_and_makes_nothing_durable() -> None:
    fs = MemoryFileSystem()
    file = new_file(fs)
    file.sync()
    fs.sync_directory(DIRECTORY)
    file.map()[:] = 7
    fs.open(DIRECTORY / "new", create=True)
    killed = fs.kill_clone()
    assert after(killed, 1.0) == bytes([7]) * 8 * PAGE_SIZE
    assert after(killed, 0.0) == bytes(8 * PAGE_SIZE)
    assert [entry.name for entry in killed.scan(DIRECTORY)] == ["file", "new"]
    assert [entry.name for entry in killed.crash_clone(0.0, 0).scan(DIRECTORY)] == ["file"]
    killed.open(PATH).sync()
    assert after(killed, 0.0) == bytes([7]) * 8 * PAGE_SIZE
    assert after(fs, 0.0) == bytes(8 * PAGE_SIZE)


def test_power_cut_tears_between_units(seed: int) -> None:
    fs = MemoryFileSystem()
    file = new_file(fs, pages=64)  # with 8 all units of a seed in a hundred had one value
    fs.sync_directory(DIRECTORY)
    file.sync()
    file.map()[:] = 7
    for unit_bytes in (PAGE_SIZE, 512):
        left = np.frombuffer(after(fs, 0.5, seed, unit_bytes=unit_bytes), np.uint8).reshape(-1, unit_bytes)
        assert {tuple(set(unit.tolist())) for unit in left} == {(0,), (7,)}
        assert after(fs, 0.5, seed, unit_bytes=unit_bytes) == left.tobytes()


def test_power_cut_drops_suffix_of_name_changes(seed: int) -> None:
    fs = MemoryFileSystem()
    fs.make_directory(DIRECTORY)
    for number in range(5):
        fs.open(DIRECTORY / str(number), create=True)
    counts = set()
    for shift in range(50):
        names = [entry.name for entry in fs.crash_clone(0.7, seed + shift).scan(DIRECTORY)]
        assert names == [str(number) for number in range(len(names))]
        counts.add(len(names))
    assert len(counts) > 2


def test_files_of_lost_directory_are_lost() -> None:
    fs = MemoryFileSystem()
    for name in ("kept", "lost"):
        fs.make_directory(DIRECTORY / name, synced=name == "kept")
        fs.open(DIRECTORY / name / "file", create=True)
        fs.sync_directory(DIRECTORY / name)
    left = fs.crash_clone(0.0, 0)
    assert [entry.name for entry in left.scan(DIRECTORY)] == ["kept"]
    left.make_directory(DIRECTORY / "lost")
    assert not left.exists(DIRECTORY / "lost" / "file")
    assert left.exists(DIRECTORY / "kept" / "file")


def test_rename_is_atomic(seed: int) -> None:
    fs = MemoryFileSystem()
    fs.make_directory(DIRECTORY)
    for name, text in (("file", b"old"), ("new", b"new")):
        file = fs.open(DIRECTORY / name, writable=True, create=True)
        file.write_at(0, text)
        file.sync()
    fs.sync_directory(DIRECTORY)
    fs.rename(DIRECTORY / "new", PATH)
    assert after(fs, 0.0) == b"old"
    assert after(fs, 1.0) == b"new"
    fs.sync_directory(DIRECTORY)
    assert after(fs, 0.0) == b"new"
    assert [entry.name for entry in fs.scan(DIRECTORY)] == ["file"]


def test_removed_file_returns_after_power_cut_without_directory_sync() -> None:
    fs = MemoryFileSystem()
    new_file(fs).sync()
    fs.sync_directory(DIRECTORY)
    fs.remove(PATH)
    assert not fs.exists(PATH)
    assert len(after(fs)) == 8 * PAGE_SIZE
    fs.sync_directory(DIRECTORY)
    assert after(fs) == b"no file"


def test_full_disk_raises_and_changes_nothing() -> None:
    fs = MemoryFileSystem(capacity_bytes=10 * PAGE_SIZE)
    file = new_file(fs)
    assert fs.used_ratio(PATH) == 0.8
    other = fs.open(DIRECTORY / "other", writable=True, create=True)
    with pytest.raises(DiskFullError, match=str(3 * PAGE_SIZE)):
        other.reserve(0, 3 * PAGE_SIZE)
    with pytest.raises(DiskFullError):
        other.write_at(0, bytes(2 * PAGE_SIZE + 1))
    assert other.size() == 0
    other.write_at(0, bytes(2 * PAGE_SIZE))
    file.zero(PAGE_SIZE - 1, PAGE_SIZE + 1)
    assert fs.used_ratio(PATH) == 0.9
    fs.remove(PATH)
    assert fs.used_ratio(PATH) == 0.2
    fs.simulated_used_ratio = 0.95
    assert fs.used_ratio(PATH) == 0.95


def test_mapped_write_without_space_is_found() -> None:
    fs = MemoryFileSystem()
    fs.make_directory(DIRECTORY)
    file = fs.open(PATH, writable=True, create=True)
    file.resize(4 * PAGE_SIZE)
    file.reserve(0, PAGE_SIZE)
    file.map()[2 * PAGE_SIZE] = 1
    with pytest.raises(AssertionError, match="page 2 was written through a mapping without space"):
        file.sync()


def test_zeroed_range_reads_as_zeros() -> None:
    file = new_file(MemoryFileSystem())
    file.map()[:] = 7
    file.zero(5, 3 * PAGE_SIZE)
    assert file.read_at(0, 8 * PAGE_SIZE) == b"\7" * 5 + bytes(3 * PAGE_SIZE) + b"\7" * (5 * PAGE_SIZE - 5)


def test_directories_are_created_and_listed() -> None:
    fs = MemoryFileSystem()
    with pytest.raises(FileNotFoundError):
        fs.open(PATH, create=True)
    with pytest.raises(FileNotFoundError):
        fs.open(PATH)
    fs.make_directory(DIRECTORY / "a" / "b")
    fs.open(DIRECTORY / "z", create=True)
    assert [(entry.name, entry.is_directory) for entry in fs.scan(DIRECTORY)] == [("a", True), ("z", False)]
    fs.remove_directory(DIRECTORY / "a")
    assert fs.exists(DIRECTORY / "a" / "b")
    fs.remove_directory(DIRECTORY / "a" / "b")
    assert not fs.exists(DIRECTORY / "a" / "b")
    assert fs.scan(DIRECTORY / "nowhere") == []


def test_lock_has_one_holder() -> None:
    fs = MemoryFileSystem()
    fs.make_directory(DIRECTORY)
    held = fs.lock(PATH, b"lock")
    with pytest.raises(StoreLockedError):
        fs.lock(PATH, b"lock")
    assert fs.crash_clone(1.0, 0).lock(PATH, b"lock")
    held.release()
    held.release()
    fs.lock(PATH, b"lock")
    assert fs.open(PATH).read_at(0, 9) == b"lock"


def test_later_sync_does_not_save_pages_that_failed_sync_dropped() -> None:
    fs = MemoryFileSystem()
    file = new_file(fs)
    file.sync()
    fs.sync_directory(DIRECTORY)
    file.map()[:] = 7
    file.give_up()
    file.map()[PAGE_SIZE : 2 * PAGE_SIZE] = 8
    file.sync()
    assert after(fs, 0.0) == bytes(PAGE_SIZE) + bytes([8]) * PAGE_SIZE + bytes(6 * PAGE_SIZE)
    assert after(fs.kill_clone(), 1.0)[:PAGE_SIZE] == bytes([7]) * PAGE_SIZE, "who reads the page sees what was written"
    file.map()[0] = 9
    file.sync()
    assert after(fs, 0.0)[:PAGE_SIZE] == bytes([9]) + bytes([7]) * (PAGE_SIZE - 1), "written again, it is dirty again"
    file.map()[:PAGE_SIZE] = 5
    file.give_up()
    file.write_at(0, bytes([5]) * PAGE_SIZE)
    file.sync()
    assert after(fs, 0.0)[:PAGE_SIZE] == bytes([5]) * PAGE_SIZE, "also where the very same bytes are written"


def test_kill_after_removal_keeps_file_removed() -> None:
    fs = MemoryFileSystem()
    new_file(fs)
    fs.open(DIRECTORY / "gone", create=True)
    fs.remove(DIRECTORY / "gone")
    assert not fs.kill_clone().exists(DIRECTORY / "gone")


def test_recreated_directory_survives_power_cut() -> None:
    fs = MemoryFileSystem()
    fs.make_directory(DIRECTORY / "a")
    fs.remove_directory(DIRECTORY / "a")
    fs.make_directory(DIRECTORY / "a")
    assert [entry.name for entry in fs.crash_clone(1.0, 0).scan(DIRECTORY)] == ["a"]
