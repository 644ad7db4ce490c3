"""System calls by descriptor, with errors that name the file.

Errors that a person can act on are converted to this package's errors. Linux functions without a Python name are looked
up in the C library; if it lacks one, the call reports that or has no effect. Each call that Python has only on Linux
has a plain fallback, which is slower and gives the same result.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from gantrymq.errors import DiskError, DiskFullError, NotAStoreError, StoreError, StorePermissionError, SyncFailedError
from gantrymq.fs.api import Identity

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_BROKEN = (
    *(errno.EIO, errno.EUCLEAN, errno.ENXIO, errno.ENODEV, errno.ESTALE, errno.EBADMSG, errno.ENODATA),
    *(errno.EREMOTEIO, errno.ETIMEDOUT, errno.EILSEQ, errno.ENOLINK, errno.ENOTCONN, errno.EHOSTDOWN),
)
_WRONG_KIND = {
    errno.EISDIR: "is a directory where a file is needed; move it away",
    errno.EEXIST: "is a file where a directory is needed; move it away",
    errno.ENOTDIR: "is a file where a directory is needed; move it away",
}
_ZEROS = bytes(1 << 20)
_OPENED_FOR_ITS_NAMES = os.O_DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)  # macOS has no O_PATH
_PIPE = "is a pipe where a file is needed"
_MADV_POPULATE_READ = 22
_PUNCH_HOLE_KEEP_SIZE = 0x03
_SYNC_FILE_RANGE_WRITE = 0x02
_PUNCH_HOLE_TAKES = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_MMAP_TAKES = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
_MAP_FIXED = 0x10
_MADVISE_TAKES = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_SYNC_FILE_RANGE_TAKES = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


def is_disk_full(error: OSError) -> bool:
    """Whether the disk, a quota or a limit on the size of a file has no room for what was to be written."""
    return error.errno in _FULL


@contextmanager
def named_errors(path: Path, needed_bytes: int = 0, position: int | None = None) -> Iterator[None]:
    """Convert OSErrors that a person can act on to this package's errors.

    Every other one gets ``path`` as its file name.

    ``position`` is the byte of the file that was being read.
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOENT:
            nearest_directory(path)  # without a dangling link the file is just missing
        if is_disk_full(error):
            raise DiskFullError(path, needed_bytes) from error
        if error.errno in _DENIED:
            raise StorePermissionError(path, os.strerror(error.errno)) from error
        if error.errno in _WRONG_KIND:
            wrong = _file_above(path) if error.errno == errno.ENOTDIR else path
            raise NotAStoreError(wrong, _WRONG_KIND[error.errno]) from error
        if error.errno in _BROKEN:
            raise DiskError(path, os.strerror(error.errno), position) from error
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise


def _file_above(path: Path) -> Path:
    """``path`` or the parent of it that is a file where a directory is needed."""
    return next(
        (ancestor for ancestor in (path, *path.parents) if os.path.lexists(ancestor) and not os.path.isdir(ancestor)),
        path,
    )


def identity_of(status: os.stat_result) -> Identity:
    """The identity of a file."""
    return Identity(status.st_dev, status.st_ino, status.st_size)


def nearest_directory(path: Path) -> Path:
    """``path``, or the nearest existing directory above it. Raises StoreError at a dangling link.

    A dangling link is usually a disk that is not mounted; going on without it would lose its contents.
    """
    while not path.exists():
        if path.is_symlink():
            raise StoreError(path, "is a broken link; is its disk mounted?")
        path = path.parent
    return path


@contextmanager
def sync_errors(path: Path) -> Iterator[None]:
    """Convert any OSError: what was written before may be lost, even if the next sync succeeds."""
    try:
        yield
    except OSError as error:
        raise SyncFailedError(path, f"written data may be lost: {error.strerror}") from error


def open_descriptor(path: Path, flags: int, mode: int = 0o644) -> int:
    """Open a file, with ``flags``. A new one has the ``mode``. Raises NotAStoreError for a directory or a pipe.

    Without O_NONBLOCK, which has no effect on files, opening a pipe would wait for its other end.
    """
    with named_errors(path):
        fd = _made_by_root(path, flags, mode) if flags & os.O_CREAT and os.geteuid() == 0 else -1
        if fd < 0:
            fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, mode)
        kind = os.fstat(fd).st_mode
        if stat.S_ISDIR(kind) or stat.S_ISFIFO(kind):
            os.close(fd)
            raise NotAStoreError(path, _WRONG_KIND[errno.EISDIR] if stat.S_ISDIR(kind) else _PIPE)
    return fd


def _made_by_root(path: Path, flags: int, mode: int) -> int:
    """Create a new file as root, for the directory's owner; -1 if the name exists.

    The owner of an existing file must not change.
    """
    with _directory_of(path) as directory:
        try:
            fd = os.open(path.name, flags | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=directory)
        except FileExistsError:
            return -1
        inherit_owner(fd, directory)
    return fd


def make_one_directory(path: Path) -> None:
    """Create a directory below an existing one. One that another process created meanwhile is fine."""
    if os.geteuid() != 0:
        path.mkdir(exist_ok=True)
        return
    with _directory_of(path) as directory:
        try:
            os.mkdir(path.name, dir_fd=directory)
        except FileExistsError:
            if not path.is_dir():
                raise
            return
        fd = os.open(path.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            if not os.listdir(fd):  # otherwise another directory has replaced the new one
                inherit_owner(fd, directory)
        finally:
            os.close(fd)


@contextmanager
def _directory_of(path: Path) -> Iterator[int]:
    """Open the parent directory once for several calls, even if its owner replaces it meanwhile."""
    fd = os.open(path.parent, _OPENED_FOR_ITS_NAMES | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def inherit_owner(fd: int, directory: int) -> None:
    """Give a file or directory made by root the owner and mode of its directory, so that the broker's user can open it.

    Others get no write permission, even if they have it for the directory.
    """
    status = os.fstat(directory)
    if status.st_uid == 0:
        return
    mode = stat.S_IMODE(status.st_mode)
    with suppress(OSError):
        os.fchmod(fd, mode & (~0o002 if stat.S_ISDIR(os.fstat(fd).st_mode) else 0o664))
        os.fchown(fd, status.st_uid, status.st_gid)


@contextmanager
def open_directory(path: Path) -> Iterator[int]:
    """Open a directory; close it at the end of the block."""
    with named_errors(path):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def copy_owner(fd: int, like: Path) -> None:
    """Give a new file the owner and mode of another, as far as the process may; at least the mode."""
    status = os.stat(like)
    with suppress(OSError):
        os.fchmod(fd, stat.S_IMODE(status.st_mode))
        os.fchown(fd, status.st_uid, status.st_gid)


def direct_descriptor(path: Path, fd: int) -> int:
    """Another descriptor of the file ``fd`` with O_DIRECT; -1 if it is not available."""
    if not hasattr(os, "O_DIRECT"):
        return -1
    try:
        direct = os.open(path, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return -1
    if os.path.sameopenfile(direct, fd):
        return direct
    os.close(direct)  # the name was replaced meanwhile
    return -1


def data_from(fd: int, position: int) -> int:
    """The next data of a file by SEEK_DATA, see :meth:`gantrymq.fs.api.File.data_from`."""
    try:
        return os.lseek(fd, position, os.SEEK_DATA)
    except OSError as error:
        return max(os.fstat(fd).st_size, position) if error.errno == errno.ENXIO else position


@lru_cache
def _of_libc(takes: tuple[type, ...], *names: str) -> Any:
    """The first of these functions in Linux's C library, with these argument types, or None.

    On another system a function of that name may differ.
    """
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    for name in names:
        if (call := getattr(libc, name, None)) is not None:
            call.argtypes = takes
            return call
    return None


def punch_hole(fd: int, position: int, length: int) -> bool:
    """Free the space of these bytes, which then read as zeros; False if the file system cannot."""
    call = _of_libc(_PUNCH_HOLE_TAKES, "fallocate64", "fallocate")
    return call is not None and bool(call(fd, _PUNCH_HOLE_KEEP_SIZE, position, length) == 0)


def populate(address: int, length: int) -> int:
    """Read mapped pages from ``address`` on into memory. Returns 0 or an error number (EINVAL before Linux 5.14)."""
    return _advise(address, length, _MADV_POPULATE_READ)


def release_pages(address: int, length: int) -> None:
    """Unmap pages of a shared mapping, if possible; the next access maps them again."""
    _advise(address, length, mmap.MADV_DONTNEED)


def map_zeros(address: int, length: int) -> bool:
    """Replace these mapped pages by private zeros; False if the system cannot.

    Arrays over the mapping stay valid, and the memory is freed with the mapping.
    """
    call = _of_libc(_MMAP_TAKES, "mmap64", "mmap")
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
    if call is None:
        return False
    call.restype = ctypes.c_void_p
    return bool(call(address, length, mmap.PROT_READ | mmap.PROT_WRITE, kind, -1, 0) == address)


def disable_read_ahead(fd: int, address: int, position: int, length: int) -> None:
    """Drop these mapped pages from the page cache, and read each one alone from now on."""
    with suppress(OSError, AttributeError):
        os.posix_fadvise(fd, position, length, os.POSIX_FADV_DONTNEED)
    _advise(address, length, mmap.MADV_RANDOM)


def _advise(address: int, length: int, advice: int) -> int:
    """Call madvise without the GIL. Python's own madvise holds it, and would stop all other threads."""
    call = _of_libc(_MADVISE_TAKES, "madvise")
    if call is None:
        return errno.EINVAL
    return ctypes.get_errno() if call(address, length, advice) else 0


def allocate_space(fd: int, position: int, length: int) -> None:
    """posix_fallocate; without it, zeros are written into holes and after the end."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, position, length)
        return
    size = os.fstat(fd).st_size
    at = position
    while at < position + length:
        hole = os.lseek(fd, at, os.SEEK_HOLE) if at < size else at
        end = position + length if hole >= size else min(data_from(fd, hole), position + length)
        for begin in range(hole, end, len(_ZEROS)):
            os.pwrite(fd, _ZEROS[: end - begin], begin)
        at = max(end, hole)


def sync_data(fd: int) -> None:
    """fdatasync; on macOS F_FULLFSYNC, because its fsync leaves data in the drive's cache."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    elif hasattr(fcntl, "F_FULLFSYNC"):
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


def begin_writing(fd: int) -> None:
    """Start writing the file's dirty pages without waiting; the next fdatasync reports errors."""
    call = _of_libc(_SYNC_FILE_RANGE_TAKES, "sync_file_range")
    if call is not None:
        call(fd, 0, 0, _SYNC_FILE_RANGE_WRITE)


def sync_file_systems(paths: Iterable[Path]) -> bool:
    """syncfs of the file systems of these directories; False if the C library lacks it."""
    call = _of_libc((ctypes.c_int,), "syncfs")
    if call is None:
        return False
    by_device: dict[int, Path] = {}
    for path in paths:
        with suppress(FileNotFoundError):
            by_device.setdefault(os.stat(path).st_dev, path)
    for path in by_device.values():
        with open_directory(path) as fd, sync_errors(path):
            if call(fd):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return True
