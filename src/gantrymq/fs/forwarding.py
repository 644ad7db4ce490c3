"""Files and file systems that stand before others: some methods are their own, all others those of ``inner``.

Thread rule: that of ``inner``.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

from gantrymq.fs.api import File, FileSystem

Inner = TypeVar("Inner")


class _Forwarding(Generic[Inner]):
    def __init__(self, inner: Inner) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        """Forward to ``inner``."""
        if name.startswith("__"):  # copy and pickle ask for these before there is an ``inner``
            raise AttributeError(name)
        return getattr(self._inner, name)


class ForwardingFile(_Forwarding[File]):
    """A file before another one."""


class ForwardingFileSystem(_Forwarding[FileSystem]):
    """A file system before another one."""

    def as_file_system(self) -> FileSystem:
        """The same object, typed as a FileSystem."""
        return cast(FileSystem, self)
