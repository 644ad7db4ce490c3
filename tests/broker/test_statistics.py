"""What the broker counted: sums and rates over a minute, an hour and a day."""

import pytest
from broker_cases import BrokerCase

from gantrymq.broker.statistics import SAMPLE_MS, TOPIC_PUT_NUMS, BrokerStatsManager
from gantrymq.remoting.bodies.broker import BrokerStatsData
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.headers.broker import ViewBrokerStatsDataRequestHeader
from gantrymq.remoting.headers.send import ConsumerSendMsgBackRequestHeader

MINUTE_MS = 60_000
START_MS = 1_700_000_000_000


def sums(stats: BrokerStatsManager, now_ms: int) -> list[int]:
    found = stats.view(TOPIC_PUT_NUMS, "T", now_ms)
    assert found is not None
    assert found.stats_minute is not None
    assert found.stats_hour is not None
    assert found.stats_day is not None
    return [found.stats_minute.sum, found.stats_hour.sum, found.stats_day.sum]


def test_statistics_count_messages_before_first_sample() -> None:
    stats = BrokerStatsManager()
    stats.put("T", 3, 300)
    stats.sample(START_MS)
    assert sums(stats, START_MS) == [3, 3, 3]
    assert 0 < stats.tps(TOPIC_PUT_NUMS, "T", START_MS) <= 0.3


def test_statistics_of_span_drop_older_messages() -> None:
    stats, now_ms = BrokerStatsManager(), START_MS
    stats.put("T", 3, 300)
    for _ in range(12):
        stats.sample(now_ms)
        now_ms += SAMPLE_MS
    assert sums(stats, now_ms) == [0, 3, 3]
    for _ in range(2 * 60 * MINUTE_MS // SAMPLE_MS):
        stats.sample(now_ms)
        now_ms += SAMPLE_MS
    assert sums(stats, now_ms) == [0, 0, 3]
    for _ in range(26 * 60 * MINUTE_MS // SAMPLE_MS):
        stats.sample(now_ms)
        now_ms += SAMPLE_MS
    assert sums(stats, now_ms) == [0, 0, 0]


async def viewed(broker: BrokerCase, kind: str, key: str) -> int | None:
    """The sum of the last minute, or None where nothing was counted."""
    answer = await broker.ask(ViewBrokerStatsDataRequestHeader(stats_name=kind, stats_key=key))
    if answer.code != ResponseCode.SUCCESS:
        return None
    minute = decode_body(BrokerStatsData, answer.body).stats_minute
    assert minute is not None
    return minute.sum


@pytest.mark.asyncio
async def test_cluster_statistics_count_all_messages_of_broker(broker: BrokerCase) -> None:
    assert [await viewed(broker, kind, "DefaultCluster") for kind in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS")] == [
        None,
        None,
    ]
    broker.server.measures.stats.sample(START_MS)
    for topic in ("T", "T", "U"):
        await broker.send(topic)
    await broker.dispatched(2)
    await broker.pull("T")
    broker.server.measures.stats.forget(["DefaultCluster"])  # a topic of that name
    broker.server.measures.stats.sample(START_MS + SAMPLE_MS)
    assert [await viewed(broker, kind, "DefaultCluster") for kind in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS")] == [3, 2]


@pytest.mark.asyncio
async def test_message_sent_back_counts_for_original_topic(broker: BrokerCase) -> None:
    """Not for the one that the request names, nor for the retry topic where it comes back once more."""
    await broker.send("T")
    for offset in (0, broker.server.store.max_phy_offset):
        back = ConsumerSendMsgBackRequestHeader(offset=offset, group="G", delay_level=0, origin_topic="invented")
        assert (await broker.ask(back)).code == ResponseCode.SUCCESS
    broker.server.measures.stats.sample(START_MS)
    assert [await viewed(broker, "SNDBCK_PUT_NUMS", f"{topic}@G") for topic in ("T", "invented")] == [2, None]
