"""A directory for the files of one archiver, in TMPDIR. One that a killed archiver left is removed by the next.

A lock on a file in it says that its archiver lives; the operating system drops it with the process.

Thread rule: one thread.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX, _LOCK, _FILES = "gantrymq-archive-", "lock", "files"


class WorkDirectory:
    """An empty directory, ``path``. Raises OSError."""

    def __init__(self) -> None:
        for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            _remove_left(left)
        self._root = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = os.open(self._root / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = self._root / _FILES
        self.path.mkdir()

    def remove(self) -> None:
        """Remove it with its files."""
        shutil.rmtree(self._root, ignore_errors=True)
        os.close(self._lock)


def _remove_left(root: Path) -> None:
    with suppress(OSError):  # of another user, being removed, or in use
        lock = os.open(root / _LOCK, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (root / _FILES).exists():  # otherwise its archiver is just beginning
                shutil.rmtree(root, ignore_errors=True)
        finally:
            os.close(lock)
