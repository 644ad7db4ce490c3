"""Long answers, such as the statistics of a topic of 65,536 queues.

Made at once, such an answer blocks the event loop for half a second. It cannot be made on another thread, because most
tables it reads belong to the event loop's thread. Long answers are therefore made one at a time, in slices, and only
for connections that read their answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gantrymq.errors import RemotingConnectError
from gantrymq.remoting.body import Body
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.turns import in_slices

_SHORT_ITEMS = 256  # up to here it is no long answer


class LongAnswers:
    """Lets one long answer at a time be made. Thread rule: the event loop's thread."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def turn(self, channel: Channel, items: int) -> AsyncIterator[None]:
        """Wait for the turn to make an answer about ``items``; raises RemotingConnectError on a closed channel."""
        if items <= _SHORT_ITEMS:
            yield
            return
        await channel.writable()
        async with self._lock:
            if channel.is_closed:
                raise RemotingConnectError(channel.address, "the connection was closed")
            yield


async def encode_in_slices(body: Body) -> bytes:
    """What :meth:`Body.encode` gives, in turns of the event loop."""
    return b"".join([piece async for piece in in_slices(body.pieces())])
