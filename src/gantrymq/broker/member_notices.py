"""Tells the members of a group that the group has changed, so that they divide its queues again.

Telling all of a group of thousands with each member that joins would take time that grows with the square of their
number. In a large group, changes that come while its members are being told share the next round.

Source: DefaultConsumerIdsChangeListener, Broker2Client.notifyConsumerIdsChanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from gantrymq.broker.clients import ClientChannel
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import NotifyConsumerIdsChangedRequestHeader
from gantrymq.remoting.transport.turns import in_slices

_FEW_MEMBERS = 64  # are told at once


class MemberNotices:
    """``members_of`` gives the members of a group. Thread rule: the event loop's thread."""

    def __init__(self, members_of: Callable[[str], list[ClientChannel]]) -> None:
        self._members_of = members_of
        self._rounds: dict[str, asyncio.Task[None]] = {}
        self._outdated: set[str] = set()

    def changed(self, group: str, members: list[ClientChannel]) -> None:
        """A group has changed, and these are its members now."""
        if len(members) <= _FEW_MEMBERS:
            _tell(group, members)
            return
        self._outdated.add(group)
        if group not in self._rounds:
            self._rounds[group] = asyncio.ensure_future(self._tell_all(group))

    async def _tell_all(self, group: str) -> None:
        try:
            while group in self._outdated:
                self._outdated.discard(group)
                async for client in in_slices(self._members_of(group)):
                    _tell(group, [client])
        finally:
            del self._rounds[group]


def _tell(group: str, members: Iterable[ClientChannel]) -> None:
    for client in members:
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
        client.channel.invoke_oneway(RemotingCommand.request(header))
