"""What went through the broker: sums, and rates over the last minute, hour and day.

Pure: whoever calls brings the time. Thread rule: the event loop's thread.

Source: BrokerStatsManager, StatsItem, StatsItemSet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from gantrymq.remoting.bodies.broker import BrokerStatsData, BrokerStatsItem

TOPIC_PUT_NUMS, TOPIC_PUT_SIZE = "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"
GROUP_GET_NUMS, GROUP_GET_SIZE = "GROUP_GET_NUMS", "GROUP_GET_SIZE"
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
_OF_THE_BROKER = ("BROKER_PUT_NUMS", "BROKER_GET_NUMS")

SAMPLE_MS = 10_000
MAX_ITEMS = 20_000
# How many samples each span has, and how far they are apart: as with RocketMQ.
_SPANS = ((7, SAMPLE_MS), (7, 600_000), (25, 3_600_000))


class _Item:
    """One sum with the samples of three spans: (time, sum, times)."""

    __slots__ = ("samples", "times", "value")

    def __init__(self) -> None:
        self.value = self.times = 0
        self.samples: tuple[deque[tuple[int, int, int]], ...] = ()  # made with the first sample

    def sample(self, now_ms: int) -> None:
        if not self.samples:
            self.samples = tuple(deque(maxlen=size) for size, _ in _SPANS)
        for kept, (_, apart_ms) in zip(self.samples, _SPANS, strict=True):
            if not kept:
                kept.append((now_ms - apart_ms, 0, 0))  # what came before the first sample counts
            if now_ms - kept[-1][0] >= apart_ms:
                kept.append((now_ms, self.value, self.times))

    def over(self, span: int, now_ms: int) -> BrokerStatsItem:
        if not self.samples:
            return BrokerStatsItem()
        kept = self.samples[span]
        began_ms, value, times = kept[0]
        gained, took_s = self.value - value, (now_ms - began_ms) / 1000
        average = gained / (self.times - times) if self.times > times else 0.0
        return BrokerStatsItem(sum=gained, tps=gained / took_s if took_s > 0 else 0.0, avgpt=average)


class BrokerStatsManager:
    """Sums by kind and key: a topic, ``topic@group``, or for those of the whole broker its ``cluster``."""

    def __init__(self, cluster: str = "DefaultCluster") -> None:
        self._cluster = cluster
        self._items: dict[tuple[str, str], _Item] = {}
        self._put_items: dict[str, tuple[_Item, _Item]] = {}  # those two of a topic that each put changes
        self.put_total = self.get_total = 0

    def add(self, kind: str, key: str, value: int, times: int = 1) -> None:
        """Count ``value`` more."""
        item = self._item(kind, key)
        item.value += value
        item.times += times

    def _item(self, kind: str, key: str) -> _Item:
        item = self._items.get((kind, key))
        if item is None:
            if len(self._items) >= MAX_ITEMS:
                return _Item()  # counted nowhere: strangers choose the names of topics and groups
            item = self._items[kind, key] = _Item()
        return item

    def put(self, topic: str, messages: int, size_bytes: int, puts: int = 1) -> None:
        """Messages were stored, of so many requests."""
        self.put_total += messages
        items = self._put_items.get(topic)
        if items is None:
            items = self._item(TOPIC_PUT_NUMS, topic), self._item(TOPIC_PUT_SIZE, topic)
            if (TOPIC_PUT_SIZE, topic) in self._items:
                self._put_items[topic] = items
        for item, value in zip(items, (messages, size_bytes), strict=True):
            item.value += value
            item.times += puts

    def got(self, group: str, topic: str, messages: int, size_bytes: int) -> None:
        """Messages went to a group."""
        self.get_total += messages
        self.add(GROUP_GET_NUMS, f"{topic}@{group}", messages)
        self.add(GROUP_GET_SIZE, f"{topic}@{group}", size_bytes)

    def sample(self, now_ms: int) -> None:
        """Keep where every sum is."""
        for _ in self.samples(now_ms):
            pass

    def samples(self, now_ms: int) -> Iterator[None]:
        """The same item by item, for a caller that lets others in between; called every ten seconds."""
        self._count_totals()
        for item in list(self._items.values()):
            item.sample(now_ms)
            yield

    def view(self, kind: str, key: str, now_ms: int) -> BrokerStatsData | None:
        """The sums and rates of a key, or None where nothing was counted (viewBrokerStatsData)."""
        self._count_totals()
        item = self._items.get((kind, key))
        if item is None:
            return None
        minute, hour, day = (item.over(span, now_ms) for span in range(len(_SPANS)))
        return BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day)

    def _count_totals(self) -> None:
        """Here, and not where messages are counted, which would take time with each of them."""
        for kind, total in zip(_OF_THE_BROKER, (self.put_total, self.get_total), strict=True):
            if total:
                self._item(kind, self._cluster).value = total

    def tps(self, kind: str, key: str, now_ms: int) -> float:
        """The rate over the last minute."""
        item = self._items.get((kind, key))
        return item.over(0, now_ms).tps if item is not None else 0.0

    def forget(self, keys: Iterable[str]) -> None:
        """A topic or a group is gone."""
        gone = set(keys)
        self._put_items.clear()
        for kind, key in list(self._items):
            if kind not in _OF_THE_BROKER and gone.intersection(key.split("@")):
                del self._items[kind, key]
