"""Hooks: plain objects that see every send, every listener call and every decision about a transaction.

    class Counter:
        def send_message_before(self, context): ...   # may add properties to context.messages
        def send_message_after(self, context): ...    # context.result or context.error

    Producer("127.0.0.1:9876", hooks=[Counter()])

A hook that raises is logged and changes nothing. ``context.values`` is for a hook's own use from before to after.

Source: SendMessageHook, ConsumeMessageHook, EndTransactionHook and their contexts.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import Any, Protocol, TypeVar

from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.client.requests.send_result import LocalTransactionState, SendResult
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.errors import ConfigError
from gantrymq.format.trace import MessageType
from gantrymq.logs import get_logger
from gantrymq.model.java import LONG_MAX
from gantrymq.model.message import PROPERTY_TRANSACTION_PREPARED, Message, is_delayed
from gantrymq.model.message_queue import MessageQueue

log = get_logger("gantrymq.client")

R = TypeVar("R")
_PRODUCER = ("send_message_before", "send_message_after", "end_transaction")
_CONSUMER = ("consume_message_before", "consume_message_after")
_CONSUMED = frozenset(("CONSUME_SUCCESS", "SUCCESS", "COMMIT"))


@dataclass(slots=True)
class SendMessageContext:
    """One send with all its attempts. ``messages`` has one message, or those of a batch.

    They are copies, and properties that a hook adds are sent. ``queue`` and ``broker_address`` are those of the last
    attempt. After the send either ``result`` or ``error`` is set; neither after a one-way send. ``began_ms`` is in
    milliseconds since the epoch.
    """

    producer_group: str
    messages: Sequence[Message]
    message_type: MessageType
    began_ms: int
    queue: MessageQueue | None = None
    broker_address: str = ""
    result: SendResult | None = None
    error: BaseException | None = None
    took_ms: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    since_ms: int = field(default=0, init=False, repr=False)


class ConsumeReturnType(IntEnum):
    """The outcome of a listener call, with Java's numbers. RETURNNULL is not used, because a listener that returns None
    has succeeded.
    """

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


@dataclass(slots=True)
class ConsumeMessageContext:
    """One listener call, one poll or one receive.

    ``status`` is the result's name, empty after an exception, which is ``error``. ``queue`` is the first
    message's: popped messages may come from several queues.
    """

    consumer_group: str
    queue: MessageQueue
    messages: Sequence[ReceivedMessage]
    began_ms: int
    status: str = ""
    return_type: ConsumeReturnType = ConsumeReturnType.SUCCESS
    error: BaseException | None = None
    took_ms: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    since_ms: int = field(default=0, init=False, repr=False)

    @property
    def is_success(self) -> bool:
        """Whether the messages are consumed."""
        return self.return_type in (ConsumeReturnType.SUCCESS, ConsumeReturnType.TIME_OUT)


@dataclass(frozen=True, slots=True)
class EndTransactionContext:
    """The decision about a transaction. ``is_from_check`` is True if a broker asked for it."""

    producer_group: str
    message: Message | ReceivedMessage
    broker_address: str
    msg_id: str
    transaction_id: str
    state: LocalTransactionState
    is_from_check: bool
    at_ms: int


class SendMessageHook(Protocol):
    """Sees every send of a producer.

    Thread rule: ``send_message_before`` is called by the sender's thread or task, ``send_message_after`` by the event
    loop's thread. Neither may block.
    """

    def send_message_before(self, context: SendMessageContext) -> None:
        """A message is about to be prepared and sent."""
        ...

    def send_message_after(self, context: SendMessageContext) -> None:
        """The send has ended."""
        ...


class EndTransactionHook(Protocol):
    """Sees every decision about a transaction. Thread rule: the event loop's thread; it may not block."""

    def end_transaction(self, context: EndTransactionContext) -> None:
        """The decision is about to be sent."""
        ...


class ConsumeMessageHook(Protocol):
    """Sees every listener call of a push consumer, and every poll of a lite-pull consumer that returned messages. Of a
    simple consumer it sees every receive that returned messages, and every message of an iteration.

    Thread rule: the listener's thread or task for both, so that a context variable holds during the listener's call.
    """

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        """The listener is about to be called."""
        ...

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        """The listener has returned."""
        ...


ProducerHook = SendMessageHook | EndTransactionHook


def check_hooks(hooks: object, *, of_producer: bool) -> None:
    """Raises ConfigError unless ``hooks`` is a sequence of objects with at least one of the methods."""
    known = _PRODUCER if of_producer else _CONSUMER
    if not isinstance(hooks, Sequence) or not all(_has_any(hooks_object, known) for hooks_object in hooks):
        raise ConfigError("hooks", hooks, f"a list of objects with {' or '.join(known)}")


def _has_any(hook: object, methods: Sequence[str]) -> bool:
    return not isinstance(hook, type) and any(callable(getattr(hook, name, None)) for name in methods)


def run_hooks(hooks: Sequence[object], method: str, context: object) -> None:
    """Call a method of all hooks that have it. An exception is logged."""
    for hook in hooks:
        call = getattr(hook, method, None)
        if call is not None:
            try:
                call(context)
            except Exception as error:
                log.warning("a hook raised", hook=type(hook).__name__, method=method, exc_info=error)


class SendHooks:
    """The hooks of a producer."""

    def __init__(self, hooks: Sequence[ProducerHook], group: str, clock: Clock) -> None:
        self._hooks, self._group, self._clock = hooks, group, clock

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def begin(self, messages: Sequence[Message]) -> SendMessageContext:
        """Call the hooks before a send, with copies of its messages. Thread rule: any thread."""
        copies = tuple(replace(message, properties=dict(message.properties)) for message in messages)
        context = SendMessageContext(self._group, copies, _type_of(copies[0]), self._clock.now_ms())
        context.since_ms = monotonic_ms(self._clock)
        run_hooks(self._hooks, "send_message_before", context)
        context.messages = copies  # a hook changes the copies, and cannot replace them
        return context

    def end(
        self, context: SendMessageContext, result: SendResult | None = None, error: BaseException | None = None
    ) -> None:
        """Call the hooks after a send."""
        context.result, context.error = result, error
        context.took_ms = monotonic_ms(self._clock) - context.since_ms
        run_hooks(self._hooks, "send_message_after", context)

    async def follow(self, context: SendMessageContext, sending: Awaitable[R]) -> R:
        """Await a send, and call the hooks after it."""
        try:
            result = await sending
        except BaseException as error:
            self.end(context, error=error)
            raise
        self.end(context, result if isinstance(result, SendResult) else None)
        return result

    def ended_transaction(
        self,
        message: Message | ReceivedMessage,
        broker_address: str,
        ids: tuple[str, str],
        state: LocalTransactionState,
        *,
        is_from_check: bool,
    ) -> None:
        """Call the hooks for a decision. ``ids``: the message's and the transaction's."""
        if self._hooks:
            context = EndTransactionContext(
                self._group, message, broker_address, *ids, state, is_from_check, self._clock.now_ms()
            )
            run_hooks(self._hooks, "end_transaction", context)


def _type_of(message: Message) -> MessageType:
    if is_delayed(message):
        return MessageType.DELAY
    is_half = message.properties.get(PROPERTY_TRANSACTION_PREPARED) == "true"
    return MessageType.TRANSACTION_HALF if is_half else MessageType.NORMAL


class ConsumeHooks:
    """The hooks of a consumer. A listener call that takes ``timeout_ms`` counts as TIME_OUT, even with a success."""

    def __init__(
        self, hooks: Sequence[ConsumeMessageHook], group: str, clock: Clock, timeout_ms: int = LONG_MAX
    ) -> None:
        self._hooks, self._group, self._clock, self._timeout_ms = hooks, group, clock, timeout_ms

    def around(self, listener: Callable[..., Any]) -> Callable[..., Any]:
        """The listener with the hooks before and after each call, in the listener's own thread or task."""
        if not self._hooks:
            return listener

        async def finished(result: Awaitable[R], seen: ConsumeMessageContext) -> R:
            try:
                returned = await result
            except BaseException as error:
                self._end(seen, error=error)
                raise
            self._end(seen, returned)
            return returned

        def call(messages: Sequence[ReceivedMessage], context: Any) -> Any:
            seen = self._begin(messages, context.message_queue)
            try:
                returned = listener(messages, context)
            except BaseException as error:
                self._end(seen, error=error)
                raise
            if inspect.isawaitable(returned):
                return finished(returned, seen)
            self._end(seen, returned)
            return returned

        return call

    def polled(self, messages: Sequence[ReceivedMessage], queue: MessageQueue) -> None:
        """Call the hooks before and after messages that a poll or a receive returns."""
        if self._hooks and messages:
            self._end(self._begin(messages, queue))

    def _begin(self, messages: Sequence[ReceivedMessage], queue: MessageQueue) -> ConsumeMessageContext:
        context = ConsumeMessageContext(self._group, queue, messages, self._clock.now_ms())
        context.since_ms = monotonic_ms(self._clock)
        run_hooks(self._hooks, "consume_message_before", context)
        return context

    def _end(self, context: ConsumeMessageContext, returned: object = None, error: BaseException | None = None) -> None:
        context.took_ms = monotonic_ms(self._clock) - context.since_ms
        context.error = error
        if isinstance(returned, Enum):
            context.status = returned.name
        if error is not None:
            context.return_type = ConsumeReturnType.EXCEPTION
        elif returned is not None and context.status not in _CONSUMED:
            context.return_type = ConsumeReturnType.FAILED
        elif context.took_ms >= self._timeout_ms:
            context.return_type = ConsumeReturnType.TIME_OUT
        run_hooks(self._hooks, "consume_message_after", context)
