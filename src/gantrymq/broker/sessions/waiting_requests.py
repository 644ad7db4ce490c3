"""What held pulls and waiting pops share: their memory by connection, and reports of new messages to the event loop.

If too many requests wait in all, the oldest of the connection that holds most are answered early. RocketMQ bounds all
waiting requests together, so one client can prevent all others from waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

_PART_ANSWERED = 8  # of the connection that holds most, one request in this many is answered early
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Asker(Protocol):
    """A connection that sent requests."""

    is_closed: bool


class Waiting(Protocol):
    """A waiting request: the connection that its answer goes to, and its memory in bytes."""

    channel: Asker
    size_bytes: int


R = TypeVar("R", bound=Waiting)


@dataclass(slots=True)
class _Holder(Generic[R]):
    """The requests of one connection, oldest first."""

    requests: dict[R, None] = field(default_factory=dict)
    size_bytes: int = 0


class WaitingByConnection(Generic[R]):
    """Waiting requests by connection. ``size_bytes`` is the memory of all. Thread rule: the event loop's thread."""

    def __init__(self) -> None:
        self._holders: dict[Asker, _Holder[R]] = {}
        self._count = self.size_bytes = 0

    def __len__(self) -> int:
        """The number of requests."""
        return self._count

    def add(self, request: R) -> None:
        """Add a request."""
        holder = self._holders.get(request.channel)
        if holder is None:
            holder = self._holders[request.channel] = _Holder()
        holder.requests[request] = None
        holder.size_bytes += request.size_bytes
        self._count += 1
        self.size_bytes += request.size_bytes

    def remove(self, request: R) -> None:
        """Remove a request. Raises KeyError if it is not there."""
        holder = self._holders[request.channel]
        del holder.requests[request]
        holder.size_bytes -= request.size_bytes
        if not holder.requests:
            del self._holders[request.channel]
        self._count -= 1
        self.size_bytes -= request.size_bytes

    def clear(self) -> None:
        """Remove all requests."""
        self._holders.clear()
        self._count = self.size_bytes = 0

    def of(self, channel: Asker) -> list[R]:
        """The requests of a connection, oldest first."""
        holder = self._holders.get(channel)
        return [] if holder is None else list(holder.requests)

    def size_bytes_of(self, channel: Asker) -> int:
        """The memory of the requests of a connection."""
        holder = self._holders.get(channel)
        return 0 if holder is None else holder.size_bytes

    @property
    def largest_bytes(self) -> int:
        """The memory of the requests of the connection that holds most. Takes O(connections)."""
        return max((holder.size_bytes for holder in self._holders.values()), default=0)

    def oldest_of_largest(self) -> list[R]:
        """The oldest eighth of the requests of the connection that holds most, at least one. Takes O(connections)."""
        largest = max(self._holders.values(), key=lambda holder: holder.size_bytes, default=None)
        if largest is None:
            return []
        return list(largest.requests)[: max(len(largest.requests) // _PART_ANSWERED, 1)]


class ArrivalReports(Generic[K, V]):
    """Reports of new messages from any thread. The event loop is woken once for all of them, and calls ``take``.

    Of several reports with one key, only the value of the last one is taken.
    """

    def __init__(self, take: Callable[[list[tuple[K, V]]], object]) -> None:
        self._take = take
        self._reports: dict[K, V] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_woken = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to wake this event loop."""
        self._loop = loop

    def stop(self) -> None:
        """Do not wake the event loop again."""
        self._loop = None

    def add(self, key: K, value: V) -> None:
        """Report messages. Thread rule: any thread."""
        self._reports[key] = value
        loop = self._loop
        if not self._is_woken and loop is not None:
            self._is_woken = True
            try:
                loop.call_soon_threadsafe(self._wake)
            except RuntimeError:  # the loop has closed
                return

    def _wake(self) -> None:
        self._is_woken = False  # before the reports are read: a later one wakes the loop again
        reports: list[tuple[K, V]] = []
        while self._reports:
            reports.append(self._reports.popitem())
        self._take(reports)
