"""Transactional messages over asyncio: a local transaction decides about their delivery.

    async with AsyncTransactionProducer("127.0.0.1:9876", is_paid, producer_group="orders") as producer:
        result = await producer.send_in_transaction(Message("TopicTest", b"paid"), pay)

    async def pay(message, transaction_id):      # the local transaction, once the broker has the message
        ...
        return LocalTransactionState.COMMIT_MESSAGE

    async def is_paid(message):                  # the result of the transaction message.msg_id
        ...

The broker keeps the message as a half message, which no consumer gets, until the transaction commits. If no decision
arrives, for example after a crash of the producer, the broker asks any producer of the group.

Source: TransactionMQProducer, DefaultMQProducerImpl.sendMessageInTransaction and checkTransactionState,
ClientRemotingProcessor.checkTransactionState.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Unpack

from gantrymq.client.connection.async_client import AsyncClient
from gantrymq.client.hooks import SendHooks
from gantrymq.client.namespace import without_namespace
from gantrymq.client.producer.async_producer import AsyncProducer
from gantrymq.client.producer.outgoing import OutgoingMessage, check_message
from gantrymq.client.producer.sender import master_of
from gantrymq.client.producer.settings import ProducerConfig, ProducerSettings
from gantrymq.client.requests.calls import PullResult, PullStatus
from gantrymq.client.requests.received import ReceivedMessage, received
from gantrymq.client.requests.records import decode_records
from gantrymq.client.requests.send_result import LocalTransactionState, SendResult, SendStatus, TransactionSendResult
from gantrymq.client.settings import ClientConfig
from gantrymq.clock import Clock
from gantrymq.errors import GantrymqError, MQClientError
from gantrymq.logs import get_logger
from gantrymq.model.flags import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from gantrymq.model.message import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_KEY,
    Message,
    is_delayed,
    parse_message_id,
)
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.send import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestDispatcher

log = get_logger("gantrymq.client.producer")


# The local transaction. Its arguments are the message and the id of the transaction.
ExecuteTransaction = Callable[[Message, str], LocalTransactionState | Awaitable[LocalTransactionState]]
# Returns the result of the transaction with the id ``message.msg_id``.
CheckTransaction = Callable[[ReceivedMessage], LocalTransactionState | Awaitable[LocalTransactionState]]

_DECISIONS = {
    LocalTransactionState.COMMIT_MESSAGE: TRANSACTION_COMMIT,
    LocalTransactionState.ROLLBACK_MESSAGE: TRANSACTION_ROLLBACK,
    LocalTransactionState.UNKNOW: TRANSACTION_NONE,
}


class AsyncTransactionProducer(AsyncProducer):
    """A producer that also sends in transactions, and answers the brokers' checks with ``check``.

    ``check(message)`` gets the message, whose ``msg_id`` is the transaction's id, and returns a LocalTransactionState;
    anything else, and an exception, counts as UNKNOW. A plain function runs in a thread. All producers of a group must
    be able to answer for each other.

    A broker asks only producers that send it heartbeats. This one sends them to the brokers of ``topics``, of the
    topics that it has sent to, and to those that create topics automatically. See :class:`AsyncProducer` for the rest.
    Thread rule: the event loop's thread.
    """

    def __init__(
        self,
        config: ProducerConfig | str,
        check: CheckTransaction,
        clock: Clock | None = None,
        *,
        topics: Iterable[str] = (),
        **settings: Unpack[ProducerSettings],
    ) -> None:
        check_callable("check", check)
        self._checks = _CheckAnswers(check)
        super().__init__(config, clock, **settings)
        self._checks.use(self._client, self._config, self._hooks)
        self._topics = [self._full(topic) for topic in topics]

    def _register(self, dispatcher: RequestDispatcher) -> None:
        super()._register(dispatcher)
        self._checks.register(dispatcher)

    def start(self) -> None:
        """Begin to send heartbeats, so that brokers can ask about transactions of earlier producers of the group."""
        is_first = self._unless_dropped is None
        super().start()
        if is_first:
            self._routes.follow((self._config.create_topic_key, *self._topics))

    async def send_in_transaction(
        self, message: Message, execute: ExecuteTransaction, *, timeout_ms: int | None = None
    ) -> TransactionSendResult:
        """Send a half message, run the local transaction, and commit or roll back by its result.

        ``execute(message, transaction_id)`` runs once the broker has the half message: a coroutine function on the
        event loop, a plain function in a thread. Its exceptions are raised here, and the broker will ask. If the send
        result of the half message is not SEND_OK, the message is rolled back and ``execute`` is not called. Raises the
        same as :meth:`send`; ``execute`` was then not called either.
        """
        check_callable("execute", execute)
        sent = await self.deliver_half(self.prepare_half(message), timeout_ms)
        if sent.status is not SendStatus.SEND_OK:
            return await self.end(message, sent, LocalTransactionState.ROLLBACK_MESSAGE)
        try:
            state = state_of(await _called(execute, message, sent.transaction_id or sent.msg_id))
        except BaseException as error:
            remark = f"executeLocalTransactionBranch exception: {error}"
            await self.end(message, sent, LocalTransactionState.UNKNOW, remark)
            raise
        return await self.end(message, sent, state)

    # The three steps of a transaction, for callers that run the local transaction themselves

    def prepare_half(self, message: Message) -> OutgoingMessage:
        """Check and compress a message, and mark it as prepared. Thread rule: any thread."""
        check_message(message, self._config)
        if is_delayed(message):
            raise MQClientError("Transactional messages do not support delayed delivery")
        marks = {PROPERTY_TRANSACTION_PREPARED: "true", PROPERTY_PRODUCER_GROUP: self._config.producer_group}
        outgoing = self.prepare(replace(message, properties={**message.properties, **marks}))
        return replace(outgoing, sys_flag=outgoing.sys_flag | TRANSACTION_PREPARED)

    async def deliver_half(self, outgoing: OutgoingMessage, timeout_ms: int | None) -> SendResult:
        """Send a half message, to a broker that gets heartbeats and so can ask about it."""
        sent = await self.deliver(outgoing, timeout_ms=timeout_ms)
        await self._heartbeats.reach()
        return sent

    async def end(
        self, message: Message, sent: SendResult, state: LocalTransactionState, remark: str | None = None
    ) -> TransactionSendResult:
        """Send the decision to the broker. If that fails, the broker will ask."""
        topic = self._full(message.topic)
        header = EndTransactionRequestHeader(
            topic=topic,
            producer_group=self._config.producer_group,
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset=parse_message_id(sent.offset_msg_id)[1],
            commit_or_rollback=_DECISIONS[state],
            msg_id=sent.msg_id,
            transaction_id=sent.transaction_id,
            bname=sent.queue.broker_name,
        )
        request = RemotingCommand.request(header)
        request.remark = remark
        try:
            route = await self._routes.find(topic, self._config.send_msg_timeout_ms)
            address = master_of(route, sent.queue.broker_name)
            ids = sent.msg_id, sent.transaction_id or ""
            self._hooks.ended_transaction(message, address, ids, state, is_from_check=False)
            await self._client.invoke_oneway(address, request)
        except GantrymqError as error:
            log.warning(
                "the end of a transaction was not sent", msg_id=sent.msg_id, state=state.name, reason=str(error)
            )
        return TransactionSendResult.of(sent, state)


class _CheckAnswers:
    """Answers CHECK_TRANSACTION_STATE. It does not reference the producer, so that an unused one can be collected."""

    def __init__(self, check: CheckTransaction) -> None:
        self._check = check
        self._client: AsyncClient | None = None
        self._config: ClientConfig = ProducerConfig("127.0.0.1:9876")
        self._group = ""
        self._hooks: SendHooks | None = None

    def use(self, client: AsyncClient, config: ProducerConfig, hooks: SendHooks) -> None:
        """Set the client through which answers are sent, and the hooks that see them."""
        self._client, self._config, self._group = client, config, config.producer_group
        self._hooks = hooks

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Register for the brokers' checks at a dispatcher."""
        dispatcher.register(self._answer, RequestCode.CHECK_TRANSACTION_STATE)

    async def _answer(self, channel: Channel, request: RemotingCommand) -> None:
        header = request.read(CheckTransactionStateRequestHeader)
        limit = self._config.max_decompressed_body_size
        for stored in decode_records(request.body, max_decompressed_body_size=limit):
            if stored.properties.get(PROPERTY_PRODUCER_GROUP) != self._group:
                return
            stored.topic = without_namespace(self._config.namespace, stored.topic)
            queue = MessageQueue(stored.topic, header.bname or "", stored.queue_id)
            message = received(stored, queue, PullResult(PullStatus.FOUND, 0, 0, 0, 0, b""))
            state, remark = await self._state(message)
            await self._send_decision(channel, header, message, state, remark)
            return

    async def _state(self, message: ReceivedMessage) -> tuple[LocalTransactionState, str | None]:
        try:
            return state_of(await _called(self._check, message)), None
        except Exception as error:
            log.error("the check of a transaction failed", msg_id=message.msg_id, exc_info=error)
            return LocalTransactionState.UNKNOW, f"checkLocalTransactionState Exception: {error}"

    async def _send_decision(
        self,
        channel: Channel,
        check: CheckTransactionStateRequestHeader,
        message: ReceivedMessage,
        state: LocalTransactionState,
        remark: str | None,
    ) -> None:
        msg_id = message.properties.get(PROPERTY_UNIQ_KEY) or message.offset_msg_id
        header = EndTransactionRequestHeader(
            topic=check.topic,
            producer_group=self._group,
            tran_state_table_offset=check.tran_state_table_offset,
            commit_log_offset=check.commit_log_offset,
            commit_or_rollback=_DECISIONS[state],
            from_transaction_check=True,
            msg_id=msg_id,
            transaction_id=check.transaction_id,
            bname=check.bname,
        )
        request = RemotingCommand.request(header)
        request.remark = remark
        if self._hooks is not None:
            ids = msg_id, check.transaction_id or ""
            self._hooks.ended_transaction(message, channel.address, ids, state, is_from_check=True)
        if self._client is not None:
            try:
                await self._client.invoke_oneway(channel.address, request)
            except GantrymqError as error:
                log.warning("the answer to a check was not sent", msg_id=message.msg_id, reason=str(error))


async def _called(function: Callable[..., object], *arguments: object) -> object:
    """The result of a function; a plain function runs in a thread."""
    if any(map(inspect.iscoroutinefunction, (function, type(function).__call__))):
        result = function(*arguments)
    else:
        result = await asyncio.to_thread(function, *arguments)
    return await result if inspect.isawaitable(result) else result


def state_of(returned: object) -> LocalTransactionState:
    """The state that the user's function returned; UNKNOW, with an error in the log, for any other value."""
    if isinstance(returned, LocalTransactionState):
        return returned
    log.error(
        "a transaction's function returned no LocalTransactionState: UNKNOW is used", returned=repr(returned)[:80]
    )
    return LocalTransactionState.UNKNOW


def check_callable(name: str, value: object) -> None:
    """Raise MQClientError if an argument is not a function."""
    if not callable(value) or isinstance(value, type):
        raise MQClientError(f"{name}={value!r:.80} is not allowed: a function that returns a LocalTransactionState")
