"""Local files.

Durability: ``sync`` is fdatasync, which on Linux also writes back the dirty pages of mappings and, unlike Python's
msync, lets other threads run meanwhile. Space: ``reserve`` is posix_fallocate, and the free space limits nothing where
the file system may compress. Locking: a POSIX record lock on byte 0, as Java's ``tryLock(0, 1)`` takes. Such a lock
does not exclude within one process, so this process keeps a table of its locked files. Closing *any* descriptor of the
file drops the lock, so no other code here opens the lock file.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import numpy as np

from gantrymq.errors import DiskError, DiskFullError, NotAStoreError, StoreError, StoreLockedError, StorePermissionError
from gantrymq.fs import pages
from gantrymq.fs.api import Bytes, Entry, FileLock, Identity
from gantrymq.fs.descriptors import (
    allocate_space,
    begin_writing,
    copy_owner,
    data_from,
    direct_descriptor,
    identity_of,
    make_one_directory,
    named_errors,
    nearest_directory,
    open_descriptor,
    open_directory,
    punch_hole,
    release_pages,
    sync_data,
    sync_errors,
    sync_file_systems,
)
from gantrymq.fs.lock_holder import lock_holder
from gantrymq.fs.reads import data_end

_SMALL = 1 << 16
_MANY_DIRECTORIES = 32
_ZERO_CHUNK = bytes(1 << 20)
_NO_FILE = "gantrymq.no-such-file"
_MOUNTS = Path("/proc/self/mountinfo")
_COMPRESSING = frozenset(("btrfs", "zfs", "bcachefs", "f2fs", "ubifs", "ntfs3", "fuseblk", "apfs"))
_POINT_AT = 4


class RealFile:
    """A file of the operating system; see :class:`gantrymq.fs.api.File`."""

    def __init__(self, path: Path, descriptor: int, *, writable: bool) -> None:
        self._path = path
        self._fd = descriptor
        self._direct_fd: int | None = None  # None: not opened yet; -1: not available
        self._writable = writable
        self._mapping: pages.Mapping | None = None
        self._shared: pages.Mapping | None = None  # what map() made

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._path

    def size(self) -> int:
        """Its length in bytes."""
        with named_errors(self._path):
            return os.fstat(self._fd).st_size

    def identity(self) -> Identity:
        """The identity of the open file."""
        with named_errors(self._path):
            return identity_of(os.fstat(self._fd))

    def read_at(self, position: int, length: int) -> bytes:
        """``length`` bytes from ``position``; fewer only at the end of the file."""
        return pages.read_at(self._fd, self._path, position, length)

    def view(self, position: int, length: int, *, read_ahead: bool = True) -> Bytes:
        """A part of a mapping whose pages are loaded; a copy if the system cannot load them."""
        if self._mapping is None and self.size():
            self._mapping = pages.Mapping.of(mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ))
        mapping = self._mapping
        if mapping is not None and not read_ahead:
            _ask_for_just(mapping.mapped, self._fd, position, length)
        if mapping is None or not pages.try_fetch(mapping, position, length):
            return np.frombuffer(self.read_at(position, length), np.uint8)
        return mapping.array[position : position + length]

    def data_from(self, position: int) -> int:
        """The next position with space on the disk or dirty pages; ``position`` if it is unknown."""
        return data_from(self._fd, position)

    def write_at(self, position: int, data: bytes | memoryview) -> None:
        """Write all of ``data`` at ``position``."""
        view = memoryview(data)
        with named_errors(self._path, len(view)):
            while view:
                written = os.pwrite(self._fd, view, position)
                position += written
                view = view[written:]

    def write_past_cache(self, position: int, data: bytes | memoryview) -> None:
        """Write through a second descriptor with O_DIRECT.

        Like :meth:`write_at` if the file system does not support it.
        """
        if self._direct_fd is None:
            self._direct_fd = direct_descriptor(self._path, self._fd)
        view = memoryview(data)
        with named_errors(self._path, len(view)):
            while view and self._direct_fd >= 0:
                try:
                    written = os.pwrite(self._direct_fd, view, position)
                except OSError as error:
                    if error.errno != errno.EINVAL:
                        raise
                    break
                position += written
                view = view[written:]
        self.write_at(position, view)

    def zero(self, position: int, length: int) -> None:
        """Punch a hole, up to an existing one; write zeros if the file system cannot."""
        end = data_end(self, position, position + length)
        if end <= position or punch_hole(self._fd, position, end - position):
            return
        for start in range(position, end, len(_ZERO_CHUNK)):
            self.write_at(start, memoryview(_ZERO_CHUNK)[: end - start])

    def resize(self, size_bytes: int) -> None:
        """Set the length of the file."""
        with named_errors(self._path, size_bytes):
            os.ftruncate(self._fd, size_bytes)

    def reserve(self, position: int, length: int, *, leave: int = 0) -> None:
        """Allocate the space of these bytes now."""
        if length <= 0:
            return
        with named_errors(self._path, length):
            if (leave or length > _SMALL) and self._lacks_room_for(position, length, leave):
                if self._has_space(position, length):
                    return
                # ext4 takes all space before it fails, and others would meanwhile find the disk full.
                raise DiskFullError(self._path, length)
            allocate_space(self._fd, position, length)

    def _has_space(self, position: int, length: int) -> bool:
        status = os.fstat(self._fd)
        if status.st_blocks * 512 >= status.st_size:
            return True
        return os.lseek(self._fd, position, os.SEEK_HOLE) >= position + length

    def _lacks_room_for(self, position: int, length: int, leave: int) -> bool:
        disk, allocated = os.fstatvfs(self._fd), os.fstat(self._fd).st_blocks * 512
        free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail  # some blocks are reserved for root
        here = max(allocated - position, 0)  # if all bytes before ``position`` have space, the rest of it is here
        return free * disk.f_frsize - leave < max(length - here, 0)

    def map(self) -> Bytes:
        """The whole file as a mapped array."""
        size = self.size()
        if size == 0:
            return np.empty(0, np.uint8)
        access = mmap.ACCESS_WRITE if self._writable else mmap.ACCESS_READ
        self._shared = pages.Mapping.of(mmap.mmap(self._fd, size, access=access))
        return self._shared.array

    def fetch(self, position: int, length: int) -> None:
        """Load mapped bytes into memory."""
        if self._shared is not None:
            pages.fetch(self._shared, self._descriptor, self._path, position, length)

    def _descriptor(self) -> int:
        return self._fd

    def lost_in(self, position: int, length: int) -> DiskError | None:
        """None: a read raises the error."""
        return None

    def release_pages(self, position: int, length: int) -> None:
        """Unmap the whole pages of the shared mapping within these bytes."""
        begin, end = -(-position // mmap.PAGESIZE) * mmap.PAGESIZE, position + length
        length = end - end % mmap.PAGESIZE - begin
        shared = self._shared
        if shared is not None and length > 0:
            release_pages(shared.address + begin, length)

    def begin_sync(self) -> None:
        """Call Linux's sync_file_range, which does not wait. Does nothing on other systems."""
        begin_writing(self._fd)

    def sync(self) -> None:
        """Call fdatasync."""
        with sync_errors(self._path):
            sync_data(self._fd)

    def close(self) -> None:
        """Close the descriptor."""
        self._mapping = self._shared = None  # views keep them alive
        direct_fd, self._direct_fd = self._direct_fd, -1
        if direct_fd is not None and direct_fd >= 0:
            with suppress(OSError):  # the sync through the other descriptor reports errors
                os.close(direct_fd)
        fd, self._fd = self._fd, -1  # also if closing fails: the number may be reused by then
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        """Close the descriptor of a dropped file."""
        self.close()


def _entry(item: os.DirEntry[str]) -> Entry | None:
    """Return the entry, or None for a dangling link or a file that was removed meanwhile."""
    try:
        status = item.stat()
    except FileNotFoundError:
        return None
    is_directory = item.is_dir()
    size_bytes, modified_ms = 0 if is_directory else status.st_size, status.st_mtime_ns // 1_000_000
    is_special = not (is_directory or stat.S_ISREG(status.st_mode))
    return Entry(item.name, size_bytes, is_directory, modified_ms, item.is_symlink(), is_special)


def _nearest(path: Path) -> Path:
    with named_errors(path):
        return nearest_directory(path)


def _ask_for_just(mapping: mmap.mmap, descriptor: int, position: int, length: int) -> None:
    """Make the system read only these pages, if it can."""
    begin = position - position % mmap.PAGESIZE
    with suppress(OSError, ValueError, AttributeError):
        os.posix_fadvise(descriptor, begin, position + length - begin, os.POSIX_FADV_WILLNEED)
        mapping.madvise(mmap.MADV_RANDOM, begin, position + length - begin)


class RealFileSystem:
    """The operating system's file system; see :class:`gantrymq.fs.api.FileSystem`."""

    def open(
        self,
        path: Path,
        *,
        writable: bool = False,
        create: bool = False,
        like: Path | None = None,
        is_private: bool = False,
    ) -> RealFile:
        """Open a file."""
        flags = (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT if create else 0)
        flags |= os.O_EXCL if create and like is not None else 0  # root must not change the owner of a link's target
        mode = 0o600 if is_private else 0o644
        file = RealFile(path, descriptor := open_descriptor(path, flags, mode), writable=writable)
        if like is not None:
            copy_owner(descriptor, like)
        return file

    def scan(self, path: Path) -> list[Entry]:
        """The entries of a directory, sorted by name."""
        entries: list[Entry | None] = []
        with suppress(FileNotFoundError), named_errors(path), suppress(NotADirectoryError), os.scandir(path) as names:
            entries = [_entry(item) for item in names]
        return sorted(filter(None, entries), key=lambda entry: entry.name)

    def exists(self, path: Path) -> bool:
        """Whether there is a file or directory of this name."""
        with named_errors(path):
            return path.exists()

    def identity(self, path: Path) -> Identity | None:
        """The identity of the file or directory of this name."""
        try:
            with named_errors(path):
                return identity_of(os.stat(path))
        except (FileNotFoundError, NotAStoreError):  # a parent may be gone, or be a file now
            return None

    def make_directory(self, path: Path, *, synced: bool = True) -> None:
        """Create a directory and its parents.

        Each name is synced, so that a synced file below cannot be lost with its directory.
        """
        missing = []
        with named_errors(path):
            while not path.is_dir():
                missing.append(path)
                path = path.parent
        for directory in reversed(missing):
            with named_errors(directory):
                make_one_directory(directory)
            if synced:
                self.sync_directory(directory.parent)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        with named_errors(path):
            path.unlink(missing_ok=True)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        try:
            path.rmdir()
        except OSError:
            return

    def rename(self, source: Path, target: Path) -> None:
        """Move a file over another in one step."""
        with named_errors(source):
            os.replace(source, target)

    def sync_directory(self, *paths: Path) -> None:
        """Call fsync for each directory, or syncfs once for many of them."""
        if len(paths) > _MANY_DIRECTORIES and sync_file_systems(paths):
            return
        for path in paths:
            with suppress(FileNotFoundError), open_directory(path) as fd, sync_errors(path):
                os.fsync(fd)

    def can_rename(self, source: Path, target: Path) -> bool:
        """Whether the nearest existing directories are on one disk, within one mount."""
        source, target = _nearest(source), _nearest(target)
        if source.stat().st_dev != target.stat().st_dev:
            return False
        try:
            os.rename(source / _NO_FILE, target / _NO_FILE)  # Linux checks the mounts before the file
        except OSError as error:
            return error.errno != errno.EXDEV
        return True

    def used_ratio(self, path: Path) -> float:
        """The used share of the blocks available to ordinary users, rounded up to whole percent as in RocketMQ."""
        with named_errors(path):
            status = os.statvfs(path)
        used = status.f_blocks - status.f_bfree
        return -(-100 * used // max(used + status.f_bavail, 1)) / 100

    def free_bytes(self, path: Path) -> int | None:
        """Free bytes of the nearest existing directory's disk; for root including the reserved blocks."""
        with named_errors(path):
            there = nearest_directory(path.absolute())
            status = os.statvfs(there)
        free = status.f_bfree if os.geteuid() == 0 else status.f_bavail
        return None if may_compress(there) else free * status.f_frsize

    def lock(self, path: Path, text: bytes) -> FileLock:
        """Take the record lock on byte 0."""
        return _RecordLock(path, text)


def _open_elsewhere(path: Path) -> str:
    """The reason of a refused lock, with the process that has it if the kernel's list shows that."""
    holder = lock_holder(path)
    return "is open in another process" if holder is None else f"is open in another process, id {holder}; stop it first"


def _locked_directory(path: Path) -> int:
    """A locked descriptor of the directory; -1 if the file system has no such locks. Raises BlockingIOError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise
    except OSError:
        os.close(fd)
        return -1
    return fd


class _RecordLock:
    """A POSIX record lock, exclusive within this process too, and a lock on the directory if possible.

    RocketMQ takes only the record lock. It protects nothing after the lock file was removed, because the next broker
    locks a new file; so the directory is locked too (flock).
    """

    _held: ClassVar[set[tuple[int, int]]] = set()
    _directories: ClassVar[set[int]] = set()  # descriptors that a forked child must close
    _guard = threading.Lock()

    def __init__(self, path: Path, text: bytes) -> None:
        with self._guard:
            self._refuse_if_held_here(path)
            self._fd = open_descriptor(path, os.O_RDWR | os.O_CREAT)
            try:
                with named_errors(path):
                    self._directory_fd = -1
                    fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
                    self._directory_fd = _locked_directory(path.parent)
            except (OSError, StoreError) as error:
                os.close(self._fd)
                if isinstance(error, BlockingIOError | StorePermissionError):
                    raise StoreLockedError(path.parent, _open_elsewhere(path)) from error
                raise
            if self._directory_fd >= 0:
                self._directories.add(self._directory_fd)
            status = os.fstat(self._fd)
            self._identity = (status.st_dev, status.st_ino)
            self._held.add(self._identity)
            with suppress(OSError):  # a full disk: the text is only for people
                os.pwrite(self._fd, text, 0)

    def _refuse_if_held_here(self, path: Path) -> None:
        # With stat, not open: closing a second descriptor would drop this process's lock.
        with named_errors(path):
            try:
                status = os.stat(path)
            except FileNotFoundError:
                return
        if (status.st_dev, status.st_ino) in self._held:
            raise StoreLockedError(path.parent, "is already open in this process")

    def identity(self) -> Identity:
        """The identity of the lock file."""
        return identity_of(os.fstat(self._fd))

    @classmethod
    def _forget_directories(cls) -> None:
        for descriptor in cls._directories:
            os.close(descriptor)
        cls._directories.clear()

    def release(self) -> None:
        """Release the lock."""
        with self._guard:
            if self._directory_fd in self._directories:  # not in a forked child
                self._directories.discard(self._directory_fd)
                fcntl.flock(self._directory_fd, fcntl.LOCK_UN)
                os.close(self._directory_fd)
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
                self._held.discard(self._identity)


os.register_at_fork(after_in_child=_RecordLock._forget_directories)


def may_compress(path: Path, mounts: Path = _MOUNTS) -> bool:
    """Whether the file system of ``path`` may compress; False if the system does not say."""
    target, best, kind = os.path.realpath(path), "", ""
    try:
        lines = mounts.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return False
    for line in lines:
        fields, _, rest = line.partition(" - ")
        point = fields.split(" ")[_POINT_AT].replace("\\040", " ")
        is_above = target == point or target.startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= len(best):  # of several mounts on one directory the last is visible
            best, kind = point, rest.split(" ")[0]
    return kind in _COMPRESSING
