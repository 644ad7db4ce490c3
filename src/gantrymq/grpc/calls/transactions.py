"""EndTransaction, and the checks of transactions that were not decided.

A decision names only the topic and the transaction's id. Where its half message is, is kept here for 30 s from the send
or from a check. A later decision is refused; the broker then checks the message, which brings the place again.

RocketMQ's proxy answers OK before the broker has taken the decision. Here the answer waits for the broker, and its
refusal is the answer.

Source: EndTransactionActivity, TransactionProcessor, TransactionDataManager, AbstractProxyRelayService.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

from gantrymq.client.requests.records import decode_records
from gantrymq.clock import Clock
from gantrymq.config.grpc_settings import GrpcConfig
from gantrymq.grpc import limits
from gantrymq.grpc.brokers.interface import Brokers, ask
from gantrymq.grpc.protocol.caller import Caller
from gantrymq.grpc.protocol.codes import Code, TransactionResolution, TransactionSource
from gantrymq.grpc.protocol.convert import to_message
from gantrymq.grpc.protocol.messages import EndTransactionResponse, TelemetryCommand
from gantrymq.grpc.protocol.status import CallError, refused, status
from gantrymq.grpc.protocol.validation import require_topic
from gantrymq.model.flags import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from gantrymq.model.message import PROPERTY_PRODUCER_GROUP, parse_message_id
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.send import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    SendMessageResponseHeader,
)

_MAX_TRANSACTIONS = 200_000  # 400 bytes each
_DECISIONS = {
    TransactionResolution.COMMIT: TRANSACTION_COMMIT,
    TransactionResolution.ROLLBACK: TRANSACTION_ROLLBACK,
}


class HalfMessage(NamedTuple):
    """Where a half message is: its broker, its offset in the queue of half messages, and in the log."""

    broker_name: str
    queue_offset: int
    phy_offset: int
    expires_ms: int


class Transactions:
    """Keeps where half messages are, and sends decisions about them. Thread rule: the event loop's thread."""

    def __init__(self, config: GrpcConfig, brokers: Brokers, clock: Clock) -> None:
        self._config, self._brokers, self._clock = config, brokers, clock
        self._halves: OrderedDict[tuple[str, str], list[HalfMessage]] = OrderedDict()

    def sent(self, topic: str, broker_name: str, header: SendMessageResponseHeader) -> None:
        """Note the half message that a broker has stored."""
        try:
            _, phy_offset = parse_message_id(header.msg_id)
        except ValueError:
            return
        self._add(topic, str(header.transaction_id), broker_name, header.queue_offset, phy_offset)

    def check(self, request: RemotingCommand) -> Any:
        """The command for a producer that a broker asks about a transaction."""
        header = request.read(CheckTransactionStateRequestHeader)
        half = next(iter(decode_records(request.body, decompressed=False)))
        group, transaction_id = half.properties.get(PROPERTY_PRODUCER_GROUP, half.topic), header.transaction_id or ""
        self._add(group, transaction_id, header.bname or "", header.tran_state_table_offset, header.commit_log_offset)
        command = TelemetryCommand()
        recover = command.recover_orphaned_transaction_command
        recover.transaction_id = transaction_id
        recover.message.CopyFrom(to_message(half, self._clock.now_ms()))
        return command

    async def end(self, caller: Caller, request: Any) -> Any:
        """The answer to an EndTransactionRequest. Raises CallError if the decision is not taken."""
        topic = require_topic(request.topic.name)
        if not request.transaction_id.strip():
            raise CallError(Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        half = self._take(topic, request.transaction_id)
        if half is None:
            raise CallError(Code.INTERNAL_SERVER_ERROR, "cannot found transaction data")
        decision = _DECISIONS.get(request.resolution)
        if decision is not None:  # without one the broker checks again
            header = EndTransactionRequestHeader(
                topic=topic,
                producer_group=topic,
                tran_state_table_offset=half.queue_offset,
                commit_log_offset=half.phy_offset,
                commit_or_rollback=decision,
                from_transaction_check=request.source == TransactionSource.SOURCE_SERVER_CHECK,
                msg_id=request.message_id,
                transaction_id=request.transaction_id,
                bname=half.broker_name,
            )
            command = RemotingCommand.request(header)
            response = await ask(self._brokers, caller, half.broker_name, command, limits.REQUEST_TIMEOUT_MS)
            if response.code != ResponseCode.SUCCESS:
                raise refused(response)
        return EndTransactionResponse(status=status(Code.OK))

    def expire(self) -> None:
        """Forget the places that are too old."""
        now_ms = self._clock.now_ms()
        while self._halves:
            key, halves = next(iter(self._halves.items()))
            if halves[-1].expires_ms >= now_ms:
                return
            del self._halves[key]

    def _add(self, group: str, transaction_id: str, broker_name: str, queue_offset: int, phy_offset: int) -> None:
        expires_ms = self._clock.now_ms() + self._config.transaction_data_expire_ms
        key = group, transaction_id
        halves = self._halves.pop(key, [])
        halves.append(HalfMessage(broker_name, queue_offset, phy_offset, expires_ms))
        self._halves[key] = halves[-self._config.max_transactions_of_id :]
        if len(self._halves) > _MAX_TRANSACTIONS:
            self._halves.popitem(last=False)

    def _take(self, group: str, transaction_id: str) -> HalfMessage | None:
        """The newest place of a transaction that is not too old."""
        key, now_ms = (group, transaction_id), self._clock.now_ms()
        halves = self._halves.get(key, [])
        half = halves.pop() if halves else None
        if not halves:
            self._halves.pop(key, None)
        return half if half is not None and half.expires_ms >= now_ms else None
