"""A file system that simulates SIGKILL: after ``kill()`` every change raises DiskError.

Until :meth:`KillableFileSystem.kill` every call goes to the inner file system. Afterwards written bytes stay as they
are, as in the page cache after a kill. Open files can still be read, and descriptors and the lock can be released.
Writes to a mapping still reach its file: stop their writers first.
"""

from __future__ import annotations

from pathlib import Path

from gantrymq.errors import DiskError
from gantrymq.fs.api import FileSystem
from gantrymq.fs.intercepted import InterceptedFileSystem

_CHANGE_NOTHING = frozenset(("read_at", "map", "scan"))


class KillableFileSystem(InterceptedFileSystem):
    """Passes calls to ``inner``. After :meth:`kill` every change raises DiskError, as if the process had ended.

    Thread rule: any thread.
    """

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.is_dead = False

    def kill(self) -> None:
        """Refuse every change from now on."""
        self.is_dead = True

    def _before(self, operation: str, path: Path) -> None:
        if self.is_dead and operation not in _CHANGE_NOTHING:
            raise DiskError(path, "its process was killed")
