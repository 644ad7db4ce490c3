"""The state that all connections of a server share: limits, memory budgets, and turns at the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gantrymq.remoting.transport.budget import BufferBudget
from gantrymq.remoting.transport.limited_log import LimitedLog
from gantrymq.remoting.transport.turns import FairTurns

MAX_CONNECTIONS_KEY = "maxConnections"
MAX_PARTIAL_KEY = "maxPartialRequestBytes"
MAX_UNREAD_KEY = "maxUnreadResponseBytes"


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


class ServerShared:
    """The shared objects of one server. Construct it on the server's event loop."""

    def __init__(self, limits: ServerLimits | None = None) -> None:
        self.limits = limits or ServerLimits()
        now = asyncio.get_running_loop().time
        self.turns = FairTurns()
        self.log = LimitedLog(now)
        self.partial: BufferBudget[Holder] = BufferBudget(
            self.limits.max_partial_bytes, lambda one: one.buffered_bytes, self._too_much_partial, now
        )
        self.unread: BufferBudget[Holder] = BufferBudget(
            self.limits.max_unread_bytes, lambda one: one.unread_bytes, self._too_much_unread, now
        )

    def forget(self, holder: Holder) -> None:
        """Forget a closed connection."""
        self.partial.forget(holder)
        self.unread.forget(holder)

    def _too_much_partial(self, holder: Holder, size_bytes: int) -> None:
        self.log.warning(
            "connection closed: requests that are not complete hold too much memory over all connections",
            address=holder.address, bytes=size_bytes, limit=self.limits.max_partial_bytes, key=MAX_PARTIAL_KEY,
        )  # fmt: skip
        holder.abort()

    def _too_much_unread(self, holder: Holder, size_bytes: int) -> None:
        self.log.warning(
            "connection closed: answers that are not read hold too much memory over all connections",
            address=holder.address, bytes=size_bytes, limit=self.limits.max_unread_bytes, key=MAX_UNREAD_KEY,
        )  # fmt: skip
        holder.abort()
