"""Delayed answers: they wait for dispatch to catch up or for a message, or are long.

A message is acknowledged when it is in the log, and is in its queue a moment later. RocketMQ's dispatcher usually gets
there before the next request; here a request about queues waits for it.

A long answer, such as the statistics of a topic of 65,536 queues, would block the event loop for half a second if made
at once. It cannot be made on another thread, because most tables it reads belong to the event loop's thread. Long
answers are therefore made one at a time, in slices, and only for connections that read their answers.

Thread rule: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gantrymq.broker.acl.access_control import AccessGuard
from gantrymq.errors import RemotingConnectError
from gantrymq.remoting.body import Body
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import Answer, Processor, failure
from gantrymq.remoting.transport.turns import in_slices
from gantrymq.store.message_store import MessageStore

# Sends the encoded response to a request, with its code, once the topic that it depends on is durable.
Respond = Callable[[Channel, RemotingCommand, int, Sequence[bytes], str], None]
# Returns the reason why the sender of a request that has waited may not have the answer any more, or None.
Recheck = Callable[[], str | None]

_MAX_S = 1.0
_LOOK_EVERY_S = 0.001
_SHORT_ITEMS = 256  # an answer about up to this many items is not long


class DispatchCatchUp:
    """Lets processors wait for the dispatcher, at most one second. Thread rule: the event loop's thread."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._waiting: list[tuple[int, float, Callable[[], None]]] = []  # end of the log, deadline, callback

    def then(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once all that is in the log now is in its queues. All callbacks share one timer."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(_LOOK_EVERY_S, self._look)
        self._waiting.append((self._store.max_phy_offset, loop.time() + _MAX_S, callback))

    def _look(self) -> None:
        loop, dispatched, waiting = asyncio.get_running_loop(), self._store.dispatched_offset, self._waiting
        now = loop.time()
        self._waiting = [waiter for waiter in waiting if waiter[0] > dispatched and now < waiter[1]]
        if self._waiting:
            loop.call_later(_LOOK_EVERY_S, self._look)
        for wanted, deadline, callback in waiting:
            if wanted <= dispatched or now >= deadline:
                loop.call_soon(callback)

    def before(self, processor: Processor) -> Processor:
        """A processor that calls ``processor`` once all that is in the log at the request is in its queues."""

        def process(channel: Channel, request: RemotingCommand) -> Answer | Awaitable[Answer]:
            if not self._store.dispatch_behind_bytes:
                return processor(channel, request)
            return self._later(processor, channel, request)

        return process

    async def _later(self, processor: Processor, channel: Channel, request: RemotingCommand) -> Answer:
        loop, wanted = asyncio.get_running_loop(), self._store.max_phy_offset
        deadline = loop.time() + _MAX_S
        while self._store.dispatched_offset < wanted and loop.time() < deadline:
            await asyncio.sleep(_LOOK_EVERY_S)
        answer = processor(channel, request)
        return answer if answer is None or isinstance(answer, RemotingCommand) else await answer


@dataclass(frozen=True, slots=True)
class Answers:
    """When an answer may leave, and whether its client may still have it.

    ``respond`` sends the answer to a request that depends on a topic. ``access`` is None if access control is off.
    """

    caught_up: DispatchCatchUp
    respond: Respond
    access: AccessGuard | None

    def refusal(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """The answer that refuses a request, or None if its sender has the permission."""
        return self.access.refusal(channel, request) if self.access is not None else None

    def recheck(self, channel: Channel, request: RemotingCommand) -> Recheck | None:
        """The check to repeat when a request that waits is answered. None if access control is off."""
        return self.access.recheck(channel, request) if self.access is not None else None


def answer_waiting(
    channel: Channel, request: RemotingCommand, recheck: Recheck | None, answer: Callable[[], RemotingCommand | None]
) -> None:
    """Answer a pull, a pop or a notification that has waited, unless its sender has lost the permission.

    ``answer`` returns the response, or None if it sends one itself or the request waits again. If it raises, the
    error is the answer.
    """
    try:
        wrong = recheck() if recheck is not None else None
        response = answer() if wrong is None else request.response(ResponseCode.NO_PERMISSION, wrong)
    except Exception as error:
        response = failure(request, error)
    if response is not None:
        channel.respond(request, response)


class LongAnswers:
    """Serialises long answers. Thread rule: the event loop's thread."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def turn(self, channel: Channel, items: int) -> AsyncIterator[None]:
        """Wait for the turn to make an answer about ``items`` items.

        Raises RemotingConnectError on a closed channel.
        """
        if items <= _SHORT_ITEMS:
            yield
            return
        await channel.writable()
        async with self._lock:
            if channel.is_closed:
                raise RemotingConnectError(channel.address, "the connection was closed")
            yield


async def encode_in_slices(body: Body) -> bytes:
    """The result of :meth:`Body.encode`, made in slices of the event loop."""
    return b"".join([piece async for piece in in_slices(body.pieces())])
