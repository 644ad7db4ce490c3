"""Answers that count on what was sent before they were asked for.

A message is acknowledged when it is in the log, and in its queue a moment later. RocketMQ's dispatcher is mostly there
before the next request is; here a question about queues waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import Answer, Processor
from gantrymq.store.message_store import MessageStore

_MOST_S = 1.0
_LOOK_EVERY_S = 0.001


class DispatchCatchUp:
    """Lets processors wait for the dispatcher, for a second at most. Thread rule: the event loop's thread."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def before(self, processor: Processor) -> Processor:
        """The processor, called once all that is in the log now is in its queues."""

        def process(channel: Channel, request: RemotingCommand) -> Answer | Awaitable[Answer]:
            if not self._store.dispatch_behind_bytes:
                return processor(channel, request)
            return self._later(processor, channel, request)

        return process

    async def _later(self, processor: Processor, channel: Channel, request: RemotingCommand) -> Answer:
        loop, wanted = asyncio.get_running_loop(), self._store.max_phy_offset
        deadline = loop.time() + _MOST_S
        while self._store.dispatched_offset < wanted and loop.time() < deadline:
            await asyncio.sleep(_LOOK_EVERY_S)
        answer = processor(channel, request)
        return answer if answer is None or isinstance(answer, RemotingCommand) else await answer
