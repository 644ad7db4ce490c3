"""POP: messages are invisible for a while, and come back if they are not acknowledged; with a clock that is moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from broker_cases import BrokerCase, StartBroker, messages_of

from gantrymq.broker import answers, names
from gantrymq.broker.pop import long_polling
from gantrymq.broker.pop.buffer import PoppedQueue
from gantrymq.clock import ManualClock
from gantrymq.errors import DiskError
from gantrymq.format.pop_checkpoint import (
    MAX_MESSAGES,
    PopAck,
    PopCheckpoint,
    PopKey,
    decode_pop_ack,
    decode_pop_checkpoint,
    encode_pop_checkpoint,
)
from gantrymq.format.record import MAX_PROPERTIES_LENGTH
from gantrymq.fs.killable import KillableFileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.java import INT_MAX
from gantrymq.model.message import Message, StoredMessage
from gantrymq.model.receipt_handle import (
    ORDER_REVIVE_QUEUE,
    QueueOfPop,
    ReceiptHandle,
    parse_message_offsets,
    parse_receipt_handle,
    parse_start_offsets,
    real_topic,
)
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig
from gantrymq.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody, encode_bits
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.offset import ResetOffsetRequestHeader
from gantrymq.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PollingInfoRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from gantrymq.remoting.headers.topic import CreateTopicRequestHeader, DeleteTopicRequestHeader
from gantrymq.store.message_store import MessageStore

pytestmark = pytest.mark.asyncio

NOW_MS, INVISIBLE_MS = 1_700_000_000_000, 30_000
REVIVE, RETRY = "rmq_sys_REVIVE_LOG_DefaultCluster", "%RETRY%G_T"


class Pops:
    """A broker with a clock of its own, and a consumer of the group G."""

    def __init__(self, case: BrokerCase, clock: ManualClock) -> None:
        self.case, self.clock = case, clock

    async def send(self, *bodies: bytes, **more: Any) -> None:
        for body in bodies:
            assert (await self.case.send(body=body, **more)).code == ResponseCode.SUCCESS
        await self.caught_up()

    async def caught_up(self) -> None:
        while self.case.server.store.dispatch_behind_bytes:
            await asyncio.sleep(0.001)

    async def ask_pop(self, **more: Any) -> RemotingCommand:
        fields = {
            "consumer_group": "G", "topic": "T", "queue_id": -1, "max_msg_nums": 32, "invisible_time": INVISIBLE_MS,
            "poll_time": 0, "born_time": 0, "init_mode": 0, "exp_type": "TAG", "exp": "*",
        }  # fmt: skip
        return await self.case.ask(PopMessageRequestHeader(**{**fields, **more}))

    async def pop(self, **more: Any) -> list[tuple[StoredMessage, str]]:
        """The messages of a pop, each with its receipt handle."""
        answer = await self.ask_pop(**more)
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code == ResponseCode.POLLING_TIMEOUT, answer.remark
            return []
        return handles_of(answer)

    async def ack(self, message: StoredMessage, handle: str, **more: Any) -> RemotingCommand:
        parsed = parse_receipt_handle(handle)
        fields = {
            "consumer_group": "G", "topic": real_topic(parsed.mark, "T", "G"), "queue_id": message.queue_id,
            "extra_info": handle, "offset": message.queue_offset,
        }  # fmt: skip
        return await self.case.ask(AckMessageRequestHeader(**{**fields, **more}))

    async def change(self, message: StoredMessage, handle: str, invisible_ms: int, **more: Any) -> RemotingCommand:
        parsed = parse_receipt_handle(handle)
        fields = {
            "consumer_group": "G", "topic": real_topic(parsed.mark, "T", "G"), "queue_id": message.queue_id,
            "extra_info": handle, "offset": message.queue_offset, "invisible_time": invisible_ms,
        }  # fmt: skip
        return await self.case.ask(ChangeInvisibleTimeRequestHeader(**{**fields, **more}))

    async def later(self, after_ms: int) -> None:
        """That much later, when the timers have delivered and the checkpoints that are due are decided."""
        await self.caught_up()
        self.clock.advance(after_ms)
        server, target_ms = self.case.server, self.clock.now_ms() // 100 * 100
        timers = server.store.timers
        assert timers is not None
        while (progress := timers.progress) is None or progress.behind_messages or progress.read_ms < target_ms:
            if not self.records():
                break
            await asyncio.sleep(0.005)
        await server.pop.revive.run()
        await self.caught_up()

    async def revived(self, after_ms: int = INVISIBLE_MS + 3_000) -> None:
        await self.later(after_ms)

    async def commit(self) -> None:
        """Commit the offsets of all pops, as the flush of the log allows."""
        await self.caught_up()
        server = self.case.server
        server.store.ask_for_flush()
        while server.store.flushed_offset < server.store.max_phy_offset:
            await asyncio.sleep(0.002)
        await server.pop.buffer.scan()
        server.pop.revive.publish()
        server.pop.revive.publish()

    def committed(self, topic: str = "T", queue_id: int = 0, group: str = "G") -> int:
        return self.case.server.tables.offsets.query(group, topic, queue_id)

    def records(self) -> list[StoredMessage]:
        """All records that the timers hold or have delivered, as they were put."""
        return self.case.server.store.get("rmq_sys_wheel_timer", 0, 0, max_msgs=1000).messages


def handles_of(answer: RemotingCommand) -> list[tuple[StoredMessage, str]]:
    """The messages of an answer with their handles, as a client makes them of the header."""
    header = answer.read(PopMessageResponseHeader)
    starts, offsets = parse_start_offsets(header.start_offset_info), parse_message_offsets(header.msg_offset_info)
    messages, found = messages_of(answer.body), []
    for message in messages:
        text = message.properties.get("POP_CK")
        if text is None:
            mark = "0" if not message.topic.startswith("%RETRY%") else "1"
            queue = QueueOfPop(mark, message.queue_id)
            start = starts[queue]
            assert message.queue_offset in offsets[queue]
            handle = ReceiptHandle(
                start, header.pop_time, header.invisible_time, header.revive_qid, mark, "broker-a", message.queue_id,
                message.queue_offset,
            )  # fmt: skip
            text = str(handle)
        found.append((message, text))
    assert len(messages) == sum(map(len, offsets.values()))
    return found


def bodies(found: list[tuple[StoredMessage, str]]) -> list[bytes]:
    return [message.body for message, _ in found]


StartPops = Callable[..., Any]


@pytest_asyncio.fixture
async def start(start_broker: StartBroker) -> AsyncIterator[StartPops]:
    async def make(**settings: Any) -> Pops:
        clock = settings.pop("clock", None) or ManualClock(NOW_MS)
        defaults = {"revive_interval_ms": 1 << 30, "timer_precision_ms": 100, "wait_time_in_send_queue_ms": 60_000}
        case = await start_broker(clock=clock, **{**defaults, **settings})
        return Pops(case, clock)

    yield make


@pytest_asyncio.fixture
async def pops(start: StartPops) -> Pops:
    return await start()  # type: ignore[no-any-return]


# Pops


async def test_popped_message_is_invisible_then_redelivered(pops: Pops) -> None:
    await pops.send(b"a", b"b")
    first = await pops.pop()
    assert bodies(first) == [b"a", b"b"]
    assert await pops.pop() == []
    await pops.later(INVISIBLE_MS)
    assert await pops.pop() == []
    await pops.later(3_000)
    again = await pops.pop()
    assert sorted(bodies(again)) == [b"a", b"b"]
    message, handle = again[0]
    assert (message.topic, message.reconsume_times, message.queue_id) == ("T", 1, 0)
    assert parse_receipt_handle(handle).mark == "1"
    assert message.properties["1ST_POP_TIME"] == str(NOW_MS)
    assert message.properties["ORIGIN_GROUP"] == "G"


async def test_only_empty_pop_waits_for_dispatcher(pops: Pops, monkeypatch: pytest.MonkeyPatch) -> None:
    await pops.send(b"a", b"b")
    monkeypatch.setattr(answers, "_MAX_S", 3600)
    monkeypatch.setattr(MessageStore, "dispatched_offset", property(lambda store: 0))
    monkeypatch.setattr(MessageStore, "dispatch_behind_bytes", property(lambda store: 1))
    assert bodies(await asyncio.wait_for(pops.pop(), 10)) == [b"a", b"b"]
    empty, new = asyncio.ensure_future(pops.pop()), asyncio.ensure_future(pops.pop(consumer_group="new", init_mode=1))
    await asyncio.sleep(0.02)
    assert not empty.done()
    assert not new.done()
    monkeypatch.undo()
    assert await empty == []
    assert bodies(await new) == [b"a", b"b"]


async def test_acknowledged_message_is_not_redelivered(pops: Pops) -> None:
    await pops.send(b"a", b"b", b"c")
    found = await pops.pop()
    assert (await pops.ack(*found[1])).code == ResponseCode.SUCCESS
    await pops.revived()
    again = await pops.pop()
    assert sorted(bodies(again)) == [b"a", b"c"]
    for one in again:
        assert (await pops.ack(*one)).code == ResponseCode.SUCCESS
    await pops.revived()
    assert await pops.pop() == []


async def test_message_never_acknowledged_is_counted(pops: Pops) -> None:
    await pops.send(b"a", properties={"KEYS": "k", "TAGS": "t"})
    for times in range(3):
        ((message, _),) = await pops.pop()
        assert message.reconsume_times == times
        assert {"KEYS": "k", "TAGS": "t"}.items() <= message.properties.items()
        await pops.revived()


async def test_changed_invisible_time_takes_effect(pops: Pops) -> None:
    await pops.send(b"a", b"b")
    found = await pops.pop()
    answer = await pops.change(*found[0], 120_000)
    assert answer.code == ResponseCode.SUCCESS
    header = answer.read(ChangeInvisibleTimeResponseHeader)
    assert (header.pop_time, header.invisible_time) == (NOW_MS + 1, 120_000)
    await pops.revived()
    assert bodies(await pops.pop()) == [b"b"]
    await pops.later(90_000)
    assert sorted(bodies(await pops.pop())) == [b"a", b"b"]


async def test_handle_from_changed_invisible_time_acknowledges_message(pops: Pops) -> None:
    await pops.send(b"a")
    ((message, handle),) = await pops.pop()
    pops.clock.advance(5)
    header = (await pops.change(message, handle, 60_000)).read(ChangeInvisibleTimeResponseHeader)
    new = ReceiptHandle(0, header.pop_time, header.invisible_time, header.revive_qid, "0", "broker-a", 0, 0)
    assert (await pops.ack(message, str(new))).code == ResponseCode.SUCCESS
    await pops.revived(100_000)
    assert await pops.pop() == []


async def test_suspended_message_keeps_its_reconsume_times(pops: Pops) -> None:
    await pops.send(b"a")
    ((message, handle),) = await pops.pop()
    pops.clock.advance(5)
    await pops.change(message, handle, 1_000, suspend=True)
    await pops.revived()
    ((again, _),) = await pops.pop()
    assert again.reconsume_times == 0


async def test_pop_records_equal_those_of_rocketmq(pops: Pops) -> None:
    await pops.send(b"a", b"b")
    ((message, handle), _) = await pops.pop()
    await pops.ack(message, handle)
    await pops.caught_up()
    point, ack = pops.records()
    assert point.body == (
        b'{"bm":0,"bn":"broker-a","c":"G","d":[0,1],"it":30000,"n":2,"pt":1700000000000,"q":0,'
        b'"reviveTime":1700000030000,"ro":0,"so":0,"sp":false,"t":"T"}'
    )
    assert point.properties == {
        "TAGS": "ck", "TIMER_DELIVER_MS": "1700000029000", "TIMER_OUT_MS": "1700000028900",
        "UNIQ_KEY": "T@0@0@G@1700000000000@broker-a@ck", "REAL_TOPIC": REVIVE,
        "REAL_QID": str(parse_receipt_handle(handle).revive_queue_id),
    }  # fmt: skip
    assert ack.body == b'{"ao":0,"bn":"broker-a","c":"G","pt":1700000000000,"q":0,"so":0,"t":"T"}'
    assert (ack.properties["TAGS"], ack.properties["TIMER_DELIVER_MS"]) == ("ack", "1700000030000")
    assert decode_pop_checkpoint(point.body).key == decode_pop_ack(ack.body, is_batch=False).key


async def test_simultaneous_acknowledgements_of_pop_are_one_record(pops: Pops) -> None:
    await pops.send(b"a", b"b", b"c")
    ((first, handle), *_) = await pops.pop()
    await pops.pop(consumer_group="H")
    parsed = parse_receipt_handle(handle)
    key = PopKey("T", "G", first.queue_id, 0, parsed.pop_time_ms, "broker-a")
    done: list[tuple[int, str | None]] = []
    revive, place = pops.case.server.pop.revive_log, (parsed.revive_queue_id, parsed.visible_time_ms)
    for offset in (2, 0, 2):
        revive.join_ack(PopAck(key, (offset,)), *place, lambda end, wrong: done.append((end, wrong)))
    revive.join_ack(PopAck(key._replace(group="H"), (1,)), *place, lambda end, wrong: done.append((end, wrong)))
    assert not done
    while len(done) < 4:
        await asyncio.sleep(0.001)
    await pops.caught_up()
    records = pops.records()[2:]
    assert sorted((one.properties["TAGS"], one.body) for one in records) == [
        ("ack", b'{"ao":1,"bn":"broker-a","c":"H","pt":1700000000000,"q":0,"so":0,"t":"T"}'),
        ("bAck", b'{"ao":-1,"aol":[2,0],"bn":"broker-a","c":"G","pt":1700000000000,"q":0,"so":0,"t":"T"}'),
    ]
    assert {wrong for _, wrong in done} == {None}
    await pops.revived()
    assert bodies(await pops.pop()) == [b"b"]


async def test_separate_acknowledgements_are_answered_separately(pops: Pops) -> None:
    await pops.send(b"a", b"b", b"c", b"d")
    found = await pops.pop()
    answers = await asyncio.gather(*(pops.ack(*one) for one in found[:3]))
    assert {one.code for one in answers} == {ResponseCode.SUCCESS}
    await pops.revived()
    assert bodies(await pops.pop()) == [b"d"]


async def test_offset_is_committed_when_its_checkpoint_is_durable(pops: Pops) -> None:
    await pops.send(b"a", b"b")
    await pops.pop(max_msg_nums=1)
    await pops.pop(max_msg_nums=1)
    await pops.commit()
    assert pops.committed() == 2
    assert not pops.case.server.pop.buffer.has_uncommitted


async def test_restart_revives_popped_messages(start: StartPops) -> None:
    pops = await start()
    await pops.send(*(b"%d" % one for one in range(10)))
    found = await pops.pop()
    for one in found[:4]:
        await pops.ack(*one)
    await pops.case.stop()
    pops = await start(clock=pops.clock)
    assert pops.committed() == 10
    assert await pops.pop() == []
    await pops.revived()
    assert sorted(bodies(await pops.pop())) == [b"%d" % one for one in range(4, 10)]
    await pops.commit()
    revive_id = parse_receipt_handle(found[0][1]).revive_queue_id
    assert pops.committed(REVIVE, revive_id, names.REVIVE_GROUP) == 0


async def test_message_returns_two_seconds_after_invisible_time(pops: Pops) -> None:
    """As in RocketMQ. reviveInterval is endless here, and the service runs because a checkpoint can be decided."""
    await pops.send(b"a")
    await pops.pop()
    await pops.later(INVISIBLE_MS + 1_000)
    assert pops.case.server.store.max_offset_in_queue(RETRY, 0) == 0
    pops.clock.advance(1_200)
    async with asyncio.timeout(30):
        while not pops.case.server.store.max_offset_in_queue(RETRY, 0):
            await asyncio.sleep(0.01)


async def test_all_queues_of_topic_are_popped(pops: Pops) -> None:
    for queue_id in range(4):
        await pops.send(b"%d" % queue_id, queue_id=queue_id)
    answer = await pops.ask_pop(max_msg_nums=3)
    assert len(handles_of(answer)) == 3
    assert answer.read(PopMessageResponseHeader).rest_num == 1
    assert len(await pops.pop(queue_id=0)) + len(await pops.pop()) == 1


async def test_pop_returns_messages_with_requested_tags(pops: Pops) -> None:
    await pops.send(b"a", properties={"TAGS": "x"})
    await pops.send(b"b", properties={"TAGS": "y"})
    await pops.send(b"c", properties={"TAGS": "x"})
    assert bodies(await pops.pop(exp="x")) == [b"a", b"c"]
    await pops.revived()
    assert sorted(bodies(await pops.pop(exp="x"))) == [b"a", b"c"]
    await pops.commit()
    assert pops.committed() == 3


async def test_pop_skips_messages_outside_filter(pops: Pops) -> None:
    await pops.send(b"a", b"b", properties={"TAGS": "y"})
    assert await pops.pop(exp="x") == []
    await pops.commit()
    assert pops.committed() == 2
    assert pops.records() == []


async def test_pop_returns_messages_matching_sql_filter(pops: Pops) -> None:
    for number in range(6):
        await pops.send(b"%d" % number, properties={"n": str(number)})
    found = await pops.pop(exp_type="SQL92", exp="n > 2 AND n < 5")
    assert bodies(found) == [b"3", b"4"]
    answer = await pops.ask_pop(exp_type="SQL92", exp="n >")
    assert (answer.code, answer.remark) == (
        ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed",
    )  # fmt: skip


async def test_reset_moves_begin_of_next_pop(pops: Pops) -> None:
    await pops.send(b"a", b"b", b"c")
    await pops.pop()
    pops.case.server.tables.offsets.assign_reset("G", "T", 0, 1)
    assert bodies(await pops.pop()) == [b"b", b"c"]
    assert await pops.pop() == []


async def test_new_group_pops_from_offset_of_its_init_mode(start: StartPops) -> None:
    pops = await start(init_pop_offset_by_check_msg_in_mem=False)
    await pops.send(b"a", b"b", b"c")
    assert bodies(await pops.pop(init_mode=1, consumer_group="H")) == [b"c"]
    assert bodies(await pops.pop(init_mode=0, consumer_group="I")) == [b"a", b"b", b"c"]


async def test_first_pop_from_end_of_queue_in_memory_begins_at_its_first_message(pops: Pops) -> None:
    await pops.send(b"a", b"b", b"c")
    assert bodies(await pops.pop(init_mode=1)) == [b"a", b"b", b"c"]


async def test_actual_retry_topic_is_returned_on_request(start: StartPops) -> None:
    pops = await start(pop_response_return_actual_retry_topic=True, enable_retry_topic_v2=False)
    await pops.send(b"a")
    await pops.pop()
    await pops.revived()
    ((message, _),) = await pops.pop()
    assert message.topic == RETRY
    assert "POP_CK" not in message.properties


async def test_retry_topics_of_both_versions_are_consumed(start: StartPops) -> None:
    pops = await start()
    await pops.send(b"a", b"b")
    await pops.pop(max_msg_nums=1)
    await pops.revived()
    await pops.case.stop()
    pops = await start(clock=pops.clock, enable_retry_topic_v2=True)
    await pops.pop()
    await pops.revived()
    found: list[tuple[StoredMessage, str]] = []
    while len(found) < 2:
        found += await pops.pop()
    assert {message.body: parse_receipt_handle(handle).mark for message, handle in found} == {b"a": "1", b"b": "2"}
    for one in found:
        assert (await pops.ack(*one)).code == ResponseCode.SUCCESS
    await pops.revived()
    assert await pops.pop() == [] == await pops.pop()


# Priority


async def priority_topic(pops: Pops, factor: int | None = None) -> None:
    header = CreateTopicRequestHeader(
        topic="T", default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
        topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False, attributes="+message.type=PRIORITY",
    )  # fmt: skip
    assert (await pops.case.ask(header)).code == ResponseCode.SUCCESS
    if factor is not None:
        group = SubscriptionGroupConfig(group_name="G", attributes={"+priority.factor": str(factor)})
        answer = await pops.case.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group.encode())
        assert answer.code == ResponseCode.SUCCESS


async def send_by_priority(pops: Pops, *priorities: int) -> None:
    for one in priorities:
        await pops.send(b"%d" % one, properties={"_SYS_MSG_PRIORITY_": str(one)})


async def popped_in_turn(pops: Pops, count: int, **more: Any) -> list[bytes]:
    """The bodies of single pops, one after the other; empty for a pop without a message."""
    return [b"".join(bodies(await pops.pop(max_msg_nums=1, **more))) for _ in range(count)]


async def test_high_priorities_are_popped_first(pops: Pops) -> None:
    await priority_topic(pops)
    await send_by_priority(pops, *range(4), *range(4))
    assert await popped_in_turn(pops, 9) == [b"3", b"3", b"2", b"2", b"1", b"1", b"0", b"0", b""]
    await send_by_priority(pops, 0, 3, 9)
    assert bodies(await pops.pop()) == [b"3", b"9", b"0"]


async def test_low_numbers_are_popped_first_on_request(start: StartPops) -> None:
    pops = await start(priority_order_asc=False)
    await priority_topic(pops)
    await send_by_priority(pops, 3, 1, 2, 0)
    assert await popped_in_turn(pops, 4) == [b"0", b"1", b"2", b"3"]


async def test_pop_with_priority_factor_0_ignores_priority(pops: Pops) -> None:
    """An ordered pop does so too, because each of its queues is in order anyway."""
    await priority_topic(pops, factor=0)
    await send_by_priority(pops, *[number for number in range(4) for _ in range(20)])
    assert len({*await popped_in_turn(pops, 20)}) > 1  # by chance all are of one queue in one run of 4 ** 19
    assert len({*await popped_in_turn(pops, 8, order=True, consumer_group="H")}) > 1


@pytest.mark.parametrize(("share", "first"), [(0, b"1"), (100, b"0")])
async def test_retry_topic_is_popped_by_its_priority(start: StartPops, share: int, first: bytes) -> None:
    pops = await start(pop_from_retry_probability_for_priority=share, pop_from_retry_probability=100 - share)
    await priority_topic(pops)
    await send_by_priority(pops, 0)
    await pops.pop()
    await pops.revived()
    await send_by_priority(pops, 1)
    assert (await popped_in_turn(pops, 2))[0] == first


async def test_revived_messages_keep_their_priority_with_separate_retry_queues(start: StartPops) -> None:
    pops = await start(use_separate_retry_queue=True, pop_from_retry_probability_for_priority=100)
    await priority_topic(pops)
    await send_by_priority(pops, 1, 3, 0)
    for _ in range(2):  # the second time from the retry topic
        found = await pops.pop()
        assert {message.body: message.queue_id for message, _ in found} == {b"0": 0, b"1": 1, b"3": 3}
        await pops.revived()
    retry = pops.case.server.tables.topics.get(RETRY)
    assert retry is not None
    assert (retry.read_queue_nums, retry.write_queue_nums) == (4, 4)
    ordered = [await pops.pop(max_msg_nums=1) for _ in range(3)]
    assert [body for found in ordered for body in bodies(found)] == [b"3", b"1", b"0"]
    for ((message, handle),) in ordered:
        assert parse_receipt_handle(handle).mark == "1"
        assert (await pops.ack(message, handle)).code == ResponseCode.SUCCESS
    await pops.revived()
    assert await pops.pop() == []


async def test_retry_topic_grows_when_its_queues_become_separate(start: StartPops) -> None:
    pops = await start()
    await pops.send(b"a", queue_id=2)
    await pops.pop()
    await pops.revived()
    assert pops.case.server.store.max_offset_in_queue(RETRY, 0) == 1
    await pops.case.ask(RequestCode.UPDATE_BROKER_CONFIG, b"useSeparateRetryQueue=true")
    await pops.send(b"b", queue_id=2)
    found: list[tuple[StoredMessage, str]] = []
    while len(found) < 2:
        found += await pops.pop()
    await pops.revived()
    assert [pops.case.server.store.max_offset_in_queue(RETRY, number) for number in range(4)] == [2, 0, 1, 0]
    again = bodies(await pops.pop())
    while len(again) < 2:
        again += bodies(await pops.pop())
    assert sorted(again) == [b"a", b"b"]


async def test_acknowledgement_stored_before_its_checkpoint_counts(pops: Pops) -> None:
    """The timers deliver at once what is due when they read it, while the checkpoint still waits in the wheel."""
    await pops.send(b"a")
    ((message, handle),) = await pops.pop()
    await pops.ack(message, str(replace(parse_receipt_handle(handle), invisible_time_ms=0)))
    await pops.caught_up()
    revive_id = parse_receipt_handle(handle).revive_queue_id
    assert [one.tags for one in pops.case.server.store.get(REVIVE, revive_id, 0).messages] == ["ack"]
    await pops.revived()
    assert await pops.pop() == []


# Waiting


async def test_waiting_pop_returns_next_message(pops: Pops) -> None:
    await pops.send(b"a")
    await pops.pop()
    waiting = asyncio.ensure_future(pops.pop(poll_time=20_000, born_time=NOW_MS))
    for_queue = asyncio.ensure_future(pops.pop(poll_time=20_000, born_time=NOW_MS, queue_id=3))
    while len(pops.case.server.pop_waiting.pops) < 2:
        await asyncio.sleep(0.005)
    info = await pops.case.ask(PollingInfoRequestHeader(consumer_group="G", topic="T", queue_id=3))
    assert info.ext_fields["pollingNum"] == "1"
    await pops.send(b"b", queue_id=0)
    assert bodies(await waiting) == [b"b"]
    await pops.send(b"c", queue_id=3)
    assert bodies(await for_queue) == [b"c"]
    assert len(pops.case.server.pop_waiting.pops) == 0


async def test_waiting_pop_gets_revived_message(pops: Pops) -> None:
    await pops.send(b"a")
    await pops.pop()
    waiting = asyncio.ensure_future(pops.pop(poll_time=100_000, born_time=NOW_MS))
    while not len(pops.case.server.pop_waiting.pops):
        await asyncio.sleep(0.005)
    await pops.revived()
    assert bodies(await waiting) == [b"a"]


async def test_pop_without_message_waits_until_its_timeout(pops: Pops) -> None:
    await pops.send(b"a")
    await pops.pop()
    waiting = asyncio.ensure_future(pops.ask_pop(poll_time=20_000, born_time=NOW_MS))
    while not len(pops.case.server.pop_waiting.pops):
        await asyncio.sleep(0.005)
    pops.clock.advance(19_960)
    answer = await waiting
    assert (answer.code, answer.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
    late = await pops.ask_pop(poll_time=1_000, born_time=NOW_MS)
    assert (late.code, late.remark) == (
        ResponseCode.POLLING_TIMEOUT, "the broker[127.0.0.1] pop message is timeout too much",
    )  # fmt: skip


async def test_waiting_pops_above_limit_are_answered_at_once(start: StartPops) -> None:
    pops = await start(max_pop_polling_size=1)
    await pops.send(b"a")
    await pops.pop()
    waiting = asyncio.ensure_future(pops.pop(poll_time=20_000, born_time=NOW_MS))
    while not len(pops.case.server.pop_waiting.pops):
        await asyncio.sleep(0.005)
    answer = await pops.ask_pop(poll_time=20_000, born_time=NOW_MS)
    assert answer.code == ResponseCode.POLLING_FULL
    await pops.send(b"b")
    assert bodies(await waiting) == [b"b"]


async def test_waiting_pops_of_closed_connection_end(pops: Pops) -> None:
    await pops.send(b"a")
    await pops.pop()
    client = pops.case.another_client()
    header = PopMessageRequestHeader(
        consumer_group="G", topic="T", queue_id=-1, max_msg_nums=1, invisible_time=1, poll_time=20_000, born_time=NOW_MS
    )
    asked = asyncio.ensure_future(client.invoke(pops.case.server.address, RemotingCommand.request(header), 60_000))
    while not len(pops.case.server.pop_waiting.pops):
        await asyncio.sleep(0.005)
    await client.close()
    await asyncio.gather(asked, return_exceptions=True)
    while len(pops.case.server.pop_waiting.pops):
        await asyncio.sleep(0.005)
    await pops.send(b"b")
    assert bodies(await pops.pop()) == [b"b"]


async def test_notification_tells_whether_pop_would_return_messages(pops: Pops) -> None:
    def asked(**more: Any) -> NotificationRequestHeader:
        return NotificationRequestHeader(**{"consumer_group": "G", "topic": "T", "queue_id": -1, **more})

    await pops.send(b"a", properties={"TAGS": "x"})
    assert (await pops.case.ask(asked())).ext_fields["hasMsg"] == "true"
    assert (await pops.case.ask(asked(exp="y", exp_type="TAG"))).ext_fields["hasMsg"] == "false"
    await pops.pop()
    assert (await pops.case.ask(asked(queue_id=0))).ext_fields["hasMsg"] == "false"
    waiting = asyncio.ensure_future(pops.case.ask(asked(poll_time=20_000, born_time=NOW_MS)))
    while not len(pops.case.server.pop_waiting.notifications):
        await asyncio.sleep(0.005)
    await pops.revived(0)
    await pops.send(b"b")
    assert (await waiting).ext_fields["hasMsg"] == "true"


# Several acknowledgements


def batch(*acks: tuple[str, list[int]], **more: Any) -> BatchAckMessageRequestBody:
    """A batch of (a receipt handle, offsets)."""
    found = []
    for handle, offsets in acks:
        one = parse_receipt_handle(handle)
        fields = {
            "consumer_group": "G", "topic": "T", "retry": one.mark, "start_offset": one.start_offset,
            "queue_id": one.queue_id, "revive_queue_id": one.revive_queue_id, "pop_time": one.pop_time_ms,
            "invisible_time": one.invisible_time_ms,
            "bit_set": encode_bits([offset - one.start_offset for offset in offsets]),
        }  # fmt: skip
        found.append(BatchAck(**{**fields, **more}))
    return BatchAckMessageRequestBody(broker_name="broker-a", acks=found)


async def test_batch_acknowledges_several_messages(pops: Pops) -> None:
    await pops.send(b"a", b"b", b"c", b"d")
    found = await pops.pop()
    answer = await pops.case.ask(RequestCode.BATCH_ACK_MESSAGE, batch((found[0][1], [0, 2, 3])))
    assert answer.code == ResponseCode.SUCCESS
    await pops.caught_up()
    assert pops.records()[-1].body == (
        b'{"ao":-1,"aol":[0,2,3],"bn":"broker-a","c":"G","pt":1700000000000,"q":0,"so":0,"t":"T"}'
    )
    await pops.revived()
    again = await pops.pop()
    assert bodies(again) == [b"b"]
    await pops.case.ask(RequestCode.BATCH_ACK_MESSAGE, batch((again[0][1], [0])))
    await pops.revived()
    assert await pops.pop() == []


# The merge buffer


async def test_messages_acknowledged_in_memory_store_no_records(start: StartPops) -> None:
    pops = await start(enable_pop_buffer_merge=True)
    await pops.send(b"a", b"b")
    for one in await pops.pop():
        await pops.ack(*one)
    await pops.commit()
    assert pops.records() == []
    assert pops.committed() == 2
    await pops.revived()
    assert await pops.pop() == []


@pytest.mark.parametrize("is_batch", [False, True])
async def test_checkpoint_in_memory_is_stored_before_due_time(start: StartPops, is_batch: bool) -> None:
    pops = await start(enable_pop_buffer_merge=True, enable_pop_batch_ack=is_batch)
    await pops.send(b"a", b"b", b"c")
    found = await pops.pop()
    await pops.ack(*found[0])
    await pops.ack(*found[2])
    await pops.commit()
    assert (pops.records(), pops.committed()) == ([], 0)
    pops.clock.advance(10_001)
    await pops.case.server.pop.buffer.scan()
    while len(pops.case.server.pop.buffer):
        await asyncio.sleep(0.002)
    await pops.commit()
    assert [one.tags for one in pops.records()] == (["ck", "bAck"] if is_batch else ["ck", "ack", "ack"])
    assert pops.committed() == 3
    await pops.revived()
    assert bodies(await pops.pop()) == [b"b"]


async def test_shutdown_stores_checkpoints_in_memory(start: StartPops) -> None:
    pops = await start(enable_pop_buffer_merge=True)
    await pops.send(b"a", b"b")
    await pops.ack(*(await pops.pop())[0])
    await pops.case.stop()
    pops = await start(clock=pops.clock)
    assert pops.committed() == 2
    await pops.revived()
    assert bodies(await pops.pop()) == [b"b"]


# Wrong requests


FORGED: list[tuple[dict[str, Any], int]] = [
    ({"extra_info": ""}, ResponseCode.SYSTEM_ERROR),
    ({"extra_info": "1 2 3"}, ResponseCode.SYSTEM_ERROR),
    ({"extra_info": "0 x 30000 0 0 broker-a 0 0"}, ResponseCode.SYSTEM_ERROR),
    ({"extra_info": "-1 5 30000 0 0 broker-a 0 0"}, ResponseCode.SYSTEM_ERROR),
    ({"extra_info": "0 5 30000 8 0 broker-a 0 0"}, ResponseCode.MESSAGE_ILLEGAL),
    ({"extra_info": f"0 5 {1 << 62} 0 0 broker-a 0 0"}, ResponseCode.SYSTEM_ERROR),
    ({"extra_info": "0 " * 5000}, ResponseCode.SYSTEM_ERROR),
    ({"topic": "X"}, ResponseCode.TOPIC_NOT_EXIST),
    ({"queue_id": 99}, ResponseCode.MESSAGE_ILLEGAL),
    ({"queue_id": -1}, ResponseCode.MESSAGE_ILLEGAL),
    ({"offset": 99}, ResponseCode.NO_MESSAGE),
    ({"offset": -1}, ResponseCode.NO_MESSAGE),
    ({"lite_topic": "l"}, ResponseCode.INVALID_PARAMETER),
]


async def test_forged_acknowledgements_are_refused(pops: Pops) -> None:
    await pops.send(b"a")
    ((message, handle),) = await pops.pop()
    for change, code in FORGED:
        assert (await pops.ack(message, handle, **change)).code == code, change
        assert (await pops.change(message, handle, 60_000, **change)).code == code, change
    assert (await pops.change(message, handle, -1)).code == ResponseCode.INVALID_PARAMETER
    assert (await pops.change(message, handle, 1 << 60)).code == ResponseCode.INVALID_PARAMETER
    await pops.revived()
    assert bodies(await pops.pop()) == [b"a"]


WRONG: list[tuple[dict[str, Any], int]] = [
    ({"max_msg_nums": 33}, ResponseCode.INVALID_PARAMETER),
    ({"invisible_time": -1}, ResponseCode.INVALID_PARAMETER),
    ({"invisible_time": (1 << 63) - 1}, ResponseCode.INVALID_PARAMETER),
    ({"topic": "X"}, ResponseCode.TOPIC_NOT_EXIST),
    ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER),
    ({"consumer_group": "a b"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ({"exp": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ({"exp": "|"}, ResponseCode.POLLING_TIMEOUT),  # one tag, as in RocketMQ
    ({"max_msg_nums": -1}, ResponseCode.INVALID_PARAMETER),
    ({"exp": "a", "exp_type": "JS"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ({"poll_time": -(1 << 63), "born_time": NOW_MS}, ResponseCode.POLLING_TIMEOUT),
]


async def test_wrong_pops_are_refused(pops: Pops) -> None:
    await pops.send(b"a")
    for change, code in WRONG:
        answer = await pops.ask_pop(**change)
        assert answer.code == code, (change, answer.remark)
    assert bodies(await pops.pop(queue_id=-7, consumer_group="H")) == [b"a"]


async def test_wrong_batches_are_refused(pops: Pops) -> None:
    await pops.send(b"a")
    ((_, handle),) = await pops.pop()
    for body, code in (
        (b"", ResponseCode.NO_MESSAGE),
        (b'{"acks":[]}', ResponseCode.NO_MESSAGE),
        (b"{", ResponseCode.SYSTEM_ERROR),
        (batch((handle, [0]), retry="7").encode(), ResponseCode.SYSTEM_ERROR),
        (batch((handle, [0]), bit_set="%%%").encode(), ResponseCode.SYSTEM_ERROR),
        (batch((handle, [0]), bit_set="A" * 100_000).encode(), ResponseCode.SYSTEM_ERROR),
        (batch((handle, [0]), revive_queue_id=8).encode(), ResponseCode.MESSAGE_ILLEGAL),
        (batch((handle, [0]), pop_time=-1).encode(), ResponseCode.MESSAGE_ILLEGAL),
        (batch((handle, [0]), start_offset=(1 << 63) - 1).encode(), ResponseCode.SUCCESS),
        (batch((handle, [5])).encode(), ResponseCode.SUCCESS),
        (batch((handle, [0]), topic="X").encode(), ResponseCode.SUCCESS),
    ):
        assert (await pops.case.ask(RequestCode.BATCH_ACK_MESSAGE, body)).code == code, body[:100]
    await pops.revived()
    assert bodies(await pops.pop()) == [b"a"]


async def test_damaged_records_of_revive_topic_are_skipped(pops: Pops) -> None:
    await pops.send(b"a")
    ((_, handle),) = await pops.pop()
    revive_id = parse_receipt_handle(handle).revive_queue_id
    store = pops.case.server.store
    for tag in ("ck", "ack", "bAck", "x"):
        for body in (
            b"", b"{", b"[]", b"\xff", b"{}", b'{"t":1}', b'{"n":9,"d":[1],"t":"T","c":"G"}', b"[" * 100_000,
            b'{"n":-1,"t":"T","c":"G"}', b'{"pt":9223372036854775807,"it":9,"t":"T","c":"G"}', b'{"so":1e30}',
        ):  # fmt: skip
            await store.put_async(Message(REVIVE, body, revive_id, tags=tag))
    await pops.caught_up()
    await pops.revived()
    assert bodies(await pops.pop()) == [b"a"]


async def test_checkpoint_of_deleted_topic_is_dropped(pops: Pops) -> None:
    await pops.send(b"a")
    await pops.send(b"b", topic="U")
    await pops.pop()
    await pops.pop(topic="U")
    await pops.case.ask(DeleteTopicRequestHeader(topic="T"))
    await pops.revived()
    assert pops.case.server.store.max_offset_in_queue("%RETRY%G_U", 0) == 1
    assert RETRY not in pops.case.server.tables.topics


async def test_failed_revival_is_retried_later(pops: Pops) -> None:
    """The retry topic of the first try is above the limit of topics; its checkpoint is put again, due later."""
    await pops.send(b"a")
    await pops.pop()
    config = pops.case.server.config
    config.broker = replace(config.broker, max_topics=1)
    await pops.revived()
    await pops.caught_up()
    point = decode_pop_checkpoint(pops.records()[-1].body)
    assert (point.re_puts, point.key.start_offset, point.diffs) == (1, 0, [0])
    assert point.revive_time_ms == pops.clock.now_ms() + 10_000
    config.broker = replace(config.broker, max_topics=50_000)
    await pops.revived(13_000)
    assert bodies(await pops.pop()) == [b"a"]


async def test_pop_at_limit_of_inflight_messages_returns_none_until_acknowledgement(start: StartPops) -> None:
    pops = await start(enable_pop_message_threshold=True, pop_inflight_message_threshold=2)
    await pops.send(*(b"%d" % one for one in range(6)))
    found = await pops.pop(max_msg_nums=3)
    assert await pops.pop() == []
    waiting = asyncio.ensure_future(pops.pop(poll_time=20_000, born_time=NOW_MS))
    while not len(pops.case.server.pop_waiting.pops):
        await asyncio.sleep(0.005)
    await pops.ack(*found[0])
    assert len(await waiting) == 3


async def test_pop_without_timer_wheel_is_refused(start: StartPops) -> None:
    pops = await start(timer_wheel_enable=False)
    await pops.send(b"a")
    answer = await pops.ask_pop()
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "the broker[127.0.0.1] pop message is forbidden because timerWheelEnable is false",
    )


# Ordered pops


async def test_ordered_pop_blocks_queue_until_all_messages_are_acknowledged(pops: Pops) -> None:
    await pops.send(b"a", b"b", b"c")
    first = await pops.pop(order=True, max_msg_nums=2)
    assert bodies(first) == [b"a", b"b"]
    assert {parse_receipt_handle(handle).is_order for _, handle in first} == {True}
    assert await pops.pop(order=True) == []
    assert pops.records() == []
    await pops.ack(*first[0])
    assert await pops.pop(order=True) == []
    waiting = asyncio.ensure_future(pops.ask_pop(order=True, poll_time=20_000, born_time=NOW_MS))
    while not len(pops.case.server.pop_waiting.pops):
        await asyncio.sleep(0.005)
    await pops.ack(*first[1])
    answer = await waiting
    assert bodies(handles_of(answer)) == [b"c"]
    assert answer.read(PopMessageResponseHeader).order_count_info == "0 0 0"
    assert pops.committed() == 2


async def test_unacknowledged_ordered_message_returns_in_its_queue(pops: Pops) -> None:
    await pops.send(b"a", b"b")
    ((message, handle), _) = await pops.pop(order=True)
    waiting = asyncio.ensure_future(pops.ask_pop(order=True, poll_time=100_000, born_time=NOW_MS))
    while not len(pops.case.server.pop_waiting.pops):
        await asyncio.sleep(0.005)
    await pops.ack(message, handle)
    answer = await pops.change(*(message, handle), 60_000)
    assert answer.ext_fields["invisibleTime"] == "0"  # it is acknowledged
    pops.clock.advance(INVISIBLE_MS + 1)
    answer = await waiting
    assert bodies(handles_of(answer)) == [b"b"]
    assert answer.read(PopMessageResponseHeader).order_count_info == "0 qo0%1 1;0 0 1"
    assert (await pops.ack(message, handle)).code == ResponseCode.SUCCESS


async def test_invisible_time_of_ordered_message_can_be_extended(pops: Pops) -> None:
    await pops.send(b"a")
    ((message, handle),) = await pops.pop(order=True)
    pops.clock.advance(10_000)
    header = (await pops.change(message, handle, 60_000)).read(ChangeInvisibleTimeResponseHeader)
    assert (header.pop_time, header.invisible_time) == (NOW_MS, 70_000)
    pops.clock.advance(INVISIBLE_MS)
    assert await pops.pop(order=True) == []
    await pops.case.stop()


async def test_ordered_pop_blocks_its_queue_after_restart(start: StartPops) -> None:
    pops = await start()
    await pops.send(b"a", b"b")
    ((message, handle), _) = await pops.pop(order=True)
    await pops.ack(message, handle)
    await pops.case.stop()
    pops = await start(clock=pops.clock)
    assert await pops.pop(order=True) == []
    pops.clock.advance(INVISIBLE_MS)
    assert bodies(await pops.pop(order=True)) == [b"b"]


async def test_invisible_time_changed_in_millisecond_of_pop_keeps_other_messages(pops: Pops) -> None:
    """Its checkpoint begins at the same offset. With the same pop time it would take the place of the pop's."""
    await pops.send(b"a", b"b", b"c")
    found = await pops.pop()
    await pops.change(*found[0], 10_000)
    await pops.ack(*found[1])
    await pops.revived()
    assert sorted(bodies(await pops.pop())) == [b"a", b"c"]


async def test_checkpoints_with_equal_key_are_merged(pops: Pops) -> None:
    """After a kill a queue may be popped again from the same offset, in the same millisecond."""
    await pops.send(b"a", b"b", b"c")
    await pops.pop(max_msg_nums=1)
    await pops.caught_up()
    point = decode_pop_checkpoint(pops.records()[0].body)
    revive_id = int(pops.records()[0].properties["REAL_QID"])
    both = replace(point, diffs=[1, 2])
    await pops.case.server.store.put_async(Message(REVIVE, encode_pop_checkpoint(both), revive_id, tags="ck"))
    await pops.revived()
    assert pops.case.server.store.max_offset_in_queue(RETRY, 0) == 3


async def test_kill_does_not_make_popped_messages_visible_early(start: StartPops) -> None:
    """The offsets of these pops were not saved; the checkpoints in the log show them."""
    disk = KillableFileSystem(RealFileSystem())
    pops = await start(fs=disk, flush_consumer_offset_interval_ms=1 << 30)
    await pops.send(*(b"%d" % one for one in range(10)))
    found = await pops.pop(max_msg_nums=3) + await pops.pop(max_msg_nums=3)
    pops.clock.advance(5)
    await pops.change(*found[1], 60_000)
    await pops.caught_up()
    disk.kill()
    await pops.case.server.abandon()
    pops = await start(clock=pops.clock)
    assert bodies(await pops.pop()) == [b"6", b"7", b"8", b"9"]
    await pops.revived()
    assert len(await pops.pop()) == 9


@pytest.mark.parametrize(("failed_runs", "comes_back"), [(49, [b"a"]), (50, [])])
async def test_unreadable_disk_stalls_one_revive_queue(
    failed_runs: int, comes_back: list[bytes], pops: Pops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fiftieth failed run gives the record up; the other queues go on meanwhile. The broker's own runs count."""
    await pops.send(b"a", b"b")
    ((_, handle),) = await pops.pop(max_msg_nums=1)
    await pops.pop(max_msg_nums=1)
    bad, store = parse_receipt_handle(handle).revive_queue_id, pops.case.server.store
    get, runs = store.get, 0

    def fail(topic: str, queue_id: int, offset: int, *, max_msgs: int, **more: Any) -> Any:
        nonlocal runs
        if (topic, queue_id) == (REVIVE, bad):
            runs += max_msgs == 1  # the second of the two reads of a run
            raise DiskError(Path("commitlog"), "Input/output error")
        return get(topic, queue_id, offset, max_msgs=max_msgs, **more)

    monkeypatch.setattr(store, "get", fail)
    await pops.revived()
    assert bodies(await pops.pop()) == [b"b"]
    while runs < failed_runs:
        await pops.case.server.pop.revive.run()
    monkeypatch.undo()
    await pops.later(0)
    assert bodies(await pops.pop()) == comes_back


async def test_deletion_of_topic_answers_waiting_pop(pops: Pops) -> None:
    await pops.send(b"a")
    await pops.pop()
    waiting = asyncio.ensure_future(pops.ask_pop(poll_time=20_000, born_time=NOW_MS))
    while not len(pops.case.server.pop_waiting.pops):
        await asyncio.sleep(0.005)
    await pops.case.ask(DeleteTopicRequestHeader(topic="T"))
    assert (await waiting).code == ResponseCode.TOPIC_NOT_EXIST


# Strangers


@pytest.mark.parametrize("kind", [PopMessageRequestHeader, NotificationRequestHeader])
async def test_wait_of_pop_ignores_clock_of_client(
    pops: Pops, kind: type[PopMessageRequestHeader | NotificationRequestHeader]
) -> None:
    """A client whose clock is ahead has given up by then, and the messages would be invisible in vain."""
    await pops.send(b"one")
    assert await pops.pop()
    asked = kind(
        consumer_group="G", topic="T", queue_id=-1, poll_time=2_000, born_time=NOW_MS + 3_600_000,
        **({"invisible_time": INVISIBLE_MS, "max_msg_nums": 1} if kind is PopMessageRequestHeader else {}),
    )  # fmt: skip
    waiting, service = asyncio.create_task(pops.case.ask(asked)), pops.case.server.pop.waiting
    while not len(service.pops) + len(service.notifications):
        await asyncio.sleep(0.005)
    pops.clock.advance(2_000)
    service.expire()
    answer = await asyncio.wait_for(waiting, 60)
    assert answer.code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.SUCCESS)


async def test_waiting_pops_with_long_texts_are_limited_in_bytes(pops: Pops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polling, "MAX_WAITING_BYTES", 100_000)
    await pops.send(b"one", properties={"TAGS": "a"})
    asked: dict[str, Any] = {"poll_time": 60_000, "exp": "b" * 9_000, "attempt_id": "b" * 11_000}
    waiting = [asyncio.create_task(pops.ask_pop(**asked)) for _ in range(4)]
    done, held = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=60)
    assert [one.result().code for one in done][:1] == [ResponseCode.POLLING_FULL]
    for one in held:
        one.cancel()


def waiting_pop(group: str, exp: str) -> RemotingCommand:
    header = PopMessageRequestHeader(
        consumer_group=group, topic="T", queue_id=-1, max_msg_nums=1, invisible_time=INVISIBLE_MS, poll_time=60_000,
        born_time=0, exp_type="TAG", exp=exp,
    )  # fmt: skip
    return RemotingCommand.request(header)


def waiting_notification(group: str, exp: str) -> RemotingCommand:
    header = NotificationRequestHeader(
        consumer_group=group, topic="T", queue_id=-1, poll_time=60_000, born_time=0, exp_type="TAG", exp=exp
    )
    return RemotingCommand.request(header)


@pytest.mark.parametrize("make", [waiting_pop, waiting_notification])
async def test_one_connection_cannot_take_all_waiting_pops(
    pops: Pops, monkeypatch: pytest.MonkeyPatch, make: Callable[[str, str], RemotingCommand]
) -> None:
    """At the limit it gets FULL. So do its oldest requests, if another connection wants to wait."""
    monkeypatch.setattr(long_polling, "MAX_WAITING_BYTES", 200_000)
    waits, is_pop = pops.case.server.pop_waiting, make is waiting_pop
    polling, address = waits.pops if is_pop else waits.notifications, pops.case.server.address
    await pops.send(b"one", properties={"TAGS": "a"})
    await pops.pop()

    def is_full(answer: RemotingCommand) -> bool:
        if is_pop:
            return answer.code == ResponseCode.POLLING_FULL
        return answer.read(NotificationResponseHeader).polling_full

    greedy = pops.case.another_client()
    waiting = [asyncio.create_task(greedy.invoke(address, make("H", f"b{one:09000}"), 60_000)) for one in range(20)]
    while sum(one.done() for one in waiting) + len(polling) < 20:
        await asyncio.sleep(0.005)
    held = [one for one in waiting if not one.done()]
    assert 0 < len(held) < 20
    assert all(is_full(one.result()) for one in waiting if one.done())
    small = [asyncio.create_task(pops.case.client.invoke(address, make("G", "b"), 60_000)) for _ in range(30)]
    while not any(one.done() for one in held) and not any(one.done() for one in small):
        await asyncio.sleep(0.005)
    assert not any(one.done() for one in small)
    assert {is_full(one.result()) for one in held if one.done()} == {True}
    await pops.send(b"two", properties={"TAGS": "b"})
    done, rest = await asyncio.wait(small, return_when=asyncio.FIRST_COMPLETED)
    assert {one.result().code for one in done} == {ResponseCode.SUCCESS}
    assert not any(is_full(one.result()) for one in done)
    held += rest
    for one in held:
        one.cancel()


async def test_ordered_acknowledgement_does_not_move_group_past_queue_end(pops: Pops) -> None:
    """The message that comes there would never be delivered."""
    await pops.send(b"one")
    handle = ReceiptHandle(1, NOW_MS, INVISIBLE_MS, ORDER_REVIVE_QUEUE, "0", "broker-a", 0, 1)
    fields = {"consumer_group": "G", "topic": "T", "queue_id": 0, "extra_info": str(handle), "offset": 1}
    answer = await pops.case.ask(AckMessageRequestHeader(**fields))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    await pops.send(b"two")
    assert bodies(await pops.pop(order=True)) == [b"one", b"two"]


async def test_batch_acknowledgement_above_pop_limit_is_refused(pops: Pops) -> None:
    """Each offset would be written into the log, thirty times as long as its bit."""
    await pops.send(*(b"%d" % number for number in range(70)))
    [(_, handle), *_] = await pops.pop()
    await pops.caught_up()
    before = len(pops.records())
    answer = await pops.case.ask(RequestCode.BATCH_ACK_MESSAGE, batch((handle, list(range(70)))))
    assert answer.code != ResponseCode.SUCCESS
    await pops.caught_up()
    assert len(pops.records()) == before


async def test_checkpoint_due_in_far_future_does_not_delay_others(pops: Pops) -> None:
    """Anyone may send to the revive topic. No checkpoint that a pop wrote comes there before its time."""
    await pops.send(b"one")
    await pops.pop()
    await pops.caught_up()
    queue_id = int(pops.records()[0].properties["REAL_QID"])
    forged = PopCheckpoint(PopKey("T", "G", 0, 0, NOW_MS + 5, "broker-a"), 10**13, [7])
    await pops.case.server.store.put_async(Message(REVIVE, encode_pop_checkpoint(forged), queue_id, tags="ck"))
    await pops.revived()
    assert bodies(await pops.pop()) == [b"one"]


async def test_forged_acknowledgements_without_checkpoint_take_little_memory(pops: Pops) -> None:
    await pops.send(b"one")
    queue = pops.case.server.pop.revive._queue(0)
    key = PopKey("T", "G", 0, 0, NOW_MS, "broker-a")
    for _ in range(3):
        pops.case.server.pop.revive._acknowledge(queue, key, tuple(range(100)))
    assert len(queue.early[key]) <= MAX_MESSAGES


@pytest.mark.parametrize("times", [INT_MAX, -1 - INT_MAX])
async def test_message_with_invalid_reconsume_times_does_not_stop_revive_service(pops: Pops, times: int) -> None:
    await pops.send(b"odd", reconsume_times=times)
    await pops.pop()
    await pops.send(b"plain")
    await pops.pop()
    await pops.revived()
    again = await pops.pop() + await pops.pop()
    assert {message.body: message.reconsume_times for message, _ in again} == {
        b"odd": min(times + 1, INT_MAX),
        b"plain": 1,
    }


async def test_expired_popped_message_is_not_counted_as_inflight(pops: Pops) -> None:
    """With popInflightMessageThreshold its group would be refused further pops until a restart."""
    await pops.send(b"one")
    await pops.pop()
    pop = pops.case.server.pop
    gone = PopCheckpoint(PopKey("T", "G", 0, 7, pops.clock.now_ms(), "broker-a"), INVISIBLE_MS, [0])
    assert pop.inflight.count(PoppedQueue("T", "G", 0)) == 1
    assert await pop.revive._revive_message(gone, 7)
    assert pop.inflight.count(PoppedQueue("T", "G", 0)) == 0


# Where a group continues


async def test_pop_of_zero_messages_returns_none(pops: Pops) -> None:
    await pops.send(b"a")
    answer = await asyncio.wait_for(pops.ask_pop(max_msg_nums=0, poll_time=20_000, born_time=NOW_MS), 30)
    assert (answer.code, answer.read(PopMessageResponseHeader).rest_num) == (ResponseCode.POLLING_TIMEOUT, 1)
    assert bodies(await pops.pop()) == [b"a"]


async def test_group_starting_at_end_gets_first_message_of_empty_queue(start: StartPops) -> None:
    """The group has no member while the messages arrive."""
    pops = await start(init_pop_offset_by_check_msg_in_mem=False)
    await pops.send(b"x", queue_id=1)
    assert await pops.pop(init_mode=1, queue_id=0) == []
    await pops.send(b"a", b"b", b"c")
    assert bodies(await pops.pop(init_mode=1, queue_id=0)) == [b"a", b"b", b"c"]


async def test_offset_set_forwards_is_not_undone_by_pops(pops: Pops) -> None:
    await pops.send(*(b"%d" % one for one in range(6)))
    await pops.pop(max_msg_nums=2)
    pops.case.server.tables.offsets.commit("G", "T", 0, 4)
    await pops.commit()
    assert pops.committed() == 4
    assert bodies(await pops.pop()) == [b"4", b"5"]


async def test_reset_frees_inflight_limit_and_wakes_waiting_pop(start: StartPops) -> None:
    pops = await start(enable_pop_message_threshold=True, pop_inflight_message_threshold=1)
    await pops.send(b"a", b"b")
    assert len(await pops.pop()) == 2
    waiting = asyncio.ensure_future(pops.ask_pop(poll_time=100_000, born_time=NOW_MS))
    while not len(pops.case.server.pop_waiting.pops):
        await asyncio.sleep(0.005)
    header = ResetOffsetRequestHeader(topic="T", group="G", timestamp=0, is_force=True, queue_id=0, offset=0)
    assert (await pops.case.ask(header)).code == ResponseCode.SUCCESS
    assert bodies(handles_of(await asyncio.wait_for(waiting, 30))) == [b"a", b"b"]


async def test_inflight_limit_freed_before_pop_waits_is_used(start: StartPops, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pop walks through its queues in slices, so an acknowledgement may come after it has passed a queue."""
    pops = await start(enable_pop_message_threshold=True, pop_inflight_message_threshold=0)
    await pops.send(b"a", b"b")
    await pops.pop(max_msg_nums=1)
    server, queue = pops.case.server, PoppedQueue("T", "G", 0)
    count = server.pop.inflight.count

    def count_then_settle(of: PoppedQueue) -> int:
        counted = count(of)
        if counted:
            server.pop.inflight.settle(queue, NOW_MS)
            server.pop_waiting.look("T", "G", 0)
        return counted

    monkeypatch.setattr(server.pop.inflight, "count", count_then_settle)
    answer = await asyncio.wait_for(pops.ask_pop(poll_time=100_000, born_time=NOW_MS), 30)
    assert bodies(handles_of(answer)) == [b"b"]


async def test_ordered_acknowledgement_after_kill_skips_no_message(start: StartPops) -> None:
    """The kill takes consumerOrderInfo.json's last change. The consumer still works on the first two messages."""
    disk = KillableFileSystem(RealFileSystem())
    pops = await start(fs=disk, flush_consumer_offset_interval_ms=1 << 30)
    await pops.send(b"a", b"b", b"c")
    found = await pops.pop(order=True)
    disk.kill()
    await pops.case.server.abandon()
    pops = await start(clock=pops.clock)
    assert (await pops.ack(*found[2])).code == ResponseCode.SUCCESS
    assert bodies(await pops.pop(order=True)) == [b"a", b"b", b"c"]


async def test_message_with_full_properties_is_revived(pops: Pops) -> None:
    """There is no room in it for the time of its first pop and the group."""
    await pops.send(b"a")
    await pops.case.server.store.put_async(Message("T", b"b", properties={"x": "y" * (MAX_PROPERTIES_LENGTH - 3)}))
    await pops.caught_up()
    assert bodies(await pops.pop()) == [b"a", b"b"]
    await pops.revived()
    assert sorted(bodies(await pops.pop())) == [b"a", b"b"]


@pytest.mark.parametrize("offset", [2, 99])
async def test_revive_group_ahead_of_its_queue_skips_no_checkpoint(start: StartPops, offset: int) -> None:
    """Its offset is that of the last decided checkpoint, not of the next one. Java commits it before the log is
    durable.
    """
    pops = await start(revive_queue_num=1)
    await pops.send(b"a")
    await pops.ack(*(await pops.pop())[0])
    await pops.revived()
    await pops.commit()
    pops.case.server.tables.offsets.commit(names.REVIVE_GROUP, REVIVE, 0, offset)
    await pops.case.stop()
    pops = await start(revive_queue_num=1, clock=pops.clock)
    await pops.send(b"b")
    assert bodies(await pops.pop()) == [b"b"]
    await pops.revived()
    assert bodies(await pops.pop()) == [b"b"]
    await pops.commit()
    assert (pops.committed(REVIVE, 0, names.REVIVE_GROUP), pops.case.server.pop.revive.has_unpublished) == (2, False)


async def test_notification_after_reset_reports_messages_from_new_offset(pops: Pops) -> None:
    """Also while the offsets of pops before the reset are not committed."""
    await pops.send(b"a", b"b")
    assert len(await pops.pop()) == 2
    header = ResetOffsetRequestHeader(topic="T", group="G", timestamp=0, is_force=True, queue_id=0, offset=0)
    assert (await pops.case.ask(header)).code == ResponseCode.SUCCESS
    asked = NotificationRequestHeader(consumer_group="G", topic="T", queue_id=0, poll_time=0, born_time=0)
    assert (await pops.case.ask(asked)).read(NotificationResponseHeader).has_msg
