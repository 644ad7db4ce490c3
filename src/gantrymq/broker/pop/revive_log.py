"""Puts checkpoints and acknowledgements into the revive topic, by way of the timers.

A consumer acknowledges each message of a pop by a request of its own. The obvious way is a record for each of them, and
that is what RocketMQ puts. Each record then passes the timers and the revive service. But these requests arrive
together, so the acknowledgements of a pop that arrive in one iteration of the event loop become one record, as
RocketMQ writes for a batch acknowledgement (``bAck``). Each request is answered once that record is stored.

Thread rule: the event loop's thread.

Source: PopMessageProcessor.buildCkMsg, AckMessageProcessor.appendAck, EscapeBridge.putMessageToSpecificQueue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from gantrymq.broker import names
from gantrymq.broker.metrics.meter import BrokerMeter, ReviveKind
from gantrymq.broker.pop.records import ack_message, checkpoint_message
from gantrymq.broker.refusals import OVERLOAD
from gantrymq.broker.storage import Storage
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.format.pop_checkpoint import MAX_MESSAGES, PopAck, PopCheckpoint, PopKey
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.log.appendable import AppendableMessage
from gantrymq.store.put_result import PutMessageResult
from gantrymq.store.timer.timed_message import set_timer

# Called with the end of the record in the log and None, or with -1 and the reason why it is not stored.
Stored = Callable[[int, str | None], None]


class _AckRecord(NamedTuple):
    """What the acknowledgements of one record have in common."""

    key: PopKey
    queue_id: int
    deliver_ms: int


@dataclass(slots=True)
class _Acks:
    """The acknowledgements of a record that is not put yet."""

    offsets: list[int] = field(default_factory=list)
    is_batch: bool = False
    stored: list[Stored] = field(default_factory=list)
    requests: int = 1


class ReviveLog:
    """The revive topic of this cluster. Without timers (timerWheelEnable=false) every put fails."""

    def __init__(
        self, config: LiveConfig, clock: Clock, storage: Storage, topics: TopicConfigManager, meter: BrokerMeter
    ) -> None:
        self._config, self._clock, self._topics, self._meter = config, clock, topics, meter
        self._puts, self._timers, self.host = storage.puts, storage.store.timers, storage.store.store_host
        self.topic = names.REVIVE_TOPIC_PREFIX + config.broker.broker_cluster_name
        self._acks: dict[_AckRecord, _Acks] = {}

    @property
    def has_timers(self) -> bool:
        """Whether the timers are on, so that checkpoints are delivered at their time."""
        return self._timers is not None

    @property
    def queues(self) -> int:
        """The number of queues that are read: those of the topic, and those that reviveQueueNum asks for."""
        topic = self._topics.get(self.topic)
        return max(self._config.broker.revive_queue_num, topic.read_queue_nums if topic is not None else 0)

    def put_checkpoint(self, point: PopCheckpoint, queue_id: int, stored: Stored) -> None:
        """Put a checkpoint. ``stored`` is called once, possibly at once."""
        message = checkpoint_message(point, self.topic, queue_id, self._clock.now_ms(), self.host)
        self._put(message, point.key, ReviveKind.CHECKPOINT, 1, stored)

    def put_ack(self, ack: PopAck, queue_id: int, deliver_ms: int, stored: Stored) -> None:
        """Put an acknowledgement that is due at ``deliver_ms``. ``stored`` is called once, possibly at once."""
        self._put_record(_AckRecord(ack.key, queue_id, deliver_ms), _Acks(list(ack.offsets), ack.is_batch, [stored]))

    def join_ack(self, ack: PopAck, queue_id: int, deliver_ms: int, stored: Stored, *, requests: int = 1) -> None:
        """As :meth:`put_ack`, in one record with the others of the same pop that come in this iteration of the loop.

        ``requests`` is the number of requests that it comes from.
        """
        record = _AckRecord(ack.key, queue_id, deliver_ms)
        if not self._acks:
            self._puts.before_append(self.put_acks)
        acks = self._acks.setdefault(record, _Acks(requests=0))
        acks.offsets += ack.offsets
        acks.is_batch |= ack.is_batch
        acks.stored.append(stored)
        acks.requests += requests
        if len(acks.offsets) >= MAX_MESSAGES:
            self._put_record(record, self._acks.pop(record))

    def put_acks(self) -> None:
        """Put the acknowledgements that wait for others."""
        while self._acks:
            self._put_record(*self._acks.popitem())

    def _put_record(self, record: _AckRecord, acks: _Acks) -> None:
        def stored(log_end: int, reason: str | None) -> None:
            for on_stored in acks.stored:
                on_stored(log_end, reason)

        offsets = tuple(dict.fromkeys(acks.offsets))
        ack = PopAck(record.key, offsets, acks.is_batch or len(offsets) > 1)
        now_ms = self._clock.now_ms()
        message = ack_message(ack, self.topic, record.queue_id, record.deliver_ms, now_ms, self.host)
        self._put(message, record.key, ReviveKind.ACK, acks.requests, stored)

    def _put(self, message: Message, key: PopKey, kind: ReviveKind, requests: int, stored: Stored) -> None:
        if self._timers is None:
            stored(-1, "timerWheelEnable is false")
            return
        status = set_timer(message, self._config.store, self._clock.now_ms(), self._timers.is_rejected)
        if status is not PutMessageStatus.PUT_OK:
            self._meter.revive_record_put(key, kind, status)
            stored(-1, status.value)
            return

        def done(result: PutMessageResult | None, busy: str | None) -> None:
            status = result.status if result is not None else PutMessageStatus.SERVICE_NOT_AVAILABLE
            self._meter.revive_record_put(key, kind, status)
            if result is None:
                stored(-1, busy)
            elif result.is_stored:
                stored(result.end_offset, None)
            else:
                stored(-1, result.status.value)

        if not self._puts.put(AppendableMessage(message), key, done, requests=requests):
            self._meter.revive_record_put(key, kind, PutMessageStatus.SERVICE_NOT_AVAILABLE)
            stored(-1, OVERLOAD)
