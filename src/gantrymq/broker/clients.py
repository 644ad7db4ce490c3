"""A client on its connection, as its broker knows it. Source: ClientChannelInfo."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from gantrymq.remoting.command import RemotingCommand


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
