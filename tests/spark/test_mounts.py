"""Jobs whose executors see another store or other directories than the driver: an error, not a poorer result."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gantrymq.errors import StoreError
from gantrymq.fs.real import RealFileSystem
from gantrymq.spark.pipelines import export, rebuild, salvage, verify
from gantrymq.spark.pipelines.jobs import Mount, _Failure, guarded
from gantrymq.store.paths import StorePaths
from gantrymq.tools.findings import Severity
from gantrymq.tools.read.log_places import log_files
from gantrymq.tools.verify import verify_store
from store_cases import SMALL, numbered, open_store, tree

HOST = socket.gethostname()


def make_store(path: Path, topic: str = "orders", count: int = 600) -> Path:
    with open_store(path=path) as store:
        store.put_batch(numbered(count, topic=topic))
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def nothing(path: Path) -> None:
    shutil.rmtree(path)


def an_empty_mount(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def another_store(path: Path) -> None:
    shutil.rmtree(path)
    make_store(path, "others")


def part_of_it(path: Path) -> None:
    sorted((path / "commitlog").iterdir())[1].unlink()


SOURCES = [nothing, an_empty_mount, another_store, part_of_it]


@contextmanager
def mounted(path: Path, other: Callable[[Path], None]) -> Iterator[None]:
    """What an executor has under ``path`` while the block lasts; ``other`` gets a copy."""
    kept = path.with_name(f"{path.name}.drivers")
    path.rename(kept)
    shutil.copytree(kept, path)
    try:
        other(path)
        yield
    finally:
        shutil.rmtree(path, ignore_errors=True)
        kept.rename(path)


def run_elsewhere(
    monkeypatch: pytest.MonkeyPatch, path: Callable[[], Path], other: Callable[[Path], None]
) -> list[object]:
    """Let tasks run in this process, where they see ``other`` in the place of ``path``; what they had to say."""
    told: list[object] = []

    def run(work: Callable[[], Any]) -> list[Any]:
        with mounted(path(), other):
            results = list(guarded(work, lambda value: value))
        told.extend(one for one in results if isinstance(one, _Failure))
        for one in results:
            if isinstance(one, _Failure):
                raise one.error()
        return results

    def each(spark: Any, items: Sequence[Any], task: Callable[[Any], Any], size: Any, mount: Mount) -> list[Any]:
        def work() -> Iterator[Any]:
            mount.require(items)
            yield from map(task, items)

        return run(work) if items else []

    def by_queue(spark: Any, files: Sequence[Any], read: Callable[[Any], Any], write: Any, mount: Mount) -> list[Any]:
        def work() -> Iterator[Any]:
            mount.require(files)
            for file in files:
                yield from read(file)

        return run(work)

    for module in (export, rebuild, salvage, verify):
        for name, fake in (("each", each), ("by_queue", by_queue)):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, fake)
    return told


JOBS: dict[str, Callable[[Any, Path], Any]] = {
    "verify": lambda spark, store: list(verify.verify_on_spark(spark, store)),
    "export": lambda spark, store: export.export_on_spark(spark, store, store.parent / "out"),
    "salvage": lambda spark, store: salvage.salvage_on_spark(spark, store, store.parent / "out"),
    "rebuild": rebuild.rebuild_on_spark,
}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("other", SOURCES)
def test_executor_with_other_store_raises(
    store: Path, monkeypatch: pytest.MonkeyPatch, job: str, other: Callable[[Path], None]
) -> None:
    before = tree(store)
    run_elsewhere(monkeypatch, lambda: store, other)
    with pytest.raises(StoreError, match=f"host {HOST}"):
        JOBS[job](None, store)
    assert tree(store) == before or job == "rebuild"
    assert not list(store.parent.glob("out/*/*.parquet"))
    assert not (store.parent / "out" / "commitlog").exists()
    assert not list(store.parent.rglob(".seen-by-executors-*"))


@pytest.mark.parametrize("job", ["export", "salvage", "rebuild"])
@pytest.mark.parametrize("other", [nothing, an_empty_mount])
def test_executor_writing_to_other_directory_raises(
    store: Path, monkeypatch: pytest.MonkeyPatch, job: str, other: Callable[[Path], None]
) -> None:
    """What it had written would be nowhere."""

    def target() -> Path:
        return next(iter(store.parent.rglob(".seen-by-executors-*"))).parent

    run_elsewhere(monkeypatch, target, other)
    with pytest.raises(StoreError, match=f"on host {HOST} is not the directory that the driver has there; mount it"):
        JOBS[job](None, store)
    assert not list(store.parent.rglob(".seen-by-executors-*"))
    monkeypatch.undo()
    assert [one for one in verify_store(store, SMALL) if one.level is Severity.DAMAGE] == []


def mount_of(store: Path) -> tuple[Mount, list[Any]]:
    files, _ = log_files(RealFileSystem(), StorePaths(store))
    return Mount.of(files), files


def test_deletion_by_retention_does_not_look_like_another_store(store: Path) -> None:
    mount, files = mount_of(store)
    files[0].path.unlink()
    mount.require(files)
    files[2].path.unlink()
    with pytest.raises(StoreError, match="retention did not delete it"):
        mount.require(files)


def test_retention_of_log_in_two_directories_is_not_taken_for_other_store(tmp_path: Path) -> None:
    store, second = make_store(tmp_path / "store", count=1500), tmp_path / "second"
    second.mkdir()
    for path in sorted((store / "commitlog").iterdir())[1::2]:
        path.rename(second / path.name)
    files, _ = log_files(RealFileSystem(), StorePaths(store, (store / "commitlog", second)))
    mount = Mount.of(files)
    for file in files[:2]:
        file.path.unlink()
        mount.require(files)
    files[3].path.unlink()
    with pytest.raises(StoreError, match="retention did not delete it"):
        mount.require(files)
    shutil.rmtree(second)
    with pytest.raises(StoreError, match="mount that disk"):
        mount.require(files)


@pytest.mark.parametrize("number", [0, -1])
def test_empty_or_unreadable_log_file_has_no_mark(store: Path, number: int) -> None:
    """A writer may begin it meanwhile."""
    path = sorted((store / "commitlog").iterdir())[number]
    raw = path.read_bytes()
    path.write_bytes(bytes(len(raw)))
    mount, files = mount_of(store)
    path.write_bytes(raw)
    mount.require(files)
    os.truncate(path, 0)
    mount, files = mount_of(store)
    mount.require(files)
