"""A query without Spark: a stream's reader is called in the order of a release of PySpark, restarts included.

Source: MicroBatchExecution, PythonMicroBatchStream, AvailableNowMicroBatchStreamWrapper of Spark 4.1.4 and 4.3.0.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from spark_cases import Row, fields

from gantrymq.spark import RocketMQDataSource

BODY = ("topic", "queue_id", "queue_offset", "body")


class MicroBatches:
    """A query with its checkpoint, which outlives the query's runs.

    Without a path the options name a cluster. ``is_old`` is the order before PySpark 4.2. ``between`` is called after
    each call of the reader.
    """

    def __init__(self, path: str, between: Callable[[], object], *, is_old: bool, **options: object) -> None:
        self.options = ({"path": path} if path else {}) | {name: str(value) for name, value in options.items()}
        self.ends: list[str] = []
        self.commits = 0
        self._between = between
        self._is_old = is_old

    def run(self, triggers: int = 1, *, available_now: bool = False, dies: bool = False) -> list[list[bytes]]:
        """The bodies of each batch of one run, which ends after ``triggers`` or dies before its last commit."""
        run = _Run(self, available_now)
        batches = []
        for number in range(triggers):
            bodies = run.batch()
            if bodies is None:
                continue
            batches.append(bodies)
            if not dies or number < triggers - 1:
                self.commits += 1
        run.reader.stop()
        return batches


class _Run:
    def __init__(self, query: MicroBatches, available_now: bool) -> None:
        self._query = query
        self._source = RocketMQDataSource(query.options)
        self._schema = fields(*BODY)
        self.reader = self._source.streamReader(self._schema)
        self._target: str | None = None
        if available_now and query._is_old:
            self._target = self._ask(self.reader.latestOffset)
        elif available_now:
            self._ask(self.reader.prepareForTriggerAvailableNow)
        if query._is_old and query.ends:  # setLatestSeenOffset
            self._partitions(query.ends[-1], query.ends[-1])

    def _ask(self, call: Callable[..., Any], *arguments: Any) -> str:
        answer = json.dumps(call(*arguments))
        self._query._between()
        return answer

    def _partitions(self, start: str, end: str) -> list[Any]:
        found = list(self.reader.partitions(json.loads(start), json.loads(end)))
        self._query._between()
        return found

    def _start(self) -> str:
        """Spark asks for the first offset as long as no batch is committed."""
        query = self._query
        return query.ends[query.commits - 1] if query.commits else self._ask(self.reader.initialOffset)

    def _latest(self) -> str:
        if self._target is not None:
            self._start()
            return self._target
        if self._query._is_old:
            return self._ask(self.reader.latestOffset)
        return self._ask(self.reader.latestOffset, json.loads(self._start()), self.reader.getDefaultReadLimit())

    def batch(self) -> list[bytes] | None:
        """The bodies of the next batch; None where Spark would start none."""
        query = self._query
        if len(query.ends) == query.commits:
            end = self._latest()
            if query.commits and end == query.ends[-1]:
                return None
            query.ends.append(end)
        executor = self._source.streamReader(self._schema)
        return [row["body"] for part in self._planned() for row in _rows(executor, part)]

    def _planned(self) -> list[Any]:
        return self._partitions(self._start(), self._query.ends[self._query.commits])


def _rows(reader: Any, partition: Any) -> list[Row]:
    return [row for batch in reader.read(partition) for row in batch.to_pylist(maps_as_pydicts="strict")]
