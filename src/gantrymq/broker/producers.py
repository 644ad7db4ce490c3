"""The producers that are connected, by group.

Pure: whoever calls brings the time. Thread rule: the event loop's thread.

Source: ProducerManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gantrymq.broker.clients import ClientChannel, Connected, Memberships, abort

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
