"""A disk that takes writes and fails at the sync (fsyncgate): nothing is acknowledged that may not be there."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bad_disk import FailingDisk, failing_disk
from gantrymq.config.settings import FlushDiskType, MessageStoreConfig
from gantrymq.errors import SyncFailedError
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.message_store import MessageStore

CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 20,
    mapped_file_size_consume_queue=4_000,
    max_hash_slot_num=100,
    max_index_num=400,
    flush_disk_type=FlushDiskType.SYNC_FLUSH,
)
BODY = bytes(2000)
PATIENCE_S = 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FailingDisk]:
    with failing_disk(tmp_path) as disk:
        yield disk


def put(store: MessageStore, number: int) -> bool:
    """Whether the message was acknowledged."""
    try:
        return store.put(Message("orders", b"%08d" % number + BODY)).status is PutMessageStatus.PUT_OK
    except SyncFailedError:
        return False


def fail_while_writing(disk: FailingDisk, store: MessageStore) -> tuple[int, list[str]]:
    """Put messages 0, 1, … while the disk begins to fail; how many were acknowledged, and what the store says."""
    assert all(put(store, number) for number in range(50))
    disk.fail_behind(disk.here / "store/commitlog/00000000000000000000", 200_000)
    count, until_s = 50, time.monotonic() + PATIENCE_S
    while put(store, count):
        count += 1
        assert time.monotonic() < until_s
        time.sleep(0.002)
    disk.heal()  # a sync would succeed from here on, without the pages that were given up
    assert not any(put(store, number) for number in range(1000, 1010)), "a failed sync must not be tried again"
    assert not store.is_writable
    return count, [str(error) for _, error in store.failures]


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_failed_sync_of_real_disk_acknowledges_nothing_and_restart_keeps_acknowledged(
    disk: FailingDisk, flush: FlushDiskType
) -> None:
    config = replace(CONFIG, flush_disk_type=flush, flush_interval_commit_log_ms=10)
    told: list[tuple[str, bool]] = []
    store = MessageStore.open(
        disk.here / "store", config, housekeeping=False, on_failure=lambda _, error, end: told.append((str(error), end))
    )
    acknowledged, failures = fail_while_writing(disk, store)
    assert any("commitlog/00000000000000000000: written data may be lost" in text for text in failures)
    [final] = [text for text, is_final in told if is_final]
    assert f"{disk.here}/store/commitlog/00000000000000000000: written data may be lost" in final, "told once"
    store.close()
    assert (disk.here / "store/abort").exists(), "the next open has to recover"
    del store  # its mappings keep the disk busy
    gc.collect()
    disk.mount_again()
    with MessageStore.open(disk.here / "store", config, housekeeping=False) as store:
        found = store.get("orders", 0, 0, max_msgs=2000, max_bytes=1 << 30).messages
        numbers = [int(bytes(message.body)[:8]) for message in found]
        assert numbers == list(range(len(numbers))), "what survives is a prefix"
        if flush is FlushDiskType.SYNC_FLUSH:
            assert len(numbers) >= acknowledged
        assert put(store, 2000)
