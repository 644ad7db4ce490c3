"""The instruments of a broker, and the calls that measure.

A call looks up the series of a topic, a group or a request code in a dictionary and adds to them: about a microsecond.
The delayed and timer messages are counted on the store's threads, under a lock, and taken over at each snapshot.

Source: BrokerMetricsManager, PopMetricsManager, RemotingMetricsManager, DefaultStoreMetricsManager.
"""

from __future__ import annotations

import re
from collections import Counter as Counts
from collections.abc import Callable, Collection, Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np

from gantrymq.broker import names
from gantrymq.broker.appends.send_runs import WireSends
from gantrymq.broker.metrics import catalog
from gantrymq.broker.metrics.meter import BrokerMeter, ReviveKind
from gantrymq.clock import Clock
from gantrymq.format.pop_checkpoint import PopKey
from gantrymq.kernels import send_columns
from gantrymq.metrics.instruments import Counter, Distribution, Histogram, Metric, Sum
from gantrymq.model.message import (
    PROPERTY_DELAY,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
    TIMER_PROPERTIES,
)
from gantrymq.model.status import PutMessageStatus
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import ONEWAY_FLAG, CommandRun, RemotingCommand
from gantrymq.store.meter import StoreMeter
from gantrymq.store.put_result import PutMessageResult

SCHEDULE_GROUP = "SCHEDULE_CONSUMER"
PROTOCOL = "remoting"
_UNKNOWN = "unknown"
_NORMAL, _FIFO, _DELAY, _TRANSACTION = "normal", "fifo", "delay", "transaction"
# The properties that make the type of a message (BrokerMetricsManager.getMessageType), with their values.
_START_DELIVER_TIME = "__STARTDELIVERTIME"
_MARKS = (
    *(PROPERTY_TRANSACTION_PREPARED, PROPERTY_SHARDING_KEY, _START_DELIVER_TIME, PROPERTY_DELAY),
    *TIMER_PROPERTIES,
)
_TYPE_MARKS = re.compile(rf"(?:^|\x02)({'|'.join(_MARKS)})\x01([^\x02]*)")
# Each mark contains one of these. The search for them takes a tenth of the time of the expression.
_PARTS_OF_MARKS = (PROPERTY_DELAY, "__S", PROPERTY_TRANSACTION_PREPARED, PROPERTY_TIMER_DELIVER_MS)
# The other marks are not in plain sends.
_RUN_MARKS = (PROPERTY_SHARDING_KEY.encode() + b"\x01", _START_DELIVER_TIME.encode() + b"\x01")
# QueryMessageProcessor measures its successful answers itself, without the label is_long_polling.
_WITHOUT_LONG_POLLING = (RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID)
_SIZES = np.array(catalog.MESSAGE_SIZE.buckets)


def message_type(properties: str | None) -> str:
    """RocketMQ's type of a message with these encoded properties."""
    if not properties or not any(part in properties for part in _PARTS_OF_MARKS):
        return _NORMAL
    marks = dict(_TYPE_MARKS.findall(properties))
    if marks.pop(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
        return _TRANSACTION
    if PROPERTY_SHARDING_KEY in marks:
        return _FIFO
    return _DELAY if marks else _NORMAL


def truth(value: bool) -> str:
    """A boolean as the value of a label."""
    return "true" if value else "false"


class _In(NamedTuple):
    """The series of a topic and message type."""

    messages: Sum
    bytes: Sum
    size: Distribution


class _Out(NamedTuple):
    """The series of a group on a topic."""

    messages: Sum
    bytes: Sum


class RecordingMeter(BrokerMeter):
    """Records what is measured, at most ``most`` series of each metric. Also a RequestMeter.

    ``has_group`` says whether a group exists: an acknowledgement may name any.

    Thread rule: the event loop's thread. ``store`` is for the store's threads.
    """

    def __init__(
        self, clock: Clock, is_system_topic: Callable[[str], bool], has_group: Callable[[str], bool], max_series: int
    ) -> None:
        self._now_s, self._is_system_topic, self._has_group = clock.monotonic_s, is_system_topic, has_group
        self.store = StoreEvents()
        self._counters = {
            metric: Counter(metric, max_series)
            for metric in (
                *(catalog.MESSAGES_IN, catalog.MESSAGES_OUT, catalog.THROUGHPUT_IN, catalog.THROUGHPUT_OUT),
                *(catalog.SEND_TO_DLQ, catalog.COMMIT_MESSAGES, catalog.ROLLBACK_MESSAGES),
                *(catalog.TIMER_ENQUEUE, catalog.TIMER_DEQUEUE),
                *(catalog.POP_REVIVE_IN, catalog.POP_REVIVE_OUT, catalog.POP_REVIVE_RETRY),
            )
        }
        self._histograms = {
            metric: Histogram(metric, max_series)
            for metric in (
                *(catalog.MESSAGE_SIZE, catalog.TOPIC_CREATE_TIME, catalog.GROUP_CREATE_TIME),
                *(catalog.FINISH_MESSAGE_LATENCY, catalog.RPC_LATENCY, catalog.DELAY_MESSAGE_LATENCY),
                catalog.POP_BUFFER_SCAN_TIME,
            )
        }
        # The series that requests need, by what the requests have at hand. A series is made of its key alone, so that a
        # label whose value the key lacks cannot be set.
        self._in: dict[tuple[str, str], _In] = {}
        self._out: dict[tuple[str, str, bool | None], _Out] = {}
        self._rpc: dict[tuple[int, int, bool, str], Distribution] = {}

    def instruments(self) -> list[Counter | Histogram]:
        """All instruments, with what the store's threads have measured until now."""
        self._take_store_events()
        return self._instruments()

    def _instruments(self) -> list[Counter | Histogram]:
        return [*self._counters.values(), *self._histograms.values()]

    # Requests

    def received(self, requests: Sequence[RemotingCommand]) -> None:
        """Set ``received_s`` of requests that have arrived."""
        now_s = self._now_s()
        for request in requests:
            request.received_s = now_s

    def answered(self, request: RemotingCommand, code: int, *, is_sent: bool) -> None:
        """Record the answer to a request, or to the requests of a run."""
        took_ms = int((self._now_s() - request.received_s) * 1000)
        sent = "success" if is_sent else "write_channel_failed"
        if isinstance(request, CommandRun):
            oneway = request.oneway_count
            for result, times in ((sent, len(request) - oneway), ("oneway", oneway)):
                if times:
                    self._latency(request, code, result).record(took_ms, times)
            return
        self._latency(request, code, "oneway" if request.flag & ONEWAY_FLAG else sent).record(took_ms)

    def _latency(self, request: RemotingCommand, code: int, result: str) -> Distribution:
        key = (request.code, code, request.is_suspended, result)
        series = self._rpc.get(key)
        if series is None:
            series = self._new_latency(*key)
            if request.code in RequestCode._value2member_map_:  # a client chooses the others
                self._rpc[key] = series
        return series

    def _new_latency(self, request_code: int, code: int, is_suspended: bool, result: str) -> Distribution:
        is_plain = code == ResponseCode.SUCCESS and request_code in _WITHOUT_LONG_POLLING
        return self._histograms[catalog.RPC_LATENCY].series(
            protocol_type=PROTOCOL,
            request_code=_name(RequestCode, request_code),
            response_code=_name(ResponseCode, code),
            is_long_polling=None if is_plain else truth(is_suspended),
            result=result,
        )

    # Messages

    def stored(self, result: PutMessageResult, properties: str | None) -> None:
        """A send was stored."""
        if names.is_retry_or_dlq(result.topic):
            return
        count, into = result.count, self._in_of(result.topic, message_type(properties))
        into.messages.value += count
        into.bytes.value += result.size_bytes
        into.size.record(result.size_bytes // count)

    def stored_run(self, sends: WireSends, result: PutMessageResult) -> None:
        """A run of sends was stored."""
        run = sends.run
        text = run.text.tobytes()
        if any(mark in text for mark in _RUN_MARKS):
            ranges = zip(*run.columns[send_columns.PROPERTIES_AT : send_columns.UNIQUE_AT].tolist(), strict=True)
            for send, (begin, length) in zip(sends.each(result), ranges, strict=True):
                self.stored(send, text[begin : begin + length].decode("utf-8", "replace"))
            return
        sizes = np.diff(run.columns[send_columns.PHY_OFFSET], append=result.end_offset)
        into = self._in_of(result.topic, _NORMAL)
        into.messages.value += len(run)
        into.bytes.value += result.size_bytes
        counts = np.bincount(np.searchsorted(_SIZES, sizes), minlength=len(_SIZES) + 1).tolist()
        into.size.counts = [old + new for old, new in zip(into.size.counts, counts, strict=True)]
        into.size.sum += result.size_bytes

    def _in_of(self, topic: str, kind: str) -> _In:
        key = (topic, kind)
        series = self._in.get(key)
        if series is None:
            is_kept = not self._counters[catalog.MESSAGES_IN].is_full
            series = self._new_in(*key)
            if is_kept:
                self._in[key] = series
        return series

    def _new_in(self, topic: str, kind: str) -> _In:
        labels = {"topic": topic, "message_type": kind, "is_system": truth(self._is_system_topic(topic))}
        messages, size_bytes = self._counters[catalog.MESSAGES_IN], self._counters[catalog.THROUGHPUT_IN]
        sizes = self._histograms[catalog.MESSAGE_SIZE]
        return _In(messages.series(**labels), size_bytes.series(**labels), sizes.series(**labels))

    def got(self, group: str, topic: str, messages: int, size_bytes: int, *, is_retry: bool | None = None) -> None:
        """Messages were delivered to a group."""
        if is_retry is None and names.is_retry_or_dlq(topic):
            return
        out = self._out_of(group, topic, is_retry)
        out.messages.value += messages
        out.bytes.value += size_bytes

    def _out_of(self, group: str, topic: str, is_retry: bool | None) -> _Out:
        key = (group, topic, is_retry)
        series = self._out.get(key)
        if series is None:
            is_kept = not self._counters[catalog.MESSAGES_OUT].is_full
            series = self._new_out(*key)
            if is_kept:
                self._out[key] = series
        return series

    def _new_out(self, group: str, topic: str, is_retry: bool | None) -> _Out:
        labels = {
            "topic": topic,
            "consumer_group": group,
            "is_system": truth(names.is_system_group(group) or self._is_system_topic(topic)),
            "is_retry": None if is_retry is None else truth(is_retry),
        }
        messages, size_bytes = self._counters[catalog.MESSAGES_OUT], self._counters[catalog.THROUGHPUT_OUT]
        return _Out(messages.series(**labels), size_bytes.series(**labels))

    def sent_to_dlq(self, group: str, topic: str) -> None:
        """A consumer gave a message up."""
        is_system = self._is_system_topic(topic) or names.is_system_group(group.upper())
        self._count(catalog.SEND_TO_DLQ, consumer_group=group, topic=topic, is_system=truth(is_system))

    # Transactions

    def committed(self, topic: str, latency_s: int) -> None:
        """A transactional message was committed."""
        self._count(catalog.COMMIT_MESSAGES, topic=topic)
        self._histograms[catalog.FINISH_MESSAGE_LATENCY].series(topic=topic).record(latency_s)

    def rolled_back(self, topic: str) -> None:
        """A transactional message was rolled back."""
        self._count(catalog.ROLLBACK_MESSAGES, topic=topic)

    # POP

    def revive_record_put(self, key: PopKey, kind: ReviveKind, status: PutMessageStatus) -> None:
        """A checkpoint or an acknowledgement was put into the revive topic."""
        self._count(
            catalog.POP_REVIVE_IN,
            consumer_group=self._group(key),
            topic=key.topic,
            revive_message_type=kind.value,
            put_status=status.name,
        )

    def revive_record_read(self, key: PopKey, kind: ReviveKind, queue_id: int) -> None:
        """A checkpoint or an acknowledgement was read from a queue of the revive topic."""
        self._count(
            catalog.POP_REVIVE_OUT,
            consumer_group=self._group(key),
            topic=key.topic,
            queue_id=str(queue_id),
            revive_message_type=kind.value,
        )

    def revived(self, key: PopKey, status: PutMessageStatus) -> None:
        """A message was put into the retry topic of its group."""
        self._count(catalog.POP_REVIVE_RETRY, consumer_group=self._group(key), topic=key.topic, put_status=status.name)

    def _group(self, key: PopKey) -> str:
        return key.group if self._has_group(key.group) else _UNKNOWN

    def buffer_scanned(self, took_ms: int) -> None:
        """The checkpoints in memory were scanned."""
        self._histograms[catalog.POP_BUFFER_SCAN_TIME].series().record(took_ms)

    # Administration

    def topics_updated(self, took_ms: int, *, is_done: bool, is_system: bool) -> None:
        """Topics were created or changed."""
        histogram = self._histograms[catalog.TOPIC_CREATE_TIME]
        histogram.series(invocation_status=_status(is_done), is_system=truth(is_system)).record(took_ms)

    def groups_updated(self, took_ms: int, *, is_done: bool) -> None:
        """Groups were created or changed."""
        self._histograms[catalog.GROUP_CREATE_TIME].series(invocation_status=_status(is_done)).record(took_ms)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Remove the series of deleted topics."""
        self._forget("topic", topics)

    def forget_groups(self, groups: Collection[str]) -> None:
        """Remove the series of deleted groups."""
        self._forget("consumer_group", groups)

    def _forget(self, label: str, values: Collection[str]) -> None:
        self._take_store_events()
        self._in.clear()
        self._out.clear()
        for instrument in self._instruments():
            if label in instrument.metric.labels:
                instrument.forget(label, values)

    def _count(self, metric: Metric, value: int = 1, **labels: str | None) -> None:
        self._counters[metric].series(**labels).value += value

    # The store's threads

    def _take_store_events(self) -> None:
        events = self.store.take()
        for topic, sizes in events.delivered.items():
            into = self._in_of(topic, _DELAY)
            into.messages.value += sizes.value.total
            into.bytes.value += sizes.sum
            into.size.add(sizes)
            out = self._out_of(SCHEDULE_GROUP, names.SCHEDULE_TOPIC, None)
            out.messages.value += sizes.value.total
            out.bytes.value += sizes.sum
        for topic, delays in events.enqueued.items():
            self._count(catalog.TIMER_ENQUEUE, delays.value.total, **catalog.STORE_LABELS, topic=topic)
            self._histograms[catalog.DELAY_MESSAGE_LATENCY].series(**catalog.STORE_LABELS, topic=topic).add(delays)
        for topic, messages in events.dequeued.items():
            self._count(catalog.TIMER_DEQUEUE, messages, **catalog.STORE_LABELS, topic=topic)


class _Events(NamedTuple):
    """What the store's threads have measured since the last snapshot, by topic."""

    delivered: dict[str, Distribution]
    enqueued: dict[str, Distribution]
    dequeued: Counts[str]


class StoreEvents(StoreMeter):
    """Collects what the store's threads measure. Thread rule: any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._events = self._empty()

    @staticmethod
    def _empty() -> _Events:
        return _Events({}, {}, Counts())

    def take(self) -> _Events:
        """Return what was measured since the last call."""
        with self._lock:
            events, self._events = self._events, self._empty()
        return events

    def delivered(self, topic: str, size_bytes: int) -> None:
        """A delayed message was put into its topic."""
        with self._lock:
            sizes = self._events.delivered.setdefault(topic, Distribution(catalog.MESSAGE_SIZE.buckets))
            sizes.record(size_bytes)

    def timer_enqueued(self, topic: str, delay_s: int) -> None:
        """A timer message was scheduled."""
        with self._lock:
            delays = self._events.enqueued.setdefault(topic, Distribution(catalog.DELAY_MESSAGE_LATENCY.buckets))
            delays.record(delay_s)

    def timer_dequeued(self, topic: str, messages: int = 1) -> None:
        """Timer messages of a topic were delivered."""
        with self._lock:
            self._events.dequeued[topic] += messages


def _status(is_done: bool) -> str:
    return "success" if is_done else "failure"


def _name(codes: type[RequestCode] | type[ResponseCode], code: int) -> str:
    """RocketMQ's name of a code in lower case. A client may send any request code, so all others are one."""
    member = codes._value2member_map_.get(code)
    return member.name.lower() if member is not None else _UNKNOWN
