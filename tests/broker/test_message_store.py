"""The store as the broker uses it, where the disk does not do its part, or what is on it is damaged."""

import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from broker_cases import BrokerCase, messages_of

from bad_disk import break_reads
from gantrymq.broker.reads.message_puller import MessagePuller
from gantrymq.broker.store_log import log_failure
from gantrymq.errors import DiskError, StoreBehindError
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.model.java import string_hash
from gantrymq.model.message import Message
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.headers.topic import DeleteTopicRequestHeader
from gantrymq.store import deletions
from gantrymq.store.message_store import MessageStore
from gated_file_system import GatedFileSystem
from store_cases import BARE, GEOMETRY_KEYS, ROOT, SMALL, await_dispatch, open_store


def test_deletion_of_queue_waits_for_dispatch_of_its_messages() -> None:
    """Else it would come back with its old units, and the next message would be given an offset that is taken."""
    fs = GatedFileSystem("write_at", "consumequeue")
    opened = MessageStore.open(ROOT, BARE, given=GEOMETRY_KEYS, fs=fs, housekeeping=False)
    with opened as store, mock.patch.object(deletions, "_CATCH_UP_S", 0.05):
        with fs.shut():
            store.put(Message("orders", b"x"))
            with pytest.raises(StoreBehindError, match="try again"):
                store.delete_topic("orders")
            assert store.put(Message("orders", b"y")).queue_offset == 1
        await_dispatch(store)
        assert store.delete_topic("orders").queues == 1
        assert store.put(Message("orders", b"z")).queue_offset == 0


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda offset, size: (offset, size | 1 << 16), id="size behind the end"),
        pytest.param(lambda offset, size: (offset, size | 1 << 29), id="size of half a gigabyte"),
        pytest.param(lambda offset, size: (offset, size - (1 << 31)), id="size below nothing"),
        pytest.param(lambda offset, size: (offset | 1 << 40, size), id="place behind the end"),
        pytest.param(lambda offset, size: (offset - (1 << 63), size), id="place below nothing"),
        pytest.param(lambda offset, size: (-1, 1), id="place in front of the log"),
    ],
)
@pytest.mark.parametrize("number", range(6))
def test_damaged_unit_hides_only_its_own_message(
    tmp_path: Path, number: int, damage: Callable[[int, int], tuple[int, int]]
) -> None:
    bodies = [b"%d" % i for i in range(6)]
    with MessageStore.open(tmp_path, BARE, given=GEOMETRY_KEYS, housekeeping=False) as store:
        for body in bodies:
            store.put(Message("orders", body))
        await_dispatch(store)
        with (tmp_path / "consumequeue" / "orders" / "0" / f"{0:020d}").open("r+b") as queue:
            queue.seek(number * UNIT_SIZE)
            unit = struct.unpack(">qi", queue.read(12))
            queue.seek(number * UNIT_SIZE)
            queue.write(struct.pack(">qi", *damage(*unit)))
        assert pulled(store) == bodies[:number] + bodies[number + 1 :]


def pulled_one_by_one(store: MessageStore) -> Iterator[bytes]:
    """As :func:`pulled`, each as soon as it is found."""
    offset = 0
    while offset < store.max_offset_in_queue("orders", 0):
        pull = MessagePuller(store.lookup).pull("orders", 0, offset, 32, 1 << 18)
        yield from (message.body for message in messages_of(b"".join(pull.pieces)))
        offset = pull.next_begin_offset


def pulled(store: MessageStore) -> list[bytes]:
    """The bodies that a consumer finds, pull by pull."""
    found: list[bytes] = []
    offset = 0
    while offset < store.max_offset_in_queue("orders", 0):
        pull = MessagePuller(store.lookup).pull("orders", 0, offset, 32, 1 << 18)
        messages = messages_of(b"".join(pull.pieces))
        assert pull.count == len(messages)
        found += [message.body for message in messages]
        offset = pull.next_begin_offset
    return found


@pytest.mark.parametrize("has_ext", [True, False])
def test_unreadable_extended_unit_filters_by_message_itself(tmp_path: Path, has_ext: bool) -> None:
    """Their units have addresses of those, which are no tag's hash; a consumer looks at the tags of what it gets."""
    extended = replace(BARE, enable_consume_queue_ext=True)
    with open_store(path=tmp_path, config=extended) as store:
        store.put_batch([Message("orders", tag.encode(), tags=tag) for tag in ("paid", "sent", "paid")])
    config = extended if has_ext else BARE
    with MessageStore.open(tmp_path, config, given=GEOMETRY_KEYS, housekeeping=False) as store:
        assert [message.body for message in store.get("orders", 0, 0, tags="paid").messages] == [b"paid", b"paid"]
        wanted = {string_hash("paid")}
        assert MessagePuller(store.lookup).pull("orders", 0, 0, 32, 1 << 18, wanted).count == (2 if has_ext else 3)
        assert store.lookup.has_match("orders", 0, 1, 2, wanted) is not has_ext


def test_pull_returns_messages_before_unreadable_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil = break_reads(monkeypatch)
    with MessageStore.open(tmp_path, BARE) as store:
        for number in range(30):
            size_bytes = store.put(Message("orders", b"%0400d" % number, queue_id=0)).size_bytes
        await_dispatch(store)
        spoil(tmp_path / "commitlog" / f"{0:020d}", 8192, 12_288)
        found: list[bytes] = []
        with pytest.raises(DiskError, match="cannot be read at byte 8192") as failed:
            found.extend(pulled_one_by_one(store))
        assert failed.value.path.name == f"{0:020d}"
        assert [int(body) for body in found] == list(range(8192 // size_bytes))


@pytest.mark.asyncio
async def test_recovery_logs_truncated_bytes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with MessageStore.open(tmp_path, BARE) as store:
        for number in range(40):
            last = store.put(Message("orders", b"%0400d" % number, queue_id=0))
        await_dispatch(store)
    log_file = tmp_path / "commitlog" / f"{last.phy_offset - last.phy_offset % store._log.file_size:020d}"
    with log_file.open("r+b") as file:
        file.seek(last.phy_offset % store._log.file_size + 100)
        file.write(b"other bytes")
    (tmp_path / "abort").touch()
    async with BrokerCase(tmp_path) as broker:
        assert broker.server.store.max_phy_offset == last.phy_offset
    [line] = [one.getMessage() for one in caplog.records if "recovery has cut the store" in one.getMessage()]
    assert f"log_ends_at={last.phy_offset} stop_reason='crc'" in line
    assert "queue_units_cut=1" in line


@pytest.mark.asyncio
async def test_deletion_of_queues_is_logged(broker: BrokerCase, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(6):
        await broker.send(queue_id=number % 2)
    assert (await broker.ask(DeleteTopicRequestHeader(topic="T"))).code == ResponseCode.SUCCESS
    [line] = [one for one in caplog.messages if "queues of a topic were deleted" in one]
    assert "topic='T' queues=2 messages=6" in line


def test_unreadable_index_page_does_not_stop_dispatch_to_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config, given = replace(SMALL, max_hash_slot_num=2000), GEOMETRY_KEYS
    with MessageStore.open(tmp_path, config, given=given, housekeeping=False) as store:
        store.put(Message("orders", b"x", queue_id=0, keys=["a"]))
        await_dispatch(store)
    [index] = (tmp_path / "index").iterdir()
    break_reads(monkeypatch)(index, 4096, 8192)
    store = MessageStore.open(tmp_path, config, given=given, housekeeping=False, on_failure=log_failure)
    for number in range(20):
        store.put(Message("orders", b"y", queue_id=0, keys=[f"key-{number}"]))
    while store.max_offset_in_queue("orders", 0) < 21:
        time.sleep(0.001)
    with pytest.raises(DiskError, match="cannot be read at byte 4096"):
        store.close()
    [line] = [one for one in caplog.messages if "a service of the store failed" in one]
    assert f"{index}: cannot be read at byte 4096" in line
