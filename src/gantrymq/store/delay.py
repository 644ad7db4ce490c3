"""Delayed messages: they wait in SCHEDULE_TOPIC_XXXX, queue = level - 1, until they are due.

The tags code of a unit there is the deliver time in milliseconds. ``config/delayOffset.json`` has how far each level is
delivered. It is written at intervals and only covers durable deliveries, so after a crash a message may be delivered
again, but is never lost. (RocketMQ writes it at any time: a power cut may take a delivery that the file covers.) A
promoted slave finds the deliveries of its former master in the log. A message that its topic refuses permanently is
skipped with a warning; otherwise no message after it would be delivered.

Thread rule: one runner calls ``step``. ``offsets`` is read from its thread only.

Source: ScheduleMessageService.
"""

from __future__ import annotations

import logging
from typing import Any

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.names import DELAY_OFFSET, is_topic_storable
from gantrymq.format.queue_entry import QueueEntry
from gantrymq.format.queue_ext import is_address
from gantrymq.model.java import INT_MAX, LONG_MAX, parse_number
from gantrymq.model.message import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    SCHEDULE_TOPIC,
    StoredMessage,
    message_for_queue,
)
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.config_files import ConfigFile, table_problems
from gantrymq.store.delivery import Delivery
from gantrymq.store.opening import StoreParts
from gantrymq.store.queue.consume_queue import ConsumeQueue

_ENTRIES_A_STEP = 256
_REFUSED_FOR_GOOD = (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
_LOGGER = logging.getLogger(__name__)


class ScheduleMessageService:
    """Delivers messages that are due.

    A message whose topic was deleted since is not delivered: it would create the topic's queues again.
    ``has_caught_up`` says whether all that was due was delivered once since the start.
    """

    name = "ScheduleMessageService"
    interval_ms = 100

    def __init__(self, parts: StoreParts, config: MessageStoreConfig, delivery: Delivery) -> None:
        self._log, self._queues, self._deleted = parts.log, parts.queues, parts.deleted
        self._delay_levels_ms = config.delay_levels_ms
        self.config = config
        self._put, self._is_durable, self._meter = delivery.put, delivery.is_durable, delivery.meter
        self._former = delivery.former
        self._file = ConfigFile(parts.fs, parts.paths.config / DELAY_OFFSET)
        self._saved_ms = 0
        self.offsets = self._load()
        self._dirty = self.has_caught_up = False
        # offsets to save once the log is durable up to the first number
        self._waiting: tuple[int, dict[int, int]] | None = None

    def _load(self) -> dict[int, int]:
        """Return the saved offset of each level, limited to the range of its queue (correctDelayOffset)."""
        saved = self._file.load()
        self._version: dict[str, Any] | None = saved.get("dataVersion")
        for problem in table_problems(DELAY_OFFSET, saved):
            _LOGGER.warning("%s: %s; it is corrected or ignored", self._file.path, problem)
        table = saved.get("offsetTable", {})
        offsets: dict[int, int] = {}
        for text, offset in table.items() if isinstance(table, dict) else ():
            level = _number(text)
            if level >= 0 and type(offset) is int:
                queue = self._queues.get(SCHEDULE_TOPIC, level - 1)
                bounds = (queue.min_offset, queue.max_offset) if queue else (0, LONG_MAX)
                offsets[level] = min(max(offset, bounds[0]), bounds[1])
        return offsets

    def step(self, now_ms: int) -> bool:
        """Deliver due messages, a limited number of each level. Returns True if more are due."""
        more = False
        for level, delay_ms in enumerate(self._delay_levels_ms, start=1):
            queue = self._queues.get(SCHEDULE_TOPIC, level - 1)
            if queue is not None:
                more |= self._deliver(level, delay_ms, queue, now_ms)
        if not 0 <= now_ms - self._saved_ms < self.config.flush_delay_offset_interval_ms:  # the clock may be set back
            self._save(now_ms)
        self.has_caught_up |= not more
        return more

    def drain(self) -> None:
        """Save the offsets; the log is flushed already. Messages that are not due wait for the next start."""
        self._save(self._saved_ms)  # offsets that waited for the log
        self._save(self._saved_ms)  # offsets of later deliveries

    def _deliver(self, level: int, delay_ms: int, queue: ConsumeQueue, now_ms: int) -> bool:
        offset = min(max(self.offsets.get(level, 0), queue.min_offset), queue.max_offset)
        units = queue.entries(offset, min(queue.max_offset - offset, _ENTRIES_A_STEP))
        for unit in units.tolist():
            entry = QueueEntry(*unit)
            due_ms = queue.tags_code(entry.tags_code)
            if is_address(due_ms):  # the address of an extended unit that is gone
                due_ms = self._log.pickup_store_timestamp(entry.phy_offset, entry.size_bytes) + delay_ms
            # A deliver time later than the level allows is invalid: deliver now.
            if now_ms < due_ms <= now_ms + delay_ms:
                return False
            message = self._log.read(entry.phy_offset, entry.size_bytes)
            if message is not None and not self._put_due(message, min(due_ms, message.store_timestamp_ms + delay_ms)):
                return False
            offset += 1
            self.offsets[level] = offset
            self._dirty = True
        return offset < queue.max_offset and len(units) > 0

    def _put_due(self, message: StoredMessage, due_ms: int) -> bool:
        """Store the message in its real topic. Returns False if that must be retried.

        A message without a valid real topic, refused by it, or delivered by a former master, is skipped.
        """
        topic = message.properties.get(PROPERTY_REAL_TOPIC, "")
        queue_id = _number(message.properties.get(PROPERTY_REAL_QUEUE_ID, ""))
        if not is_topic_storable(topic) or queue_id < 0:
            return True
        if self._has_delivered(message, (topic, queue_id), due_ms):
            return True
        due = message_for_queue(message, topic, queue_id, message.properties)
        with self._deleted.guard:
            if self._deleted.is_deleted(topic, message.phy_offset, message.body):
                text = "the delayed message at offset %d is not delivered, because its topic %s was deleted"
                _LOGGER.info(text, message.phy_offset, topic)
                return True
            result = self._put(due)
        if result.status in _REFUSED_FOR_GOOD:
            text = "the delayed message at offset %d is not delivered to %s, and stays where it is: %s"
            _LOGGER.warning(text, message.phy_offset, topic, result.status.value)
            return True
        if result.is_stored:
            self._meter.delivered(topic, result.size_bytes)
        return result.is_stored

    def _has_delivered(self, message: StoredMessage, queue: tuple[str, int], due_ms: int) -> bool:
        """Whether a former master has delivered the message."""
        former = self._former
        if former is None or due_ms > former.log_ms:
            return False
        return former.take(message, queue, after=message.phy_offset, due_ms=due_ms, since_ms=due_ms)

    def _save(self, now_ms: int) -> None:
        """Save the offsets once the log is durable up to the deliveries that they cover."""
        if self._waiting is None and self._dirty:
            self._waiting, self._dirty = (self._log.wrote_offset, dict(self.offsets)), False
        if self._waiting is None or not self._is_durable(self._waiting[0]):
            return
        if self._version is None:
            self._version = {"counter": 0, "stateVersion": 0, "timestamp": now_ms}
        self._file.save({"dataVersion": self._version, "offsetTable": dict(sorted(self._waiting[1].items()))})
        self._saved_ms = now_ms
        self._waiting = None


def _number(text: str) -> int:
    """Return the number that ``text`` represents, or -1 if it is not a number."""
    try:
        return parse_number(text, INT_MAX)
    except ValueError:
        return -1
