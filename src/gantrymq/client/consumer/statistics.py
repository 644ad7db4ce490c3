"""The rates of a consumer by topic: pulls and consumption over the last minute, failures over the last hour.

Source: ConsumerStatsManager, StatsItemSet.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from gantrymq.remoting.bodies.client import ConsumeStatus

_SAMPLE_MS = 10_000
_MINUTE = 6  # samples
_HOUR = 360


@dataclass(slots=True)
class _Counts:
    at_ms: int = 0
    pulls: int = 0
    pull_ms: float = 0.0
    pulled: int = 0
    consumed: int = 0
    consume_ms: float = 0.0
    succeeded: int = 0
    failed: int = 0


@dataclass(slots=True)
class _Topic:
    now: _Counts
    samples: deque[_Counts] = field(default_factory=lambda: deque(maxlen=_HOUR))


class ConsumerStatistics:
    """Counts pulls and listener calls. Times are milliseconds of a monotonic clock.

    Thread rule: the event loop's thread.
    """

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {}

    def pulled(self, topic: str, messages: int, took_ms: float, now_ms: int) -> None:
        """Count a pull that brought messages."""
        counts = self._counts(topic, now_ms)
        counts.pulls += 1
        counts.pull_ms += took_ms
        counts.pulled += messages

    def consumed(self, topic: str, succeeded: int, failed: int, took_ms: float, now_ms: int) -> None:
        """Count a finished listener call."""
        counts = self._counts(topic, now_ms)
        counts.consumed += 1
        counts.consume_ms += took_ms
        counts.succeeded += succeeded
        counts.failed += failed

    def status(self, topic: str, now_ms: int) -> ConsumeStatus:
        """A topic's part of the answer to GET_CONSUMER_RUNNING_INFO."""
        now = self._counts(topic, now_ms)
        samples = self._topics[topic].samples
        then = samples[-_MINUTE] if len(samples) >= _MINUTE else samples[0]
        seconds = max((now_ms - then.at_ms) / 1000, 1.0)
        return ConsumeStatus(
            pull_rt=_average(now.pull_ms - then.pull_ms, now.pulls - then.pulls),
            pull_tps=(now.pulled - then.pulled) / seconds,
            consume_rt=_average(now.consume_ms - then.consume_ms, now.consumed - then.consumed),
            consume_ok_tps=(now.succeeded - then.succeeded) / seconds,
            consume_failed_tps=(now.failed - then.failed) / seconds,
            consume_failed_msgs=now.failed - samples[0].failed,
        )

    def _counts(self, topic: str, now_ms: int) -> _Counts:
        counts = self._topics.get(topic)
        if counts is None:
            counts = self._topics[topic] = _Topic(_Counts(now_ms))
            counts.samples.append(_Counts(now_ms))
        if now_ms - counts.samples[-1].at_ms >= _SAMPLE_MS:
            counts.samples.append(replace(counts.now, at_ms=now_ms))
        return counts.now


def _average(total: float, times: int) -> float:
    return total / times if times else 0.0
