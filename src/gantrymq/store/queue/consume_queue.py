"""One consume queue: the locations of a queue's messages in the commit log, 20 bytes each.

File format: ``gantrymq.format.queue_entry``.

Invariant: unit i of the address space is queue offset i. After the last unit the last file reads as zeros. Units point
to rising physical offsets, except pre-blanks, which are at the head of the first file and where records of the queue
were lost. Between :meth:`ConsumeQueue.drop_from` and :meth:`ConsumeQueue.truncate` old units may follow the last one.

Thread rule: one dispatcher writes. Readers read below ``max_offset`` only.

Source: ConsumeQueue.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.queue_entry import PRE_BLANK, UNIT_SIZE, QueueEntry, decode_entry, encode_entry
from gantrymq.format.queue_ext import MAX_ADDRESS, QueueExtUnit, is_address
from gantrymq.format.queue_units import UNIT_DTYPE, Units
from gantrymq.format.record import SECTOR
from gantrymq.fs.api import Bytes, FileSystem
from gantrymq.fs.reads import read_data
from gantrymq.kernels import api as kernels
from gantrymq.kernels.arrays import read_only
from gantrymq.model.java import LONG_MAX
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.log.mapped_file_queue import MappedFileQueue
from gantrymq.store.queue.consume_queue_ext import ConsumeQueueExt
from gantrymq.store.queue.queue_units import PassedOver, Renumbered

_PAGE_BYTES = 4096
_RECOVER_CHUNK = 6_400 * UNIT_SIZE  # the allocator reuses blocks below 128 KB; larger ones are new each time


def rising_units(file: MappedFile, limit: int) -> int:
    """Return how many of the file's first units are pre-blanks or point to rising offsets before ``limit``."""
    count, highest = 0, -1
    for units in _chunks(file):
        length, highest = kernels.rising_units(units, 0, len(units), highest, limit)
        count += length // UNIT_SIZE
        if length < len(units):
            break
    return count


def valid_units(file: MappedFile, log_limit: int) -> int:
    """Return how many of the file's first units are valid.

    Like Java, it accepts units that are not negative or empty.
    """
    count = 0
    for units in _chunks(file):
        length = kernels.valid_units(units, 0, len(units), log_limit)
        count += length // UNIT_SIZE
        if length < len(units):
            break
    return count


def units_behind(files: Sequence[MappedFile], end: int) -> int:
    """Return how many units follow ``end``, an offset in the address space of ``files``, wherever they point."""
    count = 0
    for file in files:
        begin = max(end - file.file_from_offset, 0)
        if begin < file.size:
            written = valid_units(file, LONG_MAX) * UNIT_SIZE
            count += max(written - begin, 0) // UNIT_SIZE
            if written < file.size:
                break
    return count


def is_written_behind(files: Sequence[MappedFile], end: int) -> bool:
    """Whether anything but zeros follows ``end``, an offset in the address space of ``files``.

    Holes are not read, and no file is mapped: a mapped file would stay open, for every queue.
    """
    for file in files:
        at = max(end - file.file_from_offset, 0)
        while at < file.size and (at := file.file.data_from(at)) < file.size:
            behind = min(at - at % _PAGE_BYTES + _PAGE_BYTES, file.size)
            raw = file.file.read_at(at, behind - at)
            if raw != bytes(len(raw)):  # any() of a page takes 40 µs, for every queue
                return True
            at = behind
    return False


def _chunks(file: MappedFile) -> Iterator[Bytes]:
    """Yield the file's units, some thousands at a time."""
    for position in range(0, file.size, _RECOVER_CHUNK):
        yield read_only(read_data(file.file, position, min(_RECOVER_CHUNK, file.size - position)))


_UNIT = struct.Struct(">qiq")
_RECOVER_FILES = 3
_BLANKS_A_LOOK = 16_384
_OFFSET_SIZE = 8
REBUILD = "`gantrymq store rebuild` rebuilds the queues from the commit log"


class ConsumeQueue:
    """The queue ``queue_id`` of ``topic``, with its files in ``directory``/TOPIC/QUEUE."""

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        topic: str,
        queue_id: int,
        file_size: int,
        ext: ConsumeQueueExt | None = None,
        defer_sync: Callable[[Path], None] | None = None,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._sync_later = defer_sync or fs.sync_directory
        self.files = MappedFileQueue(
            fs, directory / topic / str(queue_id), file_size, reserve_space=False, defer_sync=defer_sync, remedy=REBUILD
        )
        self.max_physic_offset = -1
        # The last unit, its store time and the end of its record, if the record says offset 0 but is not the first. If
        # the next record says 1, the queue restarted there.
        self.possible_restart: tuple[memoryview, NDArray[np.int64], int] | None = None
        # The queue offset at which a gap before the last unit begins, and that unit's record, which may be of another
        # queue.
        self.stray_candidate: tuple[int, PassedOver] | None = None
        self.renumbered: list[Renumbered] = []  # records that got a unit since this was opened
        self.passed_over: list[PassedOver] = []  # records that got no unit since this was opened
        self.had_units_behind = False  # set by recover(): something was written past the end that it found
        self._doubted_end = 0  # up to this offset, old units may follow the last one
        self._ext = ext
        self._min_logic_offset = 0
        self._blank = encode_entry(PRE_BLANK)

    @property
    def min_offset(self) -> int:
        """The first queue offset whose record is still in the log."""
        return self._min_logic_offset // UNIT_SIZE

    @property
    def max_offset(self) -> int:
        """The queue offset after the last unit."""
        return self.files.max_offset // UNIT_SIZE

    @property
    def unit_count(self) -> int:
        """The number of units in the files, including pre-blanks."""
        return (self.files.max_offset - self.files.min_offset) // UNIT_SIZE if self.files.files else 0

    def load(self) -> None:
        """Load the files. Raises WrongFileSizeError."""
        self.files.load()
        self.files.drop_empty()
        if self._ext is not None:
            self._ext.load()

    # Recovery

    def recover(self, log_limit: int) -> int:
        """Find the end: the first invalid unit in the last three files, or the first that points past ``log_limit``.

        Earlier files count as full, as in Java. After an abnormal exit :meth:`drop_from` checks them too. Returns how
        many units the files held, including those that point past ``log_limit`` and are dropped.
        """
        files, end, held = self.files.files, 0, 0
        for file in files[max(len(files) - _RECOVER_FILES, 0) :]:
            count = valid_units(file, log_limit)
            end = file.file_from_offset + count * UNIT_SIZE
            if count * UNIT_SIZE < file.size:
                break
        if files:
            is_cut = any(self.read_bytes(end, UNIT_SIZE, beyond_end=True))
            held = (end - self.files.min_offset) // UNIT_SIZE + (units_behind(files, end) if is_cut else 0)
            self.had_units_behind = is_cut or is_written_behind(files, end)
            self.files.truncate_dirty(end, wipe=self.had_units_behind)
            self._note_last()
        if self._ext is not None:
            self._ext.recover()
            self._truncate_ext()
        return held

    def drop_from(self, phy_offset: int, is_true: Callable[[ConsumeQueue, int], bool]) -> None:
        """Drop the units of records at or after ``phy_offset``, because the checkpoint does not cover them.

        After a power cut a sector may be lost or old, with half a unit at its border. Units that point before
        ``phy_offset`` are durable and in order. A file counts as the end of the queue only if it has such a unit that
        is not a pre-blank and that no sector border divides, or if it is the first file. If a border divides the last
        unit that is kept, ``is_true(queue, queue_offset)`` says whether it points to its own record.

        Most dropped units are put again, so their bytes stay until they are overwritten, or until :meth:`truncate`
        wipes them and removes files. They are written again even if they are equal: a failed sync may have dropped
        their pages. If no unit is kept, the first dropped unit, if it points to its own record, shows where the queue
        begins: earlier records of the log are of a topic that was deleted and recreated.
        """
        files = self.files.files
        if not files:
            return
        end = self.files.min_offset
        for file in reversed(files):
            unit_count = rising_units(file, phy_offset)
            if unit_count and (file is files[0] or self._is_covered(file, unit_count)):
                end = file.file_from_offset + unit_count * UNIT_SIZE
                break
        last = end - UNIT_SIZE
        is_divided = not _is_in_one_sector(np.array([last % self.files.file_size]))[0]
        if end > self.files.min_offset and is_divided and not is_true(self, last // UNIT_SIZE):
            end = last
        first = self.entry(end // UNIT_SIZE) if end == self.files.min_offset else None
        begin = first.phy_offset if first and is_true(self, end // UNIT_SIZE) else -1
        if self._ext is None:
            files[-1].wipe_rest()
            self._doubted_end = self.files.max_offset
        # Units with extended units are dropped at once, together with them.
        self.files.truncate_dirty(end, wipe=self._ext is not None, sets_aside=self._ext is None)
        # The writer may have been killed before it synced the names of new files.
        self._sync_later(self.files.directory)
        self._note_last()
        self.max_physic_offset = max(self.max_physic_offset, begin)
        self._truncate_ext()

    @staticmethod
    def _is_covered(file: MappedFile, count: int) -> bool:
        """Whether one of the first ``count`` units of ``file`` is not a pre-blank and has its offset in one sector.

        Pre-blanks prove nothing about their age: a rebuild of a damaged log fills slots wherever it lost messages.
        """
        if not decode_entry(file.file.read_at(0, UNIT_SIZE)).is_filler:
            return True
        units = Units(file.file.read_at(0, count * UNIT_SIZE))
        return bool(_is_in_one_sector(np.flatnonzero(~units.is_filler) * UNIT_SIZE).any())

    def drop_false_end(self, is_true: Callable[[ConsumeQueue, int], bool]) -> None:
        """Drop the last units that do not point to their own record: the damage after them has reached them.

        ``is_true(queue, queue_offset)`` says whether a unit does.
        """
        end = self.max_offset
        while end > self.files.min_offset // UNIT_SIZE and not is_true(self, end - 1):
            end -= 1
        if end < self.max_offset:
            self.files.truncate_dirty(end * UNIT_SIZE, wipe=True)
            self._note_last()
            self._truncate_ext()

    def truncate(self, phy_offset: int) -> None:
        """Drop every unit that points to or past ``phy_offset``, and old units after the end.

        Source: truncateDirtyLogicFiles.
        """
        self.files.drop_ahead()
        if self.max_physic_offset > phy_offset:
            self.files.truncate_dirty(self.find_first(phy_offset) * UNIT_SIZE, wipe=True)
            self._note_last()
            self._truncate_ext()
        elif self.files.max_offset < self._doubted_end:
            self.files.truncate_dirty(self.files.max_offset, wipe=True)
        self._doubted_end = 0

    @property
    def last_phy_offset(self) -> int:
        """The physical offset of the record that the last unit points to, or -1 without units."""
        last = self._last
        return last.phy_offset if last else -1

    @property
    def _last(self) -> QueueEntry | None:
        return self.real_entry(self.max_offset - 1)

    def _note_last(self) -> None:
        last = self._last
        self.max_physic_offset = last.phy_offset + last.size_bytes if last else -1

    def _truncate_ext(self) -> None:
        """Cut the extended units after the last one that a unit points to."""
        last = self.entry(self.max_offset - 1)
        if self._ext is not None and last is not None:
            self._ext.truncate_by_max_address(last.tags_code)
        elif self._ext is not None:
            self._ext.files.clear()

    def correct_min_offset(self, min_phy_offset: int) -> None:
        """Set ``min_offset`` to the first unit whose record is at or after ``min_phy_offset``."""
        first = self.files.first
        if first is None:
            return
        oldest = self.real_entry(first.file_from_offset // UNIT_SIZE)
        # A binary search would skip all units if some are damaged.
        is_whole = oldest is not None and not oldest.is_filler and oldest.phy_offset >= min_phy_offset
        logic_offset = 0 if is_whole else self.find_first(min_phy_offset) * UNIT_SIZE
        self._min_logic_offset = max(logic_offset, first.file_from_offset)
        oldest = self.entry(self.min_offset)
        if self._ext is not None and oldest is not None:
            self._ext.truncate_by_min_address(oldest.tags_code)

    def remove_expired(self, min_phy_offset: int) -> int:
        """Remove the files whose units all point before ``min_phy_offset``, but never the last. Returns how many.

        A pre-blank points nowhere and says nothing about the units before it.
        """
        expired = 0
        for file in self.files.files[:-1]:
            begin = file.file_from_offset // UNIT_SIZE
            last = self.real_entry(begin + self._units_a_file - 1, begin)
            if last is None or last.phy_offset >= min_phy_offset:
                break
            expired += 1
        return len(self.files.remove_before(expired))

    def find_first(self, phy_offset: int) -> int:
        """Return the first queue offset whose unit points to or past ``phy_offset``, or ``max_offset`` if none does."""
        first = self.files.first
        if first is None:
            return 0
        low, high = first.file_from_offset // UNIT_SIZE, self.max_offset
        while low < high:
            middle = (low + high) // 2
            entry = self.real_entry(middle)
            if entry is None or entry.phy_offset < phy_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def real_entry(self, queue_offset: int, min_queue_offset: int = -1) -> QueueEntry | None:
        """Return the unit of ``queue_offset``; for a pre-blank the nearest real unit before it.

        None if there is no unit.

        This gives a binary search rising values even if slots in the middle are empty. The search for a real unit ends
        at ``min_queue_offset``: if that is a pre-blank too, it is returned.
        """
        while (entry := self.entry(queue_offset)) is not None and entry.is_filler:
            if queue_offset == min_queue_offset:
                break
            begin = max(queue_offset - queue_offset % self._units_a_file, queue_offset - _BLANKS_A_LOOK)
            units = Units(self.entries(begin, queue_offset - begin))
            real = np.flatnonzero(~units.is_filler)
            if len(real):
                return units[int(real[-1])]
            queue_offset = max(begin - (begin == queue_offset), min_queue_offset)
        return entry

    @property
    def _units_a_file(self) -> int:
        return self.files.file_size // UNIT_SIZE

    # Writing

    def append_units(
        self, queue_offset: int, units: memoryview, store_times_ms: NDArray[np.int64], max_physic_offset: int
    ) -> None:
        """Append encoded units from ``queue_offset`` on. Raises DiskFullError.

        ``store_times_ms`` are the store times of their records, for extended units.

        Slots between the end of the queue and ``queue_offset`` become pre-blanks: their records are gone from the log,
        and an offset never changes. Units before the end exist already and are skipped. But if the units begin at
        offset 0, the topic was deleted and recreated, so the queue restarts.
        """
        if queue_offset == 0 < self.max_offset:
            self.destroy()
        end = self.max_offset
        if queue_offset < end:
            units = units[(end - queue_offset) * UNIT_SIZE :]
            store_times_ms = store_times_ms[end - queue_offset :]
        elif queue_offset > end:
            self._fill_blank_to(queue_offset)
        if self._ext is not None:
            units = self._with_ext(self._ext, units, store_times_ms)
        self.go_on(units, max_physic_offset, max(queue_offset, end))

    def take_back_stray(self) -> None:
        """Drop the unit of ``stray_candidate`` and the gap before it. Its record counts as passed over."""
        if self.stray_candidate is not None:
            begin, record = self.stray_candidate
            self.files.truncate_dirty(begin * UNIT_SIZE, wipe=True)
            self._note_last()
            self._truncate_ext()
            self.passed_over.append(record)
            self.stray_candidate = None

    def restart_at_zero(self) -> None:
        """Drop all units except that of ``possible_restart``, which becomes the first. Raises DiskFullError."""
        if self.possible_restart is not None:
            self.destroy()
            self.append_units(0, *self.possible_restart)

    def go_on(self, units: memoryview, max_physic_offset: int, queue_offset: int) -> None:
        """Write encoded units at ``queue_offset``, which is the next one, without any check. Raises DiskFullError."""
        self._write(queue_offset * UNIT_SIZE, units)
        self.max_physic_offset = max(self.max_physic_offset, max_physic_offset)

    @property
    def next_offset(self) -> int:
        """The offset at which :meth:`go_on` may write, or -1 if the units need the checks of append_units."""
        end = self.max_offset
        is_doubtful = self.possible_restart is not None or self.max_physic_offset < 0 < end
        return -1 if self._ext is not None or is_doubtful else end

    @staticmethod
    def _with_ext(ext: ConsumeQueueExt, units: memoryview, store_times_ms: NDArray[np.int64]) -> memoryview:
        """Return the units with the addresses of their extended units as tags codes."""
        entries = []
        for number, stored_ms in enumerate(store_times_ms.tolist()):
            entry = decode_entry(units, number * UNIT_SIZE)
            address = ext.put(QueueExtUnit(entry.tags_code, stored_ms))
            entries.append(encode_entry(entry._replace(tags_code=address) if is_address(address) else entry))
        return memoryview(b"".join(entries))

    def begin_at(self, queue_offset: int) -> None:
        """Let an empty queue give ``queue_offset`` to its first message. Raises DiskFullError."""
        self._fill_blank_to(queue_offset)

    def _fill_blank_to(self, queue_offset: int) -> None:
        target = queue_offset * UNIT_SIZE
        if self.files.max_offset <= max(self.files.min_offset, 0):
            # The queue is empty: its address space begins with the file that contains the first unit (fillPreBlank).
            self.files.clear()
            start = target - target % self.files.file_size
            self._min_logic_offset = target
            self.files.flushed_where = self.files.committed_where = start
        else:
            start = self.files.max_offset
        self._write(start, memoryview(self._blank * ((target - start) // UNIT_SIZE)), start_offset=start)

    def _write(self, position: int, data: memoryview, *, start_offset: int | None = None) -> None:
        while data:
            file = self.files.last_for_append(position if start_offset is None else start_offset)
            room = file.size - file.wrote_position
            file.append(data[:room])
            data = data[room:]

    # Reading

    def entry(self, queue_offset: int) -> QueueEntry | None:
        """Return the unit of ``queue_offset``, or None if there is none."""
        raw = self.read_bytes(queue_offset * UNIT_SIZE, UNIT_SIZE)
        return decode_entry(raw) if len(raw) == UNIT_SIZE else None

    def entries(self, queue_offset: int, count: int) -> NDArray[np.void]:
        """Return at most ``count`` units from ``queue_offset``, up to the end of their file (array of UNIT_DTYPE)."""
        return np.frombuffer(self.read_bytes(queue_offset * UNIT_SIZE, count * UNIT_SIZE), UNIT_DTYPE)

    def units(self, queue_offset: int, count: int) -> Iterator[tuple[int, int, int]]:
        """Yield (physical offset, size in bytes, tags code) of the same units. Faster than entries() for few units."""
        raw = self.read_bytes(queue_offset * UNIT_SIZE, count * UNIT_SIZE)
        return _UNIT.iter_unpack(raw[: len(raw) - len(raw) % UNIT_SIZE])

    def tags_code(self, in_unit: int) -> int:
        """Return the tags code of a message from that of its unit.

        If the unit has an address, the code is read from the extended unit. If that is gone, the address is returned.
        """
        unit = self._ext.get(in_unit) if self._ext is not None else None
        return in_unit if unit is None else unit.tags_code

    def may_be(self, in_unit: int, wanted: Collection[int]) -> bool:
        """Whether the tags code may be one of ``wanted``. If the extended unit is gone, only the record could tell."""
        if in_unit > MAX_ADDRESS:
            return in_unit in wanted
        return (code := self.tags_code(in_unit)) in wanted or is_address(code)

    def read_bytes(self, position: int, length: int, *, beyond_end: bool = False) -> bytes:
        """Return bytes of the address space, up to the end of their file. ``beyond_end`` includes unwritten ones."""
        file = self.files.find(position)
        if file is None or not file.hold_to_read():
            return b""
        try:
            start = position - file.file_from_offset
            limit = file.size if beyond_end else file.committed_position
            return file.file.read_at(start, max(min(length, limit - start), 0))
        finally:
            file.release()

    def destroy(self) -> None:
        """Remove the queue's files and their directories."""
        self.files.destroy()
        if self._ext is not None:
            self._ext.destroy()
        self.max_physic_offset, self.renumbered, self.passed_over = -1, [], []
        self._min_logic_offset = self._doubted_end = 0

    def begin_flush(self) -> None:
        """Start writing to the disk what :meth:`flush` will wait for."""
        if self._ext is not None:
            self._ext.files.begin_flush()
        self.files.begin_flush()

    def flush(self, least_pages: int = 0) -> None:
        """Make the units durable. With ``least_pages``, do so only if that many pages are dirty."""
        if self._ext is not None:
            self._ext.files.flush_all()
        if least_pages:
            self.files.flush(least_pages)
        else:
            self.files.flush_all()

    def close_if_idle(self) -> None:
        """Close the files that need not stay open. No other thread may read or write meanwhile."""
        self.files.for_each(MappedFile.close_if_idle)

    def close(self) -> None:
        """Close the files."""
        self.files.close()
        if self._ext is not None:
            self._ext.close()


def _is_in_one_sector(positions: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which units at these positions of a file have their physical offset within one sector (bool)."""
    result: NDArray[np.bool_] = positions // SECTOR == (positions + _OFFSET_SIZE - 1) // SECTOR
    return result
