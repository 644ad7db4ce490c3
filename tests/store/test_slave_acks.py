"""What a put waits for at slaves: how many copies, which of several puts, and for how long."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.flush_requests import FlushRequest
from gantrymq.store.message_store import MessageStore
from gantrymq.store.slave_acks import SlaveAcks
from memory_file_system import MemoryFileSystem

SYNC = MessageStoreConfig(broker_role="SYNC_MASTER", in_sync_replicas=3, slave_timeout_ms=60_000)
OK, LATE = PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_SLAVE_TIMEOUT


def outcomes(requests: list[FlushRequest]) -> list[bool]:
    return [request.done() for request in requests]


def test_put_is_acknowledged_once_as_many_slaves_have_it() -> None:
    acks = SlaveAcks(SYNC)
    request = acks.put_request(100)
    for offsets in ((), (100,), (200, 99), (1000,)):
        acks.update(offsets)
        assert not request.done()
    acks.update((100, 7, 100))
    assert request.result(0) is OK


def test_report_acknowledges_all_it_covers_whatever_waits_in_front() -> None:
    acks = SlaveAcks(SYNC)
    requests = [acks.put_request(end) for end in (500, 100, 300, 900)]
    acks.update((350, 350))
    assert outcomes(requests) == [False, True, True, False]
    acks.config = replace(SYNC, in_sync_replicas=2)
    requests.append(acks.put_request(800))
    acks.update((800, 350))
    assert outcomes(requests) == [False, True, True, False, True]


def test_put_behind_acknowledged_end_does_not_wait() -> None:
    acks = SlaveAcks(SYNC)
    acks.update((100, 100))
    assert acks.put_request(100).done()
    assert not acks.put_request(101).done()


def test_requests_whose_time_is_over_are_dropped() -> None:
    acks = SlaveAcks(replace(SYNC, slave_timeout_ms=0))
    late = [acks.put_request(end) for end in range(1000)]
    assert all(request.result(0) is LATE for request in late)
    assert sum(map(len, acks._waiting.values())) == 1


@pytest.mark.parametrize(
    ("config", "waits"),
    [
        (SYNC, True),
        (replace(SYNC, in_sync_replicas=1), False),
        (replace(SYNC, in_sync_replicas=0), False),
        (replace(SYNC, broker_role="ASYNC_MASTER"), False),
        (replace(SYNC, duplication_enable=True), False),
    ],
)
def test_only_sync_master_with_several_copies_waits(config: MessageStoreConfig, waits: bool) -> None:
    assert SlaveAcks(config).waits is waits


def test_strict_master_refuses_puts_until_copies_are_in_sync() -> None:
    config = replace(SYNC, total_replicas=3, ha_max_gap_not_in_sync_bytes=100)
    acks = SlaveAcks(config, is_strict=True)
    acks.log_end = lambda: 1_000
    for offsets, refused in (((), True), ((950,), True), ((950, 900), True), ((950, 901), False)):
        acks.update(offsets)
        assert acks.refuses() is refused
    acks.alive_replicas = 2  # a name server has lost one
    assert acks.refuses()
    acks.config = replace(config, enable_auto_in_sync_replicas=True, min_in_sync_replicas=2)
    assert not acks.refuses()
    acks.alive_replicas = 1
    assert acks.refuses()


def test_put_of_thread_waits_for_slaves_and_delivery_does_not() -> None:
    acks = SlaveAcks(SYNC)
    config = replace(SYNC, mapped_file_size_commit_log=1 << 20, max_hash_slot_num=100, max_index_num=400)
    with MessageStore.open("/store", config, fs=MemoryFileSystem(), slaves=acks) as store:
        assert store._puts.put_here(Message("T", b"delivered")).status is OK
        assert store.put(Message("T", b"no wait", wait_store_msg_ok=False)).status is OK
        results: list[PutMessageStatus] = []
        thread = threading.Thread(target=lambda: results.append(store.put(Message("T", b"waits")).status))
        thread.start()
        while not any(acks._waiting.values()):
            assert thread.is_alive()
            time.sleep(0.001)
        assert results == []
        acks.update((store.max_phy_offset,) * 2)
        thread.join(10)
        assert results == [OK]


def test_store_without_ha_server_waits_for_no_slave() -> None:
    config = replace(SYNC, mapped_file_size_commit_log=1 << 20, max_hash_slot_num=100, max_index_num=400)
    with MessageStore.open("/store", config, fs=MemoryFileSystem()) as store:
        assert store.put(Message("T", b"ingested")).status is OK
