"""Appends of several messages that are stored together, without waiting for the disk."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gantrymq.config.settings import FlushDiskType
from gantrymq.model.flags import TRANSACTION_PREPARED
from gantrymq.model.host import Host
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.log.appendable import AppendableBatch, AppendableMessage
from gantrymq.store.message_store import MessageStore
from gated_file_system import GatedFileSystem
from memory_file_system import MemoryFileSystem
from store_cases import BARE, await_dispatch, bodies, numbered, open_store

SYNC = replace(BARE, flush_disk_type=FlushDiskType.SYNC_FLUSH)
FILE_SIZE = 4096
SMALL_FILES = replace(BARE, mapped_file_size_commit_log=FILE_SIZE)


def one_of(store: MessageStore, *messages: Message) -> PutMessageStatus:
    return store.append([AppendableBatch(messages)])[0].status


@pytest.mark.parametrize("has_crc", [False, True])
def test_batch_append_returns_ids_and_offsets_of_all_messages(has_crc: bool) -> None:
    fs = MemoryFileSystem()
    config = replace(BARE, enabled_append_prop_crc=has_crc, force_verify_prop_crc=has_crc)
    with open_store(fs, config=config) as store:
        first, batch, last = store.append(
            [
                AppendableMessage(numbered(1)[0]),
                AppendableBatch(numbered(3, first=1)),
                AppendableMessage(numbered(1, first=4)[0]),
            ]
        )
        assert [one.status for one in (first, batch, last)] == [PutMessageStatus.PUT_OK] * 3
        assert [(one.count, one.queue_offset) for one in (first, batch, last)] == [(1, 0), (3, 1), (1, 4)]
        assert first.end_offset == batch.phy_offset == batch.phy_offsets[0]
        assert batch.end_offset == last.phy_offset
        await_dispatch(store)
        stored = [store.message_by_id(msg_id) for msg_id in batch.msg_id.split(",")]
        assert [one and bytes(one.body) for one in stored] == [one.body for one in numbered(3, first=1)]
    with open_store(fs, config=config) as store:
        assert bodies(store) == [one.body for one in numbered(5)]


@pytest.mark.parametrize(
    "other",
    [
        Message("orders", b"x", reconsume_times=1 << 40),
        Message("orders", b"x", flag=1 << 31),
        Message("orders", b"x", keys="a text"),  # type: ignore[arg-type]
        Message("orders", b"x", queue_id=1),
        Message("others", b"x"),
        Message("orders", b"x", delay_level=1),
        Message("orders", b"x", sys_flag=TRANSACTION_PREPARED),
        Message("orders", b"x", store_host=Host.parse("10.0.0.1:1")),
        Message("orders", bytes(FILE_SIZE)),
    ],
)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_batch_with_one_invalid_message_stores_nothing(other: Message, position: int) -> None:
    messages = [Message("orders", b"a"), Message("orders", b"b")]
    messages.insert(position, other)
    with open_store(MemoryFileSystem(), config=SMALL_FILES) as store:
        end = store.max_phy_offset
        assert one_of(store, *messages) is PutMessageStatus.MESSAGE_ILLEGAL
        assert store.max_phy_offset == end
        assert store.put(Message("orders", b"next")).queue_offset == 0


def test_batch_stays_in_one_file_and_larger_one_is_refused() -> None:
    with open_store(MemoryFileSystem(), config=SMALL_FILES) as store:
        store.put(Message("orders", bytes(FILE_SIZE // 2)))
        [batch] = store.append([AppendableBatch([Message("orders", bytes(700)) for _ in range(3)])])
        assert batch.phy_offset == FILE_SIZE
        assert batch.end_offset < 2 * FILE_SIZE
        assert one_of(store, *(Message("orders", bytes(700)) for _ in range(6))) is PutMessageStatus.MESSAGE_ILLEGAL


def test_append_does_not_wait_for_disk_and_flush_does() -> None:
    fs = GatedFileSystem()

    async def append() -> None:
        with fs.shut():
            [result] = store.append([AppendableBatch(numbered(3))])
            assert result.status is PutMessageStatus.PUT_OK
            durable = store.until_durable(result.end_offset)
            await asyncio.sleep(0.02)
            assert not durable.done()
        assert await durable is PutMessageStatus.PUT_OK

    with open_store(fs, config=SYNC) as store:
        asyncio.run(append())


def test_append_to_closed_store_returns_service_not_available() -> None:
    with open_store(MemoryFileSystem()) as store:
        pass
    assert one_of(store, Message("orders", b"x")) is PutMessageStatus.SERVICE_NOT_AVAILABLE
