"""The common parts of concurrent and orderly consumption.

Source: ConsumeMessageService, CMResult.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol

from gantrymq.client.consumer.fetch.process_queue import ProcessQueue
from gantrymq.client.consumer.group.member import GroupMember
from gantrymq.client.consumer.group.offsets import OffsetStore
from gantrymq.client.consumer.listeners import C, Listener, Listening, S, listening
from gantrymq.client.consumer.push.send_back import SendBack
from gantrymq.client.consumer.settings import PushConsumerConfig
from gantrymq.client.consumer.statistics import ConsumerStatistics
from gantrymq.client.hooks import ConsumeHooks
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.client.runtime.background import BackgroundTasks
from gantrymq.clock import monotonic_ms
from gantrymq.logs import get_logger
from gantrymq.remoting.bodies.client import ConsumeMessageDirectlyResult

_RESULTS = {
    "CONSUME_SUCCESS": "CR_SUCCESS",
    "RECONSUME_LATER": "CR_LATER",
    "SUCCESS": "CR_SUCCESS",
    "ROLLBACK": "CR_ROLLBACK",
    "COMMIT": "CR_COMMIT",
    "SUSPEND_CURRENT_QUEUE_A_MOMENT": "CR_LATER",
}

log = get_logger("gantrymq.client.consumer")


@dataclass(frozen=True, slots=True)
class ConsumeContext:
    """The objects that both kinds of consumption use."""

    member: GroupMember
    config: PushConsumerConfig
    offsets: OffsetStore
    send_back: SendBack
    statistics: ConsumerStatistics
    hooks: ConsumeHooks

    def begin(self, messages: Sequence[ReceivedMessage]) -> None:
        """Mark messages as being in a listener. Thread rule: any thread."""
        now_ms, since_ms = self.member.clock.now_ms(), monotonic_ms(self.member.clock)
        for message in messages:
            message.consume_start_ms, message.in_listener_since_ms = now_ms, since_ms

    def count(self, topic: str, messages: Sequence[ReceivedMessage], succeeded: int) -> None:
        """Count the result of a listener call."""
        now_ms = monotonic_ms(self.member.clock)
        self.statistics.consumed(topic, succeeded, len(messages) - succeeded, _took_ms(now_ms, messages[0]), now_ms)


def _took_ms(now_ms: int, message: ReceivedMessage) -> int:
    """How long a listener has had a message, in milliseconds."""
    since_ms = message.in_listener_since_ms
    return 0 if since_ms is None else now_ms - since_ms


@dataclass(slots=True, eq=False)
class SingleCall(Generic[C, S]):
    """A call of the listener that is made, and settled, by itself."""

    messages: list[ReceivedMessage]
    context: C
    begin: Callable[[], bool]
    done: Callable[[S | None, BaseException | None], None]


class Consumption(Protocol):
    """Passes pulled messages to the listener and settles the results."""

    @property
    def is_orderly(self) -> bool:
        """Whether messages of a queue are consumed in order."""
        ...

    def deliver(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Consume messages that were put into ``queue``."""
        ...

    async def directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        """Pass one message to the listener on behalf of an administrator. Nothing is settled."""
        ...

    @property
    def is_in_listener(self) -> bool:
        """Whether the caller is a thread of the listener. Thread rule: any thread."""
        ...

    def begin_no_more(self) -> None:
        """Let no listener call begin after this. Thread rule: any thread."""
        ...

    def exempt_current_task(self) -> bool:
        """Let :meth:`close` not wait for the calling task. Returns whether the task is a listener call."""
        ...

    async def close(self) -> None:
        """Begin no calls, and settle those under way, within ``await_termination_ms_when_shutdown``."""
        ...

    async def wait_for_exempt(self) -> None:
        """After :meth:`close`: settle the exempt calls, within the same time again."""
        ...


class ConsumptionByListener(Generic[C, S]):
    """The base of both kinds: the listener calls, and how they end."""

    def __init__(self, consume_context: ConsumeContext, listener: Listener[C, S], statuses: type[S]) -> None:
        self._context = consume_context
        self._listening: Listening[C, S] = listening(
            listener,
            statuses,
            consume_context.config.consume_thread_max,
            consume_context.member.group,
            consume_context.hooks.around,
            self._settle_results,
        )
        self._tasks = BackgroundTasks()
        self._ending = asyncio.Event()

    @property
    def is_in_listener(self) -> bool:
        """Whether the caller is a thread of the listener."""
        return self._listening.is_current

    def begin_no_more(self) -> None:
        """Let no listener call begin after this. Thread rule: any thread."""
        self._listening.begin_no_more()

    def exempt_current_task(self) -> bool:
        """Let :meth:`close` not wait for the calling task. Returns whether the task is a listener call."""
        return self._listening.exempt_current_task()

    def _settle_results(self) -> None:
        """Called after one or several results of the listener."""

    @property
    def _wait_s(self) -> float:
        """How long a close waits for the listener, in seconds."""
        return self._context.config.await_termination_ms_when_shutdown / 1000

    async def _close_listening(self) -> None:
        if not await self._listening.close(self._wait_s):
            log.warning("listeners still run: their messages will be redelivered", group=self._context.member.group)

    async def _wait_for_exempt(self) -> None:
        if not await self._listening.wait_for_exempt(self._wait_s):
            log.warning("a listener that closed its consumer is still running", group=self._context.member.group)


def log_failure(messages: Sequence[ReceivedMessage], error: BaseException) -> None:
    """Log that a listener raised, with the position and id of the first message."""
    first = messages[0]
    log.error(
        "a listener raised",
        topic=first.topic,
        broker=first.broker_name,
        queue_id=first.queue_id,
        queue_offset=first.queue_offset,
        msg_id=first.msg_id,
        reconsume_times=first.reconsume_times,
        messages=len(messages),
        exc_info=error,
    )


async def consume_directly(
    listening: Listening[Any, Enum], message: ReceivedMessage, context: Any, consume_context: ConsumeContext
) -> ConsumeMessageDirectlyResult:
    """Call a listener with one message and return its result for the administrator."""
    answered: asyncio.Future[tuple[Enum | None, BaseException | None]] = asyncio.get_running_loop().create_future()

    def done(status: Enum | None, error: BaseException | None) -> None:
        if not answered.done():
            answered.set_result((status, error))

    def begin() -> bool:
        consume_context.begin([message])
        return True

    listening.submit([SingleCall([message], context, begin, done)])
    status, error = await answered
    now_ms = monotonic_ms(consume_context.member.clock)
    result = ConsumeMessageDirectlyResult(spent_time_mills=_took_ms(now_ms, message))
    if error is not None:
        log_failure([message], error)
        result.consume_result, result.remark = "CR_THROW_EXCEPTION", f"{type(error).__name__}: {error}"
    else:
        result.consume_result = _RESULTS[status.name] if status is not None else "CR_SUCCESS"
    return result
