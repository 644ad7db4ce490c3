"""Statistics of the broker and its store: sums, rates over the last minute, hour and day, latencies of puts.

No I/O; times are arguments. Thread rule: the event loop's thread.

Source: BrokerStatsManager, StatsItem, StatsItemSet; StoreStatsService, BrokerStats.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import date
from typing import NamedTuple

from gantrymq.remoting.bodies.broker import BrokerStatsData, BrokerStatsItem

TOPIC_PUT_NUMS, TOPIC_PUT_SIZE = "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"
GROUP_GET_NUMS, GROUP_GET_SIZE = "GROUP_GET_NUMS", "GROUP_GET_SIZE"
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
_OF_THE_BROKER = ("BROKER_PUT_NUMS", "BROKER_GET_NUMS")

SAMPLE_MS = 10_000
MAX_ITEMS = 20_000
# The number and the interval of the samples of each span, as in RocketMQ.
_SPANS = ((7, SAMPLE_MS), (7, 600_000), (25, 3_600_000))
_LATENCY_STEPS_MS = (1, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)
_LATENCY_NAMES = (
    *("[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]"),
    *("[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]"),
)
_RATE_SPANS_S = (10, 60, 600)


class _Item:
    """One sum, with samples (time, sum, times) for three spans."""

    __slots__ = ("samples", "times", "value")

    def __init__(self) -> None:
        self.value = self.times = 0
        self.samples: tuple[deque[tuple[int, int, int]], ...] = ()  # created by the first sample

    def sample(self, now_ms: int) -> None:
        if not self.samples:
            self.samples = tuple(deque(maxlen=size) for size, _ in _SPANS)
        for samples, (_, apart_ms) in zip(self.samples, _SPANS, strict=True):
            if not samples:
                samples.append((now_ms - apart_ms, 0, 0))  # the counts before the first sample are included
            if now_ms - samples[-1][0] >= apart_ms:
                samples.append((now_ms, self.value, self.times))

    def over(self, span: int, now_ms: int) -> BrokerStatsItem:
        if not self.samples:
            return BrokerStatsItem()
        samples = self.samples[span]
        began_ms, value, times = samples[0]
        gained, took_s = self.value - value, (now_ms - began_ms) / 1000
        average = gained / (self.times - times) if self.times > times else 0.0
        return BrokerStatsItem(sum=gained, tps=gained / took_s if took_s > 0 else 0.0, avgpt=average)


class BrokerStatsManager:
    """Sums by kind and key. The key is a topic, ``topic@group``, or the ``cluster`` for sums of the whole broker."""

    def __init__(self, cluster: str = "DefaultCluster") -> None:
        self._cluster = cluster
        self._items: dict[tuple[str, str], _Item] = {}
        self._put_items: dict[str, tuple[_Item, _Item]] = {}  # the two items of a topic that each put changes
        self.put_total = self.get_total = 0

    def add(self, kind: str, key: str, value: int, times: int = 1) -> None:
        """Add ``value`` to a sum, and ``times`` to its count."""
        item = self._item(kind, key)
        item.value += value
        item.times += times

    def _item(self, kind: str, key: str) -> _Item:
        item = self._items.get((kind, key))
        if item is None:
            if len(self._items) >= MAX_ITEMS:
                return _Item()  # not kept: clients choose the names of topics and groups, so the number is limited
            item = self._items[kind, key] = _Item()
        return item

    def put(self, topic: str, messages: int, size_bytes: int, puts: int = 1) -> None:
        """Count stored messages of ``puts`` requests."""
        self.put_total += messages
        items = self._put_items.get(topic)
        if items is None:
            items = self._item(TOPIC_PUT_NUMS, topic), self._item(TOPIC_PUT_SIZE, topic)
            if (TOPIC_PUT_SIZE, topic) in self._items:
                self._put_items[topic] = items
        count, size = items
        count.value += messages
        count.times += puts
        size.value += size_bytes
        size.times += puts

    def got(self, group: str, topic: str, messages: int, size_bytes: int) -> None:
        """Count messages that were delivered to a group."""
        self.get_total += messages
        self.add(GROUP_GET_NUMS, f"{topic}@{group}", messages)
        self.add(GROUP_GET_SIZE, f"{topic}@{group}", size_bytes)

    def sample(self, now_ms: int) -> None:
        """Take a sample of every sum."""
        for _ in self.samples(now_ms):
            pass

    def samples(self, now_ms: int) -> Iterator[None]:
        """As :meth:`sample`, item by item, for a caller that yields to others in between. Called every ten seconds."""
        self._count_totals()
        for item in list(self._items.values()):
            item.sample(now_ms)
            yield

    def view(self, kind: str, key: str, now_ms: int) -> BrokerStatsData | None:
        """The sums and rates of a key; None if it has no counts (viewBrokerStatsData)."""
        self._count_totals()
        item = self._items.get((kind, key))
        if item is None:
            return None
        minute, hour, day = (item.over(span, now_ms) for span in range(len(_SPANS)))
        return BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day)

    def _count_totals(self) -> None:
        """Copy the totals into their items. Doing this at each count would be slower."""
        for kind, total in zip(_OF_THE_BROKER, (self.put_total, self.get_total), strict=True):
            if total:
                self._item(kind, self._cluster).value = total

    def tps(self, kind: str, key: str, now_ms: int) -> float:
        """The rate over the last minute."""
        item = self._items.get((kind, key))
        return item.over(0, now_ms).tps if item is not None else 0.0

    def forget(self, keys: Iterable[str]) -> None:
        """Drop the sums of deleted topics or groups."""
        removed = set(keys)
        self._put_items.clear()
        for kind, key in list(self._items):
            if kind not in _OF_THE_BROKER and removed.intersection(key.split("@")):
                del self._items[kind, key]


class _Sample(NamedTuple):
    time_ms: int
    put: int
    found_times: int
    missed: int
    transferred: int


class StoreStatsService:
    """Sums since the start, sampled once a second."""

    def __init__(self, now_ms: int) -> None:
        self.boot_timestamp_ms = now_ms
        self.put_times = self.put_size_bytes = self.put_failed = self.put_longest_ms = 0
        self.found_times = self.missed = self.transferred = 0
        self._latencies = [0] * len(_LATENCY_NAMES)
        self._samples: deque[_Sample] = deque(maxlen=_RATE_SPANS_S[-1] + 1)
        self._today: date | None = None
        self._mornings: deque[tuple[int, int]] = deque([(0, 0), (0, 0)], maxlen=2)

    def stored(self, messages: int, size_bytes: int, took_ms: int) -> None:
        """Count an answered put and its latency."""
        self.put_times += messages
        self.put_size_bytes += size_bytes
        self._latencies[bisect_right(_LATENCY_STEPS_MS, took_ms)] += messages
        self.put_longest_ms = max(self.put_longest_ms, took_ms)

    def pulled(self, messages: int) -> None:
        """Count an answered pull with ``messages`` messages."""
        if messages:
            self.found_times += 1
            self.transferred += messages
        else:
            self.missed += 1

    def sample(self, now_ms: int, put_total: int, get_total: int) -> None:
        """Take a sample of the sums. Called once a second. At midnight the totals of the broker are kept too."""
        self._samples.append(_Sample(now_ms, self.put_times, self.found_times, self.missed, self.transferred))
        today = date.fromtimestamp(now_ms / 1000)
        if self._today is not None and today != self._today:
            self._mornings.append((put_total, get_total))
        self._today = today

    def runtime_info(self, now_ms: int) -> dict[str, str]:
        """The statistics under RocketMQ's keys."""
        times = max(self.put_times, 1)
        (put_before, get_before), (put_today, get_today) = self._mornings
        return {
            "bootTimestamp": str(self.boot_timestamp_ms),
            "runtime": _duration(now_ms - self.boot_timestamp_ms),
            "putMessageEntireTimeMax": str(self.put_longest_ms),
            "putMessageTimesTotal": str(times),
            "putMessageFailedTimes": str(self.put_failed),
            "putMessageSizeTotal": str(self.put_size_bytes),
            "putMessageDistributeTime": "".join(
                f"{name}:{count} " for name, count in zip(_LATENCY_NAMES, self._latencies, strict=True)
            ),
            "putMessageAverageSize": str(self.put_size_bytes / times),
            "dispatchMaxBuffer": "0",
            "getMessageEntireTimeMax": "0",
            "putTps": self._rates("put"),
            "getFoundTps": self._rates("found_times"),
            "getMissTps": self._rates("missed"),
            "getTotalTps": self._rates("found_times", "missed"),
            "getTransferredTps": self._rates("transferred"),
            "putLatency99": f"{self._latency(0.99):.2f}",
            "putLatency999": f"{self._latency(0.999):.2f}",
            "msgPutTotalYesterdayMorning": str(put_before),
            "msgPutTotalTodayMorning": str(put_today),
            "msgGetTotalYesterdayMorning": str(get_before),
            "msgGetTotalTodayMorning": str(get_today),
        }

    def _rates(self, *names: str) -> str:
        """The rates over the last 10 s, 60 s and 600 s, as text.

        Before that time has passed it is empty, as in RocketMQ.
        """
        return " ".join(self._rate(span_s, names) for span_s in _RATE_SPANS_S)

    def _rate(self, span_s: int, names: tuple[str, ...]) -> str:
        if len(self._samples) <= span_s:
            return "" if len(names) == 1 else "0.0"
        old, new = self._samples[-span_s - 1], self._samples[-1]
        gained = sum(int(getattr(new, name)) - int(getattr(old, name)) for name in names)
        return str(gained / max((new.time_ms - old.time_ms) / 1000, 0.001))

    def _latency(self, share: float) -> float:
        """The upper bound of the latency step that includes this share of puts, in milliseconds."""
        left = share * sum(self._latencies)
        for step, count in enumerate(self._latencies):
            left -= count
            if left <= 0:
                return float(_LATENCY_STEPS_MS[min(step, len(_LATENCY_STEPS_MS) - 1)]) if count else 0.0
        return 0.0


def _duration(spent_ms: int) -> str:
    seconds = spent_ms // 1000
    return (
        f"[ {seconds // 86_400} days, {seconds // 3600 % 24} hours, "
        f"{seconds // 60 % 60} minutes, {seconds % 60} seconds ]"
    )
