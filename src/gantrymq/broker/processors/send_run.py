"""Runs of plain sends: validated, stored and answered together.

A run whose sends differ in anything else takes the ordinary path, send by send
(:mod:`gantrymq.broker.processors.send`).

Source: SendMessageProcessor.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from gantrymq.broker import names
from gantrymq.broker.answers import Respond
from gantrymq.broker.appends.put_queue import PutQueue
from gantrymq.broker.appends.send_properties import broker_marks
from gantrymq.broker.appends.wire_messages import SendRun, WireSends
from gantrymq.broker.metrics.meter import BrokerMeter
from gantrymq.broker.processors.send import Refusal, SendMessageProcessor, send_answers, sys_flag
from gantrymq.broker.statistics import BrokerStatsManager
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
from gantrymq.store.put_result import PutMessageResult

_MAX_QUEUES = 64
_SHARE_OF_A_FILE = 256  # a run is written in one piece, so it may leave up to 1/256 of a file empty
_NUMBERS_BYTES = 96  # the size of an answer without its template and UNIQ_KEY: its head and numbers


class SendRunProcessor:
    """Puts runs into ``puts``. ``send`` performs the checks, and answers the errors."""

    def __init__(
        self,
        config: LiveConfig,
        topics: TopicConfigManager,
        puts: PutQueue,
        stats: BrokerStatsManager,
        send: SendMessageProcessor,
        answer: Respond,
        meter: BrokerMeter,
    ) -> None:
        self._config, self._topics, self._puts, self._stats = config, topics, puts, stats
        self._send, self._answer, self._meter = send, answer, meter

    def send_run(self, channel: Channel, run: CommandRun) -> bool:
        """Take a run. Returns False if its sends must be processed one by one."""
        if not isinstance(run, SendRun) or self._topics.get(run.topic) is None:
            return False
        broker = self._config.broker
        marks = broker_marks(broker.region_id, broker.broker_cluster_name, broker.trace_on).encode()
        if not self._is_plain(run, marks):
            return False
        header = SendMessageRequestHeaderV2(
            producer_group="", topic=run.topic, default_topic="", default_topic_queue_nums=0,
            queue_id=run.largest_queue_id, sys_flag=0, born_timestamp=0, flag=0,
        )  # fmt: skip
        try:
            topic = self._send.check(channel, header)
        except Refusal:
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
            marks=marks,
        )
        return self._puts.put(sends, channel, partial(self._stored, channel, sends), requests=len(run))

    def _is_plain(self, run: SendRun, marks: bytes) -> bool:
        store = self._config.store
        return (
            len(run.topic) <= MAX_TOPIC_LENGTH_V1
            and not run.topic.startswith(names.RETRY_PREFIX)
            and run.longest_body_bytes <= store.max_message_size_bytes
            and run.longest_properties_bytes + len(marks) <= MAX_PROPERTIES_LENGTH
            and run.largest_queue_id < _MAX_QUEUES
            and (run.end - run.begin) * _SHARE_OF_A_FILE <= store.mapped_file_size_commit_log
            and not store.enabled_append_prop_crc
        )

    def _stored(self, channel: Channel, sends: WireSends, result: PutMessageResult | None, busy: str | None) -> None:
        run, is_stored = sends.run, result is not None and result.is_stored
        if result is not None and is_stored and result.status is PutMessageStatus.PUT_OK:
            self._stats.put(run.topic, len(run), result.size_bytes, puts=len(run))
            self._meter.stored_run(sends, result)
            broker, host = self._config.broker, result.store_host
            if host is not None and (frames := answer_frames(run, broker.region_id, broker.trace_on, host)):
                self._answer(channel, run, ResponseCode.SUCCESS, (frames,), run.topic)
            return
        each = sends.each(result) if result is not None and is_stored else [result] * len(run)
        for request, one in zip(split_run(run), each, strict=True):
            self._send.stored(channel, request, one, busy)


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
