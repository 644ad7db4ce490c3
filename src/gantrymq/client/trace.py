"""Message traces: records of what happened to each message, sent to the trace topic in the background.

:class:`TraceHook` makes records of sends, listener calls and decisions. :class:`TraceDispatcher` collects them and
sends them with a producer of its own. No send or listener waits for a trace: records that come faster than they can be
sent are dropped, counted and logged.

Source: AsyncTraceDispatcher, SendMessageTraceHookImpl, ConsumeMessageTraceHookImpl, EndTransactionTraceHookImpl,
DefaultRecallMessageTraceHook.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeVar

from gantrymq.client.hooks import ConsumeMessageContext, EndTransactionContext, SendMessageContext
from gantrymq.client.namespace import without_namespace
from gantrymq.client.requests.send_result import DEFAULT_REGION, SendResult, SendStatus
from gantrymq.client.runtime.background import BackgroundTasks, wait_or_timeout
from gantrymq.client.runtime.logged_once import LoggedOnce
from gantrymq.client.unique_id import UniqueIdGenerator
from gantrymq.clock import Clock
from gantrymq.errors import GantrymqError
from gantrymq.format.trace import MessageType, TraceRecord, TraceType, encode_traces
from gantrymq.logs import get_logger
from gantrymq.model.java import encode_utf8
from gantrymq.model.message import (
    PROPERTY_KEYS,
    PROPERTY_MSG_REGION,
    PROPERTY_TAGS,
    PROPERTY_TRACE_SWITCH,
    Message,
)

GROUP_PREFIX = "_INNER_TRACE_PRODUCER"
MAX_RECORDS = 2048  # the most records that wait to be sent, as in RocketMQ
BATCH_RECORDS = 100
SENDS_AT_ONCE = 8  # a send takes long while the client itself sends, so several run at the same time
MAX_BODY_BYTES = 128_000
_MAX_KEYS_BYTES = 24_000  # well below the limit for all properties of a message
_SEND_AT_LEAST_EVERY_S = 1.0
SEND_TIMEOUT_MS = 5000
_CLOSE_WITHIN_S = 5.0

log = get_logger("gantrymq.client")

HookT = TypeVar("HookT")


class TraceProducer(Protocol):
    """The methods of a producer that a dispatcher uses."""

    def start(self) -> None:
        """Begin to send heartbeats."""
        ...

    async def send(self, message: Message) -> SendResult:
        """Send one message."""
        ...

    async def close(self) -> None:
        """Close the producer."""
        ...


class TraceDispatcher:
    """Sends records to the trace topic, several in one message. ``make`` makes its producer when it starts.

    The keys of a trace message are the ids and keys of the messages that it is about. Thread rule: :meth:`append` any
    thread, the rest the event loop's thread.
    """

    def __init__(self, topic: str, make: Callable[[], TraceProducer]) -> None:
        self.topic = topic
        self._make = make
        self._waiting: deque[TraceRecord] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._enough = asyncio.Event()
        self._tasks = BackgroundTasks()
        self._producer: TraceProducer | None = None
        self._once = LoggedOnce()
        self._lock = threading.Lock()
        self._is_closed = False
        self.dropped = 0  # records that were not sent: no room, or the send failed

    def start(self) -> None:
        """Begin to send, on the running loop. A second call has no effect."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._producer = self._make()
            self._producer.start()
            self._tasks.start(self._run(self._producer))

    def append(self, records: Iterable[TraceRecord]) -> None:
        """Send these records later. They are dropped if too many wait, or after the close. Thread rule: any thread."""
        with self._lock:
            for record in records:
                if len(self._waiting) >= MAX_RECORDS or self._is_closed:
                    self.dropped += 1
                else:
                    self._waiting.append(record)
            is_enough = len(self._waiting) >= BATCH_RECORDS
        if is_enough and not self._enough.is_set() and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._enough.set)

    async def close(self) -> None:
        """Send the waiting records for at most 5 s, then close the producer."""
        self._is_closed = True
        self._enough.set()
        await self._tasks.drain(_CLOSE_WITHIN_S)
        await self._tasks.close()
        if self._producer is not None:
            await self._producer.close()
        self.dropped += len(self._waiting)
        self._waiting.clear()
        if self.dropped:
            log.warning("trace records were dropped", topic=self.topic, records=self.dropped)

    async def _run(self, producer: TraceProducer) -> None:
        is_last = False
        while not is_last:
            await wait_or_timeout(self._enough, _SEND_AT_LEAST_EVERY_S)
            is_last = self._is_closed
            await self._send_waiting(producer)
            if self.dropped and self._once.is_due("dropped"):
                log.warning("trace records were dropped", topic=self.topic, records=self.dropped)

    async def _send_waiting(self, producer: TraceProducer) -> None:
        while self._waiting:
            several = [self._next_message() for _ in range(SENDS_AT_ONCE) if self._waiting]
            await asyncio.gather(*(self._send(producer, message, count) for message, count in several))

    async def _send(self, producer: TraceProducer, message: Message, count: int) -> None:
        try:
            await producer.send(message)
        except GantrymqError as error:
            self.dropped += count
            if self._once.is_due("failed", type(error).__name__):
                log.warning("trace records were not sent", topic=self.topic, records=count, reason=str(error))
        except asyncio.CancelledError:
            self.dropped += count
            raise

    def _next_message(self) -> tuple[Message, int]:
        """A trace message of the first waiting records, and their number."""
        parts, keys, body_bytes, key_bytes = list[str](), dict[str, None](), 0, 0
        while self._waiting and len(parts) < BATCH_RECORDS:
            record = self._waiting[0]
            text, fresh = encode_traces([record]), [key for key in keys_of(record) if key not in keys]
            more_bytes, more_key_bytes = len(encode_utf8(text)), sum(len(encode_utf8(key)) + 1 for key in fresh)
            if parts and (body_bytes + more_bytes > MAX_BODY_BYTES or key_bytes + more_key_bytes > _MAX_KEYS_BYTES):
                break
            if more_key_bytes > _MAX_KEYS_BYTES:
                fresh = fresh[:1]
            self._waiting.popleft()
            parts.append(text)
            keys.update(dict.fromkeys(fresh))
            body_bytes, key_bytes = body_bytes + more_bytes, key_bytes + more_key_bytes
        return Message(self.topic, encode_utf8("".join(parts)), keys=list(keys)), len(parts)


def keys_of(record: TraceRecord) -> Iterator[str]:
    """The keys under which a record is found: the id and the keys of its message."""
    if record.msg_id:
        yield record.msg_id
    yield from filter(None, record.keys.split(" "))


class TraceHook:
    """Makes trace records of a client's sends, listener calls and decisions. A broker with ``traceOn=false`` turns them
    off for its messages.

    Messages of the trace topic are not traced. Thread rule: any thread.
    """

    def __init__(self, dispatcher: TraceDispatcher, namespace: str, group: str, clock: Clock) -> None:
        self._dispatcher, self._namespace, self._clock = dispatcher, namespace, clock
        self._group = without_namespace(namespace, group)
        self._ids = UniqueIdGenerator(clock)

    # SendMessageHook and EndTransactionHook

    def send_message_before(self, context: SendMessageContext) -> None:
        """Do nothing: the context has the time at which the send began."""

    def send_message_after(self, context: SendMessageContext) -> None:
        """One record for each message that was acknowledged."""
        result = context.result
        if result is not None and result.is_trace_on and not self._is_trace(context.messages[0].topic):
            self._dispatcher.append(self._sent(context, result))

    def _sent(self, context: SendMessageContext, result: SendResult) -> Iterator[TraceRecord]:
        offset_ids = result.offset_msg_id.split(",")
        for number, (message, msg_id) in enumerate(zip(context.messages, result.msg_id.split(","), strict=False)):
            yield TraceRecord(
                TraceType.PUB,
                context.began_ms,
                result.region_id,
                self._group,
                self._shown(message.topic),
                msg_id,
                offset_ids[number] if number < len(offset_ids) else "",
                message.tags or message.properties.get(PROPERTY_TAGS, ""),
                " ".join(message.keys) or message.properties.get(PROPERTY_KEYS, ""),
                context.broker_address,
                body_size_bytes=len(message.body),
                message_type=context.message_type,
                cost_ms=context.took_ms // len(context.messages),
                is_success=result.status is SendStatus.SEND_OK,
            )

    def end_transaction(self, context: EndTransactionContext) -> None:
        """One record for each decision."""
        message, properties = context.message, context.message.properties
        record = TraceRecord(
            TraceType.END_TRANSACTION,
            context.at_ms,
            properties.get(PROPERTY_MSG_REGION) or DEFAULT_REGION,
            self._group,
            self._shown(message.topic),
            context.msg_id,
            tags=message.tags or properties.get(PROPERTY_TAGS, ""),
            keys=" ".join(message.keys) or properties.get(PROPERTY_KEYS, ""),
            store_host=context.broker_address,
            message_type=MessageType.TRANSACTION_COMMIT,
            transaction_id=context.transaction_id,
            transaction_state=context.state.name,
            is_from_check=context.is_from_check,
        )
        if not self._is_trace(message.topic):
            self._dispatcher.append([record])

    def recalled(self, topic: str, msg_id: str, region_id: str, *, is_success: bool) -> None:
        """One record for each recall; Java's client writes them only with com.rocketmq.recall.default.trace.enable."""
        about = (self._clock.now_ms(), region_id, self._group, self._shown(topic), msg_id)
        self._dispatcher.append([TraceRecord(TraceType.RECALL, *about, is_success=is_success)])

    # ConsumeMessageHook

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        """One record for each message of a listener call, joined by a request id."""
        request_id = self._ids.new()
        records = [
            TraceRecord(
                TraceType.SUB_BEFORE,
                context.began_ms,
                message.properties.get(PROPERTY_MSG_REGION, ""),
                self._group,
                msg_id=message.msg_id,
                keys=" ".join(message.keys),
                request_id=request_id,
                retry_times=message.reconsume_times,
            )
            for message in context.messages
            if message.properties.get(PROPERTY_TRACE_SWITCH) != "false" and not self._is_trace(message.topic)
        ]
        context.values[TraceHook.__name__] = records
        self._dispatcher.append(records)

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        """The second record of each message, with the result and the duration."""
        before: list[TraceRecord] = context.values.get(TraceHook.__name__, [])
        self._dispatcher.append(
            replace(
                record,
                type=TraceType.SUB_AFTER,
                timestamp_ms=context.began_ms + context.took_ms,
                region_id="",
                retry_times=0,
                cost_ms=context.took_ms // len(context.messages),
                is_success=context.is_success,
                context_code=int(context.return_type),
            )
            for record in before
        )

    def _shown(self, topic: str) -> str:
        return without_namespace(self._namespace, topic)

    def _is_trace(self, topic: str) -> bool:
        return topic.startswith(self._dispatcher.topic)


class Tracing(NamedTuple):
    """The tracing of one client."""

    dispatcher: TraceDispatcher
    hook: TraceHook


def with_trace(hooks: Sequence[HookT], tracing: Tracing | None) -> tuple[HookT | TraceHook, ...]:
    """The hooks of a client, its own trace included."""
    return (*hooks, tracing.hook) if tracing is not None else tuple(hooks)
