"""The state that all connections of a server share: limits, memory budgets, and turns at the event loop.

A limit of bytes for each connection alone limits nothing, since a client may open any number of connections. Above the
limit over all of them, the connections that hold the most bytes for the longest time are closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from gantrymq.remoting.transport.limited_log import LimitedLog
from gantrymq.remoting.transport.meter import RequestMeter
from gantrymq.remoting.transport.turns import FairTurns

T = TypeVar("T")

_MIN_AGE_S = 0.05
_SPARE = 8
MAX_CONNECTIONS_KEY = "maxConnections"
MAX_PARTIAL_KEY = "maxPartialRequestBytes"
MAX_UNREAD_KEY = "maxUnreadResponseBytes"


@dataclass(slots=True)
class _Held:
    size_bytes: int
    since: float


class BufferBudget(Generic[T]):
    """Bytes by holder. Above ``limit_bytes`` in total, ``cut_off`` is called for holders until the total is below it.

    ``measure`` returns what a holder has now, which may be less than it noted last. Holders are cut off in the order of
    bytes times seconds since they last released some, so that a large message of a fast sender is kept and a frame that
    trickles in is not.

    Thread rule: the event loop's thread.
    """

    def __init__(
        self, limit_bytes: int, measure: Callable[[T], int], cut_off: Callable[[T, int], None], now: Callable[[], float]
    ) -> None:
        self._limit_bytes, self._measure, self._cut_off, self._now = limit_bytes, measure, cut_off, now
        self._holders: dict[T, _Held] = {}
        self.size_bytes = 0

    def note(self, holder: T, size_bytes: int, added_bytes: int = 0) -> None:
        """Note that a holder has ``size_bytes``, ``added_bytes`` of them since the last event. May call ``cut_off``."""
        held = self._holders.get(holder)
        if held is None:
            if not size_bytes:
                return
            self._holders[holder] = _Held(size_bytes, self._now())
            self.size_bytes += size_bytes
        elif size_bytes:
            self.size_bytes += size_bytes - held.size_bytes
            if size_bytes - added_bytes < held.size_bytes:
                held.since = self._now()
            held.size_bytes = size_bytes
        else:
            self.forget(holder)
        if self.size_bytes > self._limit_bytes:
            self._shrink()

    def forget(self, holder: T) -> None:
        """Remove a holder that buffers nothing any more."""
        held = self._holders.pop(holder, None)
        if held is not None:
            self.size_bytes -= held.size_bytes

    def _shrink(self) -> None:
        now = self._now()
        for holder, held in list(self._holders.items()):
            size_bytes = self._measure(holder)
            if size_bytes < held.size_bytes:
                held.since = now
            self.size_bytes += size_bytes - held.size_bytes
            held.size_bytes = size_bytes
            if not size_bytes:
                del self._holders[holder]
        if self.size_bytes <= self._limit_bytes:
            return

        def weight(holder: T) -> float:
            held = self._holders[holder]
            return held.size_bytes * (now - held.since + _MIN_AGE_S)

        # A margin, so that not every further byte starts another search.
        target_bytes = self._limit_bytes - self._limit_bytes // _SPARE
        for holder in sorted(self._holders, key=weight, reverse=True):
            if self.size_bytes <= target_bytes:
                return
            size_bytes = self._holders[holder].size_bytes
            self.forget(holder)
            self._cut_off(holder, size_bytes)


@dataclass(frozen=True)
class ServerLimits:
    """Resource limits of a server, each over all its connections except ``max_header_bytes``.

    ``max_header_bytes``: a message has at most 32,767 bytes of properties, which JSON makes six times as long where all
    are control characters. ``max_partial_bytes``: requests that are incomplete or queued. ``max_unread_bytes``: answers
    that clients have not read. ``max_handshakes``: unfinished TLS handshakes, each for at most ``handshake_seconds``.
    ``max_body_bytes``, by request code: a longer body is not kept.
    """

    max_connections: int = 100_000
    max_header_bytes: int = 256 * 1024
    max_partial_bytes: int = 64 * 1024 * 1024
    max_unread_bytes: int = 64 * 1024 * 1024
    max_handshakes: int = 500
    handshake_seconds: float = 10
    max_body_bytes: Callable[[int], int] | None = None


class Holder(Protocol):
    """A connection as the memory budgets see it."""

    address: str

    @property
    def buffered_bytes(self) -> int:
        """The size of buffered requests."""
        ...

    @property
    def unread_bytes(self) -> int:
        """The size of unread answers."""
        ...

    def abort(self) -> None:
        """Close the connection now."""
        ...


class ServerState:
    """The shared objects of one server. Construct it on the server's event loop. ``meter`` is None if it measures
    nothing.
    """

    def __init__(self, limits: ServerLimits | None = None, meter: RequestMeter | None = None) -> None:
        self.limits, self.meter = limits or ServerLimits(), meter
        now = asyncio.get_running_loop().time
        self.turns = FairTurns()
        self.log = LimitedLog(now)
        self.partial: BufferBudget[Holder] = BufferBudget(
            self.limits.max_partial_bytes, lambda channel: channel.buffered_bytes, self._too_much_partial, now
        )
        self.unread: BufferBudget[Holder] = BufferBudget(
            self.limits.max_unread_bytes, lambda channel: channel.unread_bytes, self._too_much_unread, now
        )

    def forget(self, holder: Holder) -> None:
        """Forget a closed connection."""
        self.partial.forget(holder)
        self.unread.forget(holder)

    def _too_much_partial(self, holder: Holder, size_bytes: int) -> None:
        self._abort(
            holder, size_bytes, "requests that are not complete", self.limits.max_partial_bytes, MAX_PARTIAL_KEY
        )

    def _too_much_unread(self, holder: Holder, size_bytes: int) -> None:
        self._abort(holder, size_bytes, "answers that are not read", self.limits.max_unread_bytes, MAX_UNREAD_KEY)

    def _abort(self, holder: Holder, size_bytes: int, what: str, limit: int, key: str) -> None:
        self.log.warning(
            f"connection closed: {what} hold too much memory over all connections",
            address=holder.address,
            bytes=size_bytes,
            limit=limit,
            key=key,
        )
        holder.abort()
