"""A topic as a view: the queues of all its brokers, read as far as a query needs them.

A query that names only the columns of the queue itself (``QUEUE_COLUMNS``, so also ``count(*)``) is answered from the
units of the queues, without the log. Otherwise a queue is read in blocks of ``BLOCK_MESSAGES``; blocks that the filter
excludes by broker, queue, offset or time are not read. Of a block the columns of the filter are made first, and the
others for the rows that pass: a body that is not wanted is not decompressed.

Store times rise along a queue unless a clock was set back. A block counts as excluded by time only if its first and
last times are an hour away, and only in a queue whose blocks rise.

Thread rule: a scan belongs to one thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from gantrymq.errors import CorruptRecordError
from gantrymq.kernels.arrays import Int64s
from gantrymq.tables.query.pushdown import ScannedView, columns_of, matching_rows, not_excluded
from gantrymq.tools.arrow import (
    MESSAGE_SCHEMA,
    ArrowBatches,
    LogBatch,
    keys_column,
    numbers_array,
    texts_array,
    truths_of,
)

_NAMES = (
    *("broker", "topic", "queue_id", "queue_offset", "generation", "msg_id", "keys", "tags", "properties"),
    *("born_timestamp", "store_timestamp", "body"),
)
GENERATION = pa.field("generation", pa.int32())
TOPIC_SCHEMA = pa.schema(
    [GENERATION if name == "generation" else MESSAGE_SCHEMA.field(name).with_nullable(True) for name in _NAMES]
)
QUEUE_COLUMNS = frozenset({"broker", "topic", "queue_id", "queue_offset", "generation"})
BLOCK_MESSAGES = 16_384
_CLOCK_SLACK_MS = 3_600_000
_MAX_MS = 1 << 52  # later times of a damaged record are no timestamps of Arrow
_MAX_TEXTS = 20


@dataclass(slots=True)
class SkippedMessages:
    """The messages that a query could not read: how many, and the first ``texts``."""

    count: int = 0
    texts: list[str] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def add_slots(self, queue: QueueSource, topic: str, slots: Int64s, reason: str) -> None:
        """Add messages of a queue by their offsets."""
        first, last = int(slots[0]), int(slots[-1])
        at = f"offset {first}" if len(slots) == 1 else f"{len(slots)} of the offsets {first} to {last}"
        self.add(len(slots), f"topic {topic}, broker {queue.broker}, queue {queue.queue_id}, {at}: {reason}")

    def add(self, count: int, text: str) -> None:
        """Add some messages, unless another scan of the query has named the same."""
        if text in self._seen:
            return
        self._seen.add(text)
        self.count += count
        if len(self.texts) < _MAX_TEXTS:
            self.texts.append(text)


class QueueSource(ABC):
    """One queue, open for a scan. Offsets from ``low`` to before ``high`` have messages, or gaps."""

    broker: str
    queue_id: int
    low: int
    high: int

    @abstractmethod
    def offsets(self, low: int, high: int) -> Int64s:
        """The queue offsets of the messages from ``low`` to before ``high``."""
        ...

    @abstractmethod
    def times_ms(self, offsets: Sequence[int]) -> list[int | None]:
        """The store times of the messages at some offsets; None where it is unknown."""
        ...


class QueuePart(NamedTuple):
    """The messages of a queue from ``low`` to before ``high``."""

    queue: QueueSource
    low: int
    high: int


class QueueGroup(ABC):
    """The queues of a topic at one broker, open for a scan."""

    broker: str
    queues: list[QueueSource]

    @abstractmethod
    def records(self, parts: Sequence[QueuePart], *, checks_bodies: bool) -> Iterator[LogBatch]:
        """Yield the messages of some parts; a batch is valid until the next one.

        ``checks_bodies``: skip messages whose CRC is wrong.
        """
        ...


OpenQueues = Callable[[], AbstractContextManager[list[QueueGroup]]]


class TopicView(ScannedView):
    """The view of ``topic``. ``keys``: the query takes only messages that have one of them (None: any)."""

    def __init__(
        self,
        topic: str,
        open_queues: Sequence[OpenQueues],
        skipped: SkippedMessages,
        keys: frozenset[str] | None,
        max_body_bytes: int,
    ) -> None:
        super().__init__(TOPIC_SCHEMA)
        self._topic = topic
        self._open_queues = open_queues
        self._skipped = skipped
        self._keys = keys
        self._max_body_bytes = max_body_bytes

    def read(self, columns: list[str], condition: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows, broker by broker and queue by queue."""
        tested = columns_of(condition, TOPIC_SCHEMA)
        for open_queues in self._open_queues:
            with open_queues() as groups:
                for group in groups:
                    yield from self._group_rows(group, columns, tested, condition)

    def _group_rows(
        self, group: QueueGroup, columns: list[str], tested: list[str], condition: Any
    ) -> Iterator[pa.RecordBatch]:
        guarantees = [self._guarantee(queue, queue.low, queue.high) for queue in group.queues]
        chosen = [group.queues[number] for number in not_excluded(guarantees, condition, TOPIC_SCHEMA)]
        parts = [part for queue in chosen for part in self._parts(queue, tested, condition)]
        if self._keys is None and QUEUE_COLUMNS.issuperset({*columns, *tested}):
            for part in parts:
                yield from self._unit_rows(part, columns, tested, condition)
        elif parts:
            rows = _MessageRows(self, group.broker, columns, tested, condition)
            for batch in group.records(parts, checks_bodies="body" in rows.made):
                yield from rows.of(batch)

    def _guarantee(self, queue: QueueSource, low: int, high: int) -> Any:
        return (
            (ds.field("broker") == queue.broker)
            & (ds.field("topic") == self._topic)
            & (ds.field("queue_id") == queue.queue_id)
            & (ds.field("generation") == 0)
            & (ds.field("queue_offset") >= low)
            & (ds.field("queue_offset") < high)
        )

    def _parts(self, queue: QueueSource, tested: list[str], condition: Any) -> list[QueuePart]:
        """The blocks of a queue that the condition does not exclude."""
        lows = range(queue.low, queue.high, BLOCK_MESSAGES)
        parts = [QueuePart(queue, low, min(low + BLOCK_MESSAGES, queue.high)) for low in lows]
        if "queue_offset" not in tested and "store_timestamp" not in tested:
            return parts
        times = _part_times(queue, parts) if "store_timestamp" in tested else None
        guarantees = [self._guarantee(*part) for part in parts]
        if times is not None:
            guarantees = [held & _in_time(*time) for held, time in zip(guarantees, times, strict=True)]
        return [parts[number] for number in not_excluded(guarantees, condition, TOPIC_SCHEMA)]

    def _unit_rows(
        self, part: QueuePart, columns: list[str], tested: list[str], condition: Any
    ) -> Iterator[pa.RecordBatch]:
        queue, offsets = part.queue, part.queue.offsets(part.low, part.high)
        zeros = np.zeros(len(offsets), np.int64)
        makers: dict[str, Callable[[], pa.Array]] = {
            "broker": lambda: _repeated(queue.broker, BLOCK_MESSAGES).slice(0, len(offsets)),
            "topic": lambda: _repeated(self._topic, BLOCK_MESSAGES).slice(0, len(offsets)),
            "queue_id": lambda: numbers_array(np.full(len(offsets), queue.queue_id, np.int32)),
            "queue_offset": lambda: numbers_array(offsets),
            "generation": lambda: numbers_array(zeros.astype(np.int32)),
        }
        names = list(dict.fromkeys([*columns, *tested]))
        batch = pa.RecordBatch.from_arrays([makers[name]() for name in names], schema=_schema_of(names))
        if condition is not None:
            batch = batch.take(matching_rows(batch, condition))
        yield batch.select(columns)


class _MessageRows:
    """Makes the rows of a queue's records."""

    def __init__(self, view: TopicView, broker: str, columns: list[str], tested: list[str], condition: Any) -> None:
        self._view, self._columns, self._condition = view, columns, condition
        self._where = f"topic {view._topic}, broker {broker}"
        # A test of bodies needs them all. Otherwise the test comes first, with its columns alone.
        tests_bodies = "body" in tested
        self.made = list(dict.fromkeys([*columns, *tested])) if tests_bodies else columns
        self._test = self._batches(tested, broker) if tested and not tests_bodies else None
        self._make = self._batches(self.made, broker)

    def _batches(self, names: list[str], broker: str) -> ArrowBatches:
        return ArrowBatches(
            _schema_of(names),
            decompress=True,
            broker_name=broker,
            refuse=self._refuse,
            max_decompressed_body_size=self._view._max_body_bytes,
            builders={"generation": lambda batch, kind: numbers_array(np.zeros(batch.count, np.int32))},
        )

    def _refuse(self, error: CorruptRecordError) -> None:
        self._view._skipped.add(1, f"{self._where}: {error}")

    def of(self, batch: LogBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch that pass."""
        if self._view._keys is not None:
            batch = batch.take(has_key(batch, self._view._keys))
        if self._test is not None and batch.count:
            (tested,) = self._test.convert(batch)
            passes = np.zeros(batch.count, np.bool_)
            passes[matching_rows(tested, self._condition).to_numpy()] = True
            batch = batch.take(passes)
        if not batch.count:
            return
        for rows in self._make.convert(batch):
            if self._condition is not None and self._test is None:
                rows = rows.take(matching_rows(rows, self._condition))
            yield rows.select(self._columns)


@lru_cache(maxsize=16)
def _repeated(text: str, count: int) -> pa.Array:
    """A text for each message of a block."""
    return texts_array([text]).take(numbers_array(np.zeros(count, np.int64)))


def _schema_of(names: list[str]) -> pa.Schema:
    return pa.schema([TOPIC_SCHEMA.field(name) for name in names])


def has_key(batch: LogBatch, keys: frozenset[str]) -> Any:
    """Which records have one of ``keys`` (bool, ``batch.count`` long)."""
    lists = keys_column(batch)
    matches = truths_of(pc.is_in(lists.values, value_set=texts_array(sorted(keys))))
    ends = np.frombuffer(lists.offsets.buffers()[1], np.int32, len(lists) + 1)
    wanted = np.zeros(batch.count, np.bool_)
    wanted[np.searchsorted(ends, np.flatnonzero(matches), side="right") - 1] = True
    return wanted


def _part_times(queue: QueueSource, parts: Sequence[QueuePart]) -> list[tuple[int, int]] | None:
    """The first and the last store time of each part; None if they are unknown, or go back along the queue."""
    times = queue.times_ms([offset for part in parts for offset in (part.low, part.high - 1)])
    known = [time for time in times if time is not None]
    if len(known) < len(times) or known != sorted(known) or max(map(abs, known), default=0) > _MAX_MS:
        return None
    return list(zip(known[::2], known[1::2], strict=True))


def _in_time(first_ms: int, last_ms: int) -> Any:
    kind = TOPIC_SCHEMA.field("store_timestamp").type
    low, high = (pa.scalar(time_ms * 1000, kind) for time_ms in (first_ms - _CLOCK_SLACK_MS, last_ms + _CLOCK_SLACK_MS))
    return (ds.field("store_timestamp") >= low) & (ds.field("store_timestamp") <= high)
