"""Puts checkpoints and acknowledgements into the revive topic, by way of the timers.

Thread rule: the event loop's thread.

Source: PopMessageProcessor.buildCkMsg, AckMessageProcessor.appendAck, EscapeBridge.putMessageToSpecificQueue.
"""

from __future__ import annotations

from collections.abc import Callable

from gantrymq.broker import names
from gantrymq.broker.appends.put_queue import OVERLOAD, PutQueue
from gantrymq.broker.metrics.meter import BrokerMeter, ReviveKind
from gantrymq.broker.pop.records import ack_message, checkpoint_message
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.format.pop_checkpoint import PopAck, PopCheckpoint, PopKey
from gantrymq.model.host import Host
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.log.appendable import AppendableMessage
from gantrymq.store.put_result import PutMessageResult
from gantrymq.store.timer.timed_message import set_timer
from gantrymq.store.timer.timer_service import TimerMessageService

# Called with the end of the record in the log and None, or with -1 and the reason why it is not stored.
Stored = Callable[[int, str | None], None]


class ReviveLog:
    """The revive topic of this cluster. ``timers`` is None with timerWheelEnable=false; every put then fails."""

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        topics: TopicConfigManager,
        puts: PutQueue,
        timers: TimerMessageService | None,
        host: Host,
        meter: BrokerMeter,
    ) -> None:
        self._config, self._clock, self._topics, self._meter = config, clock, topics, meter
        self._puts, self._timers, self.host = puts, timers, host
        self.topic = names.REVIVE_TOPIC_PREFIX + config.broker.broker_cluster_name

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
        self._put(message, point.key, ReviveKind.CHECKPOINT, stored)

    def put_ack(self, ack: PopAck, queue_id: int, deliver_ms: int, stored: Stored) -> None:
        """Put an acknowledgement that is due at ``deliver_ms``. ``stored`` is called once, possibly at once."""
        message = ack_message(ack, self.topic, queue_id, deliver_ms, self._clock.now_ms(), self.host)
        self._put(message, ack.key, ReviveKind.ACK, stored)

    def _put(self, message: Message, key: PopKey, kind: ReviveKind, stored: Stored) -> None:
        if self._timers is None:
            stored(-1, "timerWheelEnable is false")
            return
        status = set_timer(message, self._config.store, self._clock.now_ms(), self._timers.is_rejected)
        if status is not PutMessageStatus.PUT_OK:
            self._meter.revive_put(key, kind, status)
            stored(-1, status.value)
            return

        def done(result: PutMessageResult | None, busy: str | None) -> None:
            status = result.status if result is not None else PutMessageStatus.SERVICE_NOT_AVAILABLE
            self._meter.revive_put(key, kind, status)
            if result is None:
                stored(-1, busy)
            elif result.is_stored:
                stored(result.end_offset, None)
            else:
                stored(-1, result.status.value)

        if not self._puts.put(AppendableMessage(message), key, done):
            self._meter.revive_put(key, kind, PutMessageStatus.SERVICE_NOT_AVAILABLE)
            stored(-1, OVERLOAD)
