"""A log file in memory that records are written to, and what was written."""

from __future__ import annotations

import random
from pathlib import Path

from gantrymq.store.log.mapped_file import MappedFile
from memory_file_system import MemoryFileSystem

SIZE = 1 << 20


def file_of(rng: random.Random) -> MappedFile:
    """A file somewhere in the log with something in it."""
    fs, path = MemoryFileSystem(), Path("log")

    def opened():
        file = fs.open(path, writable=True, create=True)
        file.resize(SIZE)
        return file

    file = MappedFile(path, SIZE * rng.randrange(1000), SIZE, opened)
    file.set_positions(rng.randrange(SIZE // 2))
    return file


def written(file: MappedFile, begin: int) -> bytes:
    """What stands behind ``begin``; the rest of the file is still zeros."""
    assert not file.array[file.wrote_position :].any()
    return file.array[begin : file.wrote_position].tobytes()
