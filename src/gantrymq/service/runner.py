"""A service does one bounded piece of work at a time. Its runner owns the thread, the wake-up and the stop.

Source: RocketMQ's ServiceThread, the base class of its services. Here a service has no thread of its own.
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
    """The work of a runner. Thread rule: only the runner calls ``step`` and ``drain``."""

    @property
    def name(self) -> str:
        """RocketMQ's name of the service."""
        ...

    @property
    def interval_ms(self) -> int:
        """The sleep after a step that left no work (ms)."""
        ...

    def step(self, now_ms: int) -> bool:
        """Do one bounded piece of work. Returns True if more work waits."""
        ...

    def drain(self) -> None:
        """Finish all work, for a clean shutdown."""
        ...


class ServiceRunner:
    """Runs one service in a daemon thread until :meth:`stop`.

    A step that raises is counted in ``failures`` and reported to ``on_failure``; the service continues with its next
    interval. ``wake`` may be called from any thread and is cheap if the runner is awake. ``rest_ms`` is called after a
    step that left no work: the next step begins at least that much later, even after a wake, so that the work that
    arrives meanwhile is done together. Steps get a monotonic time, or with ``by_calendar`` the wall clock's (ms).
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
        self._asleep = threading.Lock()  # a semaphore: sleeping acquires it, waking releases it
        self._asleep.acquire()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=service.name, daemon=True)
        self.failures = 0

    def start(self) -> None:
        """Start the thread. Call it once."""
        self._thread.start()

    def wake(self) -> None:
        """Run the next step now instead of at the end of the interval."""
        if self._asleep.locked():
            with suppress(RuntimeError):  # another thread was faster
                self._asleep.release()

    def stop(self) -> None:
        """End the thread and drain the service. Returns when both are done. Raises the drain's errors."""
        self.abandon()
        self._service.drain()

    def abandon(self) -> None:
        """End the thread without a drain. Returns when it has ended. A second call has no effect."""
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
            # A failed step does not end the service; the store decides what the failure means.
            self.failures += 1
            self._on_failure(self._service.name, error)
            return False
