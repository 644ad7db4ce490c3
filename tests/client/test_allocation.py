"""Whatever the strategy, all members together have every queue once. That the shares are RocketMQ's: tests/interop."""

import random

import pytest

from gantrymq.client.consumer.allocation import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueueStrategy,
)
from gantrymq.errors import MQClientError
from gantrymq.model.message_queue import MessageQueue


def room_of(name: str) -> str:
    return name[:2]


STRATEGIES: list[AllocateMessageQueueStrategy] = [
    AllocateMessageQueueAveragely(),
    AllocateMessageQueueAveragelyByCircle(),
    AllocateMessageQueueByMachineRoom(frozenset(("r1", "r2"))),
    AllocateMachineRoomNearby(AllocateMessageQueueAveragely(), lambda queue: room_of(queue.broker_name), room_of),
    AllocateMessageQueueConsistentHash(),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_every_queue_has_one_owner(strategy: AllocateMessageQueueStrategy, rng: random.Random) -> None:
    for _ in range(100):
        queues = sorted(MessageQueue("T", f"r{one}@b", number) for one in (1, 2) for number in range(rng.randint(0, 9)))
        clients = sorted({f"r{rng.randint(1, 3)}{rng.randint(0, 99)}" for _ in range(rng.randint(1, 12))})
        shares = [strategy.allocate(client, queues, clients) for client in clients]
        assert sorted(queue for share in shares for queue in share) == queues
        assert strategy.allocate("a stranger", queues, clients) == []


def test_shares_differ_by_one_at_most(rng: random.Random) -> None:
    for strategy in STRATEGIES[:2]:
        queues = [MessageQueue("T", "b", number) for number in range(rng.randint(1, 30))]
        clients = [f"c{number:02}" for number in range(rng.randint(1, 12))]
        sizes = [len(strategy.allocate(client, queues, clients)) for client in clients]
        assert max(sizes) - min(sizes) <= 1


def test_client_without_machine_room_is_named_in_error() -> None:
    strategy = AllocateMachineRoomNearby(AllocateMessageQueueAveragely(), lambda queue: "", room_of)
    with pytest.raises(MQClientError, match="Machine room is null for T@b:0"):
        strategy.allocate("r1", [MessageQueue("T", "b", 0)], ["r1"])
