"""Waits for messages at several brokers and topics at once, without receiving any.

The obvious way is a pop that the broker holds. It fails twice. With two topics, messages may arrive at the one where no
pop waits. A pop whose caller has given up hides its messages for their invisible time. A held NOTIFICATION changes
nothing at the broker. At most one is under way for each target, however often a caller waits.

Source: NotificationProcessor (the broker's side).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from gantrymq.client.requests.pop_calls import PopTarget

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0

Ask = Callable[[PopTarget], Awaitable[bool]]
"""Returns whether a target has messages, after a wait for them. It raises nothing."""


class Arrivals:
    """The notifications under way. Thread rule: the event loop's thread."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._waiting: dict[PopTarget, asyncio.Task[None]] = {}
        self._empty_wakes: dict[PopTarget, int] = {}

    def is_quiet(self, target: PopTarget) -> bool:
        """Whether the broker holds a notification, so that a pop would find nothing.

        Forgets a notification that has ended: the caller pops, and then waits again.
        """
        task = self._waiting.get(target)
        if task is not None and task.done():
            del self._waiting[target]
        return target in self._waiting

    def notify_found(self, target: PopTarget) -> None:
        """A pop of the target returned messages."""
        self._empty_wakes.pop(target, None)

    def drop(self, topic: str) -> None:
        """Forget the notifications of a topic, because its filter has changed. Callers that wait look again."""
        for target in [target_of_topic for target_of_topic in self._waiting if target_of_topic.topic == topic]:
            self._waiting.pop(target).cancel()

    async def wait(self, targets: Iterable[PopTarget], timeout_s: float) -> None:
        """Wait until a target may have messages, at most ``timeout_s``."""
        tasks = [self._task(target) for target in targets]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(timeout_s)

    async def close(self) -> None:
        """Stop waiting."""
        tasks = list(self._waiting.values())
        self._waiting.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _task(self, target: PopTarget) -> asyncio.Task[None]:
        if target not in self._waiting:
            self._waiting[target] = asyncio.get_running_loop().create_task(self._wait_for(target))
        return self._waiting[target]

    async def _wait_for(self, target: PopTarget) -> None:
        """Ask until the broker answers. If pops found nothing in spite of an answer, a pause comes first.

        A broker counts messages that the group's filter does not match, and those that another member receives first.
        """
        times = self._empty_wakes.get(target, 0)
        if times:
            await asyncio.sleep(min(_FIRST_PAUSE_S * 2 ** min(times, 10), _LONGEST_PAUSE_S))
        self._empty_wakes[target] = times + 1 if await self._ask(target) else 0
