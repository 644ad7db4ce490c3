"""What is sent back or viewed by offset is a record of the log, never bytes in a body that read like one."""

from __future__ import annotations

import asyncio
import threading

import pytest
from broker_cases import BrokerCase, messages_of

from gantrymq.broker.reads.stored_records import StoredRecords
from gantrymq.format.record import encode_record
from gantrymq.model.message import StoredMessage, message_id
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import ConsumeMessageDirectlyResultRequestHeader
from gantrymq.remoting.headers.pull import ViewMessageRequestHeader
from gantrymq.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from gantrymq.remoting.headers.topic import DeleteTopicRequestHeader

_PATTERN = b"0123456789" * 40


async def send_forged(broker: BrokerCase, topic: str, queue_offset: int) -> int:
    """Send to T a body that is, byte for byte, a record of ``topic``; returns where in the log that lies."""
    store = broker.server.store
    probe_at = store.max_phy_offset
    await broker.send("T", _PATTERN)
    probe = store.message_at(probe_at)
    assert probe is not None
    raw = StoredRecords(store).record_of(probe)
    assert raw is not None
    offset = store.max_phy_offset + bytes(raw).index(_PATTERN)
    forged = StoredMessage(
        topic, 0, queue_offset, offset, 0, 0, 0, 5, probe.born_host, probe.store_timestamp_ms, probe.store_host, 0, 0,
        0, b"forged", {}, 1,
    )  # fmt: skip
    assert (await broker.send("T", encode_record(forged, topic.encode(), b""))).code == ResponseCode.SUCCESS
    read = store.message_at(offset)
    assert read is not None  # the bytes alone pass for a record
    assert (read.topic, read.body) == (topic, b"forged")
    await broker.dispatched(probe.queue_offset + 2)
    return offset


async def send_back(broker: BrokerCase, offset: int) -> RemotingCommand:
    return await broker.ask(ConsumerSendMsgBackRequestHeader(offset=offset, group="G", delay_level=-1))


async def view(broker: BrokerCase, offset: int) -> RemotingCommand:
    return await broker.ask(ViewMessageRequestHeader(offset=offset))


async def body_at(broker: BrokerCase, offset: int) -> bytes:
    """The body of the message that is viewed at an offset."""
    answer = await view(broker, offset)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    (message,) = messages_of(answer.body)
    return message.body


@pytest.mark.asyncio
@pytest.mark.parametrize("queue_offset", [0, 7, -1, 1 << 40])
async def test_forged_record_in_body_cannot_be_viewed_or_sent_back(broker: BrokerCase, queue_offset: int) -> None:
    await broker.heart_beat()
    await broker.send("secret", b"real")
    offset = await send_forged(broker, "secret", queue_offset)
    assert (await send_back(broker, offset)).code == ResponseCode.SYSTEM_ERROR
    assert (await view(broker, offset)).code == ResponseCode.SYSTEM_ERROR
    directly = ConsumeMessageDirectlyResultRequestHeader(
        consumer_group="G", client_id="c1", msg_id=message_id(broker.server.store._store_host, offset)
    )
    answer = await broker.ask(directly)
    assert (answer.code, "can not find message" in str(answer.remark)) == (ResponseCode.SYSTEM_ERROR, True)
    assert await body_at(broker, 0) == b"real"


@pytest.mark.asyncio
async def test_forged_record_of_missing_topic_is_not_read(broker: BrokerCase) -> None:
    """Without a unit to compare with, only the walk through the file tells it from the message of a deleted topic."""
    await broker.heart_beat()
    offset = await send_forged(broker, "never", 0)
    assert (await send_back(broker, offset)).code == ResponseCode.SYSTEM_ERROR
    assert (await view(broker, offset)).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.asyncio
async def test_message_of_deleted_topic_can_be_viewed(broker: BrokerCase) -> None:
    for topic in ("front", "gone", "behind"):
        await broker.send(topic, topic.encode())
    await broker.dispatched(1, "behind")
    offset = next(one.phy_offset for one in messages_of((await broker.pull("gone")).body) if one.topic == "gone")
    assert (await broker.ask(DeleteTopicRequestHeader(topic="gone"))).code == ResponseCode.SUCCESS
    assert await body_at(broker, offset) == b"gone"


@pytest.mark.asyncio
async def test_acknowledged_message_can_be_viewed_at_once(broker: BrokerCase) -> None:
    for number in range(20):
        offset = broker.server.store.max_phy_offset
        body = b"%d" % number
        assert (await broker.send("T", body)).code == ResponseCode.SUCCESS
        assert await body_at(broker, offset) == body


@pytest.mark.asyncio
async def test_delayed_message_can_be_viewed(broker: BrokerCase) -> None:
    delayed = broker.server.store.max_phy_offset
    await broker.send("T", b"delayed", properties={"DELAY": "5"})
    assert await body_at(broker, delayed) == b"delayed"


@pytest.mark.asyncio
async def test_delayed_message_can_be_sent_back(broker: BrokerCase) -> None:
    """What lies in SCHEDULE_TOPIC_XXXX has a unit there."""
    await broker.heart_beat()
    await broker.send("T", b"delayed", properties={"DELAY": "5"})
    await broker.dispatched(1, "SCHEDULE_TOPIC_XXXX", 4)
    assert (await send_back(broker, 0)).code == ResponseCode.SUCCESS


@pytest.mark.asyncio
async def test_concurrent_lookups_of_offsets_without_queue_are_limited(
    broker: BrokerCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.heart_beat()
    offset = await send_forged(broker, "never", 0)
    let_go = threading.Event()
    monkeypatch.setattr(StoredRecords, "is_record_start", lambda store, at: let_go.wait() and False)
    views = [asyncio.ensure_future(view(broker, offset)) for _ in range(20)]
    done, _ = await asyncio.wait(views, return_when=asyncio.FIRST_COMPLETED)
    assert "try again" in str(next(iter(done)).result().remark)
    assert (await broker.send()).code == ResponseCode.SUCCESS
    let_go.set()
    answers = [str(one.remark) for one in await asyncio.gather(*views)]
    assert len([one for one in answers if "can not find message" in one]) == 16
