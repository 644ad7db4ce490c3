"""One round of rebalancing at a time, and what a division makes of the queues that are ours; offsets in a file."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from gantrymq.client.consumer.fetch.assigned import AssignedQueues, QueueLocks
from gantrymq.client.consumer.fetch.process_queue import ProcessQueue
from gantrymq.client.consumer.group.member import Division, GroupMember
from gantrymq.client.consumer.group.offsets import LocalFileOffsetStore, OffsetStore
from gantrymq.client.consumer.group.rebalance import Rebalancing
from gantrymq.client.consumer.settings import ConsumeFromWhere, ConsumerConfig
from gantrymq.client.runtime.background import wait_or_timeout
from gantrymq.client.runtime.logged_once import LoggedOnce
from gantrymq.clock import ManualClock
from gantrymq.errors import MQBrokerError, MQClientError, RemotingConnectError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.transport.dispatcher import RequestDispatcher

QUEUES = tuple(MessageQueue("T", "broker-a", number) for number in range(4))


class Offsets:
    """A store of offsets whose broker knows 10 for each queue; ``unreachable`` ones raise."""

    def __init__(self) -> None:
        self.persisted: list[int] = []
        self.unreachable: set[MessageQueue] = set()

    async def read_from_store(self, queue: MessageQueue) -> int:
        await asyncio.sleep(0)
        if queue in self.unreachable:
            raise RemotingConnectError("a:1", "nobody")
        return 10

    async def persist(self, queues: list[MessageQueue], *, wait: bool = False) -> None:
        self.persisted += [queue.queue_id for queue in queues]

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None: ...

    def forget(self, queue: MessageQueue) -> None: ...


class Locks:
    """Locks all but what others hold."""

    def __init__(self) -> None:
        self.others: set[MessageQueue] = set()
        self.unlocked: list[int] = []

    async def lock(self, queues: list[ProcessQueue]) -> bool:
        return not any(one.queue in self.others for one in queues)

    async def unlock(self, queues: list[ProcessQueue]) -> None:
        self.unlocked += [one.queue.queue_id for one in queues]


class Scene:
    """The queues of a member that no broker knows of."""

    def __init__(self, *, locks: Locks | None = None) -> None:
        config = ConsumerConfig(
            "127.0.0.1:1", consumer_group="g", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        )
        self.clock = ManualClock()
        self.offsets, self.pulls = Offsets(), list[tuple[int, int]]()
        self.changes: list[set[int]] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.fails = False
        member = GroupMember(config, "CONSUME_PASSIVELY", self.clock, RequestDispatcher())
        self.assigned = AssignedQueues(
            ProcessQueue,
            member,
            cast(OffsetStore, self.offsets),
            cast("QueueLocks | None", locks),
            self.pull,
            self.changed,
        )

    async def pull(self, queue: ProcessQueue, offset: int) -> None:
        self.pulls.append((queue.queue.queue_id, offset))
        await asyncio.Event().wait()

    async def changed(self, division: Division) -> None:
        self.changes.append({queue.queue_id for queue in division.mine})
        self.meanwhile()
        if self.fails:
            raise ValueError("never")

    async def take_over(self, *mine: int) -> bool:
        complete = await self.assigned.take_over(Division("T", QUEUES, frozenset(QUEUES[one] for one in mine)))
        await asyncio.sleep(0)
        return complete


def test_rebalance_takes_and_releases_queues() -> None:
    async def scenario() -> None:
        scene = Scene()
        assert await scene.take_over(0, 1)
        assert (scene.pulls, scene.changes) == ([(0, 10), (1, 10)], [{0, 1}])
        assert await scene.take_over(0, 1)
        assert len(scene.changes) == 1
        zero = scene.assigned.table[QUEUES[0]]
        assert await scene.take_over(1, 2)
        assert (zero.dropped, scene.offsets.persisted, scene.pulls[2:]) == (True, [0], [(2, 10)])
        scene.clock.advance(120_001)  # nobody pulls any more: begin anew
        assert await scene.take_over(1, 2)
        assert scene.pulls[3:] == [(1, 10), (2, 10)]
        await scene.assigned.keep_topics([])
        assert scene.assigned.table == {}
        await scene.assigned.close()

    asyncio.run(scenario())


def test_requested_lock_is_released_at_close() -> None:
    """Its broker may have locked the queue already when the start, or the consumer, ends in the midst of asking."""

    class Slow(Locks):
        async def lock(self, queues: list[ProcessQueue]) -> bool:
            if queues[0].queue == QUEUES[1]:
                await asyncio.Event().wait()
            return True

    async def scenario() -> list[int]:
        locks = Slow()
        scene = Scene(locks=locks)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(scene.take_over(0, 1, 2), 0.01)
        await scene.assigned.close()
        await scene.assigned.unlock()
        return sorted(locks.unlocked)

    assert asyncio.run(scenario()) == [0, 1]


def test_queue_with_unknown_offset_is_not_taken_over() -> None:
    async def scenario() -> list[int]:
        locks = Locks()
        scene = Scene(locks=locks)
        scene.offsets.unreachable.add(QUEUES[1])
        assert not await scene.take_over(0, 1)
        await scene.assigned.close()
        return locks.unlocked

    assert asyncio.run(scenario()) == [1]


def test_failing_queue_listener_does_not_prevent_pulls() -> None:
    async def scenario() -> None:
        scene = Scene()
        scene.fails = True
        assert await scene.take_over(0, 1)
        assert (scene.pulls, scene.changes) == ([(0, 10), (1, 10)], [{0, 1}])
        await scene.assigned.close()

    asyncio.run(scenario())


def test_seek_by_listener_during_rebalance_is_kept() -> None:
    async def scenario() -> None:
        scene = Scene()
        sought = ProcessQueue(QUEUES[0], 0)
        scene.meanwhile = lambda: scene.assigned.begin(sought, 77)
        assert await scene.take_over(0, 1)
        assert scene.pulls == [(0, 77), (1, 10)]
        assert (scene.assigned.table[QUEUES[0]], sought.dropped) == (sought, False)
        await scene.assigned.close()

    asyncio.run(scenario())


def test_seek_in_released_queue_has_no_effect() -> None:
    async def scenario() -> None:
        scene = Scene()
        await scene.take_over(0, 1)
        first, second = QUEUES[:2]
        assert scene.assigned.seek(first, 7)
        assert scene.assigned.table[first].position == 7
        await scene.take_over(1)
        assert not scene.assigned.seek(first, 8)
        assert list(scene.assigned.table) == [second]
        await scene.assigned.close()

    asyncio.run(scenario())


def test_queue_with_unknown_offset_waits() -> None:
    async def scenario() -> None:
        scene = Scene()
        scene.offsets.unreachable = {QUEUES[0]}
        assert not await scene.take_over(0, 1)
        assert set(scene.assigned.table) == {QUEUES[1]}
        scene.offsets.unreachable = set()
        assert await scene.take_over(0, 1)
        assert scene.pulls == [(1, 10), (0, 10)]
        await scene.assigned.close()

    asyncio.run(scenario())


def test_orderly_queue_waits_for_lock_and_listener() -> None:
    async def scenario() -> None:
        locks = Locks()
        scene = Scene(locks=locks)
        locks.others = {QUEUES[1]}
        assert not await scene.take_over(0, 1)
        assert set(scene.assigned.table) == {QUEUES[0]}
        zero = scene.assigned.table[QUEUES[0]]
        zero.in_listener = True
        assert not await scene.take_over()
        assert (zero.dropped, zero.released, zero.try_unlock_times, locks.unlocked) == (True, False, 1, [])
        zero.in_listener = False
        assert await scene.take_over()
        assert zero.released
        assert (locks.unlocked, scene.offsets.persisted) == ([0], [0])
        await scene.assigned.close()

    asyncio.run(scenario())


def test_rebalance_rounds_do_not_overlap() -> None:
    async def scenario() -> None:
        running = most = 0

        async def divide(topic: str) -> Division:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1
            return Division(topic, QUEUES, frozenset(QUEUES))

        async def apply(division: Division) -> bool:
            return True

        async def keep(topics: set[str]) -> None: ...

        rebalancing = Rebalancing(cast(GroupMember, None), lambda: {"T"}, divide, apply, keep)
        assert await asyncio.gather(*(rebalancing.once() for _ in range(3))) == [True] * 3
        assert most == 1

    asyncio.run(scenario())


def test_refused_name_server_request_is_retried() -> None:
    class Member:
        config = ConsumerConfig("127.0.0.1:1", consumer_group="g", poll_name_server_interval_ms=1)
        known: tuple[MessageQueue, ...] = ()
        asked = 0

        def queues(self, topic: str) -> tuple[MessageQueue, ...]:
            return self.known

        async def find_route(self, topic: str) -> object:
            self.asked += 1
            if self.asked == 1:
                raise MQBrokerError("127.0.0.1:1", 1, "SYSTEM_ERROR", "name server not ready")
            self.known = QUEUES
            return self

    async def scenario() -> None:
        unused = cast(Any, None)
        rebalancing = Rebalancing(cast(GroupMember, Member()), lambda: {"T"}, unused, unused, unused)
        following = asyncio.create_task(rebalancing.follow_routes())
        await asyncio.wait_for(rebalancing.wanted.wait(), 5)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(scenario())


def stored(path: Path, act: Callable[[LocalFileOffsetStore], Any]) -> Any:
    return asyncio.run(act(LocalFileOffsetStore(path)))


def test_broadcasting_offsets_are_saved_in_file(tmp_path: Path) -> None:
    path = tmp_path / "client" / "group" / "offsets.json"

    async def write(store: LocalFileOffsetStore, offset: int, *queues: MessageQueue) -> None:
        for queue in queues:
            store.update(queue, offset)
        await store.persist(queues)

    stored(path, lambda store: write(store, 3, QUEUES[0], QUEUES[1]))
    stored(path, lambda store: write(store, 5, QUEUES[1]))
    assert [stored(path, lambda store, one=queue: store.read_from_store(one)) for queue in QUEUES[:3]] == [3, 5, None]
    path.write_text('{"offsetTable":{{"bro')  # torn: what was there before is beside it
    assert stored(path, lambda store: store.read_from_store(QUEUES[1])) == 3
    stored(path, lambda store: write(store, 7, QUEUES[1]))
    path.write_text('{"offsetTable":{{"bro')  # torn again: the backup was not made of what was torn before
    assert stored(path, lambda store: store.read_from_store(QUEUES[1])) == 3
    path.with_name("offsets.json.bak").write_text("[]")
    with pytest.raises(MQClientError, match=r"offsets\.json\.bak"):
        stored(path, lambda store: store.read_from_store(QUEUES[1]))


def test_offset_file_of_rocketmq_is_read(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_text(
        '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":1,\n\t\t\t"topic":"T"\n\t\t}:42\n\t}\n}'
    )
    assert stored(path, lambda store: store.read_from_store(QUEUES[1])) == 42


def test_cancellation_during_wakeup_is_not_lost() -> None:
    async def scenario() -> None:
        event = asyncio.Event()
        waiting = asyncio.ensure_future(wait_or_timeout(event, 60))
        await asyncio.sleep(0)
        event.set()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(scenario())


def test_missing_topic_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gantrymq")
    unused = cast(Any, None)
    rebalancing = Rebalancing(unused, unused, unused, unused, unused)
    for is_there in (False, False, False, True, True, False):
        rebalancing.note_route("T", is_there=is_there)
        rebalancing.note_route("%RETRY%g", is_there=False)
    assert [(one.levelname, "exists now" in one.getMessage()) for one in caplog.records] == [
        ("WARNING", False),
        ("INFO", True),
        ("WARNING", False),
    ]
    assert all("topic='T'" in one.getMessage() for one in caplog.records)


def test_unchanged_state_is_logged_once_an_interval() -> None:
    now = [0.0]
    told = LoggedOnce(60, lambda: now[0])
    due = []
    for at, reason in ((0, "a"), (1, "a"), (2, "b"), (61, "b"), (62.5, "b"), (63, "b")):
        now[0] = at
        due.append(told.is_due("queue", reason))
    assert due == [True, False, True, False, True, False]
    assert told.is_due("another", "b")
    assert (told.is_over("queue"), told.is_over("queue")) == (True, False)
    assert told.is_due("queue", "b")
