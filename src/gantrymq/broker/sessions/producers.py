"""A client on its connection, and the connected producers by group.

Pure: the caller passes the time. Thread rule: the event loop's thread.

Source: ClientChannelInfo, ProducerManager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
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


EXPIRED_MS = 120_000  # ProducerManager.CHANNEL_EXPIRED_TIMEOUT


class ProducerManager:
    """Groups of producers; a group is there as long as a channel of it is.

    ``close`` ends a connection that takes too much, and is told why.
    """

    def __init__(self, close: Callable[[Connected, str], None] = abort) -> None:
        self._groups: dict[str, dict[Connected, ClientChannel]] = {}
        self._clients: dict[str, dict[tuple[str, Connected], ClientChannel]] = {}  # by id; the newest comes last
        self._members = Memberships(self.channel_closed, close)

    @property
    def groups(self) -> Mapping[str, Mapping[Connected, ClientChannel]]:
        """The channels of each group."""
        return self._groups

    @property
    def count(self) -> int:
        """How many members all groups have."""
        return self._members.count

    def register(self, group: str, client: ClientChannel) -> None:
        """A heart-beat of a producer.

        A client id belongs to the account that came with it first, for as long as one of its connections is there:
        replies to a client go to no other account that names its id. Raises RemotingError for too many groups.
        """
        known = self._groups.get(group, {}).get(client.channel)
        if known is None:
            self._members.add(client.channel, group)
            channels = self._groups.setdefault(group, {})
            channels[client.channel] = client
            connections = self._clients.setdefault(client.client_id, {})
            if all(one.account == client.account for one in connections.values()):
                connections[group, client.channel] = client
        else:
            known.last_update_ms = client.last_update_ms

    def find(self, client_id: str) -> ClientChannel | None:
        """The client with that id, whatever its group, on its newest connection (findChannel)."""
        return next(reversed(self._clients.get(client_id, {}).values()), None)

    def unregister(self, group: str, channel: Connected) -> None:
        """A producer says goodbye."""
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
        """A connection is gone."""
        for _ in self.leave(channel):
            pass

    def leave(self, channel: Connected) -> Iterator[None]:
        """The same, one group a step."""
        for group in self._members.of(channel):
            self.unregister(group, channel)
            yield

    def expire(self, now_ms: int) -> None:
        """Close the channels of producers that were silent for 120 s (scanNotActiveChannel)."""
        for group, channels in list(self._groups.items()):
            for client in list(channels.values()):
                if now_ms - client.last_update_ms > EXPIRED_MS:
                    self.unregister(group, client.channel)
                    client.channel.abort()
