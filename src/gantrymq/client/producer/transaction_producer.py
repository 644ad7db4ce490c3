"""Transactional messages from plain functions: a local transaction decides about their delivery.

    with TransactionProducer("127.0.0.1:9876", is_paid, producer_group="orders") as producer:
        result = producer.send_in_transaction(Message("TopicTest", b"paid"), pay)

Source: TransactionMQProducer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Unpack

from gantrymq.client.producer.async_transaction_producer import (
    AsyncTransactionProducer,
    CheckTransaction,
    check_callable,
    state_of,
)
from gantrymq.client.producer.producer import Producer
from gantrymq.client.producer.settings import ProducerConfig, ProducerSettings
from gantrymq.client.requests.send_result import LocalTransactionState, SendStatus, TransactionSendResult
from gantrymq.model.message import Message


class TransactionProducer(Producer):
    """A producer that also sends in transactions, and answers the brokers' checks with ``check``.

    See :class:`AsyncTransactionProducer`. ``check`` runs in a thread of its own, or on the producer's event loop if it
    is a coroutine function. Thread rule: any thread.
    """

    _producer: AsyncTransactionProducer

    def __init__(
        self,
        name_servers: ProducerConfig | str,
        check: CheckTransaction,
        *,
        topics: Iterable[str] = (),
        **settings: Unpack[ProducerSettings],
    ) -> None:
        self._check, self._topics = check, tuple(topics)
        super().__init__(name_servers, **settings)

    def _make(self, config: ProducerConfig) -> AsyncTransactionProducer:
        return AsyncTransactionProducer(config, self._check, topics=self._topics)

    def send_in_transaction(
        self,
        message: Message,
        execute: Callable[[Message, str], LocalTransactionState],
        *,
        timeout_ms: int | None = None,
    ) -> TransactionSendResult:
        """Send a half message, run the local transaction, and commit or roll back by its result.

        ``execute(message, transaction_id)`` runs in the caller's thread once the broker has the half message. Its
        exceptions are raised here, and the broker will ask. If the send result of the half message is not SEND_OK, the
        message is rolled back and ``execute`` is not called. Raises the same as :meth:`send`; ``execute`` was then not
        called either.
        """
        check_callable("execute", execute)
        run, producer = self._loop.run, self._producer
        sent = run(producer.deliver_half(producer.prepare_half(message), timeout_ms))
        if sent.status is not SendStatus.SEND_OK:
            return run(producer.end(message, sent, LocalTransactionState.ROLLBACK_MESSAGE))
        try:
            state = state_of(execute(message, sent.transaction_id or sent.msg_id))
        except BaseException as error:
            remark = f"executeLocalTransactionBranch exception: {error}"
            run(producer.end(message, sent, LocalTransactionState.UNKNOW, remark))
            raise
        return run(producer.end(message, sent, state))
