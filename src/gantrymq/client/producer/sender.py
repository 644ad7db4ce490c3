"""Sends a prepared message: which queue it goes to, how often it is tried, and what becomes of an error.

Source: DefaultMQProducerImpl.sendDefaultImpl, sendSelectImpl and sendKernelImpl.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gantrymq.client.arguments import is_queue
from gantrymq.client.connection.async_client import AsyncClient
from gantrymq.client.connection.heartbeats import Heartbeats
from gantrymq.client.namespace import wrap_namespace
from gantrymq.client.producer.fault import MQFaultStrategy
from gantrymq.client.producer.outgoing import OutgoingMessage
from gantrymq.client.producer.publish_routes import PublishRoutes
from gantrymq.client.producer.request_reply import reply_topic
from gantrymq.client.producer.settings import ProducerConfig
from gantrymq.client.requests.calls import Call
from gantrymq.client.requests.routes import TopicRoute
from gantrymq.client.requests.send_result import SendResult, SendStatus, read_send_result
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.errors import (
    MQBrokerError,
    MQClientError,
    RemotingError,
    RemotingTooMuchRequestError,
    SendFailedError,
)
from gantrymq.model.java import LONG_MAX
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.codes import ResponseCode

# Chooses one of the queues of a message's topic (MessageQueueSelector).
QueueSelector = Callable[[Sequence[MessageQueue]], MessageQueue]

RETRY_RESPONSE_CODES = frozenset(
    (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    )
)


class MessageSender:
    """The attempts of a producer's sends. It does not reference the producer. Thread rule: the event loop's thread."""

    def __init__(
        self, client: AsyncClient, routes: PublishRoutes, heartbeats: Heartbeats, config: ProducerConfig, clock: Clock
    ) -> None:
        self._client, self._routes, self._heartbeats = client, routes, heartbeats
        self._config, self._clock = config, clock
        self._fault = MQFaultStrategy(latency_fault_enable=config.send_latency_fault_enable)

    async def send(
        self, outgoing: OutgoingMessage, queue: MessageQueue | QueueSelector | None, timeout_ms: int | None
    ) -> SendResult:
        """Send a message: once to the given or chosen queue, else with retries at other brokers."""
        wait_ms = self._config.send_msg_timeout_ms if timeout_ms is None else timeout_ms
        began_ms = monotonic_ms(self._clock)
        route = await self._routes.find(outgoing.topic, wait_ms)
        chosen = _of_topic(_chosen(route, queue), outgoing.topic, self._config.namespace)
        if chosen is not None:
            left_ms = wait_ms - (monotonic_ms(self._clock) - began_ms)
            return await self._attempt(outgoing, route, chosen, max(left_ms, 1))
        return await self._send_anywhere(outgoing, route, wait_ms, began_ms)

    async def choose(self, outgoing: OutgoingMessage, queue: MessageQueue | QueueSelector) -> MessageQueue:
        """The given queue, or the one that the selector chooses. Raises MQClientError if it is not of the topic."""
        route = await self._routes.find(outgoing.topic, self._config.send_msg_timeout_ms)
        chosen = _of_topic(_chosen(route, queue), outgoing.topic, self._config.namespace)
        assert chosen is not None, "a queue or a selector is given"
        return chosen

    async def send_oneway(self, outgoing: OutgoingMessage, queue: MessageQueue | QueueSelector | None) -> None:
        """Send a message one-way, to the given or chosen queue."""
        route = await self._routes.find(outgoing.topic, self._config.send_msg_timeout_ms)
        given = _of_topic(_chosen(route, queue), outgoing.topic, self._config.namespace)
        chosen = given or self._fault.select(route.publish, None, monotonic_ms(self._clock))
        request = outgoing.request(self._config, chosen, self._clock.now_ms())
        try:
            address = master_of(route, chosen.broker_name)
            outgoing.note(chosen, address)
            await self._client.invoke_oneway(address, request)
        except (RemotingError, MQClientError):
            self._routes.forget(outgoing.topic)
            raise

    async def _send_anywhere(
        self, outgoing: OutgoingMessage, route: TopicRoute, wait_ms: int, began_ms: int
    ) -> SendResult:
        tried: list[str] = []
        result: SendResult | None = None
        error: Exception | None = None
        refusals: list[MQBrokerError] = []
        for _ in range(1 + self._config.retry_times_when_send_failed):
            left_ms = wait_ms - (monotonic_ms(self._clock) - began_ms)
            if left_ms <= 0:
                break
            chosen = self._fault.select(route.publish, tried[-1] if tried else None, monotonic_ms(self._clock))
            tried.append(chosen.broker_name)
            try:
                result = await self._attempt(outgoing, route, chosen, left_ms)
            except MQBrokerError as refused:
                if refused.response_code not in RETRY_RESPONSE_CODES:
                    raise
                error = refused
                refusals.append(refused)
                continue
            except (RemotingError, MQClientError) as failed:
                error = failed
                continue
            if result.status is SendStatus.SEND_OK or not self._config.retry_another_broker_when_not_store_ok:
                return result
        if result is not None:
            return result
        if error is None:
            raise RemotingTooMuchRequestError(
                f"sendDefaultImpl call timeout: {wait_ms} ms were over before an attempt, while the route was asked for"
            )
        cost_ms = monotonic_ms(self._clock) - began_ms
        raise SendFailedError(
            f"Send [{len(tried)}] times, still failed, cost [{cost_ms}]ms, Topic: {outgoing.topic}, "
            f"BrokersSent: [{', '.join(tried)}]: {error}",
            refusals[-1].response_code if refusals else None,
            is_refused=len(refusals) == len(tried),
        ) from error

    async def _attempt(
        self, outgoing: OutgoingMessage, route: TopicRoute, queue: MessageQueue, timeout_ms: int
    ) -> SendResult:
        began_ms, failed = monotonic_ms(self._clock), True
        call = Call(
            lambda: outgoing.request(self._config, queue, self._clock.now_ms()),
            lambda response, address: read_send_result(response, address, queue, outgoing.ids),
        )
        try:
            address = master_of(route, queue.broker_name)
            outgoing.note(queue, address)
            if outgoing.correlation_id is not None:
                await self._heartbeats.reach(address)  # by its connection the broker finds the requester
                self._routes.follow(map(reply_topic, route.clusters))  # Java's client replies to any broker of these
            result = await self._client.call(address, call, timeout_ms)
            failed = False
            return result
        except (RemotingError, MQClientError):
            self._routes.forget(outgoing.topic)  # the brokers may have moved
            raise
        finally:
            latency_ms = monotonic_ms(self._clock) - began_ms
            self._fault.update(queue.broker_name, latency_ms, monotonic_ms(self._clock), isolate=failed)


def check_way(queue: object, timeout_ms: object) -> None:
    """Validate the ``queue`` and ``timeout_ms`` of a send. Raises MQClientError."""
    if queue is not None and not isinstance(queue, MessageQueue) and (not callable(queue) or isinstance(queue, type)):
        hint = "; the body belongs into the message: send(Message(topic, body))" if isinstance(queue, bytes) else ""
        raise MQClientError(f"queue={queue!r:.200} is neither a MessageQueue nor a function that chooses one{hint}")
    if timeout_ms is not None:
        check_timeout(timeout_ms)


def check_timeout(timeout_ms: object) -> None:
    """Validate a time limit. Raises MQClientError."""
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int) or not 1 <= timeout_ms <= LONG_MAX:
        raise MQClientError(f"timeout_ms={timeout_ms!r} is not allowed: a whole number from 1")


def _chosen(route: TopicRoute, queue: MessageQueue | QueueSelector | None) -> MessageQueue | None:
    """The queue that is given or that the selector returns.

    Raises MQClientError if the selector returns another type.
    """
    if queue is None:
        return None
    chosen: object = queue if isinstance(queue, MessageQueue) else queue(route.publish)
    if not isinstance(chosen, MessageQueue):
        raise MQClientError(f"the function that chooses a queue returned {chosen!r:.200}, which is no MessageQueue")
    return chosen


def _of_topic(queue: MessageQueue | None, full_topic: str, namespace: str) -> MessageQueue | None:
    """The same queue. Raises MQClientError if its topic is not the message's, or if its number is invalid."""
    if queue is not None and full_topic not in (queue.topic, wrap_namespace(namespace, queue.topic)):
        raise MQClientError(f"the queue {queue} is of another topic than the message, {full_topic}")
    if queue is not None and not is_queue(queue):
        raise MQClientError(f"the queue {queue} has no number from 0")
    return queue


def master_of(route: TopicRoute, broker_name: str) -> str:
    """The address of a broker's master; raises MQClientError."""
    address = route.masters.get(broker_name)
    if address is None:
        raise MQClientError(f"The broker[{broker_name}] not exist")
    return address
