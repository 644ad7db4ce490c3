"""Automatic batches (autoBatch): messages that are sent at about the same time leave in one request.

A message opens a batch of its topic and queue, or joins the open one. The batch leaves when the next message would make
it larger than ``batch_max_bytes``, and at the latest ``batch_max_delay_ms`` after it was opened. RocketMQ's client
always waits for one of both, so a program that awaits each send is as slow as the delay. Here a batch also leaves once
the event loop has run what is ready, if no earlier one of the topic and queue is under way, and otherwise with the
answer to that: a single send has no delay, and many senders share a request for each round trip.

=====================================  ==============================================================
a message                              leaves
=====================================  ==============================================================
plain                                  in a batch
delayed, of a transaction, compressed  alone, behind what is open for its topic
with a time limit of its own           alone, behind what is open for its topic
of another queue or another waiting    in another batch
when ``total_batch_max_bytes`` wait    alone, behind what is open for its topic
of a batch that the broker refuses     again, alone, so that the refusal is only that message's
=====================================  ==============================================================

The messages of one queue keep their order. Each has its own result.

Source: ProduceAccumulator, DefaultMQProducer.canBatch.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from typing import NamedTuple, Protocol

from gantrymq.client.producer.outgoing import OutgoingMessage, join_messages
from gantrymq.client.producer.sender import RETRY_RESPONSE_CODES, MessageSender, QueueSelector
from gantrymq.client.producer.settings import ProducerConfig
from gantrymq.client.requests.send_result import SendResult
from gantrymq.errors import MQBrokerError, SendFailedError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.message_batch import BATCHED_BYTES


class Result(Protocol):
    """What gets the result of one message; an asyncio.Future is one. Thread rule: the event loop's thread."""

    def done(self) -> bool:
        """Whether the message need not be sent, because its sender was cancelled."""
        ...

    def set_result(self, result: SendResult, /) -> None:
        """Take the acknowledgement."""
        ...

    def set_exception(self, error: BaseException, /) -> None:
        """Take the error of the send."""
        ...

    def cancel(self) -> object:
        """The producer was closed before the message was acknowledged."""
        ...


class _Key(NamedTuple):
    topic: str
    queue: MessageQueue | None
    waits: bool


class _Batch:
    __slots__ = ("messages", "results", "size_bytes", "timer")

    def __init__(self) -> None:
        self.messages: list[OutgoingMessage] = []
        self.results: list[Result] = []
        self.size_bytes = 0
        self.timer: asyncio.Handle | None = None


class AutoBatch:
    """Gathers the messages of one producer, which ``sender`` sends. Thread rule: the event loop's thread."""

    def __init__(self, sender: MessageSender, config: ProducerConfig) -> None:
        self._sender, self._config = sender, config
        self._max_bytes = min(config.batch_max_bytes, config.max_message_size)
        self._open: dict[_Key, _Batch] = {}
        self._open_bytes = 0
        self._under_way: Counter[_Key] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    def send(
        self, outgoing: OutgoingMessage, queue: MessageQueue | QueueSelector | None, timeout_ms: int | None
    ) -> Awaitable[SendResult]:
        """Send a message in a batch, or alone. Raises what MessageSender.send raises."""
        if queue is None and timeout_ms is None and self.may_join(outgoing):
            result: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
            self.join(outgoing, None, result)
            return result
        return self._send_to(outgoing, queue, timeout_ms)

    async def _send_to(
        self, outgoing: OutgoingMessage, queue: MessageQueue | QueueSelector | None, timeout_ms: int | None
    ) -> SendResult:
        chosen = queue if queue is None else await self._sender.choose(outgoing, queue)
        if timeout_ms is None and self.may_join(outgoing):
            result: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
            self.join(outgoing, chosen, result)
            return await result
        if self.flush(outgoing.topic) or any(key.topic == outgoing.topic for key in self._under_way):
            await asyncio.sleep(0)  # their tasks begin first
        return await self._sender.send(outgoing, chosen, timeout_ms)

    def may_join(self, outgoing: OutgoingMessage) -> bool:
        """Whether a message may leave in a batch now. Otherwise it leaves alone."""
        size_bytes = _size(outgoing)
        return (
            outgoing.is_batchable
            and size_bytes <= self._max_bytes
            and self._open_bytes + size_bytes <= self._config.total_batch_max_bytes
        )

    def join(self, outgoing: OutgoingMessage, queue: MessageQueue | None, result: Result) -> None:
        """Let a message that may join leave in a batch; ``result`` gets its result."""
        key, size_bytes = _Key(outgoing.topic, queue, outgoing.waits), _size(outgoing)
        batch = self._open.get(key)
        if batch is not None and batch.size_bytes + size_bytes > self._max_bytes:
            self._leave(key, batch)
            batch = None
        if batch is None:
            loop = asyncio.get_running_loop()
            batch = self._open[key] = _Batch()
            if self._under_way[key]:
                batch.timer = loop.call_later(self._config.batch_max_delay_ms / 1000, self._leave, key, batch)
            else:
                batch.timer = loop.call_soon(self._leave, key, batch)
        batch.messages.append(outgoing)
        batch.results.append(result)
        batch.size_bytes += size_bytes
        self._open_bytes += size_bytes

    def flush(self, topic: str | None = None) -> bool:
        """Send all open batches, or those of a topic. Returns whether there were any."""
        keys = [key for key in self._open if topic is None or key.topic == topic]
        for key in keys:
            self._leave(key, self._open[key])
        return bool(keys)

    def _leave(self, key: _Key, batch: _Batch) -> None:
        if self._open.get(key) is not batch:
            return
        del self._open[key]
        self._open_bytes -= batch.size_bytes
        if batch.timer is not None:
            batch.timer.cancel()
        self._under_way[key] += 1
        task = asyncio.get_running_loop().create_task(self._send(key, batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, key: _Key, batch: _Batch) -> None:
        # A message whose sender was cancelled does not leave.
        pairs = [pair for pair in zip(batch.messages, batch.results, strict=True) if not pair[1].done()]
        try:
            if len(pairs) > 1:
                pairs = await self._send_joined(key, pairs)
            for message, result in pairs:
                await self._send_alone(key, message, result)
        finally:
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key]
                if (following := self._open.get(key)) is not None:
                    self._leave(key, following)

    async def _send_joined(
        self, key: _Key, pairs: list[tuple[OutgoingMessage, Result]]
    ) -> list[tuple[OutgoingMessage, Result]]:
        """Send a batch. Returns what must be sent again, each message alone: all of a batch that was refused."""
        try:
            joined = await self._sender.send(join_messages([message for message, _ in pairs]), key.queue, None)
        except (MQBrokerError, SendFailedError) as error:
            if _is_of_a_message(error):
                return pairs
            _fail(pairs, error)
        except (Exception, asyncio.CancelledError) as error:
            _fail(pairs, error)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            for (_, result), own in zip(pairs, _split(joined), strict=True):
                if not result.done():
                    result.set_result(own)
        return []

    async def _send_alone(self, key: _Key, message: OutgoingMessage, result: Result) -> None:
        try:
            sent = await self._sender.send(message, key.queue, None)
        except (Exception, asyncio.CancelledError) as error:
            _fail([(message, result)], error)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            if not result.done():
                result.set_result(sent)


def _size(outgoing: OutgoingMessage) -> int:
    """The bytes that a message adds to a batch."""
    return BATCHED_BYTES + len(outgoing.body) + len(outgoing.properties)


def _is_of_a_message(error: MQBrokerError | SendFailedError) -> bool:
    """Whether a broker has refused a batch for what is in it, so that its other messages may be stored."""
    if isinstance(error, SendFailedError):  # a batch that is too large is SYSTEM_ERROR, which is tried elsewhere
        return error.is_refused and error.response_code == ResponseCode.SYSTEM_ERROR
    return error.response_code not in RETRY_RESPONSE_CODES


def _fail(pairs: list[tuple[OutgoingMessage, Result]], error: BaseException) -> None:
    for _, result in pairs:
        if result.done():
            continue
        if isinstance(error, asyncio.CancelledError):
            result.cancel()
        else:
            result.set_exception(error)


def _split(joined: SendResult) -> list[SendResult]:
    """The result of each message of a batch."""
    pairs = zip(joined.msg_id.split(","), joined.offset_msg_id.split(","), strict=True)
    return [
        SendResult(
            joined.status,
            msg_id,
            joined.queue,
            queue_offset,
            offset_msg_id,
            region_id=joined.region_id,
            is_trace_on=joined.is_trace_on,
        )
        for queue_offset, (msg_id, offset_msg_id) in enumerate(pairs, joined.queue_offset)
    ]
