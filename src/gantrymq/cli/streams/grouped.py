"""Reads topics as a member of a consumer group. An offset is committed only after its messages are on stdout.

The brokers get the committed offsets every five seconds, and at the end. After a kill of the member, the group receives
the messages since then again: at least once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime

import typer

from gantrymq.cli.advice import unreadable
from gantrymq.cli.streams.positions import Position, PositionKind, PositionSpan
from gantrymq.cli.streams.sources import Arrived, Filter
from gantrymq.cli.terminal import warn
from gantrymq.client.consumer.lite_pull import LitePullConsumer
from gantrymq.client.consumer.settings import ConsumeFromWhere
from gantrymq.client.pull.pull_client import PullClient
from gantrymq.errors import MQClientError
from gantrymq.model.message_queue import MessageQueue

_POLL_MS = 500
_POLL_TO_EXIT_MS = 50
_WHERE = {
    PositionKind.BEGINNING: ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    PositionKind.END: ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    PositionKind.TIME: ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
}
_TIMESTAMP = "%Y%m%d%H%M%S"


def where_settings(span: PositionSpan) -> dict[str, str]:
    """The settings for the first start of a group. Raises BadParameter for any other position."""
    begin = span.begin or Position(PositionKind.BEGINNING)
    if begin.kind not in _WHERE or span.until_ms is not None:
        raise typer.BadParameter("with --group -o is beginning, end or @TIME, for queues without a committed offset")
    where = {"consume_from_where": _WHERE[begin.kind].value}
    if begin.kind is PositionKind.TIME:  # the setting has whole seconds
        where["consume_timestamp"] = datetime.fromtimestamp(begin.value // 1000).astimezone().strftime(_TIMESTAMP)
    return where


class GroupSource:
    """The messages of ``topics`` that the group gives to this member.

    With ``queries``, a client of the same cluster, it ends when every queue it has is read to the end that the queue
    had when it was first seen. It closes both clients. Thread rule: one thread.
    """

    def __init__(
        self,
        consumer: LitePullConsumer,
        topics: Sequence[str],
        wanted: Filter,
        span: PositionSpan,
        *,
        queries: PullClient | None,
    ) -> None:
        self.lost, self.waits = False, True
        self._consumer, self._queries = consumer, queries
        self._topics, self._wanted = topics, wanted
        self._begin = span.begin or Position(PositionKind.BEGINNING)
        self._ends: dict[MessageQueue, tuple[int, int]] = {}  # first offset without a commit, and end
        self._noted: set[MessageQueue] = set()

    def batches(self) -> Iterator[list[Arrived]]:
        """Yield the messages of each poll. Raises MQClientError, before the group is joined, for an unreadable topic.

        Without an end the reader waits, also for a topic that is not readable yet.
        """
        if self._queries is not None:
            for topic in self._topics:
                if not self._queries.queues(topic):
                    raise unreadable(topic)
        for topic in self._topics:
            self._consumer.subscribe(topic, self._wanted.expression, self._wanted.kind)
        self._consumer.start()
        if self._queries is not None and not self._consumer.assignment():
            warn("no queue is assigned to this member of the group")
        while True:
            messages = self._consumer.poll(timeout_ms=_POLL_MS if self._queries is None else _POLL_TO_EXIT_MS)
            if not messages and self._is_at_end():
                return
            yield [Arrived(message, message.broker_name) for message in messages]

    def written(self, batch: Sequence[Arrived], *, whole: bool) -> None:
        """Commit in memory. The consumer's own task sends the offsets."""
        if not batch:
            return
        last = batch[-1].message
        queue = MessageQueue(last.topic, batch[-1].broker_name, last.queue_id)
        self._noted.add(queue)
        if whole:  # also the messages after the last one, which the filter left out
            self._consumer.commit([queue], persist=False)
            return
        with suppress(MQClientError):  # another member has the queue now, and receives the messages again
            self._consumer.commit_offsets({queue: last.queue_offset + 1}, persist=False)

    def finish(self) -> None:
        """Send the committed offsets. Raises GantrymqError if a broker does not take them."""
        for queue in sorted(self._noted & set(self._consumer.assignment())):
            offset = self._consumer.committed(queue)
            if offset is not None:
                self._consumer.commit_offsets({queue: offset})

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()
        if self._queries is not None:
            self._queries.close()

    def _is_at_end(self) -> bool:
        return self._queries is not None and all(map(self._is_read, self._consumer.assignment()))

    def _is_read(self, queue: MessageQueue) -> bool:
        assert self._queries is not None
        if queue not in self._ends:
            self._ends[queue] = self._bounds(self._queries, queue)
        first, end = self._ends[queue]
        self._consumer.commit([queue], persist=False)  # no message waits to be written
        committed = self._consumer.committed(queue)
        return (first if committed is None else committed) >= end

    def _bounds(self, queries: PullClient, queue: MessageQueue) -> tuple[int, int]:
        low, high = queries.min_offset(queue), queries.max_offset(queue)
        return self._begin.offset(low, high, lambda time_ms: queries.search_offset(queue, time_ms)), high
