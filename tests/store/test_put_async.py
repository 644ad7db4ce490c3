"""Puts by coroutines: as durable as those of threads, and the event loop goes on meanwhile."""

import asyncio
import gc
from dataclasses import replace

import numpy as np
import pytest

from gantrymq.config.settings import FlushDiskType
from gantrymq.errors import StoreClosedError, SyncFailedError
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gated_file_system import GatedFileSystem
from memory_file_system import MemoryFileSystem
from store_cases import BARE, await_dispatch, bodies, numbered, open_store

SYNC = replace(BARE, flush_disk_type=FlushDiskType.SYNC_FLUSH)


async def arrived(fs: GatedFileSystem) -> None:
    while not fs.arrived.is_set():
        await asyncio.sleep(0.001)


def test_puts_of_one_loop_turn_share_one_sync() -> None:
    fs = MemoryFileSystem()

    async def put_all() -> None:
        results = await asyncio.gather(*(store.put_async(message) for message in numbered(20)))
        assert {result.status for result in results} == {PutMessageStatus.PUT_OK}
        assert [result.queue_offset for result in results] == list(range(20))

    with open_store(fs, config=SYNC) as store:
        requests = store._group_commit._served
        asyncio.run(put_all())
        assert max(requests) == 1, "twenty coroutines are one request"
        lost_power = fs.crash_clone(0.0, 0)
    with open_store(lost_power, config=SYNC) as store:
        assert bodies(store) == [message.body for message in numbered(20)]


def test_busy_disk_does_not_block_event_loop_or_acknowledge_early() -> None:
    fs = GatedFileSystem()

    async def put_during_a_sync() -> None:
        with fs.shut():
            before = fs.log_syncs
            first = asyncio.create_task(store.put_async(Message("orders", b"first")))
            await arrived(fs)
            others = [asyncio.create_task(store.put_async(message)) for message in numbered(20)]
            batch = asyncio.create_task(store.put_batch_async(numbered(3)))
            await asyncio.sleep(0.02)
            assert not any(task.done() for task in (first, *others, batch))
        results = await asyncio.gather(first, *others)
        assert {result.status for result in results} == {PutMessageStatus.PUT_OK}
        assert (await batch).status is PutMessageStatus.PUT_OK
        assert fs.log_syncs - before == 2

    with open_store(fs, config=SYNC) as store:
        asyncio.run(put_during_a_sync())


def test_slow_sync_returns_flush_disk_timeout_and_stores_message() -> None:
    fs = GatedFileSystem()

    async def put_both() -> None:
        with fs.shut():
            assert (await store.put_async(Message("orders", b"x"))).status is PutMessageStatus.FLUSH_DISK_TIMEOUT
            assert (await store.put_batch_async(numbered(2))).status is PutMessageStatus.FLUSH_DISK_TIMEOUT

    with open_store(fs, config=replace(SYNC, sync_flush_timeout_ms=20)) as store:
        asyncio.run(put_both())
        await_dispatch(store)
        assert len(bodies(store)) == 3


def test_failed_sync_fails_every_waiting_put() -> None:
    fs = GatedFileSystem()

    async def put_two() -> list[object]:
        puts = (store.put_async(message) for message in numbered(2))
        return await asyncio.gather(*puts, return_exceptions=True)

    with open_store(fs, config=SYNC) as store:
        fs.broken = True
        errors = asyncio.run(put_two())
        assert [type(error) for error in errors] == [SyncFailedError, SyncFailedError]
        fs.broken = False
        refused = asyncio.run(store.put_async(Message("orders", b"z")))
        assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE


def test_cancelled_put_leaves_others_their_acknowledgement() -> None:
    fs = GatedFileSystem()

    async def give_up() -> None:
        with fs.shut():
            tasks = [asyncio.create_task(store.put_async(message)) for message in numbered(3)]
            await arrived(fs)
            tasks[1].cancel()
            with pytest.raises(asyncio.CancelledError):
                await tasks[1]
        assert (await tasks[0]).status is (await tasks[2]).status is PutMessageStatus.PUT_OK

    with open_store(fs, config=SYNC) as store:
        asyncio.run(give_up())
        await_dispatch(store)
        assert len(bodies(store)) == 3, "a message that is in the log stays there"


def test_event_loop_ending_before_sync_affects_no_other_put() -> None:
    fs = GatedFileSystem()

    async def leave() -> None:
        task = asyncio.create_task(store.put_async(Message("orders", b"left behind")))
        await arrived(fs)
        task.cancel()

    with open_store(fs, config=SYNC) as store:
        with fs.shut():
            asyncio.run(leave())
        assert store.put(Message("orders", b"after it")).status is PutMessageStatus.PUT_OK
        gc.collect()
        assert not store._durability._of_disk._of_loops, "a loop that is gone is not kept"
        assert not store.failures


def test_without_sync_flush_no_put_waits() -> None:
    fs = GatedFileSystem()

    async def put_both() -> None:
        with fs.shut():
            assert (await store.put_async(Message("orders", b"x"))).status is PutMessageStatus.PUT_OK
            assert np.array_equal((await store.put_batch_async(numbered(2))).queue_offsets, [1, 2])

    with open_store(fs, config=BARE) as store:
        asyncio.run(put_both())


def test_refused_put_does_not_wait() -> None:
    async def put_bad() -> None:
        assert (await store.put_async(Message("", b"x"))).status is PutMessageStatus.MESSAGE_ILLEGAL
        assert (await store.put_batch_async([Message("", b"x")])).rejected == {0: PutMessageStatus.MESSAGE_ILLEGAL}

    with open_store(GatedFileSystem(), config=SYNC) as store:
        asyncio.run(put_bad())
    with pytest.raises(StoreClosedError):
        asyncio.run(store.put_async(Message("orders", b"x")))


def test_close_before_end_of_turn_acknowledges_waiting_puts() -> None:
    async def put_and_close() -> PutMessageStatus:
        task = asyncio.create_task(store.put_async(Message("orders", b"x")))
        await asyncio.sleep(0)  # appended, and its event loop has not asked for the disk yet
        store.close()
        return (await asyncio.wait_for(task, 60)).status

    store = open_store(MemoryFileSystem(), config=SYNC)
    assert asyncio.run(put_and_close()) is PutMessageStatus.PUT_OK
