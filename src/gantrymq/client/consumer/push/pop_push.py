"""Pops the queues that a broker assigns to a push consumer in mode POP.

Several members may have the same queue, and a member may have all queues of a broker (number -1). There are no offsets
and no locks: each message is acknowledged, or hidden until it shall be delivered again.

Source: RebalanceImpl.updateMessageQueueAssignment, DefaultMQPushConsumerImpl.popMessage,
ConsumeMessagePopConcurrentlyService, PopProcessQueue.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial

from gantrymq.client.consumer.fetch.arrivals import Arrivals
from gantrymq.client.consumer.fetch.popping import HELD_MS, Popper
from gantrymq.client.consumer.fetch.pulling import FLOW_CONTROL_SECONDS
from gantrymq.client.consumer.push.concurrent import ConcurrentConsumption
from gantrymq.client.consumer.settings import PushConsumerConfig
from gantrymq.client.requests.pop_calls import PopTarget
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.client.runtime.background import BackgroundTasks
from gantrymq.client.runtime.logged_once import LoggedOnce
from gantrymq.errors import GantrymqError
from gantrymq.logs import get_logger
from gantrymq.model.delays import retry_delay
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import PopProcessQueueInfo

log = get_logger("gantrymq.client.consumer")


class PopQueues:
    """Pops the assigned queues and passes their messages to the listener. Thread rule: the event loop's thread."""

    def __init__(
        self,
        popper: Popper,
        consumption: ConcurrentConsumption,
        config: PushConsumerConfig,
        settling: BackgroundTasks,
        may_pop: Callable[[], bool],
    ) -> None:
        self._popper, self._consumption, self._config = popper, consumption, config
        self._may_pop, self._settling = may_pop, settling
        self._arrivals = Arrivals(popper.has_messages)
        self._pops: dict[MessageQueue, asyncio.Task[None]] = {}
        self._tasks = BackgroundTasks()
        self._unsettled = Counter[MessageQueue]()
        self._told = LoggedOnce()
        self._loop = asyncio.get_running_loop()

    def queues(self) -> list[MessageQueue]:
        """The queues that are popped."""
        return list(self._pops)

    def infos(self) -> dict[MessageQueue, PopProcessQueueInfo]:
        """The state of each queue, for GET_CONSUMER_RUNNING_INFO."""
        return {queue: PopProcessQueueInfo(wait_ack_count=self._unsettled[queue]) for queue in self._pops}

    def take_over(self, topic: str, queues: Collection[MessageQueue]) -> bool:
        """Pop exactly these queues of a topic. Returns whether they have changed."""
        before = {queue for queue in self._pops if queue.topic == topic}
        for queue in before - set(queues):
            self._pops.pop(queue).cancel()
        for queue in set(queues) - before:
            self._pops[queue] = self._tasks.start(self._run(queue))
        return before != set(queues)

    def keep_topics(self, topics: Collection[str]) -> None:
        """Stop popping all other topics."""
        for topic in {queue.topic for queue in self._pops} - set(topics):
            self.take_over(topic, ())

    async def close(self) -> None:
        """Stop popping. Messages in the listener are still settled."""
        self._pops.clear()
        await self._tasks.close()
        await self._arrivals.close()

    async def _run(self, queue: MessageQueue) -> None:
        target = PopTarget(queue.topic, queue.broker_name, queue.queue_id)
        while True:
            if not self._may_pop() or self._unsettled[queue] >= self._config.pop_threshold_for_queue:
                await asyncio.sleep(FLOW_CONTROL_SECONDS)
            elif not self._arrivals.is_quiet(target):
                await self._step(queue, target)
            else:
                await self._arrivals.wait([target], HELD_MS / 1000)

    async def _step(self, queue: MessageQueue, target: PopTarget) -> None:
        try:
            messages = await self._popper.pop(target, self._config.pop_batch_nums, self._config.pop_invisible_time_ms)
        except GantrymqError as error:
            if self._told.is_due(queue, str(error)):
                log.warning("a pop failed", queue=str(queue), reason=str(error))
            await asyncio.sleep(self._config.pull_time_delay_ms_when_exception / 1000)
            return
        self._told.is_over(queue)
        if messages:
            self._arrivals.notify_found(target)
            self._unsettled[queue] += len(messages)
            self._consumption.deliver_popped(queue.topic, messages, partial(self._settle, queue))
            await asyncio.sleep(self._config.pull_interval_ms / 1000)
        else:
            await self._arrivals.wait([target], HELD_MS / 1000)

    def _settle(
        self, queue: MessageQueue, messages: list[ReceivedMessage], consumed: int, delay_level: int | None
    ) -> None:
        """Settle a batch. Thread rule: any thread if ``delay_level`` is None, otherwise the event loop's thread."""
        if delay_level is None:
            self._loop.call_soon_threadsafe(self._forget, queue, len(messages))
            return
        for at, message in enumerate(messages):
            self._settling.start(self._settle_one(queue, message, None if at < consumed else delay_level))

    async def _settle_one(self, queue: MessageQueue, message: ReceivedMessage, delay_level: int | None) -> None:
        """Acknowledge a message if ``delay_level`` is None. Otherwise it is delivered again after that level."""
        try:
            if delay_level is None:
                await self._popper.ack(message)
            elif delay_level < 0:
                await self._popper.finish(message, is_dead=True)
            else:
                delay_s = retry_delay(delay_level or message.reconsume_times)
                await self._popper.change_invisible_time(message, delay_s * 1000)
        except GantrymqError as error:  # it is delivered again when its invisible time is over
            log.warning("a popped message was not settled", msg_id=message.msg_id, reason=str(error))
        finally:
            self._forget(queue, 1)

    def _forget(self, queue: MessageQueue, count: int) -> None:
        self._unsettled[queue] -= count
