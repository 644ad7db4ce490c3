"""The wall clock jumps while clients run: no lock is lost, no wait ends sooner or later, no commit is left out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from pulled import QUEUE, message

from gantrymq import AsyncLitePullConsumer, AsyncProducer, Message
from gantrymq.client.consumer.broker_requests import running_info
from gantrymq.client.consumer.fetch.assigned import AssignedQueues, QueueLocks
from gantrymq.client.consumer.fetch.process_queue import ProcessQueue
from gantrymq.client.consumer.group.member import Division, GroupMember
from gantrymq.client.consumer.group.offsets import OffsetStore, RemoteBrokerOffsetStore
from gantrymq.client.consumer.push.concurrent import ConcurrentConsumption
from gantrymq.client.consumer.push.consumption import ConsumeContext
from gantrymq.client.consumer.push.orderly import OrderlyConsumption
from gantrymq.client.consumer.push.send_back import SendBack
from gantrymq.client.consumer.settings import PushConsumerConfig
from gantrymq.client.consumer.statistics import ConsumerStatistics
from gantrymq.client.hooks import ConsumeHooks
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.client.requests.routes import TopicRoute
from gantrymq.client.requests.send_result import SendResult, SendStatus
from gantrymq.client.unique_id import UniqueIdGenerator
from gantrymq.clock import monotonic_ms
from gantrymq.errors import MQClientError, RemotingConnectError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import ProcessQueueInfo
from gantrymq.remoting.transport.dispatcher import RequestDispatcher
from jumping_clock import DAY_MS, HOUR_MS, JUMPS, JumpingClock


class Scene:
    """A member of a group, its queue with one message, and the clock of both; made on a running loop."""

    def __init__(self) -> None:
        self.clock = JumpingClock()
        self.config = PushConsumerConfig("127.0.0.1:1", consumer_group="g")
        self.member = GroupMember(self.config, "CONSUME_PASSIVELY", self.clock, RequestDispatcher())
        self.offsets, self.statistics = RemoteBrokerOffsetStore(self.member), ConsumerStatistics()
        self.send_back = AsyncMock(SendBack)
        hooks = ConsumeHooks((), self.member.group, self.clock)
        self.ground = ConsumeContext(self.member, self.config, self.offsets, self.send_back, self.statistics, hooks)
        self.queue = ProcessQueue(QUEUE, monotonic_ms(self.clock))
        self.queue.put([message(0)], 1)

    def info(self) -> tuple[ProcessQueueInfo, float]:
        """What the member says of the queue, and how many messages a second it consumed."""
        info = running_info(self.member, [self.queue], self.offsets, self.statistics, 0, {})
        return next(iter(info.mq_table.values())), info.status_table[QUEUE.topic].consume_ok_tps


@JUMPS
def test_queue_lock_is_valid_for_thirty_seconds(jump_ms: int) -> None:
    async def scenario() -> None:
        scene = Scene()
        scene.member.ask = AsyncMock(return_value={QUEUE})  # type: ignore[method-assign]
        locks = QueueLocks(scene.member)
        consumption = OrderlyConsumption(scene.ground, locks, lambda messages, context: None)
        for passed_ms, asked in ((0, 1), (30_000, 1), (1, 2)):
            scene.clock.wait(passed_ms)
            assert await consumption._is_locked(scene.queue)
            assert scene.member.ask.await_count == asked
            scene.clock.jump(jump_ms)
        await consumption.close()

    asyncio.run(scenario())


@JUMPS
def test_queue_is_released_once_its_pulls_stop(jump_ms: int) -> None:
    async def pull(queue: ProcessQueue, offset: int) -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        scene, offsets = Scene(), AsyncMock(OffsetStore)
        offsets.read_from_store.return_value = 0
        assigned = AssignedQueues(ProcessQueue, scene.member, cast(OffsetStore, offsets), None, pull, AsyncMock())
        division = Division(QUEUE.topic, (QUEUE,), frozenset([QUEUE]))
        await assigned.take_over(division)
        first = assigned.table[QUEUE]
        scene.clock.jump(jump_ms)
        await assigned.take_over(division)
        assert assigned.table[QUEUE] is first
        scene.clock.wait(120_001)
        await assigned.take_over(division)
        assert assigned.table[QUEUE] is not first
        await assigned.close()

    asyncio.run(scenario())


@JUMPS
def test_queue_in_listener_is_unlocked_twenty_seconds_after_its_last_lock(jump_ms: int) -> None:
    async def scenario() -> None:
        scene = Scene()
        locks = AsyncMock(QueueLocks)
        assigned = AssignedQueues(
            ProcessQueue, scene.member, cast(OffsetStore, AsyncMock(OffsetStore)), locks, AsyncMock(), AsyncMock()
        )
        scene.queue.in_listener = True
        scene.clock.jump(jump_ms)
        assert not await assigned.give_up(scene.queue)
        scene.clock.wait(20_001)
        assert await assigned.give_up(scene.queue)

    asyncio.run(scenario())


@JUMPS
def test_message_is_sent_back_after_consume_timeout(jump_ms: int) -> None:
    async def scenario() -> None:
        scene, go_on, is_begun = Scene(), threading.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
            loop.call_soon_threadsafe(is_begun.set)
            go_on.wait()

        consumption = ConcurrentConsumption(scene.ground, listen)
        first = scene.queue.first()
        assert first is not None
        consumption.deliver(scene.queue, [first])
        await is_begun.wait()
        assert first.consume_start_ms == scene.clock.now_ms()
        scene.clock.jump(jump_ms)
        await consumption.clean_expired([scene.queue])
        assert scene.send_back.back.await_count == 0
        scene.clock.wait(scene.config.consume_timeout_minutes * 60_000 + 1)
        await consumption.clean_expired([scene.queue])
        assert scene.send_back.back.await_count == 1
        go_on.set()
        await consumption.close()

    asyncio.run(scenario())


@JUMPS
def test_running_info_has_wall_clock_dates_and_monotonic_rates(jump_ms: int) -> None:
    async def scenario() -> None:
        scene = Scene()
        scene.member.subscribe(QUEUE.topic, "*")
        for _ in range(6):
            scene.ground.begin([message(0)])
            scene.statistics.consumed(QUEUE.topic, 50, 0, 1.0, monotonic_ms(scene.clock))
            scene.clock.wait(10_000)
        scene.clock.jump(jump_ms)
        info, rate = scene.info()
        assert info.last_pull_timestamp == info.last_lock_timestamp == scene.clock.now_ms() - 60_000
        assert info.last_consume_timestamp == scene.clock.now_ms() - 60_000
        assert 4 <= rate <= 6

    asyncio.run(scenario())


@JUMPS
def test_listener_duration_ignores_jumps_of_wall_clock(jump_ms: int) -> None:
    async def scenario() -> None:
        scene = Scene()
        scene.member.subscribe(QUEUE.topic, "*")

        def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
            scene.clock.wait(70)
            scene.clock.jump(jump_ms)

        consumption = ConcurrentConsumption(scene.ground, listen)
        result = await consumption.directly(message(0))
        assert result.spent_time_mills == 70
        consumption.deliver(scene.queue, [scene.queue.first()])
        while scene.queue.count:
            await asyncio.sleep(0.001)
        await consumption.close()
        assert scene.statistics._topics[QUEUE.topic].now.consume_ms == 70

    asyncio.run(scenario())


@JUMPS
def test_lite_pull_polls_commit_at_each_interval_despite_jumps(jump_ms: int) -> None:
    async def scenario() -> None:
        clock = JumpingClock()
        consumer = AsyncLitePullConsumer("127.0.0.1:1", clock, consumer_group="g")
        consumer._running = True
        queue = ProcessQueue(QUEUE, monotonic_ms(clock))
        consumer._assigned.table[QUEUE] = queue
        for wait_ms, position, committed in ((0, 1, 1), (4_999, 2, 1), (1, 3, 3), (1, 4, 3), (4_999, 5, 5)):
            clock.wait(wait_ms)
            queue.position = position
            await consumer.poll(0)
            assert consumer._offsets.read(QUEUE) == committed
            clock.jump(jump_ms)
        await consumer._member.close()
        consumer._running = False

    asyncio.run(scenario())


@JUMPS
def test_failed_broker_is_avoided_for_ten_seconds(jump_ms: int) -> None:
    queues = (MessageQueue("T", "a", 0), MessageQueue("T", "b", 0))
    masters = {"a": "127.0.0.1:1", "b": "127.0.0.1:2"}

    async def scenario() -> None:
        clock, tried = JumpingClock(), list[str]()

        async def call(address: str, call: object, timeout_ms: int) -> SendResult:
            tried.append(address)
            if len(tried) == 1:
                raise RemotingConnectError(address, "nobody")
            return SendResult(SendStatus.SEND_OK, "", queues[0], 0, "")

        producer = AsyncProducer("127.0.0.1:1", clock, producer_group="p", send_latency_fault_enable=True)
        route = TopicRoute("T", queues, queues, masters, masters, {})
        producer._routes.find = AsyncMock(return_value=route)  # type: ignore[method-assign]
        producer._client.call = call  # type: ignore[method-assign, assignment]
        with pytest.raises(RemotingConnectError):
            await producer.send(Message("T", b"x"), queues[0])
        for wait_ms, usable in ((0, "b"), (9_999, "b"), (1, "ab")):
            clock.wait(wait_ms)
            tried[1:] = []
            for _ in range(4):
                await producer.send(Message("T", b"x"))
            assert set(tried[1:]) == {masters[one] for one in usable}
            clock.jump(jump_ms)
        await producer.close()

    asyncio.run(scenario())


@JUMPS
def test_send_timeout_ignores_jumps_of_wall_clock(jump_ms: int) -> None:
    queue = MessageQueue("T", "a", 0)
    route = TopicRoute("T", (queue,), (queue,), {"a": "127.0.0.1:1"}, {}, {})

    async def scenario() -> None:
        clock, left_ms = JumpingClock(), list[int]()

        async def call(address: str, call: object, timeout_ms: int) -> SendResult:
            left_ms.append(timeout_ms)
            clock.jump(jump_ms)
            clock.wait(1000)
            raise RemotingConnectError(address, "nobody")

        async def find(topic: str, timeout_ms: int) -> TopicRoute:
            clock.jump(jump_ms)
            return route

        producer = AsyncProducer("127.0.0.1:1", clock, producer_group="p", send_msg_timeout_ms=3000)
        producer._routes.find = find  # type: ignore[method-assign, assignment]
        producer._client.call = call  # type: ignore[method-assign, assignment]
        with pytest.raises(MQClientError, match=r"cost \[3000\]ms"):
            await producer.send(Message("T", b"x"))
        assert left_ms == [3000, 2000, 1000]
        await producer.close()

    asyncio.run(scenario())


def test_subscription_after_clock_set_back_has_newer_version() -> None:
    async def scenario() -> None:
        scene = Scene()
        versions = [scene.member.subscribe(QUEUE.topic, "TagA").sub_version]
        scene.clock.jump(-2 * DAY_MS)
        versions.append(scene.member.subscribe(QUEUE.topic, "TagB").sub_version)
        scene.member.renew(QUEUE.topic)
        versions.append(scene.member.subscriptions[QUEUE.topic].sub_version)
        scene.member.unsubscribe(QUEUE.topic)
        versions.append(scene.member.subscribe(QUEUE.topic, "*").sub_version)
        assert versions == sorted(set(versions))
        scene.clock.jump(3 * DAY_MS)
        assert scene.member.subscribe(QUEUE.topic, "*").sub_version == scene.clock.now_ms()

    asyncio.run(scenario())


def test_clock_set_back_repeats_no_message_id() -> None:
    """Its counter has two bytes: the same millisecond, come again, would give the same ids."""
    clock = JumpingClock()
    ids = UniqueIdGenerator(clock)
    given = {ids.new() for _ in range(1 << 16)}
    clock.wait(HOUR_MS)
    ids.new()
    clock.jump(-HOUR_MS)
    again = {ids.new() for _ in range(1 << 16)}
    assert len(given) == len(again) == 1 << 16
    assert given.isdisjoint(again)
