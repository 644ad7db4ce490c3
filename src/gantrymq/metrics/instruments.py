"""Instruments: what is measured, and the series in memory.

A series is a number, or a histogram, for one combination of label values. The code that measures looks its series up
once and keeps it, so a measurement is an addition. The number of series of a metric is limited, as in OpenTelemetry:
the last one that the limit allows is that of the overflow, whose only label is ``otel_metric_overflow="true"``. What
has no series of its own is added to it; of a gauge it has the first such value.

No I/O and no globals. Thread rule: one thread measures and takes snapshots.

Source: OpenTelemetry's SdkMeter, and MetricStorage with its cardinality limit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

# The values of a metric's labels in its order; only this module makes them, of names and values. A label without a
# value (None) is left out of the series.
LabelValues = tuple[str | None, ...]

_UNITS = {"ms": "milliseconds"}
OVERFLOW_LABEL = "otel_metric_overflow"


class Kind(Enum):
    """The kinds of instruments, under Prometheus' names."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """What one instrument measures.

    ``buckets`` are the inclusive upper bounds of a histogram's buckets; a last bucket without a bound follows.
    """

    name: str
    kind: Kind
    description: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    buckets: tuple[int, ...] = ()

    @property
    def prometheus_unit(self) -> str:
        """The unit in Prometheus' words, or an empty text."""
        return _UNITS.get(self.unit, self.unit)

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus' formats, which ends with the unit. A counter's ends with ``_total``."""
        unit = self.prometheus_unit
        return self.name if not unit or self.name.endswith(f"_{unit}") else f"{self.name}_{unit}"

    def values(self, labels: Mapping[str, str | None]) -> LabelValues:
        """Return the values of all labels in the metric's order. Raises ValueError unless exactly its labels are given.

        The obvious way, values by position, fails when a label is added: two metrics have the same labels in different
        orders, and a value too few is noticed by a scrape.
        """
        if labels.keys() != set(self.labels):
            missing, unknown = set(self.labels) - labels.keys(), labels.keys() - set(self.labels)
            raise ValueError(f"labels of {self.name}: missing {sorted(missing)}, unknown {sorted(unknown)}")
        return tuple(map(labels.__getitem__, self.labels))

    def point(self, value: int | float, **labels: str | None) -> Point:
        """Return a value of a gauge with its labels. Raises ValueError as :meth:`values` does."""
        return Point(self.values(labels), value)


class HistogramValue(NamedTuple):
    """The state of a histogram: the number of values in each bucket (not cumulative), and their sum."""

    counts: tuple[int, ...]
    sum: float

    @property
    def total(self) -> int:
        """The number of values."""
        return sum(self.counts)


Value = int | float | HistogramValue


class Point(NamedTuple):
    """The value of one series."""

    labels: LabelValues
    value: Value


@dataclass(frozen=True, slots=True)
class Family:
    """The series of one metric at one time. ``overflow`` is the value of what exceeds the limit, if anything does."""

    metric: Metric
    points: Sequence[Point]
    overflow: Value | None = None


def encodable(text: str) -> str:
    """A label's value without lone surrogates, which a client can send in JSON and UTF-8 cannot express."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class Sum:
    """The series of a counter."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Distribution:
    """The series of a histogram."""

    __slots__ = ("_buckets", "counts", "sum")

    def __init__(self, buckets: tuple[int, ...]) -> None:
        self._buckets = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.sum = 0

    def record(self, value: int, times: int = 1) -> None:
        """Count a value ``times`` times."""
        self.counts[bisect_left(self._buckets, value)] += times
        self.sum += value * times

    def add(self, other: Distribution) -> None:
        """Add the values of another one with the same buckets."""
        self.counts = [mine + more for mine, more in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    @property
    def value(self) -> HistogramValue:
        """The state, as a copy."""
        return HistogramValue(tuple(self.counts), self.sum)


S = TypeVar("S", bound=Sum | Distribution)


class _Instrument(Generic[S]):
    """The series of one metric by the values of their labels, at most ``max_series`` with that of the overflow."""

    def __init__(self, metric: Metric, max_series: int, make: Callable[[], S]) -> None:
        self.metric = metric
        self._max_series, self._make = max_series, make
        self._series: dict[LabelValues, S] = {}
        self._overflow: S | None = None

    @property
    def is_full(self) -> bool:
        """Whether a new combination of label values gets the series of the overflow."""
        return len(self._series) >= self._max_series - 1

    def series(self, **labels: str | None) -> S:
        """The series of these labels. Raises ValueError unless exactly the metric's labels are given."""
        values = self.metric.values(labels)
        series = self._series.get(values)
        if series is not None:
            return series
        if self.is_full:
            if self._overflow is None:
                self._overflow = self._make()
            return self._overflow
        series = self._series[values] = self._make()
        return series

    def forget(self, label: str, values: Collection[str]) -> None:
        """Drop the series whose ``label`` has one of these values, for example of a deleted topic."""
        position = self.metric.labels.index(label)
        for key in [key for key in self._series if key[position] in values]:
            del self._series[key]

    def points(self) -> Iterator[Point]:
        """The series but that of the overflow. Each has its value at the time of its step."""
        for labels, series in list(self._series.items()):
            yield Point(labels, series.value)

    @property
    def overflow(self) -> Value | None:
        """The value of the series of the overflow; None if there was none."""
        return None if self._overflow is None else self._overflow.value

    def family(self) -> Family:
        """A snapshot of the series."""
        return Family(self.metric, list(self.points()), self.overflow)


class Counter(_Instrument[Sum]):
    """Sums that only grow."""

    def __init__(self, metric: Metric, max_series: int) -> None:
        super().__init__(metric, max_series, Sum)


class Histogram(_Instrument[Distribution]):
    """Distributions of values over the buckets of the metric."""

    def __init__(self, metric: Metric, max_series: int) -> None:
        super().__init__(metric, max_series, lambda: Distribution(metric.buckets))


def gauge(metric: Metric, points: Iterable[Point], max_series: int) -> Family:
    """The family of a gauge that was read just now, with at most ``max_series`` series."""
    left = iter(points)
    shown = list(islice(left, max_series - 1))
    above = next(left, None)
    return Family(metric, shown, None if above is None else above.value)


def value_now(metric: Metric, value: int | float, **labels: str | None) -> Family:
    """The family of a gauge with one series."""
    return Family(metric, [metric.point(value, **labels)])
