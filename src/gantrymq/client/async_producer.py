"""The producer over asyncio.

async with AsyncProducer("127.0.0.1:9876", producer_group="orders") as producer:
    result = await producer.send(Message("TopicTest", b"hello", tags="TagA"))

Source: DefaultMQProducer, DefaultMQProducerImpl.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from gantrymq.client.async_client import AsyncClient
from gantrymq.client.calls import Call
from gantrymq.client.fault import MQFaultStrategy
from gantrymq.client.heartbeats import Heartbeats
from gantrymq.client.namespace import wrap_namespace
from gantrymq.client.outgoing import OutgoingMessage, prepare, prepare_batch
from gantrymq.client.producer_settings import ProducerConfig
from gantrymq.client.publish_routes import PublishRoutes
from gantrymq.client.routes import TopicRoute
from gantrymq.client.send_result import SendResult, SendStatus, read_send_result
from gantrymq.client.unique_id import UniqueIds
from gantrymq.clock import Clock, SystemClock
from gantrymq.errors import MQBrokerError, MQClientError, RemotingError, RemotingTooMuchRequestError
from gantrymq.model.message import Message
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import HeartbeatData, ProducerData
from gantrymq.remoting.codes import ResponseCode

# Chooses among the queues of a message's topic (MessageQueueSelector).
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


class AsyncProducer:
    """Sends messages. Start it with ``async with``, or :meth:`start` and :meth:`close`.

    ``config`` is where the name servers are, with fields of ProducerConfig as ``settings``, or such an object.

    A send tries other brokers where one does not answer or refuses for a reason that may be its own, and raises
    MQClientError when all attempts failed, MQBrokerError when a broker refused the message itself,
    RemotingTooMuchRequestError when the time was over before an attempt. A message whose send failed may have been
    stored all the same: delivery is at least once. Thread rule: the event loop's thread.
    """

    def __init__(self, config: ProducerConfig | str, clock: Clock | None = None, **settings: Any) -> None:
        config = ProducerConfig.of(config, settings)
        # Sends, heart-beats and the goodbye name the same group.
        self._config = replace(config, producer_group=wrap_namespace(config.namespace, config.producer_group))
        self._clock = clock or SystemClock()
        self._client = AsyncClient(config)
        self._ids = UniqueIds(self._clock)
        self._fault = MQFaultStrategy(latency_fault_enable=config.send_latency_fault_enable)
        self._routes = PublishRoutes(self._client, config, self._clock)
        self._heartbeats = Heartbeats(self._client, self._heartbeat, self._routes.masters)

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def start(self) -> None:
        """Begin to send heart-beats to the brokers that messages go to."""
        self._heartbeats.start()

    async def close(self) -> None:
        """Tell the brokers goodbye and close all connections."""
        await self._routes.close()
        await self._heartbeats.close(producer_group=self._config.producer_group)
        await self._client.close()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues a message of this topic may go to."""
        return (await self._routes.find(self._full(topic))).publish

    async def send(
        self, message: Message, queue: MessageQueue | QueueSelector | None = None, *, timeout_ms: int | None = None
    ) -> SendResult:
        """Send one message; with a queue, or a function that chooses one, there is one attempt."""
        return await self._send(prepare(message, self._ids.new(), self._config), queue, timeout_ms)

    async def send_batch(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | QueueSelector | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send messages of one topic as one: they are stored next to each other, all or none."""
        ids = [self._ids.new() for _ in range(len(messages) + 1)]
        return await self._send(prepare_batch(messages, ids, self._config), queue, timeout_ms)

    async def send_oneway(self, message: Message, queue: MessageQueue | QueueSelector | None = None) -> None:
        """Send one message and learn nothing of what became of it; raises only where nobody is there or reads."""
        outgoing = prepare(message, self._ids.new(), self._config)
        route = await self._routes.find(outgoing.topic, self._config.send_msg_timeout_ms)
        chosen = _chosen(route, queue) or self._fault.select(route.publish, None, self._clock.now_ms())
        request = outgoing.request(self._config, chosen, self._clock.now_ms())
        try:
            await self._client.tell(_master(route, chosen), request)
        except (RemotingError, MQClientError):
            self._routes.forget(outgoing.topic)
            raise

    async def _send(
        self, outgoing: OutgoingMessage, queue: MessageQueue | QueueSelector | None, timeout_ms: int | None
    ) -> SendResult:
        wait_ms = self._config.send_msg_timeout_ms if timeout_ms is None else timeout_ms
        began_ms = self._now_ms()
        route = await self._routes.find(outgoing.topic, wait_ms)
        chosen = _chosen(route, queue)
        if chosen is not None:
            return await self._attempt(outgoing, route, chosen, max(wait_ms - (self._now_ms() - began_ms), 1))
        return await self._send_anywhere(outgoing, route, wait_ms, began_ms)

    async def _send_anywhere(
        self, outgoing: OutgoingMessage, route: TopicRoute, wait_ms: int, began_ms: int
    ) -> SendResult:
        tried: list[str] = []
        result: SendResult | None = None
        error: Exception | None = None
        for _ in range(1 + self._config.retry_times_when_send_failed):
            left_ms = wait_ms - (self._now_ms() - began_ms)
            if left_ms <= 0:
                break
            chosen = self._fault.select(route.publish, tried[-1] if tried else None, self._clock.now_ms())
            tried.append(chosen.broker_name)
            try:
                result = await self._attempt(outgoing, route, chosen, left_ms)
            except MQBrokerError as refused:
                if refused.response_code not in RETRY_RESPONSE_CODES:
                    raise
                error = refused
                continue
            except (RemotingError, MQClientError) as failed:
                error = failed
                continue
            if result.status is SendStatus.SEND_OK or not self._config.retry_another_broker_when_not_store_ok:
                return result
        if result is not None:
            return result
        if error is None:
            raise RemotingTooMuchRequestError("sendDefaultImpl call timeout")
        cost_ms = self._now_ms() - began_ms
        raise MQClientError(
            f"Send [{len(tried)}] times, still failed, cost [{cost_ms}]ms, Topic: {outgoing.topic}, "
            f"BrokersSent: [{', '.join(tried)}]: {error}"
        ) from error

    async def _attempt(
        self, outgoing: OutgoingMessage, route: TopicRoute, queue: MessageQueue, timeout_ms: int
    ) -> SendResult:
        began_ms, failed = self._now_ms(), True
        call = Call(
            lambda: outgoing.request(self._config, queue, self._clock.now_ms()),
            lambda response, address: read_send_result(response, address, queue, outgoing.ids),
        )
        try:
            result = await self._client.call(_master(route, queue), call, timeout_ms)
            failed = False
            return result
        except (RemotingError, MQClientError):
            self._routes.forget(outgoing.topic)  # the brokers may have moved
            raise
        finally:
            latency_ms = self._now_ms() - began_ms
            self._fault.update(queue.broker_name, latency_ms, self._clock.now_ms(), isolate=failed)

    def _heartbeat(self, client_id: str) -> HeartbeatData:
        return HeartbeatData(
            client_id=client_id, producer_data_set=[ProducerData(group_name=self._config.producer_group)]
        )

    def _full(self, topic: str) -> str:
        return wrap_namespace(self._config.namespace, topic)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)


def _chosen(route: TopicRoute, queue: MessageQueue | QueueSelector | None) -> MessageQueue | None:
    if queue is None or isinstance(queue, MessageQueue):
        return queue
    return queue(route.publish)


def _master(route: TopicRoute, queue: MessageQueue) -> str:
    address = route.masters.get(queue.broker_name)
    if address is None:
        raise MQClientError(f"The broker[{queue.broker_name}] not exist")
    return address
