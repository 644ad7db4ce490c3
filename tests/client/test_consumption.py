"""What becomes of messages after their listener: offsets, send-back, expiry, closing. No broker is asked."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from pulled import QUEUE, message

from gantrymq.client.consumer.fetch.assigned import QueueLocks
from gantrymq.client.consumer.fetch.process_queue import ProcessQueue
from gantrymq.client.consumer.group.member import GroupMember
from gantrymq.client.consumer.group.offsets import RemoteBrokerOffsetStore
from gantrymq.client.consumer.listeners import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from gantrymq.client.consumer.push import concurrent as concurrent_module
from gantrymq.client.consumer.push.concurrent import ConcurrentConsumption
from gantrymq.client.consumer.push.consumption import ConsumeContext
from gantrymq.client.consumer.push.orderly import OrderlyConsumption
from gantrymq.client.consumer.push.send_back import SendBack
from gantrymq.client.consumer.settings import PushConsumerConfig
from gantrymq.client.consumer.statistics import ConsumerStatistics
from gantrymq.client.hooks import ConsumeHooks
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.clock import ManualClock
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.transport.dispatcher import RequestDispatcher

LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER


class Broker:
    """Takes messages back, or refuses them so often."""

    def __init__(self, refusals: int = 0) -> None:
        self.back_at_level: list[tuple[int, int]] = []
        self.refusals = refusals

    async def back(self, one: ReceivedMessage, delay_level: int) -> bool:
        return await self._take(one, delay_level)

    async def as_message(self, one: ReceivedMessage) -> bool:
        return await self._take(one, -1)

    async def _take(self, one: ReceivedMessage, level: int) -> bool:
        self.refusals -= 1
        if self.refusals >= 0:
            return False
        self.back_at_level.append((one.queue_offset, level))
        return True


class Scene:
    """A queue with messages and all that a way of consuming needs; made on a running loop."""

    def __init__(self, messages: int, broker: Broker | None = None, **settings: Any) -> None:
        config = PushConsumerConfig("127.0.0.1:1", consumer_group="g", **settings)
        self.clock = ManualClock()
        member = GroupMember(config, "CONSUME_PASSIVELY", self.clock, RequestDispatcher())
        self.offsets = RemoteBrokerOffsetStore(member)
        self.broker = broker or Broker()
        self.context = ConsumeContext(
            member, config, self.offsets, cast(SendBack, self.broker), ConsumerStatistics(),
            ConsumeHooks((), member.group, self.clock),
        )  # fmt: skip
        self.queue = ProcessQueue(QUEUE, self.clock.now_ms())
        self.messages = [message(offset) for offset in range(messages)]
        self.queue.put(self.messages, messages)

    def offset(self) -> int | None:
        return self.offsets.read(QUEUE)


async def until(true: Callable[[], bool]) -> None:
    for _ in range(5000):
        if true():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not become so")


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_slow_listener_delays_commit_of_offset() -> None:
    async def scenario() -> None:
        scene, go_on = Scene(8), threading.Event()
        consumption = ConcurrentConsumption(
            scene.context, lambda messages, context: None if messages[0].queue_offset != 3 or go_on.wait() else LATER
        )
        consumption.deliver(scene.queue, scene.messages)
        await until(lambda: scene.queue.count == 1)
        assert scene.offset() == 3
        go_on.set()
        await until(lambda: scene.offset() == 8)
        await consumption.close()

    play(scenario)


def test_late_result_of_expired_message_is_ignored() -> None:
    async def scenario() -> None:
        scene, go_on = Scene(2, consume_timeout_minutes=15), threading.Event()

        def listen(messages: Sequence[ReceivedMessage], context: Any) -> ConsumeConcurrentlyStatus | None:
            if messages[0].queue_offset == 0:
                go_on.wait()
                return LATER
            return None

        consumption = ConcurrentConsumption(scene.context, listen)
        consumption.deliver(scene.queue, scene.messages)
        await until(lambda: scene.queue.count == 1)
        scene.clock.advance(15 * 60_000)
        await consumption.clean_expired([scene.queue])
        assert scene.broker.back_at_level == []
        scene.clock.advance(1)
        await consumption.clean_expired([scene.queue])
        assert (scene.broker.back_at_level, scene.offset()) == ([(0, 3)], 2)
        go_on.set()
        await consumption.close()
        assert scene.broker.back_at_level == [(0, 3)]

    play(scenario)


def test_message_with_failed_send_back_is_consumed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrent_module, "AGAIN_SECONDS", 0.01)

    async def scenario() -> None:
        scene = Scene(3, Broker(refusals=2), consume_message_batch_max_size=3)
        seen: list[tuple[int, int]] = []

        def listen(messages: Sequence[ReceivedMessage], context: Any) -> ConsumeConcurrentlyStatus | None:
            seen.extend((one.queue_offset, one.reconsume_times) for one in messages)
            return LATER

        consumption = ConcurrentConsumption(scene.context, listen)
        consumption.deliver(scene.queue, scene.messages)
        await until(lambda: scene.offset() == 3)
        assert seen == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)]
        assert scene.broker.back_at_level == [(2, 0), (0, 0), (1, 0)]
        await consumption.close()

    play(scenario)


def test_released_queue_commits_nothing() -> None:
    async def scenario() -> None:
        scene, go_on, begun = Scene(2, consume_thread_max=1), threading.Event(), threading.Event()
        seen: list[int] = []

        def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
            seen.append(messages[0].queue_offset)
            begun.set()
            go_on.wait()

        consumption = ConcurrentConsumption(scene.context, listen)
        consumption.deliver(scene.queue, scene.messages)
        await asyncio.to_thread(begun.wait)
        scene.queue.dropped = True
        go_on.set()
        await consumption.close()
        assert (seen, scene.offset()) == ([0], None)

    play(scenario)


def test_closing_waits_for_listeners_and_commits() -> None:
    async def scenario() -> None:
        scene, go_on, begun = Scene(3, consume_thread_max=1), threading.Event(), threading.Event()

        def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
            begun.set()
            go_on.wait()

        consumption = ConcurrentConsumption(scene.context, listen)
        consumption.deliver(scene.queue, scene.messages)
        await asyncio.to_thread(begun.wait)
        closing = asyncio.ensure_future(consumption.close())
        await asyncio.sleep(0.01)
        assert not closing.done()
        go_on.set()
        await closing
        assert scene.offset() == 1  # what had begun; the other two were never given to anybody

    play(scenario)


def test_orderly_transaction_commits_or_rolls_back() -> None:
    async def scenario() -> None:
        scene = Scene(3, suspend_current_queue_time_ms=1)
        answers = [
            ConsumeOrderlyStatus.SUCCESS, ConsumeOrderlyStatus.SUCCESS, ConsumeOrderlyStatus.ROLLBACK,
            ConsumeOrderlyStatus.SUCCESS, ConsumeOrderlyStatus.SUCCESS, ConsumeOrderlyStatus.COMMIT,
        ]  # fmt: skip
        seen: list[tuple[int, int | None]] = []

        async def listen(messages: Sequence[ReceivedMessage], context: Any) -> ConsumeOrderlyStatus:
            context.auto_commit = False
            seen.append((messages[0].queue_offset, scene.offset()))
            return answers[len(seen) - 1]

        consumption = OrderlyConsumption(scene.context, None, listen)
        consumption.deliver(scene.queue, scene.messages)
        await until(lambda: scene.offset() == 3)
        assert seen == [(0, None), (1, None), (2, None)] * 2
        await consumption.close()

    play(scenario)


def test_orderly_failing_message_blocks_queue_until_dead_letter() -> None:
    async def scenario() -> None:
        scene = Scene(2, Broker(refusals=1), suspend_current_queue_time_ms=1, max_reconsume_times=1)
        seen: list[tuple[int, int]] = []

        async def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
            seen.append((messages[0].queue_offset, messages[0].reconsume_times))
            if messages[0].queue_offset == 0:
                raise ValueError("never")

        consumption = OrderlyConsumption(scene.context, None, listen)
        consumption.deliver(scene.queue, scene.messages)
        await until(lambda: scene.offset() == 2)
        assert seen == [(0, 0), (0, 1), (0, 2), (1, 0)]  # the broker refused it once
        assert scene.broker.back_at_level == [(0, -1)]
        await consumption.close()

    play(scenario)


class SlowLocks:
    """A broker that says yes when it is let."""

    def __init__(self) -> None:
        self.asked, self.answers = asyncio.Event(), asyncio.Event()

    async def lock(self, queues: Sequence[ProcessQueue]) -> bool:
        self.asked.set()
        await self.answers.wait()
        return True


def test_orderly_queue_released_during_lock_request_begins_no_call() -> None:
    async def scenario() -> None:
        scene, locks, seen = Scene(2), SlowLocks(), list[int]()

        async def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
            seen.append(messages[0].queue_offset)

        consumption = OrderlyConsumption(scene.context, cast(QueueLocks, locks), listen)
        consumption.deliver(scene.queue, scene.messages)
        await locks.asked.wait()
        scene.queue.dropped = True
        locks.answers.set()
        await until(lambda: not scene.queue.consuming)
        assert (seen, scene.offset()) == ([], None)
        await consumption.close()

    play(scenario)


def test_orderly_queue_released_while_waiting_for_thread_begins_no_call() -> None:
    async def scenario() -> None:
        scene, go_on, begun = Scene(1, consume_thread_max=1), threading.Event(), threading.Event()
        second = ProcessQueue(MessageQueue(QUEUE.topic, QUEUE.broker_name, QUEUE.queue_id + 1), 0)
        second.put([message(700)], 701)
        seen: list[int] = []

        def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
            seen.append(messages[0].queue_offset)
            begun.set()
            go_on.wait()

        consumption = OrderlyConsumption(scene.context, None, listen)
        consumption.deliver(scene.queue, scene.messages)
        await asyncio.to_thread(begun.wait)
        consumption.deliver(second, [message(700)])
        await until(lambda: second.in_listener)
        second.dropped = True
        go_on.set()
        await until(lambda: not second.in_listener and scene.offset() == 1)
        assert (seen, scene.offsets.read(second.queue)) == ([0], None)
        await consumption.close()

    play(scenario)


@pytest.mark.parametrize("released", [False, True])
def test_orderly_late_listener_commits_until_queue_is_released(released: bool) -> None:
    async def scenario() -> None:
        scene, go_on, begun = Scene(1), threading.Event(), threading.Event()

        def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
            begun.set()
            go_on.wait()

        consumption = OrderlyConsumption(scene.context, None, listen)
        consumption.deliver(scene.queue, scene.messages)
        await asyncio.to_thread(begun.wait)
        scene.queue.dropped, scene.queue.released = True, released
        scene.offsets.update(QUEUE, 500)
        go_on.set()
        await until(lambda: not scene.queue.consuming)
        assert scene.offset() == (500 if released else 1)
        await consumption.close()

    play(scenario)


@pytest.mark.parametrize("kind", [ConcurrentConsumption, OrderlyConsumption])
def test_listener_with_cancelled_task_counts_as_failed(
    kind: Callable[..., Any],
) -> None:
    async def scenario() -> None:
        scene, seen = Scene(2, suspend_current_queue_time_ms=1), list[int]()

        async def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
            seen.append(messages[0].queue_offset)
            if seen.count(0) == 1:
                helper = asyncio.ensure_future(asyncio.sleep(60))
                helper.cancel()
                await helper

        consumption = consuming(kind, scene, listen)
        consumption.deliver(scene.queue, scene.messages)
        await until(lambda: scene.offset() == 2)
        assert sorted(seen) == ([0, 1] if kind is ConcurrentConsumption else [0, 0, 1])
        await consumption.close()

    play(scenario)


class Asynchronous:
    """A listener that is an object."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    async def __call__(self, messages: Sequence[ReceivedMessage], context: Any) -> None:
        await self.hear("", messages, context)

    async def hear(self, where: str, messages: Sequence[ReceivedMessage], context: Any) -> None:
        await asyncio.sleep(0)
        self.seen.append(messages[0].queue_offset)


@pytest.mark.parametrize("kind", [ConcurrentConsumption, OrderlyConsumption])
@pytest.mark.parametrize(
    "made",
    [
        lambda heard: heard,
        partial,
        lambda heard: partial(heard.hear, "here"),
        lambda heard: lambda messages, context: heard.hear("there", messages, context),
        lambda heard: AsyncMock(side_effect=heard.__call__),
    ],
)
def test_awaitable_returned_by_listener_is_awaited(
    kind: Callable[..., Any], made: Callable[[Asynchronous], Any]
) -> None:
    async def scenario() -> None:
        scene, heard = Scene(2), Asynchronous()
        consumption = consuming(kind, scene, made(heard))
        consumption.deliver(scene.queue, scene.messages)
        await until(lambda: scene.offset() == 2)
        assert sorted(heard.seen) == [0, 1]
        await consumption.close()

    play(scenario)


@pytest.mark.parametrize(
    ("kind", "foreign"),
    [
        (ConcurrentConsumption, False),
        (ConcurrentConsumption, "RECONSUME_LATER"),
        (ConcurrentConsumption, ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT),
        (OrderlyConsumption, LATER),
    ],
)
@pytest.mark.parametrize("is_awaited", [False, True])
def test_invalid_listener_result_counts_as_failure(
    kind: Callable[..., Any],
    foreign: object,
    is_awaited: bool,
) -> None:
    async def scenario() -> None:
        scene, seen = Scene(1, suspend_current_queue_time_ms=1, max_reconsume_times=0), list[int]()

        def listen(messages: Sequence[ReceivedMessage], context: Any) -> Any:
            seen.append(messages[0].queue_offset)
            return foreign

        async def listen_later(messages: Sequence[ReceivedMessage], context: Any) -> Any:
            return listen(messages, context)

        consumption = consuming(kind, scene, listen_later if is_awaited else listen)
        consumption.deliver(scene.queue, scene.messages)
        await until(lambda: scene.offset() == 1)
        assert (seen, [offset for offset, _ in scene.broker.back_at_level]) == ([0], [0])
        await consumption.close()

    play(scenario)


def consuming(kind: Callable[..., Any], scene: Scene, listener: Any) -> Any:
    return kind(scene.context, listener) if kind is ConcurrentConsumption else kind(scene.context, None, listener)
