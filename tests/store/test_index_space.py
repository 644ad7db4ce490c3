"""The space of an index file: all of it where the disk has room, else the pages that entries touch."""

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from faulty_file_system import FaultyFileSystem, broken_disk
from gantrymq.errors import DiskError, DiskFullError, SyncFailedError
from gantrymq.model.message import Message
from gantrymq.store.index.index_file import IndexFile
from gantrymq.store.index.index_service import IndexService
from gantrymq.store.log.record_batch import IndexEntries
from memory_file_system import MemoryFileSystem
from store_cases import ROOT, SMALL, await_dispatch, bodies, open_store

PAGE = 4096
MIB = 1 << 20


def service(fs: MemoryFileSystem, slots: int, entries: int) -> IndexService:
    return IndexService(fs, ROOT / "index", slots, entries, lambda end_ms: None)


def put(index: IndexService, first: int, count: int) -> None:
    numbers = np.arange(first, first + count, dtype=np.int64)
    entries = IndexEntries.of_each(numbers * 40_503 * 1_013 % 199_999, numbers * 100, numbers)
    assert index.put(entries, 0, 1) == count


def put_on(index: IndexService, first: int) -> None:
    while first := first + 100:
        put(index, first, 100)


def test_index_file_reserves_its_whole_space() -> None:
    fs = MemoryFileSystem(capacity_bytes=4 * MIB)
    index = service(fs, 50_000, 50_000)
    put(index, 1, 1)
    assert fs._used_bytes() >= 50_000 * 24


def test_index_file_on_nearly_full_disk_allocates_only_used_pages() -> None:
    fs = MemoryFileSystem(capacity_bytes=2 * MIB)
    index = service(fs, 200_000, 200_000)
    put(index, 1, 100)
    used = fs._used_bytes()
    assert 100 * PAGE < used < 110 * PAGE
    index.flush()  # where a page was written that has no space the simulated disk fails the test here
    with pytest.raises(DiskFullError):
        put_on(index, 101)
    assert fs._used_bytes() <= MIB
    index.flush()
    before = index.files[-1].header.index_count
    fs.capacity_bytes = None
    put(index, 20_000, 100)
    assert index.files[-1].header.index_count == before + 100


def test_index_file_with_failed_begin_is_absent_after_power_cut() -> None:
    """The checkpoint does not cover the file before it, because its disk had an error."""
    fs, is_broken = MemoryFileSystem(), True

    def full_file_flushed(end_ms: int) -> None:
        if is_broken:
            raise DiskError(ROOT / "checkpoint", "Input/output error")

    index = IndexService(fs, ROOT / "index", 10, 5, full_file_flushed)
    put(index, 1, 4)
    with pytest.raises(DiskError):
        put(index, 5, 1)
    index.flush()
    for disk in (fs, *(fs.crash_clone(0.5, seed) for seed in range(20))):
        assert len(disk.scan(ROOT / "index")) == 1
    is_broken = False
    put(index, 5, 1)
    assert len(fs.scan(ROOT / "index")) == 2


@pytest.mark.parametrize("tries_again", [False, True])
def test_old_index_file_with_failed_rewrite_is_removed(tries_again: bool) -> None:
    """A recovery could not vouch for the file before it: the checkpoint's disk was full."""
    fs, is_full = MemoryFileSystem(), False

    def full_file_flushed(end_ms: int) -> None:
        if is_full:
            raise DiskFullError(ROOT / "checkpoint", PAGE)

    killed = IndexService(fs, ROOT / "index", 10, 5, full_file_flushed)
    for first in (1, 5, 9):
        put(killed, first, 4)
    killed.close()
    index = IndexService(fs, ROOT / "index", 10, 5, full_file_flushed)
    assert len(index.load(newest_ms=0)) == 3
    put(index, 1, 4)
    is_full = True
    with pytest.raises(DiskFullError):
        put(index, 5, 2)
    is_full = False
    if tries_again:
        put(index, 5, 2)
    index.end_rewriting()
    assert [entry.name for entry in fs.scan(ROOT / "index")] == [file.path.name for file in index.files]
    found = [file.header.index_count - 1 for file in index.files]
    assert found == ([4, 2] if tries_again else [4])
    words = fs.open(index.files[-1].path).view(40, 10 * 4 + 5 * 20).view(">i4")
    assert np.count_nonzero(words[10 + 5 :].reshape(-1, 5).any(axis=1)) == found[-1], (
        "entries of before are still there"
    )


def test_failed_sync_is_raised_though_new_file_cannot_be_removed() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), error=broken_disk, keeps_failing=True)

    def full_file_flushed(end_ms: int) -> None:
        fs.fail_at = len(fs.operations) + 1
        raise SyncFailedError(ROOT / "checkpoint", "Input/output error")

    index = IndexService(fs, ROOT / "index", 10, 5, full_file_flushed)
    put(index, 1, 4)
    with pytest.raises(SyncFailedError):
        put(index, 5, 1)


def test_damaged_count_of_slots_does_not_block_start() -> None:
    fs = MemoryFileSystem()
    index = service(fs, 10, 5)
    put(index, 1, 1)
    path = index.files[0].path
    index.close()
    fs.open(path, writable=True).write_at(32, b"\x7f\xff\xff\xff")
    again = service(fs, 10, 5)
    again.load()
    put(again, 2, 1)
    assert again.files[0].header.hash_slot_count == 11


def test_index_without_space_delays_no_queue_and_catches_up_later() -> None:
    fs = MemoryFileSystem()
    with open_store(fs, config=SMALL) as store:
        messages = [Message("orders", b"%08d" % number, keys=[f"key-{number}"]) for number in range(600)]
        for message in messages[:150]:
            store.put(message)
        await_dispatch(store)
        fs.capacity_bytes = fs._used_bytes() + 100 * PAGE  # log and queues, but not another index file
        for message in messages[150:300]:
            store.put(message)
        await_dispatch(store)
        assert len(bodies(store)) == 300
        fs.capacity_bytes = None
        for message in messages[300:]:
            store.put(message)
    with open_store(fs, config=SMALL) as store:
        assert store.recovery.last_exit_ok
        for number in range(600):
            assert [one.body for one in store.query("orders", f"key-{number}")] == [b"%08d" % number]


class ReadMeanwhile(tuple[IndexFile, ...]):
    """A list of files that somebody is at work on, while ``meanwhile`` is done by another."""

    meanwhile: Callable[[], object]

    def __iter__(self) -> Iterator[IndexFile]:
        other = threading.Thread(target=self.meanwhile)
        other.start()
        other.join(0.2)  # or it waits until this one is done
        return super().__iter__()


def test_index_file_removed_by_retention_stays_removed() -> None:
    fs = MemoryFileSystem()
    index = service(fs, 10, 5)
    put(index, 1, 4)
    put(index, 5, 4)
    expired = index.files[0]
    index._files = files = ReadMeanwhile(index.files)
    files.meanwhile = lambda: index.remove_expired(expired.header.end_phy_offset + 1)
    put(index, 9, 4)
    deadline = time.monotonic() + 20
    while fs.exists(expired.path):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert [file.path.name for file in index.files] == [entry.name for entry in fs.scan(ROOT / "index")]
