"""Turns rows of a DataFrame into messages to send: validated, and divided into lanes.

Rows that name their queue, by ``queue_id`` or ``sharding_key``, have a lane for each queue. A parcel of a lane is
acknowledged before the next one is sent, so these rows keep their order. All other rows may go to any queue, in any
order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gantrymq.client.outgoing import prepare
from gantrymq.client.settings import ProducerConfig
from gantrymq.errors import ConfigError, MQClientError
from gantrymq.model.java import string_hash
from gantrymq.model.message import PROPERTY_DELAY, PROPERTY_SHARDING_KEY, PROPERTY_TIMER_DELIVER_MS, Message
from gantrymq.model.message_queue import MessageQueue

PARCEL_BYTES = 256 << 10
PARCEL_ROWS = 500
_ROW_BYTES = 300  # approximate size of a message without its body

Queues = Callable[[str], Sequence[MessageQueue]]


@dataclass(slots=True)
class Parcel:
    """Messages of one topic that are sent as one request. ``queue`` None: to any queue."""

    topic: str
    queue: MessageQueue | None
    messages: list[Message] = field(default_factory=list)
    size_bytes: int = 0
    alone: bool = False

    def has_room(self, size_bytes: int) -> bool:
        """Whether one more message of ``size_bytes`` fits."""
        return not self.alone and len(self.messages) < PARCEL_ROWS and self.size_bytes + size_bytes <= PARCEL_BYTES


class OutgoingMessages:
    """Makes parcels of Spark's batches. ``queues`` returns the queues of a topic, in the order of its route."""

    def __init__(self, topic: str | None, config: ProducerConfig, queues: Queues) -> None:
        self._topic, self._config, self._queues = topic, config, queues
        self._right_topics: set[str] = set()
        self.count = 0

    def parcels(self, batch: pa.RecordBatch) -> list[Parcel]:
        """The parcels of a batch; rows of one queue stay in order. Raises ConfigError with column and row."""
        lanes: dict[tuple[str, MessageQueue | None], list[Parcel]] = {}
        for number, (message, queue) in enumerate(self._messages(batch)):
            self._check(message, self.count + number)
            size = len(message.body) + _ROW_BYTES
            alone = self._must_go_alone(message)
            lane = lanes.setdefault((message.topic, queue), [])
            if alone or not lane or not lane[-1].has_room(size):
                lane.append(Parcel(message.topic, queue, alone=alone))
            lane[-1].messages.append(message)
            lane[-1].size_bytes += size
        self.count += batch.num_rows
        return [parcel for lane in lanes.values() for parcel in lane]

    def _must_go_alone(self, message: Message) -> bool:
        """Whether a message must be sent by itself: brokers refuse it in a batch, or the producer compresses it."""
        return (
            message.delay_level > 0
            or PROPERTY_TIMER_DELIVER_MS in message.properties
            or PROPERTY_DELAY in message.properties
            or message.topic.startswith("%RETRY%")
            or len(message.body) >= self._config.compress_msg_body_over_howmuch
        )

    def _messages(self, batch: pa.RecordBatch) -> Iterator[tuple[Message, MessageQueue | None]]:
        nothing = [None] * batch.num_rows
        given = {name: _values(name, batch.column(at)) for at, name in enumerate(batch.schema.names)}
        topics = [self._topic] * batch.num_rows if self._topic else given["topic"]
        names = ("body", "tags", "keys", "properties", "delay_level", "deliver_timestamp", "sharding_key", "queue_id")
        columns = [given.get(name) or nothing for name in names]
        for number, (topic, body, tags, keys, properties, delay, deliver, shard, queue_id) in enumerate(
            zip(topics, *columns, strict=True)
        ):
            if topic is None or body is None:
                name = "topic" if topic is None else "body"
                raise ConfigError(f"column {name}", None, f"never null; row {self.count + number} of the partition is")
            found = dict(properties or {})
            if shard is not None:
                found[PROPERTY_SHARDING_KEY] = shard
            if deliver is not None:
                found[PROPERTY_TIMER_DELIVER_MS] = str(deliver)
            message = Message(
                topic, body, tags=tags or "", keys=keys or (), properties=found, delay_level=max(delay or 0, 0)
            )
            yield message, self._queue(topic, queue_id, shard, self.count + number)

    def _queue(self, topic: str, queue_id: int | None, shard: str | None, row: int) -> MessageQueue | None:
        """The queue that a row names. If several brokers have a queue of that number, the first one."""
        if queue_id is None and shard is None:
            return None
        queues = self._queues(topic)
        if queue_id is None:
            return queues[abs(string_hash(shard or "")) % len(queues)]
        found = next((queue for queue in queues if queue.queue_id == queue_id), None)
        if found is None:
            numbers = sorted({queue.queue_id for queue in queues})
            allowed = f"a queue of topic {topic}, which has {numbers[0]} to {numbers[-1]}; row {row} of the partition"
            raise ConfigError("column queue_id", queue_id, allowed)
        return found

    def _check(self, message: Message, row: int) -> None:
        """Raise ConfigError for a message that no producer can send, before anything of its batch is sent."""
        limit = self._config.max_message_size
        if not 0 < len(message.body) <= limit:
            allowed = f"1 to {limit} bytes; row {row} of the partition"
            raise ConfigError("column body", f"{len(message.body)} bytes", allowed)
        if message.topic in self._right_topics and not (message.tags or message.keys or message.properties):
            return
        trial = Message(message.topic, b"x", tags=message.tags, keys=message.keys, properties=message.properties)
        try:
            prepare(trial, "", self._config)
        except MQClientError as error:
            raise ConfigError("column topic, tags, keys or properties", message.topic, f"{error}; row {row}") from None
        self._right_topics.add(message.topic)


def _values(name: str, column: Any) -> list[Any]:
    """The values of a column in Python: bodies as bytes, keys as lists, times in milliseconds.

    Null keys and null property values are left out, as when a store is written.
    """
    if name == "body":
        return list(column.cast(pa.binary()).to_pylist())
    if name == "keys":
        is_text = not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type))
        lists = pc.split_pattern(column, " ") if is_text else column
        # A space separates keys in a stored message, so a key with a space becomes two.
        return [[part for key in keys or () for part in (key or "").split(" ") if part] for keys in lists.to_pylist()]
    if name == "deliver_timestamp" and pa.types.is_timestamp(column.type):
        return list(column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_pylist())
    if name == "properties":
        rows = column.to_pylist(maps_as_pydicts="strict")
        return [{key: value for key, value in (row or {}).items() if value is not None} for row in rows]
    return list(column.to_pylist())
