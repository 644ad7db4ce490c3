"""The metrics of a landing: what it has landed, how long commits take, and how far it is behind.

Thread rule: any thread.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence

from gantrymq.clock import Clock
from gantrymq.metrics.exporter import NODE_ID, NODE_TYPE
from gantrymq.metrics.instruments import Counter, Family, Histogram, Kind, Metric, encodable, gauge
from gantrymq.tables.landing import Commit
from gantrymq.tables.sources.steps import Lag

_TABLE = ("table",)
_MAX_SERIES = 50_000

ROWS = Metric("gantrymq_table_rows_total", Kind.COUNTER, "Rows that were landed.", _TABLE)
DEAD = Metric("gantrymq_table_dead_rows_total", Kind.COUNTER, "Messages that became dead rows.", _TABLE)
MISSING = Metric("gantrymq_table_missing_messages_total", Kind.COUNTER, "Messages that are named as gone.", _TABLE)
COMMIT_LATENCY = Metric(
    "gantrymq_table_commit_latency",
    Kind.HISTOGRAM,
    "The time from the read of the first message of a commit until the commit is durable.",
    _TABLE,
    "milliseconds",
    (100, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000),
)
LAG_MESSAGES = Metric("gantrymq_table_lag_messages", Kind.GAUGE, "Messages that were not landed yet.", _TABLE)
LAG_SIZE = Metric("gantrymq_table_lag", Kind.GAUGE, "The size of their records.", _TABLE, "bytes")
LAG_LATENCY = Metric("gantrymq_table_lag_latency", Kind.GAUGE, "The age of the oldest of them.", _TABLE, "seconds")
LAST_PASS = Metric(
    "gantrymq_table_last_pass_timestamp",
    Kind.GAUGE,
    "When a pass last ended with everything landed that was there, in seconds since 1970. The lag is of that time.",
    _TABLE,
    "seconds",
)
FAILED_PASSES = Metric(
    "gantrymq_table_failed_passes_total", Kind.COUNTER, "Passes that failed and are tried again.", ()
)
ALL = (ROWS, DEAD, MISSING, COMMIT_LATENCY, LAG_MESSAGES, LAG_SIZE, LAG_LATENCY, LAST_PASS, FAILED_PASSES)


class LandingMetrics:
    """The metrics of the tables of one command."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rows, self._dead, self._missing = (Counter(metric, _MAX_SERIES) for metric in (ROWS, DEAD, MISSING))
        self._latency = Histogram(COMMIT_LATENCY, _MAX_SERIES)
        self._failed = Counter(FAILED_PASSES, _MAX_SERIES)
        self._failed.series()
        self._lags: dict[str, Lag] = {}
        self._passes_s: dict[str, float] = {}

    @property
    def node(self) -> dict[str, str]:
        """The labels of every series."""
        return {NODE_TYPE: "lander", NODE_ID: socket.gethostname()}

    def committed(self, table: str, commit: Commit, took_s: float) -> None:
        """Count a commit."""
        with self._lock:
            label = encodable(table)
            self._rows.series(table=label).value += commit.totals.rows
            self._dead.series(table=label).value += commit.totals.dead
            self._missing.series(table=label).value += commit.totals.missing
            self._latency.series(table=label).record(int(took_s * 1000))
            self._lags[label] = commit.lag

    def passed(self, table: str, commits: int) -> None:
        """Note the end of a pass. One without a commit has found nothing new."""
        with self._lock:
            label = encodable(table)
            for counter in (self._rows, self._dead, self._missing):
                counter.series(table=label)
            if not commits:
                self._lags[label] = Lag()
            self._passes_s[label] = self._clock.now_ms() / 1000

    def failed(self) -> None:
        """Count a pass that is tried again."""
        with self._lock:
            self._failed.series().value += 1

    def families(self) -> Sequence[Family]:
        """A snapshot."""
        with self._lock:
            lags = self._lags.items()
            return [
                *(counter.family() for counter in (self._rows, self._dead, self._missing, self._latency, self._failed)),
                gauge(LAG_MESSAGES, (LAG_MESSAGES.point(lag.messages, table=name) for name, lag in lags), _MAX_SERIES),
                gauge(LAG_SIZE, (LAG_SIZE.point(lag.size_bytes, table=name) for name, lag in lags), _MAX_SERIES),
                gauge(LAG_LATENCY, (LAG_LATENCY.point(lag.seconds, table=name) for name, lag in lags), _MAX_SERIES),
                gauge(
                    LAST_PASS, (LAST_PASS.point(at_s, table=name) for name, at_s in self._passes_s.items()), _MAX_SERIES
                ),
            ]
