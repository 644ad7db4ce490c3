"""A file system that returns copies in place of parts of a mapping.

The pages of a mapping count as memory of the process, up to the size of the file. A reader of many gigabytes whose
memory is bounded reads them into buffers of its own.

Thread rule: as the inner file system.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np

from gantrymq.fs.api import Bytes, File
from gantrymq.fs.forwarding import ForwardingFile, ForwardingFileSystem


class CopiedFile(ForwardingFile):
    """A file of a :class:`CopiedFileSystem`; all methods but ``view`` are those of ``inner``."""

    def view(self, position: int, length: int, *, read_ahead: bool = True) -> Bytes:
        """A copy of the bytes."""
        return np.frombuffer(self._inner.read_at(position, length), np.uint8)


class CopiedFileSystem(ForwardingFileSystem):
    """``inner``, whose files return copies. It implements FileSystem; all other methods are those of ``inner``."""

    def open(self, path: Path, **options: Any) -> File:
        """Open a file."""
        return cast(File, CopiedFile(self._inner.open(path, **options)))
