"""Reads the newest messages of a topic without a consumer group, within limits of count, bytes and offsets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gantrymq.client.requests.calls import PullStatus
from gantrymq.client.requests.records import decode_records
from gantrymq.client.requests.subscription import subscription
from gantrymq.console.body_view import beginning
from gantrymq.console.cluster.source import ClusterSession
from gantrymq.errors import MQClientError, RemotingError
from gantrymq.model.message import PROPERTY_UNIQ_KEY, StoredMessage
from gantrymq.model.message_queue import MessageQueue

_CHUNK = 32  # messages of a pull
_MAX_BYTES = 32 << 20
_MAX_OFFSETS = 20_000  # of a queue: with a tag most messages may not match


@dataclass(frozen=True)
class Row:
    """A message in a list. ``queue`` is where it is stored."""

    queue: MessageQueue
    queue_offset: int
    msg_id: str
    stored_ms: int
    tags: str
    keys: str
    size_bytes: int
    beginning: str
    properties: dict[str, str] = field(repr=False)


def message_row(message: StoredMessage, broker_name: str, topic: str | None = None) -> Row:
    """The row of a message whose body is decompressed. ``topic`` is the topic of its queue, if it has another."""
    return Row(
        MessageQueue(topic or message.topic, broker_name, message.queue_id),
        message.queue_offset,
        message.properties.get(PROPERTY_UNIQ_KEY) or message.msg_id,
        message.store_timestamp_ms,
        message.tags,
        " ".join(message.keys),
        len(message.body),
        beginning(message.body),
        message.properties,
    )


@dataclass
class MessageTable:
    """The newest rows, newest first. ``notes`` say where the search stopped early."""

    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class Budget:
    """The bytes that a search may still read."""

    max_body_size: int
    left: int = _MAX_BYTES

    @property
    def is_spent(self) -> bool:
        """Whether nothing more may be read."""
        return self.left <= 0


def newest_messages(
    session: ClusterSession,
    topic: str,
    *,
    max_messages: int,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    tag: str = "*",
    broker_name: str | None = None,
    queue_id: int | None = None,
) -> MessageTable:
    """The newest messages of a topic with store times in [begin, end), at most ``max_messages``.

    A broker that does not answer is named on the page. Raises MQClientError if no queue may be read.
    """
    queues = session.pull.queues(topic)
    if not queues:
        raise MQClientError(f"No queue of {topic} may be read.")
    table, budget = MessageTable(), Budget(session.config.max_decompressed_body_size)
    away = set[str]()
    for queue in queues:
        if queue.broker_name in away or broker_name not in (None, queue.broker_name):
            continue
        if queue_id not in (None, queue.queue_id):
            continue
        try:
            first = session.pull.min_offset(queue) if begin_ms is None else session.pull.search_offset(queue, begin_ms)
            last = session.pull.max_offset(queue) if end_ms is None else session.pull.search_offset(queue, end_ms)
            table.rows += _of_queue(session, queue, range(first, last), tag, max_messages, budget, table.notes)
        except RemotingError as error:
            away.add(queue.broker_name)
            session.note_missing(queue.broker_name, error)
    table.rows.sort(key=lambda row: (-row.stored_ms, row.queue, -row.queue_offset))
    if budget.is_spent:
        table.notes.append("The search stopped after 32 MiB: more messages match than are listed.")
    del table.rows[max_messages:]
    return table


def _of_queue(
    session: ClusterSession,
    queue: MessageQueue,
    offsets: range,
    tag: str,
    max_messages: int,
    budget: Budget,
    notes: list[str],
) -> list[Row]:
    """The newest rows of a queue: its chunks are read from the end."""
    rows = list[Row]()
    end, lowest = offsets.stop, max(offsets.start, offsets.stop - _MAX_OFFSETS)
    while end > lowest and len(rows) < max_messages and not budget.is_spent:
        begin = max(end - _CHUNK, lowest)
        messages = stored_messages(session, queue, range(begin, end), budget, tag)
        rows += [message_row(message, queue.broker_name, queue.topic) for message in messages]
        end = begin
    if end > offsets.start and end <= lowest:
        notes.append(f"Of queue {queue.queue_id} at {queue.broker_name} only the last {_MAX_OFFSETS:,} are searched.")
    return rows


def stored_messages(
    session: ClusterSession, queue: MessageQueue, offsets: range, budget: Budget, tag: str = "*"
) -> Iterator[StoredMessage]:
    """The messages in a range of offsets, with bodies decompressed, until the budget is spent.

    A pull returns as many messages as fit, so several may be needed.
    """
    tags = frozenset(subscription(queue.topic, tag, "TAG", 0).tags_set)
    at = offsets.start
    while at < offsets.stop and not budget.is_spent:
        pulled = session.pull.pull(queue, at, min(offsets.stop - at, _CHUNK), expression=tag)
        budget.left -= len(pulled.records)
        for stored in decode_records(pulled.records, max_decompressed_body_size=budget.max_body_size):
            if stored.queue_offset < offsets.stop and (not tags or stored.tags in tags):
                yield stored
        if pulled.next_begin_offset <= at or pulled.status is PullStatus.NO_NEW_MSG:
            return
        at = pulled.next_begin_offset
