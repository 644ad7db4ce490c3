"""Timer messages at a broker: on time, recalled, refused, and across a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from broker_cases import BrokerCase, StartBroker, messages_of

from gantrymq.clock import ManualClock
from gantrymq.format.recall_handle import RecallHandle, decode_recall_handle, encode_recall_handle
from gantrymq.format.timer import decode_timer_checkpoint
from gantrymq.model import fastjson
from gantrymq.remoting.bodies.topic import KVTable
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    RecallMessageRequestHeader,
    SendMessageResponseHeader,
)

pytestmark = pytest.mark.asyncio

NOON_MS = 1_700_000_000_000
KEY = "7F00000100002A139A5500000000AB01"


async def timed(broker: BrokerCase, count: int) -> None:
    """Wait until ``count`` messages of the timer topic are in the wheel."""
    await broker.dispatched(count, "rmq_sys_wheel_timer")
    timers = broker.server.store.timers
    assert timers is not None
    while (progress := timers.progress) is None or progress.behind_messages:
        await asyncio.sleep(0.01)


async def test_timer_message_is_delivered_at_its_time(start_broker: StartBroker) -> None:
    clock = ManualClock(NOON_MS)
    broker = await start_broker(clock=clock)
    sent = await broker.send(properties={"TIMER_DELAY_SEC": "3600", "TAGS": "paid"})
    await broker.send(properties={"TIMER_DELAY_MS": "7200000"})
    await broker.send(properties={"TIMER_DELIVER_MS": str(NOON_MS + 3_600_000)}, queue_id=0)
    assert sent.code == ResponseCode.SUCCESS
    await timed(broker, 3)
    clock.advance(3_599_999)
    await asyncio.sleep(0.25)
    assert broker.server.store.max_offset_in_queue("T", 0) == 0
    clock.advance(1)
    await broker.dispatched(2)
    found = messages_of((await broker.pull()).body)
    assert found[0].properties["TAGS"] == "paid"
    assert found[0].properties["TIMER_DEQUEUE_MS"] == str(NOON_MS + 3_600_000)
    assert (found[0].properties["REAL_TOPIC"], found[0].properties["REAL_QID"]) == ("T", "0")


async def test_properties_without_room_for_delivery_are_refused(broker: BrokerCase) -> None:
    refused = await broker.send(properties={"TIMER_DELAY_SEC": "9", "x": "y" * 32_550})
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert broker.server.store.max_offset_in_queue("rmq_sys_wheel_timer", 0) == 0


async def test_timer_message_sent_back_waits_only_for_its_delay_level(broker: BrokerCase) -> None:
    sent = await broker.send(properties={"TIMER_DELIVER_MS": "1", "ORIGIN_MESSAGE_ID": " "})
    msg_id = sent.read(SendMessageResponseHeader).msg_id
    await broker.dispatched(1)
    await broker.heart_beat()
    back = ConsumerSendMsgBackRequestHeader(offset=int(msg_id[-16:], 16), group="G", delay_level=18)
    assert (await broker.ask(back)).code == ResponseCode.SUCCESS
    await broker.dispatched(1, "SCHEDULE_TOPIC_XXXX", 17)
    (waiting,) = broker.server.store.get("SCHEDULE_TOPIC_XXXX", 17, 0).messages
    assert "TIMER_DELIVER_MS" not in waiting.properties
    assert waiting.properties["ORIGIN_MESSAGE_ID"] == msg_id


async def test_delay_level_takes_precedence_over_timer(broker: BrokerCase) -> None:
    await broker.send(properties={"DELAY": "18", "TIMER_DELAY_SEC": "9"})
    await broker.dispatched(1, "SCHEDULE_TOPIC_XXXX", 17)
    assert broker.server.store.max_offset_in_queue("rmq_sys_wheel_timer", 0) == 0


async def test_recalled_message_is_not_delivered(start_broker: StartBroker) -> None:
    clock = ManualClock(NOON_MS)
    broker = await start_broker(clock=clock, recall_message_enable=True)
    sent = await broker.send(body=b"recalled", properties={"TIMER_DELAY_SEC": "60", "UNIQ_KEY": KEY})
    await broker.send(body=b"kept", properties={"TIMER_DELAY_SEC": "60"})
    text = sent.read(SendMessageResponseHeader).recall_handle
    assert text is not None
    handle = decode_recall_handle(text)
    assert handle == RecallHandle("T", broker.server.config.broker.broker_name, str(NOON_MS + 59_001), KEY)
    answer = await broker.ask(RecallMessageRequestHeader(topic="T", recall_handle=text, producer_group="P"))
    assert (answer.code, answer.ext_fields["msgId"]) == (ResponseCode.SUCCESS, KEY)
    await timed(broker, 3)
    clock.advance(60_000)
    await broker.dispatched(1)
    await asyncio.sleep(0.2)
    assert [one.body for one in messages_of((await broker.pull()).body)] == [b"kept"]


@pytest.mark.parametrize(
    ("change", "code", "remark"),
    [
        ({"topic": "X"}, ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match"),
        ({"broker_name": "b"}, ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available"),
        ({"timestamp": "x"}, ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid"),
        ({"timestamp": "1"}, ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid"),
        ({"timestamp": str(1 << 62)}, ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid"),
        ({"unique_key": ""}, ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid"),
    ],
)
async def test_forged_handle_is_refused(
    start_broker: StartBroker, change: dict[str, str], code: int, remark: str
) -> None:
    broker = await start_broker(clock=ManualClock(NOON_MS), recall_message_enable=True)
    await broker.send()
    handle = RecallHandle("T", broker.server.config.broker.broker_name, str(NOON_MS + 5001), KEY)._replace(**change)
    answer = await broker.ask(RecallMessageRequestHeader(topic="T", recall_handle=encode_recall_handle(handle)))
    assert (answer.code, answer.remark) == (code, remark)


async def test_recall_is_disabled_by_default(broker: BrokerCase) -> None:
    answer = await broker.ask(RecallMessageRequestHeader(topic="T", recall_handle="x"))
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")


async def test_restarted_broker_delivers_waiting_timers(tmp_path: Path, start_broker: StartBroker) -> None:
    clock = ManualClock(NOON_MS)
    broker = await start_broker(clock=clock)
    for seconds in (10, 20, 30):
        await broker.send(body=b"%d" % seconds, properties={"TIMER_DELAY_SEC": str(seconds)})
    await timed(broker, 3)
    table = fastjson.loads((await broker.ask(RequestCode.GET_TIMER_METRICS)).body.decode())
    assert table["timingCount"]["T"]["count"] == 3
    info = decode_body(KVTable, (await broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
    assert (info["timerCongestNum"], info["timerOffsetBehind"]) == ("3", "0")
    await broker.stop()
    clock.advance(25_000)
    broker = await start_broker(clock=clock)
    await broker.dispatched(2)
    page = decode_timer_checkpoint((await broker.ask(RequestCode.GET_TIMER_CHECK_POINT)).body)
    assert (page.timer_log_flush_pos, page.timer_queue_offset) == (3 * 52, 3)
    clock.advance(5_000)
    await broker.dispatched(3)
    assert [one.body for one in messages_of((await broker.pull()).body)] == [b"10", b"20", b"30"]


async def test_timer_message_at_broker_without_wheel_is_refused(start_broker: StartBroker) -> None:
    broker = await start_broker(timer_wheel_enable=False)
    refused = await broker.send(properties={"TIMER_DELAY_SEC": "3"})
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark == "accurate timer message is not enabled, timerWheelEnable is false"
    for code in (RequestCode.GET_TIMER_METRICS, RequestCode.GET_TIMER_CHECK_POINT):
        assert (await broker.ask(code)).code == ResponseCode.SYSTEM_ERROR
    assert "rmq_sys_wheel_timer" not in broker.server.tables.topics


async def test_switch_to_timer_engine_other_than_wheel_is_refused(broker: BrokerCase) -> None:
    from gantrymq.remoting.command import RemotingCommand

    async def switch(**fields: str) -> RemotingCommand:
        request = RemotingCommand.request(RequestCode.SWITCH_TIMER_ENGINE)
        request.ext_fields.update(fields)
        return await broker.client.invoke(broker.server.address, request, 10_000)

    assert (await switch(E_T="F")).code == ResponseCode.SUCCESS
    assert (await switch(E_T="R")).code == ResponseCode.INVALID_PARAMETER
    assert (await switch()).code == ResponseCode.INVALID_PARAMETER
