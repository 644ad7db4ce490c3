"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE.

A send is checked (:mod:`gantrymq.broker.processors.send_checks`), becomes records
(:mod:`gantrymq.broker.processors.send_steps`), is put, and is answered.

Source: AbstractSendMessageProcessor, SendMessageProcessor.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache, partial

from gantrymq.broker import refusals
from gantrymq.broker.acl.permissions import send
from gantrymq.broker.answers import Answers
from gantrymq.broker.appends.put_queue import PutQueue
from gantrymq.broker.appends.send_properties import read_properties
from gantrymq.broker.appends.send_runs import WireSends
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.measures import Measures
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.processors.send_checks import SendChecks, read_header
from gantrymq.broker.processors.send_steps import Send, SendSteps
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.broker.transactions.decisions import Decisions
from gantrymq.broker.transactions.metrics import TransactionMetrics
from gantrymq.broker.transactions.open_halves import PreparedMessage
from gantrymq.config.broker_settings import BrokerConfig, LiveConfig
from gantrymq.kernels.send_columns import PHY_OFFSET, QUEUE_OFFSET
from gantrymq.model.message import PROPERTY_MSG_REGION, PROPERTY_TRACE_SWITCH, PROPERTY_UNIQ_KEY
from gantrymq.model.status import PutMessageStatus
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import ONEWAY_FLAG, RemotingCommand, encode_command
from gantrymq.remoting.headers.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from gantrymq.remoting.quick_answers import SendAnswers
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestRefused
from gantrymq.store.message_store import MessageStore
from gantrymq.store.put_result import PutMessageResult

_STORED = {
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}


class StoredSends:
    """Counts and answers sends that were put, and those of runs. Thread rule: the event loop's thread."""

    def __init__(
        self,
        config: LiveConfig,
        store: MessageStore,
        transactions: TransactionMetrics,
        decisions: Decisions,
        measures: Measures,
        answers: Answers,
    ) -> None:
        self._config, self._store, self._measures, self._respond = config, store, measures, answers.respond
        self._transactions, self._decisions = transactions, decisions

    def stored_of_run(
        self, channel: Channel, request: RemotingCommand, result: PutMessageResult | None, busy: str | None
    ) -> None:
        """Answer one send of a run."""
        header = request.read(SendMessageRequestHeaderV2)
        unique_key = read_properties(header.properties).get(PROPERTY_UNIQ_KEY)
        self.stored(Send(channel, request, header, header.queue_id, header.topic, unique_key), result, busy)

    def stored(self, send: Send, result: PutMessageResult | None, busy: str | None) -> None:
        """Answer a send: with its ``result``, or without one because the broker is ``busy``."""
        if result is not None and result.phy_offset >= 0:
            self._measures.stored(result, send.header.properties)
            if send.is_half:
                self._decisions.stored(result.phy_offset)
                if (prepared := send.prepared) is not None:
                    half = prepared.stored(result.queue_offset, result.phy_offset)
                    self._decisions.keep(result.phy_offset, half, prepared.size_bytes)
                self._transactions.add(send.topic, 1)
        # The hash of an Enum member is computed in Python, so a lookup is slow.
        is_ok = result is not None and result.status is PutMessageStatus.PUT_OK
        code, remark = (ResponseCode.SUCCESS, None) if is_ok else self._failure(result, busy)
        pieces = () if send.request.flag & ONEWAY_FLAG else self._frame(send, result, code, remark)
        self._respond(send.channel, send.request, code, pieces, send.topic)

    def stored_halves(self, halves: WireSends, prepared: Sequence[PreparedMessage], result: PutMessageResult) -> None:
        """Note a run of half messages that was stored."""
        self._measures.stored_run(halves, result)
        decisions, columns = self._decisions, halves.columns
        for message, queue_offset, phy_offset in zip(
            prepared, columns[QUEUE_OFFSET].tolist(), columns[PHY_OFFSET].tolist(), strict=True
        ):
            decisions.stored(phy_offset)
            decisions.keep(phy_offset, message.stored(queue_offset, phy_offset), message.size_bytes)
        self._transactions.add(halves.run.topic, len(prepared))

    def _failure(self, result: PutMessageResult | None, busy: str | None) -> tuple[int, str | None]:
        """The code of a put that is not simply OK, and its remark, which a stored message does not have."""
        if result is None:
            return ResponseCode.SYSTEM_BUSY, busy
        if (code := _STORED.get(result.status)) is not None:
            return code, None
        refusal = refusals.send_refused(result.status, self._config.store, self._store)
        return refusal.code, refusal.remark

    def _frame(self, send: Send, result: PutMessageResult | None, code: int, remark: str | None) -> Sequence[bytes]:
        """Encode the response, in pieces. A result without a remark is that of a stored message."""
        request, broker = send.request, self._config.broker
        if result is None or remark is not None:
            return (encode_command(with_region(request.response(code, remark), broker)),)
        if code is ResponseCode.SUCCESS and len(result.phy_offsets) > 1:
            pieces = self._batch_frame(send, result)
            if pieces is not None:
                return pieces
        if code is ResponseCode.SUCCESS and send.recall_handle is None:
            answers = send_answers(broker.region_id, broker.trace_on)
            frame = answers.encode(request, result.msg_id, send.queue_id, result.queue_offset, send.transaction_id)
            if frame is not None:
                return (frame,)
        header = SendMessageResponseHeader(
            msg_id=result.msg_id,
            queue_id=send.queue_id,
            queue_offset=result.queue_offset,
            transaction_id=send.transaction_id,
            recall_handle=send.recall_handle,
        )
        return (encode_command(with_region(request.response(code, header=header), broker)),)

    def _batch_frame(self, send: Send, result: PutMessageResult) -> Sequence[bytes] | None:
        """Encode the answer to a stored batch by the template. None if the ordinary encoder is needed."""
        if (host := result.store_host) is None:
            return None
        broker = self._config.broker
        answers, msg_ids = send_answers(broker.region_id, broker.trace_on), result.joined_ids(host)
        return answers.encode_batch(send.request, msg_ids, send.queue_id, result.queue_offset, send.transaction_id)


class SendMessageProcessor:
    """Takes sends one by one. Topics that a send creates are created when it is accepted."""

    def __init__(
        self,
        config: LiveConfig,
        topics: TopicConfigManager,
        store: MessageStore,
        puts: PutQueue,
        checks: SendChecks,
        steps: SendSteps,
        answers: StoredSends,
    ) -> None:
        self._config, self._topics, self._store, self._puts = config, topics, store, puts
        self._checks, self._steps, self._answers = checks, steps, answers

    def process(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Answer a send: at once if it is rejected, otherwise when it is stored."""
        header = read_header(request)
        try:
            topic = self._checks.check(channel, header)
            queue_id = header.queue_id
            if queue_id < 0:
                queue_id = random.randrange(max(topic.write_queue_nums, 1))
            send = Send(channel, request, header, queue_id, header.topic)
            if header.topic not in self._topics:
                send.planned.append(topic)
            records = self._steps.records(send, topic)
            if send.planned and (status := self._puts.check(records)) is not PutMessageStatus.PUT_OK:
                raise refusals.send_refused(status, self._config.store, self._store)
        except RequestRefused as refusal:
            return with_region(refusal.answer(request), self._config.broker)
        if not self._puts.put(records, channel, partial(self._answers.stored, send)):
            raise refusals.overload()
        for planned in send.planned:
            self._topics.add(planned)
        return None


def with_region(response: RemotingCommand, broker: BrokerConfig) -> RemotingCommand:
    """The same response, to which the broker's regionId and traceOn were added.

    Clients read both from the response of a send, and trace it or not.
    """
    mark_region(response.ext_fields, broker)
    return response


def mark_region(fields: dict[str, str], broker: BrokerConfig) -> None:
    """Set the region and the trace switch of the broker in the fields of an answer, or in properties."""
    fields[PROPERTY_MSG_REGION] = broker.region_id
    fields[PROPERTY_TRACE_SWITCH] = "true" if broker.trace_on else "false"


@cache
def send_answers(region: str, trace_on: bool) -> SendAnswers:
    """The answer templates of a broker."""
    return SendAnswers(((PROPERTY_MSG_REGION, region), (PROPERTY_TRACE_SWITCH, "true" if trace_on else "false")))


def stored_sends(context: BrokerContext) -> StoredSends:
    """The answers of sends, for single ones and for runs."""
    return StoredSends(
        context.config,
        context.storage.store,
        context.tables.transaction_metrics,
        context.decisions,
        context.measures,
        context.answers,
    )


def routes(context: BrokerContext) -> Routes:
    """The rows of sends."""
    config, clock, tables, storage = context.config, context.clock, context.tables, context.storage
    sends = SendMessageProcessor(
        config,
        tables.topics,
        storage.store,
        storage.puts,
        SendChecks(config, clock, tables.topics),
        SendSteps(config, clock, storage.store, tables, context.sessions.locks, context.measures),
        stored_sends(context),
    )
    return {
        RequestCode.SEND_MESSAGE: Route(sends.process, send(SendMessageRequestHeader), after_dispatch=False),
        RequestCode.SEND_MESSAGE_V2: Route(sends.process, send(SendMessageRequestHeaderV2), after_dispatch=False),
        RequestCode.SEND_BATCH_MESSAGE: Route(sends.process, send(SendMessageRequestHeaderV2), after_dispatch=False),
    }
