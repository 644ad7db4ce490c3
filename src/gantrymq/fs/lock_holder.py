"""Who has a store open for writing, asked without touching its lock.

Opening the lock file and closing it again would drop a lock that this very process holds, so the kernel's own list
is read instead.
"""

from __future__ import annotations

from pathlib import Path

_LOCKS = Path("/proc/locks")


def lock_holder(lock_file: Path) -> int | None:
    """The process id that holds a write lock on ``lock_file``; None where none does or it cannot be known."""
    try:
        inode = lock_file.stat().st_ino
        lines = _LOCKS.read_text("ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        # 1: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 0
        words = line.split()
        if len(words) >= 8 and words[1] == "POSIX" and words[3] == "WRITE" and words[5].endswith(f":{inode}"):
            return int(words[4])
    return None
