"""What an open looks at of many queues: each directory once, and no more than one file of the log at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.fs.api import Entry
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.queue_listing import QueueListing
from store_cases import SMALL, await_dispatch, open_reader, open_store

QUEUES = 30
SAMPLED = 16  # whose files say how long queue files are
LONG_LOG = replace(SMALL, mapped_file_size_commit_log=1 << 20, max_message_size_bytes=1000)
# The queues are asked whether the log lacks its end only where its last file may be full.
walks = pytest.mark.parametrize(("config", "count"), [(LONG_LOG, 1), (SMALL, 2)])


def make(path: Path, config: MessageStoreConfig) -> Path:
    with open_store(RealFileSystem(), path, config) as opened:
        for number in range(4 * QUEUES):
            opened.put(Message("orders", bytes(900), queue_id=number % QUEUES))
        await_dispatch(opened, 120)
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make(tmp_path / "store", SMALL)


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> Counter[Path]:
    """How often each directory is listed."""
    counted, scan = Counter[Path](), RealFileSystem.scan

    def counting(fs: RealFileSystem, path: Path) -> list[Entry]:
        counted[path] += 1
        return scan(fs, path)

    monkeypatch.setattr(RealFileSystem, "scan", counting)
    return counted


def queue_scans(store: Path, scans: Counter[Path]) -> set[int]:
    directories = sorted((store / "consumequeue" / "orders").iterdir())
    assert len(directories) == QUEUES
    return {scans[directory] for directory in directories[SAMPLED:]}


@walks
def test_writer_lists_each_queue_once_or_twice(
    config: MessageStoreConfig, count: int, tmp_path: Path, scans: Counter[Path]
) -> None:
    store = make(tmp_path, config)
    scans.clear()
    with open_store(RealFileSystem(), store, config):
        assert queue_scans(store, scans) == {count}


@walks
def test_reader_lists_each_queue_once_or_twice(
    config: MessageStoreConfig, count: int, tmp_path: Path, scans: Counter[Path]
) -> None:
    store = make(tmp_path, config)
    scans.clear()
    with open_reader(store, config):
        assert queue_scans(store, scans) == {count}


def test_checks_share_one_directory_walk(store: Path, scans: Counter[Path]) -> None:
    queues = QueueListing(RealFileSystem(), store / "consumequeue")
    first = [queue.name for queue in islice(queues, 5)]
    assert sum(count for path, count in scans.items() if path.parent.name == "orders") == 5
    assert [queue.name for queue in queues][:5] == first
    assert sorted(queue.name for queue in queues) == [("orders", number) for number in range(QUEUES)]
    assert queue_scans(store, scans) == {1}


def test_reading_records_across_log_keeps_one_file_open(store: Path) -> None:
    with open_reader(store) as reader:
        places = sorted(
            (entry.phy_offset, entry.size_bytes)
            for queue in reader.consume_queues
            for _, entry, _ in reader.entries(queue)
        )
    log = CommitLog(RealFileSystem(), StorePaths(store), SMALL.mapped_file_size_commit_log)
    log.load()
    assert len(log.queue.files) > 5

    def open_count() -> int:
        return sum(file.identity() is not None for file in log.queue.files)

    def asked() -> Iterator[tuple[int, int]]:
        for place in places:
            yield place
            assert open_count() == 1

    slots = log.slots_at(asked())
    assert sorted(slots, key=str) == sorted((("orders", n % QUEUES, n // QUEUES) for n in range(4 * QUEUES)), key=str)
    assert open_count() == 0
