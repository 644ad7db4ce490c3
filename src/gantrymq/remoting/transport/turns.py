"""Fair scheduling of the event loop: a connection that pipelines requests does not delay other connections.

The obvious way is to answer all requests of a read before the next read. But a read of 256 KB holds thousands of
requests, so a client that pipelines 100,000 of them, or requests long answers, blocks the event loop for seconds. Here
a connection takes the requests of a read for :data:`SLICE_S`. The rest is queued, and queued connections get slices
round-robin, for :data:`TURN_S` in each iteration of the loop. Requests of other connections are read in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

T = TypeVar("T")

SLICE_S = 0.0005
TURN_S = 0.002
REST_TURNS = 4  # a send takes three iterations: it is read, stored, and its answer written

# Does one slice of some work. Returns whether there is more.
Work = Callable[[], bool]


class FairTurns:
    """A round-robin queue of work. Thread rule: the event loop's thread."""

    def __init__(self) -> None:
        self._waiting: deque[Work] = deque()
        self._loop = asyncio.get_running_loop()

    @property
    def is_idle(self) -> bool:
        """Whether no work is queued."""
        return not self._waiting

    def add(self, work: Work) -> None:
        """Call ``work`` once per round until it returns False."""
        if not self._waiting:
            self._loop.call_soon(self._run)
        self._waiting.append(work)

    def work_through(self, steps: Iterator[object]) -> None:
        """Take all steps: one slice at once, the others in turns."""
        work = partial(self._step, steps)
        if work():
            self.add(work)

    def _step(self, steps: Iterator[object]) -> bool:
        until = self._loop.time() + SLICE_S
        return any(self._loop.time() >= until for _ in steps)

    def _run(self) -> None:
        until = self._loop.time() + TURN_S
        while self._waiting:
            work = self._waiting[0]
            try:
                has_more = work()
            finally:
                self._waiting.popleft()
            if has_more:
                self._waiting.append(work)
            if self._loop.time() >= until:
                break
        if not self._waiting:
            return
        if self._loop.time() >= until + TURN_S:
            self._rest(REST_TURNS)
        else:
            self._loop.call_soon(self._run)

    def _rest(self, turns: int) -> None:
        """After work that could not be split: let requests be read, answered and written for ``turns`` iterations."""
        if turns:
            self._loop.call_soon(self._rest, turns - 1)
        else:
            self._run()


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """Iterate over ``items``, and yield to the event loop whenever a slice is over."""
    loop = asyncio.get_running_loop()
    until = loop.time() + SLICE_S
    for item in items:
        yield item
        if loop.time() >= until:
            await asyncio.sleep(0)
            until = loop.time() + SLICE_S
