"""How listeners are called: how many at once, in which context, and what ends with them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextvars import ContextVar
from itertools import pairwise
from typing import Any

import pytest
from pulled import message

from gantrymq.client.consumer.listeners import ConsumeConcurrentlyStatus, Listening, listening
from gantrymq.client.consumer.push.consumption import SingleCall
from gantrymq.client.requests.received import ReceivedMessage

Results = list[tuple[int, BaseException | None]]


class Calls:
    """Submits calls, one for each offset, and keeps their results and how many there were at each settling."""

    def __init__(self, listener: Any, max_calls: int) -> None:
        self.results: Results = []
        self.settled: list[int] = []
        self.listening: Listening[Any, Any] = listening(
            listener, ConsumeConcurrentlyStatus, max_calls, "g", lambda same: same, self.settle
        )

    def settle(self) -> None:
        self.settled.append(len(self.results))

    def submit(self, *offsets: int) -> None:
        self.listening.submit([self.call(offset) for offset in offsets])

    def call(self, offset: int) -> SingleCall[Any, Any]:
        return SingleCall(
            [message(offset)], None, lambda: True, lambda status, error: self.results.append((offset, error))
        )

    async def ended(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.results) < count:
                await asyncio.sleep(0.001)

    def failed(self) -> list[int]:
        return [offset for offset, error in self.results if error is not None]


@pytest.mark.parametrize("is_coroutine", [True, False])
def test_listener_calls_at_once_are_as_many_as_the_limit(is_coroutine: bool) -> None:
    """The calls wait for one another, so that as many must run at once, in the order of submission."""
    most, lock, at_once = 4, threading.Lock(), list[int]()
    barrier, under_way = threading.Barrier(most), 0

    def count(step: int) -> None:
        nonlocal under_way
        with lock:
            under_way += step
            at_once.append(under_way)

    def listen(messages: Sequence[ReceivedMessage], context: None) -> None:
        count(1)
        barrier.wait(60)
        count(-1)

    async def scenario() -> None:
        met = asyncio.Barrier(most)

        async def listen_later(messages: Sequence[ReceivedMessage], context: None) -> None:
            count(1)
            async with asyncio.timeout(60):
                await met.wait()
            count(-1)

        calls = Calls(listen_later if is_coroutine else listen, most)
        for first in range(0, 40, 8):
            calls.submit(*range(first, first + 8))
        await calls.ended(40)
        assert (calls.failed(), max(at_once)) == ([], most)
        assert calls.settled[-1] == 40
        assert await calls.listening.close(60)

    asyncio.run(scenario())


def test_coroutine_listener_calls_have_contexts_of_their_own() -> None:
    seen, number = list[tuple[int, int]](), ContextVar("number", default=-1)

    async def listen(messages: Sequence[ReceivedMessage], context: None) -> None:
        seen.append((messages[0].queue_offset, number.get()))
        number.set(messages[0].queue_offset)
        await asyncio.sleep(0)
        assert number.get() == messages[0].queue_offset
        assert await asyncio.create_task(from_task()) == messages[0].queue_offset

    async def from_task() -> int:
        return number.get()

    async def scenario() -> None:
        calls = Calls(listen, 2)
        calls.submit(*range(10))
        await calls.ended(10)
        assert (sorted(seen), calls.failed()) == ([(offset, -1) for offset in range(10)], [])
        assert number.get() == -1

    asyncio.run(scenario())


def test_coroutine_listener_that_awaits_nothing_lets_other_tasks_run() -> None:
    async def listen(messages: Sequence[ReceivedMessage], context: None) -> None:
        pass

    async def scenario() -> None:
        calls, looked = Calls(listen, 1), list[int]()
        calls.submit(*range(1000))
        while len(calls.results) < 1000:
            await asyncio.sleep(0)
            looked.append(len(calls.results))
        assert max(after - before for before, after in pairwise(looked)) <= 32
        assert calls.settled[-1] == 1000

    asyncio.run(scenario())


def test_results_are_settled_before_listener_is_suspended() -> None:
    async def scenario() -> None:
        go_on = asyncio.Event()

        async def listen(messages: Sequence[ReceivedMessage], context: None) -> None:
            if messages[0].queue_offset == 3:
                await go_on.wait()

        calls = Calls(listen, 1)
        calls.submit(*range(5))
        await asyncio.sleep(0)
        assert (len(calls.results), calls.settled) == (3, [3])
        go_on.set()
        await calls.ended(5)
        assert calls.settled[-1] == 5

    asyncio.run(scenario())


@pytest.mark.parametrize("swallows", [True, False])
def test_listener_that_cancels_its_own_task_harms_no_other_call(swallows: bool) -> None:
    async def listen(messages: Sequence[ReceivedMessage], context: None) -> None:
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        if messages[0].queue_offset % 3 == 1:
            task.cancel()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if not swallows:
                    raise

    async def scenario() -> None:
        calls = Calls(listen, 1)
        calls.submit(*range(7))
        await calls.ended(7)
        assert calls.failed() == ([] if swallows else [1, 4])
        assert await calls.listening.close(60)

    asyncio.run(scenario())


def test_end_of_loop_begins_no_further_call() -> None:
    seen: list[int] = []

    async def listen(messages: Sequence[ReceivedMessage], context: None) -> None:
        seen.append(messages[0].queue_offset)
        await asyncio.sleep(60)

    async def scenario() -> None:
        calls = Calls(listen, 2)
        calls.submit(*range(10))
        await asyncio.sleep(0.01)

    asyncio.run(scenario())
    assert sorted(seen) == [0, 1]


def test_closed_listening_begins_no_waiting_call() -> None:
    async def scenario() -> None:
        seen, go_on = list[int](), asyncio.Event()

        async def listen(messages: Sequence[ReceivedMessage], context: None) -> None:
            seen.append(messages[0].queue_offset)
            await go_on.wait()

        calls = Calls(listen, 1)
        calls.submit(*range(3))
        await asyncio.sleep(0)
        closing = asyncio.create_task(calls.listening.close(60))
        await asyncio.sleep(0)
        go_on.set()
        assert await closing
        calls.submit(5)
        await asyncio.sleep(0.01)
        assert (seen, calls.results) == ([0], [(0, None)])

    asyncio.run(scenario())
