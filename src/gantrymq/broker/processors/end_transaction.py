"""END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE: decisions on half messages, and new checks of discarded ones.

A commit puts the final message first and the op message after it; a rollback puts only the op message. Clients send
the request one-way, so a refused decision is only noticed by the next check.

A half message is valid if a unit of its queue points to it. (RocketMQ accepts the bytes at any offset, and puts again a
message of any topic that has a PGROUP.)

Source: EndTransactionProcessor, AdminBrokerProcessor.resumeCheckHalfMessage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from gantrymq.broker import names
from gantrymq.broker.acl.access_control import AccessControl
from gantrymq.broker.answers import DispatchCatchUp
from gantrymq.broker.appends.put_queue import OVERLOAD, PutQueue
from gantrymq.broker.metrics.meter import BrokerMeter
from gantrymq.broker.statistics import BrokerStatsManager
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.broker.transactions.decisions import Decision, Decisions
from gantrymq.broker.transactions.half_messages import immunity_ms, real_queue, resumed_message
from gantrymq.broker.transactions.metrics import TransactionMetrics
from gantrymq.broker.transactions.open_halves import OpenHalf, open_half
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.logs import get_logger
from gantrymq.model.flags import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from gantrymq.model.message import StoredMessage, parse_message_id
from gantrymq.model.status import PutMessageStatus
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.send import EndTransactionRequestHeader, ResumeCheckHalfMessageRequestHeader
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import Answer
from gantrymq.store.log.appendable import AppendableMessage
from gantrymq.store.put_result import PutMessageResult

_NOT_FOUND = "Find prepared transaction message failed"
_NOT_RESUMED = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."
_RESUME_FAILED = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
_RESUMABLE = (names.TRANS_CHECK_MAX_TIME_TOPIC, names.TRANS_HALF_TOPIC)

log = get_logger("gantrymq.broker")


class EndTransactionProcessor:
    """Commits and rolls back.

    ``queued_at(offset)`` returns the message at an offset of the log if its queue points to it, else None.
    """

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        topics: TopicConfigManager,
        queued_at: Callable[[int], StoredMessage | None],
        puts: PutQueue,
        stats: BrokerStatsManager,
        decisions: Decisions,
        metrics: TransactionMetrics,
        access: AccessControl | None,
        message_at: Callable[[int], StoredMessage | None],
        caught_up: DispatchCatchUp,
        meter: BrokerMeter,
    ) -> None:
        self._meter = meter
        self._config, self._clock, self._topics, self._queued_at = config, clock, topics, queued_at
        self._puts, self._stats, self._decisions, self._metrics = puts, stats, decisions, metrics
        self._access, self._message_at = access, message_at
        self._end_queued = caught_up.before(self._end_once_queued)

    def end(self, channel: Channel, request: RemotingCommand) -> Answer | Awaitable[Answer]:
        """Answer once the decision is made. An unknown state has no answer, as in RocketMQ.

        Most decisions arrive right after their half message. They do not wait for the dispatch to the queue, because a
        thousand waiting requests would keep the event loop busy.
        """
        asked = request.read(EndTransactionRequestHeader)
        if asked.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            return None
        kept = self._decisions.take_kept(asked.commit_log_offset)
        if kept is not None:
            return self._end(channel, request, asked, kept)
        fresh = self._message_at(asked.commit_log_offset) if self._decisions.is_fresh(asked.commit_log_offset) else None
        if fresh is not None and fresh.topic == names.TRANS_HALF_TOPIC:
            return self._end(channel, request, asked, open_half(fresh))
        return self._end_queued(channel, request)

    def _end_once_queued(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        asked = request.read(EndTransactionRequestHeader)
        half = self._queued_at(asked.commit_log_offset)
        if half is None or half.topic != names.TRANS_HALF_TOPIC:
            return request.response(ResponseCode.SYSTEM_ERROR, _NOT_FOUND)
        return self._end(channel, request, asked, open_half(half))

    def _end(
        self,
        channel: Channel,
        request: RemotingCommand,
        asked: EndTransactionRequestHeader,
        half: OpenHalf,
    ) -> RemotingCommand | None:
        # The permission check may have found no topic, if the offset was the end of the log then.
        refusal = self._access.refusal(channel, request) if self._access is not None else None
        if refusal is not None:
            return refusal
        if self._is_late(asked, half):
            return request.response(ResponseCode.ILLEGAL_OPERATION)
        wrong = _wrong(asked, half)
        queue = half.real_queue
        if wrong is not None or queue is None:
            return request.response(ResponseCode.SYSTEM_ERROR, wrong or _NOT_FOUND)
        is_commit, (topic, _) = asked.commit_or_rollback == TRANSACTION_COMMIT, queue
        if is_commit and topic not in self._topics:  # the topic was deleted: a put would create its queues again
            return request.response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")
        if not self._decisions.has_room:
            return request.response(ResponseCode.SYSTEM_BUSY, OVERLOAD)
        decision = self._decisions.begin(half.queue_id, half.queue_offset)
        if decision is None:
            return request.response(ResponseCode.SYSTEM_ERROR, _NOT_FOUND)
        if not is_commit:
            self._decisions.finish(decision)
            self._metrics.add(topic, -1)
            self._meter.rolled_back(topic)
            return request.response(ResponseCode.SUCCESS)
        committed = partial(self._committed, channel, request, decision, half.born_timestamp_ms)
        if not self._puts.put(half.final(), channel, committed):
            self._decisions.cancel(decision)
            return request.response(ResponseCode.SYSTEM_BUSY, OVERLOAD)
        return None

    def _committed(
        self,
        channel: Channel,
        request: RemotingCommand,
        decision: Decision,
        born_timestamp_ms: int,
        result: PutMessageResult | None,
        busy: str | None,
    ) -> None:
        if result is not None and result.is_stored:
            self._decisions.finish(decision)
            self._metrics.add(result.topic, -1)
            self._meter.committed(result.topic, max(self._clock.now_ms() - born_timestamp_ms, 0) // 1000)
            self._stats.put(result.topic, 1, result.size_bytes)
            answer = request.response(ResponseCode.SUCCESS)
        else:
            self._decisions.cancel(decision)
            answer = request.response(*self._failure(result, busy))
        channel.respond(request, answer)

    def _failure(self, result: PutMessageResult | None, busy: str | None) -> tuple[int, str | None]:
        if result is None:
            return ResponseCode.SYSTEM_BUSY, busy
        if result.status in (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED):
            most = self._config.store.max_message_size_bytes
            return ResponseCode.MESSAGE_ILLEGAL, (
                "The message is illegal, maybe msg body or properties length not matched. "
                f"msg body length limit {most}B, msg properties length limit 32KB."
            )
        if result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE:
            return ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now."
        if result.status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED:
            return ResponseCode.SYSTEM_ERROR, "Create mapped file failed."
        return ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"

    def _is_late(self, asked: EndTransactionRequestHeader, half: OpenHalf) -> bool:
        """Whether the time that the producer set for its decision has passed (rejectCommitOrRollback)."""
        timeout_ms = self._config.broker.transaction_timeout_ms
        immune_ms = immunity_ms(half.immunity_s, timeout_ms)
        if asked.from_transaction_check or immune_ms is None:
            return False
        return self._clock.now_ms() - half.born_timestamp_ms > max(immune_ms, timeout_ms)

    # RESUME_CHECK_HALF_MESSAGE

    def resume(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Put a discarded message back into the half queue, to be checked again."""
        asked = request.read(ResumeCheckHalfMessageRequestHeader)
        try:
            found = self._queued_at(parse_message_id(asked.msg_id or "")[1])
        except ValueError:
            found = None
        if found is None or found.topic not in _RESUMABLE:
            return request.response(ResponseCode.SYSTEM_ERROR, _RESUME_FAILED)
        topic = real_queue(found)

        def stored(result: PutMessageResult | None, busy: str | None) -> None:
            is_back = result is not None and result.is_stored
            if is_back and topic is not None and found.topic == names.TRANS_CHECK_MAX_TIME_TOPIC:
                self._metrics.add(topic[0], 1)
            answer = (ResponseCode.SUCCESS, None) if is_back else (ResponseCode.SYSTEM_ERROR, _NOT_RESUMED)
            channel.respond(request, request.response(*answer))

        if not self._puts.put(AppendableMessage(resumed_message(found)), channel, stored):
            return request.response(ResponseCode.SYSTEM_BUSY, OVERLOAD)
        return None


def _wrong(asked: EndTransactionRequestHeader, half: OpenHalf) -> str | None:
    """The difference between a request and its half message, as a text; None if they agree (checkPrepareMessage)."""
    if half.producer_group != asked.producer_group:
        return "The producer group wrong"
    if half.queue_offset != asked.tran_state_table_offset:
        return "The transaction state table offset wrong"
    return None
