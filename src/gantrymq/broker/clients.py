"""A client on its connection, as its broker knows it. Source: ClientChannelInfo."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from gantrymq.errors import RemotingError
from gantrymq.remoting.command import RemotingCommand

MAX_GROUPS = 1_000  # of producers, and as many of consumers, that one connection has members of
MAX_MEMBERS = 100_000  # of groups of producers, and as many of consumers, of all connections: 600 bytes each


class Connected(Protocol):
    """What the managers need of a channel."""

    @property
    def address(self) -> str:
        """The other end, ``ip:port``."""
        ...

    def invoke_oneway(self, command: RemotingCommand) -> None:
        """Tell the other end something."""
        ...

    def invoke(self, command: RemotingCommand, timeout_ms: int) -> Awaitable[RemotingCommand]:
        """Ask the other end something; raises RemotingError."""
        ...

    def abort(self) -> None:
        """Close now."""
        ...


def abort(channel: Connected, reason: str) -> None:
    """Close a connection without a word about the reason."""
    channel.abort()


class ClientChannel:
    """One client on one channel; ``last_update_ms`` is when it last gave a sign of life, monotonic.

    ``account`` is the access key that it showed, empty without access control.
    """

    __slots__ = ("account", "channel", "client_id", "language", "last_update_ms", "version")

    def __init__(
        self, channel: Connected, client_id: str, language: int, version: int, now_ms: int, account: str = ""
    ) -> None:
        self.channel, self.client_id, self.language, self.version = channel, client_id, language, version
        self.last_update_ms, self.account = now_ms, account


class Memberships:
    """Which groups each connection has members of, bounded for one connection and for all together.

    Where all have too many, the connection with the most is closed (``close``, then ``leave``), so that a client of a
    few groups gets in whatever others have taken. Thread rule: the event loop's thread.
    """

    def __init__(self, leave: Callable[[Connected], None], close: Callable[[Connected, str], None]) -> None:
        self._leave, self._close = leave, close
        self._groups: dict[Connected, set[str]] = {}
        self.count = 0

    def add(self, channel: Connected, group: str) -> None:
        """A connection has a member of a group; raises RemotingError where there are too many."""
        groups = self._groups.get(channel, set())
        if len(groups) >= MAX_GROUPS:
            raise RemotingError(f"a connection may have members of {MAX_GROUPS} groups")
        if self.count >= MAX_MEMBERS:
            self._make_room(len(groups) + 1)
        groups.add(group)
        self._groups[channel] = groups
        self.count += 1

    def discard(self, channel: Connected, group: str) -> None:
        """It has none any more."""
        groups = self._groups.get(channel)
        if groups is not None and group in groups:
            groups.discard(group)
            self.count -= 1
            if not groups:
                del self._groups[channel]

    def of(self, channel: Connected) -> list[str]:
        """The groups that a connection has members of."""
        return list(self._groups.get(channel, ()))

    def _make_room(self, wanted: int) -> None:
        largest = max(self._groups, key=lambda channel: len(self._groups[channel]))
        if len(self._groups[largest]) <= wanted:
            raise RemotingError(f"{MAX_MEMBERS} members of groups are connected, as many as may be")
        self._close(largest, f"members of groups: {MAX_MEMBERS} are connected, and it has the most")
        self._leave(largest)
