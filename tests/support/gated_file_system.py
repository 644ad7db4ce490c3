"""A file system in memory whose disk can be held up, or broken, at one kind of operation."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faulty_file_system import FaultyFileSystem
from memory_file_system import MemoryFileSystem


class GatedFileSystem(FaultyFileSystem):
    """Operations of one name in one directory can be held up, or made to fail."""

    def __init__(self, operation: str = "sync", directory: str = "commitlog") -> None:
        super().__init__(MemoryFileSystem())
        self.meant = operation, directory
        self.gate = threading.Event()
        self.gate.set()
        self.broken = False
        self.arrived = threading.Event()

    def _before(self, operation: str, path: Path) -> None:
        super()._before(operation, path)
        if operation == self.meant[0] and self.meant[1] in path.parts:
            self.arrived.set()
            assert self.gate.wait(60)
            if self.broken:
                raise OSError(5, "Input/output error", str(path))

    @property
    def log_syncs(self) -> int:
        return sum(operation == "sync" and "commitlog" in path.parts for operation, path in self.operations)

    @contextmanager
    def shut(self) -> Iterator[None]:
        self.arrived.clear()
        self.gate.clear()
        try:
            yield
        finally:
            self.gate.set()
