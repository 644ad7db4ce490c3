"""The lane for runs of plain sends: found, validated, stored and answered together.

The broker takes a lane once, in its dispatcher. Without it the same sends have the same effects one by one
(:mod:`gantrymq.broker.processors.send`), which is also the path of a run that the lane does not take.

Source: SendMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from gantrymq.broker import names
from gantrymq.broker.answers import Answers
from gantrymq.broker.appends.put_queue import PutQueue
from gantrymq.broker.appends.send_properties import broker_properties
from gantrymq.broker.appends.send_runs import SHARE_OF_A_FILE, FindSendRun, SendRun, WireSends
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.measures import Measures
from gantrymq.broker.processors.send import StoredSends, send_answers, stored_sends
from gantrymq.broker.processors.send_checks import SendChecks
from gantrymq.broker.processors.send_steps import sys_flag
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.format.record import MAX_PROPERTIES_LENGTH, MAX_TOPIC_LENGTH_V1
from gantrymq.kernels import send_columns
from gantrymq.kernels.api import encode_send_answers
from gantrymq.kernels.arrays import Bytes, read_only
from gantrymq.model.host import Host
from gantrymq.model.message import message_id
from gantrymq.model.status import PutMessageStatus
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import CommandRun, RemotingCommand
from gantrymq.remoting.connection import split_run
from gantrymq.remoting.headers.send import SendMessageRequestHeaderV2
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestRefused
from gantrymq.store.put_result import PutMessageResult

_MAX_QUEUES = 64
_NUMBERS_BYTES = 96  # the size of an answer without its template and UNIQ_KEY: its head and numbers


class RunChecks:
    """The checks of a run of sends as a whole, for plain sends and for half messages."""

    def __init__(self, config: LiveConfig, topics: TopicConfigManager, checks: SendChecks) -> None:
        self._config, self._topics, self._checks = config, topics, checks

    @property
    def own_properties(self) -> bytes:
        """The encoded properties that the broker adds to each message."""
        broker = self._config.broker
        return broker_properties(broker.region_id, broker.broker_cluster_name, broker.trace_on).encode()

    def added_flags(self, channel: Channel, run: SendRun) -> int | None:
        """The sysFlag to add to each message. None if the sends must be processed one by one."""
        if self._topics.get(run.topic) is None or not self._is_plain(run):
            return None
        header = SendMessageRequestHeaderV2(
            producer_group="",
            topic=run.topic,
            default_topic="",
            default_topic_queue_nums=0,
            queue_id=run.largest_queue_id,
            sys_flag=0,
            born_timestamp=0,
            flag=0,
        )
        try:
            return sys_flag(header, self._checks.check(channel, header))
        except RequestRefused:
            return None

    def _is_plain(self, run: SendRun) -> bool:
        store = self._config.store
        return (
            len(run.topic) <= MAX_TOPIC_LENGTH_V1
            and not run.topic.startswith(names.RETRY_PREFIX)
            and run.longest_body_bytes <= store.max_message_size_bytes
            and run.longest_properties_bytes + len(self.own_properties) <= MAX_PROPERTIES_LENGTH
            and run.largest_queue_id < _MAX_QUEUES
            and (run.end - run.begin) * SHARE_OF_A_FILE <= store.mapped_file_size_commit_log
            and not store.enabled_append_prop_crc
        )


class SendLane:
    """Puts runs into ``puts``. ``sends`` answers the sends of a run that is not stored as a whole."""

    def __init__(
        self,
        config: LiveConfig,
        puts: PutQueue,
        checks: RunChecks,
        sends: StoredSends,
        measures: Measures,
        answers: Answers,
    ) -> None:
        self._config, self._puts, self._checks = config, puts, checks
        self._sends, self._measures, self._answers = sends, measures, answers
        self.find = FindSendRun()

    def process(self, channel: Channel, run: CommandRun) -> Sequence[RemotingCommand]:
        """Take a run, or return its sends."""
        return () if isinstance(run, SendRun) and self._put(channel, run) else split_run(run)

    def _put(self, channel: Channel, run: SendRun) -> bool:
        added_flags = self._checks.added_flags(channel, run)
        if added_flags is None:
            return False
        sends = WireSends(
            topic=run.topic,
            body=run.data[run.begin : run.end],
            queue_id=int(run.columns[send_columns.QUEUE_ID, 0]),
            sys_flag=added_flags,
            born_timestamp_ms=0,
            born_host=Host.parse(channel.address),
            reconsume_times=0,
            wait_store_msg_ok=True,
            run=run,
            own_properties=self._checks.own_properties,
            text=run.text,
            columns=run.columns,
            largest_queue_id=run.largest_queue_id,
        )
        return self._puts.put(sends, channel, partial(self._stored, channel, sends), requests=len(run))

    def _stored(self, channel: Channel, sends: WireSends, result: PutMessageResult | None, busy: str | None) -> None:
        run, is_stored = sends.run, result is not None and result.is_stored
        if result is not None and is_stored and result.status is PutMessageStatus.PUT_OK:
            self._measures.stored_run(sends, result)
            broker, host = self._config.broker, result.store_host
            if host is not None and (frames := answer_frames(run, broker.region_id, broker.trace_on, host)):
                self._answers.respond(channel, run, ResponseCode.SUCCESS, (frames,), run.topic)
            return
        each = sends.each(result) if result is not None and is_stored else [result] * len(run)
        for request, sent in zip(split_run(run), each, strict=True):
            self._sends.stored_of_run(channel, request, sent, busy)


def answer_frames(run: SendRun, region: str, trace_on: bool, store_host: Host) -> bytes:
    """Encode the answers to the sends of a stored run, except one-way sends."""
    template, ends = _template(region, trace_on, store_host)
    out = np.empty(len(run) * (len(template) + _NUMBERS_BYTES) + run.unique_key_bytes, np.uint8)
    size = encode_send_answers(out, run.columns, run.text, template, ends)
    return out[:size].tobytes()


@lru_cache(maxsize=16)
def _template(region: str, trace_on: bool, store_host: Host) -> tuple[Bytes, NDArray[np.int64]]:
    """The constant pieces of an answer, joined, and the end of each but the last."""
    pieces = send_answers(region, trace_on).pieces(message_id(store_host, 0)[:-16])
    return read_only(b"".join(pieces)), np.cumsum([len(piece) for piece in pieces[:-1]], dtype=np.int64)


def run_checks(context: BrokerContext) -> RunChecks:
    """The checks of a broker."""
    config, topics = context.config, context.tables.topics
    return RunChecks(config, topics, SendChecks(config, context.clock, topics))


def send_lane(context: BrokerContext) -> SendLane:
    """The lane of a broker."""
    return SendLane(
        context.config,
        context.storage.puts,
        run_checks(context),
        stored_sends(context),
        context.measures,
        context.answers,
    )
