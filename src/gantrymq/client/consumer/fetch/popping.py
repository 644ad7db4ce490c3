"""Pops messages for a group, and settles them.

Two kinds of messages never reach a caller. A message whose tag only has the same hash as a subscribed tag is
acknowledged. A message that was delivered too often is moved to the dead letters; RocketMQ's remoting client
acknowledges it instead, and it is lost.

Source: DefaultMQPushConsumerImpl.processPopResult, PopMessageResultFilterImpl of the proxy.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import TypeVar

from gantrymq.client.consumer.group.group_client import REQUEST_TIMEOUT_MS, GroupClient
from gantrymq.client.namespace import without_namespace, wrap_namespace
from gantrymq.client.requests import pop_calls
from gantrymq.client.requests.calls import Call
from gantrymq.client.requests.group_calls import send_message_back
from gantrymq.client.requests.pop_calls import GroupPop, PopTarget
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.client.runtime.background import BackgroundTasks
from gantrymq.errors import GantrymqError, MQBrokerError, MQClientError, NoRouteError, RemotingConnectError
from gantrymq.logs import get_logger
from gantrymq.model.receipt_handle import ReceiptHandle, parse_receipt_handle

HELD_MS = 10_000  # the broker holds a notification this long; a lost one delays a message by at most this time
_FAILURE_S = 1.0
_TO_DEAD_LETTERS = -1  # a delay level

T = TypeVar("T")

log = get_logger("gantrymq.client.consumer")


class Popper:
    """Pops and settles messages. Messages have their topics without the namespace.

    A message that was delivered more than ``max_reconsume_times`` times again goes to the dead letters; -1 means never.
    ``tasks`` runs work in the background. Thread rule: the event loop's thread.
    """

    def __init__(self, client: GroupClient, rules: GroupPop, max_reconsume_times: int, tasks: BackgroundTasks) -> None:
        self._client, self._rules, self._tasks = client, rules, tasks
        self._max_reconsume_times = max_reconsume_times
        self._attempts: dict[PopTarget, str] = {}

    async def pop(self, target: PopTarget, max_messages: int, invisible_ms: int) -> list[ReceivedMessage]:
        """The next messages of a target, without waiting."""
        wanted = self._client.subscriptions.get(target.topic)
        if wanted is None:
            return []
        attempt = self._attempts.pop(target, None) or secrets.token_hex(16)
        call = pop_calls.pop(self._rules, target, wanted, max_messages, invisible_ms, attempt)
        try:
            popped = await self._ask(target, call)
        except BaseException:
            self._attempts[target] = attempt  # if the answer is lost, the next pop with this id gets the messages
            raise
        if popped is None:
            return []
        messages = []
        for message in pop_calls.popped_messages(popped, self._client.config):
            message.topic = without_namespace(self._client.config.namespace, message.topic)
            if wanted.tags_set and message.tags not in wanted.tags_set:  # the broker compares only hashes of tags
                self._tasks.start(self.finish(message, is_dead=False))
            elif 0 <= self._max_reconsume_times < message.reconsume_times:
                self._tasks.start(self.finish(message, is_dead=True))
            else:
                messages.append(message)
        return messages

    async def has_messages(self, target: PopTarget) -> bool:
        """Wait at the broker for messages of a target. After an error, or without a subscription, wait here."""
        wanted = self._client.subscriptions.get(target.topic)
        if wanted is None:
            await asyncio.sleep(_FAILURE_S)
            return False
        attempt = self._attempts.get(target) or secrets.token_hex(16)
        call = pop_calls.notification(self._rules, target, wanted, HELD_MS, attempt)
        try:
            return await self._ask(target, call, HELD_MS + self._client.config.request_timeout_ms)
        except GantrymqError as error:
            log.info("a broker was not waited for", broker=target.broker_name, reason=str(error))
            await asyncio.sleep(_FAILURE_S)
            return False

    async def ack(self, message: ReceivedMessage) -> None:
        """Acknowledge a message by its receipt handle."""
        handle, topic = _handle_of(message), self._full(message)
        await self._ask(PopTarget(topic, handle.broker_name), pop_calls.ack(self._rules.group, topic, handle))

    async def change_invisible_time(self, message: ReceivedMessage, invisible_ms: int) -> None:
        """Hide a message for ``invisible_ms`` from now on, and give it its new receipt handle."""
        handle, topic = _handle_of(message), self._full(message)
        call = pop_calls.change_invisible_time(self._rules.group, topic, handle, invisible_ms)
        renewed = await self._ask(PopTarget(topic, handle.broker_name), call)
        message.receipt_handle = str(renewed)

    async def finish(self, message: ReceivedMessage, *, is_dead: bool) -> None:
        """Acknowledge a message that never reaches a caller. If ``is_dead``, first move it to the dead letters.

        After an error it is delivered again.
        """
        topic = self._full(message)
        try:
            if is_dead:
                back = send_message_back(self._rules.group, message, topic, _TO_DEAD_LETTERS, 0)
                await self._ask(PopTarget(topic, message.broker_name), back)
            await self.ack(message)
        except GantrymqError as error:
            log.warning("a message was not finished", msg_id=message.msg_id, is_dead=is_dead, reason=str(error))

    def _full(self, message: ReceivedMessage) -> str:
        return wrap_namespace(self._client.config.namespace, message.topic)

    async def _ask(self, target: PopTarget, call: Call[T], timeout_ms: int = REQUEST_TIMEOUT_MS) -> T:
        """Send a request to a target's master."""
        route = self._client.route(target.topic)
        address = None if route is None else route.masters.get(target.broker_name)
        if address is None:
            route = await self._client.find_route(target.topic)
            address = None if route is None else route.masters.get(target.broker_name)
        if address is None:
            raise NoRouteError(f"Broker[{target.broker_name}] master node does not exist")
        try:
            return await self._client.client.call(address, call, timeout_ms)
        except (MQBrokerError, RemotingConnectError) as error:
            self._client.heartbeats.renew(address)
            if isinstance(error, RemotingConnectError):
                with suppress(GantrymqError):
                    await self._client.find_route(target.topic)
            raise


def _handle_of(message: ReceivedMessage) -> ReceiptHandle:
    given: object = message
    if not isinstance(given, ReceivedMessage):
        raise MQClientError(f"message={given!r:.80} is not allowed: a message that a simple consumer received")
    handle: object = given.receipt_handle
    if not handle or not isinstance(handle, str):
        raise MQClientError("the message has no receipt handle: no simple consumer received it")
    return parse_receipt_handle(handle)
