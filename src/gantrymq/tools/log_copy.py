"""Writing a clean commit log of records that keep their places.

A record goes where it lay. What is lost in between becomes filler: records of a rolled-back transaction, which enter
no queue and no index, with a body of zeros as long as the gap; at the end of a file it becomes the blank. So every
physical offset, message id and half message's offset stays true. A file of which nothing is left is a blank alone.
A record of a short topic may leave no room for the topic of filler, which is then cut short.

Thread rule: one thread.
"""

from __future__ import annotations

from pathlib import Path

from gantrymq.errors import StoreError
from gantrymq.format.names import offset_name
from gantrymq.format.properties import CRC_PROPERTY_SIZE
from gantrymq.format.record import BLANK_SIZE, body_crc, encode_blank, encode_record, record_size
from gantrymq.fs.api import File, FileSystem
from gantrymq.model.flags import TRANSACTION_ROLLBACK
from gantrymq.model.message import LOOPBACK, StoredMessage

FILLER_TOPIC = "RMQ_SYS_SALVAGE_FILLER"
_LARGEST_FILLER = 1 << 20  # a broker reads a record as a whole
_SMALLEST_FILLER = record_size(1, TRANSACTION_ROLLBACK, 0, 1, 0)  # as the smallest record that can be lost
_WHOLE_FILLER = record_size(1, TRANSACTION_ROLLBACK, 0, len(FILLER_TOPIC), CRC_PROPERTY_SIZE)


class LogCopy:
    """Writes files of ``file_size`` bytes into ``directory``; places are physical offsets and only rise.

    ``position`` is behind the last record.
    """

    def __init__(self, fs: FileSystem, directory: Path, file_size: int, *, append_crc: bool) -> None:
        self._fs = fs
        self._directory = directory
        self._file_size = file_size
        self._crc_size = CRC_PROPERTY_SIZE if append_crc else 0
        self._file: File | None = None
        self._base = 0
        self.position = 0

    def can_take(self, start: int, end: int) -> bool:
        """Whether a record at [start, end) fits: into a file, with room for its blank, and for filler before it."""
        base = start - start % self._file_size
        before = self.position if self._file is not None and base == self._base else base
        gap = start - before
        return (gap == 0 or gap >= _SMALLEST_FILLER) and end + BLANK_SIZE <= base + self._file_size

    def write(self, start: int, raw: memoryview, last_store_ms: int) -> None:
        """Put records at ``start``; :meth:`can_take` has allowed it. Raises DiskFullError."""
        base = start - start % self._file_size
        if self._file is None:
            self._begin(base)
        while self._base < base:
            self._end_file()
            self._begin(self._base + self._file_size)
        assert self._file is not None
        self._fill(start, last_store_ms)
        self._file.write_at(start - self._base, raw)
        self.position = start + len(raw)

    def finish(self) -> None:
        """Make the last file durable; behind its last record it reads as zeros."""
        if self._file is not None:
            self._close()
            self._fs.sync_directory(self._directory)

    def _begin(self, base: int) -> None:
        self._fs.make_directory(self._directory)
        self._file = self._fs.open(self._directory / offset_name(base), writable=True, create=True)
        self._file.resize(self._file_size)
        self._base = self.position = base

    def _end_file(self) -> None:
        assert self._file is not None
        self._file.write_at(*_blank(self.position - self._base, self._file_size))
        self._close()

    def _close(self) -> None:
        assert self._file is not None
        self._file.sync()
        self._file.close()
        self._file = None

    def _fill(self, end: int, store_ms: int) -> None:
        assert self._file is not None
        while self.position < end:
            gap = end - self.position
            # What is left behind this piece must be none, or enough for another.
            size = gap if gap <= _LARGEST_FILLER else min(_LARGEST_FILLER, gap - _WHOLE_FILLER)
            self._file.write_at(
                self.position - self._base, encode_filler(self.position, size, store_ms, self._crc_size)
            )
            self.position += size


def encode_filler(phy_offset: int, size: int, store_ms: int, crc_size: int) -> bytes:
    """A record of ``size`` bytes, 90 or more, that enters no queue and no index."""
    # Where there is no room for a CRC of the whole, what was lost had none either.
    crc_size = crc_size if size >= _SMALLEST_FILLER + crc_size else 0
    room = size - crc_size - _SMALLEST_FILLER
    topic = FILLER_TOPIC[: 1 + room]
    body = bytes(room + 1 - len(topic))
    message = StoredMessage(
        topic=topic,
        queue_id=0,
        queue_offset=0,
        phy_offset=phy_offset,
        size_bytes=size,
        flag=0,
        sys_flag=TRANSACTION_ROLLBACK,
        born_timestamp_ms=store_ms,
        born_host=LOOPBACK,
        store_timestamp_ms=store_ms,
        store_host=LOOPBACK,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_crc=body_crc(body),
        body=body,
        properties={},
        version=1,
    )
    raw = encode_record(message, topic.encode(), b"", append_crc=crc_size > 0)
    if len(raw) != size:
        raise StoreError(FILLER_TOPIC, f"no filler of {size} bytes can be made")
    return raw


def end_file(fs: FileSystem, directory: Path, base: int, end: int, file_size: int) -> None:
    """End the file of a copy, or make it, with a blank at the physical offset ``end``. Raises DiskFullError."""
    fs.make_directory(directory)
    file = fs.open(directory / offset_name(base), writable=True, create=True)
    try:
        file.resize(file_size)
        file.write_at(*_blank(end - base, file_size))
        file.sync()
    finally:
        file.close()


def _blank(position: int, file_size: int) -> tuple[int, bytes]:
    """(where, what) ends a file."""
    return position, encode_blank(file_size - position)
