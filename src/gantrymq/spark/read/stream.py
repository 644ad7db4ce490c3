"""The micro-batch reader. One lives as long as its query, in a Python process beside the driver.

Offsets are kept for each queue. A trigger reads only what was appended since the last one, to find the current ends of
the queues. A batch is determined by its two offsets alone, so that it is the same when Spark repeats it. A queue that
is not in the first offset is read from 0.

The order of Spark's first calls depends on its release. 4.0 and 4.1 ask for the end of the first batch before its
start, and give no start. 4.2 and 4.3 ask for the start twice. All ask again at a restart inside the first batch. To
answer with the ends of the queues each time would give a start after the end, or skip the messages in between. So the
first answer is kept here, and in the end of the first batch for a restart.

Spark's Python API has only single limits, so maximum, minimum and delay are combined here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from gantrymq.errors import ConfigError
from gantrymq.spark.options import ReadOptions
from gantrymq.spark.plan.origin import QueueExtent
from gantrymq.spark.plan.stream_offsets import (
    Json,
    end_of_first,
    first,
    from_json,
    is_first,
    marks_of,
    start_of_batch,
    to_json,
)
from gantrymq.spark.pyspark_api import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
    has_stream_limits,
    needs,
)
from gantrymq.spark.read.batch import read_partition

if TYPE_CHECKING:
    import pyarrow as pa

    from gantrymq.spark.plan.origin import Extents, Marks, Offsets, Origin

_LOGGER = logging.getLogger(__name__)


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the columns of ``schema``, which was checked before."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._open: Origin | None = None
        self._extents: Extents = {}
        self._target: Offsets | None = None
        self._last_batch_s = float("-inf")
        self._reached: Offsets = {}
        self._first: Json | None = None
        self._last_end: dict[str, Any] | None = None

    # On the driver

    def initialOffset(self) -> dict[str, Any]:
        """The offsets at which a new query begins, the same at each call. Raises ConfigError, DataLossError."""
        self._require_limits()
        return first(self._first_answer())

    def _first_answer(self) -> Json:
        """The start of the query, by what an earlier call saw of the queues, or by what is there now."""
        from gantrymq.spark.plan.boundaries import starting

        if self._first is None:
            extents = self._extents or self._refresh()
            began = starting(self._options, self._origin, extents, streaming=True)
            self._reached = {**began, **self._reached}
            self._first = to_json(began, self._origin.marks(began, {}))
        return self._first

    def _require_limits(self) -> None:
        """Raise GantrymqError for options that this PySpark cannot apply.

        Call it early: PySpark 4.0 and 4.1 hide errors that are raised later.
        """
        limits = self._options.stream_limits
        if limits and not has_stream_limits():
            raise needs(f"the option {limits[0]} of a stream", "4.2")

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of the options; the maximum if there are both a maximum and a minimum."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the current ends of the queues as the end of the query."""
        self._target = _ends(self._refresh())

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """The end of the next batch; ``start`` itself if there is nothing to read.

        Without ``start``, as PySpark calls it before 4.2, the ends of the queues. Raises DataLossError, StoreError.
        """
        if start is None:
            return self._ends_now()
        end = self._end_after(start, limit)
        return end_of_first(start, end) if is_first(start) else end

    def _ends_now(self) -> dict[str, Any]:
        """The ends of the queues; the same object as before if nothing was appended.

        The first call of a reader may be that of a new query, or of one that resumes with ``Trigger.AvailableNow``. It
        gives the start in either case. Only a new query uses it, and is told by initialOffset what is wrong with it.
        """
        from gantrymq.spark.data_loss import DataLossError

        self._require_limits()
        self._reached = {**self._reached, **_ends(self._refresh())}
        end: dict[str, Any] = to_json(self._reached, self._origin.marks(self._reached, {}))
        if self._last_end is None:
            with suppress(ConfigError, DataLossError):
                end = end_of_first(self._first_answer(), end)
        elif end == end_of_first(self._last_end, self._last_end):
            return self._last_end
        self._last_end = end
        return end

    def _end_after(self, start: dict[str, Any], limit: ReadLimit | None) -> dict[str, Any]:
        from gantrymq.spark.data_loss import settle_resets, within

        began, marks, before = from_json(start), marks_of(start), self._extents
        extents = self._refresh()
        resets = self._origin.resets(began, marks)
        moved = settle_resets(resets, extents, self._options.reset_policy)
        self._report_cut(before, began, moved)
        if moved:  # a batch without rows, which records the new start of these queues
            return self._json({**began, **moved}, marks)
        latest = _ends(extents) if self._target is None else self._target
        # Keep the offset of a queue that is not visible now, or that the snapshot for AvailableNow lacks.
        latest = {**began, **latest}
        reading = within(_from_first(began, latest), extents, fail=self._options.fail_on_data_loss)
        latest = self._not_beyond(extents, latest)  # a queue may have been cut or recreated since a snapshot
        waiting = sum(max(end - reading[key], 0) for key, end in latest.items())
        if not waiting and any(latest[key] < offset for key, offset in began.items()):
            return self._json(latest, marks)  # an accepted cut: the queue is read from its new end
        if not waiting or self._must_wait(waiting, limit):
            return start
        self._last_batch_s = time.monotonic()
        latest = self._limited(reading, latest, waiting, limit)
        _LOGGER.info("%d messages wait in %d queues; limit %s", waiting, len(latest), limit)
        return self._json(latest, marks)

    def _limited(self, reading: Offsets, latest: Offsets, waiting: int, limit: ReadLimit | None) -> Offsets:
        """The part of ``latest`` that the options allow in one batch."""
        rows, size_bytes = self._options.max_offsets_per_trigger, self._options.max_bytes_per_trigger
        if isinstance(limit, ReadAllAvailable):
            return latest
        limited = dict(latest)
        if rows is not None and waiting > rows:
            limited |= self._origin.advance(reading, latest, rows)
        if size_bytes is not None:
            for key, offset in self._origin.advance_bytes(reading, latest, size_bytes).items():
                limited[key] = min(limited[key], offset)
        return limited

    def _json(self, offsets: Offsets, marks: Marks) -> Json:
        return to_json(offsets, self._origin.marks(offsets, marks))

    def _report_cut(self, before: Extents, began: Offsets, moved: Offsets) -> None:
        """Report messages that the last refresh saw, that no batch had yet, and that are gone now.

        Raises DataLossError, or logs. A broker that is away is not a loss: its messages wait.
        """
        from gantrymq.spark.data_loss import missing, report

        if self._target is not None:  # the target of AvailableNow is checked instead
            return
        losses = []
        for key, old in before.items():
            extent = self._extents.get(key)
            if key in moved or (extent is None and not self._options.path):
                continue
            low = max(began.get(key, 0), extent.max_offset if extent is not None else old.min_offset)
            if low < old.max_offset:
                losses.append(f"{key}: {missing(low, old.max_offset)}")
        report(losses, fail=self._options.fail_on_data_loss)

    def _must_wait(self, waiting: int, limit: ReadLimit | None) -> bool:
        """Whether there are too few messages for a batch (minOffsetsPerTrigger, maxTriggerDelay)."""
        minimum = self._options.min_offsets_per_trigger
        if minimum is None or waiting >= minimum or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        return time.monotonic() - self._last_batch_s < self._options.max_trigger_delay_ms / 1000

    def reportLatestOffset(self) -> Json | None:
        """The ends of the queues at the last refresh, for the query's progress."""
        return to_json(_ends(self._extents)) if self._extents else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The partitions of a batch. Raises DataLossError if messages of it are gone."""
        from gantrymq.spark.data_loss import within
        from gantrymq.spark.selection import tag_filter

        self._last_end = end
        start = start_of_batch(start, end)
        began, ends = from_json(start), from_json(end)
        if is_first(start):  # asked for after the end of its batch: nothing lies beyond the end
            began = {key: min(offset, ends[key]) for key, offset in began.items() if key in ends}
        extents = self._extents or self._refresh()
        if any(key not in extents or extents[key].max_offset < offset for key, offset in ends.items()):
            extents = self._refresh()
        # A batch ends before it begins if latestOffset has settled a reset: it has no rows of that queue.
        begins = {key: min(offset, ends[key]) for key, offset in _from_first(began, ends).items()}
        for key in self._resets_of_a_batch(began, ends, marks_of(start), marks_of(end)):
            begins[key] = ends[key]
        begins = within(begins, extents, fail=self._options.fail_on_data_loss)
        ends = self._not_beyond(extents, ends)
        self._reached = {**self._reached, **ends}
        rows = tag_filter(self._options.tags, self._options.keys)
        return [InputPartition(part) for part in self._origin.partitions(begins, ends, rows or None)]

    def _resets_of_a_batch(self, began: Offsets, ends: Offsets, marks: Marks, end_marks: Marks) -> Offsets:
        """The queues of a batch that were reset, whose planned messages are gone. Raises DataLossError, StoreError.

        A queue of which nothing was read before the batch is recognized by the end of the batch.
        """
        from gantrymq.spark.data_loss import ends_before, settle_resets

        resets = {
            key: reason
            for key, reason in self._origin.resets({**dict.fromkeys(ends, 0), **began}, marks).items()
            if began[key] < ends.get(key, began[key])
        }
        unread = {key: end for key, end in ends.items() if not began.get(key) and key in self._extents}
        unread = {key: end for key, end in unread.items() if end <= self._extents[key].max_offset}
        resets |= self._origin.resets(unread, end_marks)
        policy = self._options.reset_policy
        if not has_stream_limits():  # latestOffset has no start in this release
            policy = "fail"
            resets |= {
                key: ends_before(offset, QueueExtent(0, ends.get(key, 0)))
                for key, offset in began.items()
                if ends.get(key, 0) < offset
            }
        return settle_resets(resets, self._extents, policy)

    def _not_beyond(self, extents: Extents, ends: Offsets) -> Offsets:
        """``ends`` limited to the ends of the queues. Raises DataLossError, or logs what is lost."""
        from gantrymq.spark.data_loss import within

        reach = {key: extent._replace(min_offset=0) for key, extent in extents.items()}
        return within(ends, reach, fail=self._options.fail_on_data_loss)

    def stop(self) -> None:
        """Close what is open."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _refresh(self) -> Extents:
        self._extents = self._origin.extents()
        return self._extents

    @property
    def _origin(self) -> Origin:
        if self._open is None:
            from gantrymq.spark.plan.batch import open_origin

            self._open = open_origin(self._options)
        return self._open

    # On executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a partition, in the order of the log. Raises CorruptRecordError, StoreError."""
        return read_partition(partition.value, self._options, self._schema)


def _ends(extents: Extents) -> Offsets:
    return {key: extent.max_offset for key, extent in extents.items()}


def _from_first(began: Offsets, ends: Offsets) -> Offsets:
    """The first offset of every queue in ``ends``; 0 for a queue that came later."""
    return {key: began.get(key, 0) for key in ends}
