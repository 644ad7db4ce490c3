"""Which timer messages of a promoted slave its former master has delivered, or put into the timer topic again.

A message that rolls is in the timer topic twice: the older record says nothing of it. So all records that have rolled
are read, once the first message is met that has waited long enough to have rolled.

Thread rule: as :class:`gantrymq.store.timer.timer_service.TimerMessageService`.
"""

from __future__ import annotations

from gantrymq.model.java import INT_MAX, parse_number
from gantrymq.model.message import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_ROLL_TIMES,
    PROPERTY_UNIQ_KEY,
    TIMER_TOPIC,
    StoredMessage,
)
from gantrymq.store.former_deliveries import FormerDeliveries
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.queue.consume_queues import ConsumeQueues
from gantrymq.store.timer.timed_message import due_ms

_UNITS_A_READ = 1_024
_Rolled = tuple[int, int, str, str, int, int | None]


class FormerTimers:
    """What a former master has done with timer messages, according to the log."""

    def __init__(self, former: FormerDeliveries, log: CommitLog, queues: ConsumeQueues) -> None:
        self._former, self._log, self._queues = former, log, queues
        self._rolled: set[_Rolled] | None = None

    def has_delivered(self, message: StoredMessage, due: int, settled_ms: int, window_ms: int) -> bool:
        """Whether a record of the timer topic need not be delivered. All before ``settled_ms`` was counted."""
        queue_id = _number(message.properties.get(PROPERTY_REAL_QUEUE_ID, ""))
        if (due - message.store_timestamp_ms) * 2 >= window_ms and self._has_rolled(message):  # in doubt, look
            return True
        if due > self._former.log_ms or queue_id < 0:
            return False
        queue = message.properties[PROPERTY_REAL_TOPIC], queue_id
        return self._former.take(message, queue, after=message.phy_offset, due_ms=due, since_ms=settled_ms)

    def _has_rolled(self, message: StoredMessage) -> bool:
        if self._rolled is None:
            self._rolled = self._read_rolled()
        return _identity(message, _rolls(message) + 1) in self._rolled

    def _read_rolled(self) -> set[_Rolled]:
        rolled: set[_Rolled] = set()
        queue = self._queues.get(TIMER_TOPIC, 0)
        at = queue.min_offset if queue is not None else 0
        while queue is not None and at < queue.max_offset:
            units = list(queue.units(at, min(queue.max_offset - at, _UNITS_A_READ)))
            if not units:
                break
            for phy_offset, size, _ in units:
                record = self._log.read(phy_offset, size)
                if record is not None and _rolls(record):
                    rolled.add(_identity(record, _rolls(record)))
            at += len(units)
        return rolled


def _rolls(message: StoredMessage) -> int:
    return max(_number(message.properties.get(PROPERTY_TIMER_ROLL_TIMES, "0")), 0)


def _identity(message: StoredMessage, rolls: int) -> _Rolled:
    properties = message.properties
    unique_key, topic = properties.get(PROPERTY_UNIQ_KEY, ""), properties.get(PROPERTY_REAL_TOPIC, "")
    return message.born_timestamp_ms, message.body_crc, unique_key, topic, rolls, due_ms(message)


def _number(text: str) -> int:
    """The number in ``text``; -1 if there is none."""
    try:
        return parse_number(text, INT_MAX)
    except ValueError:
        return -1
