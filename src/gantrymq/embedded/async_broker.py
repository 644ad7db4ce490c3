"""The embedded broker for asyncio programs.

async with AsyncEmbeddedBroker() as broker:
    await broker.create_topic("orders")

The servers still run in a thread of their own, so that a coroutine that blocks its event loop does not block them.
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
from gantrymq.embedded.users import Users
from gantrymq.model.message import StoredMessage

T = TypeVar("T")


class AsyncEmbeddedBroker:
    """An :class:`gantrymq.embedded.broker.EmbeddedBroker` whose slow methods are coroutines.

    The arguments are the same.
    """

    def __init__(
        self,
        store: str | Path | None = None,
        *,
        settings: Settings | None = None,
        namesrv_port: int = 0,
        listen_port: int = 0,
        console: bool = False,
        grpc: bool = False,
        users: Users | None = None,
    ) -> None:
        self.blocking = EmbeddedBroker(
            store,
            settings=settings,
            namesrv_port=namesrv_port,
            listen_port=listen_port,
            console=console,
            grpc=grpc,
            users=users,
        )

    @classmethod
    def around(cls, broker: EmbeddedBroker) -> Self:
        """An asynchronous interface to an existing broker."""
        face = cls.__new__(cls)
        face.blocking = broker
        return face

    async def __aenter__(self) -> Self:
        """Start the broker. If that fails or is cancelled, close it."""
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the broker."""
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
    def console(self) -> str:
        """The address of the web console."""
        return self.blocking.console

    @property
    def grpc(self) -> str:
        """The address for clients of gRPC."""
        return self.blocking.grpc

    @property
    def metrics_url(self) -> str:
        """The URL of Prometheus' metrics. Empty unless ``settings`` have ``metricsExporterType=PROM``."""
        return self.blocking.metrics_url

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
        """Whether the broker runs."""
        return self.blocking.is_running

    async def start(self) -> None:
        """Start the broker."""
        await _aside(self.blocking.start)

    async def stop(self) -> None:
        """Shut it down cleanly."""
        await _aside(self.blocking.stop)

    async def kill(self) -> None:
        """End the broker as SIGKILL ends a process."""
        await _aside(self.blocking.kill)

    async def restart(self) -> None:
        """Stop the broker if it runs, and start it again."""
        await _aside(self.blocking.restart)

    async def close(self) -> None:
        """Stop the broker, and remove its directory if it is temporary."""
        await _aside(self.blocking.close)

    async def create_topic(
        self, topic: str, queues: int = 4, *, order: bool = False, message_type: str | None = None
    ) -> None:
        """Create a topic. Returns when it has a route."""
        await _aside(lambda: self.blocking.create_topic(topic, queues, order=order, message_type=message_type))

    async def create_group(self, group: str, *, order: bool = False, max_retries: int = 16) -> None:
        """Create a consumer group, or change it."""
        await _aside(lambda: self.blocking.create_group(group, order=order, max_retries=max_retries))

    async def messages(self, topic: str) -> list[StoredMessage]:
        """All messages stored under a topic."""
        return await _aside(lambda: self.blocking.messages(topic))

    async def bodies(self, topic: str) -> list[bytes]:
        """The bodies of a topic's messages, decompressed."""
        return await _aside(lambda: self.blocking.bodies(topic))

    async def wait_for_messages(self, topic: str, count: int, *, timeout_s: float = 10) -> list[StoredMessage]:
        """Wait until exactly ``count`` messages are stored under a topic."""
        return await _aside(lambda: self.blocking.wait_for_messages(topic, count, timeout_s=timeout_s))

    async def consumer_offsets(self, group: str, topic: str) -> dict[int, int]:
        """The committed offsets of a group on a topic, by queue number."""
        return await _aside(lambda: self.blocking.consumer_offsets(group, topic))


async def _aside(call: Callable[[], T]) -> T:
    return await asyncio.to_thread(call)
