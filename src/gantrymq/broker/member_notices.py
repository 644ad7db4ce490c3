"""Tells the members of a group that the group has changed, so that they divide its queues again.

The obvious way is to tell all members with each change. A group of thousands costs then the square of its members,
and 60 connections with members of the same 1,000 groups turn one heart-beat into 60,000 notices. Here changes are
noted, and told in slices of the event loop's time: a group that changes again before its members are told is told once.

Source: DefaultConsumerIdsChangeListener, Broker2Client.notifyConsumerIdsChanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from gantrymq.broker.clients import ClientChannel
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import NotifyConsumerIdsChangedRequestHeader
from gantrymq.remoting.transport.turns import in_slices


class MemberNotices:
    """``members_of`` gives the members of a group. Thread rule: the event loop's thread."""

    def __init__(self, members_of: Callable[[str], list[ClientChannel]]) -> None:
        self._members_of = members_of
        self._outdated: dict[str, None] = {}  # groups whose members do not know of the last change, oldest first
        self._round: asyncio.Task[None] | None = None

    def changed(self, group: str) -> None:
        """A group has changed: its members are told in one of the next turns."""
        self._outdated[group] = None
        if self._round is None:
            self._round = asyncio.ensure_future(self._tell_all())

    async def _tell_all(self) -> None:
        try:
            async for group, client in in_slices(self._notices()):
                header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
                client.channel.invoke_oneway(RemotingCommand.request(header))
        finally:
            self._round = None

    def _notices(self) -> Iterator[tuple[str, ClientChannel]]:
        while self._outdated:
            group = next(iter(self._outdated))
            del self._outdated[group]
            for client in self._members_of(group):
                yield group, client
