"""Writes rows to a live cluster, batch and streaming: executors send, and the driver has nothing to commit.

A task is done when every message is acknowledged. Delivery is at least once: a message without an acknowledgement is
sent again, and a task or batch that Spark repeats sends all its rows again.

Rows that name their queue, by ``queue_id`` or ``sharding_key``, have a lane for each queue. A parcel of a lane is
acknowledged before the next one is sent, so these rows keep their order. All other rows may go to any queue, in any
order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from gantrymq.client.producer.async_producer import AsyncProducer
from gantrymq.client.producer.outgoing import prepare
from gantrymq.client.producer.sender import RETRY_RESPONSE_CODES
from gantrymq.client.producer.settings import ProducerConfig
from gantrymq.client.requests.send_result import SendResult, SendStatus
from gantrymq.errors import ConfigError, MQBrokerError, MQClientError, RemotingError
from gantrymq.model.java import INT_MAX, string_hash
from gantrymq.model.message import PROPERTY_DELAY, PROPERTY_SHARDING_KEY, PROPERTY_TIMER_DELIVER_MS, Message
from gantrymq.model.message_queue import MessageQueue
from gantrymq.model.system_names import RETRY_PREFIX
from gantrymq.spark.pyspark_api import DataSourceStreamArrowWriter
from gantrymq.spark.write.options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa


PARCEL_BYTES = 256 << 10
PARCEL_ROWS = 500
_ROW_BYTES = 300  # approximate size of a message without its body

Queues = Callable[[str], Sequence[MessageQueue]]
UNDER_WAY = 8  # parcels in flight
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
T = TypeVar("T")
_LOGGER = logging.getLogger(__name__)


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
            or message.topic.startswith(RETRY_PREFIX)
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
            all_properties = dict(properties or {})
            if shard is not None:
                all_properties[PROPERTY_SHARDING_KEY] = shard
            if deliver is not None:
                all_properties[PROPERTY_TIMER_DELIVER_MS] = str(deliver)
            message = Message(
                topic, body, tags=tags or "", keys=keys or (), properties=all_properties, delay_level=max(delay or 0, 0)
            )
            yield message, self._queue(topic, queue_id, shard, self.count + number)

    def _queue(self, topic: str, queue_id: int | None, shard: str | None, row: int) -> MessageQueue | None:
        """The queue that a row names. If several brokers have a queue of that number, the first one."""
        if queue_id is None and shard is None:
            return None
        queues = self._queues(topic)
        if queue_id is None:
            return queues[abs(string_hash(shard or "")) % len(queues)]
        chosen = next((queue for queue in queues if queue.queue_id == queue_id), None)
        if chosen is None:
            numbers = sorted({queue.queue_id for queue in queues})
            allowed = f"a queue of topic {topic}, which has {numbers[0]} to {numbers[-1]}; row {row} of the partition"
            raise ConfigError("column queue_id", queue_id, allowed)
        return chosen

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


def producer_config(options: WriteOptions) -> ProducerConfig:
    """The producer's settings. Raises ConfigError."""
    assert options.nameserver is not None
    return ProducerConfig(
        options.nameserver,
        namespace=options.namespace or "",
        access_key=options.access_key or "",
        secret_key=options.secret_key or "",
        tls=dict(options.tls),
        producer_group=options.producer_group,
        send_msg_timeout_ms=options.send_msg_timeout_ms,
        default_topic_queue_nums=options.queue_num,
        max_delay_level=INT_MAX,  # brokers turn a level that they do not have into their highest
    )


def send_rows(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> int:
    """Send the rows of a partition and wait for every acknowledgement. Returns the number of rows.

    Raises ConfigError with column and row for a row that no producer can send, MQBrokerError if a broker refuses, and
    RemotingError or MQClientError if all attempts fail. The event loop runs only while rows are being sent, and is
    paused while Spark makes the next ones.
    """
    config = producer_config(options)
    with asyncio.Runner() as runner:
        producer = runner.run(_started(config))
        try:
            sending = _Sending(producer, options.retry_times_when_send_failed)
            rows = OutgoingMessages(options.topic, config, lambda topic: runner.run(sending.queues(topic)))
            for batch in batches:
                runner.run(sending.send(rows.parcels(batch)))
            sending.warn_of_weak_acks()
            return rows.count
        finally:
            runner.run(producer.close())


async def _started(config: ProducerConfig) -> AsyncProducer:
    producer = AsyncProducer(config)
    producer.start()
    return producer


class _Sending:
    """Sends parcels, several at a time; the parcels of one lane are sent in order."""

    def __init__(self, producer: AsyncProducer, retries: int) -> None:
        self._producer, self._retries = producer, retries
        self._free = asyncio.Semaphore(UNDER_WAY)
        self._statuses: Counter[SendStatus] = Counter()
        self._known: dict[str, Sequence[MessageQueue]] = {}

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic. They are cached, so that a sharding key keeps its queue."""
        if topic not in self._known:
            self._known[topic] = await self._persist(partial(self._producer.queues_to_be, topic), topic)
        return self._known[topic]

    async def send(self, parcels: Sequence[Parcel]) -> None:
        """Return when all parcels are acknowledged. Raises the error of the first one that fails."""
        lanes = [list(lane) for _, lane in groupby(parcels, key=lambda parcel: (parcel.topic, parcel.queue))]
        tasks = [[parcel] for lane in lanes if lane[0].queue is None for parcel in lane]
        tasks += [lane for lane in lanes if lane[0].queue is not None]
        running = [asyncio.create_task(self._send_lane(lane)) for lane in tasks]
        try:
            await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _send_lane(self, lane: Sequence[Parcel]) -> None:
        for parcel in lane:
            async with self._free:
                result = await self._persist(partial(self._send_once, parcel), parcel.topic)
            self._statuses[result.status] += len(parcel.messages)

    async def _send_once(self, parcel: Parcel) -> SendResult:
        if len(parcel.messages) == 1:
            return await self._producer.send(parcel.messages[0], parcel.queue)
        return await self._producer.send_batch(parcel.messages, parcel.queue)

    async def _persist(self, attempt: Callable[[], Awaitable[T]], topic: str) -> T:
        """Retry errors that may be temporary, after growing pauses."""
        pause_s = FIRST_PAUSE_S
        for left in reversed(range(1 + self._retries)):
            try:
                return await attempt()
            except (MQBrokerError, RemotingError, MQClientError) as error:
                final = isinstance(error, MQBrokerError) and error.response_code not in RETRY_RESPONSE_CODES
                if final or not left:
                    raise
                _LOGGER.warning("topic %s, %d attempts left: %s", topic, left, error)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        raise AssertionError("the last attempt returns or raises")

    def warn_of_weak_acks(self) -> None:
        """Log messages that are stored with less durability than the broker is configured for."""
        for status, count in self._statuses.items():
            if status is not SendStatus.SEND_OK:
                _LOGGER.warning("%d messages were acknowledged with %s", count, status.value)


@dataclass(frozen=True)
class Sent(WriterCommitMessage):
    """The result of a task; every row was acknowledged."""

    rows: int


class ClusterBatchWriter(DataSourceArrowWriter):
    """Sends a DataFrame."""

    def __init__(self, options: WriteOptions) -> None:
        _check(options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a partition. Raises as :func:`gantrymq.spark.write.cluster.send_rows`."""
        return _send(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the number of rows that were sent."""
        _LOGGER.info("%d messages sent to %s", _rows(messages), self._options.nameserver)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log what was sent in spite of the failure: a sent message cannot be taken back."""
        _say_what_stays(messages)


class ClusterStreamWriter(DataSourceStreamArrowWriter):
    """Sends micro-batches. A batch that Spark repeats is sent again."""

    def __init__(self, options: WriteOptions) -> None:
        _check(options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a partition. Raises as :func:`gantrymq.spark.write.cluster.send_rows`."""
        return _send(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log the number of rows that were sent."""
        _LOGGER.info("batch %d: %d messages sent to %s", batchId, _rows(messages), self._options.nameserver)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log what was sent in spite of the failure: a sent message cannot be taken back."""
        _say_what_stays(messages)


def _check(options: WriteOptions) -> None:
    """Raise ConfigError for settings that the producer would refuse."""
    from gantrymq.spark.cluster import require_certificates

    require_certificates(producer_config(options))


def _send(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> Sent:

    return Sent(send_rows(options, batches))


def _rows(messages: list[WriterCommitMessage | None]) -> int:
    return sum(message.rows for message in messages if isinstance(message, Sent))


def _say_what_stays(messages: list[WriterCommitMessage | None]) -> None:
    _LOGGER.warning("the write failed; at least %d of its messages have been sent, and stay", _rows(messages))
