"""How much the store has taken and given, how fast, and how long a put took.

Pure: whoever calls brings the time. Thread rule: the event loop's thread.

Source: StoreStatsService, BrokerStats.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from datetime import date
from typing import NamedTuple

_LATENCY_STEPS_MS = (1, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)
_LATENCY_NAMES = (
    *("[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]"),
    *("[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]"),
)
_RATE_SPANS_S = (10, 60, 600)


class _Sample(NamedTuple):
    time_ms: int
    put: int
    found: int
    missed: int
    transferred: int


class StoreStatsService:
    """Sums since the start, sampled once a second."""

    def __init__(self, now_ms: int) -> None:
        self.boot_timestamp_ms = now_ms
        self.put_times = self.put_size_bytes = self.put_failed = self.put_longest_ms = 0
        self.found = self.missed = self.transferred = 0
        self._latencies = [0] * len(_LATENCY_NAMES)
        self._samples: deque[_Sample] = deque(maxlen=_RATE_SPANS_S[-1] + 1)
        self._today: date | None = None
        self._mornings: deque[tuple[int, int]] = deque([(0, 0), (0, 0)], maxlen=2)

    def stored(self, messages: int, size_bytes: int, took_ms: int) -> None:
        """A put was answered, so long after it had come."""
        self.put_times += messages
        self.put_size_bytes += size_bytes
        self._latencies[bisect_right(_LATENCY_STEPS_MS, took_ms)] += messages
        self.put_longest_ms = max(self.put_longest_ms, took_ms)

    def pulled(self, messages: int) -> None:
        """A pull was answered, with so many messages."""
        if messages:
            self.found += 1
            self.transferred += messages
        else:
            self.missed += 1

    def sample(self, now_ms: int, put_total: int, get_total: int) -> None:
        """Keep where the sums are; called once a second. At midnight the totals of the broker are kept too."""
        self._samples.append(_Sample(now_ms, self.put_times, self.found, self.missed, self.transferred))
        today = date.fromtimestamp(now_ms / 1000)
        if self._today is not None and today != self._today:
            self._mornings.append((put_total, get_total))
        self._today = today

    def runtime_info(self, now_ms: int) -> dict[str, str]:
        """RocketMQ's keys."""
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
            "getFoundTps": self._rates("found"),
            "getMissTps": self._rates("missed"),
            "getTotalTps": self._rates("found", "missed"),
            "getTransferredTps": self._rates("transferred"),
            "putLatency99": f"{self._latency(0.99):.2f}",
            "putLatency999": f"{self._latency(0.999):.2f}",
            "msgPutTotalYesterdayMorning": str(put_before),
            "msgPutTotalTodayMorning": str(put_today),
            "msgGetTotalYesterdayMorning": str(get_before),
            "msgGetTotalTodayMorning": str(get_today),
        }

    def _rates(self, *names: str) -> str:
        """Over the last ten seconds, minute and ten minutes; empty where there was none yet, as with RocketMQ."""
        return " ".join(self._rate(span_s, names) for span_s in _RATE_SPANS_S)

    def _rate(self, span_s: int, names: tuple[str, ...]) -> str:
        if len(self._samples) <= span_s:
            return "" if len(names) == 1 else "0.0"
        old, new = self._samples[-span_s - 1], self._samples[-1]
        gained = sum(int(getattr(new, name)) - int(getattr(old, name)) for name in names)
        return str(gained / max((new.time_ms - old.time_ms) / 1000, 0.001))

    def _latency(self, share: float) -> float:
        """The upper bound of the step that this share of puts stayed within, in milliseconds."""
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
