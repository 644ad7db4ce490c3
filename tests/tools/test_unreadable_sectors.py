"""A sector that the disk does not give back is a finding with a name, and no end of the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from damage_cases import PATHS, SmallStore, small_store

from faulty_file_system import broken_disk
from gantrymq.errors import DiskError
from gantrymq.tools.findings import FindingKind, Severity
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.salvage import salvage_store
from gantrymq.tools.verify import verify_store
from store_cases import GEOMETRY_KEYS, SMALL, open_store

SECTOR = 512


class BadFile:
    """A file of which one sector cannot be read."""

    def __init__(self, file: Any, at: int) -> None:
        self._file, self._at = file, at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read_at(self, position: int, length: int) -> bytes:
        if position < self._at + SECTOR and self._at < position + length:
            raise broken_disk(self._file.path)
        return bytes(self._file.read_at(position, length))

    def view(self, position: int, length: int, *, read_ahead: bool = True) -> Any:
        if position < self._at + SECTOR and self._at < position + length:
            raise broken_disk(self._file.path)
        return self._file.view(position, length, read_ahead=read_ahead)


class BadSectors:
    """A file system with one bad sector in each of ``bad``, by path."""

    def __init__(self, fs: Any, bad: dict[Path, int]) -> None:
        self._fs, self._bad = fs, bad

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def open(self, path: Path, **options: Any) -> Any:
        file = self._fs.open(path, **options)
        return BadFile(file, self._bad[path]) if path in self._bad else file


@pytest.fixture
def store() -> SmallStore:
    return small_store()


def kinds(store: SmallStore, path: Path, at: int = 0) -> set[FindingKind]:
    store.fs = BadSectors(store.fs, {path: at})  # type: ignore[assignment]
    return {finding.kind for finding in store.findings()}


def test_unreadable_sector_of_queue_file_is_finding(store: SmallStore) -> None:
    path, at = store.unit_place(40)
    store.fs = BadSectors(store.fs, {path: at - at % SECTOR})  # type: ignore[assignment]
    findings = store.findings()
    [unreadable] = [one for one in findings if one.kind is FindingKind.FILE_UNREADABLE]
    assert (unreadable.path, unreadable.topic, unreadable.queue_id) == (path.relative_to(PATHS.root), "orders", 0)
    assert "Input/output error" in unreadable.text
    assert {(one.topic, one.queue_id) for one in findings} == {("orders", 0)}, "the other queues are read as ever"


def test_unreadable_sector_of_log_is_finding(store: SmallStore) -> None:
    assert FindingKind.FILE_UNREADABLE in kinds(store, store.log_path(0), SECTOR)


def test_unreadable_sector_of_checkpoint_is_finding(store: SmallStore) -> None:
    assert kinds(store, PATHS.checkpoint) == {FindingKind.FILE_UNREADABLE}


def test_unreadable_sector_of_config_file_is_finding(store: SmallStore) -> None:
    path = PATHS.config / "topics.json"
    store.make(path, b"{}")
    assert kinds(store, path) == {FindingKind.CONFIG_JSON}


def test_salvage_without_unreadable_sector_continues(store: SmallStore) -> None:
    path = PATHS.config / "topics.json"
    store.make(path, b"{}")
    store.make(PATHS.config / "consumerOffset.json", b"{}")
    queue, _ = store.unit_place(0)
    fs = BadSectors(store.fs, {path: 0, queue: 0})
    report = salvage_store(PATHS.root, PATHS.root.parent / "saved", SMALL, given=GEOMETRY_KEYS, fs=fs)  # type: ignore[arg-type]
    assert (report.broken_config_files, report.config_files) == (["topics.json"], 1)
    assert report.records == 240


class Unopened:
    """A file system that does not open one file and does not list one directory."""

    def __init__(self, fs: Any, *, file: Path | None = None, directory: Path | None = None) -> None:
        self._fs, self._file, self._directory = fs, file, directory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def open(self, path: Path, **options: Any) -> Any:
        if path == self._file or (self._directory is not None and path.is_relative_to(self._directory)):
            raise broken_disk(path)
        return self._fs.open(path, **options)

    def scan(self, path: Path) -> Any:
        if self._directory is not None and path.is_relative_to(self._directory):
            raise broken_disk(path)
        return self._fs.scan(path)


@pytest.mark.parametrize(
    "directory", [PATHS.index, PATHS.config, PATHS.consume_queue, PATHS.consume_queue / "orders/1"]
)
def test_unlistable_directory_is_finding_and_salvage_continues(store: SmallStore, directory: Path) -> None:
    store.make(PATHS.config / "topics.json", b"{}")
    fs = Unopened(store.fs, directory=directory)
    store.fs = fs  # type: ignore[assignment]
    unreadable = [one for one in store.findings() if one.kind is FindingKind.FILE_UNREADABLE]
    assert [one.path for one in unreadable] == [directory.relative_to(PATHS.root)]
    report = salvage_store(PATHS.root, PATHS.root.parent / "saved", SMALL, given=GEOMETRY_KEYS, fs=fs)  # type: ignore[arg-type]
    assert "`gantrymq store salvage`" in unreadable[0].text
    saved = verify_store(PATHS.root.parent / "saved", SMALL, given=GEOMETRY_KEYS, fs=fs)  # type: ignore[arg-type]
    assert [one for one in saved if one.level is Severity.DAMAGE] == []
    assert directory in report.skipped_files
    assert report.records == 240
    assert not report.is_whole


def test_unlistable_commit_log_directory_raises(store: SmallStore) -> None:
    fs = Unopened(store.fs, directory=PATHS.commit_log)
    with pytest.raises(DiskError, match="commitlog: Input/output error"):
        salvage_store(PATHS.root, PATHS.root.parent / "saved", SMALL, given=GEOMETRY_KEYS, fs=fs)  # type: ignore[arg-type]


def test_unopenable_log_file_loses_only_its_range(store: SmallStore) -> None:
    size = SMALL.mapped_file_size_commit_log
    path = store.log_path(size)
    fs = Unopened(store.fs, file=path)
    report = salvage_store(PATHS.root, PATHS.root.parent / "saved", SMALL, given=GEOMETRY_KEYS, fs=fs)  # type: ignore[arg-type]
    assert [(one.path, one.start, one.end, one.reason) for one in report.lost] == [(path, size, 2 * size, "unreadable")]
    assert 0 < report.records < 240
    store.fs = fs  # type: ignore[assignment]
    [unreadable] = [one for one in store.findings() if one.kind is FindingKind.FILE_UNREADABLE]
    assert (unreadable.phy_offset, unreadable.length_bytes) == (size, size)


@pytest.mark.parametrize("part", ["checkpoint", "queue", "log"])
def test_command_named_for_unreadable_file_repairs_store(store: SmallStore, part: str) -> None:
    disk = store.fs
    paths = {"checkpoint": PATHS.checkpoint, "queue": store.unit_place(25)[0], "log": store.log_path(0)}
    store.fs = BadSectors(disk, {paths[part]: 0})  # type: ignore[assignment]
    [unreadable] = [one for one in store.findings() if one.kind is FindingKind.FILE_UNREADABLE]
    target = PATHS.root
    if part == "checkpoint":
        assert "move it away, `gantrymq store recover`" in unreadable.text
        disk.rename(PATHS.checkpoint, PATHS.root / "checkpoint.bad")
        open_store(disk).close()
        disk.remove(PATHS.root / "checkpoint.bad")
    elif part == "queue":
        assert "`gantrymq store rebuild`" in unreadable.text
        rebuild_store(PATHS.root, SMALL, given=GEOMETRY_KEYS, fs=store.fs, index=False)
    else:
        assert "`gantrymq store salvage`" in unreadable.text
        target = PATHS.root.with_name("out")
        salvage_store(PATHS.root, target, SMALL, given=GEOMETRY_KEYS, fs=store.fs)
    left = [one for one in verify_store(target, SMALL, given=GEOMETRY_KEYS, fs=disk) if one.level is Severity.DAMAGE]
    assert left == []
