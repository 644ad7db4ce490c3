"""Lets calls that arrive within a few milliseconds continue in one iteration of the event loop.

A broker joins what one iteration brings: acknowledgements of a pop become one record, and all records one append. Over
remoting one read of a connection brings many requests. The SDKs of gRPC send each call by itself, so each
acknowledgement would become a record that wakes the dispatcher and the timers. So a call waits for others, unless there
has been none for a while.

A client that sends its next call only after the answer to the last one gains nothing by the wait. After
:data:`MAX_ALONE_WAITS` waits with one call each, calls do not wait for :data:`ALONE_S`, and for twice as long each time
that this happens again, up to :data:`MAX_ALONE_S`.

Thread rule: the event loop's thread.
"""

from __future__ import annotations

import asyncio

GATHER_S = 0.003
MAX_ALONE_WAITS = 8
ALONE_S, MAX_ALONE_S = 0.1, 3.2


class Gathering:
    """Calls of one kind, answered on ``loop``."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[asyncio.Future[None]] = []
        self._ends_s = self._free_until_s = 0.0
        self._alone = 0  # waits with one call since the last one with several
        self._alone_s = ALONE_S

    async def turn(self) -> None:
        """Return at once after a pause of GATHER_S, otherwise together with the others that wait."""
        if not self._waiting:
            now_s = self._loop.time()
            if now_s >= self._ends_s or now_s < self._free_until_s:
                self._ends_s = now_s + GATHER_S
                return
            self._loop.call_at(self._ends_s, self._release)
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(turn)
        await turn

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, []
        now_s = self._loop.time()
        self._ends_s = now_s + GATHER_S
        if len(waiting) > 1:
            self._alone, self._alone_s = 0, ALONE_S
        else:
            self._alone += 1
        if self._alone == MAX_ALONE_WAITS:
            self._alone, self._free_until_s = 0, now_s + self._alone_s
            self._alone_s = min(2 * self._alone_s, MAX_ALONE_S)
        for turn in waiting:
            if not turn.done():  # its call may have been cancelled
                turn.set_result(None)
