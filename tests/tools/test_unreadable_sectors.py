"""A sector that the disk does not give back is a finding with a name, and no end of the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from damage_cases import PATHS, SmallStore, small_store

from gantrymq.fs.faulty import broken_disk
from gantrymq.tools.findings import Kind
from gantrymq.tools.salvage import salvage_store
from store_cases import GEOMETRY_KEYS, SMALL

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


def kinds(store: SmallStore, path: Path, at: int = 0) -> set[Kind]:
    store.fs = BadSectors(store.fs, {path: at})  # type: ignore[assignment]
    return {finding.kind for finding in store.findings()}


def test_of_a_consume_queue(store: SmallStore) -> None:
    path, at = store.unit_place(40)
    store.fs = BadSectors(store.fs, {path: at - at % SECTOR})  # type: ignore[assignment]
    findings = store.findings()
    [unreadable] = [one for one in findings if one.kind is Kind.FILE_UNREADABLE]
    assert (unreadable.path, unreadable.topic, unreadable.queue_id) == (path.relative_to(PATHS.root), "orders", 0)
    assert "Input/output error" in unreadable.text
    assert {(one.topic, one.queue_id) for one in findings} == {("orders", 0)}, "the other queues are read as ever"


def test_of_the_log(store: SmallStore) -> None:
    assert Kind.FILE_UNREADABLE in kinds(store, store.log_path(0), SECTOR)


def test_of_the_checkpoint(store: SmallStore) -> None:
    assert kinds(store, PATHS.checkpoint) == {Kind.FILE_UNREADABLE}


def test_of_a_file_of_the_configuration(store: SmallStore) -> None:
    path = PATHS.config / "topics.json"
    store.make(path, b"{}")
    assert kinds(store, path) == {Kind.CONFIG_JSON}


def test_salvage_goes_on_without_what_it_cannot_read(store: SmallStore) -> None:
    path = PATHS.config / "topics.json"
    store.make(path, b"{}")
    store.make(PATHS.config / "consumerOffset.json", b"{}")
    queue, _ = store.unit_place(0)
    fs = BadSectors(store.fs, {path: 0, queue: 0})
    report = salvage_store(PATHS.root, PATHS.root.parent / "saved", SMALL, given=GEOMETRY_KEYS, fs=fs)  # type: ignore[arg-type]
    assert (report.broken_config_files, report.config_files) == (["topics.json"], 1)
    assert report.records == 240
