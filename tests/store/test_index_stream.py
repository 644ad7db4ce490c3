"""An index that is written past the page cache has the bytes of one that is written through its mapping."""

import random
import threading
from pathlib import Path

import numpy as np
import pytest

from faulty_file_system import FaultyFileSystem, broken_disk
from gantrymq.errors import DiskError, DiskFullError
from gantrymq.fs.api import FileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.store.index import index_stream
from gantrymq.store.index.index_service import IndexService
from gantrymq.store.log.record_batch import IndexEntries
from memory_file_system import MemoryFileSystem
from store_cases import ROOT, await_dispatch, bodies, numbered, open_store

PAGE = 4096


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_stream, "_BUFFER_BYTES", PAGE)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("IndexStream")]


def service(fs: FileSystem, folder: Path, slots: int, entries: int, *, streams: bool) -> IndexService:
    return IndexService(fs, folder, slots, entries, lambda end_ms: None, streams=streams)


def mapped_and_streamed(fs: FileSystem, folder: Path, slots: int, entries: int) -> list[IndexService]:
    return [service(fs, folder / str(streams), slots, entries, streams=streams) for streams in (False, True)]


def put(index: IndexService, numbers: np.ndarray) -> None:
    """Entries whose keys, places and times follow from their numbers, from 1 on."""
    entries = IndexEntries.of_each(numbers * 40_503 * 1_013 % 199_999, numbers * 100, numbers * 1_000)
    start = 0
    while start < len(numbers):
        start += index.put(entries, start, None)


def contents(fs: FileSystem, index: IndexService) -> list[tuple[str, bytes]]:
    return [(file.path.name, fs.open(file.path).read_at(0, file.size + 1)) for file in index.files]


@pytest.mark.parametrize("kind", [RealFileSystem, MemoryFileSystem])
def test_streamed_index_equals_mapped_index(kind: type[FileSystem], tmp_path: Path, rng: random.Random) -> None:
    for case in range(12):
        fs = kind()
        slots = rng.choice((1, 1000, 1014, 1015, rng.randrange(1, 5_000)))
        entries = rng.choice((60, 200, 3_000))
        folder = tmp_path / str(case)
        both = mapped_and_streamed(fs, folder, slots, entries)
        first = 1
        for _ in range(rng.randrange(1, 6)):
            numbers = np.arange(first, first + rng.choice((1, 7, 205, 999)), dtype=np.int64)
            first = int(numbers[-1]) + 1
            for index in both:
                put(index, numbers)
        for index in both:
            index.flush()
        mapped, streamed = (contents(fs, index) for index in both)
        assert streamed == mapped, f"{slots} slots, {entries} entries, {first - 1} put"
        assert [file.header for file in both[0].files] == [file.header for file in both[1].files]
        for index in both:
            index.close()
    assert not threads()


def test_index_entries_after_flush_are_written_through_mapping(tmp_path: Path) -> None:
    fs = RealFileSystem()
    both = mapped_and_streamed(fs, tmp_path, 300, 900)
    for index in both:
        put(index, np.arange(1, 400, dtype=np.int64))
        index.flush()
        put(index, np.arange(400, 700, dtype=np.int64))
    mapped, streamed = (contents(fs, index) for index in both)
    assert streamed == mapped
    assert both[0].query("t", "k", 10) == both[1].query("t", "k", 10)


def test_failing_disk_raises_and_leaves_no_thread(tmp_path: Path) -> None:
    failures = 0
    while True:
        fs = FaultyFileSystem(MemoryFileSystem(), fail_at=failures + 1, error=broken_disk)
        index = service(fs, ROOT / "index", 300, 900, streams=True)
        try:
            put(index, np.arange(1, 800, dtype=np.int64))
            index.flush()
            break
        except DiskError:
            failures += 1
        finally:
            index.close()
            assert not threads()
    assert failures > 5  # the table, four buffers and their rest


def test_missing_reserved_space_raises_each_time() -> None:
    """As on file systems that copy what is written: what is lost of the file does not come back."""
    fs = FaultyFileSystem(MemoryFileSystem())
    index = service(fs, ROOT / "index", 300, 2_000, streams=True)
    numbers = np.arange(1, 2_000, dtype=np.int64)
    put(index, numbers[:10])
    fs.fail_at = len(fs.operations) + 1  # one time
    with pytest.raises(DiskFullError):
        put(index, numbers[10:])
    with pytest.raises(DiskFullError):
        put(index, numbers[10:])
    with pytest.raises(DiskFullError):
        index.end_rewriting()
    index.close()
    assert not threads()


def test_failed_open_leaves_no_writer_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is released, and no thread writes the index under the next owner of the lock."""
    disk = MemoryFileSystem()
    with open_store(disk) as store:
        for message in numbered(300):
            store.put(message)
        await_dispatch(store)
        disk = disk.kill_clone()
    for entry in disk.scan(ROOT / "index"):
        disk.remove(ROOT / "index" / entry.name)

    def full(*_: object, **__: object) -> None:
        raise DiskFullError(ROOT / "consumequeue", 0)

    with monkeypatch.context() as patched:
        patched.setattr(IndexService, "end_rewriting", full)
        with pytest.raises(DiskFullError) as told:
            open_store(disk)
    assert not threads(), told  # whose frames hold the store that was not opened
    with open_store(disk) as again:
        assert len(bodies(again)) == 300


def test_index_on_nearly_full_disk_writes_what_fits() -> None:
    fs = MemoryFileSystem(capacity_bytes=2 << 20)
    index = service(fs, ROOT / "index", 200_000, 200_000, streams=True)
    put(index, np.arange(1, 100, dtype=np.int64))
    assert not threads()
    index.flush()
    assert fs._used_bytes() < 110 * PAGE
