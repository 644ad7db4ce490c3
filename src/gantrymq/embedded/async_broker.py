"""The embedded broker for programs on asyncio: the same, awaited.

async with AsyncEmbeddedBroker() as broker:
    await broker.create_topic("orders")

The servers run in a thread of their own all the same, so that a coroutine which holds its loop holds nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from gantrymq.clock import ShiftedClock
from gantrymq.embedded.broker import EmbeddedBroker
from gantrymq.embedded.restartable_broker import Settings
from gantrymq.model.message import StoredMessage

T = TypeVar("T")


class AsyncEmbeddedBroker:
    """As :class:`gantrymq.embedded.broker.EmbeddedBroker`, with the same arguments; what takes time is awaited."""

    def __init__(
        self,
        store: str | Path | None = None,
        *,
        settings: Settings | None = None,
        namesrv_port: int = 0,
        listen_port: int = 0,
    ) -> None:
        self.blocking = EmbeddedBroker(store, settings=settings, namesrv_port=namesrv_port, listen_port=listen_port)

    @classmethod
    def around(cls, broker: EmbeddedBroker) -> Self:
        """The awaited face of a broker that is there already."""
        face = cls.__new__(cls)
        face.blocking = broker
        return face

    async def __aenter__(self) -> Self:
        """Started; where that fails, or is cancelled, closed."""
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closed."""
        await self.close()

    @property
    def namesrv(self) -> str:
        """The name server's address, for clients."""
        return self.blocking.namesrv

    @property
    def address(self) -> str:
        """The broker's address."""
        return self.blocking.address

    @property
    def store_path(self) -> Path:
        """The store's directory."""
        return self.blocking.store_path

    @property
    def clock(self) -> ShiftedClock:
        """The broker's clock."""
        return self.blocking.clock

    @property
    def is_running(self) -> bool:
        """Whether it serves."""
        return self.blocking.is_running

    async def start(self) -> None:
        """Start it."""
        await _aside(self.blocking.start)

    async def stop(self) -> None:
        """Shut it down cleanly."""
        await _aside(self.blocking.stop)

    async def kill(self) -> None:
        """End it as SIGKILL ends a process."""
        await _aside(self.blocking.kill)

    async def restart(self) -> None:
        """Stop it where it runs, and start it again."""
        await _aside(self.blocking.restart)

    async def close(self) -> None:
        """Stop it, and remove its directory where that is temporary."""
        await _aside(self.blocking.close)

    async def create_topic(self, topic: str, queues: int = 4, *, order: bool = False) -> None:
        """Make a topic; returns when it has a route."""
        await _aside(lambda: self.blocking.create_topic(topic, queues, order=order))

    async def messages(self, topic: str) -> list[StoredMessage]:
        """Everything stored under a topic."""
        return await _aside(lambda: self.blocking.messages(topic))

    async def bodies(self, topic: str) -> list[bytes]:
        """The bodies as they were sent."""
        return await _aside(lambda: self.blocking.bodies(topic))

    async def wait_for_messages(self, topic: str, count: int, *, timeout_s: float = 10) -> list[StoredMessage]:
        """Wait until ``count`` messages are stored under a topic, and no more."""
        return await _aside(lambda: self.blocking.wait_for_messages(topic, count, timeout_s=timeout_s))

    async def consumer_offsets(self, group: str, topic: str) -> dict[int, int]:
        """How far a group has consumed a topic."""
        return await _aside(lambda: self.blocking.consumer_offsets(group, topic))


async def _aside(call: Callable[[], T]) -> T:
    return await asyncio.to_thread(call)
