"""The commit log: all records of the store in the order of arrival, in files of one size.

File format: ``gantrymq.format.record``.

Invariant: a record never crosses a file. A file that the next record did not fit into ends with a blank. The last file
reads as zeros after the last record.

Thread rule: appends run under the caller's put lock. Reads may come from any thread.

Source: CommitLog, the parts that read and write bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from operator import add

from gantrymq.errors import DiskError
from gantrymq.format import record
from gantrymq.format.lazy_record import READERS, messages_of
from gantrymq.format.queue_entry import QueueEntry
from gantrymq.format.record import CheckCRC, Layout
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import FileSystem
from gantrymq.kernels.calls import address_of
from gantrymq.kernels.cuts import cut_each
from gantrymq.model.message import StoredMessage
from gantrymq.store.log.mapped_file import PAGE_SIZE, MappedFile, SelectMappedBufferResult
from gantrymq.store.log.mapped_file_queue import MultiPathMappedFileQueue
from gantrymq.store.paths import StorePaths

_HEAD = struct.Struct(">iI")
_LONG = struct.Struct(">q")
_FEWEST_TOGETHER = 8
_RUN_BYTES = 512 * 1024  # copied at once
_SIZE_BYTES = 4  # a record begins with its size


class CommitLog:
    """The commit log in the directories of ``paths``, with files of ``file_size`` bytes."""

    def __init__(
        self, fs: FileSystem, paths: StorePaths, file_size: int, on_new_file: Callable[[MappedFile], None] | None = None
    ) -> None:
        self.queue = MultiPathMappedFileQueue(fs, paths, file_size, on_new_file)

    @property
    def file_size(self) -> int:
        """The size of each file in bytes."""
        return self.queue.file_size

    @property
    def min_offset(self) -> int:
        """The first physical offset of the log, or -1 without files.

        A first file that is being removed does not count.
        """
        first = self.queue.first
        if first is None:
            return -1
        if first.is_available:
            return first.file_from_offset
        return self.roll_next_file(first.file_from_offset)

    @property
    def max_offset(self) -> int:
        """The physical offset after the last record that can be read."""
        return self.queue.max_offset

    @property
    def wrote_offset(self) -> int:
        """The physical offset after the last byte written, including bytes that are only in a write buffer."""
        last = self.queue.last
        return last.file_from_offset + last.wrote_position if last else 0

    def load(self, begin: int = 0) -> None:
        """Load the files that begin at ``begin`` or later. Changes nothing on the disk. Raises WrongFileSizeError.

        Recovery removes empty files at the end (``queue.drop_empty``) once no consume queue points into them.
        """
        self.queue.load(begin)

    def roll_next_file(self, offset: int) -> int:
        """Return the offset at which the file after the one that contains ``offset`` begins."""
        return self.queue.roll_next_file(offset)

    def room_for(self, size: int) -> MappedFile:
        """Return the file to append a record or an unbroken batch of ``size`` bytes to. Rolls to a new file if needed.

        The caller has checked that ``size`` fits an empty file. Raises DiskFullError.
        """
        file = self.queue.last_for_append()
        if size + record.BLANK_SIZE > file.size - file.wrote_position:
            self.fill_blank(file)
            file = self.queue.last_for_append()
        if file.wrote_position + size + PAGE_SIZE > file.prefaulted_to:
            file.prefault(size)
        return file

    def prefault_ahead(self, size: int) -> None:
        """Allocate page cache for the next ``size`` bytes, if the last file has room for them.

        This saves time in :meth:`room_for` and changes no content. Thread rule: any thread, without the put lock.
        Raises DiskFullError.
        """
        file = self.queue.last
        if file is not None and size + record.BLANK_SIZE <= file.size - file.wrote_position and file.hold():
            try:
                file.prefault_ahead(size)
            finally:
                file.release()

    def fill_blank(self, file: MappedFile) -> None:
        """End ``file`` with a blank, so that the next record goes to the next file."""
        rest = file.size - file.wrote_position
        if rest >= record.BLANK_SIZE:
            start = file.wrote_position
            file.write_array[start : start + record.BLANK_SIZE].data[:] = record.encode_blank(rest)
            if file.is_buffered:  # the buffer still holds bytes of the file that it was lent to before
                file.write_array[start + record.BLANK_SIZE :] = 0
        file.advance(rest)

    def get_message(self, offset: int, size: int) -> SelectMappedBufferResult | None:
        """Return a held view of ``size`` bytes at ``offset``, or None unless all are written and in one file."""
        return self.queue.select(offset, size)

    def read(self, offset: int, size: int | None = None) -> StoredMessage | None:
        """Return the message at ``offset``, or None if no whole record (of ``size`` bytes, if given) begins there.

        Raises DiskError.
        """
        file = self.queue.find(offset)
        if file is None or not file.hold_to_read():
            return None
        try:
            buffer = file.array.data
            position = offset - file.file_from_offset
            if size is None:
                fetch_record(file, position)
            else:
                file.fetch(position, size)
            layout = record.read_layout(buffer, position, file.committed_position)
            if not isinstance(layout, Layout) or (size is not None and layout.size != size):
                return None
            if file.file.lost_in(position, layout.size) is not None:
                return None
            message = record.decode_record(buffer, position, layout)
            return message if message.phy_offset == offset else None
        finally:
            file.release()

    def read_each(self, offsets: list[int], sizes: list[int]) -> list[StoredMessage | None]:
        """Return what :meth:`read` returns for each offset and size. Messages of one file are read together.

        A few are read one by one: checking them together takes about 10 µs, whatever their number. The records are
        copied, so no message keeps a file mapped. Raises DiskError.
        """
        messages: list[StoredMessage | None] = []
        while (at := len(messages)) < len(offsets):
            together = self._read_run(offsets[at:], sizes[at:]) if len(offsets) - at >= _FEWEST_TOGETHER else []
            messages += together or [self.read(offsets[at], sizes[at])]
        return messages

    def read_at(self, offsets: list[int]) -> list[StoredMessage | None]:
        """Return what :meth:`read` returns for each offset. Raises DiskError."""
        if len(offsets) < _FEWEST_TOGETHER:
            return list(map(self.read, offsets))
        return self.read_each(offsets, list(map(self._size_at, offsets)))

    def _size_at(self, offset: int) -> int:
        """Return the size of the apparent record at ``offset``, after reading it into memory, or 0 without a file."""
        file = self.queue.find(offset)
        if file is None or not file.hold_to_read():
            return 0
        try:
            return fetch_record(file, offset - file.file_from_offset)
        finally:
            file.release()

    def _read_run(self, offsets: list[int], sizes: list[int]) -> list[StoredMessage]:
        """Return the first messages that are in one file, without damage, and small enough to be copied at once."""
        file = self.queue.find(offsets[0])
        if file is None or not file.hold_to_read():
            return []
        try:
            begin, end = file.file_from_offset, file.file_from_offset + file.committed_position
            count = _count_within(begin, end, offsets, sizes)
            if count < len(offsets):
                offsets, sizes = offsets[:count], sizes[:count]
            if not count or not _is_readable(file, offsets, sizes):
                return []
            run, cuts = cut_each(address_of(file.array), file.size, begin, end, offsets, sizes)
        finally:
            file.release()
        return messages_of(run, cuts, StoredMessage, READERS)

    def topic_and_end(self, offset: int) -> tuple[str, int] | None:
        """Return the topic of the message at ``offset`` and the offset after it, or None if there is no message."""
        message = self.read(offset)
        return (message.topic, offset + message.size_bytes) if message is not None else None

    def slots_at(self, records: Iterable[tuple[int, int]]) -> list[tuple[str, int, int] | None]:
        """Return (topic, queue id, queue offset) of the record at each (offset, size), or None without a record.

        Fastest if the offsets rise. The files are read, not mapped, and at most one is open at a time, so that files
        which a writer's retention removes free their space. Thread rule: no other thread may use the log.
        """
        slots: list[tuple[str, int, int] | None] = []
        held: MappedFile | None = None
        for offset, size in records:
            file = self.queue.find(offset)
            if held is not None and file is not held:
                held.close_if_idle()
            held = file
            slots.append(_slot_in(file, offset, size) if file is not None else None)
        if held is not None:
            held.close_if_idle()
        return slots

    def has_message(self, entry: QueueEntry, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether a queue's unit points to the message with this topic, queue id and queue offset."""
        message = self.read(entry.phy_offset, entry.size_bytes)
        slot = (topic, queue_id, queue_offset)
        return message is not None and (message.topic, message.queue_id, message.queue_offset) == slot

    def pickup_store_timestamp(self, offset: int, size: int) -> int:
        """Return the store time (ms) of the record at ``offset``, or -1 if it is gone (pickupStoreTimestamp)."""
        if offset < self.min_offset or size < record.MIN_RECORD_SIZE:
            return -1
        held = self.get_message(offset, size)
        if held is None:
            return -1
        with held:
            layout = record.read_layout(held.array.data, 0, size)
            if not isinstance(layout, Layout):
                return -1
            return int(_LONG.unpack_from(held.array.data, layout.store_timestamp_at)[0])

    def check(self, offset: int, check: CheckCRC) -> Layout | StopReason:
        """Check the record at ``offset``. A missing file counts as a file that ended without a blank.

        Returns the record's layout, or the reason why no valid record is there.
        """
        file = self.queue.find(offset)
        if file is None:
            return StopReason.NO_BLANK
        position = offset - file.file_from_offset
        # a hole: do not read a file that is only reserved
        if file.file.data_from(position) >= position + record.BLANK_SIZE:
            return StopReason.ZEROS
        fetch_record(file, position)
        return record.check_record(file.array.data, position, file.size, check)

    def close(self) -> None:
        """Close the files."""
        self.queue.close()


def _count_within(begin: int, end: int, offsets: list[int], sizes: list[int]) -> int:
    """How many of the records from the first on are from ``begin`` to ``end``, and at most _RUN_BYTES together."""
    is_usual = min(sizes) >= record.MIN_RECORD_SIZE and sum(sizes) <= _RUN_BYTES
    if is_usual and min(offsets) >= begin and max(map(add, offsets, sizes)) <= end:
        return len(offsets)
    count = copied = 0
    for offset, size in zip(offsets, sizes, strict=True):
        copied += size
        if offset < begin or not record.MIN_RECORD_SIZE <= size <= end - offset or copied > _RUN_BYTES:
            break
        count += 1
    return count


def _is_readable(file: MappedFile, offsets: list[int], sizes: list[int]) -> bool:
    """Read records into memory, together if they are near each other. Returns False if any of them may be damaged."""
    first, last = min(offsets), max(map(add, offsets, sizes))
    spans = [(first, last - first)] if last - first <= _RUN_BYTES else zip(offsets, sizes, strict=True)
    try:
        for offset, length in spans:
            position = offset - file.file_from_offset
            file.fetch(position, length)
            if file.file.lost_in(position, length) is not None:
                return False
    except DiskError:  # perhaps of a record between them
        return False
    return True


def fetch_record(file: MappedFile, position: int) -> int:
    """Read the apparent record at ``position`` of ``file`` into memory. Returns its length in bytes.

    Raises DiskError.
    """
    file.fetch(position, record.BLANK_SIZE)
    if file.size - position >= record.BLANK_SIZE:
        size, magic = _HEAD.unpack_from(file.array.data, position)
        if magic in (record.MAGIC_V1, record.MAGIC_V2):
            file.fetch(position, size)
            return max(int(size), record.BLANK_SIZE)
    return record.BLANK_SIZE


def _slot_in(file: MappedFile, offset: int, size: int) -> tuple[str, int, int] | None:
    if not file.hold_to_read():
        return None
    try:
        position = offset - file.file_from_offset
        if int.from_bytes(file.file.read_at(position, _SIZE_BYTES)) != size:
            return None  # checked before the read: a damaged unit may name a size of a gigabyte
        raw = memoryview(file.file.read_at(position, size))
        layout = record.read_layout(raw, 0, len(raw))
        if not isinstance(layout, Layout) or file.file.lost_in(position, size) is not None:
            return None
        message = record.decode_record(raw, 0, layout)
        return (message.topic, message.queue_id, message.queue_offset) if message.phy_offset == offset else None
    except DiskError:
        return None
    finally:
        file.release()
