"""An event loop in a thread of its own: what the plain faces of asynchronous clients run on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from gantrymq.errors import MQClientError

T = TypeVar("T")


class LoopThread:
    """Runs coroutines one thread away. Thread rule: any thread but its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"gantrymq-{name}", daemon=True)
        self._thread.start()
        self._closed = False

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine; raises MQClientError once all is closed."""
        if self._closed:
            work.close()
            raise MQClientError(f"the {self._name} is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """A coroutine's result, or what it raises."""
        return self.submit(work).result()

    def do(self, act: Callable[[], T]) -> T:
        """Call a plain function in the loop's thread; what it returns or raises."""

        async def work() -> T:
            return act()

        return self.run(work())

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Run what is left to do, then end the thread; what it raises is raised. Twice is once."""
        if self._closed:
            last.close()
            return
        ending = self.submit(last)
        self._closed = True
        try:
            ending.result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
