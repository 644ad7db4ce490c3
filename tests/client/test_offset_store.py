"""A consumer's offsets at the broker: written when a goodbye waits for it, also where the first attempt fails."""

import asyncio
from typing import Any

import pytest

from gantrymq.client.consumer.offsets import RemoteBrokerOffsetStore
from gantrymq.errors import RemotingTimeoutError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.headers.offset import UpdateConsumerOffsetRequestHeader

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(3)]


class Member:
    """A member of a group whose broker lets the first ``slow`` questions wait too long."""

    group = "G"

    def __init__(self, slow: int) -> None:
        self.slow = slow
        self.known: dict[MessageQueue, int] = {}

    async def ask(self, queue: MessageQueue, call: Any) -> None:
        self.slow -= 1
        is_late = self.slow >= 0
        await asyncio.sleep(0)
        if is_late:
            raise RemotingTimeoutError("127.0.0.1:10911", 3000)
        self.known[queue] = call.request().read(UpdateConsumerOffsetRequestHeader).commit_offset


@pytest.mark.parametrize(("slow", "kept"), [(0, [7, 8, 9]), (1, [7, 8, 9]), (3, [7, 8, 9]), (6, [])])
def test_a_goodbye_asks_twice(slow: int, kept: list[int]) -> None:
    async def scenario() -> list[int]:
        member = Member(slow)
        store = RemoteBrokerOffsetStore(member)  # type: ignore[arg-type]
        for queue, offset in zip(QUEUES, (7, 8, 9), strict=True):
            store.update(queue, offset)
        await store.persist(QUEUES, wait=True)
        return [member.known[queue] for queue in QUEUES if queue in member.known]

    assert asyncio.run(scenario()) == kept
