"""One consume queue: its units go on over many files, end where the log ends, and begin where the log begins."""

import itertools
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from faulty_file_system import FaultyFileSystem, broken_disk
from gantrymq.errors import DiskError, DiskFullError
from gantrymq.format.names import offset_name
from gantrymq.format.queue_entry import BLANK_UNIT_SIZE, PRE_BLANK, UNIT_SIZE, QueueEntry, encode_entry
from gantrymq.format.queue_ext import QueueExtUnit, is_address
from gantrymq.format.record import SECTOR
from gantrymq.fs.api import FileSystem
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.queue.consume_queue_ext import ConsumeQueueExt
from memory_file_system import MemoryFileSystem

ROOT = Path("/store/consumequeue")
EXT_ROOT = Path("/store/consumequeue_ext")
UNITS_A_FILE = 20
FILE_SIZE = UNITS_A_FILE * UNIT_SIZE
RECORD = 100
LOG_LIMIT = 1000 * RECORD
DIRECTORY = ROOT / "orders" / "3"


def new_queue(fs: FileSystem, *, ext_size: int = 0) -> ConsumeQueue:
    ext = ConsumeQueueExt(fs, EXT_ROOT, "orders", 3, ext_size) if ext_size else None
    return ConsumeQueue(fs, ROOT, "orders", 3, FILE_SIZE, ext)


def entry_of(number: int) -> QueueEntry:
    """The unit of the record number ``number`` of the log; records are 100 bytes long."""
    return QueueEntry(number * RECORD, RECORD, number * 7)


def put(queue: ConsumeQueue, first: int, count: int) -> None:
    """Put units ``first`` to ``first + count`` for records of the same numbers."""
    raw = b"".join(encode_entry(entry_of(number)) for number in range(first, first + count))
    times = np.arange(first, first + count, dtype=np.int64)
    queue.append_units(first, memoryview(raw), times, (first + count) * RECORD)


def filled(fs: FileSystem, count: int, first: int = 0, **options: int) -> ConsumeQueue:
    queue = new_queue(fs, **options)
    put(queue, first, count)
    return queue


def reopened(fs: FileSystem, *, wipe: bool = True, **options: int) -> ConsumeQueue:
    """As an open finds it, after an abnormal exit (``wipe``) or a clean one."""
    queue = new_queue(fs, **options)
    queue.load()
    queue.recover(LOG_LIMIT)
    if wipe:
        queue.drop_from(LOG_LIMIT, lambda queue, offset: True)
        queue.truncate(LOG_LIMIT)
    return queue


def units(queue: ConsumeQueue, offsets: Iterable[int] | None = None) -> list[QueueEntry | None]:
    low = queue.files.min_offset // UNIT_SIZE
    return [queue.entry(offset) for offset in (range(low, queue.max_offset) if offsets is None else offsets)]


def write_unit(fs: FileSystem, queue_offset: int, entry: QueueEntry) -> None:
    name = offset_name(queue_offset // UNITS_A_FILE * FILE_SIZE)
    fs.open(DIRECTORY / name, writable=True).write_at(queue_offset % UNITS_A_FILE * UNIT_SIZE, encode_entry(entry))


# Appending and reading


def test_units_span_many_files() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 15)
    put(queue, 15, 40)
    assert (queue.min_offset, queue.max_offset, queue.max_physic_offset) == (0, 55, 5500)
    assert units(queue) == [entry_of(number) for number in range(55)]
    assert [entry.name for entry in fs.scan(DIRECTORY)] == [offset_name(FILE_SIZE * number) for number in range(3)]
    assert queue.entry(55) is None
    assert queue.entry(-1) is None


def test_read_of_units_ends_at_end_of_file() -> None:
    queue = filled(MemoryFileSystem(), 30)
    assert [len(queue.entries(offset, 100)) for offset in (0, 5, 19, 20, 29, 30)] == [20, 15, 1, 10, 1, 0]
    assert queue.entries(21, 3)["phy_offset"].tolist() == [2100, 2200, 2300]


def test_put_of_existing_units_is_ignored() -> None:
    queue = filled(MemoryFileSystem(), 30)
    put(queue, 0, 35)
    put(queue, 10, 5)
    assert units(queue) == [entry_of(number) for number in range(35)]
    assert queue.max_physic_offset == 3500


def test_full_disk_keeps_written_units_and_rest_is_put_again() -> None:
    fs = MemoryFileSystem(capacity_bytes=4096)
    queue = filled(fs, 5)
    with pytest.raises(DiskFullError):
        put(queue, 5, 40)
    assert units(queue) == [entry_of(number) for number in range(queue.max_offset)]
    assert queue.max_physic_offset == 500
    fs.capacity_bytes = None
    put(queue, 5, 40)
    assert units(queue) == [entry_of(number) for number in range(45)]


# Pre-blanks


@pytest.mark.parametrize("first", [1, 19, 20, 45])
def test_queue_beginning_above_0_has_leading_fillers_in_first_file(first: int) -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 3, first)
    begin = first - first % UNITS_A_FILE
    assert fs.scan(DIRECTORY)[0].name == offset_name(begin * UNIT_SIZE)
    assert units(queue) == [PRE_BLANK] * (first - begin) + [entry_of(first + number) for number in range(3)]
    assert (queue.min_offset, queue.max_offset) == (first, first + 3)
    again = reopened(fs)
    again.correct_min_offset(0)
    assert (again.min_offset, again.max_offset, again.max_physic_offset) == (first, first + 3, (first + 3) * RECORD)


def test_slots_of_lost_records_stay_blank_without_moving_offsets() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 10)
    put(queue, 33, 10)
    assert units(queue, range(10, 33)) == [PRE_BLANK] * 23
    assert queue.entry(33) == entry_of(33)
    again = reopened(fs)
    assert (again.max_offset, again.max_physic_offset) == (43, 4300)


def test_blanks_in_middle_do_not_hide_earlier_units() -> None:
    queue = filled(MemoryFileSystem(), 10)
    put(queue, 33, 10)
    for min_phy_offset, first in ((0, 0), (1, 1), (500, 5), (900, 9), (901, 33), (3300, 33), (3301, 34)):
        queue.correct_min_offset(min_phy_offset)
        assert queue.min_offset == first, min_phy_offset
    for end, keep in ((901, 33), (900, 9), (1, 1)):
        queue.truncate(end)
        assert queue.max_offset == keep, end


def test_real_unit_before_fillers_is_found_across_files() -> None:
    queue = filled(MemoryFileSystem(), 25, first=23)
    put(queue, 95, 3)
    assert queue.real_entry(94) == queue.real_entry(60) == queue.real_entry(48) == entry_of(47)
    assert queue.real_entry(96) == entry_of(96)
    assert queue.real_entry(22) is None
    assert queue.real_entry(98) is None


# Recovery


@pytest.mark.parametrize("count", [0, 1, 19, 20, 21, 40, 79, 80, 81, 125])
@pytest.mark.parametrize("wipe", [False, True])
def test_load_finds_end_of_queue(count: int, wipe: bool) -> None:
    fs = MemoryFileSystem()
    filled(fs, count) if count else fs.make_directory(DIRECTORY)
    queue = reopened(fs, wipe=wipe)
    assert queue.max_offset == count
    assert queue.max_physic_offset == (count * RECORD if count else -1)
    put(queue, count, 30)
    assert units(queue) == [entry_of(number) for number in range(count + 30)]


@pytest.mark.parametrize(
    "bad",
    [
        QueueEntry(-1, RECORD, 0),
        QueueEntry(LOG_LIMIT, RECORD, 0),
        QueueEntry(5, 0, 0),
        QueueEntry(5, -7, 0),
        QueueEntry(0, 0, 0),
    ],
)
def test_first_unwritten_unit_ends_queue(bad: QueueEntry) -> None:
    fs = MemoryFileSystem()
    filled(fs, 55)
    write_unit(fs, 47, bad)
    queue = reopened(fs)
    assert (queue.max_offset, queue.max_physic_offset) == (47, 4700)
    put(queue, 47, 1)
    again = reopened(fs)
    assert again.max_offset == 48, "an old unit behind the end was taken for a new one"


def test_recovery_reads_last_three_files() -> None:
    fs = MemoryFileSystem()
    filled(fs, 105)
    write_unit(fs, 30, QueueEntry(0, 0, 0))
    assert reopened(fs).max_offset == 105
    write_unit(fs, 61, QueueEntry(0, 0, 0))
    assert reopened(fs).max_offset == 61


def test_stray_bytes_after_end_are_wiped_after_clean_exit() -> None:
    fs = MemoryFileSystem()
    filled(fs, 30)
    write_unit(fs, 30, QueueEntry(7, -1, 7))
    write_unit(fs, 31, entry_of(31))
    queue = reopened(fs, wipe=False)
    put(queue, 30, 1)
    assert reopened(fs, wipe=False).max_offset == 31


# Truncating


@pytest.mark.parametrize(("end", "keep"), [(0, 0), (1, 1), (1999, 20), (2000, 20), (2001, 21), (5400, 54), (5500, 55)])
def test_units_beyond_end_of_log_are_truncated(end: int, keep: int) -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 55)
    queue.truncate(end)
    assert queue.max_offset == keep
    assert queue.max_physic_offset == (keep * RECORD if keep else -1)
    assert units(queue) == [entry_of(number) for number in range(keep)]
    assert reopened(fs, wipe=False).max_offset == keep
    put(queue, keep, 1)
    assert reopened(fs, wipe=False).max_offset == keep + 1


def test_truncation_of_all_units_keeps_start_of_queue() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 10, first=45)
    queue.truncate(0)
    assert (queue.max_offset, queue.max_physic_offset) == (45, -1)
    put(queue, 45, 5)
    assert queue.max_offset == 50
    assert queue.entry(45) == entry_of(45)


# Dropping what nothing vouches for


@pytest.mark.parametrize("again", [12, 9, 0])
def test_dropped_units_not_restored_are_wiped(again: int) -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    filled(fs, 20)  # the first file
    queue = new_queue(fs)
    queue.load()
    queue.recover(LOG_LIMIT)
    queue.drop_from(8 * RECORD, lambda queue, offset: True)
    assert (queue.max_offset, queue.max_physic_offset) == (8, 8 * RECORD)
    begun = len(fs.operations)
    for number in range(8, 8 + again):
        put(queue, number, 1)
    written = [operation for operation, _ in fs.operations[begun:]].count("write_at")
    assert written == again, "the same bytes must be written all the same: a sync that failed may have given them up"
    queue.truncate(LOG_LIMIT)
    assert units(queue) == [entry_of(number) for number in range(8 + again)]
    assert reopened(fs.inner).max_offset == 8 + again, "what is left of the old units can be taken for new ones"


def test_queue_without_units_keeps_next_offset() -> None:
    """Where the border of a sector would divide the unit in front of its first file, there is no such unit."""
    fs, file_size = MemoryFileSystem(), 52 * UNIT_SIZE
    assert (file_size - UNIT_SIZE) % SECTOR == SECTOR - 4
    put(ConsumeQueue(fs, ROOT, "orders", 3, file_size), 156, 30)
    queue = ConsumeQueue(fs, ROOT, "orders", 3, file_size)
    queue.load()
    queue.recover(LOG_LIMIT)
    assert queue.files.min_offset == 3 * file_size
    queue.drop_from(0, lambda queue, offset: queue.entry(offset) is not None)
    assert (queue.files.min_offset, queue.max_offset) == (3 * file_size, 156)


@pytest.mark.parametrize("wrong", [QueueEntry(777, RECORD, 7), QueueEntry(0, 0, 0)])
def test_wrong_dropped_unit_is_rewritten(wrong: QueueEntry) -> None:
    fs = MemoryFileSystem()
    filled(fs, 30)
    write_unit(fs, 11, wrong)
    queue = new_queue(fs)
    queue.load()
    queue.recover(LOG_LIMIT)
    queue.drop_from(8 * RECORD, lambda queue, offset: True)
    put(queue, 8, 4)
    queue.truncate(LOG_LIMIT)
    assert units(queue) == [entry_of(number) for number in range(12)]
    assert reopened(fs).max_offset == 12


@pytest.mark.parametrize("blanks", [0, 51])
def test_unit_across_sector_border_is_checked_against_log(blanks: int) -> None:
    """The borders are those of the unit's file, wherever that begins in the queue. Alone it says nothing of it."""
    fs = MemoryFileSystem()
    queue = ConsumeQueue(fs, ROOT, "orders", 3, 100 * UNIT_SIZE)
    put(queue, 0, 160)
    file = fs.open(DIRECTORY / offset_name(100 * UNIT_SIZE), writable=True)
    file.write_at(0, encode_entry(PRE_BLANK) * blanks)
    assert 51 * UNIT_SIZE == 2 * SECTOR - 4
    file.write_at(51 * UNIT_SIZE, encode_entry(entry_of(151)._replace(phy_offset=151 * RECORD - 1)))
    queue = ConsumeQueue(fs, ROOT, "orders", 3, 100 * UNIT_SIZE)
    queue.load()
    queue.recover(LOG_LIMIT)
    queue.drop_from(152 * RECORD, lambda queue, offset: queue.entry(offset) == entry_of(offset))
    assert queue.max_offset == (100 if blanks else 151)


@pytest.mark.parametrize("real", [0, 1, 5])
def test_queue_file_beginning_with_fillers_keeps_its_units(real: int) -> None:
    """A rebuild fills the slots of lost messages. Of a file with nothing else nobody knows how old it is."""
    fs = MemoryFileSystem()
    filled(fs, 23 + real)
    for number in range(18, 23):
        write_unit(fs, number, PRE_BLANK)
    queue = new_queue(fs)
    queue.load()
    queue.recover(LOG_LIMIT)
    queue.drop_from(40 * RECORD, lambda queue, offset: True)
    assert queue.max_offset == (23 + real if real else 20)


def ends_at(disk: FileSystem, operation: int) -> FaultyFileSystem:
    """The disk of a process that does nothing more from that operation on."""
    return FaultyFileSystem(disk, operation, broken_disk, keeps_failing=True)


def made_again(fs: FileSystem, first: int, count: int, covered: int = 0) -> ConsumeQueue:
    """What a recovery does where the checkpoint covers no unit, or no more than ``covered``."""
    queue = new_queue(fs)
    queue.load()
    queue.recover(LOG_LIMIT)
    queue.drop_from(covered * RECORD, lambda queue, offset: True)
    put(queue, first, count)
    queue.truncate(LOG_LIMIT)
    return queue


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_queue_without_first_file_is_rebuilt_after_interrupted_recovery(chance: float) -> None:
    """Its later files are set aside meanwhile; left behind an empty first one they would count as its units."""
    for operation in itertools.count(1):
        disk = MemoryFileSystem()
        filled(disk, 90, first=5).flush()
        disk.open(DIRECTORY / offset_name(0), writable=True).write_at(0, bytes(FILE_SIZE))
        try:
            made_again(ends_at(disk, operation), 5, 90)
            break
        except DiskError:
            left = disk.crash_clone(chance, operation)
        assert units(made_again(left, 5, 90), range(5, 95)) == [entry_of(number) for number in range(5, 95)]
    assert operation > 10


@pytest.mark.parametrize("kept", [0, 60, 72])
def test_flushed_units_survive_kill_before_sync_of_file_name(kept: int) -> None:
    for operation in itertools.count(1):
        disk = MemoryFileSystem()
        if kept:
            filled(disk, kept).flush()
        try:
            put(reopened(ends_at(disk, operation), wipe=False), kept, 30)
            break
        except DiskError:
            killed = disk.kill_clone()
        queue = made_again(killed, kept, 10, covered=kept)
        queue.flush()
        assert queue.max_offset == kept + 10
        assert reopened(killed.crash_clone(0.0, 1)).max_offset == kept + 10
    assert operation > 5


# Where it begins


@pytest.mark.parametrize(
    ("min_phy_offset", "first"), [(-1, 0), (0, 0), (1, 1), (100, 1), (2500, 25), (5399, 54), (5401, 55), (1 << 40, 55)]
)
def test_min_offset_is_that_of_first_record_in_log(min_phy_offset: int, first: int) -> None:
    queue = filled(MemoryFileSystem(), 55)
    queue.correct_min_offset(min_phy_offset)
    assert queue.min_offset == first


def test_queue_files_of_expired_records_are_deleted() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 55)
    assert queue.remove_expired(1900) == 0
    assert queue.remove_expired(2000) == 1
    assert queue.remove_expired(1 << 40) == 1
    queue.correct_min_offset(0)
    assert (queue.min_offset, queue.max_offset) == (40, 55)
    assert [entry.name for entry in fs.scan(DIRECTORY)] == [offset_name(2 * FILE_SIZE)]
    assert reopened(fs).max_offset == 55


def test_file_ending_with_blanks_expires_with_its_units() -> None:
    fs = MemoryFileSystem()
    queue = new_queue(fs)
    put(queue, 0, 19)
    put(queue, 60, 5)  # of the slots between nothing is left: the end of the first file, and two files more
    assert queue.remove_expired(18 * RECORD) == 0
    assert units(queue, range(19)) == [entry_of(number) for number in range(19)]
    assert queue.remove_expired(18 * RECORD + 1) == 3
    assert queue.files.min_offset == 3 * FILE_SIZE


def test_destroy_removes_queue_and_its_directory() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 55)
    queue.destroy()
    assert not fs.exists(DIRECTORY)
    assert (queue.min_offset, queue.max_offset, queue.max_physic_offset) == (0, 0, -1)
    put(queue, 0, 3)
    assert units(queue) == [entry_of(number) for number in range(3)]


# Durability


def test_flush_makes_all_units_durable() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 55)
    queue.flush()
    assert reopened(fs.crash_clone(0.0, 0)).max_offset == 55


def test_power_cut_leaves_prefix_of_units(seed: int) -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 25)
    queue.flush()
    put(queue, 25, 40)
    for shift in range(20):
        left = reopened(fs.crash_clone(0.5, seed + shift, unit_bytes=512))
        assert left.max_offset >= 25
        assert units(left) == [entry_of(number) for number in range(left.max_offset)]


# Extended units


def test_extended_units_carry_tags_code() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 55, ext_size=1024)
    for number in range(55):
        entry = queue.entry(number)
        assert entry is not None
        assert is_address(entry.tags_code)
        assert queue.tags_code(entry.tags_code) == number * 7
    again = reopened(fs, ext_size=1024)
    put(again, 55, 30)
    assert [again.tags_code(entry.tags_code) for entry in units(again) if entry] == [number * 7 for number in range(85)]


def test_destroyed_queue_removes_extended_units() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 55, ext_size=1024)
    queue.destroy()
    assert fs.scan(EXT_ROOT / queue.topic / str(queue.queue_id)) == []


def test_extended_unit_in_file_being_deleted_reads_as_none() -> None:
    ext = ConsumeQueueExt(MemoryFileSystem(), EXT_ROOT, "orders", 3, 1024)
    address = ext.put(QueueExtUnit(7, 0, b""))
    [file] = ext.files.files
    assert file.hold()
    file.shutdown(0, 1)
    assert ext.get(address) is None
    file.release()


def test_extended_unit_after_last_is_none() -> None:
    ext = ConsumeQueueExt(MemoryFileSystem(), EXT_ROOT, "orders", 3, 1024)
    address = ext.put(QueueExtUnit(7, 0, b""))
    assert ext.get(address + 20) is None
    assert ext.get(address + 100) is None, "a queue may point there after a power cut"


def test_extended_units_are_cut_with_their_queue() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 60, ext_size=1024)
    assert len(fs.scan(EXT_ROOT / "orders" / "3")) == 2
    queue.truncate(2000)
    put(queue, 20, 5)
    assert [queue.tags_code(entry.tags_code) for entry in units(queue) if entry] == [number * 7 for number in range(25)]
    assert len(fs.scan(EXT_ROOT / "orders" / "3")) == 1


def test_extended_units_expire_with_their_queue() -> None:
    fs = MemoryFileSystem()
    queue = filled(fs, 130, ext_size=1024)
    before = len(fs.scan(EXT_ROOT / "orders" / "3"))
    queue.correct_min_offset(11_000)
    assert len(fs.scan(EXT_ROOT / "orders" / "3")) < before
    assert [queue.tags_code(entry.tags_code) for entry in units(queue, range(110, 130)) if entry] == [
        number * 7 for number in range(110, 130)
    ]


def test_filler_units_have_bytes_of_rocketmq() -> None:
    assert encode_entry(PRE_BLANK) == bytes(8) + BLANK_UNIT_SIZE.to_bytes(4, "big") + bytes(8)
