"""A client on its connection, as its broker knows it. Source: ClientChannelInfo."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from gantrymq.errors import RemotingError
from gantrymq.remoting.command import RemotingCommand

MAX_GROUPS = 1_000  # of producers, and as many of consumers, that one connection has members of


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


def note_group(groups: dict[Connected, set[str]], channel: Connected, group: str) -> None:
    """A connection has a member of a group; raises RemotingError where it has members of too many."""
    of_channel = groups.setdefault(channel, set())
    if len(of_channel) >= MAX_GROUPS:
        raise RemotingError(f"a connection may have members of {MAX_GROUPS} groups")
    of_channel.add(group)


def forget_group(groups: dict[Connected, set[str]], channel: Connected, group: str) -> None:
    """It has none any more."""
    of_channel = groups.get(channel)
    if of_channel is not None:
        of_channel.discard(group)
        if not of_channel:
            del groups[channel]
