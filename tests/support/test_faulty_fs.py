"""The file system that fails on purpose: at the operation it was told, with the error it was told, and only there."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from faulty_file_system import FaultyFileSystem
from gantrymq.errors import DiskFullError, SyncFailedError
from memory_file_system import MemoryFileSystem

DIRECTORY = Path("/data")


def some_work(fs: FaultyFileSystem) -> None:
    fs.make_directory(DIRECTORY)
    file = fs.open(DIRECTORY / "a", writable=True, create=True)
    file.resize(100)
    file.reserve(0, 100)
    file.write_at(0, b"text")
    file.zero(2, 1)
    assert file.read_at(0, 4) == b"te\0t"
    assert file.map()[3] == ord("t")
    file.sync()
    file.close()
    fs.rename(DIRECTORY / "a", DIRECTORY / "b")
    fs.sync_directory(DIRECTORY)
    fs.lock(DIRECTORY / "lock", b"lock").release()
    assert [entry.name for entry in fs.scan(DIRECTORY)] == ["b", "lock"]
    fs.remove(DIRECTORY / "b")
    fs.remove_directory(DIRECTORY)


def test_loop_over_k_fails_each_operation_once() -> None:
    failed: list[tuple[str, Path]] = []
    for k in count(1):
        fs = FaultyFileSystem(MemoryFileSystem(), fail_at=k)
        try:
            some_work(fs)
        except (DiskFullError, SyncFailedError) as error:
            failed.append((fs.operations[-1][0], error.path))
        else:
            break
    assert failed == fs.operations
    assert len({operation for operation, _ in failed}) == 15


def test_failed_operation_does_nothing() -> None:
    inner = MemoryFileSystem()
    inner.make_directory(DIRECTORY)
    fs = FaultyFileSystem(inner, fail_at=2, error=lambda path: OSError(5, "Input/output error", str(path)))
    file = fs.open(DIRECTORY / "a", writable=True, create=True)
    with pytest.raises(OSError, match="Input/output"):
        file.write_at(0, b"text")
    assert file.size() == 0
    file.write_at(0, b"text")
    assert file.size() == 4


@pytest.mark.parametrize(("keeps_failing", "failures"), [(False, 1), (True, 3)])
def test_fault_is_transient_or_permanent(keeps_failing: bool, failures: int) -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), fail_at=2, keeps_failing=keeps_failing)
    attempts: list[Callable[[], object]] = [lambda: fs.scan(DIRECTORY)] * 4
    refused = 0
    for attempt in attempts:
        try:
            attempt()
        except DiskFullError:
            refused += 1
    assert refused == failures
