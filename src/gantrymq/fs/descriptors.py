"""What local files ask of the operating system where Python's own words do not suffice: by descriptor, errors named.

The errors that a person can act on become ours. Functions of Linux that Python has no name for are looked up in the C
library; where it has none of that name, callers are told so or nothing happens. What Python offers on Linux alone has a
plain way beside it, which takes longer and promises the same.
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


@contextmanager
def named_errors(path: Path, needed_bytes: int = 0, position: int | None = None) -> Iterator[None]:
    """Turn the operating system's errors that a person can act on into ours; every other one names ``path``.

    ``position`` is the byte of the file that was being read.
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOENT:
            nearest_directory(path)  # where no link leads nowhere the file is just missing
        if error.errno in _FULL:
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
    """The file in ``path`` below which nothing can lie."""
    return next((one for one in (path, *path.parents) if os.path.lexists(one) and not os.path.isdir(one)), path)


def identity_of(status: os.stat_result) -> Identity:
    """Which file it is."""
    return Identity(status.st_dev, status.st_ino, status.st_size)


def nearest_directory(path: Path) -> Path:
    """``path``, or the nearest directory above it that is there. Raises StoreError at a link that leads nowhere.

    Nothing is missing there but a disk that is not mounted, and to go on without it would be to lose what it has.
    """
    while not path.exists():
        if path.is_symlink():
            raise StoreError(path, "is a link that leads nowhere; is its disk mounted?")
        path = path.parent
    return path


@contextmanager
def sync_errors(path: Path) -> Iterator[None]:
    """Whatever it was: what was written before may be lost, also if the next sync succeeds."""
    try:
        yield
    except OSError as error:
        raise SyncFailedError(path, f"what was written may be lost: {error.strerror}") from error


def open_descriptor(path: Path, flags: int) -> int:
    """A descriptor of a file, which is made where ``flags`` say so. Raises NotAStoreError at a directory or a pipe.

    Without O_NONBLOCK, which is nothing to files, a pipe would keep us waiting for somebody at its other end.
    """
    with named_errors(path):
        fd = _made_by_root(path, flags) if flags & os.O_CREAT and os.geteuid() == 0 else -1
        if fd < 0:
            fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode) or stat.S_ISFIFO(mode):
            os.close(fd)
            raise NotAStoreError(path, _WRONG_KIND[errno.EISDIR] if stat.S_ISDIR(mode) else _PIPE)
    return fd


def _made_by_root(path: Path, flags: int) -> int:
    """A file that was not there, or -1: what stands there, or a link's target, is nothing to give away."""
    with _directory_of(path) as directory:
        try:
            fd = os.open(path.name, flags | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=directory)
        except FileExistsError:
            return -1
        belong_to(fd, directory)
    return fd


def make_one_directory(path: Path) -> None:
    """Make a directory below one that is there; fine where somebody else was faster."""
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
            if not os.listdir(fd):  # else it is another, which was put in the place of ours
                belong_to(fd, directory)
        finally:
            os.close(fd)


@contextmanager
def _directory_of(path: Path) -> Iterator[int]:
    """One directory for all that is done there, whatever its owner puts in its place meanwhile."""
    fd = os.open(path.parent, _OPENED_FOR_ITS_NAMES | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def belong_to(fd: int, directory: int) -> None:
    """Give what root made the owner and the mode of its directory, or the broker's user could not open the store.

    Others may not write to it, also where they may to the directory.
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
    """A descriptor of a directory, for as long as it is wanted."""
    with named_errors(path):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def resemble(fd: int, like: Path) -> None:
    """Give a new file the owner and the mode of another, as far as we may: ours stays ours, with the other's mode."""
    status = os.stat(like)
    with suppress(OSError):
        os.fchmod(fd, stat.S_IMODE(status.st_mode))
        os.fchown(fd, status.st_uid, status.st_gid)


def direct_descriptor(path: Path, fd: int) -> int:
    """Another descriptor of the file ``fd``, for writing past the cache; -1 where there is none to be had."""
    if not hasattr(os, "O_DIRECT"):
        return -1
    try:
        direct = os.open(path, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return -1
    if os.path.sameopenfile(direct, fd):
        return direct
    os.close(direct)  # renamed meanwhile
    return -1


def data_from(fd: int, position: int) -> int:
    """The next data of a file by SEEK_DATA, see :meth:`gantrymq.fs.api.File.data_from`."""
    try:
        return os.lseek(fd, position, os.SEEK_DATA)
    except OSError as error:
        return max(os.fstat(fd).st_size, position) if error.errno == errno.ENXIO else position


@lru_cache
def _of_libc(takes: tuple[type, ...], *names: str) -> Any:
    """The first function of these names that Linux's C library has, with these arguments, or None.

    Elsewhere a function of that name may be another, or take other numbers.
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
    """Give the space of these bytes back, which read as zeros then; False where the file system cannot."""
    call = _of_libc(_PUNCH_HOLE_TAKES, "fallocate64", "fallocate")
    return call is not None and bool(call(fd, _PUNCH_HOLE_KEEP_SIZE, position, length) == 0)


def bring_in(address: int, length: int) -> int:
    """Have mapped pages read, from that of ``address`` on; 0, or an error number: EINVAL on a Linux before 5.14."""
    return _advise(address, length, _MADV_POPULATE_READ)


def let_go(address: int, length: int) -> None:
    """Take the pages of a shared mapping out of it, if that can be; the system brings them back for who asks."""
    _advise(address, length, mmap.MADV_DONTNEED)


def put_zeros(address: int, length: int) -> bool:
    """Put private memory of zeros in the place of these mapped pages; False where the system cannot.

    Arrays over the mapping stay as they are, and the end of the mapping takes this memory along.
    """
    call = _of_libc(_MMAP_TAKES, "mmap64", "mmap")
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
    if call is None:
        return False
    call.restype = ctypes.c_void_p
    return bool(call(address, length, mmap.PROT_READ | mmap.PROT_WRITE, kind, -1, 0) == address)


def read_nothing_ahead(fd: int, address: int, position: int, length: int) -> None:
    """Read these mapped pages one by one from now on; what the system holds of them is given up first."""
    with suppress(OSError, AttributeError):
        os.posix_fadvise(fd, position, length, os.POSIX_FADV_DONTNEED)
    _advise(address, length, mmap.MADV_RANDOM)


def _advise(address: int, length: int, advice: int) -> int:
    """Not by Python's own madvise, which keeps the interpreter's lock: nobody else would go on meanwhile."""
    call = _of_libc(_MADVISE_TAKES, "madvise")
    if call is None:
        return errno.EINVAL
    return ctypes.get_errno() if call(address, length, advice) else 0


def take_space(fd: int, position: int, length: int) -> None:
    """posix_fallocate; where there is none, zeros are written where the file has holes, and behind its end."""
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
    """fdatasync; macOS has F_FULLFSYNC instead, for its fsync leaves data in the drive's own cache."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    elif hasattr(fcntl, "F_FULLFSYNC"):
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


def begin_writing(fd: int) -> None:
    """Let the system write the file's dirty pages, waiting for nothing; errors are the next fdatasync's."""
    call = _of_libc(_SYNC_FILE_RANGE_TAKES, "sync_file_range")
    if call is not None:
        call(fd, 0, 0, _SYNC_FILE_RANGE_WRITE)


def sync_file_systems(paths: Iterable[Path]) -> bool:
    """syncfs of all that these directories lie on; False where the C library has none."""
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
