"""The lane for runs of plain sends: found, validated, stored and answered together.

The broker takes a lane once, in its dispatcher. Without it the same sends have the same effects one by one
(:mod:`gantrymq.broker.processors.send`), which is also the path of a run that the lane does not take.

Source: SendMessageProcessor.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from gantrymq.broker import names
from gantrymq.broker.answers import Answers
from gantrymq.broker.appends.put_queue import PutQueue
from gantrymq.broker.appends.send_properties import broker_properties
from gantrymq.broker.appends.send_runs import FindSendRun, SendRun, WireSends
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
from gantrymq.remoting.command import CommandRun
from gantrymq.remoting.connection import split_run
from gantrymq.remoting.headers.send import SendMessageRequestHeaderV2
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestRefused
from gantrymq.store.put_result import PutMessageResult

_MAX_QUEUES = 64
_SHARE_OF_A_FILE = 256  # a run is written in one piece, so it may leave up to 1/256 of a file empty
_NUMBERS_BYTES = 96  # the size of an answer without its template and UNIQ_KEY: its head and numbers


class SendLane:
    """Puts runs into ``puts``. ``sends`` answers the sends of a run that is not stored as a whole."""

    def __init__(
        self,
        config: LiveConfig,
        topics: TopicConfigManager,
        puts: PutQueue,
        checks: SendChecks,
        sends: StoredSends,
        measures: Measures,
        answers: Answers,
    ) -> None:
        self._config, self._topics, self._puts, self._checks = config, topics, puts, checks
        self._sends, self._measures, self._answers = sends, measures, answers
        self.find = FindSendRun()

    def process(self, channel: Channel, run: CommandRun) -> bool:
        """Take a run. Returns False if its sends must be processed one by one."""
        if not isinstance(run, SendRun) or self._topics.get(run.topic) is None:
            return False
        broker = self._config.broker
        own_properties = broker_properties(broker.region_id, broker.broker_cluster_name, broker.trace_on).encode()
        if not self._is_plain(run, own_properties):
            return False
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
            topic = self._checks.check(channel, header)
        except RequestRefused:
            return False
        sends = WireSends(
            topic=run.topic,
            body=run.data[run.begin : run.end],
            queue_id=int(run.columns[send_columns.QUEUE_ID, 0]),
            sys_flag=sys_flag(header, topic),
            born_timestamp_ms=0,
            born_host=Host.parse(channel.address),
            reconsume_times=0,
            wait_store_msg_ok=True,
            run=run,
            own_properties=own_properties,
        )
        return self._puts.put(sends, channel, partial(self._stored, channel, sends), requests=len(run))

    def _is_plain(self, run: SendRun, own_properties: bytes) -> bool:
        store = self._config.store
        return (
            len(run.topic) <= MAX_TOPIC_LENGTH_V1
            and not run.topic.startswith(names.RETRY_PREFIX)
            and run.longest_body_bytes <= store.max_message_size_bytes
            and run.longest_properties_bytes + len(own_properties) <= MAX_PROPERTIES_LENGTH
            and run.largest_queue_id < _MAX_QUEUES
            and (run.end - run.begin) * _SHARE_OF_A_FILE <= store.mapped_file_size_commit_log
            and not store.enabled_append_prop_crc
        )

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


def send_lane(context: BrokerContext) -> SendLane:
    """The lane of a broker."""
    config, topics = context.config, context.tables.topics
    return SendLane(
        config,
        topics,
        context.storage.puts,
        SendChecks(config, context.clock, topics),
        stored_sends(context),
        context.measures,
        context.answers,
    )
