"""An event loop on simulated time: one for each process of the simulation, so a killed process is a dropped loop.

``run_due`` runs what is due now and what its sockets are ready for, in a fixed order, until nothing is left. Nothing
waits: who wants a later callback lets the world's time pass. An executor runs its work at once.

Thread rule: one thread.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from simulated_network import Endpoint, Listener

_MOST_CALLBACKS = 20_000  # in one turn: more is a loop without an end


_Loop: Any = asyncio.AbstractEventLoop  # most of whose methods nothing here calls


class SimulatedLoop(_Loop):
    """The loop of one process. ``errors`` are what its callbacks raised."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._number = 0
        self._readers: dict[Endpoint, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
        self._writers: dict[Endpoint, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
        self._accepting: dict[Listener, asyncio.Future[None]] = {}
        self._is_closed = False
        self.errors: list[BaseException | str] = []

    # The world's side

    @contextmanager
    def running(self) -> Iterator[None]:
        """Be the running loop, as during a callback."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)

    def run_due(self) -> None:
        """Run all that is due."""
        with self.running():
            done = 0
            while not self._is_closed and self._gather():
                while self._ready and not self._is_closed:
                    handle = self._ready.popleft()
                    if not handle.cancelled():
                        handle._run()
                    done += 1
                assert done < _MOST_CALLBACKS, "the process does not come to rest"

    def kill(self) -> None:
        """Run nothing any more, as after SIGKILL."""
        for task in asyncio.all_tasks(self):
            cast("Any", task)._log_destroy_pending = False
            cast("Any", task).get_coro().close()
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()
        self._readers.clear()
        self._writers.clear()
        self._accepting.clear()

    def _gather(self) -> bool:
        """Move what is due to the ready callbacks. Returns whether there are any."""
        now_s = self._now_s()
        while self._timers and self._timers[0][0] <= now_s:
            _, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled():
                self._ready.append(timer)
        for ready, sockets in ((Endpoint.can_read, self._readers), (Endpoint.can_write, self._writers)):
            for endpoint, (call, args) in list(sockets.items()):
                if ready(endpoint):
                    self.call_soon(call, *args)
        for listener, waiter in list(self._accepting.items()):
            if listener.pending and not waiter.done():
                waiter.set_result(None)
        return bool(self._ready)

    # What asyncio and the HA server ask of a loop

    def time(self) -> float:
        return self._now_s()

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self._is_closed:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self._now_s() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if not self._is_closed:
            self._number += 1
            heapq.heappush(self._timers, (when, self._number, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing: a cancelled timer is skipped when it is due."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, **options)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:
        self._readers[fd] = callback, args

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def add_writer(self, fd: Any, callback: Any, *args: Any) -> None:
        self._writers[fd] = callback, args

    def remove_writer(self, fd: Any) -> bool:
        return self._writers.pop(fd, None) is not None

    async def sock_accept(self, sock: Any) -> tuple[Any, Any]:
        listener = cast("Listener", sock)
        while not listener.pending:
            waiter = self._accepting[listener] = self.create_future()
            await waiter
            del self._accepting[listener]
        return listener.pending.popleft()

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        return [(2, 1, 6, "", (host, port or 0))]

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._is_closed

    def is_closed(self) -> bool:
        return self._is_closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context.get("exception") or context["message"])
