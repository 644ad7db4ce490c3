"""Answers that depend on a new topic: they wait until the topic is durable and registered.

Otherwise a crash after the answer would lose the topic of an acknowledged message, and consumers would not find it.

Source: TopicConfigManager.createTopicInSendMessageMethod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from gantrymq.broker.outer_api import BrokerOuterAPI
from gantrymq.errors import GantrymqError
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel

# The longest wait of an answer for name servers: a client gives up after 3 s and sends the message again.
_ANNOUNCED_S = 1.0


class NewTopics:
    """Delays the answers that depend on a new topic until it is durable and registered.

    Thread rule: the event loop's thread.
    """

    def __init__(
        self, is_saved: Callable[[], bool], save: Callable[[], Awaitable[None]], outer: BrokerOuterAPI
    ) -> None:
        self._is_saved, self._save, self._outer = is_saved, save, outer
        self._unsettled: set[str] = set()  # new topics that may not be durable or registered yet
        self._answers: set[asyncio.Task[None]] = set()

    def changed(self, made: list[str]) -> None:
        """Topics were changed; ``made`` are those that are new."""
        self._unsettled.update(made)
        self._outer.register_soon()

    def respond(
        self, channel: Channel, request: RemotingCommand, code: int, pieces: Sequence[bytes], topic: str
    ) -> None:
        """Send an answer. If ``topic`` is new, the answer first waits for it."""
        if topic not in self._unsettled or self._are_settled():
            channel.respond_bytes(request, code, pieces)
        else:
            send = partial(channel.respond_bytes, request, code, pieces)
            task = asyncio.ensure_future(self._answer_when_settled(send, topic))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

    async def drain(self) -> None:
        """Wait for the answers that wait."""
        if self._answers:
            await asyncio.wait(self._answers)

    def cancel(self) -> None:
        """Drop the answers that wait."""
        for answer in self._answers:
            answer.cancel()

    def _are_settled(self) -> bool:
        """Whether all topics are durable and registered, so that no answer has to wait."""
        if not (self._is_saved() and self._outer.is_current):
            return False
        self._unsettled.clear()
        return True

    async def _answer_when_settled(self, send: Callable[[], None], topic: str) -> None:
        with suppress(OSError, GantrymqError):  # saving the table is retried later; the message itself is stored
            await self._save()
        with suppress(TimeoutError, GantrymqError):
            await asyncio.wait_for(self._outer.settled(), _ANNOUNCED_S)
        if not self._are_settled():
            self._unsettled.discard(topic)  # this answer has waited for the failure, so no other send has to
        send()
