"""Sending: what is stored, what is refused, and in which words."""

from __future__ import annotations

import asyncio

import pytest
from broker_cases import BrokerCase, StartBroker, messages_of
from structlog.testing import capture_logs

from gantrymq.client.requests.records import decode_records
from gantrymq.config.settings import FlushDiskType
from gantrymq.model.java import INT_MAX, LONG_MAX
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
)
from gantrymq.remoting.message_batch import BatchedMessage, encode_batch

pytestmark = pytest.mark.asyncio

PLAIN = {"UNIQ_KEY": "u"}
BATCH = encode_batch([BatchedMessage(0, b"", b""), BatchedMessage(0, b"second", b"")])


async def test_send_creates_topic_and_returns_offset(broker: BrokerCase) -> None:
    response = await broker.send(properties={"TAGS": "a", "UNIQ_KEY": "U1"})
    answer = response.read(SendMessageResponseHeader)
    assert (response.code, answer.queue_id, answer.queue_offset, answer.transaction_id) == (0, 0, 0, "U1")
    assert response.ext_fields["MSG_REGION"] == "DefaultRegion"
    assert response.ext_fields["TRACE_ON"] == "true"
    topic = broker.server.tables.topics.get("T")
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (4, 4, 6)
    stored = broker.server.store.message_by_id(answer.msg_id)
    assert stored is not None
    assert stored.properties == {
        "TAGS": "a", "UNIQ_KEY": "U1", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster",
    }  # fmt: skip
    assert str(stored.store_host) == broker.server.address
    assert str(stored.born_host).startswith("127.0.0.1:")


async def test_send_headers_v1_and_v2_store_equal_records(broker: BrokerCase) -> None:
    header = SendMessageRequestHeader(
        producer_group="P", topic="T", default_topic="TBW102", default_topic_queue_nums=4, queue_id=1, sys_flag=0,
        born_timestamp=5, flag=7, reconsume_times=2, properties="TAGS\x01x",
    )  # fmt: skip
    assert (await broker.ask(header, b"v1")).code == ResponseCode.SUCCESS
    await broker.send(body=b"v2", queue_id=1, born_timestamp=5, flag=7, reconsume_times=2, properties={"TAGS": "x"})
    pulled = await pull_all(broker, 2, queue_id=1)
    first, second = messages_of(pulled)
    assert (first.body, second.body) == (b"v1", b"v2")
    assert (first.flag, first.born_timestamp_ms, first.reconsume_times, first.tags) == (7, 5, 2, "x")
    assert (second.flag, second.born_timestamp_ms, second.reconsume_times, second.tags) == (7, 5, 2, "x")


async def test_batch_is_stored_as_its_messages(broker: BrokerCase) -> None:
    batch = [BatchedMessage(3, b"m%d" % i, b"KEYS\x01k%d\x02" % i) for i in range(3)]
    response = await broker.send(
        body=encode_batch(batch), code=RequestCode.SEND_BATCH_MESSAGE, batch=True, properties={"UNIQ_KEY": "B"}
    )
    answer = response.read(SendMessageResponseHeader)
    assert (response.code, answer.queue_offset, answer.transaction_id) == (0, 0, "B")
    stored = [broker.server.store.message_by_id(one) for one in answer.msg_id.split(",")]
    assert [(one.body, one.queue_offset, one.flag, one.keys) for one in stored if one] == [
        (b"m0", 0, 3, ["k0"]), (b"m1", 1, 3, ["k1"]), (b"m2", 2, 3, ["k2"]),
    ]  # fmt: skip


async def test_batch_with_zero_bytes_in_properties_is_decoded(broker: BrokerCase) -> None:
    """A client of 4.9.8 writes no separator behind the last property; without one, zeros could end the record."""
    batch = [BatchedMessage(0, b"m%d" % i, b"p\x01v\0\0") for i in range(3)]
    response = await broker.send(
        body=encode_batch(batch), code=RequestCode.SEND_BATCH_MESSAGE, batch=True, properties={"UNIQ_KEY": "B"}
    )
    assert response.code == 0
    records = await pull_all(broker, 3)
    assert [one.properties["p"] for one in decode_records(records)] == ["v\0\0"] * 3
    assert records.endswith(b"\2")


async def pull_all(broker: BrokerCase, count: int, **fields: int) -> bytes:
    """Pull as soon as ``count`` messages are dispatched."""
    await broker.dispatched(count, queue_id=fields.get("queue_id", 0))
    return (await broker.pull(offset=0, **fields)).body


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "a b"}, ResponseCode.INVALID_PARAMETER, "contains illegal characters, allowing only"),
        ({"topic": "x" * 128}, ResponseCode.INVALID_PARAMETER, "is longer than topic max length: 127"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION, "Sending message to topic[SCHEDULE_TOPIC_XXXX]"),
        ({"default_topic": "none"}, ResponseCode.TOPIC_NOT_EXIST, "topic[T] not exist, apply first please!\nSee "),
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER, "request queueId[4] is illegal, TopicConfig [topicName=T, "),
        ({"properties": {"TIMER_DELAY_SEC": "300000"}}, ResponseCode.MESSAGE_ILLEGAL, "than the max delay 259200000ms"),
        ({"properties": {"UNIQ_KEY": "k", "p": "\0" * 512}}, ResponseCode.MESSAGE_ILLEGAL, ""),
        ({"body": b"x" * (4 << 20) + b"x"}, ResponseCode.MESSAGE_ILLEGAL, "msg body length limit 4194304B"),
        ({"body": b""}, ResponseCode.MESSAGE_ILLEGAL, "the message is illegal"),
        ({"body": b"", "properties": PLAIN}, ResponseCode.MESSAGE_ILLEGAL, "the message is illegal"),
        ({"body": b"", "properties": PLAIN | {"DELAY": "1"}}, ResponseCode.MESSAGE_ILLEGAL, "the message is illegal"),
        ({"properties": {"DELAY": "1_0"}}, ResponseCode.SYSTEM_ERROR, 'For input string: "1_0"'),
        ({"properties": {"DELAY": "3000000000"}}, ResponseCode.SYSTEM_ERROR, 'For input string: "3000000000"'),
        ({"body": b"", "topic": "%RETRY%TOOLS_CONSUMER"}, ResponseCode.MESSAGE_ILLEGAL, "the message is illegal"),
        ({"properties": PLAIN | {"INNER_NUM": "3"}}, ResponseCode.MESSAGE_ILLEGAL, "the message is illegal"),
        ({"properties": PLAIN, "sys_flag": 0x80}, ResponseCode.MESSAGE_ILLEGAL, "the message is illegal"),
        (
            {"body": BATCH, "batch": True, "properties": {"TIMER_DELAY_SEC": "9"}},
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal",
        ),
        ({"body": BATCH, "batch": True, "sys_flag": 0x80}, ResponseCode.MESSAGE_ILLEGAL, "the message is illegal"),
        ({"body": BATCH, "batch": True, "sys_flag": 0x4}, ResponseCode.MESSAGE_ILLEGAL, "the message is illegal"),
        ({"body": BATCH, "batch": True, "sys_flag": 0x8}, ResponseCode.MESSAGE_ILLEGAL, "the message is illegal"),
    ],
)  # fmt: skip
async def test_invalid_send_is_refused_with_code_and_remark(
    broker: BrokerCase, fields: dict[str, object], code: int, remark: str
) -> None:
    response = await broker.send(**fields)  # type: ignore[arg-type]
    assert response.code == code
    assert remark in str(response.remark)


@pytest.mark.usefixtures("shanghai")
async def test_send_before_start_time_names_start_time(broker: BrokerCase) -> None:
    for until, said in ((4_102_416_000_007, "2100-01-01 00:00:00,007"), (LONG_MAX, "292278994-08-17 15:12:55,807")):
        await broker.ask(RequestCode.UPDATE_BROKER_CONFIG, b"startAcceptSendRequestTimeStamp=%d" % until)
        refused = await broker.send()
        assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {said}")


async def test_empty_message_of_batch_is_stored_and_not_sent_back(broker: BrokerCase) -> None:
    """RocketMQ's broker takes a batch as it is, and looks at what it puts by itself."""
    await broker.heart_beat("G")
    answer = (await broker.send(body=BATCH, batch=True)).read(SendMessageResponseHeader)
    empty = broker.server.store.message_by_id(answer.msg_id.split(",")[0])
    assert empty is not None
    assert empty.body == b""
    back = await broker.ask(ConsumerSendMsgBackRequestHeader(offset=empty.phy_offset, group="G", delay_level=0))
    assert (back.code, back.remark) == (ResponseCode.SYSTEM_ERROR, "MESSAGE_ILLEGAL")


async def test_empty_reply_is_not_stored(broker: BrokerCase) -> None:
    for body, kept in ((b"", 0), (b"reply", 1)):
        await broker.send(body=body, code=RequestCode.SEND_REPLY_MESSAGE_V2)
        assert broker.server.store.next_offset_in_queue("T", 0) == kept


async def test_message_after_refused_message_is_stored(broker: BrokerCase) -> None:
    await broker.send(queue_id=99)
    assert (await broker.send()).code == ResponseCode.SUCCESS


async def test_changed_max_message_size_applies_to_next_send(broker: BrokerCase) -> None:
    limit = broker.server.config.store.max_message_size_bytes
    for now, expected in ((100, ResponseCode.MESSAGE_ILLEGAL), (limit + 1, ResponseCode.SUCCESS)):
        await broker.ask(RequestCode.UPDATE_BROKER_CONFIG, b"maxMessageSize=%d" % now)
        for kind in ("UNIQ_KEY", "KEYS"):  # one that is stored as it came, and one that is not
            answer = await broker.send(body=bytes(limit + 1), properties={kind: "u"})
            assert answer.code == expected, (now, kind, answer.remark)


@pytest.mark.parametrize(("priority", "queue_id"), [("2", 2), ("99", 3), ("1_0", 1), ("9" * 5000, 1)])
async def test_priority_selects_queue_and_invalid_priority_is_ignored(
    broker: BrokerCase, priority: str, queue_id: int
) -> None:
    answer = await broker.send(properties={"_SYS_MSG_PRIORITY_": priority}, queue_id=1)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    assert answer.read(SendMessageResponseHeader).queue_id == queue_id


@pytest.mark.parametrize(
    "other", [{"DELAY": "0"}, {"TIMER_DELIVER_MS": "1"}, {"__SHARDINGKEY": "k"}, {"TRAN_MSG": "TRUE", "PGROUP": "g"}]
)
async def test_priority_of_delayed_or_ordered_message_is_ignored(broker: BrokerCase, other: dict[str, str]) -> None:
    """An ordered message stays in its queue, although it names a priority."""
    answer = await broker.send(properties={"_SYS_MSG_PRIORITY_": "3", **other}, queue_id=1)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    assert answer.read(SendMessageResponseHeader).queue_id == 1
    if "__SHARDINGKEY" in other:
        (message,) = messages_of(await pull_all(broker, 1, queue_id=1))
        assert "_SYS_MSG_PRIORITY_" not in message.properties


async def test_delayed_message_is_delivered_after_its_level(broker: BrokerCase) -> None:
    await broker.send(properties={"DELAY": "1"})
    assert broker.server.store.max_offset_in_queue("T", 0) == 0
    assert messages_of(await pull_all(broker, 1))[0].body == b"body"


async def test_concurrent_sends_with_sync_flush_are_acknowledged(start_broker: StartBroker) -> None:
    case = await start_broker(flush_disk_type=FlushDiskType.SYNC_FLUSH)

    responses = await asyncio.gather(*(case.send() for _ in range(50)))
    assert [response.code for response in responses] == [0] * 50


async def test_too_many_waiting_sends_are_refused_at_once(start_broker: StartBroker) -> None:

    case = await start_broker(send_thread_pool_queue_capacity=3)
    await case.send()
    responses = await asyncio.gather(*(case.send() for _ in range(40)))
    codes = {response.code for response in responses}
    assert codes == {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}
    busy = next(response for response in responses if response.code == ResponseCode.SYSTEM_BUSY)
    assert busy.remark == "[OVERLOAD]system busy, start flow control for a while"
    assert (await case.send()).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("sys_flag", [4, 12])
async def test_message_for_missing_queue_is_acknowledged_and_logged_once_a_minute(
    broker: BrokerCase, sys_flag: int
) -> None:
    with capture_logs() as lines:
        for properties in ({}, {"DELAY": "3"}, {"TRAN_MSG": "false"}):
            assert (await broker.send(sys_flag=sys_flag, properties=properties)).code == ResponseCode.SUCCESS
    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert [(line["topic"], line["sys_flag"]) for line in warnings] == [("T", sys_flag)]
    await broker.send(body=b"behind")
    await broker.dispatched(1)
    store = broker.server.store
    assert store.max_offset_in_queue("T", 0) == 1
    assert store.max_offset_in_queue("SCHEDULE_TOPIC_XXXX", 2) == 0
    assert {one.topic for one in map(store.message_at, (0, store.message_at(0).size_bytes)) if one} == {"T"}  # type: ignore[union-attr]


@pytest.mark.parametrize("sys_flag", [16, 32, 48])
async def test_ipv6_flag_without_ipv6_host_hides_no_message(broker: BrokerCase, sys_flag: int) -> None:
    assert (await broker.send(sys_flag=sys_flag)).code == ResponseCode.SUCCESS
    await broker.dispatched(1)
    (message,) = messages_of((await broker.pull()).body)
    assert (message.body, message.sys_flag) == (b"body", 0)


@pytest.mark.parametrize(
    ("times", "topic", "level", "again"),
    [(INT_MAX, "%DLQ%G", None, INT_MAX), (-1 - INT_MAX, "SCHEDULE_TOPIC_XXXX", "3", -INT_MAX)],
)
async def test_message_with_invalid_reconsume_times_is_sent_back(
    broker: BrokerCase, times: int, topic: str, level: str | None, again: int
) -> None:
    """Any producer can send such a number. RocketMQ adds 1 to the largest one, and gets the smallest."""
    await broker.heart_beat()
    await broker.send(reconsume_times=times)
    (message,) = messages_of(await pull_all(broker, 1))
    answer = await broker.ask(ConsumerSendMsgBackRequestHeader(offset=message.phy_offset, group="G", delay_level=0))
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    queue_id = int(level) - 1 if level else 0
    await broker.dispatched(1, topic, queue_id)
    (back,) = broker.server.store.get(topic, queue_id, 0).messages
    assert (back.reconsume_times, back.properties.get("DELAY") if level else None) == (again, level)
