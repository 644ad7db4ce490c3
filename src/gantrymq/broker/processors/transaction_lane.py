"""The lane for runs of half messages and decisions: each kind is stored and answered together.

Without it they have the same effects one by one (:mod:`gantrymq.broker.processors.send`,
:mod:`gantrymq.broker.processors.end_transaction`). The half messages of a run are taken as a whole, or one by one if
one of them would be refused. A decision that needs more than its header and the newest half messages is taken alone.

Source: SendMessageProcessor, EndTransactionProcessor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gantrymq.broker import names
from gantrymq.broker.answers import Answers
from gantrymq.broker.appends.put_queue import PutQueue
from gantrymq.broker.appends.send_properties import read_properties
from gantrymq.broker.appends.send_runs import WireSends
from gantrymq.broker.appends.wire_messages import WireMessage
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.processors.end_transaction import EndTransactionProcessor, end_transaction_processor
from gantrymq.broker.processors.send import StoredSends, stored_sends
from gantrymq.broker.processors.send_lane import RunChecks, answer_frames, run_checks
from gantrymq.broker.processors.send_steps import Send
from gantrymq.broker.transactions.open_halves import PreparedMessage
from gantrymq.broker.transactions.transaction_runs import EndRun, FindTransactionRun, HalfRun, TransactionRun
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.kernels import send_columns
from gantrymq.model import flags
from gantrymq.model.host import Host
from gantrymq.model.message import PROPERTY_UNIQ_KEY
from gantrymq.model.status import PutMessageStatus
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import CommandRun, RemotingCommand
from gantrymq.remoting.connection import split_run
from gantrymq.remoting.headers.send import SendMessageRequestHeaderV2
from gantrymq.remoting.transport.channel import Channel
from gantrymq.store.put_result import PutMessageResult


class HalfSends:
    """Puts runs of half messages into ``puts``. ``sends`` notes what is stored."""

    def __init__(
        self,
        config: LiveConfig,
        puts: PutQueue,
        checks: RunChecks,
        sends: StoredSends,
        answers: Answers,
    ) -> None:
        self._config, self._puts, self._checks, self._sends, self._answers = config, puts, checks, sends, answers

    def put(self, channel: Channel, run: HalfRun) -> bool:
        """Put a run. Returns False if its half messages must be processed one by one."""
        if self._config.broker.reject_transaction_message:
            return False
        added_flags = self._checks.added_flags(channel, run)
        stored = run.half_messages(self._checks.own_properties) if added_flags is not None else None
        if added_flags is None or stored is None:
            return False
        born_host = Host.parse(channel.address)
        halves = WireSends(
            topic=names.TRANS_HALF_TOPIC,
            body=run.data,
            queue_id=0,
            sys_flag=added_flags,
            born_timestamp_ms=0,
            born_host=born_host,
            reconsume_times=0,
            wait_store_msg_ok=True,
            run=run,
            own_properties=b"",
            text=stored.text,
            columns=stored.columns,
            largest_queue_id=0,
            flags_off=flags.TRANSACTION_MASK,
        )
        prepared = [
            PreparedMessage(final, group)
            for final, group in zip(_finals(run, stored.properties, added_flags, born_host), run.groups, strict=True)
        ]
        return self._puts.put(halves, channel, partial(self._stored, channel, halves, prepared), requests=len(run))

    def _stored(
        self,
        channel: Channel,
        halves: WireSends,
        prepared: list[PreparedMessage],
        result: PutMessageResult | None,
        busy: str | None,
    ) -> None:
        run, is_stored = halves.run, result is not None and result.is_stored
        if result is not None and is_stored and result.status is PutMessageStatus.PUT_OK:
            offset_rows = slice(send_columns.QUEUE_OFFSET, send_columns.PHY_OFFSET + 1)
            run.columns[offset_rows] = halves.columns[offset_rows]
            self._sends.stored_halves(halves, prepared, result)
            broker, host = self._config.broker, result.store_host
            if host is not None and (frames := answer_frames(run, broker.region_id, broker.trace_on, host)):
                self._answers.respond(channel, run, ResponseCode.SUCCESS, (frames,), run.topic)
            return
        each = halves.each(result) if result is not None and is_stored else [result] * len(run)
        for request, message, own in zip(split_run(run), prepared, each, strict=True):
            self._sends.stored(_half_send(channel, request, message), own, busy)


def _finals(run: HalfRun, properties: list[bytes], added_flags: int, born_host: Host) -> list[WireMessage]:
    """The final messages of a run's half messages."""
    data, mask = run.data, flags.TRANSACTION_MASK
    finals = []
    for row, encoded in zip(run.rows, properties, strict=True):
        body_at, own_flags = row[send_columns.BODY_AT], row[send_columns.SYS_FLAG] | added_flags
        finals.append(
            WireMessage(
                run.topic,
                data[body_at : body_at + row[send_columns.BODY_LENGTH]],
                row[send_columns.QUEUE_ID],
                own_flags & ~mask | flags.TRANSACTION_COMMIT,
                row[send_columns.BORN_TIMESTAMP],
                born_host,
                row[send_columns.RECONSUME_TIMES],
                False,
                row[send_columns.MESSAGE_FLAG],
                encoded,
            )
        )
    return finals


def _half_send(channel: Channel, request: RemotingCommand, prepared: PreparedMessage) -> Send:
    """A half message of a run that is answered by itself."""
    header = request.read(SendMessageRequestHeaderV2)
    unique_key = read_properties(header.properties).get(PROPERTY_UNIQ_KEY)
    return Send(channel, request, header, header.queue_id, header.topic, unique_key, is_half=True, prepared=prepared)


class TransactionLane:
    """The lane. ``ends`` takes the decisions of a run, ``halves`` its half messages."""

    def __init__(self, halves: HalfSends, ends: EndTransactionProcessor) -> None:
        self._halves, self._ends, self.find = halves, ends, FindTransactionRun()

    def process(self, channel: Channel, run: CommandRun) -> Sequence[RemotingCommand]:
        """Take a run. Returns the requests that must be processed one by one, and the decisions for later.

        Threads of the producer wait for the half messages, and most decisions are one-way.
        """
        if isinstance(run, EndRun):
            return self._ends.run(channel, run)
        if not isinstance(run, TransactionRun):
            return split_run(run)
        if run.ends is not None:
            run.ends.received_s = run.received_s
        if run.halves is None:
            return () if run.ends is None else self._ends.run(channel, run.ends)
        run.halves.received_s = run.received_s
        is_put = self._halves.put(channel, run.halves)
        return [*(() if is_put else split_run(run.halves)), *(() if run.ends is None else (run.ends,))]


def transaction_lane(context: BrokerContext) -> TransactionLane:
    """The lane of a broker."""
    halves = HalfSends(
        context.config, context.storage.puts, run_checks(context), stored_sends(context), context.answers
    )
    return TransactionLane(halves, end_transaction_processor(context))
