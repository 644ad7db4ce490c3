"""Listeners: the context they receive, the status they return, and how they are called.

A plain function runs in a pool of threads, a coroutine function on the event loop. If a plain function returns an
awaitable, as a lambda may, the loop awaits it and the thread waits for the result.

Source: ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, ConsumeOrderlyContext, ConsumeOrderlyStatus,
ConsumeMessageConcurrentlyService and ConsumeMessageOrderlyService, their thread pools.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import types
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from enum import Enum
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar, cast

from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.errors import MQClientError
from gantrymq.model.message_queue import MessageQueue

C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
C_contra = TypeVar("C_contra", contravariant=True)
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
S_contra = TypeVar("S_contra", contravariant=True)
T = TypeVar("T")

_LOOK_SECONDS = 0.01
_CALLS_A_TURN = 32  # of a listener that awaits nothing, before other tasks run

# Called with messages and their context. It may be a coroutine function.
Listener = Callable[[Sequence[ReceivedMessage], C], S | Awaitable[S | None] | None]


class ListenerCall(Protocol[C_co, S_contra]):
    """One call of a listener."""

    @property
    def messages(self) -> Sequence[ReceivedMessage]:
        """The first argument."""
        ...

    @property
    def context(self) -> C_co:
        """The second argument."""
        ...

    def begin(self) -> bool:
        """Called right before. If it returns False, neither the listener nor :meth:`done` is called.

        Thread rule: the listener's thread or task.
        """
        ...

    def done(self, status: S_contra | None, error: BaseException | None) -> None:
        """Called with the listener's result, or the exception it raised. Thread rule: the event loop's thread."""
        ...


class Listening(Protocol[C_contra, S_co]):
    """Calls a listener, up to a limit of concurrent calls. Thread rule: the event loop's thread."""

    def submit(self, calls: Sequence[ListenerCall[C_contra, S_co]]) -> None:
        """Call the listener when a slot is free, in this order."""
        ...

    @property
    def is_current(self) -> bool:
        """Whether the caller is a thread of the listener. Thread rule: any thread."""
        ...

    def begin_no_more(self) -> None:
        """Prevent further calls of the listener. Thread rule: any thread."""
        ...

    def exempt_current_task(self) -> bool:
        """Let :meth:`close` not wait for the calling task. Returns whether the task is a listener call."""
        ...

    async def close(self, timeout_s: float) -> bool:
        """Begin no calls, and wait for those under way. Returns whether they ended within ``timeout_s``."""
        ...

    async def wait_for_exempt(self, timeout_s: float) -> bool:
        """After :meth:`close`: wait for the exempt calls. Returns whether they ended within ``timeout_s``."""
        ...


class ThreadedListening(Generic[C, S]):
    """Calls a plain function in at most ``max_threads`` threads.

    ``done`` is called on the loop, for several results at a time, and ``settle`` after them.

    It has its own threads instead of an executor: an executor's future a message costs as much as all other work. A
    thread that is awake makes calls for as long as there are any, so a pull wakes each thread at most once.
    """

    def __init__(
        self, listener: Listener[C, S], statuses: type[S], max_threads: int, name: str, settle: Callable[[], None]
    ) -> None:
        self._listener, self._statuses, self._settle = listener, statuses, settle
        self._max_threads, self._name = max_threads, f"ConsumeMessageThread_{name[:100]}"
        self._loop = asyncio.get_running_loop()
        self._threads: list[threading.Thread] = []
        self._calls: deque[ListenerCall[C, S]] = deque()
        self._wakes: SimpleQueue[bool] = SimpleQueue()  # False ends a thread
        self._results: deque[tuple[ListenerCall[C, S], bool, S | None, BaseException | None]] = deque()
        self._under_way = 0
        self._waking = self._closing = False

    def submit(self, calls: Sequence[ListenerCall[C, S]]) -> None:
        """Call the listener in threads."""
        if self._closing:
            return
        self._under_way += len(calls)
        self._calls.extend(calls)
        while len(self._threads) < min(self._under_way, self._max_threads):
            thread = threading.Thread(target=self._run, name=f"{self._name}_{len(self._threads) + 1}", daemon=True)
            self._threads.append(thread)
            thread.start()
        for _ in range(min(len(calls), len(self._threads))):
            self._wakes.put(True)

    @property
    def is_current(self) -> bool:
        """Whether the caller is one of the listener's threads."""
        return threading.current_thread() in self._threads

    def begin_no_more(self) -> None:
        """Let no call begin after this."""
        self._closing = True

    def exempt_current_task(self) -> bool:
        """Returns False: calls in threads are always waited for."""
        return False

    async def wait_for_exempt(self, timeout_s: float) -> bool:
        """Returns True: no call is exempt."""
        return True

    async def close(self, timeout_s: float) -> bool:
        """Begin no calls, and wait. Returns whether those under way ended within ``timeout_s``."""
        self._closing = True
        for _ in self._threads:
            self._wakes.put(False)
        deadline = self._loop.time() + timeout_s
        while (alive := any(thread.is_alive() for thread in self._threads)) and self._loop.time() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)
        self._deliver()
        return not alive

    def _run(self) -> None:
        while self._wakes.get():
            while (call := self._next()) is not None:
                began = not self._closing and call.begin()
                status, error = self._listen(call) if began else (None, None)
                self._results.append((call, began, status, error))
                if not self._waking and not self._closing:
                    self._waking = True
                    with suppress(RuntimeError):  # the loop was closed before the listener returned
                        self._loop.call_soon_threadsafe(self._deliver)

    def _next(self) -> ListenerCall[C, S] | None:
        try:
            return self._calls.popleft()
        except IndexError:
            return None

    def _listen(self, call: ListenerCall[C, S]) -> tuple[S | None, BaseException | None]:
        try:
            result = self._listener(call.messages, call.context)
            if inspect.isawaitable(result):
                result = asyncio.run_coroutine_threadsafe(_awaited(result), self._loop).result()
            return _status(result, self._statuses), None
        except BaseException as error:  # whatever it is, the message was not consumed
            return None, error

    def _deliver(self) -> None:
        self._waking = False  # before the first look, so that a thread that appends later wakes the loop again
        while self._results:
            call, began, status, error = self._results.popleft()
            self._under_way -= 1
            if began:
                call.done(status, error)
        self._settle()


class CoroutineListening(Generic[C, S]):
    """Calls a coroutine function, up to ``max_calls`` calls at once.

    The obvious way, a task for each call, costs several times what the call itself costs. Here a task makes calls for
    as long as there are any, each in a context of its own, as a task would have. ``settle`` is called after several
    results, before anything else runs on the loop.
    """

    def __init__(
        self,
        listener: Callable[[Sequence[ReceivedMessage], C], Awaitable[S | None]],
        statuses: type[S],
        max_calls: int,
        settle: Callable[[], None],
    ) -> None:
        self._listener, self._statuses, self._settle = listener, statuses, settle
        self._max_calls = max_calls
        self._calls: deque[ListenerCall[C, S]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._exempt: set[asyncio.Task[None]] = set()
        self._closing = False

    def submit(self, calls: Sequence[ListenerCall[C, S]]) -> None:
        """Call the listener in tasks."""
        if self._closing:
            return
        self._calls.extend(calls)
        self._start_tasks(len(calls))

    @property
    def is_current(self) -> bool:
        """Returns False: it has no thread of its own."""
        return False

    def begin_no_more(self) -> None:
        """Let no call begin after this."""
        self._closing = True

    def exempt_current_task(self) -> bool:
        """Let :meth:`close` not wait for the current task. Returns whether the task is a listener call.

        A task that the listener started does not count, because the listener may or may not wait for it.
        """
        task = asyncio.current_task()
        if task in self._tasks:
            self._tasks.remove(task)
            self._exempt.add(task)
            task.add_done_callback(self._exempt.discard)
        return task in self._exempt

    async def close(self, timeout_s: float) -> bool:
        """Begin no calls, and wait. Calls that do not end within ``timeout_s`` are cancelled.

        Calls that wait for a slot never begin: the slot may belong to a listener that waits for this close.
        """
        self._closing = True
        self._calls.clear()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while self._tasks and loop.time() < deadline:  # a task that is exempt meanwhile leaves the set
            await asyncio.wait(self._tasks, timeout=_LOOK_SECONDS)
        return await _cancelled(set(self._tasks))

    async def wait_for_exempt(self, timeout_s: float) -> bool:
        """Wait for the exempt calls. Those that do not end within ``timeout_s`` are cancelled."""
        if not self._exempt:
            return True
        _, late = await asyncio.wait(self._exempt, timeout=timeout_s)
        return await _cancelled(late)

    def _start_tasks(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(min(count, self._max_calls - len(self._tasks))):
            task = loop.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if (
            task.cancelled() or task.cancelling()
        ):  # by its listener, or the loop is about to be closed: begin nothing now
            task.get_loop().call_later(_LOOK_SECONDS, lambda: self._start_tasks(len(self._calls)))

    async def _work(self) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        turn = 0
        while self._calls and not self._closing and not task.cancelling():
            if turn == _CALLS_A_TURN:
                turn = 0
                self._settle()
                await asyncio.sleep(0)
                continue
            turn += 1
            call = self._calls.popleft()
            if not call.begin():
                continue
            try:
                result = await _in_own_context(self._listener, call, self._settle)
                status = _status(result, self._statuses)
            except Exception as error:
                call.done(None, error)
            except asyncio.CancelledError as error:  # raised by our close, or by a task that the listener awaited
                if self._closing:
                    raise
                call.done(None, error)
            else:
                call.done(status, None)
        self._tasks.discard(task)  # now: calls that are submitted before the next step of the loop need another task
        self._settle()


@types.coroutine
def _in_own_context(
    listener: Callable[[Sequence[ReceivedMessage], C], Awaitable[T]],
    call: ListenerCall[C, Any],
    settle: Callable[[], None],
) -> Generator[Any, Any, T]:
    """Await a listener's call in a copy of the context. ``settle`` is called before it is suspended."""
    context = copy_context()
    steps: Generator[Any, Any, T] = context.run(listener, call.messages, call.context).__await__()
    step: Callable[..., Any] = steps.send
    argument: Any = None
    while True:
        try:
            waited = context.run(step, argument)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        settle()
        try:
            step, argument = steps.send, (yield waited)
        except BaseException as error:
            step, argument = steps.throw, error


def listening(
    listener: Listener[C, S],
    statuses: type[S],
    max_calls: int,
    name: str,
    around: Callable[[Listener[C, S]], Listener[C, S]],
    settle: Callable[[], None],
) -> Listening[C, S]:
    """The implementation that fits the listener, on the running loop.

    The listener returns None or one of ``statuses``. What ``around`` makes of it is called in its place. ``settle`` is
    called after one or several results.
    """
    if _is_asynchronous(listener):
        return CoroutineListening(around(listener), statuses, max_calls, settle)  # type: ignore[arg-type]
    return ThreadedListening(around(listener), statuses, max_calls, name, settle)


def _is_asynchronous(listener: Callable[..., Any]) -> bool:
    while isinstance(listener, partial):
        listener = listener.func
    return any(map(inspect.iscoroutinefunction, (listener, type(listener).__call__)))


async def _cancelled(late: set[asyncio.Task[None]]) -> bool:
    """Cancel tasks and wait until they have ended. Returns whether there were none."""
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    return not late


async def _awaited(result: Awaitable[T]) -> T:
    return await result


def _status(result: object, statuses: type[S]) -> S | None:
    if result is None or isinstance(result, statuses):
        return result
    raise MQClientError(f"the listener returned {result!r}, which is neither None nor a {statuses.__name__}")


class ConsumeConcurrentlyStatus(Enum):
    """Consumed, or to be delivered again later."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class ConsumeOrderlyStatus(Enum):
    """Consumed, or to be delivered again after a pause of the whole queue.

    ROLLBACK and COMMIT are for a context with ``auto_commit`` off, where SUCCESS commits nothing.
    """

    SUCCESS = "SUCCESS"
    ROLLBACK = "ROLLBACK"
    COMMIT = "COMMIT"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


@dataclass(slots=True)
class ConsumeConcurrentlyContext:
    """The context of one listener call. The listener may change it to refine its status.

    ``delay_level_when_next_consume``: -1 for the dead letters, 0 for the broker's choice, else the delay level.
    ``ack_index``: with CONSUME_SUCCESS, the index of the last message that succeeded. None means all of them.
    """

    message_queue: MessageQueue
    delay_level_when_next_consume: int = 0
    ack_index: int | None = None


@dataclass(slots=True)
class ConsumeOrderlyContext:
    """The context of one listener call. ``suspend_current_queue_time_ms`` -1 means the consumer's setting."""

    message_queue: MessageQueue
    auto_commit: bool = True
    suspend_current_queue_time_ms: int = -1


# A listener that returns None has consumed the messages. A listener that raises has not.
ConcurrentListener = Listener[ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus]
OrderlyListener = Listener[ConsumeOrderlyContext, ConsumeOrderlyStatus]
MessageQueueListener = Callable[[str, tuple[MessageQueue, ...], frozenset[MessageQueue]], None]
