"""A service does one bounded piece of work at a time; its runner owns the thread, the wake-up and the stop.

Source: RocketMQ's ServiceThread, of which every service is a subclass there. Here a service knows no thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from gantrymq.clock import Clock, monotonic_ms


class Service(Protocol):
    """What a runner runs. ``step`` and ``drain`` are called from the runner's thread only."""

    @property
    def name(self) -> str:
        """RocketMQ's name of the service."""
        ...

    @property
    def interval_ms(self) -> int:
        """How long to sleep where a step said that nothing more waits."""
        ...

    def step(self, now_ms: int) -> bool:
        """Do one bounded piece of work; True says that more waits, so come again at once."""
        ...

    def drain(self) -> None:
        """The work of a clean shutdown: leave nothing undone."""
        ...


class ServiceRunner:
    """Runs one service in a daemon thread until :meth:`stop`.

    A step that raises is counted in ``failures`` and reported to ``on_failure``; the service goes on with its next
    interval. ``wake`` may be called from any thread and costs little when the runner is awake. ``rest_ms`` is asked
    after a step that left nothing: the next one comes no sooner than so much later, even if it is woken, and what comes
    meanwhile is done together. Steps are told a monotonic time, which no correction of the clock moves, or
    ``by_calendar`` the time of day.
    """

    def __init__(
        self,
        service: Service,
        clock: Clock,
        on_failure: Callable[[str, Exception], None],
        *,
        rest_ms: Callable[[], float] | None = None,
        by_calendar: bool = False,
    ) -> None:
        self._service = service
        self._now_ms = clock.now_ms if by_calendar else partial(monotonic_ms, clock)
        self._on_failure = on_failure
        self._rest_ms = rest_ms
        self._asleep = threading.Lock()  # a semaphore of one: who sleeps acquires it, who wakes releases it
        self._asleep.acquire()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=service.name, daemon=True)
        self.failures = 0

    def start(self) -> None:
        """Begin; call once."""
        self._thread.start()

    def wake(self) -> None:
        """Make the service step now instead of when its interval is over."""
        if self._asleep.locked():
            with suppress(RuntimeError):  # another thread was faster
                self._asleep.release()

    def stop(self) -> None:
        """End the thread and drain the service; returns when both are done. Errors of the drain are raised."""
        self.abandon()
        self._service.drain()

    def abandon(self) -> None:
        """End the thread and leave undone what is; returns when it has ended. Doing so twice is harmless."""
        self._stopping = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            if self._step():
                continue
            if self._rest_ms is not None and not self._stopping:
                time.sleep(self._rest_ms() / 1000)
            self._asleep.acquire(timeout=min(self._service.interval_ms / 1000, threading.TIMEOUT_MAX))

    def _step(self) -> bool:
        try:
            return self._service.step(self._now_ms())
        except Exception as error:
            # A service outlives whatever one step ran into; the store decides what the failure means.
            self.failures += 1
            self._on_failure(self._service.name, error)
            return False
