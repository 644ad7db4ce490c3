"""The positions of a table as committed offsets of a consumer group, so that RocketMQ's tools show its lag.

The offsets are only for view: a landing reads its positions from the table alone. They are sent after the commit of
the table, so they are never ahead of it. A broker that fails is passed over for a while, and its next success has the
newest positions.

A broker keeps offsets of a group that it knows, and tools find a group by its retry topic. So each broker first gets
one heartbeat of a consumer, as from any client, which makes both if the broker allows it. The consumer leaves at once.

Thread rule: one thread.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from gantrymq.client.arguments import name as valid_name
from gantrymq.client.connection.blocking_client import BlockingClient, BlockingConnection
from gantrymq.client.namespace import is_system_name
from gantrymq.client.requests import calls
from gantrymq.client.requests.calls import accepted
from gantrymq.client.requests.group_calls import consumer_ids, update_offset
from gantrymq.client.settings import ClientConfig, ClientSettings
from gantrymq.clock import Clock, SystemClock, monotonic_ms
from gantrymq.errors import ConfigError, GantrymqError, MQBrokerError, RemotingError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import ConsumerData, HeartbeatData
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import UnregisterClientRequestHeader
from gantrymq.tables.sources import name_servers_of
from gantrymq.tables.state import QueuePosition
from gantrymq.tools.queue_key import QueueKey

PAUSE_MS = 30_000  # after a failure of a broker
_SENT_AT_ONCE = 500
_OPTION = "--commit-group"


@contextmanager
def group_offsets(
    sources: Sequence[str], group: str, settings: ClientSettings | None, warn: Callable[[str], None]
) -> Iterator[GroupOffsets]:
    """The offsets of a group that shows the positions of a landing of the cluster ``sources``.

    Raises ConfigError for another source, another group than :class:`GroupOffsets` allows, or one with consumers.
    """
    name_servers = name_servers_of(sources[0])
    if name_servers is None:
        raise ConfigError(_OPTION, group, f"for a source namesrv://HOST:PORT: {sources[0]} has no brokers")
    offsets = GroupOffsets(ClientConfig.of(name_servers, settings or {}), group, warn)
    try:
        offsets.require_no_members()
        yield offsets
    finally:
        offsets.close()


class GroupOffsets:
    """Commits offsets of ``group``. ``warn`` is called once, for the first failure."""

    def __init__(
        self, config: ClientConfig, group: str, warn: Callable[[str], None], clock: Clock | None = None
    ) -> None:
        """Raises ConfigError for a name that no group of a user can have."""
        try:
            valid_name(group)
        except ValueError as error:
            raise ConfigError(_OPTION, group, str(error)) from None
        if is_system_name(group) or group.startswith("%"):
            raise ConfigError(_OPTION, group, "the name of a group of its own, not one of RocketMQ")
        self._client = BlockingClient(config)
        self._group, self._warn, self._clock = group, warn, clock or SystemClock()
        self._client_id = f"{socket.gethostname()}@{os.getpid()}#table-land"[:120]
        self._sent: dict[QueueKey, int] = {}
        self._known_at: set[str] = set()
        self._failed_at_ms: dict[str, int] = {}
        self._has_warned = False

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def require_no_members(self) -> None:
        """Raise ConfigError if consumers are connected: their offsets would be overwritten.

        A cluster that does not answer is no reason: the landing tells that.
        """
        for broker, ids in self._members():
            raise ConfigError(_OPTION, self._group, f"a group of its own: {ids[0]} consumes with it at {broker}")

    def _members(self) -> Iterator[tuple[str, list[str]]]:
        with suppress(RemotingError):
            for broker, address in self._masters().items():
                with suppress(MQBrokerError):  # no consumer of the group is connected
                    if ids := self._client.call(address, consumer_ids(self._group)):
                        yield broker, ids

    def commit(self, queues: Mapping[QueueKey, QueuePosition]) -> None:
        """Send the positions that have changed since they were sent. A failure is a warning."""
        changed: dict[str, dict[QueueKey, int]] = {}
        for key, position in queues.items():
            if self._sent.get(key) != position.next_offset and self._may_ask(key.broker):
                changed.setdefault(key.broker, {})[key] = position.next_offset
        if not changed:
            return
        masters: Mapping[str, str] = {}
        try:
            masters = self._masters()
        except GantrymqError as error:
            self._note(error, *changed)
            return
        for broker, offsets in changed.items():
            try:
                self._commit_at(broker, masters, offsets)
                self._failed_at_ms.pop(broker, None)
            except GantrymqError as error:
                self._known_at.discard(broker)
                self._note(error, broker)

    def _may_ask(self, broker: str) -> bool:
        failed_at_ms = self._failed_at_ms.get(broker)
        return failed_at_ms is None or monotonic_ms(self._clock) - failed_at_ms >= PAUSE_MS

    def _note(self, error: GantrymqError, *brokers: str) -> None:
        self._failed_at_ms |= dict.fromkeys(brokers, monotonic_ms(self._clock))
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"the offsets of group {self._group} are not up to date; the landing goes on: {error}")

    def _masters(self) -> dict[str, str]:
        table = self._client.ask_name_server(calls.cluster_info()).broker_addr_table
        return {name: data.broker_addrs[0] for name, data in table.items() if 0 in data.broker_addrs}

    def _commit_at(self, broker: str, masters: Mapping[str, str], offsets: Mapping[QueueKey, int]) -> None:
        """Raises MQBrokerError for an offset that a broker refuses, but for those of topics that it has deleted."""
        address = masters.get(broker)
        if address is None:
            raise GantrymqError(f"broker {broker} has no master")
        refused: MQBrokerError | None = None
        with self._client.connection(address) as connection:
            if broker not in self._known_at:
                self._register(connection)
                self._known_at.add(broker)
            for some in _portions(offsets):
                for key, error in self._sent_over(connection, some):
                    if error is None or error.response_code == ResponseCode.TOPIC_NOT_EXIST:
                        self._sent[key] = some[key]
                    else:
                        refused = error
        if refused is not None:
            raise refused

    def _sent_over(
        self, connection: BlockingConnection, offsets: Mapping[QueueKey, int]
    ) -> Iterator[tuple[QueueKey, MQBrokerError | None]]:
        """The queues with None, or the reason of the broker's refusal."""
        waiting: dict[int, QueueKey] = {}
        for key, offset in offsets.items():
            queue = MessageQueue(key.topic, key.broker, key.queue_id)
            waiting[connection.send(update_offset(self._group, queue, offset).request())] = key
        while waiting:
            response = connection.receive(self._client.config.request_timeout_ms)
            key = waiting.pop(response.opaque)
            try:
                accepted(response, connection.address)
                yield key, None
            except MQBrokerError as error:
                yield key, error

    def _register(self, connection: BlockingConnection) -> None:
        """Make the group and its retry topic, if the broker makes them by itself."""
        data = ConsumerData(
            group_name=self._group,
            consume_type="CONSUME_ACTIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
        )
        beat = HeartbeatData(client_id=self._client_id, consumer_data_set=[data])
        leave = UnregisterClientRequestHeader(client_id=self._client_id, consumer_group=self._group)
        commands = RemotingCommand(RequestCode.HEART_BEAT, body=beat.encode()), RemotingCommand.request(leave)
        for command in commands:
            connection.send(command)
            accepted(connection.receive(self._client.config.request_timeout_ms), connection.address)


def _portions(offsets: Mapping[QueueKey, int]) -> Iterator[dict[QueueKey, int]]:
    items = list(offsets.items())
    for begin in range(0, len(items), _SENT_AT_ONCE):
        yield dict(items[begin : begin + _SENT_AT_ONCE])
