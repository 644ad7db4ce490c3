"""What strangers may keep in a broker's memory: names, members, subscriptions, requests that wait for an answer."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, cast

import pytest
from broker_cases import TIMEOUT_MS, BrokerCase
from test_broker_limits import give_up, waiting_pull

from gantrymq.broker.sessions import consumers as consumers_module
from gantrymq.broker.sessions import producers as clients_module
from gantrymq.broker.sessions.consumers import ConsumerManager, MemberNotices
from gantrymq.broker.sessions.producers import ClientChannel, ProducerManager
from gantrymq.broker.sessions.queue_locks import RebalanceLockManager
from gantrymq.broker.tables import offsets as offsets_module
from gantrymq.broker.tables import subscription_groups as groups_module
from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.broker.tables.subscription_groups import FORBIDDEN_READ, SubscriptionGroupManager
from gantrymq.clock import ManualClock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.errors import RemotingError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import (
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    ProducerData,
    SubscriptionData,
)
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand, encode_command
from gantrymq.remoting.headers.consumer import (
    GetAllProducerInfoRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    HeartbeatRequestHeader,
)
from gantrymq.remoting.headers.offset import GetMaxOffsetRequestHeader, ResetOffsetRequestHeader
from gantrymq.remoting.headers.send import SendMessageRequestHeaderV2
from gantrymq.remoting.message_batch import BatchedMessage, encode_batch


@pytest.mark.asyncio
@pytest.mark.parametrize("field", ["client_id", "producer", "type"])
async def test_long_names_of_clients_are_refused(broker: BrokerCase, field: str) -> None:
    long = "x" * 513
    consumer = ConsumerData(group_name="G", consume_type=long if field == "type" else "CONSUME_PASSIVELY")
    body = HeartbeatData(
        client_id=long if field == "client_id" else "c",
        producer_data_set=[ProducerData(group_name=long if field == "producer" else "P")],
        consumer_data_set=[consumer],
    )
    answer = await broker.ask(HeartbeatRequestHeader(), body.encode())
    assert (answer.code, "513 characters, more than 512" in str(answer.remark)) == (ResponseCode.SYSTEM_ERROR, True)


@pytest.mark.asyncio
@pytest.mark.parametrize(("group", "client_id"), [("G" * 513, "c"), ("G", "c" * 513)])
async def test_long_names_of_locks_are_refused(broker: BrokerCase, group: str, client_id: str) -> None:
    queue = MessageQueue("T", "broker-a", 0)
    asked = LockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=[queue])
    answer = await broker.ask(int(RequestCode.LOCK_BATCH_MQ), asked)
    assert (answer.code, "513 characters" in str(answer.remark)) == (ResponseCode.SYSTEM_ERROR, True)
    assert not broker.server.sessions.locks._groups


def test_lock_of_queue_with_long_name_is_refused() -> None:
    locks, queue = RebalanceLockManager(), MessageQueue("T", "b", 0)
    long = [MessageQueue("T" * 513, "b", 0), MessageQueue("T", "b" * 513, 0)]
    assert locks.lock("G", [*long, queue], "c", 0) == [queue]


class Line:
    """As much of a connection as the tables of members look at; ``closed`` says why it was ended."""

    def __init__(self) -> None:
        self.address, self.closed = "127.0.0.1:1", ""


def close(line: Any, reason: str) -> None:
    line.closed = reason


def test_members_above_total_limit_close_connection_with_most_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients_module, "MAX_MEMBERS", 10)
    manager = ProducerManager(cast(Any, close))
    greedy, modest, late = lines = [cast(Any, Line()) for _ in range(3)]
    for number in range(8):
        manager.register(f"P{number}", ClientChannel(greedy, "greedy", 0, 0, 0))
    for line in (modest, late):
        for number in range(2):
            manager.register(f"P{number}", ClientChannel(line, "other", 0, 0, 0))
    assert [bool(line.closed) for line in lines] == [True, False, False]
    assert [list(channels) for channels in manager.groups.values()] == [[modest, late]] * 2
    for number in range(2, 8):
        manager.register(f"P{number}", ClientChannel(late, "late", 0, 0, 0))
    with pytest.raises(RemotingError, match="10 members of groups are connected"):
        manager.register("P8", ClientChannel(late, "late", 0, 0, 0))
    assert not late.closed


def test_subscriptions_above_total_limit_close_largest_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers_module, "MAX_SUBSCRIPTION_BYTES", 20_000)
    manager = ConsumerManager(close=cast(Any, close))
    greedy, modest = cast(Any, Line()), cast(Any, Line())

    def beat(line: Any, group: str, topics: int) -> None:
        asked = [SubscriptionData(topic=f"T{number}") for number in range(topics)]
        manager.register(
            ConsumerData(group_name=group, subscription_data_set=asked),
            ClientChannel(line, group, 0, 0, 0),
            notify=True,
        )

    beat(greedy, "large", 40)
    beat(modest, "small", 5)
    beat(modest, "another", 5)
    assert ("group large take the most" in greedy.closed, modest.closed) == (True, "")
    assert set(manager.groups) == {"small", "another"}
    monkeypatch.setattr(consumers_module, "MAX_GROUP_BYTES", 5_000)
    with pytest.raises(RemotingError, match="more than 5000"):
        beat(modest, "small", 30)


@pytest.mark.asyncio
async def test_simultaneous_changes_of_many_groups_are_announced_once_in_slices() -> None:
    """60 connections in 1,000 groups: one heart-beat that changes them all is no 60,000 notices at a stroke."""
    told: list[int] = []

    class Member:
        def invoke_oneway(self, command: RemotingCommand) -> None:
            told.append(1)

    members = [ClientChannel(cast(Any, Member()), f"c{number}", 0, 0, 0) for number in range(60)]
    notices = MemberNotices(lambda group: members)
    for _ in range(3):
        for number in range(200):
            notices.changed(f"G{number}")
    assert not told
    longest = 0
    while notices._round is not None:
        before = len(told)
        await asyncio.sleep(0)
        longest = max(longest, len(told) - before)
    assert len(told) == 200 * 60
    assert longest < 200 * 60


@pytest.mark.asyncio
async def test_forwarded_request_is_not_kept_until_answer(broker: BrokerCase) -> None:
    """GET_CONSUMER_RUNNING_INFO with a megabyte of body, at a consumer who does not answer."""
    silent = await asyncio.open_connection("127.0.0.1", broker.server.port)
    body = HeartbeatData(client_id="silent", consumer_data_set=[ConsumerData(group_name="G")]).encode()
    silent[1].write(encode_command(RemotingCommand.request(HeartbeatRequestHeader(), body)))
    while broker.server.sessions.consumers.group("G") is None:
        await asyncio.sleep(0.001)
    asked = GetConsumerRunningInfoRequestHeader(consumer_group="G", client_id="silent", jstack_enable=False)
    question = asyncio.ensure_future(broker.ask(asked, bytes(1_000_000)))
    got = 0
    while got < 1_000_000:
        got += len(await silent[0].read(1 << 20))
    gc.collect()
    waiting = [one for one in gc.get_objects() if isinstance(one, RemotingCommand) and len(one.body) >= 1_000_000]
    assert len(waiting) <= 1  # the asker's own
    silent[1].close()
    assert (await question).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.asyncio
async def test_held_pull_does_not_keep_its_remark(broker: BrokerCase) -> None:
    pull = waiting_pull()
    pull.remark = "x" * 100_000
    await broker.send()
    await broker.dispatched(1)
    waiting = asyncio.ensure_future(broker.client.invoke(broker.server.address, pull, TIMEOUT_MS))
    while not len(broker.server.sessions.holds):
        await asyncio.sleep(0.001)
    held = [
        cell.cell_contents
        for one in broker.server.sessions.holds._held["T", 0]
        for cell in one.resume.__closure__ or ()
    ]
    assert [one.remark for one in held if isinstance(one, RemotingCommand)] == [None]
    await give_up([waiting])


@pytest.mark.asyncio
async def test_expression_types_of_held_pulls_count_towards_limit(
    broker: BrokerCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers_module, "MAX_SUBSCRIPTION_BYTES", 100_000)
    await broker.send()
    for number in range(10):
        await broker.pull(consumer_group=f"G{number}", expression_type="x" * 10_000)
    assert broker.server.sessions.consumers._pulling_bytes <= 50_000


@pytest.mark.asyncio
async def test_messages_of_batch_processed_one_by_one_are_limited(broker: BrokerCase) -> None:
    async def send(count: int, topic: str) -> int:
        body = encode_batch([BatchedMessage(0, b"x", b"")] * count)
        header = SendMessageRequestHeaderV2(
            producer_group="P", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=0,
            sys_flag=0, born_timestamp=0, flag=0, batch=True,
        )  # fmt: skip
        return (await broker.ask(header, body, code=RequestCode.SEND_BATCH_MESSAGE)).code

    long = "%DLQ%" + "x" * 150
    assert [await send(count, long) for count in (2000, 2001)] == [ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL]
    assert await send(5000, "short") == ResponseCode.SUCCESS


def test_refused_offsets_leave_no_state_and_resets_count_towards_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_module, "MAX_ENTRIES", 12)
    offsets = ConsumerOffsetManager(LiveConfig(), ManualClock(0))
    for number in range(4):
        offsets.commit("G", "T", number, 7)  # six entries
    offsets.clone("G", "H", "T")  # and six
    for number in range(3):
        with pytest.raises(RemotingError, match="12 queues of groups have an offset"):
            offsets.commit(f"I{number}", "T", 0, 7)
        with pytest.raises(RemotingError, match="which is the maximum"):
            offsets.assign_reset(f"I{number}", "T", 0, 7)
        with pytest.raises(RemotingError, match="which is the maximum"):
            offsets.clone("G", f"I{number}", "T")
        offsets.commit_pulled(f"I{number}", "T", 0, 7)
    assert set(offsets._offsets) == {"T@G", "T@H"}
    assert (offsets._pulled, offsets._reset) == ({}, {})
    offsets.clone("G", "H", "T")
    offsets.remove_group("H")
    offsets.commit("I", "T", 0, 7)
    kept = ConsumerOffsetManager(LiveConfig(), ManualClock(0))
    kept.load(offsets.to_json())
    kept.commit("I", "T", 1, 7)
    with pytest.raises(RemotingError):
        kept.commit("J", "T", 0, 7)


def test_resets_of_deleted_groups_and_topics_are_dropped() -> None:
    offsets = ConsumerOffsetManager(LiveConfig(), ManualClock(0))
    for group in ("here", "gone"):
        for topic in ("kept", "deleted"):
            offsets.assign_reset(group, topic, 0, 7)
    offsets.remove_topic("deleted", ["here", "gone"])
    offsets.forget_resets(lambda topic, group: topic == "kept" or group == "here")
    assert set(offsets._reset) == {"kept@here", "kept@gone", "deleted@here"}
    assert offsets.take_reset("here", "deleted", 0) == 0
    offsets.forget_resets(lambda topic, group: True)
    assert "deleted@here" not in offsets._reset


@pytest.mark.asyncio
async def test_reset_of_missing_queue_is_dropped(broker: BrokerCase) -> None:
    await broker.send()
    await broker.pull()

    async def reset(queue_id: int) -> int:
        header = ResetOffsetRequestHeader(group="G", topic="T", timestamp=0, queue_id=queue_id, offset=0, is_force=True)
        return (await broker.ask(header)).code

    assert [await reset(number) for number in (0, 3, 4, 1 << 30)] == [0, 0, 29, 29]


def test_number_of_forbidden_topics_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "MAX_FORBIDDEN", 2)
    groups = SubscriptionGroupManager(LiveConfig(), ManualClock(0))
    for topic in ("T1", "T2", "T1"):
        groups.set_forbidden("G", topic, FORBIDDEN_READ, forbidden=True)
    with pytest.raises(RemotingError, match="2 topics are forbidden"):
        groups.set_forbidden("G", "T3", FORBIDDEN_READ, forbidden=True)
    groups.set_forbidden("G", "T2", FORBIDDEN_READ, forbidden=False)
    groups.set_forbidden("G", "T3", FORBIDDEN_READ, forbidden=True)
    with pytest.raises(RemotingError, match="the group has 513 characters"):
        groups.set_forbidden("G" * 513, "T3", FORBIDDEN_READ, forbidden=False)


@pytest.mark.asyncio
async def test_list_of_many_producers_does_not_delay_other_requests(broker: BrokerCase) -> None:
    await broker.send()
    for number in range(10):
        line = cast(Any, Line())
        for group in range(1000):
            broker.server.sessions.producers.register(f"P{group}", ClientChannel(line, f"c{number}", 0, 0, 0))
    long = asyncio.ensure_future(broker.ask(GetAllProducerInfoRequestHeader()))
    answered = 0
    while not long.done():
        await broker.ask(GetMaxOffsetRequestHeader(topic="T", queue_id=0))
        answered += 1
    assert answered > 5
    assert (await long).body.count(b'"clientId"') == 10_000


def test_offsets_of_similar_names_stay_separate() -> None:
    offsets = ConsumerOffsetManager(LiveConfig(), ManualClock(0))
    for topic, group in (("T", "G"), ("T", "xG"), ("Tx", "G"), ("xT", "Gx")):
        offsets.commit(group, topic, 0, 7)
    offsets.load(offsets.to_json() | {"offsetTable": {**offsets.to_json()["offsetTable"], "T@odd@G": {"0": 1}}})
    assert offsets.groups_of("T") == {"G", "xG"}
    assert offsets.topics_of("G") == {"T", "Tx"}
    offsets.remove_topic("T")
    assert set(offsets._offsets) == {"Tx@G", "xT@Gx", "T@odd@G"}
    offsets.remove_group("G")
    assert set(offsets._offsets) == {"xT@Gx", "T@odd@G"}
