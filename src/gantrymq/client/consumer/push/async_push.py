"""The push consumer over asyncio.

async with AsyncPushConsumer("127.0.0.1:9876", consumer_group="invoices") as consumer:
    consumer.subscribe("TopicTest", "TagA || TagB")
    consumer.listen(handle)  # def or async def handle(messages, context)
    await consumer.start()
    ...

Source: DefaultMQPushConsumer, DefaultMQPushConsumerImpl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Unpack

from gantrymq.client.arguments import callback, checked_by, checks_arguments
from gantrymq.client.consumer.broker_requests import BrokerRequests, ClientAnswers, running_info
from gantrymq.client.consumer.fetch.assigned import LOCK_INTERVAL_SECONDS, AssignedQueues, QueueLocks
from gantrymq.client.consumer.fetch.popping import Popper
from gantrymq.client.consumer.fetch.process_queue import FlowLimits, ProcessQueue
from gantrymq.client.consumer.fetch.pulling import Puller, PullOwner
from gantrymq.client.consumer.group.member import Division, GroupMember
from gantrymq.client.consumer.group.offsets import offset_store
from gantrymq.client.consumer.group.rebalance import Rebalancing
from gantrymq.client.consumer.lifecycle import AsyncGroupConsumer
from gantrymq.client.consumer.listeners import ConcurrentListener, MessageQueueListener, OrderlyListener
from gantrymq.client.consumer.push.concurrent import ConcurrentConsumption
from gantrymq.client.consumer.push.consumption import ConsumeContext, Consumption
from gantrymq.client.consumer.push.orderly import WITHOUT_END, OrderlyConsumption
from gantrymq.client.consumer.push.pop_push import PopQueues
from gantrymq.client.consumer.push.send_back import SendBack
from gantrymq.client.consumer.settings import ConsumeFromWhere, PushConsumerConfig, PushConsumerSettings
from gantrymq.client.consumer.statistics import ConsumerStatistics
from gantrymq.client.hooks import ConsumeHooks
from gantrymq.client.namespace import without_namespace
from gantrymq.client.producer.async_producer import tracing_of
from gantrymq.client.requests.group_calls import GroupPull
from gantrymq.client.requests.pop_calls import INIT_MAX, INIT_MIN, GroupPop
from gantrymq.client.requests.received import ReceivedMessage, restore_topic
from gantrymq.client.requests.subscription import TAG
from gantrymq.client.runtime.background import BackgroundTasks, OnceTask
from gantrymq.client.trace import with_trace
from gantrymq.clock import Clock, SystemClock, monotonic_ms
from gantrymq.errors import AlreadyStartedError, MQClientError
from gantrymq.logs import get_logger
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from gantrymq.remoting.body import keyed
from gantrymq.remoting.transport.dispatcher import RequestDispatcher

MAX_RECONSUME_TIMES = 16  # maxReconsumeTimes -1 of a concurrent listener
BROKER_SUSPEND_MAX_TIME_MS = 15_000
_POP = "POP"  # the mode of an assignment
_IDLE_LOOK_SECONDS = 0.02
_IDLE_WITHIN_SECONDS = 10.0

log = get_logger("gantrymq.client.consumer")

# Makes the Consumption once the objects it needs exist.
_Make = Callable[[ConsumeContext, QueueLocks | None], Consumption]


@checks_arguments(listener=callback("messages", "context"))
class AsyncPushConsumer(AsyncGroupConsumer):
    """Delivers messages to a listener. Subscribe, set a listener, then start it once.

    ``async with`` starts it if the listener is set by then, and closes it.

    ``config`` is the list of name servers, with fields of PushConsumerConfig as ``settings``, or a PushConsumerConfig.
    Delivery is at least once. Raises MQClientError for wrong use; :meth:`start` raises RemotingError if no name server
    answers.

    Thread rule: the event loop's thread.
    """

    def __init__(
        self, config: PushConsumerConfig | str, clock: Clock | None = None, **settings: Unpack[PushConsumerSettings]
    ) -> None:
        self._config = config = PushConsumerConfig.of(config, settings)
        self._clock = clock or SystemClock()
        dispatcher = RequestDispatcher()
        self._member = GroupMember(config, "CONSUME_PASSIVELY", self._clock, dispatcher)
        super().__init__(self._member.client_id)
        self._offsets = offset_store(self._member)
        self._statistics = ConsumerStatistics()
        self._tracing = tracing_of(config, config.trace, self._member.group, "CONSUME", self._clock)
        self._rebalancing = Rebalancing(
            self._member, self._member.topics, self._divide, self._take_over, self._keep_topics
        )
        self._queues_changed: MessageQueueListener | None = None
        self._tasks, self._settling = BackgroundTasks(), BackgroundTasks()
        self._make: tuple[_Make, bool] | None = None
        self._work: _Work | None = None
        self._closing = OnceTask(self._close)
        self._others_ended = asyncio.Event()  # set while it closes, after all calls but the exempt ones
        self._suspended = False
        self._started_ms = 0
        answers = ClientAnswers(
            self._member.group,
            self._rebalancing.wanted.set,
            self._running_info,
            self._offsets.table,
            self._reset,
            self._directly,
            self._member.config.max_decompressed_body_size,
        )
        BrokerRequests(answers).register(dispatcher)

    async def enter(self) -> None:
        """Start the consumer for ``with`` if its listener is set. Otherwise :meth:`start` is called in the block."""
        if self._make is not None and self._work is None:
            await self._start()
            self._is_entered = True

    # Subscriptions

    def subscribe(self, topic: str, expression: str = "*", expression_type: str = TAG) -> None:
        """Subscribe to a topic. ``expression`` is ``*``, ``TagA || TagB``, or with ``SQL92`` a condition."""
        if self._closing.is_begun:
            raise MQClientError("the consumer is closed")
        wanted = self._member.subscribe(topic, expression, expression_type)
        if self._work is not None:
            self._tasks.start(self._subscribe_now(wanted.topic or ""))

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic."""
        self._member.unsubscribe(topic)
        self._rebalancing.wanted.set()

    def listen(self, listener: ConcurrentListener) -> None:
        """Set a concurrent listener: several calls at once, in no order.

        A plain function runs in up to ``consume_thread_max`` threads. A coroutine function runs in as many tasks, each
        of which makes one call after the other; each call has a context of its own. The listener returns None or
        CONSUME_SUCCESS; after any other result or an exception the messages are delivered again.
        """
        self._listen(lambda context, locks: ConcurrentConsumption(context, listener), is_orderly=False)

    def listen_orderly(self, listener: OrderlyListener) -> None:
        """Set an orderly listener: each queue in order, one batch at a time, by one member of the group only."""
        self._listen(lambda context, locks: OrderlyConsumption(context, locks, listener), is_orderly=True)

    @checked_by(listener=callback("topic", "queues", "mine"))
    def register_message_queue_listener(self, listener: MessageQueueListener) -> None:
        """Register a callback for changes of the assignment. The callback must not block."""
        self._queues_changed = listener

    # Start and close

    async def _start(self) -> None:
        self._member.client.loop.check()
        self._check_new()
        if self._make is None:
            raise MQClientError("messageListener is null: call listen or listen_orderly first")
        if self._member.is_clustering:
            self._member.subscribe(self._member.retry_topic, "*")
        self._started_ms = self._clock.now_ms()
        if not self._member.topics() - {self._member.retry_topic}:
            log.warning("a consumer without a subscription is started", group=self._member.group)
        for topic in list(self._member.subscriptions):
            await self._find_route(topic)
        await self._member.check_filters()
        self._check_new()  # once more, because other coroutines ran meanwhile
        self._work = self._made(*self._make)
        if self._tracing is not None:
            self._tracing.dispatcher.start()
        await self._member.heartbeats.beat()
        self._member.heartbeats.start()
        await self._divide_once()
        self._start_services(self._work)

    async def close(self) -> None:
        """Wait for listeners, persist offsets, release locks, leave the group. A second call has no effect.

        If the call is cancelled, the close continues in a task of its own, which the next call waits for.

        A coroutine listener may await it directly. Then it returns when all other listener calls have ended and their
        offsets are persisted; after that listener has returned, its own messages are settled and the group is left. A
        task that the listener started waits for all calls.
        """
        self._member.client.loop.check()
        self.begin_no_more()
        if self._work is not None and self._work.consumption.exempt_current_task():
            self._closing.begin()
            await self._others_ended.wait()
        else:
            await self._closing.run()

    async def _close(self) -> None:
        await self._tasks.close()
        if self._work is not None:
            if self._work.pops is not None:
                await self._work.pops.close()
            await self._work.assigned.close()
            try:
                await self._work.consumption.close()
                await self._offsets.persist_at_last(list(self._work.assigned.table))
            finally:
                self._others_ended.set()
            before = self._offsets.table()
            await self._work.consumption.wait_for_exempt()
            after = self._offsets.table()
            await self._offsets.persist_at_last([queue for queue in after if after[queue] != before.get(queue)])
            await self._settling.drain(self._config.await_termination_ms_when_shutdown / 1000)
            await self._settling.close()
            await self._work.assigned.unlock()
            await self._work.send_back.close()
        if self._tracing is not None:
            await self._tracing.dispatcher.close()
        await self._member.close()

    def begin_no_more(self) -> None:
        """Let no listener call begin after this, because the consumer is about to close. Thread rule: any thread."""
        if self._work is not None:
            self._work.consumption.begin_no_more()

    @property
    def is_in_listener(self) -> bool:
        """Whether the caller is a thread of the listener. Thread rule: any thread."""
        return self._work is not None and self._work.consumption.is_in_listener

    def suspend(self) -> None:
        """Stop pulling until :meth:`resume`. Messages that were pulled are still consumed."""
        self._suspended = True

    def resume(self) -> None:
        """Pull again after :meth:`suspend`."""
        self._suspended = False
        self._rebalancing.wanted.set()

    # State

    def assignment(self) -> list[MessageQueue]:
        """The assigned queues, including those of the retry topic. Number -1 means all queues of a broker, popped."""
        if self._work is None:
            return []
        pulled = [queue for queue, state in self._work.assigned.table.items() if not state.dropped]
        popped = [] if self._work.pops is None else self._work.pops.queues()
        return sorted(map(self._member.shown, pulled + popped))

    def offsets(self) -> dict[MessageQueue, int]:
        """The offset up to which each queue is consumed. Persisted every ``persist_consumer_offset_interval_ms``."""
        return {self._member.shown(queue): offset for queue, offset in self._offsets.table().items()}

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic (fetchSubscribeMessageQueues). Raises MQClientError if the topic does not exist."""
        return await self._member.fetch_queues(topic)

    # Implementation

    def _check_new(self) -> None:
        if self._work is not None or self._closing.is_begun:
            raise AlreadyStartedError("The PushConsumer service state not OK, maybe started once")

    def _listen(self, make: _Make, *, is_orderly: bool) -> None:
        if self._work is not None:
            raise MQClientError("the listener is chosen before the consumer starts")
        if self._make is not None:
            raise MQClientError("the consumer has a listener already: it has one, concurrent or in order")
        self._make = (make, is_orderly)

    def _made(self, make: _Make, is_orderly: bool) -> _Work:
        locks = QueueLocks(self._member) if is_orderly and self._member.is_clustering else None
        max_reconsume_times = self._config.max_reconsume_times
        max_reconsume_times = (
            (WITHOUT_END if is_orderly else MAX_RECONSUME_TIMES) if max_reconsume_times < 0 else max_reconsume_times
        )
        send_back = SendBack(self._member, max_reconsume_times)
        hooks = ConsumeHooks(
            with_trace(self._config.hooks, self._tracing),
            self._member.group,
            self._clock,
            self._config.consume_timeout_minutes * 60_000,
        )
        consume_context = ConsumeContext(self._member, self._config, self._offsets, send_back, self._statistics, hooks)
        rules = GroupPull(
            self._member.group,
            self._config.pull_batch_size,
            self._config.pull_batch_size_in_bytes,
            BROKER_SUSPEND_MAX_TIME_MS,
            post_subscription=self._config.post_subscription_when_pull,
        )
        owner = PullOwner(
            self._may_pull,
            self._deliver,
            self._member.subscriptions.get,
            self._committed,
            self._matched_none,
            self._moved,
        )
        puller = Puller(
            self._member,
            rules,
            owner,
            interval_ms=self._config.pull_interval_ms,
            failure_ms=self._config.pull_time_delay_ms_when_exception,
        )
        assigned = AssignedQueues(ProcessQueue, self._member, self._offsets, locks, puller.run, self._share_changed)
        consumption = make(consume_context, locks)
        return _Work(assigned, consumption, locks, send_back, self._pops(consumption, max_reconsume_times))

    def _pops(self, consumption: Consumption, max_reconsume_times: int) -> PopQueues | None:
        """The queues to pop, if brokers assign queues: only those of a concurrent listener, as in RocketMQ."""
        if self._config.client_rebalance or not self._member.is_clustering:
            return None
        if not isinstance(consumption, ConcurrentConsumption):
            return None
        is_last = self._config.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        rules = GroupPop(self._member.group, INIT_MAX if is_last else INIT_MIN)
        popper = Popper(self._member, rules, max_reconsume_times, self._settling)
        return PopQueues(popper, consumption, self._config, self._settling, lambda: not self._suspended)

    async def _divide_once(self) -> None:
        """Run the first division as a background task, so that a close ends it before it releases the locks."""

        async def divide() -> None:  # made by its own task, or a cancellation before its first step would leave it
            await self._rebalancing.once()

        dividing = self._tasks.start(divide())
        try:
            await asyncio.wait({dividing})
        finally:
            dividing.cancel()
        if dividing.cancelled():
            raise MQClientError("the client was closed meanwhile")
        dividing.result()

    def _start_services(self, work: _Work) -> None:
        self._tasks.start(self._rebalancing.run())
        self._tasks.start(self._rebalancing.follow_routes())
        self._tasks.start(self._every(self._config.persist_consumer_offset_interval_ms / 1000, self._persist))
        if work.locks is not None:
            locks = work.locks
            self._tasks.start(self._every(LOCK_INTERVAL_SECONDS, lambda: _done(locks.lock(self._held()))))
        if isinstance(work.consumption, ConcurrentConsumption):
            consumption = work.consumption
            minutes = self._config.consume_timeout_minutes
            self._tasks.start(self._every(minutes * 60.0, lambda: consumption.clean_expired(self._held())))

    async def _every(self, interval_s: float, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            await step()

    def _held(self) -> list[ProcessQueue]:
        return [queue for queue in self._work.assigned.table.values() if not queue.dropped] if self._work else []

    async def _persist(self) -> None:
        await self._offsets.persist([queue.queue for queue in self._held()])

    async def _find_route(self, topic: str) -> None:
        self._rebalancing.note_route(topic, is_there=await self._member.find_route(topic) is not None)

    async def _subscribe_now(self, topic: str) -> None:
        await self._find_route(topic)
        await self._member.heartbeats.beat()
        self._rebalancing.wanted.set()

    async def _divide(self, topic: str) -> Division | None:
        """The queues of a topic to pull. Those that brokers let this member pop are popped from now on."""
        if self._work is None or self._work.pops is None:
            return await self._member.divide(topic)
        given = await self._member.assignments(topic)
        if given is None:
            return None
        by_mode: dict[bool, set[MessageQueue]] = {False: set(), True: set()}
        for assigned in given:
            if assigned.message_queue is not None and assigned.message_queue.topic == topic:
                by_mode[assigned.mode == _POP].add(assigned.message_queue)
        every = tuple(sorted(self._member.queues(topic)))
        if self._work.pops.take_over(topic, by_mode[True]):
            await self._share_changed(Division(topic, every, frozenset(by_mode[True])))
        return Division(topic, every, frozenset(by_mode[False]))

    async def _take_over(self, division: Division) -> bool:
        return self._work is None or await self._work.assigned.take_over(division)

    async def _keep_topics(self, topics: set[str]) -> None:
        if self._work is not None:
            await self._work.assigned.keep_topics(topics)
            if self._work.pops is not None:
                self._work.pops.keep_topics(topics)

    async def _share_changed(self, division: Division) -> None:
        self._member.renew(division.topic)
        await self._member.heartbeats.beat()
        if self._queues_changed is not None:
            shown = self._member.shown
            topic = without_namespace(self._config.namespace, division.topic)
            self._queues_changed(topic, tuple(map(shown, division.all)), frozenset(map(shown, division.mine)))

    # Callbacks of the Puller

    def _may_pull(self, queue: ProcessQueue) -> bool:
        if self._suspended or self._work is None or queue.is_full(self._limits(self._work)):
            return False
        return self._work.locks is None or queue.locked

    def _limits(self, work: _Work) -> FlowLimits:
        config, queues = self._config, max(len(work.assigned.table), 1)
        messages, size_mib = config.pull_threshold_for_queue, config.pull_threshold_size_for_queue
        if config.pull_threshold_for_topic != -1:
            messages = max(1, config.pull_threshold_for_topic // queues)
        if config.pull_threshold_size_for_topic != -1:
            size_mib = max(1, config.pull_threshold_size_for_topic // queues)
        return FlowLimits(
            messages, size_mib, None if work.consumption.is_orderly else config.consume_concurrently_max_span
        )

    def _deliver(self, queue: ProcessQueue, messages: list[ReceivedMessage], took_s: float) -> None:
        self._statistics.pulled(queue.queue.topic, len(messages), took_s * 1000, monotonic_ms(self._clock))
        if self._work is not None:
            if self._config.namespace or queue.queue.topic == self._member.retry_topic:
                for message in messages:
                    restore_topic(message, self._member.retry_topic, self._config.namespace)
            self._work.consumption.deliver(queue, messages)

    def _committed(self, queue: ProcessQueue) -> int | None:
        return self._offsets.read(queue.queue) if self._member.is_clustering else None

    def _matched_none(self, queue: ProcessQueue, offset: int) -> None:
        if queue.count == 0:
            self._offsets.update(queue.queue, offset, increase_only=True)

    async def _moved(self, queue: ProcessQueue, offset: int) -> bool:
        """The broker corrected the offset: release the queue, and take it over again at ``offset``."""
        if self._work is not None:
            self._freeze(queue, offset)
            await self._work.assigned.give_up(queue, is_taken_again=True)
            self._rebalancing.wanted.set()
        return False

    def _freeze(self, queue: ProcessQueue, offset: int) -> None:
        """Drop a queue at an offset that no listener call may change any more (updateAndFreezeOffset)."""
        queue.dropped = queue.released = True
        self._offsets.update(queue.queue, offset)

    # Requests of brokers

    async def _reset(self, topic: str, table: dict[MessageQueue, int]) -> None:
        if self._work is None:
            return
        self._rebalancing.suspended = True
        try:
            held = [queue for queue in self._held() if queue.queue.topic == topic and queue.queue in table]
            for queue in held:
                queue.dropped = True
                queue.clear()
            await _until_idle(held)
            for queue in held:
                self._freeze(queue, table[queue.queue])
                await self._work.assigned.give_up(queue, is_taken_again=True)
        finally:
            self._rebalancing.suspended = False
            self._rebalancing.wanted.set()

    async def _directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        if self._work is None:
            raise MQClientError("the consumer is not started")
        restore_topic(message, self._member.retry_topic, self._config.namespace)
        return await self._work.consumption.directly(message)

    def _running_info(self) -> ConsumerRunningInfo:
        is_orderly = self._make is not None and self._make[1]
        extra = {
            "PROP_CONSUMEORDERLY": str(is_orderly).lower(),
            "PROP_THREADPOOL_CORE_SIZE": str(self._config.consume_thread_max),
        }
        info = running_info(self._member, self._held(), self._offsets, self._statistics, self._started_ms, extra)
        if self._work is not None and self._work.pops is not None:
            info.mq_pop_table = keyed(self._work.pops.infos())
        return info


class _Work:
    """The parts of a consumer that exist only after its start."""

    def __init__(
        self,
        assigned: AssignedQueues[ProcessQueue],
        consumption: Consumption,
        locks: QueueLocks | None,
        send_back: SendBack,
        pops: PopQueues | None,
    ) -> None:
        self.assigned, self.consumption, self.locks = assigned, consumption, locks
        self.send_back, self.pops = send_back, pops


async def _done(work: Awaitable[object]) -> None:
    await work


async def _until_idle(queues: list[ProcessQueue]) -> None:
    for _ in range(int(_IDLE_WITHIN_SECONDS / _IDLE_LOOK_SECONDS)):
        if not any(queue.in_listener for queue in queues):
            return
        await asyncio.sleep(_IDLE_LOOK_SECONDS)
