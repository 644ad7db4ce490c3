"""Back-pressure: limits the messages and bytes that a producer has under way. Senders wait for room.

Without a limit, a program that sends a thousand large messages at once fills the memory, and the time limits of all of
them run while most have not left yet. So a time limit begins when the message has entered the window.

Source: DefaultMQProducerImpl (semaphoreAsyncSendNum, semaphoreAsyncSendSize), which fails where this waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable


class _Room:
    """The used part of ``most_messages`` and ``most_bytes``. A message larger than ``most_bytes`` enters alone."""

    def __init__(self, most_messages: int, most_bytes: int) -> None:
        self._most_messages, self._most_bytes = most_messages, most_bytes
        self.messages = self.bytes = 0

    def fits(self, size_bytes: int) -> bool:
        """Whether a message of this size may enter."""
        enough = self.messages < self._most_messages and self.bytes + size_bytes <= self._most_bytes
        return enough or self.messages == 0

    @property
    def has_quarter(self) -> bool:
        """Whether a quarter of both is free, or nothing is used."""
        quarter = 4 * self.messages <= 3 * self._most_messages and 4 * self.bytes <= 3 * self._most_bytes
        return quarter or self.messages == 0

    def enter(self, size_bytes: int) -> None:
        """Count a message that enters."""
        self.messages += 1
        self.bytes += size_bytes

    def leave(self, size_bytes: int) -> None:
        """Count a message that leaves."""
        self.messages -= 1
        self.bytes -= size_bytes


class SendWindow:
    """The window of coroutines, which enter in their order of arrival. Thread rule: the event loop's thread."""

    def __init__(self, most_messages: int, most_bytes: int) -> None:
        self._room = _Room(most_messages, most_bytes)
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def under_way(self) -> int:
        """The number of messages that have entered or wait to enter."""
        return self._room.messages + len(self._waiting)

    def try_enter(self, size_bytes: int) -> bool:
        """As :meth:`enter`, without a wait. Returns False if the message does not fit, or others wait already."""
        if self._waiting or not self._room.fits(size_bytes):
            return False
        self._idle.clear()
        self._room.enter(size_bytes)
        return True

    async def enter(self, size_bytes: int) -> None:
        """Wait until a message of this size fits, and take its room, which :meth:`leave` returns."""
        if not self.try_enter(size_bytes):
            self._idle.clear()
            await self._wait(size_bytes)

    def leave(self, size_bytes: int) -> None:
        """Release the room of a message whose send has ended."""
        self._room.leave(size_bytes)
        self._admit()

    async def drain(self, timeout_s: float | None) -> bool:
        """Wait until nothing is under way; returns False if ``timeout_s`` ends first."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def _wait(self, size_bytes: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._room.leave(size_bytes)
            else:
                self._waiting.remove((size_bytes, turn))
            self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self._room.fits(self._waiting[0][0]):
            size_bytes, turn = self._waiting.popleft()
            if not turn.done():
                self._room.enter(size_bytes)
                turn.set_result(None)
        if not self._waiting and self._room.messages == 0:
            self._idle.set()


class BlockingSendWindow:
    """The window of threads. A sender that waits goes on when a quarter of the room is free, or all of it.

    With every message that leaves it would be woken for one message, and threads would be switched once a message.

    Thread rule: any thread.
    """

    def __init__(self, most_messages: int, most_bytes: int) -> None:
        self._room = _Room(most_messages, most_bytes)
        self._changed = threading.Condition()
        self._waiters = 0

    def enter(self, size_bytes: int, *, wait: bool) -> None:
        """Wait until a message of this size fits. Without ``wait`` it enters at once, even above the limit."""
        with self._changed:
            if wait and not self._room.fits(size_bytes):
                self._wait_for(lambda: self._room.fits(size_bytes), None)
            self._room.enter(size_bytes)

    def leave(self, size_bytes: int) -> None:
        """Release the room of a message whose send has ended."""
        with self._changed:
            self._room.leave(size_bytes)
            if self._waiters and self._room.has_quarter:
                self._changed.notify_all()

    def drain(self, timeout_s: float | None) -> int:
        """Wait until nothing is under way, at most ``timeout_s``; returns how many messages still are."""
        with self._changed:
            self._wait_for(lambda: self._room.messages == 0, timeout_s)
            return self._room.messages

    def _wait_for(self, is_reached: Callable[[], bool], timeout_s: float | None) -> None:
        self._waiters += 1
        try:
            self._changed.wait_for(is_reached, timeout_s)
        finally:
            self._waiters -= 1
