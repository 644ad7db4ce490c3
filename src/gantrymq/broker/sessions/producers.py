"""A client on its connection, and the connected producers by group.

No I/O; times are arguments. Thread rule: the event loop's thread.

Source: ClientChannelInfo, ProducerManager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Protocol

from gantrymq.errors import RemotingError
from gantrymq.remoting.command import RemotingCommand

MAX_GROUPS = 1_000  # limit for the memberships of one connection, in producer groups and in consumer groups
MAX_MEMBERS = 100_000  # limit for all connections, for producers and for consumers: 600 bytes each
MAX_UNREAD_BYTES = 1 << 20  # a connection with more is not asked about transactions
EXPIRED_MS = 120_000  # ProducerManager.CHANNEL_EXPIRED_TIMEOUT


class Connected(Protocol):
    """The part of a channel that the managers use."""

    @property
    def address(self) -> str:
        """The other end, ``ip:port``."""
        ...

    @property
    def unread_bytes(self) -> int:
        """How much waits for the other end to read it."""
        ...

    def invoke_oneway(self, command: RemotingCommand) -> None:
        """Send a one-way request."""
        ...

    def invoke(self, command: RemotingCommand, timeout_ms: int) -> Awaitable[RemotingCommand]:
        """Send a request. Raises RemotingError."""
        ...

    def abort(self) -> None:
        """Close the connection now."""
        ...


def abort(channel: Connected, reason: str) -> None:
    """Close a connection. The reason is ignored."""
    channel.abort()


class ClientChannel:
    """One client on one channel. ``last_update_ms`` is the monotonic time of its last heartbeat.

    ``account`` is the access key of its heartbeat; empty without access control.
    """

    __slots__ = ("account", "channel", "client_id", "language", "last_update_ms", "version")

    def __init__(
        self, channel: Connected, client_id: str, language: int, version: int, now_ms: int, account: str = ""
    ) -> None:
        self.channel, self.client_id, self.language, self.version = channel, client_id, language, version
        self.last_update_ms, self.account = now_ms, account


class Memberships:
    """The groups that each connection has members of, limited for one connection and for all together.

    At the limit for all, the connection with the most members is closed (``close``, then ``leave``), so that a client
    of a few groups can register whatever others use. Thread rule: the event loop's thread.
    """

    def __init__(self, leave: Callable[[Connected], None], close: Callable[[Connected, str], None]) -> None:
        self._leave, self._close = leave, close
        self._groups: dict[Connected, set[str]] = {}
        self.count = 0

    def add(self, channel: Connected, group: str) -> None:
        """Add a membership. Raises RemotingError at a limit."""
        groups = self._groups.get(channel, set())
        if len(groups) >= MAX_GROUPS:
            raise RemotingError(f"a connection may have members of {MAX_GROUPS} groups")
        if self.count >= MAX_MEMBERS:
            self._make_room(len(groups) + 1)
        groups.add(group)
        self._groups[channel] = groups
        self.count += 1

    def discard(self, channel: Connected, group: str) -> None:
        """Remove a membership."""
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
            raise RemotingError(f"{MAX_MEMBERS} members of groups are connected, which is the maximum")
        self._close(largest, f"members of groups: {MAX_MEMBERS} are connected, and it has the most")
        self._leave(largest)


class ProducerManager:
    """Groups of producers. A group exists as long as one of its channels does.

    ``close`` closes a connection that uses too much memory, and gets the reason.
    """

    def __init__(self, close: Callable[[Connected, str], None] = abort) -> None:
        self._groups: dict[str, dict[Connected, ClientChannel]] = {}
        self._clients: dict[str, dict[tuple[str, Connected], ClientChannel]] = {}  # by client id; the newest is last
        self._members = Memberships(self.channel_closed, close)
        self._turn = 0

    @property
    def groups(self) -> Mapping[str, Mapping[Connected, ClientChannel]]:
        """The channels of each group."""
        return self._groups

    @property
    def count(self) -> int:
        """The number of members of all groups."""
        return self._members.count

    def register(self, group: str, client: ClientChannel) -> None:
        """Record a producer's heartbeat. Raises RemotingError for too many groups.

        A client id belongs to the account that used it first, as long as one of its connections exists: replies to a
        client must not go to another account that uses its id.
        """
        known = self._groups.get(group, {}).get(client.channel)
        if known is None:
            self._members.add(client.channel, group)
            channels = self._groups.setdefault(group, {})
            channels[client.channel] = client
            connections = self._clients.setdefault(client.client_id, {})
            if all(connection.account == client.account for connection in connections.values()):
                connections[group, client.channel] = client
        else:
            known.last_update_ms = client.last_update_ms

    def find(self, client_id: str) -> ClientChannel | None:
        """The client with this id in any group, on its newest connection (findChannel)."""
        return next(reversed(self._clients.get(client_id, {}).values()), None)

    def next_channel(self, group: str) -> Connected | None:
        """A connection of a group, each in its turn, that reads what it is sent; None without one.

        (getAvailableChannel)
        """
        channels = list(self._groups.get(group, ()))
        self._turn += 1
        begin = self._turn % len(channels) if channels else 0
        for channel in (*channels[begin:], *channels[:begin]):
            if channel.unread_bytes < MAX_UNREAD_BYTES:
                return channel
        return None

    def unregister(self, group: str, channel: Connected) -> None:
        """Remove a producer that unregisters."""
        channels = self._groups.get(group, {})
        client = channels.pop(channel, None)
        if client is None:
            return
        self._members.discard(channel, group)
        if not channels:
            del self._groups[group]
        connections = self._clients.get(client.client_id, {})
        connections.pop((group, channel), None)
        if not connections:
            self._clients.pop(client.client_id, None)

    def channel_closed(self, channel: Connected) -> None:
        """Remove the producers of a closed connection."""
        for _ in self.leave(channel):
            pass

    def leave(self, channel: Connected) -> Iterator[None]:
        """As :meth:`channel_closed`, one group a step."""
        for group in self._members.of(channel):
            self.unregister(group, channel)
            yield

    def expire(self, now_ms: int) -> None:
        """Close the channels of producers without a heartbeat for 120 s (scanNotActiveChannel)."""
        for group, channels in list(self._groups.items()):
            for client in list(channels.values()):
                if now_ms - client.last_update_ms > EXPIRED_MS:
                    self.unregister(group, client.channel)
                    client.channel.abort()
