"""A consumer's offsets at the broker: what a goodbye leaves there, also where a busy broker is in the way."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gantrymq.client.consumer.offsets import LocalFileOffsetStore, RemoteBrokerOffsetStore
from gantrymq.errors import MQClientError, RemotingTimeoutError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.headers.offset import UpdateConsumerOffsetRequestHeader

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(3)]


class Member:
    """A member of a group whose broker lets the first ``slow`` questions wait too long.

    What was told before without waiting comes ``late`` questions later, over what it knows by then.
    """

    group = "G"

    def __init__(self, *, slow: int = 0, late: int = 0) -> None:
        self.slow, self.late = slow, late
        self.known: dict[MessageQueue, int] = {}

    async def ask(self, queue: MessageQueue, call: Any) -> int | None:
        self.slow -= 1
        is_late = self.slow >= 0
        await asyncio.sleep(0)
        if is_late:
            raise RemotingTimeoutError("127.0.0.1:10911", 3000)
        request = call.request()
        if isinstance(request.header, UpdateConsumerOffsetRequestHeader):
            self.known[queue] = request.header.commit_offset
            self.late -= 1
            if not self.late:
                self.known[queue] = 0
        return self.known.get(queue)


async def left_behind(member: Member) -> list[int]:
    store = RemoteBrokerOffsetStore(member)  # type: ignore[arg-type]
    for queue, offset in zip(QUEUES, (7, 8, 9), strict=True):
        store.update(queue, offset)
    await store.persist_at_last(QUEUES)
    return [member.known[queue] for queue in QUEUES if queue in member.known]


@pytest.mark.parametrize(("slow", "kept"), [(0, [7, 8, 9]), (1, [7, 8, 9]), (6, [7, 8, 9]), (100, [])])
def test_a_goodbye_asks_again_where_nobody_answers(slow: int, kept: list[int]) -> None:
    assert asyncio.run(left_behind(Member(slow=slow))) == kept


def test_who_waits_for_offsets_to_be_written_is_told_that_one_was_not() -> None:
    async def scenario() -> None:
        member = Member(slow=1)
        store = RemoteBrokerOffsetStore(member)  # type: ignore[arg-type]
        for queue in QUEUES:
            store.update(queue, 7)
        with pytest.raises(RemotingTimeoutError):
            await store.persist(QUEUES, wait=True)
        assert member.known == {QUEUES[1]: 7, QUEUES[2]: 7}
        await store.persist(QUEUES, wait=True)
        assert member.known == dict.fromkeys(QUEUES, 7)

    asyncio.run(scenario())


def test_who_waits_for_a_file_of_offsets_is_told_that_it_was_not_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = LocalFileOffsetStore(tmp_path / "a file" / "offsets.json")
        store.update(QUEUES[0], 7)
        with pytest.raises(MQClientError, match=r"offsets\.json"):
            await store.persist(QUEUES, wait=True)
        await store.persist(QUEUES)
        await store.persist_at_last(QUEUES)

    (tmp_path / "a file").write_bytes(b"")
    asyncio.run(scenario())


@pytest.mark.parametrize("late", [1, 2, 3])
def test_a_goodbye_sees_that_an_older_offset_did_not_overtake_its_own(late: int) -> None:
    assert asyncio.run(left_behind(Member(late=late))) == [7, 8, 9]
