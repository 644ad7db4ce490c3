"""The names of new queues: many are made durable together, and none is relied on before."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from faulty_file_system import FaultyFileSystem
from gantrymq.errors import SyncFailedError
from gantrymq.model.message import Message
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.message_store import MessageStore
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queues import PendingDirectorySyncs
from gated_file_system import GatedFileSystem
from memory_file_system import MemoryFileSystem
from store_cases import ROOT, await_dispatch, open_store

PATHS = StorePaths(ROOT)
QUEUES = [PATHS.consume_queue / topic / "0" for topic in ("a", "b")]
SYNCED = [ROOT, PATHS.consume_queue, QUEUES[0].parent, QUEUES[1].parent, *QUEUES]


def synced(fs: FaultyFileSystem) -> list[object]:
    return [path for operation, path in fs.operations if operation == "sync_directory"]


def owing(fs: FaultyFileSystem) -> PendingDirectorySyncs:
    names = PendingDirectorySyncs(fs, ROOT)
    for queue in QUEUES:
        names.add(queue)
    return names


def test_directory_names_are_synced_once_from_root_on() -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    names = owing(fs)
    names.flush()
    names.flush()
    assert synced(fs) == SYNCED


def test_names_whose_sync_failed_stay_pending() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), fail_at=3)
    names = owing(fs)
    with pytest.raises(SyncFailedError):
        names.flush()
    names.flush()
    assert synced(fs)[3:] == SYNCED


def test_name_added_during_flush_stays_pending() -> None:
    def come(number: int) -> None:
        if number == len(SYNCED):
            names.add(QUEUES[0])

    fs = FaultyFileSystem(MemoryFileSystem(), see=come)
    names = owing(fs)
    names.flush()
    names.flush()
    assert synced(fs)[len(SYNCED) :] == [*SYNCED[:3], QUEUES[0]]


def test_second_flush_waits_for_first() -> None:
    fs = GatedFileSystem("sync_directory", "consumequeue")
    names = PendingDirectorySyncs(fs, ROOT)
    names.add(QUEUES[0])
    with ThreadPoolExecutor(2) as threads:
        with fs.shut():
            settled = [threads.submit(names.flush) for _ in range(2)]
            assert fs.arrived.wait(60)
            assert not any(one.done() for one in settled)
        for one in settled:
            one.result()


@pytest.mark.parametrize("was_killed", [False, True])
def test_checkpoint_covers_new_queue_only_when_its_names_are_durable(was_killed: bool) -> None:
    disk, vouched = MemoryFileSystem(), 0

    def look(number: int) -> None:
        nonlocal vouched
        left = disk.crash_clone(0.0, number)
        if StoreCheckpoint(left, PATHS.checkpoint).page.logics_physical_offset > 0:
            names = [topic for topic in range(20) if left.scan(PATHS.consume_queue / f"t{topic}" / "0")]
            assert names == list(range(20)), f"before operation {number}"
            vouched += 1

    if was_killed:  # what the one before has made and not synced is the next one's to sync
        with open_store(disk) as store:
            put_to_queues(store)
            left_by_a_kill = disk.kill_clone()
        disk = left_by_a_kill
    with open_store(FaultyFileSystem(disk, see=look)) as store:
        if not was_killed:
            put_to_queues(store)
        assert not disk.crash_clone(0.0, 0).scan(PATHS.consume_queue / "t0" / "0"), "the names cost a sync each"
    assert vouched > 0


def put_to_queues(store: MessageStore) -> None:
    store.put_batch([Message(f"t{topic}", b"x") for topic in range(20)])
    await_dispatch(store)
    store._queues.flush(1)
