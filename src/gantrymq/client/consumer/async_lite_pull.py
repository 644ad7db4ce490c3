"""The lite-pull consumer over asyncio.

    async with AsyncLitePullConsumer("127.0.0.1:9876", consumer_group="audit") as consumer:
        await consumer.subscribe("TopicTest")
        for message in await consumer.poll():
            ...

Source: DefaultLitePullConsumer, DefaultLitePullConsumerImpl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Unpack

from gantrymq.client.arguments import callback, checked_by, checks_arguments
from gantrymq.client.consumer.broker_requests import BrokerRequests, ClientAnswers, running_info
from gantrymq.client.consumer.fetch.assigned import AssignedQueues
from gantrymq.client.consumer.fetch.fetched import FetchedMessages, FetchedPull, FetchedQueue
from gantrymq.client.consumer.fetch.process_queue import FlowLimits
from gantrymq.client.consumer.fetch.pulling import Puller, PullOwner
from gantrymq.client.consumer.group.member import Division, GroupMember
from gantrymq.client.consumer.group.offsets import offset_store
from gantrymq.client.consumer.group.rebalance import QueueWatch, Rebalancing, TopicMessageQueueChangeListener
from gantrymq.client.consumer.lifecycle import AsyncGroupConsumer
from gantrymq.client.consumer.listeners import MessageQueueListener
from gantrymq.client.consumer.settings import LitePullConsumerConfig, LitePullConsumerSettings
from gantrymq.client.consumer.statistics import ConsumerStatistics
from gantrymq.client.hooks import ConsumeHooks
from gantrymq.client.namespace import without_namespace, wrap_namespace
from gantrymq.client.producer.async_producer import tracing_of
from gantrymq.client.requests import calls
from gantrymq.client.requests.group_calls import GroupPull
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.client.requests.subscription import TAG, subscription
from gantrymq.client.runtime.background import BackgroundTasks, OnceTask
from gantrymq.client.trace import with_trace
from gantrymq.clock import Clock, SystemClock, monotonic_ms
from gantrymq.errors import AlreadyStartedError, MQClientError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import ConsumerRunningInfo, SubscriptionData
from gantrymq.remoting.transport.dispatcher import RequestDispatcher

_ANY_SIZE = 0x7FFFFFFF


@checks_arguments()
class AsyncLitePullConsumer(AsyncGroupConsumer):
    """Returns messages when polled: from topics (:meth:`subscribe`) or from given queues (:meth:`assign`).

    The queues of subscribed topics are shared with the other members of the group. ``config`` is the list of name
    servers, with fields of LitePullConsumerConfig as ``settings``, or a LitePullConsumerConfig.

    Messages are fetched in advance. With ``auto_commit`` a poll commits the messages of earlier polls, every
    ``auto_commit_interval_ms``. The messages of the last polls before :meth:`close` are delivered again.

    Raises MQClientError for wrong use, and RemotingError or MQBrokerError if brokers do not answer or refuse.

    Thread rule: the event loop's thread.
    """

    def __init__(
        self,
        config: LitePullConsumerConfig | str,
        clock: Clock | None = None,
        **settings: Unpack[LitePullConsumerSettings],
    ) -> None:
        self._config = config = LitePullConsumerConfig.of(config, settings)
        self._clock = clock or SystemClock()
        dispatcher = RequestDispatcher()
        self._member = GroupMember(config, "CONSUME_ACTIVELY", self._clock, dispatcher)
        super().__init__(self._member.client_id)
        self._offsets = offset_store(self._member)
        self._statistics = ConsumerStatistics()
        self._tracing = tracing_of(config, config.trace, self._member.group, "CONSUME", self._clock)
        self._hooks = ConsumeHooks(with_trace(config.hooks, self._tracing), self._member.group, self._clock)
        self._assignment: dict[str, frozenset[MessageQueue]] | None = None
        self._expressions: dict[str, SubscriptionData] = {}
        self._fetched = FetchedMessages()
        self._watch = QueueWatch(self.fetch_message_queues, config.topic_metadata_check_interval_ms)
        self._queues_changed: MessageQueueListener | None = None
        self._assigned = AssignedQueues(
            FetchedQueue, self._member, self._offsets, None, self._puller().run, self._share_changed
        )
        self._rebalancing = Rebalancing(
            self._member, self._topics, self._divide, self._assigned.take_over, self._assigned.keep_topics
        )
        self._tasks = BackgroundTasks()
        self._closing = OnceTask(self._close)
        self._running = False
        self._commit_due_ms = self._started_ms = 0
        answers = ClientAnswers(
            self._member.group, self._rebalancing.wanted.set, self._running_info, self._offsets.table
        )
        BrokerRequests(answers).register(dispatcher)

    # Start and close

    async def _start(self) -> None:
        self._member.client.loop.check()
        if self._running or self._closing.is_begun:
            raise AlreadyStartedError("The PullConsumer service state not OK, maybe started once")
        self._started_ms, self._running = self._clock.now_ms(), True
        try:
            await self._refresh()
        except BaseException:
            self._running = False
            await self._assigned.keep_topics(())  # queues that were taken over are being pulled already
            raise
        for service in (self._rebalancing.run, self._rebalancing.follow_routes, self._persist_regularly):
            self._tasks.start(service())
        self._member.heartbeats.start()
        if self._tracing is not None:
            self._tracing.dispatcher.start()
        for topic in self._watch.topics:
            self._tasks.start(self._watch.follow(topic))

    async def close(self) -> None:
        """Persist the committed offsets, and leave the group. A second call has no effect.

        If the call is cancelled, the close continues in a task of its own.
        """
        self._member.client.loop.check()
        await self._closing.run()

    async def _close(self) -> None:
        self._running = False
        await self._tasks.close()
        await self._assigned.close()
        await self._offsets.persist_at_last(list(self._assigned.table))
        if self._tracing is not None:
            await self._tracing.dispatcher.close()
        await self._member.close()

    # Subscriptions

    async def subscribe(self, topic: str, expression: str = "*", expression_type: str = TAG) -> None:
        """Subscribe to a topic with the group.

        ``expression`` is ``*``, ``TagA || TagB``, or with ``SQL92`` a condition.
        """
        if self._assignment is not None:
            raise MQClientError("Subscribe and assign are mutually exclusive.")
        self._check_open()
        self._member.subscribe(topic, expression, expression_type)
        if self._running:
            await self._refresh()

    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic."""
        self._member.unsubscribe(topic)
        await self._assigned.keep_topics(self._topics())

    async def assign(self, queues: Collection[MessageQueue]) -> None:
        """Fetch exactly these queues, whatever other members of the group have."""
        if not queues:
            raise MQClientError("Message queues can not be null or empty.")
        if self._member.subscriptions:
            raise MQClientError("Subscribe and assign are mutually exclusive.")
        self._check_open()
        by_topic: dict[str, set[MessageQueue]] = {}
        for queue in map(self._member.full, queues):
            by_topic.setdefault(queue.topic, set()).add(queue)
        self._assignment = {topic: frozenset(several) for topic, several in by_topic.items()}
        if self._running:
            await self._refresh()

    def set_sub_expression_for_assign(self, topic: str, expression: str, expression_type: str = TAG) -> None:
        """Set the filter of the assigned queues of a topic: tags, or with ``SQL92`` a condition."""
        full = wrap_namespace(self._config.namespace, topic)
        self._expressions[full] = subscription(full, expression, expression_type, 0)

    def assignment(self) -> list[MessageQueue]:
        """The queues that are being fetched."""
        return sorted(self._member.shown(queue) for queue, state in self._assigned.table.items() if not state.dropped)

    @checked_by(listener=callback("topic", "queues", "mine"))
    def register_message_queue_listener(self, listener: MessageQueueListener) -> None:
        """Register a callback for changes of the assignment. The callback must not block."""
        self._queues_changed = listener

    @checked_by(listener=callback("topic", "queues"))
    def register_topic_message_queue_change_listener(
        self, topic: str, listener: TopicMessageQueueChangeListener
    ) -> None:
        """Register a callback for changes of a topic's queues. It is called once at the start, and must not block.

        The queues are checked every ``topic_metadata_check_interval_ms``.
        """
        self._watch.register(topic, listener)
        if self._running:
            self._tasks.start(self._watch.follow(topic))

    async def fetch_message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic. Raises MQClientError if the topic does not exist."""
        return await self._member.fetch_queues(topic)

    # Messages

    async def poll(self, timeout_ms: int | None = None) -> list[ReceivedMessage]:
        """The messages of one pull. Waits at most ``timeout_ms``, by default ``poll_timeout_ms``."""
        return self.polled(await self.poll_pull(timeout_ms))

    def polled(self, pulls: list[FetchedPull]) -> list[ReceivedMessage]:
        """The messages that a poll returns; the hooks see them. Thread rule: any thread."""
        if not pulls:
            return []
        (pull,) = pulls
        self._hooks.polled(pull.messages, self._member.shown(pull.queue.queue))
        return pull.messages

    async def poll_pull(self, timeout_ms: int | None = None) -> list[FetchedPull]:
        """As :meth:`poll`, for a caller that may undo it with :meth:`give_back`. Returns at most one pull."""
        self._member.client.loop.check()
        self._check_running()
        now_ms = monotonic_ms(self._clock)
        if self._config.auto_commit and now_ms >= self._commit_due_ms:
            self._commit_due_ms = now_ms + self._config.auto_commit_interval_ms
            self._commit_positions(self._held())
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._config.poll_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        pulls: list[FetchedPull] = []
        while not self._fetched.take(pulls, monotonic_ms(self._clock)):
            left_s = deadline - loop.time()
            if left_s <= 0:
                break
            await self._fetched.wait(left_s)
        return pulls

    def take_ready(self, pulls: list[FetchedPull]) -> bool:
        """Move a pull that is there to ``pulls``, unless offsets must be committed first. Thread rule: any thread."""
        self._check_running()
        now_ms = monotonic_ms(self._clock)
        return (not self._config.auto_commit or now_ms < self._commit_due_ms) and self._fetched.take(pulls, now_ms)

    def give_back(self, pulls: list[FetchedPull]) -> None:
        """Undo a poll whose caller was interrupted: the next poll returns the pull. Thread rule: any thread."""
        self._fetched.give_back(pulls)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop fetching and returning messages of these queues."""
        for queue in self._among(queues):
            queue.paused = True

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Undo :meth:`pause` for these queues."""
        for queue in self._among(queues):
            queue.paused = False
            self._fetched.add(queue)

    # Offsets

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue a queue at ``offset``. Raises MQClientError if the queue has no such offset."""
        before = self._needed(queue)
        low, high = await self._min_offset(before.queue), await self._max_offset(before.queue)
        if not low <= offset <= high:
            raise MQClientError(f"Seek offset illegal, seek offset = {offset}, min offset = {low}, max offset = {high}")
        if not self._assigned.seek(before.queue, offset):
            raise MQClientError(f"{queue} was given up while its broker was asked, may be rebalancing")

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue a queue at its first message."""
        await self.seek(queue, await self._min_offset(self._needed(queue).queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue a queue after its last message."""
        await self.seek(queue, await self._max_offset(self._needed(queue).queue))

    async def commit(self, queues: Iterable[MessageQueue] | None = None, *, persist: bool = True) -> None:
        """Commit the messages that polls have returned, of these queues or of all.

        With ``persist`` the brokers have the offsets when the call returns. It raises RemotingError or MQBrokerError if
        a broker does not; that offset is sent again every ``persist_consumer_offset_interval_ms``.
        """
        self._check_running()
        held = self._held() if queues is None else self._among(queues)
        self._commit_positions(held)
        if persist:
            await self._offsets.persist([queue.queue for queue in held], wait=True)

    async def commit_offsets(self, offsets: Mapping[MessageQueue, int], *, persist: bool = True) -> None:
        """Commit these offsets: everything before them is consumed. ``persist`` works as in :meth:`commit`."""
        held = {self._needed(queue).queue: offset for queue, offset in offsets.items()}
        for queue, offset in held.items():
            self._offsets.update(queue, offset)
        if persist:
            await self._offsets.persist(held, wait=True)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of a queue; None if the group has never committed one."""
        full = self._member.full(queue)
        known = self._offsets.read(full)
        return known if known is not None else await self._offsets.read_from_store(full)

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after ``timestamp_ms``."""
        full = self._member.full(queue)
        return await self._member.ask(full, calls.search_offset(full, timestamp_ms))

    # Implementation

    def _puller(self) -> Puller[FetchedQueue]:
        config = self._config
        rules = GroupPull(
            self._member.group,
            config.pull_batch_size,
            _ANY_SIZE,
            config.broker_suspend_max_time_ms,
            lite=True,
            post_subscription=True,
        )
        owner = PullOwner(
            self._may_pull, self._deliver, self._wanted, lambda queue: None, self._matched_none, self._moved
        )
        return Puller(
            self._member,
            rules,
            owner,
            interval_ms=0,
            failure_ms=config.pull_time_delay_ms_when_exception,
            timeout_ms=config.consumer_timeout_ms_when_suspend,
        )

    def _check_open(self) -> None:
        if self._closing.is_begun:
            raise MQClientError("the consumer is closed")

    def _check_running(self) -> None:
        if not self._running:
            raise MQClientError("The consumer not running, please start it first.")

    def _topics(self) -> set[str]:
        return set(self._assignment) if self._assignment is not None else self._member.topics()

    async def _divide(self, topic: str) -> Division | None:
        if self._assignment is None:
            return await self._member.divide(topic)
        mine = self._assignment.get(topic, frozenset())
        return Division(topic, tuple(sorted(mine)), mine)

    async def _refresh(self) -> None:
        for topic in self._topics():
            self._rebalancing.note_route(topic, is_there=await self._member.find_route(topic) is not None)
        await self._member.check_filters()
        await self._member.heartbeats.beat()
        await self._rebalancing.once()

    async def _share_changed(self, division: Division) -> None:
        self._member.renew(division.topic)
        await self._member.heartbeats.beat()
        if self._queues_changed is not None:
            shown = self._member.shown
            topic = without_namespace(self._config.namespace, division.topic)
            self._queues_changed(topic, tuple(map(shown, division.all)), frozenset(map(shown, division.mine)))

    def _held(self) -> list[FetchedQueue]:
        return [queue for queue in self._assigned.table.values() if not queue.dropped]

    def _among(self, queues: Iterable[MessageQueue]) -> list[FetchedQueue]:
        queues_found = [self._assigned.table.get(self._member.full(queue)) for queue in queues]
        return [state for state in queues_found if state is not None and not state.dropped]

    def _needed(self, queue: MessageQueue) -> FetchedQueue:
        self._check_running()
        queues = self._among([queue])
        if not queues:
            more = "" if self._assignment is not None else ", may be rebalancing"
            raise MQClientError(f"The message queue is not in assigned list{more}, message queue: {queue}")
        return queues[0]

    async def _min_offset(self, queue: MessageQueue) -> int:
        return await self._member.ask(queue, calls.min_offset(queue))

    async def _max_offset(self, queue: MessageQueue) -> int:
        return await self._member.ask(queue, calls.max_offset(queue))

    def _commit_positions(self, queues: Iterable[FetchedQueue]) -> None:
        for queue in queues:
            if queue.position is not None:
                self._offsets.update(queue.queue, queue.position)

    async def _persist_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._config.persist_consumer_offset_interval_ms / 1000)
            await self._offsets.persist([queue.queue for queue in self._held()])

    # Callbacks of the Puller

    def _may_pull(self, queue: FetchedQueue) -> bool:
        config = self._config
        limits = FlowLimits(
            config.pull_threshold_for_queue, config.pull_threshold_size_for_queue, config.consume_max_span
        )
        fetched = sum(queue.count for queue in self._assigned.table.values() if not queue.paused)
        return not queue.paused and not queue.is_full(limits) and fetched <= config.pull_threshold_for_all

    def _wanted(self, topic: str) -> SubscriptionData | None:
        if self._assignment is None:
            return self._member.subscriptions.get(topic)
        return self._expressions.get(topic) or subscription(topic, "*", TAG, 0)

    def _deliver(self, queue: FetchedQueue, messages: list[ReceivedMessage], took_s: float) -> None:
        self._statistics.pulled(queue.queue.topic, len(messages), took_s * 1000, monotonic_ms(self._clock))
        if namespace := self._config.namespace:
            for message in messages:
                message.topic = without_namespace(namespace, message.topic)
        self._fetched.add(queue)

    def _matched_none(self, queue: FetchedQueue, offset: int) -> None:
        if queue.count == 0:
            queue.position = offset

    async def _moved(self, queue: FetchedQueue, offset: int) -> bool:
        return True

    def _running_info(self) -> ConsumerRunningInfo:
        return running_info(self._member, self._held(), self._offsets, self._statistics, self._started_ms, {})
