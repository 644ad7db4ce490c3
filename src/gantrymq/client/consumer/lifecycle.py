"""The life of a consumer: it is started once, by ``with`` or by a call, and closed once.

``with`` starts a consumer. Programs also call ``start()`` in the block, so one such call has no effect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from gantrymq.client.runtime.loop_thread import LoopThread, close_when_dropped
from gantrymq.errors import AlreadyStartedError


class AsyncGroupConsumer(ABC):
    """A consumer over asyncio. A subclass implements ``_start``, the work of a start, and :meth:`close`.

    Thread rule: the event loop's thread.
    """

    def __init__(self, client_id: str) -> None:
        self._client_id, self._is_entered = client_id, False

    async def __aenter__(self) -> Self:
        try:
            await self.enter()
        except AlreadyStartedError:
            raise  # the consumer keeps running, because another caller started it
        except BaseException:
            await self.close()  # otherwise heartbeats continue, and the group counts this consumer
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def client_id(self) -> str:
        """The id of this consumer at the brokers."""
        return self._client_id

    async def start(self) -> None:
        """Join the group, and begin to receive messages.

        After an error nothing has begun, and the call may be repeated. If the consumer is closed meanwhile, it raises
        MQClientError or RemotingError. One call after ``with`` has started the consumer has no effect.
        """
        if self._is_entered:
            self._is_entered = False
        else:
            await self._start()

    async def enter(self) -> None:
        """Start the consumer for ``with``."""
        await self._start()
        self._is_entered = True

    @abstractmethod
    async def _start(self) -> None:
        """Join the group. Raises AlreadyStartedError if the consumer runs or is closed."""

    @abstractmethod
    async def close(self) -> None:
        """Leave the group. A second call has no effect."""


C = TypeVar("C", bound=AsyncGroupConsumer)


class BlockingGroupConsumer(ABC, Generic[C]):
    """A consumer whose asynchronous counterpart, made by ``make``, runs on an event loop in a thread of its own.

    Thread rule: any thread.
    """

    def __init__(self, name: str, make: Callable[[], C]) -> None:
        self._loop = LoopThread(name)
        self._consumer = self._loop.make(make)
        close_when_dropped(self, self._loop, self._consumer.close)

    def __enter__(self) -> Self:
        try:
            self._loop.run(self._consumer.enter())
        except AlreadyStartedError:
            raise  # the consumer keeps running, because another caller started it
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def client_id(self) -> str:
        """The id of this consumer at the brokers."""
        return self._consumer.client_id

    def start(self) -> None:
        """Join the group, and begin to receive messages. One call after ``with`` has no effect."""
        self._loop.run(self._consumer.start())

    @abstractmethod
    def close(self) -> None:
        """Leave the group. A second call waits for the first."""
