"""Finds the process that has a store open for writing, without touching its lock.

Opening and closing the lock file would drop a lock that this process holds, so the kernel's list of locks is read
instead.
"""

from __future__ import annotations

import os
from pathlib import Path

_LOCKS = Path("/proc/locks")
_MOUNTS = Path("/proc/self/mountinfo")
_DESCRIPTORS = Path("/proc/self/fdinfo")


def lock_holder(lock_file: Path) -> int | None:
    """The id of the process with a write lock on ``lock_file``; None if there is none or it is unknown."""
    try:
        inode, device = str(lock_file.stat().st_ino), _device(lock_file.parent)
        lines = _LOCKS.read_text("ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        # 1: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 0
        words = line.split()
        if len(words) >= 8 and words[1] == "POSIX" and words[3] == "WRITE":
            where, _, number = words[5].rpartition(":")
            if number == inode and device in (where, None):
                return int(words[4])
    return None


def _device(directory: Path) -> str | None:
    """The device of a directory's mount as in the list of locks; None if the system does not say.

    A file's st_dev differs from it on btrfs (by subvolume), and can differ on overlayfs (by layer).
    """
    if not _DESCRIPTORS.exists():
        return None
    descriptor = os.open(directory, os.O_PATH | os.O_CLOEXEC)
    try:
        fields = (_DESCRIPTORS / str(descriptor)).read_text("ascii").split()
    finally:
        os.close(descriptor)
    mount = dict(zip(fields[::2], fields[1::2], strict=False)).get("mnt_id:")
    for line in _MOUNTS.read_text("utf-8", "replace").splitlines():
        # 27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
        words = line.split(maxsplit=3)
        if words[0] == mount:
            major, minor = words[2].split(":")
            return f"{int(major):02x}:{int(minor):02x}"
    return None
