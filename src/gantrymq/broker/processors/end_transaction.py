"""END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE: decisions on half messages, and new checks of discarded ones.

A commit puts the final message first and the op message after it; a rollback puts only the op message. Clients send
the request one-way, so a refused decision is only noticed by the next check.

A half message is valid if a unit of its queue points to it. (RocketMQ accepts the bytes at any offset, and puts again a
message of any topic that has a PGROUP.)

Source: EndTransactionProcessor, AdminBrokerProcessor.resumeCheckHalfMessage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from gantrymq.broker import names, refusals
from gantrymq.broker.acl.permissions import UPDATE, end_transaction, on, topic_in
from gantrymq.broker.answers import Answers
from gantrymq.broker.appends.put_group import PutGroup
from gantrymq.broker.appends.send_runs import SHARE_OF_A_FILE
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.measures import Measures
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.storage import Storage
from gantrymq.broker.tables.tables import Tables
from gantrymq.broker.transactions.decisions import Decision, Decisions
from gantrymq.broker.transactions.half_messages import immunity_ms, real_queue, resumed_message
from gantrymq.broker.transactions.open_halves import OpenHalf, open_half
from gantrymq.broker.transactions.transaction_runs import EndRequest, EndRun
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.logs import get_logger
from gantrymq.model.flags import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from gantrymq.model.message import parse_message_id
from gantrymq.model.status import PutMessageStatus
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import ONEWAY_FLAG, RemotingCommand, encode_command
from gantrymq.remoting.headers.send import EndTransactionRequestHeader, ResumeCheckHalfMessageRequestHeader
from gantrymq.remoting.quick_answers import encode_successes
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import Answer, RequestRefused
from gantrymq.store.log.appendable import Appendable, AppendableMessage
from gantrymq.store.put_result import PutMessageResult

_NOT_FOUND = "Find prepared transaction message failed"
_NOT_RESUMED = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."
_RESUME_FAILED = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
_RESUMABLE = (names.TRANS_CHECK_MAX_TIME_TOPIC, names.TRANS_HALF_TOPIC)

log = get_logger("gantrymq.broker")


class EndTransactionProcessor:
    """Answers END_TRANSACTION: commits or rolls back a half message."""

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        storage: Storage,
        tables: Tables,
        decisions: Decisions,
        measures: Measures,
        answers: Answers,
    ) -> None:
        self._config, self._clock, self._measures, self._answers = config, clock, measures, answers
        self._store, self._queued_at, self._puts = storage.store, storage.records.queued, storage.puts
        self._topics, self._metrics, self._decisions = tables.topics, tables.transaction_metrics, decisions
        self._end_queued = answers.caught_up.before(self._end_once_queued)

    def end(self, channel: Channel, request: RemotingCommand) -> Answer | Awaitable[Answer]:
        """Answer once the decision is made. An unknown state has no answer, as in RocketMQ.

        Most decisions arrive right after their half message. They do not wait for the dispatch to the queue, because a
        thousand waiting requests would keep the event loop busy.
        """
        header = request.read(EndTransactionRequestHeader)
        if header.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            return None
        half = self._new_half(header.commit_log_offset)
        return self._end_queued(channel, request) if half is None else self._end(channel, request, header, half)

    def _new_half(self, phy_offset: int) -> OpenHalf | None:
        """The half message at an offset of the log, if it was just stored; else None."""
        half = self._decisions.take_kept(phy_offset)
        if half is not None or not self._decisions.is_fresh(phy_offset):
            return half
        fresh = self._store.message_at(phy_offset)
        return open_half(fresh) if fresh is not None and fresh.topic == names.TRANS_HALF_TOPIC else None

    def _end_once_queued(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        header = request.read(EndTransactionRequestHeader)
        half = self._queued_at(header.commit_log_offset)
        if half is None or half.topic != names.TRANS_HALF_TOPIC:
            return request.response(ResponseCode.SYSTEM_ERROR, _NOT_FOUND)
        return self._end(channel, request, header, open_half(half))

    def _end(
        self,
        channel: Channel,
        request: RemotingCommand,
        header: EndTransactionRequestHeader,
        half: OpenHalf,
    ) -> RemotingCommand | None:
        # The permission check may have found no topic, if the offset was the end of the log then.
        refusal = self._answers.refusal(channel, request)
        if refusal is not None:
            return refusal
        decision = self._begin(header, half)
        if header.commit_or_rollback == TRANSACTION_ROLLBACK:
            self._rolled_back(decision, half)
            return request.response(ResponseCode.SUCCESS)
        committed = partial(self._committed, channel, request, decision, half.born_timestamp_ms)
        if not self._puts.put(half.final(), channel, committed):
            self._decisions.cancel(decision)
            raise refusals.overload()
        return None

    def _begin(self, header: EndTransactionRequestHeader, half: OpenHalf) -> Decision:
        """Begin a decision. Raises RequestRefused."""
        if self._is_late(header, half):
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION)
        wrong = _wrong(header, half)
        queue = half.real_queue
        if wrong is not None or queue is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, wrong or _NOT_FOUND)
        is_commit, (topic, _) = header.commit_or_rollback == TRANSACTION_COMMIT, queue
        if is_commit and topic not in self._topics:  # the topic was deleted: a put would create its queues again
            raise refusals.topic_missing(topic, refusals.APPLY_TO_COMMIT)
        if not self._decisions.has_room:
            raise refusals.overload()
        decision = self._decisions.begin(half.queue_id, half.queue_offset)
        if decision is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, _NOT_FOUND)
        return decision

    def _rolled_back(self, decision: Decision, half: OpenHalf) -> None:
        self._decisions.finish(decision)
        if half.real_queue is not None:
            self._metrics.add(half.real_queue[0], -1)
            self._measures.meter.rolled_back(half.real_queue[0])

    # The decisions of one read

    def run(self, channel: Channel, run: EndRun) -> Sequence[RemotingCommand]:
        """Take the decisions of one read. Returns those that must be taken one by one: their half message is old."""
        if self._answers.access is not None:
            return [run.request_of(end) for end in run.ends]
        left: list[RemotingCommand] = []
        rolled_back: list[EndRequest] = []
        commits: list[_Commit] = []
        for end in run.ends:
            header = end.ext_fields
            if header.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
                continue
            half = self._new_half(header.commit_log_offset)
            if half is None:
                left.append(run.request_of(end))
                continue
            try:
                decision = self._begin(header, half)
            except RequestRefused as refusal:
                request = run.request_of(end)
                channel.respond(request, refusal.answer(request))
                continue
            if header.commit_or_rollback == TRANSACTION_ROLLBACK:
                self._rolled_back(decision, half)
                rolled_back.append(end)
            else:
                commits.append(_Commit(end, decision, half.born_timestamp_ms, half.final()))
        if rolled_back:
            _succeed(channel, run.part(rolled_back))
        for together in _puts_of(commits, self._config.store.mapped_file_size_commit_log // SHARE_OF_A_FILE):
            group = PutGroup([commit.final for commit in together])
            committed = partial(self._committed_together, channel, run, together, group)
            if not self._puts.put(group, channel, committed, requests=len(together)):
                for commit in together:
                    self._decisions.cancel(commit.decision)
                left += [run.request_of(commit.end) for commit in together]
        return left

    def _committed_together(
        self,
        channel: Channel,
        run: EndRun,
        commits: Sequence[_Commit],
        group: PutGroup,
        result: PutMessageResult | None,
        busy: str | None,
    ) -> None:
        is_stored = result is not None and result.is_stored
        results = group.results if is_stored else [result] * len(commits)
        done: list[EndRequest] = []
        stored: dict[str, list[int]] = {}  # the sizes by topic
        now_ms = self._clock.now_ms()
        for commit, own in zip(commits, results, strict=True):
            if own is not None and own.is_stored:
                self._decisions.finish(commit.decision)
                self._measures.meter.committed(own.topic, max(now_ms - commit.born_timestamp_ms, 0) // 1000)
                stored.setdefault(own.topic, []).append(own.size_bytes)
                done.append(commit.end)
            else:
                self._decisions.cancel(commit.decision)
                request = run.request_of(commit.end)
                channel.respond(request, request.response(*self._failure(own, busy)))
        for topic, sizes in stored.items():
            self._metrics.add(topic, -len(sizes))
            self._measures.stats.put(topic, len(sizes), sum(sizes), puts=len(sizes))
        if done:
            _succeed(channel, run.part(done))

    # One decision is stored

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
            age_ms = max(self._clock.now_ms() - born_timestamp_ms, 0)
            self._measures.meter.committed(result.topic, age_ms // 1000)
            self._measures.stats.put(result.topic, 1, result.size_bytes)
            code, remark = ResponseCode.SUCCESS, None
        else:
            self._decisions.cancel(decision)
            code, remark = self._failure(result, busy)
        # Nearly all decisions are one-way.
        frames = () if request.flag & ONEWAY_FLAG else (encode_command(request.response(code, remark)),)
        channel.respond_bytes(request, code, frames)

    def _failure(self, result: PutMessageResult | None, busy: str | None) -> tuple[ResponseCode, str | None]:
        if result is None:
            return ResponseCode.SYSTEM_BUSY, busy
        if result.status in (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED):
            max_size_bytes = self._config.store.max_message_size_bytes
            return ResponseCode.MESSAGE_ILLEGAL, (
                "The message is illegal, maybe msg body or properties length not matched. "
                f"msg body length limit {max_size_bytes}B, msg properties length limit 32KB."
            )
        if result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE:
            return ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now."
        if result.status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED:
            return ResponseCode.SYSTEM_ERROR, "Create mapped file failed."
        if result.status is PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH:
            return ResponseCode.SYSTEM_ERROR, refusals.TOO_FEW_SLAVES
        return ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"

    def _is_late(self, header: EndTransactionRequestHeader, half: OpenHalf) -> bool:
        """Whether the time that the producer set for its decision has passed (rejectCommitOrRollback)."""
        timeout_ms = self._config.broker.transaction_timeout_ms
        immune_ms = immunity_ms(half.immunity_s, timeout_ms)
        if header.from_transaction_check or immune_ms is None:
            return False
        return self._clock.now_ms() - half.born_timestamp_ms > max(immune_ms, timeout_ms)

    # RESUME_CHECK_HALF_MESSAGE

    def resume(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Put a discarded message back into the half queue, to be checked again."""
        header = request.read(ResumeCheckHalfMessageRequestHeader)
        try:
            half = self._queued_at(parse_message_id(header.msg_id or "")[1])
        except ValueError:
            half = None
        if half is None or half.topic not in _RESUMABLE:
            return request.response(ResponseCode.SYSTEM_ERROR, _RESUME_FAILED)
        topic = real_queue(half)

        def stored(result: PutMessageResult | None, busy: str | None) -> None:
            is_back = result is not None and result.is_stored
            if is_back and topic is not None and half.topic == names.TRANS_CHECK_MAX_TIME_TOPIC:
                self._metrics.add(topic[0], 1)
            answer = (ResponseCode.SUCCESS, None) if is_back else (ResponseCode.SYSTEM_ERROR, _NOT_RESUMED)
            channel.respond(request, request.response(*answer))

        if not self._puts.put(AppendableMessage(resumed_message(half)), channel, stored):
            raise refusals.overload()
        return None


class _Commit(NamedTuple):
    """A decision whose final message is put together with others."""

    end: EndRequest
    decision: Decision
    born_timestamp_ms: int
    final: Appendable


def _puts_of(commits: list[_Commit], max_bytes: int) -> Iterator[list[_Commit]]:
    """Parts of at least one commit, with bodies of up to ``max_bytes`` together: each part is in one file."""
    part: list[_Commit] = []
    size_bytes = 0
    for commit in commits:
        size_bytes += commit.final.body_bytes
        if part and size_bytes > max_bytes:
            yield part
            part, size_bytes = [], commit.final.body_bytes
        part.append(commit)
    if part:
        yield part


def _succeed(channel: Channel, run: EndRun) -> None:
    """Answer decisions that succeeded. Nearly all are one-way."""
    waiting = [end.opaque for end in run.ends if not end.flag & ONEWAY_FLAG]
    channel.respond_bytes(run, ResponseCode.SUCCESS, (encode_successes(waiting),) if waiting else ())


def _wrong(header: EndTransactionRequestHeader, half: OpenHalf) -> str | None:
    """The difference between a request and its half message, as a text; None if they agree (checkPrepareMessage)."""
    if half.producer_group != header.producer_group:
        return "The producer group wrong"
    if half.queue_offset != header.tran_state_table_offset:
        return "The transaction state table offset wrong"
    return None


def end_transaction_processor(context: BrokerContext) -> EndTransactionProcessor:
    """The processor of a broker."""
    return EndTransactionProcessor(
        context.config,
        context.clock,
        context.storage,
        context.tables,
        context.decisions,
        context.measures,
        context.answers,
    )


def routes(context: BrokerContext) -> Routes:
    """The rows of transactions."""
    processor = end_transaction_processor(context)
    may_end = end_transaction(context.storage.records.real_topic_at)
    return {
        RequestCode.END_TRANSACTION: Route(processor.end, may_end, after_dispatch=False),
        RequestCode.RESUME_CHECK_HALF_MESSAGE: Route(
            processor.resume, on(ResumeCheckHalfMessageRequestHeader, UPDATE, topic_in()), after_dispatch=True
        ),
    }
