"""Strategies that divide the queues of a topic among the members of a group.

Every member computes its own share, so all members must use the same strategy.

Source: AllocateMessageQueueStrategy, the classes of org.apache.rocketmq.client.consumer.rebalance,
ConsistentHashRouter.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gantrymq.errors import MQClientError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.model.shares import contiguous, round_robin


class AllocateMessageQueueStrategy(Protocol):
    """Divides the queues of a topic among the members of a group."""

    @property
    def name(self) -> str:
        """RocketMQ's name of the strategy."""
        ...

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """The share of ``client_id``. Both sequences are sorted, and the same for every member.

        A client that is not in ``client_ids`` gets nothing.
        """
        ...


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueAveragely:
    """Runs of neighbouring queues, as equal as possible: the default."""

    @property
    def name(self) -> str:
        """``AVG``."""
        return "AVG"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """One run. If the division leaves a remainder, the first clients get one queue more."""
        if client_id not in client_ids:
            return []
        return contiguous(queues, client_ids.index(client_id), len(client_ids))


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueAveragelyByCircle:
    """Queues dealt out one by one, in turn."""

    @property
    def name(self) -> str:
        """``AVG_BY_CIRCLE``."""
        return "AVG_BY_CIRCLE"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """Every n-th queue of n clients."""
        if client_id not in client_ids:
            return []
        return round_robin(queues, client_ids.index(client_id), len(client_ids))


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueByConfig:
    """The configured queues, whatever other members have."""

    message_queue_list: tuple[MessageQueue, ...]

    @property
    def name(self) -> str:
        """``CONFIG``."""
        return "CONFIG"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """All configured queues, even those of other topics, as in RocketMQ."""
        return list(self.message_queue_list)


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueByMachineRoom:
    """The queues of brokers whose names begin with one of the machine rooms ``consumer_idcs`` and ``@``."""

    consumer_idcs: frozenset[str]

    @property
    def name(self) -> str:
        """``MACHINE_ROOM``."""
        return "MACHINE_ROOM"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """A run of the rooms' queues. The remainder goes one by one to the first clients."""
        if client_id not in client_ids:
            return []
        index = client_ids.index(client_id)
        inside = [queue for queue in queues if self._is_inside(queue.broker_name)]
        size, more = divmod(len(inside), len(client_ids))
        rest = inside[size * len(client_ids) :]
        return inside[index * size : (index + 1) * size] + (rest[index : index + 1] if index < more else [])

    def _is_inside(self, broker_name: str) -> bool:
        room, _, rest = broker_name.rstrip("@").partition("@")
        return bool(rest) and "@" not in rest and room in self.consumer_idcs


@dataclass(frozen=True, slots=True)
class AllocateMachineRoomNearby:
    """Queues go to clients of their own machine room. The queues of a room without a client go to all clients.

    ``strategy`` divides within a room. ``broker_deploy_in`` and ``consumer_deploy_in`` return the room of a queue and
    of a client id.

    Raises MQClientError if a room is empty.
    """

    strategy: AllocateMessageQueueStrategy
    broker_deploy_in: Callable[[MessageQueue], str]
    consumer_deploy_in: Callable[[str], str]

    @property
    def name(self) -> str:
        """``MACHINE_ROOM_NEARBY-`` and the name of the inner strategy."""
        return f"MACHINE_ROOM_NEARBY-{self.strategy.name}"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """The share of the client's own room, then its share of each room without a client, by the rooms' names."""
        if client_id not in client_ids:
            return []
        queues_by_room: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_by_room.setdefault(_room(self.broker_deploy_in(queue), queue), []).append(queue)
        clients_by_room: dict[str, list[str]] = {}
        for other in client_ids:
            clients_by_room.setdefault(_room(self.consumer_deploy_in(other), other), []).append(other)
        own = self.consumer_deploy_in(client_id)
        near = queues_by_room.pop(own, [])
        share = self.strategy.allocate(client_id, near, clients_by_room[own]) if near else []
        for room in sorted(queues_by_room.keys() - clients_by_room.keys()):
            share += self.strategy.allocate(client_id, queues_by_room[room], client_ids)
        return share


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueConsistentHash:
    """A hash ring, so that few queues move when a client joins or leaves.

    ``virtual_node_count`` is the number of points of each client on the ring.
    """

    virtual_node_count: int = 10

    @property
    def name(self) -> str:
        """``CONSISTENT_HASH``."""
        return "CONSISTENT_HASH"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """The queues for which this client has the next point on the ring."""
        if client_id not in client_ids:
            return []
        ring = self._ring(client_ids)
        points = sorted(ring)
        if not points:
            return []
        return [queue for queue in queues if ring[_next_point(points, queue)] == client_id]

    def _ring(self, client_ids: Sequence[str]) -> dict[int, str]:
        """The ring: client by point. A client that is listed twice has twice as many points, as in RocketMQ."""
        ring: dict[int, str] = {}
        seen: set[str] = set()
        for client_id in client_ids:
            first = sum(owner == client_id for owner in ring.values()) if client_id in seen else 0
            seen.add(client_id)
            for turn in range(first, first + self.virtual_node_count):
                ring[_md5_hash(f"{client_id}-{turn}")] = client_id
        return ring


def _next_point(points: Sequence[int], queue: MessageQueue) -> int:
    text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
    return points[bisect.bisect_left(points, _md5_hash(text)) % len(points)]


def _md5_hash(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def _room(room: str, whose: object) -> str:
    if not room:
        raise MQClientError(f"Machine room is null for {whose}")
    return room
