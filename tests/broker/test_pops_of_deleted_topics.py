"""Messages that were popped from a topic that was deleted and created again: only those of the new topic come back."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_cases import StartBroker
from test_pending_pops import owed
from test_pops import INVISIBLE_MS, NOW_MS, RETRY, Pops, batch, bodies

from gantrymq.broker.pop.offset_recovery import recover_offsets
from gantrymq.clock import ManualClock
from gantrymq.fs.killable import KillableFileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.headers.topic import DeleteTopicRequestHeader

pytestmark = pytest.mark.asyncio


class Deleted:
    """A broker whose topic ``T`` is deleted while messages are popped. ``start`` begins another life of it."""

    def __init__(self, start_broker: StartBroker, path: Path) -> None:
        self._start_broker, self._path = start_broker, path
        self._disk = KillableFileSystem(RealFileSystem())
        self.clock = ManualClock(NOW_MS)

    async def start(self, **more: object) -> Pops:
        settings = {
            "revive_interval_ms": 1 << 30, "timer_precision_ms": 100, "wait_time_in_send_queue_ms": 60_000,
            "flush_consumer_offset_interval_ms": 1 << 30, **more,
        }  # fmt: skip
        return Pops(await self._start_broker(self._path, clock=self.clock, fs=self._disk, **settings), self.clock)

    async def end(self, pops: Pops, how: str) -> None:
        await pops.caught_up()
        if how == "killed":
            self._disk.kill()
            await pops.case.server.abandon()
            self._disk = KillableFileSystem(RealFileSystem())
        else:
            await pops.case.stop()

    async def delete(self, pops: Pops, topic: str = "T") -> None:
        self.clock.advance(1)
        assert (await pops.case.ask(DeleteTopicRequestHeader(topic=topic))).code == ResponseCode.SUCCESS
        self.clock.advance(1)


@pytest.fixture
def deleted(start_broker: StartBroker, tmp_path: Path) -> Deleted:
    return Deleted(start_broker, tmp_path / "store")


async def consume(pops: Pops, count: int) -> list[bytes]:
    """Send ``count`` messages, receive and acknowledge them."""
    await pops.send(*(b"new %d" % number for number in range(count)))
    found = await pops.pop()
    for message, handle in found:
        assert (await pops.ack(message, handle)).code == ResponseCode.SUCCESS
    return bodies(found)


@pytest.mark.parametrize(
    ("how", "merges", "is_v2"),
    [("", False, False), ("", True, True), ("closed", False, True), ("killed", False, False), ("killed", True, False)],
)
async def test_pops_of_deleted_topic_deliver_no_message_of_new_one(
    deleted: Deleted, how: str, merges: bool, is_v2: bool, tmp_path: Path
) -> None:
    settings = {"enable_pop_buffer_merge": merges, "enable_retry_topic_v2": is_v2}
    pops = await deleted.start(**settings)
    await pops.send(*(b"old %d" % number for number in range(20)))
    assert len(await pops.pop()) == 20
    if merges:  # its time in memory ends, so that it is in the log when the topic is deleted
        deleted.clock.advance(12_000)
        await pops.case.server.pop.buffer.scan()
    await pops.commit()
    await deleted.delete(pops)
    if how:
        await deleted.end(pops, how)
        assert owed(tmp_path / "store", deleted.clock, passed_over=1) == {}
        pops = await deleted.start(**settings)
    assert await consume(pops, 3) == [b"new 0", b"new 1", b"new 2"]
    await pops.revived()
    await pops.revived()
    assert await pops.pop() == []
    assert not [name for name in pops.case.server.tables.topics.table if name.startswith("%RETRY%G")]


async def test_checkpoint_in_revive_topic_at_deletion_of_topic_delivers_nothing(deleted: Deleted) -> None:
    """The timers have delivered it, and it is decided after the topic was created again."""
    pops = await deleted.start()
    await pops.send(b"old 0", b"old 1")
    await pops.pop()
    server, clock = pops.case.server, deleted.clock
    clock.advance(INVISIBLE_MS)
    while not server.store.max_offset_in_queue(server.pop.revive_log.topic, 1):
        clock.advance(100)
        await pops.caught_up()
    await deleted.delete(pops)
    assert await consume(pops, 2) == [b"new 0", b"new 1"]
    await pops.revived()
    assert await pops.pop() == []


async def test_checkpoint_in_memory_at_deletion_of_topic_delivers_nothing(deleted: Deleted) -> None:
    pops = await deleted.start(enable_pop_buffer_merge=True)
    await pops.send(b"old 0", b"old 1")
    await pops.pop()
    await deleted.delete(pops)
    assert await consume(pops, 2) == [b"new 0", b"new 1"]
    await pops.revived()
    await pops.revived()
    assert await pops.pop() == []


async def test_messages_of_deleted_retry_topic_are_not_revived(deleted: Deleted) -> None:
    pops = await deleted.start()
    await pops.send(b"old 0", b"old 1")
    await pops.pop()
    await pops.revived()
    assert len(await pops.pop()) == 2  # from the retry topic
    await deleted.delete(pops)
    await pops.send(b"new 0", b"new 1")
    assert len(await pops.pop()) == 2
    await pops.revived()
    found = await pops.pop()
    assert sorted(bodies(found)) == [b"new 0", b"new 1"]
    for message, handle in found:
        assert (await pops.ack(message, handle)).code == ResponseCode.SUCCESS
    await pops.revived()
    await pops.revived()
    assert await pops.pop() == []


async def test_handle_of_deleted_topic_hides_no_message_of_new_one(deleted: Deleted) -> None:
    """A changed invisible time is a checkpoint of its own, and would name the new message at the old offset."""
    pops = await deleted.start()
    await pops.send(b"old 0", b"old 1")
    old = await pops.pop()
    await deleted.delete(pops)
    await pops.send(b"new 0", b"new 1")
    refused = await pops.change(*old[0], INVISIBLE_MS)
    assert (refused.code, "deleted" in str(refused.remark)) == (ResponseCode.NO_MESSAGE, True)
    await pops.ack(*old[1])
    await pops.case.ask(RequestCode.BATCH_ACK_MESSAGE, batch((old[0][1], [0, 1])))
    assert len(await pops.pop()) == 2
    await pops.revived()
    assert sorted(bodies(await pops.pop())) == [b"new 0", b"new 1"]


@pytest.mark.parametrize("how", ["", "closed", "killed"])
async def test_ordered_pop_of_deleted_topic_neither_blocks_nor_skips(deleted: Deleted, how: str) -> None:
    pops = await deleted.start()
    await pops.send(b"old 0", b"old 1")
    old = await pops.pop(order=True)
    await pops.case.server.tables.persistence.save_all()
    await deleted.delete(pops)
    if how:
        await deleted.end(pops, how)
        pops = await deleted.start()
    await pops.send(b"new 0", b"new 1")
    for message, handle in old:
        await pops.ack(message, handle)
    found = await pops.pop(order=True)
    assert bodies(found) == [b"new 0", b"new 1"]
    for message, handle in old:
        await pops.ack(message, handle)
    assert pops.committed() == 0
    await pops.revived()
    assert bodies(await pops.pop(order=True)) == [b"new 0", b"new 1"]


async def test_pops_of_deleted_topic_after_kill_skip_no_new_message(deleted: Deleted) -> None:
    pops = await deleted.start()
    await pops.send(b"old 0", b"old 1")
    assert len(await pops.pop()) == 2
    await pops.commit()
    await deleted.delete(pops)
    await pops.send(b"new 0", b"new 1")
    await deleted.end(pops, "killed")
    pops = await deleted.start()
    assert (
        recover_offsets(pops.case.server.store, pops.case.server.tables.offsets, "rmq_sys_REVIVE_LOG_DefaultCluster")
        == 0
    )
    assert bodies(await pops.pop()) == [b"new 0", b"new 1"]


async def test_messages_popped_from_recreated_topic_are_revived(deleted: Deleted) -> None:
    """A deletion takes nothing that was popped after it, over restarts too."""
    pops = await deleted.start()
    await pops.send(b"old 0")
    await pops.pop()
    await deleted.delete(pops)
    await pops.send(b"new 0", b"new 1")
    assert len(await pops.pop()) == 2
    await deleted.end(pops, "killed")
    pops = await deleted.start()
    await pops.revived()
    assert sorted(bodies(await pops.pop())) == [b"new 0", b"new 1"]
    assert pops.case.server.store.max_offset_in_queue(RETRY, 0) == 2
