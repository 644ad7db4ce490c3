"""The number of open half messages of each topic: ``config/transactionMetrics``.

The numbers are only for monitoring. A damaged file counts as an empty one.

Thread rule: the event loop's thread.

Source: TransactionMetrics.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from gantrymq.broker.tables.versioned_table import TableVersion, persisted
from gantrymq.clock import Clock
from gantrymq.remoting.bodies.topic import DataVersion
from gantrymq.remoting.body import Body
from gantrymq.remoting.header import Long


class TopicMetric(Body, kw_only=True):
    """The open half messages of a topic, and the time of the last change (TransactionMetrics.Metric)."""

    count: Long = 0
    time_stamp: Long = 0


class TransactionMetricsBody(Body, kw_only=True):
    """The contents of the file (TransactionMetricsSerializeWrapper)."""

    transaction_count: dict[str, TopicMetric] = msgspec.field(default_factory=dict)
    data_version: DataVersion | None = None


class TransactionMetrics:
    """The table. ``edits`` counts changes."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._version = clock, TableVersion(clock)
        self._counts: dict[str, TopicMetric] = {}
        self.edits = 0

    def add(self, topic: str, value: int) -> None:
        """Add ``value``, which may be negative, to the number of a topic.

        The number does not go below 0: the file of a killed broker lacks its last half messages, and those of a deleted
        topic are not counted.
        """
        old = self._counts.get(topic)
        if old is None and value < 0:
            return
        count = max(value + (old.count if old is not None else 0), 0)
        self._counts[topic] = TopicMetric(count=count, time_stamp=self._clock.now_ms())
        self._version.next()
        self.edits += 1

    def forget(self, topic: str) -> None:
        """Drop the number of a deleted topic."""
        if self._counts.pop(topic, None) is not None:
            self._version.next()
            self.edits += 1

    def count(self, topic: str) -> int:
        """The number of open half messages of a topic."""
        metric = self._counts.get(topic)
        return metric.count if metric is not None else 0

    def counts(self) -> dict[str, int]:
        """The number of open half messages of each topic."""
        return {topic: metric.count for topic, metric in self._counts.items()}

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """A function that encodes the table as it is now. Call the function on any thread."""
        body = TransactionMetricsBody(transaction_count=dict(self._counts), data_version=self._version.value)
        return partial(persisted, body)

    def load(self, value: dict[str, Any]) -> None:
        """Load the contents of the file. Raises msgspec.ValidationError."""
        saved = msgspec.convert(value, TransactionMetricsBody, strict=False)
        self._counts = {topic: metric for topic, metric in saved.transaction_count.items() if metric.count >= 0}
        if saved.data_version is not None:
            self._version.value = saved.data_version
