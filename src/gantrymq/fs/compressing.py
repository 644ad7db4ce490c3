"""Tells whether a file system may compress data. Its free space then does not limit how much data fits.

Thread rule: any thread.
"""

from __future__ import annotations

import os
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_COMPRESSING = frozenset(("btrfs", "zfs", "bcachefs", "f2fs", "ubifs", "ntfs3", "fuseblk", "apfs"))
_POINT_AT = 4


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
