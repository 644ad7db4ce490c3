"""Calls that arrive at about the same time continue in one iteration of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from gantrymq.grpc.calls.gathering import ALONE_S, GATHER_S, MAX_ALONE_S, MAX_ALONE_WAITS, Gathering


class ManualLoop:
    """The part of an event loop that a Gathering uses. Its time only moves in :meth:`advance`."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, callback: Callable[[], None]) -> None:
        self._due.append((when_s, callback))

    def create_future(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    async def advance(self, by_s: float) -> None:
        self.now_s += by_s
        due, self._due = self._due, []
        for when_s, callback in due:
            if when_s <= self.now_s:
                callback()
            else:
                self._due.append((when_s, callback))
        await settle()


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def begin(calls: Gathering) -> asyncio.Task[None]:
    return asyncio.ensure_future(calls.turn())


def test_call_after_pause_continues_at_once_and_later_calls_together() -> None:
    async def check() -> None:
        loop = ManualLoop()
        calls = Gathering(cast(asyncio.AbstractEventLoop, loop))
        first = begin(calls)
        await settle()
        assert first.done()
        others = [begin(calls), begin(calls)]
        await loop.advance(GATHER_S / 2)
        others.append(begin(calls))
        await settle()
        assert not any(one.done() for one in others)
        await loop.advance(GATHER_S)
        assert all(one.done() for one in others)
        await loop.advance(GATHER_S)
        after = begin(calls)
        await settle()
        assert after.done()

    asyncio.run(check())


def test_cancelled_call_does_not_end_wait_of_other_calls() -> None:
    async def check() -> None:
        loop = ManualLoop()
        calls = Gathering(cast(asyncio.AbstractEventLoop, loop))
        await calls.turn()
        gone, other = begin(calls), begin(calls)
        await settle()
        gone.cancel()
        await settle()
        assert not other.done()
        await loop.advance(GATHER_S)
        assert other.done()
        assert not other.cancelled()

    asyncio.run(check())


def test_sequential_calls_do_not_wait_for_gathering() -> None:
    async def check() -> None:
        loop = ManualLoop()
        calls = Gathering(cast(asyncio.AbstractEventLoop, loop))
        await calls.turn()
        for _ in range(MAX_ALONE_WAITS):
            alone = begin(calls)
            await settle()
            assert not alone.done()
            await loop.advance(GATHER_S)
            assert alone.done()
        for _ in range(100):
            free = begin(calls)
            await settle()
            assert free.done()
            await loop.advance(ALONE_S / 200)
        await loop.advance(ALONE_S)
        await calls.turn()
        again = begin(calls)
        await settle()
        assert not again.done()
        await loop.advance(GATHER_S)
        await again

    asyncio.run(check())


async def waits_one_at_a_time(loop: ManualLoop, calls: Gathering, seconds: float) -> int:
    """How many calls wait, of a client that sends each one a millisecond after the last one."""
    waits, end_s = 0, loop.now_s + seconds
    while loop.now_s < end_s:
        call = begin(calls)
        await settle()
        if not call.done():
            waits += 1
            await loop.advance(GATHER_S)
        await call
        await loop.advance(0.001)
    return waits


def test_calls_one_at_a_time_wait_less_often_until_some_arrive_together() -> None:
    async def check() -> None:
        loop = ManualLoop()
        calls = Gathering(cast(asyncio.AbstractEventLoop, loop))
        at_first = await waits_one_at_a_time(loop, calls, MAX_ALONE_S)
        await waits_one_at_a_time(loop, calls, MAX_ALONE_S)
        later = await waits_one_at_a_time(loop, calls, MAX_ALONE_S)
        assert 0 < later <= 2 * MAX_ALONE_WAITS < at_first
        await loop.advance(MAX_ALONE_S)
        await calls.turn()
        together = [begin(calls), begin(calls)]
        await settle()
        await loop.advance(GATHER_S)
        await asyncio.gather(*together)
        assert await waits_one_at_a_time(loop, calls, MAX_ALONE_S) > 2 * MAX_ALONE_WAITS

    asyncio.run(check())
