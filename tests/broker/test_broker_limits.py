"""What strangers may cost a broker: bodies, pulls that wait, long answers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from broker_cases import TIMEOUT_MS, BrokerCase, StartBroker

from gantrymq.broker import statistics
from gantrymq.broker.sessions import consumers as consumers_module
from gantrymq.broker.sessions import long_polling, queue_locks
from gantrymq.broker.sessions.consumers import MemberNotices
from gantrymq.broker.sessions.producers import MAX_GROUPS, ClientChannel
from gantrymq.broker.sessions.queue_locks import RebalanceLockManager
from gantrymq.broker.statistics import BrokerStatsManager
from gantrymq.broker.tables import offsets as offsets_module
from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.clock import ManualClock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.errors import RemotingError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import HeartbeatData, ProducerData
from gantrymq.remoting.codes import PullSysFlag, RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand, encode_command
from gantrymq.remoting.connection import Connection
from gantrymq.remoting.headers.consumer import HeartbeatRequestHeader
from gantrymq.remoting.headers.offset import GetMaxOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from gantrymq.remoting.headers.pull import PullMessageRequestHeader
from gantrymq.remoting.headers.topic import CreateTopicRequestHeader, GetTopicStatsInfoRequestHeader
from gantrymq.remoting.transport.client import RemotingClient

WAITING = int(PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND)
ALL_QUEUES = 65_536


def waiting_pull(body: bytes = b"", **fields: Any) -> RemotingCommand:
    header = PullMessageRequestHeader(
        **{
            "consumer_group": "G",
            "topic": "T",
            "queue_id": 0,
            "queue_offset": 1,
            "max_msg_nums": 32,
            "sys_flag": WAITING,
            "commit_offset": 0,
            "suspend_timeout_millis": 60_000,
            "subscription": "*",
            "sub_version": 0,
            **fields,
        }
    )
    return RemotingCommand.request(header, body)


async def hold(
    case: BrokerCase, count: int, client: RemotingClient | None = None, **of: Any
) -> list[asyncio.Task[Any]]:
    """Pulls that wait at a topic with one message."""
    if not case.server.tables.topics.get("T"):
        await case.send()
        await case.dispatched(1)
    before = len(case.server.sessions.holds)
    by = client or case.client
    pulls = [
        asyncio.ensure_future(by.invoke(case.server.address, waiting_pull(**of), TIMEOUT_MS)) for _ in range(count)
    ]
    while len(case.server.sessions.holds) < before + count and not any(pull.done() for pull in pulls):
        await asyncio.sleep(0.001)
    return pulls


async def give_up(pulls: list[asyncio.Task[Any]]) -> None:
    for pull in pulls:
        pull.cancel()
    await asyncio.gather(*pulls, return_exceptions=True)


@pytest.mark.asyncio
@pytest.mark.parametrize("code", [RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.UPDATE_BROKER_CONFIG])
async def test_body_size_is_limited_before_decoding(broker: BrokerCase, code: RequestCode) -> None:
    answer = await broker.ask(int(code), b"[" * (300 << 10))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert str(answer.remark).startswith(f"the body of {code.name} has 307200 bytes, more than ")
    assert str(answer.remark).endswith("(maxRequestBodyBytes)")


@pytest.mark.asyncio
async def test_too_long_body_is_refused_before_its_bytes_arrive(broker: BrokerCase) -> None:
    await broker.send()
    header = GetMaxOffsetRequestHeader(topic="T", queue_id=0)
    frame = encode_command(RemotingCommand.request(header, bytes(15 << 20)))
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.server.port)
    connection, answers = Connection(), list[RemotingCommand]()
    writer.write(frame[: 300 << 10])
    while not answers:
        answers += connection.receive(await reader.read(1 << 16))
    assert answers[0].code == ResponseCode.INVALID_PARAMETER
    assert (
        str(answers[0].remark)
        == f"the body of GET_MAX_OFFSET has {15 << 20} bytes, more than {1 << 20} (maxRequestBodyBytes)"
    )
    writer.write(frame[300 << 10 :] + encode_command(RemotingCommand.request(header)))
    while len(answers) < 2:
        answers += connection.receive(await reader.read(1 << 16))
        assert sum(one.buffered_bytes for one in broker.server._server.channels) < 1 << 20
    assert answers[1].code == ResponseCode.SUCCESS
    writer.close()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "body",
    [b"[" * 60_000, b'{"a":' * 10_000, b'"' * 60_000, b"{1:" * 20_000, b"{{" * 30_000, b"9" * 60_000, b"\xff" * 100,
     b'{"clientID":' + b"9" * 5000 + b"}", b'{"clientID":"\\ud800","producerDataSet":[{"groupName":"\\udfff"}]}'],
    ids=lambda body: repr(body[:6]),
)  # fmt: skip
async def test_malformed_json_body_is_answered_with_error(broker: BrokerCase, body: bytes) -> None:
    answer = await broker.ask(HeartbeatRequestHeader(), body)
    assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS)
    assert len(str(answer.remark)) < 1000
    assert (await broker.send("Fine")).code == ResponseCode.SUCCESS


@pytest.mark.asyncio
async def test_held_pull_retains_neither_body_nor_header(broker: BrokerCase) -> None:
    pulls = await hold(broker, 20, body=bytes(900_000))
    assert broker.server.sessions.holds.size_bytes < 20 * 2000
    held = [
        cell.cell_contents
        for one in broker.server.sessions.holds._held["T", 0]
        for cell in one.resume.__closure__ or ()
    ]
    requests = [one for one in held if isinstance(one, RemotingCommand)]
    assert [(len(one.body), one.ext_fields) for one in requests] == [(0, {})] * 20
    await give_up(pulls)


@pytest.mark.asyncio
async def test_no_pull_is_held_for_longer_than_two_minutes(tmp_path: Path, start_broker: StartBroker) -> None:
    clock = ManualClock(1_700_000_000_000)
    case = await start_broker(tmp_path, clock=clock)
    [pull] = await hold(case, 1, suspend_timeout_millis=1 << 62)
    clock.advance(long_polling.MAX_WAIT_MS)
    case.server.sessions.holds.expire()
    assert (await pull).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.asyncio
async def test_held_pulls_above_limit_of_largest_holder_are_answered_early(
    start_broker: StartBroker,
) -> None:
    """A consumer of few queues waits on, beside somebody who wants all there is to have."""
    case = await start_broker(pull_thread_pool_queue_capacity=40)
    modest = await hold(case, 5)
    greedy = await hold(case, 36, client=case.another_client())
    early = [pull for pull in greedy if pull.done()]
    while not early:
        await asyncio.sleep(0.001)
        early = [pull for pull in greedy if pull.done()]
    assert {pull.result().code for pull in early} == {ResponseCode.PULL_NOT_FOUND}
    assert not any(pull.done() for pull in modest)
    assert len(case.server.sessions.holds) <= 40
    await case.send(body=b"second")
    assert {(await pull).code for pull in modest} == {ResponseCode.SUCCESS}
    await give_up(greedy)


@pytest.mark.asyncio
async def test_held_pulls_are_limited_in_bytes(broker: BrokerCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polling, "MAX_HELD_BYTES", 200_000)
    pulls = await hold(broker, 30, subscription="||".join(f"t{number}" for number in range(500)))
    while not any(pull.done() for pull in pulls):
        await asyncio.sleep(0.001)
    assert broker.server.sessions.holds.size_bytes <= 200_000
    await give_up(pulls)


@pytest.mark.asyncio
async def test_closed_connection_drops_its_held_pulls(broker: BrokerCase) -> None:
    other = broker.another_client()
    pulls = await hold(broker, 10, client=other)
    assert len(broker.server.sessions.holds) == 10
    await other.close()
    while len(broker.server.sessions.holds):
        await asyncio.sleep(0.001)
    assert (broker.server.sessions.holds.size_bytes, broker.server.sessions.holds._held) == (0, {})
    await give_up(pulls)


@pytest.mark.asyncio
async def test_message_for_thousands_of_held_pulls_reaches_every_connection(broker: BrokerCase) -> None:
    """One of each connection in turn: a consumer's only pull does not wait for another's thousands."""
    crowd = await hold(broker, 3000, client=broker.another_client())
    [alone] = await hold(broker, 1)
    await broker.send(body=b"second")
    assert (await alone).code == ResponseCode.SUCCESS
    assert sum(pull.done() for pull in crowd) < 3000
    assert {(await pull).code for pull in crowd} == {ResponseCode.SUCCESS}


@pytest.mark.asyncio
async def test_request_about_many_queues_does_not_delay_other_requests(broker: BrokerCase) -> None:
    created = await broker.ask(
        CreateTopicRequestHeader(
            topic="wide", default_topic="TBW102", read_queue_nums=ALL_QUEUES, write_queue_nums=ALL_QUEUES, perm=6,
            topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
        )
    )  # fmt: skip
    assert created.code == ResponseCode.SUCCESS
    long = asyncio.ensure_future(broker.ask(GetTopicStatsInfoRequestHeader(topic="wide")))
    answered = 0
    while not long.done():
        await broker.ask(GetMaxOffsetRequestHeader(topic="wide", queue_id=0))
        answered += 1
    assert answered > 20
    assert (await long).body.count(b'"minOffset":0') == ALL_QUEUES


@pytest.mark.asyncio
async def test_topics_and_groups_created_by_unknown_clients_are_limited(
    tmp_path: Path, start_broker: StartBroker
) -> None:
    case = await start_broker()
    topics, groups = len(case.server.tables.topics.table), len(case.server.tables.groups.table)
    case.server.config.broker = replace(
        case.server.config.broker, max_topics=topics + 5, max_subscription_groups=groups + 5
    )
    codes = [(await case.send(f"T{number}")).code for number in range(7)]
    assert codes == [ResponseCode.SUCCESS] * 5 + [ResponseCode.SYSTEM_ERROR] * 2
    refused = await case.send("Another")
    assert "(maxTopics)" in str(refused.remark)
    assert (await case.send("T1")).code == ResponseCode.SUCCESS
    await case.dispatched(1, "T0")
    codes = [(await case.pull("T0", consumer_group=f"G{number}")).code for number in range(7)]
    assert codes == [ResponseCode.SUCCESS] * 5 + [ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST] * 2


@pytest.mark.asyncio
async def test_commit_for_queue_outside_topic_is_refused(broker: BrokerCase) -> None:
    await broker.send()
    await broker.pull()

    async def commit(queue_id: int) -> int:
        header = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=queue_id, commit_offset=1)
        return (await broker.ask(header)).code

    assert [await commit(number) for number in (0, 3, 4, 1 << 30, -1)] == [0, 0, 29, 29, 29]


@pytest.mark.asyncio
async def test_groups_and_subscriptions_of_connection_are_limited(
    broker: BrokerCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [ProducerData(group_name=f"P{number}") for number in range(MAX_GROUPS + 1)]
    body, other = HeartbeatData(client_id="c", producer_data_set=names).encode(), broker.another_client()
    answer = await other.invoke(
        broker.server.address, RemotingCommand.request(HeartbeatRequestHeader(), body), TIMEOUT_MS
    )
    assert (answer.code, "members of 1000 groups" in str(answer.remark)) == (ResponseCode.SYSTEM_ERROR, True)
    monkeypatch.setattr(consumers_module, "MAX_SUBSCRIPTION_BYTES", 5000)
    assert (await broker.heart_beat("Small")).code == ResponseCode.SUCCESS
    large = await broker.heart_beat("Large", tuple(f"T{number}" for number in range(20)), client_id="c2")
    assert (large.code, "which is the maximum" in str(large.remark)) == (ResponseCode.SYSTEM_ERROR, True)
    assert (await broker.heart_beat("Small", version=2)).code == ResponseCode.SUCCESS
    await other.close()
    await broker.client.close()
    while broker.server.sessions.consumers.groups or broker.server.sessions.producers.groups:
        await asyncio.sleep(0.001)
    assert (broker.server.sessions.consumers._held_bytes, broker.server.sessions.consumers._members.count) == (0, 0)
    assert broker.server.sessions.producers._members.count == 0


def test_locks_statistics_and_offsets_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_locks, "MAX_LOCKS", 5)
    locks, queues = RebalanceLockManager(), [MessageQueue("T", "b", number) for number in range(8)]
    assert locks.lock("G", queues, "c", 0) == queues[:5]
    assert locks.lock("G", queues, "c", 0) == queues[:5]
    locks.unlock("G", queues[:2], "c")
    assert locks.lock("H", queues, "d", 0) == queues[:2]
    locks.expire(10**9)
    assert len(locks.lock("G", queues, "c", 10**9)) == 5
    monkeypatch.setattr(statistics, "MAX_ITEMS", 10)
    stats = BrokerStatsManager()
    for number in range(100):
        stats.put(f"T{number}", 1, 100)
        stats.got(f"G{number}", "T", 1, 100)
    stats.sample(0)
    assert (len(stats._items), len(stats._put_items), stats.put_total) == (10, 3, 100)
    monkeypatch.setattr(offsets_module, "MAX_ENTRIES", 5)  # a group at a topic counts as two of them
    offsets = ConsumerOffsetManager(LiveConfig(), ManualClock(0))
    for number in range(3):
        offsets.commit("G", "T", number, 7)
    offsets.commit_pulled("G", "T", 9, 7)
    with pytest.raises(RemotingError, match="5 queues of groups have an offset"):
        offsets.commit("G", "T", 9, 7)
    offsets.commit("G", "T", 2, 8)
    offsets.remove_group("G")
    offsets.commit("G", "T", 9, 7)
    assert offsets.query("G", "T", 9) == 7


@pytest.mark.asyncio
async def test_changes_of_large_group_share_notifications_of_members() -> None:
    told: list[int] = []

    class Member:
        def __init__(self, number: int) -> None:
            self.number = number

        def invoke_oneway(self, command: RemotingCommand) -> None:
            told.append(self.number)

    members = [ClientChannel(cast(Any, Member(number)), f"c{number}", 0, 0, 0) for number in range(300)]
    joined: list[ClientChannel] = []
    notices = MemberNotices(lambda group: joined)
    for one in members:
        joined = [*joined, one]
        notices.changed("G")
    while notices._round is not None:
        await asyncio.sleep(0)
    assert told == list(range(300))
