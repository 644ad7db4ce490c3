"""Files in a row: one address space over them, growing at its end and shrinking at both."""

import threading
from pathlib import Path

import pytest

from faulty_file_system import FaultyFileSystem, broken_disk
from gantrymq.errors import DiskError, DiskFullError, MissingFileError, WrongFileSizeError
from gantrymq.format.names import offset_name
from gantrymq.fs.api import FileSystem
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.log.mapped_file_queue import MappedFileQueue
from memory_file_system import MemoryFileSystem

DIRECTORY = Path("/store/log")
SIZE = 8192


def new_queue(fs: FileSystem, *, reserve_space: bool = True) -> MappedFileQueue:
    return MappedFileQueue(fs, DIRECTORY, SIZE, reserve_space=reserve_space, remedy="")


def filled(fs: MemoryFileSystem, length: int, start: int = 0) -> MappedFileQueue:
    """A queue with ``length`` bytes, each the number of its file plus one."""
    queue = new_queue(fs)
    while length:
        file = queue.last_for_append(start)
        part = min(length, SIZE - file.wrote_position)
        file.append(bytes([file.file_from_offset // SIZE + 1]) * part)
        length -= part
    return queue


def durable(fs: MemoryFileSystem, seed: int) -> MappedFileQueue:
    """What a power cut leaves of the queue that takes all it can."""
    queue = new_queue(fs.crash_clone(0.0, seed))
    queue.load()
    return queue


def names(fs: MemoryFileSystem) -> list[str]:
    return [entry.name for entry in fs.scan(DIRECTORY)]


def contents(queue: MappedFileQueue) -> bytes:
    return b"".join(file.file.read_at(0, SIZE) for file in queue.files)


def test_empty_file_queue_has_offset_0() -> None:
    queue = new_queue(MemoryFileSystem())
    queue.load()
    assert (queue.min_offset, queue.max_offset, queue.first, queue.last) == (-1, 0, None, None)
    assert queue.find(0, first_if_missing=True) is None
    assert queue.select(0, 1) is None
    assert queue.flush()
    assert queue.truncate_dirty(0, wipe=True) == []


def test_file_queue_grows_by_one_file() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 2 * SIZE + 100)
    assert names(fs) == [offset_name(0), offset_name(SIZE), offset_name(2 * SIZE)]
    assert (queue.min_offset, queue.max_offset) == (0, 2 * SIZE + 100)
    assert [file.is_full for file in queue.files] == [True, True, False]


def test_file_queue_begins_with_file_of_first_byte() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 10, start=5 * SIZE + 77)
    assert names(fs) == [offset_name(5 * SIZE)]
    assert (queue.min_offset, queue.max_offset) == (5 * SIZE, 5 * SIZE + 10)


def test_loaded_files_count_as_full() -> None:
    fs = MemoryFileSystem()
    filled(fs, SIZE + 5)
    queue = new_queue(fs)
    queue.load()
    assert queue.max_offset == 2 * SIZE
    assert {file.flushed_position for file in queue.files} == {SIZE}


def test_find_returns_file_of_offset() -> None:
    queue = filled(MemoryFileSystem(), 3 * SIZE, start=4 * SIZE)
    assert [getattr(queue.find(offset), "file_from_offset", None) for offset in (-1, 0, 4 * SIZE - 1)] == [None] * 3
    first, second, third = queue.files
    assert queue.find(4 * SIZE) is queue.find(5 * SIZE - 1) is first
    assert queue.find(5 * SIZE) is second
    assert queue.find(7 * SIZE - 1) is third
    assert queue.find(7 * SIZE) is None
    assert queue.find(0, first_if_missing=True) is first


def test_roll_returns_start_of_next_file() -> None:
    queue = new_queue(MemoryFileSystem())
    assert [queue.roll_next_file(offset) for offset in (0, 1, SIZE - 1, SIZE)] == [SIZE, SIZE, SIZE, 2 * SIZE]


def test_select_returns_only_written_bytes() -> None:
    queue = filled(MemoryFileSystem(), SIZE + 100)
    with queue.select(SIZE + 10, 90) as held:  # type: ignore[union-attr]
        assert (held.start_offset, held.size, bytes(held.array)) == (SIZE + 10, 90, b"\2" * 90)
    assert queue.select(SIZE + 10, 91) is None
    assert queue.select(SIZE - 1, 2) is None
    assert queue.select(3 * SIZE, 1) is None
    assert queue.select(SIZE, -1) is None


# Loading


def add_file(fs: MemoryFileSystem, name: str, size: int) -> Path:
    fs.make_directory(DIRECTORY)
    file = fs.open(DIRECTORY / name, writable=True, create=True)
    file.resize(size)
    return DIRECTORY / name


@pytest.mark.parametrize(
    ("name", "size"),
    [
        (offset_name(2 * SIZE), SIZE - 1),
        (offset_name(2 * SIZE), SIZE + 1),
        (offset_name(2 * SIZE + 1), SIZE),
    ],
)
def test_log_file_of_wrong_size_is_named_and_nothing_is_changed(name: str, size: int) -> None:
    fs = MemoryFileSystem()
    filled(fs, 2 * SIZE)
    odd = add_file(fs, name, size)
    before = names(fs)
    with pytest.raises(WrongFileSizeError) as refused:
        new_queue(fs).load()
    assert refused.value.path == odd
    assert names(fs) == before


@pytest.mark.parametrize("name", [offset_name(2 * SIZE)[1:], "copy", f"{offset_name(0)}.bak", ".nfs0001", "٠" * 20])
@pytest.mark.parametrize("size", [0, 1, SIZE])
def test_foreign_file_is_left_alone(name: str, size: int) -> None:
    fs = MemoryFileSystem()
    filled(fs, 2 * SIZE)
    add_file(fs, name, size)
    before = names(fs)
    queue = new_queue(fs)
    queue.load()
    assert (len(queue.files), names(fs)) == (2, before)


def test_missing_file_in_middle_is_named() -> None:
    fs = MemoryFileSystem()
    filled(fs, SIZE)
    add_file(fs, offset_name(3 * SIZE), SIZE)
    with pytest.raises(MissingFileError, match="and 1 more") as refused:
        new_queue(fs).load()
    assert (refused.value.path, refused.value.end) == (DIRECTORY / offset_name(SIZE), 3 * SIZE)


def test_refused_load_removes_no_empty_file() -> None:
    fs = MemoryFileSystem()
    filled(fs, SIZE)
    add_file(fs, offset_name(SIZE), 1)
    add_file(fs, offset_name(2 * SIZE), 0)
    before = names(fs)
    with pytest.raises(WrongFileSizeError):
        new_queue(fs).load()
    assert names(fs) == before


def test_empty_files_at_end_are_removed() -> None:
    fs = MemoryFileSystem()
    filled(fs, SIZE)
    add_file(fs, offset_name(SIZE), 0)
    add_file(fs, offset_name(2 * SIZE), 0)
    queue = new_queue(fs)
    queue.load()
    assert queue.max_offset == SIZE
    assert len(names(fs)) == 3, "a load changes nothing"
    queue.drop_empty()
    assert names(fs) == [offset_name(0)]


def test_directory_among_files_is_passed_over() -> None:
    fs = MemoryFileSystem()
    filled(fs, SIZE)
    fs.make_directory(DIRECTORY / "lost+found")
    queue = new_queue(fs)
    queue.load()
    assert queue.max_offset == SIZE


# Truncating


@pytest.mark.parametrize("keep", [0, 1, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE, 2 * SIZE + 100])
def test_truncation_keeps_earlier_bytes(keep: int) -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 2 * SIZE + 100)
    whole = contents(queue)
    removed = queue.truncate_dirty(keep, wipe=True)
    assert queue.max_offset == keep
    assert contents(queue)[:keep] == whole[:keep]
    assert not any(contents(queue)[keep:])
    assert queue.committed_where == keep
    assert set(removed).isdisjoint(DIRECTORY / name for name in names(fs))
    assert [file.path.name for file in queue.files] == names(fs)


def test_truncation_survives_power_cut(seed: int) -> None:
    """The wiped tail is durable before anything new stands in front of it: else old records join on to new ones."""
    fs = MemoryFileSystem()
    queue = filled(fs, SIZE)
    queue.flush_all()
    queue.truncate_dirty(100, wipe=True)
    queue.flush_all()
    left = fs.crash_clone(0.0, seed).open(DIRECTORY / offset_name(0)).read_at(0, SIZE)
    assert left == b"\1" * 100 + bytes(SIZE - 100)


@pytest.mark.parametrize("keep", [1, SIZE, SIZE + 1, 2 * SIZE + 100])
def test_flush_after_truncation_covers_earlier_bytes(keep: int, seed: int) -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 2 * SIZE + 100)
    whole = contents(queue)
    queue.truncate_dirty(keep, wipe=False)
    assert queue.flushed_where == 0
    queue.flush_all()
    assert queue.flushed_where == keep
    left = fs.crash_clone(0.0, seed)
    for number, at in enumerate(range(0, keep, SIZE)):
        length = min(SIZE, keep - at)
        file = left.open(DIRECTORY / offset_name(number * SIZE))
        assert file.read_at(0, length) == whole[at : at + length]


def test_loaded_bytes_count_as_flushed() -> None:
    fs = MemoryFileSystem()
    filled(fs, 2 * SIZE)
    queue = new_queue(fs)
    queue.load()
    assert queue.flushed_where == queue.committed_where == 2 * SIZE
    queue.truncate_dirty(SIZE + 7, wipe=False)
    assert queue.flushed_where == queue.committed_where == SIZE + 7


def test_wiped_and_removed_file_needs_no_sync() -> None:
    queue = filled(MemoryFileSystem(), SIZE)
    queue.truncate_dirty(100, wipe=True)
    queue.clear()
    assert queue.last_for_append(3 * SIZE).file_from_offset == 3 * SIZE


def test_truncation_without_wipe_keeps_bytes() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, SIZE + 10)
    queue.truncate_dirty(SIZE + 5, wipe=False)
    assert contents(queue)[SIZE : SIZE + 12] == b"\2" * 10 + b"\0\0"
    assert queue.max_offset == SIZE + 5


def test_files_are_removed_newest_first(seed: int) -> None:
    """A crash on the way leaves an unbroken run of files."""
    fs = MemoryFileSystem()
    queue = filled(fs, 6 * SIZE)
    queue.flush_all()
    before = fs.crash_clone(1.0, 0)
    again = new_queue(before)
    again.load()
    again.truncate_dirty(SIZE + 1, wipe=True)
    for shift in range(20):
        new_queue(before.crash_clone(0.5, seed + shift)).load()


def test_expired_files_are_removed_except_last() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 3 * SIZE)
    assert queue.remove_before(0) == []
    assert queue.remove_before(1) == [DIRECTORY / offset_name(0)]
    assert (queue.min_offset, queue.max_offset) == (SIZE, 3 * SIZE)
    assert queue.remove_before(99) == [DIRECTORY / offset_name(SIZE)]
    assert names(fs) == [offset_name(2 * SIZE)]
    assert queue.remove_before(1) == []


def test_file_is_kept_until_later_file_is_durable(seed: int) -> None:
    """Else a power cut leaves nothing of a log that is thousands of files on: it began at 0 again."""
    fs = MemoryFileSystem()
    queue = filled(fs, SIZE + 100)
    assert not queue.remove_first(0, 0)
    assert not queue.flush()  # the first file is durable, and that the log goes on behind it is not
    assert queue.flushed_where == SIZE
    assert not queue.remove_first(0, 0)
    queue.flush_all()
    assert queue.remove_first(0, 0)
    assert durable(fs, seed).min_offset == SIZE


def test_flushed_file_before_empty_file_can_be_removed(seed: int) -> None:
    """On a full disk nothing will be put into the last one, and yet there must be room some day."""
    fs = MemoryFileSystem()
    queue = filled(fs, SIZE)
    queue.last_for_append()
    assert not queue.remove_first(0, 0)
    queue.flush_all()
    assert queue.remove_first(0, 0)
    assert durable(fs, seed).min_offset == SIZE


def test_destroy_removes_all_files() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 2 * SIZE)
    assert len(queue.destroy()) == 2
    assert not fs.exists(DIRECTORY)
    assert queue.max_offset == 0


# Flushing


def test_flush_proceeds_file_by_file() -> None:
    queue = filled(MemoryFileSystem(), 2 * SIZE + 100)
    assert not queue.flush()
    assert queue.flushed_where == SIZE
    assert not queue.flush()
    assert queue.flushed_where == 2 * SIZE
    assert not queue.flush()
    assert queue.flushed_where == 2 * SIZE + 100
    assert queue.flush()


def test_flush_all_covers_every_file() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 3 * SIZE + 1)
    queue.flush_all()
    assert queue.flushed_where == queue.max_offset
    left = new_queue(fs.crash_clone(0.0, 0))
    left.load()
    assert contents(left) == contents(queue)


def test_flush_with_minimum_pages_waits_for_them() -> None:
    queue = filled(MemoryFileSystem(), 4095)
    assert queue.flush(1)
    assert queue.flushed_where == 0
    queue.last_for_append().append(b"x")
    assert not queue.flush(1)
    assert queue.flushed_where == 4096


# Space


def test_full_disk_leaves_no_half_made_file() -> None:
    fs = MemoryFileSystem(capacity_bytes=SIZE + 4096)
    queue = filled(fs, SIZE)
    with pytest.raises(DiskFullError):
        queue.last_for_append()
    assert names(fs) == [offset_name(0)]
    assert queue.max_offset == SIZE
    fs.capacity_bytes = 2 * SIZE
    assert queue.last_for_append().file_from_offset == SIZE


def test_file_without_reserved_space_allocates_nothing() -> None:
    fs = MemoryFileSystem(capacity_bytes=4096)
    queue = new_queue(fs, reserve_space=False)
    queue.last_for_append().append(bytes(100))
    assert queue.max_offset == 100


# The file that is made ahead


def test_next_file_is_prepared_once_and_used() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 10)
    assert queue.prepare_next(warm=False)
    assert not queue.prepare_next(warm=True)
    assert names(fs) == [offset_name(0), offset_name(SIZE)]
    assert len(queue.files) == 1
    queue.last_for_append().append(bytes(SIZE - 10))
    queue.last_for_append().append(b"second")
    assert names(fs) == [offset_name(0), offset_name(SIZE)]
    queue.drop_ahead()
    assert names(fs) == [offset_name(0), offset_name(SIZE)]


def test_unused_prepared_file_is_removed() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 10)
    queue.prepare_next(warm=True)
    queue.drop_ahead()
    assert names(fs) == [offset_name(0)]
    queue.last_for_append().append(bytes(SIZE - 10))
    assert queue.last_for_append().file_from_offset == SIZE


def test_file_in_use_is_not_mistaken_for_prepared_one() -> None:
    """The allocator looks just when a writer has taken the file that was made ahead, but not yet listed it."""
    fs = MemoryFileSystem()
    allocators: list[threading.Thread] = []

    def allocator_comes(file: MappedFile) -> None:
        allocators.append(threading.Thread(target=lambda: queue.prepare_next(warm=False)))
        allocators[-1].start()
        allocators[-1].join(0.1)

    queue = MappedFileQueue(fs, DIRECTORY, SIZE, reserve_space=True, on_new_file=allocator_comes, remedy="")
    for number in range(4):
        queue.last_for_append().append(bytes([number + 1]) * SIZE)
        for allocator in allocators:
            allocator.join()
    queue.drop_ahead()
    queue.flush_all()
    assert names(fs) == [offset_name(number * SIZE) for number in range(4)]
    left = new_queue(fs)
    left.load()
    assert contents(left) == b"".join(bytes([number + 1]) * SIZE for number in range(4))


def test_data_end_of_file_is_after_last_nonzero_byte() -> None:
    fs = MemoryFileSystem()
    filled(fs, SIZE)
    queue = new_queue(fs)
    queue.load()
    [file] = queue.files
    file.array[:] = 0
    assert [file.data_end(position) for position in (0, 7, SIZE)] == [0, 7, SIZE]
    file.array[9] = 1
    file.array[SIZE - 2] = 1
    assert [file.data_end(position) for position in (0, 9, SIZE - 2, SIZE - 1)] == [
        SIZE - 1,
        SIZE - 1,
        SIZE - 1,
        SIZE - 1,
    ]


@pytest.mark.parametrize("way", ["one", "several"])
def test_failed_removal_keeps_all_later_files(way: str) -> None:
    disk = MemoryFileSystem()
    filled(disk, 3 * SIZE + 100)
    faulty = FaultyFileSystem(disk, error=broken_disk)
    queue = new_queue(faulty)
    queue.load()

    def remove() -> None:
        if way == "one":
            queue.remove_first(0, 0)
        else:
            queue.remove_before(2)

    faulty.fail_at = len(faulty.operations) + 1
    with pytest.raises(DiskError):
        remove()
    assert names(disk) == [offset_name(number * SIZE) for number in range(4)]
    assert contents(queue)[:3] == b"\1" * 3
    found = queue.select(0, 3)
    assert found is not None
    found.release()
    remove()
    assert names(disk) == [offset_name(number * SIZE) for number in range(1 if way == "one" else 2, 4)]
    assert [file.path.name for file in queue.files] == names(disk)


# Files that are set aside


def test_set_aside_files_are_overwritten_and_others_removed() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 4 * SIZE - 10)
    queue.truncate_dirty(10, wipe=False, sets_aside=True)
    assert (queue.max_offset, len(queue.files), len(names(fs))) == (10, 1, 4)
    for length in (SIZE - 10, 100):
        queue.last_for_append().append(b"n" * length)
    assert contents(queue) == b"\1" * 10 + b"n" * SIZE + b"n" * 90 + b"\2" * (SIZE - 100)
    queue.truncate_dirty(queue.max_offset, wipe=True)
    queue.drop_ahead()
    queue.flush_all()
    for one in (queue, durable(fs, 0)):
        assert contents(one) == b"\1" * 10 + b"n" * SIZE + b"n" * 90 + bytes(SIZE - 100)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_failed_removal_of_files_set_aside_leaves_no_gap(failing: int) -> None:
    disk = MemoryFileSystem()
    filled(disk, 4 * SIZE)
    faulty = FaultyFileSystem(disk, error=broken_disk)
    queue = new_queue(faulty)
    queue.load()
    queue.truncate_dirty(10, wipe=False, sets_aside=True)
    faulty.fail_at = len(faulty.operations) + failing + 1
    with pytest.raises(DiskError):
        queue.drop_ahead()
    assert names(disk) == [offset_name(number * SIZE) for number in range(4 - failing)]
    assert (queue.max_offset, len(queue.files)) == (10, 1)


def test_destroy_removes_files_set_aside() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 3 * SIZE)
    queue.truncate_dirty(10, wipe=False, sets_aside=True)
    queue.destroy()
    assert not fs.exists(DIRECTORY)
