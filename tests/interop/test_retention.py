"""What is old goes: the same files, queue offsets and index files as with RocketMQ's own services, on copies."""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gantrymq.clock import SystemClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.store.message_store import MessageStore
from gantrymq.store.retention import CleanCommitLogService, CleanConsumeQueueService
from store_cases import SMALL, SMALL_KEYS, dump, open_reader, open_store

from .java import JavaStore

pytestmark = pytest.mark.interop

FILE_SIZE = 32_768
ANY_HOUR = ";".join(f"{hour:02}" for hour in range(24))
CONFIG = replace(SMALL, mapped_file_size_commit_log=FILE_SIZE, clean_file_forcibly_enable=False)
KEYS = SMALL_KEYS | {
    "mappedFileSizeCommitLog": FILE_SIZE,
    "diskMaxUsedSpaceRatio": 95,
    "deleteCommitLogFilesInterval": 1,
    "deleteConsumeQueueFilesInterval": 1,
}
PARTS = ("commitlog", "consumequeue", "index")


def survivors(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for part in PARTS for file in (path / part).rglob("*") if file.is_file())


def age(path: Path, old: slice, hours: float) -> None:
    """Let these files of the log be as old, the others a minute."""
    files = sorted((path / "commitlog").iterdir())
    for file in files:
        hours_of = hours if file in files[old] else 1 / 60
        when = time.time() - hours_of * 3600
        os.utime(file, (when, when))


def clean_here(path: Path, config: MessageStoreConfig, runs: int, manual: bool) -> None:
    with open_store(path=path, config=config) as store:
        clean(store, config, runs, manual)


def clean(store: MessageStore, config: MessageStoreConfig, runs: int, manual: bool) -> None:
    of_log = CleanCommitLogService(
        store._log, store._queues, store._checkpoint, store._space, config, lambda: None, start_ms=0
    )
    of_queues = CleanConsumeQueueService(store._log, store._queues, store._index, config)
    if manual:
        of_log.delete_manually()
    now_ms = SystemClock().now_ms()
    for run in range(runs):
        for _ in range(config.delete_file_batch_max + 1):  # a file a step, and one that ends the run
            of_log.step(now_ms + run * config.clean_resource_interval_ms)
        of_queues.step(now_ms)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the real RocketMQ with many files, closed cleanly."""
    path = tmp_path_factory.mktemp("retention") / "store"
    JavaStore(path, KEYS).write(2500, seed=5, profile="mixed")
    assert len(list((path / "commitlog").iterdir())) > 25
    return path


NEVER = f"{(time.localtime().tm_hour + 12) % 24:02}"
CASES = {
    "the first are old": (slice(0, 7), 73.0, ANY_HOUR, 72, 1, False),
    "the first is not": (slice(1, 7), 73.0, ANY_HOUR, 72, 1, False),
    "not old enough": (slice(0, 7), 71.0, ANY_HOUR, 72, 1, False),
    "ten at a time": (slice(0, 15), 100.0, ANY_HOUR, 72, 1, False),
    "all are old, the last stays": (slice(0, None), 100.0, ANY_HOUR, 72, 9, False),
    "another hour": (slice(0, 7), 100.0, NEVER, 72, 1, False),
    "by hand": (slice(0, 7), 100.0, NEVER, 72, 1, True),
    "an hour is enough": (slice(0, 3), 1.1, ANY_HOUR, 1, 1, False),
}


@pytest.mark.parametrize("case", CASES)
def test_retention_deletes_same_files_as_java(written: Path, tmp_path: Path, case: str) -> None:
    old, hours, when, reserved, runs, manual = CASES[case]
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for copy in (theirs, ours):
        shutil.copytree(written, copy)
        age(copy, old, hours)
    config = replace(CONFIG, delete_when=when, file_reserved_time_hours=reserved, disk_max_used_space_ratio=95)
    java = JavaStore(theirs, KEYS | {"deleteWhen": when, "fileReservedTime": reserved})
    line = java.run("clean", runs=runs, manual=manual, halt=True)[0]
    clean_here(ours, config, runs, manual)
    assert survivors(ours) == survivors(theirs)
    with open_reader(ours, config) as here, open_reader(theirs, config) as there:
        assert here.min_phy_offset == line["minPhyOffset"]
        assert dump(here) == dump(there)
