"""A commit log file as executors read it, and the fingerprints that show whether it is the driver's log.

A file is read in ranges of bytes, copied into memory that is reused. The obvious way, a mapping, is slower: for bytes
that are read once, setting up and removing pages costs more than a copy from the page cache.
Also, a file that shrinks cannot kill the process, and every file system can read ranges.

A partition is planned on the driver and read on an executor, which may have another directory under the same path: a
disk that is not mounted, a mount of another store, a copy that is behind. Each piece of a partition therefore carries
the CRC of the bytes at its beginning and at its end (:class:`LogMark`). These bytes hold times, offsets and CRCs of
records and never change. An executor compares them before it reads. A difference is an error regardless of
failOnDataLoss.

A log may lie in several directories. If a directory has no log file although the query was planned on one in it, the
disk is not mounted, which is an error. Otherwise a missing file is explained by retention only if the log begins after
it and still has its planned end: retention deletes files from the front, and never the last one. Everything else (no
directory, an empty one, a hole) is an error.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from functools import lru_cache
from types import TracebackType
from typing import Any, NamedTuple
from zlib import crc32

from gantrymq.errors import StoreError
from gantrymq.format.names import offset_name
from gantrymq.format.record import SECTOR, Layout, decode_record, read_layout
from gantrymq.kernels.arrays import read_only
from gantrymq.model.message import StoredMessage
from gantrymq.store.log.record_chain import Window
from gantrymq.tools.locations import Location, file_system, log_files

_BLOCK_BYTES = 64 << 10  # bytes; an object store returns this as quickly as less
_BLOCKS_KEPT = 256
_SECTOR_BYTES = 4096  # the unit in which the kernel fails to read
_LENGTH_BYTES = 4
_MAX_RECORD_BYTES = 64 << 20
MARK_BYTES = 64  # bytes: the fixed part of a record, with sizes, CRC, offsets and times


class NotThereError(StoreError):
    """The file or a part of it does not exist: not any more, or not yet."""


class BadSectorError(StoreError):
    """The disk cannot read the bytes at ``position`` of the file; the bytes before it were read."""

    def __init__(self, path: str, position: int, error: OSError) -> None:
        super().__init__(path, f"cannot be read at {position}: {error.strerror or error}")
        self.position = position


class OpenLogFile:
    """An open file, read-only. Use it as a context manager. Every failure raises StoreError."""

    def __init__(self, location: Location) -> None:
        self.path = str(location)
        self._remote: Any = None
        self._fd = -1
        try:
            if location.uri is None:
                self._fd = os.open(location.path, os.O_RDONLY | os.O_CLOEXEC)
            else:
                self._remote = file_system(location.uri).open_input_file(location.path)
        except (FileNotFoundError, NotADirectoryError):
            raise NotThereError(self.path, "the file went away after the query was planned (retention?)") from None
        except OSError as error:
            raise StoreError(self.path, f"cannot be opened: {error.strerror or error}") from error

    def size_bytes(self) -> int:
        """The length of the file in bytes."""
        return os.fstat(self._fd).st_size if self._remote is None else int(self._remote.size())

    def read_into(self, view: memoryview, position: int) -> None:
        """Fill ``view`` with the bytes from ``position`` on. Raises NotThereError, BadSectorError, StoreError."""
        while view:
            try:
                count = self._read(view, position)
            except OSError as error:
                if error.errno == errno.EIO:
                    raise BadSectorError(self.path, position, error) from error
                raise StoreError(self.path, f"cannot be read at {position}: {error.strerror or error}") from error
            if not count:
                raise NotThereError(
                    self.path, f"ends at {self.size_bytes()}, and was longer when the query was planned"
                )
            view, position = view[count:], position + count

    def read_readable(self, position: int, size: int) -> bytearray:
        """Read ``size`` bytes from ``position`` on, fewer at the end of the file.

        Blocks with a bad sector read as zeros. Raises StoreError.
        """
        data = bytearray(size)
        at = 0
        while at < size:
            try:
                count = self._read(memoryview(data)[at:], position + at)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise StoreError(self.path, f"cannot be read at {position + at}: {error}") from error
                count = _SECTOR_BYTES - (position + at) % _SECTOR_BYTES
            else:
                if not count:
                    return data[:at]
            at += count
        return data

    def _read(self, view: memoryview, position: int) -> int:
        if self._remote is None:
            return os.preadv(self._fd, [view], position)
        data = self._remote.read_at(len(view), position)
        view[: len(data)] = data
        return len(data)

    def __enter__(self) -> OpenLogFile:
        """Return this file."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        if self._remote is not None:
            self._remote.close()
        else:
            os.close(self._fd)


def _new_room(size: int) -> memoryview:
    return memoryview(bytearray(size))


class RangeSource:
    """The bytes of a log file, one range at a time; a :class:`~gantrymq.store.log.record_chain.LogSource`.

    ``base`` is the physical offset of the first byte of ``file``; records may begin in its first ``size`` bytes.
    ``room(size)`` gives the memory for a window, which may be that of the window before. A window ends before a bad
    sector. Raises StoreError.
    """

    def __init__(
        self, file: OpenLogFile, base: int, size: int, window_bytes: int, room: Callable[[int], memoryview] = _new_room
    ) -> None:
        self.base, self.size, self.window_bytes = base, size, window_bytes
        self._file = file
        self._room = room

    def data_from(self, position: int) -> int:
        """Return ``position``: holes are not known."""
        return position

    def read(self, position: int, end: int, *, is_search: bool = False) -> Window:
        """Read a range. In a search a bad sector reads as zeros, and so do bytes after the end of the file."""
        origin = position - position % SECTOR
        if is_search:
            data = self._file.read_readable(origin, end - origin)
            return Window(read_only(data.ljust(end - origin, b"\0")), origin, end)
        view = self._room(end - origin)
        try:
            self._file.read_into(view, origin)
        except BadSectorError as error:
            return Window(read_only(view), origin, max(error.position, position), error)
        return Window(read_only(view), origin, end)


def message_at(log: Location, file_size: int, phy_offset: int) -> StoredMessage | None:
    """The record at a physical offset of the log in directory ``log``; None if none begins there. Raises StoreError."""
    base = phy_offset - phy_offset % file_size
    room = base + file_size - phy_offset
    if room < _LENGTH_BYTES:
        return None
    with OpenLogFile(log / offset_name(base)) as file:
        head = bytearray(_LENGTH_BYTES)
        file.read_into(memoryview(head), phy_offset - base)
        size = int.from_bytes(head, "big")
        if not _LENGTH_BYTES < size <= min(room, _MAX_RECORD_BYTES):
            return None
        record = bytearray(size)
        file.read_into(memoryview(record), phy_offset - base)
    with memoryview(record) as view:
        layout = read_layout(view, 0, size)
        return decode_record(view, 0, layout) if isinstance(layout, Layout) else None


class RangedBytes:
    """A file that is read in blocks on demand; the last used blocks are cached."""

    def __init__(self, file: OpenLogFile, size_bytes: int) -> None:
        self._file, self._size_bytes = file, size_bytes
        self._block = lru_cache(_BLOCKS_KEPT)(self._read_block)

    def __getitem__(self, part: slice) -> bytes:
        """The bytes from ``part.start`` to before ``part.stop``, fewer at the end of the file. Raises StoreError."""
        start, stop = part.start or 0, min(part.stop, self._size_bytes)
        blocks = range(start // _BLOCK_BYTES, -(-stop // _BLOCK_BYTES))
        data = b"".join(map(self._block, blocks))
        return data[start - blocks.start * _BLOCK_BYTES :][: stop - start]

    def _read_block(self, number: int) -> bytes:
        begin = number * _BLOCK_BYTES
        data = bytearray(min(_BLOCK_BYTES, self._size_bytes - begin))
        self._file.read_into(memoryview(data), begin)
        return bytes(data)


class OtherLogError(StoreError):
    """The directory holds another log than the one that the query was planned on."""


class LogMark(NamedTuple):
    """The CRC of ``size`` bytes at position ``at`` of a log file; picklable."""

    at: int
    size: int
    crc: int

    @classmethod
    def read(cls, file: OpenLogFile, at: int, size: int) -> LogMark:
        """The mark of the current bytes. Raises StoreError."""
        return cls(at, size, _crc(file, at, size))

    def require(self, file: OpenLogFile) -> None:
        """Raise OtherLogError if the file has other bytes there, StoreError if it cannot be read."""
        if _crc(file, self.at, self.size) != self.crc:
            raise OtherLogError(
                file.path,
                f"on host {socket.gethostname()} is not the file that the query was planned on: its bytes at {self.at} "
                "differ; check that this host mounts the driver's store there, then run the query again",
            )


class LogEnd(NamedTuple):
    """The last bytes of the log when it was planned on."""

    base: int
    mark: LogMark


def _crc(file: OpenLogFile, at: int, size: int) -> int:
    data = bytearray(size)
    file.read_into(memoryview(data), at)
    return crc32(data)


def require_retention(error: NotThereError, planned: Location, base: int, end: LogEnd | None) -> None:
    """Return if retention has deleted the file ``planned``, which begins at ``base``; otherwise raise StoreError.

    ``end`` is the end of the log when the query was planned. Without it, any log that begins after ``base`` is
    accepted.
    """
    log, host = planned.parent, socket.gethostname()
    directory = Location(planned.path.rpartition("/")[0])
    if len(log.logs) > 1 and not log_files(directory):  # one of several disks, whatever the others hold
        raise StoreError(
            str(directory),
            f"on host {host} is missing or has no log file, but the query was planned on {offset_name(base)} in it; "
            "mount that disk of the log there, then run the query again",
        ) from error
    files = log_files(log)
    if not files:
        raise StoreError(
            str(log),
            f"on host {host} is missing or has no log file, but the query was planned on {offset_name(base)}; "
            "mount the store there, then run the query again",
        ) from error
    if files[0] <= base:
        raise StoreError(
            str(log / offset_name(base)),
            f"is missing on host {host} although {offset_name(files[0])} before it exists, so retention did "
            "not delete it; compare this directory with the driver's, then run the query again",
        ) from error
    if end is not None:
        try:
            with OpenLogFile(log / offset_name(end.base)) as file:
                end.mark.require(file)
        except NotThereError:
            raise OtherLogError(
                str(log),
                f"on host {host} has neither {offset_name(base)} nor {offset_name(end.base)}, the last file of the log "
                "that the query was planned on; mount that store there, then run the query again",
            ) from error
