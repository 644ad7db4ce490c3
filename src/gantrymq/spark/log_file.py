"""A commit log file as executors read it: ranges of bytes, copied into memory that is used again and again.

Not a mapping: for bytes that are passed over once, setting up and tearing down its pages costs more than a copy into
the cache (measured: docs/spark.md), a file that shrinks cannot end the process, and any file system can give ranges.
"""

from __future__ import annotations

import os
from types import TracebackType

from gantrymq.errors import StoreError


class LogFile:
    """An open file, read-only; use it as a context manager. Raises StoreError for whatever goes wrong."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise StoreError(path, "the file went away after the query was planned (retention?)") from None
        except OSError as error:
            raise StoreError(path, f"cannot be opened: {error.strerror}") from error

    def read_into(self, view: memoryview, position: int) -> None:
        """Fill ``view`` from ``position`` on."""
        while view:
            try:
                count = os.preadv(self._fd, [view], position)
            except OSError as error:
                raise StoreError(self.path, f"cannot be read: {error.strerror}") from error
            if not count:
                raise StoreError(self.path, f"ends at {position}, and was longer when the query was planned")
            view, position = view[count:], position + count

    def __enter__(self) -> LogFile:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        os.close(self._fd)
