"""The retry topics of POP: their messages count for their group, and they leave with the topic."""

from __future__ import annotations

import pytest
from broker_cases import BrokerCase, StartBroker, StartNamesrv
from test_pops import NOW_MS, Pops

from gantrymq.broker.metrics.lag import ConsumerLagCalculator
from gantrymq.cli.admin.groups import _group_of
from gantrymq.clock import ManualClock
from gantrymq.model.message import Message
from gantrymq.remoting.bodies.group import ConsumeStats, ConsumeStatsList
from gantrymq.remoting.body import by_queue, decode_body
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import GetConsumeStatsInBrokerHeader, GetConsumeStatsRequestHeader
from gantrymq.remoting.headers.namesrv import GetRouteInfoRequestHeader
from gantrymq.remoting.headers.topic import DeleteTopicRequestHeader

pytestmark = pytest.mark.asyncio


async def has_route(broker: BrokerCase, name_server: str, topic: str) -> bool:
    request = RemotingCommand.request(GetRouteInfoRequestHeader(topic=topic))
    return (await broker.client.invoke(name_server, request, 60_000)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("is_v2", [False, True])
async def test_pop_retry_topic_is_deleted_with_its_topic_and_at_name_server(
    start_namesrv: StartNamesrv, start_broker: StartBroker, is_v2: bool
) -> None:
    namesrv, clock = await start_namesrv(), ManualClock(NOW_MS)
    case = await start_broker(
        namesrv_addr=namesrv.address, clock=clock, revive_interval_ms=1 << 30, timer_precision_ms=100,
        enable_retry_topic_v2=is_v2,
    )  # fmt: skip
    pops, retry = Pops(case, clock), "%RETRY%G+T" if is_v2 else "%RETRY%G_T"
    await pops.send(b"a")
    await pops.pop()
    await pops.revived()
    await case.server.outer.settled()
    assert await has_route(case, namesrv.address, retry)
    assert (await case.ask(DeleteTopicRequestHeader(topic="T"))).code == ResponseCode.SUCCESS
    assert retry not in case.server.tables.topics
    assert not await has_route(case, namesrv.address, retry)
    assert case.server.store.max_offset_in_queue(retry, 0) == 0
    assert await case.server.outer.register() == 1
    assert not await has_route(case, namesrv.address, retry)


async def test_unpopped_retries_count_as_lag_of_group(start_broker: StartBroker) -> None:
    """Of a connected group, too, whose clients do not subscribe to the retry topic."""
    case = await start_broker(clock=ManualClock(NOW_MS))
    pops = Pops(case, ManualClock(NOW_MS))
    await pops.send(b"a")
    await case.heart_beat()
    assert await pops.pop()
    await pops.commit()
    for topic, count in (("%RETRY%G_T", 2), ("%RETRY%G+T", 3)):
        case.server.tables.topics.create_for_group(topic, 1)
        for _ in range(count):
            await case.server.store.put_async(Message(topic, b"again"))
        await case.dispatched(count, topic)
    stats = decode_body(ConsumeStats, (await case.ask(GetConsumeStatsRequestHeader(consumer_group="G"))).body)
    offsets = by_queue(stats.offset_table).items()
    behind = {queue.topic: one.broker_offset - one.consumer_offset for queue, one in offsets}
    assert (behind["%RETRY%G_T"], behind["%RETRY%G+T"]) == (2, 3)
    table = decode_body(ConsumeStatsList, (await case.ask(GetConsumeStatsInBrokerHeader())).body)
    (of_group,) = (one["G"] for one in table.consume_stats_list if "G" in one)
    assert {queue.topic for one in of_group for queue in by_queue(one.offset_table)} >= {"%RETRY%G_T", "%RETRY%G+T"}
    server = case.server
    group = server.sessions.consumers.subscribing("G")
    assert group is not None
    group.consume_type = "CONSUME_POP"
    lag = ConsumerLagCalculator(
        server.config, ManualClock(NOW_MS), server.store, server.tables, server.sessions.consumers, server.pop
    )
    lags = await lag.calculate(10)
    assert [one.lag for one in lags if one.is_retry] == [5]


async def test_pop_retry_topic_of_ambiguous_group_is_kept(start_broker: StartBroker) -> None:
    """The names of version 1 do not say where the group ends."""
    case = await start_broker(auto_create_subscription_group=True)
    for group in ("a", "a_b", "x_y"):
        case.server.tables.groups.find(group)
    for topic in ("b_c", "c", "y"):
        await case.send(topic)
    for retry in ("%RETRY%a_b_c", "%RETRY%x_y", "%RETRY%a+b_c", "%RETRY%unknown_y"):
        case.server.tables.topics.create_for_group(retry, 1)
    for topic in ("b_c", "y"):
        assert (await case.ask(DeleteTopicRequestHeader(topic=topic))).code == ResponseCode.SUCCESS
    left = {name for name in case.server.tables.topics.table if name.startswith("%RETRY%")}
    assert left == {"%RETRY%a_b_c", "%RETRY%x_y", "%RETRY%unknown_y"}
    assert (await case.ask(DeleteTopicRequestHeader(topic="c"))).code == ResponseCode.SUCCESS
    assert "%RETRY%a_b_c" not in case.server.tables.topics.table


@pytest.mark.parametrize(
    ("retry", "group"),
    [("G", "G"), ("G_T", "G"), ("G+T", "G"), ("G_T+U", "G_T"), ("a_b", "a_b"), ("a_b_c", "a_b"), ("gone_T", "gone_T")],
)
async def test_group_of_pop_retry_topic_is_recognised(retry: str, group: str) -> None:
    assert _group_of(retry, {"G", "a", "a_b"}) == group
