"""What the broker measures: RocketMQ's statistics, those of its store, and the exported metrics.

A send and a delivery count in all three. A processor reports such an event once, and here it is counted everywhere.
What only one of the three counts is reported to that one.

Thread rule: the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from gantrymq.broker.appends.send_runs import WireSends
from gantrymq.broker.metrics.meter import BrokerMeter
from gantrymq.broker.statistics import BrokerStatsManager, StoreStatsService
from gantrymq.store.put_result import PutMessageResult


@dataclass(frozen=True, slots=True)
class Measures:
    """The statistics of the broker and of its store, and the meter of the exported metrics."""

    stats: BrokerStatsManager
    store: StoreStatsService
    meter: BrokerMeter

    def stored(self, result: PutMessageResult, properties: str | None) -> None:
        """Count a send that was stored. ``properties`` are those of its request."""
        self.stats.put(result.topic, result.count, result.size_bytes)
        self.meter.stored(result, properties)

    def stored_run(self, sends: WireSends, result: PutMessageResult) -> None:
        """Count a run of sends that was stored."""
        count = len(sends.run)
        self.stats.put(sends.topic, count, result.size_bytes, puts=count)
        self.meter.stored_run(sends, result)

    def delivered(
        self,
        group: str,
        topic: str,
        messages: int,
        size_bytes: int,
        *,
        stored_in: str | None = None,
        is_retry: bool | None = None,
    ) -> None:
        """Count messages that were delivered to a group.

        A pop says whether they are from a retry topic. The statistics then count them for that topic, ``stored_in``.
        """
        self.stats.got(group, stored_in or topic, messages, size_bytes)
        self.meter.got(group, topic, messages, size_bytes, is_retry=is_retry)
        self.store.pulled(messages)

    def peeked(self, group: str, topic: str, messages: int, size_bytes: int, *, is_retry: bool) -> None:
        """Count messages that were shown to a group. The meter counts none of a retry topic."""
        self.stats.got(group, topic, messages, size_bytes)
        if not is_retry:
            self.meter.got(group, topic, messages, size_bytes)
        self.store.pulled(messages)

    def delivered_none(self) -> None:
        """Count a pull without a message."""
        self.store.pulled(0)

    def forgotten(self, *, topics: Collection[str] = (), groups: Collection[str] = ()) -> None:
        """Drop the counts of deleted topics and groups."""
        self.stats.forget([*topics, *groups])
        if topics:
            self.meter.forget_topics(topics)
        if groups:
            self.meter.forget_groups(groups)
