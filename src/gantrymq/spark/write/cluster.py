"""Writes rows to a live cluster, batch and streaming: executors send, and the driver has nothing to commit.

A task is done when every message is acknowledged. Delivery is at least once: a message without an acknowledgement is
sent again, and a task or batch that Spark repeats sends all its rows again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from gantrymq.client.async_producer import RETRY_RESPONSE_CODES, AsyncProducer
from gantrymq.client.send_result import SendResult, SendStatus
from gantrymq.client.settings import ProducerConfig
from gantrymq.errors import MQBrokerError, MQClientError, RemotingError
from gantrymq.model.java import INT_MAX
from gantrymq.model.message_queue import MessageQueue
from gantrymq.spark.pyspark_api import DataSourceStreamArrowWriter
from gantrymq.spark.write.messages import OutgoingMessages, Parcel
from gantrymq.spark.write.options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa


UNDER_WAY = 8  # parcels in flight
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
T = TypeVar("T")
_LOGGER = logging.getLogger(__name__)


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
