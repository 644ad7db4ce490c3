"""The simple consumer over asyncio: each message is received, processed and acknowledged by itself.

    async with AsyncSimpleConsumer("127.0.0.1:9876", consumer_group="orders") as consumer:
        await consumer.subscribe("TopicTest")
        async for message in consumer:
            ...
            await consumer.ack(message)

It consumes with POP: the broker hides a received message from the group for its invisible time. A message that is not
acknowledged by then is delivered again, to any member. No queue belongs to a member, so a slow one blocks no other.

Source: SimpleConsumerImpl of RocketMQ's gRPC client, DefaultMQPushConsumerImpl.popMessage, PopMessageResultFilterImpl.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Unpack

from gantrymq.client.arguments import checks_arguments, number
from gantrymq.client.consumer.broker_requests import BrokerRequests, ClientAnswers, running_properties
from gantrymq.client.consumer.fetch.arrivals import Arrivals
from gantrymq.client.consumer.fetch.popping import HELD_MS, Popper
from gantrymq.client.consumer.group.group_client import GroupClient
from gantrymq.client.consumer.lifecycle import AsyncGroupConsumer
from gantrymq.client.consumer.settings import (
    MAX_INVISIBLE_MS,
    ConsumeFromWhere,
    SimpleConsumerConfig,
    SimpleConsumerSettings,
)
from gantrymq.client.hooks import ConsumeHooks
from gantrymq.client.namespace import wrap_namespace
from gantrymq.client.producer.async_producer import tracing_of
from gantrymq.client.requests.pop_calls import INIT_MAX, INIT_MIN, MAX_POPPED, GroupPop, PopTarget
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.client.requests.subscription import TAG
from gantrymq.client.runtime.background import BackgroundTasks, OnceTask
from gantrymq.client.runtime.logged_once import LoggedOnce
from gantrymq.client.trace import with_trace
from gantrymq.clock import Clock, SystemClock
from gantrymq.errors import (
    AlreadyStartedError,
    GantrymqError,
    MQClientError,
    NoRouteError,
    RemotingError,
)
from gantrymq.logs import get_logger
from gantrymq.model.message_queue import MessageQueue
from gantrymq.model.receipt_handle import parse_receipt_handle
from gantrymq.remoting.bodies.client import ConsumerRunningInfo
from gantrymq.remoting.transport.dispatcher import RequestDispatcher

RECEIVED_AT_ONCE = 16
_FAILURE_S = 1.0
_NO_ROUTE_S = 0.1

log = get_logger("gantrymq.client.consumer")


@checks_arguments(max_messages=number(1, MAX_POPPED), invisible_ms=number(1, MAX_INVISIBLE_MS))
class AsyncSimpleConsumer(AsyncGroupConsumer):
    """Receives messages, which the caller acknowledges one by one.

    ``config`` is the list of name servers, with fields of SimpleConsumerConfig as ``settings``, or a
    SimpleConsumerConfig. Several tasks may receive at the same time.

    Raises MQClientError for wrong use, and RemotingError or MQBrokerError if brokers do not answer or refuse.

    Thread rule: the event loop's thread.
    """

    def __init__(
        self,
        config: SimpleConsumerConfig | str,
        clock: Clock | None = None,
        **settings: Unpack[SimpleConsumerSettings],
    ) -> None:
        self._config = config = SimpleConsumerConfig.of(config, settings)
        self._clock = clock or SystemClock()
        dispatcher = RequestDispatcher()
        self._client = GroupClient(config, "CONSUME_ACTIVELY", self._clock, dispatcher)
        super().__init__(self._client.client_id)
        is_first = config.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        rules = GroupPop(self._client.group, INIT_MIN if is_first else INIT_MAX, config.consume_orderly)
        self._tasks = BackgroundTasks()
        self._popper = Popper(self._client, rules, config.max_reconsume_times, self._tasks)
        self._arrivals = Arrivals(self._popper.has_messages)
        self._tracing = tracing_of(config, config.trace, self._client.group, "CONSUME", self._clock)
        self._hooks = ConsumeHooks(with_trace(config.hooks, self._tracing), self._client.group, self._clock)
        self._given_back: deque[tuple[float, ReceivedMessage]] = deque()
        self._popping: set[asyncio.Future[list[ReceivedMessage]]] = set()
        self._next = 0
        self._told = LoggedOnce()
        self._closing = OnceTask(self._close)
        self._running = False
        self._started_ms = 0
        answers = ClientAnswers(self._client.group, lambda: None, self._running_info, dict[MessageQueue, int])
        BrokerRequests(answers).register(dispatcher)

    # Start and close

    def is_closed(self) -> bool:
        """Whether :meth:`close` has been called."""
        return self._closing.is_begun

    async def _start(self) -> None:
        self._client.client.loop.check()
        if self._running or self._closing.is_begun:
            raise AlreadyStartedError("The SimpleConsumer service state not OK, maybe started once")
        self._started_ms, self._running = self._clock.now_ms(), True
        try:
            await self._refresh()
        except BaseException:
            self._running = False
            raise
        self._tasks.start(self._follow_routes())
        self._client.heartbeats.start()
        if self._tracing is not None:
            self._tracing.dispatcher.start()

    async def close(self) -> None:
        """Leave the group. Messages that are not acknowledged are delivered again. A second call has no effect.

        If the call is cancelled, the close continues in a task of its own.
        """
        self._client.client.loop.check()
        await self._closing.run()

    async def _close(self) -> None:
        self._running = False
        await self._arrivals.close()
        await self._tasks.close()
        if self._tracing is not None:
            await self._tracing.dispatcher.close()
        await self._client.close()
        await asyncio.gather(*self._popping, return_exceptions=True)  # the closed connections have ended them

    # Subscriptions

    async def subscribe(self, topic: str, expression: str = "*", expression_type: str = TAG) -> None:
        """Subscribe to a topic with the group.

        ``expression`` is ``*``, ``TagA || TagB``, or with ``SQL92`` a condition.
        """
        self._check_open()
        wanted = self._client.subscribe(topic, expression, expression_type)
        self._arrivals.drop(wanted.topic or "")
        if self._running:
            await self._refresh()

    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic."""
        self._client.unsubscribe(topic)
        self._arrivals.drop(wrap_namespace(self._config.namespace, topic))
        if self._running:
            await self._client.heartbeats.beat()

    # Messages

    async def receive(
        self,
        max_messages: int = RECEIVED_AT_ONCE,
        *,
        invisible_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> list[ReceivedMessage]:
        """Up to ``max_messages`` (at most 32) messages of one topic at one broker; empty if none comes in time.

        The group does not see them for ``invisible_ms`` (by default ``invisible_duration_ms``, at most 12 hours).
        Waits at most ``timeout_ms``, by default ``await_duration_ms``. Calls take turns among the topics and brokers.
        """
        return self.received(await self.receive_batch(max_messages, invisible_ms=invisible_ms, timeout_ms=timeout_ms))

    def received(self, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """The messages that a receive returns; the hooks see them. Thread rule: any thread."""
        if messages:
            first = messages[0]
            self._hooks.polled(messages, MessageQueue(first.topic, first.broker_name, first.queue_id))
        return messages

    async def receive_batch(
        self,
        max_messages: int = RECEIVED_AT_ONCE,
        *,
        invisible_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> list[ReceivedMessage]:
        """As :meth:`receive`, for a caller that may undo it with :meth:`give_back`, or calls :meth:`received`."""
        self._client.client.loop.check()
        self._check_running()
        hidden_ms = self._config.invisible_duration_ms if invisible_ms is None else invisible_ms
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._config.await_duration_ms if timeout_ms is None else timeout_ms) / 1000
        while True:
            messages = self._take_given_back(max_messages) or await self._pop_in_turn(max_messages, hidden_ms)
            left_s = deadline - loop.time()
            if messages or left_s <= 0:
                return messages
            targets = self._targets()
            await self._arrivals.wait(targets, min(left_s, HELD_MS / 1000 if targets else _NO_ROUTE_S))
            self._check_running()

    async def messages(
        self, max_messages: int = RECEIVED_AT_ONCE, *, invisible_ms: int | None = None
    ) -> AsyncIterator[ReceivedMessage]:
        """Receive until the consumer is closed; ``async for message in consumer`` does so too.

        ``max_messages`` are received at once, and their invisible time begins then: use 1 if a message takes long. A
        message whose invisible time is over before the caller gets it is left out, because it is delivered again.
        When the iteration ends early, the next receive gets the messages that are left. Brokers that do not answer are
        retried. Raises MQBrokerError if a broker refuses.
        """
        async with aclosing(self.following(max_messages, invisible_ms=invisible_ms)) as following:
            async for message in following:
                yield self.received([message])[0]

    async def following(
        self, max_messages: int = RECEIVED_AT_ONCE, *, invisible_ms: int | None = None
    ) -> AsyncGenerator[ReceivedMessage, None]:
        """As :meth:`messages`, for a caller that calls :meth:`received` for each message."""
        loop = asyncio.get_running_loop()
        hidden_s = (self._config.invisible_duration_ms if invisible_ms is None else invisible_ms) / 1000
        while not self.is_closed():
            try:
                batch = await self.receive_batch(max_messages, invisible_ms=invisible_ms)
            except (RemotingError, NoRouteError) as error:
                if self.is_closed():
                    return
                if self._told.is_due("receive", str(error)):
                    log.warning("a receive failed", reason=str(error))
                await asyncio.sleep(_FAILURE_S)
                continue
            except MQClientError:
                if self.is_closed():
                    return
                raise
            rest, until = deque(batch), loop.time() + hidden_s
            try:
                while rest and not self.is_closed():
                    message = rest.popleft()
                    if loop.time() < until:
                        yield message
            finally:
                self._given_back.extend((until, message) for message in rest)

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self.messages()

    async def ack(self, message: ReceivedMessage) -> None:
        """Acknowledge a message. It is not delivered again, unless its invisible time was already over."""
        self._check_open()
        await self._popper.ack(message)

    async def change_invisible_duration(self, message: ReceivedMessage, invisible_ms: int) -> None:
        """Hide a message for ``invisible_ms`` from now on. It gets a new receipt handle that replaces the old."""
        self._check_open()
        await self._popper.change_invisible_time(message, invisible_ms)

    def give_back(self, messages: list[ReceivedMessage]) -> None:
        """Keep the messages of an interrupted receive: the next one returns those that are still hidden."""
        until = asyncio.get_running_loop().time()
        for message in messages:
            hidden_s = parse_receipt_handle(message.receipt_handle).invisible_time_ms / 1000
            self._given_back.append((until + hidden_s, message))

    # Implementation

    def _check_open(self) -> None:
        if self.is_closed():
            raise MQClientError("the consumer is closed")

    def _check_running(self) -> None:
        self._check_open()
        if not self._running:
            raise MQClientError("The consumer not running, please start it first.")

    def _targets(self) -> list[PopTarget]:
        """The topics and masters to receive from. Each call begins with the next one."""
        targets = sorted(
            PopTarget(topic, broker_name)
            for topic in self._client.topics()
            if (route := self._client.route(topic)) is not None
            for broker_name in {queue.broker_name for queue in route.subscribe} & route.masters.keys()
        )
        if targets:
            self._next = (self._next + 1) % len(targets)
        return targets[self._next :] + targets[: self._next]

    def _take_given_back(self, max_messages: int) -> list[ReceivedMessage]:
        now, messages = asyncio.get_running_loop().time(), list[ReceivedMessage]()
        while self._given_back and len(messages) < max_messages:
            until, message = self._given_back.popleft()
            if now < until:
                messages.append(message)
        return messages

    async def _pop_in_turn(self, max_messages: int, invisible_ms: int) -> list[ReceivedMessage]:
        """The messages of the first target that has some. Raises the last error if every target failed."""
        targets, failed = self._targets(), list[GantrymqError]()
        for target in targets:
            if self._arrivals.is_quiet(target):
                continue
            try:
                messages = await self._pop(target, max_messages, invisible_ms)
            except GantrymqError as error:
                failed.append(error)
                if self._told.is_due(target, str(error)):
                    log.warning("a pop failed", topic=target.topic, broker=target.broker_name, reason=str(error))
                continue
            self._told.is_over(target)
            if messages:
                self._arrivals.notify_found(target)
                return messages
        if targets and len(failed) == len(targets):
            raise failed[-1]
        return []

    async def _pop(self, target: PopTarget, max_messages: int, invisible_ms: int) -> list[ReceivedMessage]:
        """Pop in a task of its own. If the caller is cancelled, the next receive gets the messages: they are hidden."""
        popping = asyncio.ensure_future(self._popper.pop(target, max_messages, invisible_ms))
        self._popping.add(popping)
        popping.add_done_callback(self._popping.discard)
        try:
            return await asyncio.shield(popping)
        except asyncio.CancelledError:
            popping.add_done_callback(self._keep)
            raise

    def _keep(self, popped: asyncio.Future[list[ReceivedMessage]]) -> None:
        if not popped.cancelled() and popped.exception() is None:
            self.give_back(popped.result())

    def _running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(
            properties=running_properties(self._client, self._started_ms),
            subscription_set=list(self._client.subscriptions.values()),
        )

    async def _refresh(self) -> None:
        for topic in self._client.topics():
            await self._find_route(topic)
        await self._client.check_filters()
        await self._client.heartbeats.beat()

    async def _find_route(self, topic: str) -> None:
        if await self._client.find_route(topic) is not None:
            self._told.is_over(topic)
        elif self._told.is_due(topic):
            log.warning("a topic has no route", topic=topic)

    async def _follow_routes(self) -> None:
        """Refresh all routes regularly, and ask for missing ones every second."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._config.poll_name_server_interval_ms / 1000
        while True:
            await asyncio.sleep(min(_FAILURE_S, self._config.poll_name_server_interval_ms / 1000))
            is_due = loop.time() >= due
            if is_due:
                due = loop.time() + self._config.poll_name_server_interval_ms / 1000
            for topic in self._client.topics():
                if is_due or self._client.route(topic) is None:
                    try:
                        await self._find_route(topic)
                    except GantrymqError as error:
                        if self._told.is_due(topic, str(error)):
                            log.warning("the name servers do not answer", reason=str(error))
