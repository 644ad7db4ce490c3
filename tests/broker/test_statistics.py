"""What the broker counted: sums and rates over a minute, an hour and a day."""

from gantrymq.broker.statistics import SAMPLE_MS, TOPIC_PUT_NUMS, BrokerStatsManager

MINUTE_MS = 60_000
START_MS = 1_700_000_000_000


def sums(stats: BrokerStatsManager, now_ms: int) -> list[int]:
    found = stats.view(TOPIC_PUT_NUMS, "T", now_ms)
    assert found is not None
    assert found.stats_minute is not None
    assert found.stats_hour is not None
    assert found.stats_day is not None
    return [found.stats_minute.sum, found.stats_hour.sum, found.stats_day.sum]


def test_what_came_before_the_first_sample_counts() -> None:
    stats = BrokerStatsManager()
    stats.put("T", 3, 300)
    stats.sample(START_MS)
    assert sums(stats, START_MS) == [3, 3, 3]
    assert 0 < stats.tps(TOPIC_PUT_NUMS, "T", START_MS) <= 0.3


def test_spans_end() -> None:
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
