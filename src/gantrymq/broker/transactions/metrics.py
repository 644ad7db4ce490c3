"""How many half messages each topic has that are not decided: ``config/transactionMetrics``.

The numbers are for monitoring alone. A start with a damaged file begins with none.

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
    """TransactionMetrics.Metric."""

    count: Long = 0
    time_stamp: Long = 0


class TransactionMetricsBody(Body, kw_only=True):
    """TransactionMetricsSerializeWrapper."""

    transaction_count: dict[str, TopicMetric] = msgspec.field(default_factory=dict)
    data_version: DataVersion | None = None


class TransactionMetrics:
    """The table. ``edits`` counts changes."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._version = clock, TableVersion(clock)
        self._counts: dict[str, TopicMetric] = {}
        self.edits = 0

    def add(self, topic: str, value: int) -> None:
        """The topic has ``value`` open half messages more."""
        old = self._counts.get(topic)
        count = value + (old.count if old is not None else 0)
        self._counts[topic] = TopicMetric(count=count, time_stamp=self._clock.now_ms())
        self._version.next()
        self.edits += 1

    def count(self, topic: str) -> int:
        """How many half messages of a topic are open."""
        found = self._counts.get(topic)
        return found.count if found is not None else 0

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """Makes what the file holds of the table as it is now; on any thread."""
        body = TransactionMetricsBody(transaction_count=dict(self._counts), data_version=self._version.value)
        return partial(persisted, body)

    def load(self, value: dict[str, Any]) -> None:
        """Take over what the file held; raises msgspec.ValidationError."""
        kept = msgspec.convert(value, TransactionMetricsBody, strict=False)
        self._counts = kept.transaction_count
        if kept.data_version is not None:
            self._version.value = kept.data_version
