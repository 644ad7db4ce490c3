"""Delayed messages: those of SCHEDULE_TOPIC_XXXX after the offsets in ``config/delayOffset.json``.

Source: ScheduleMessageService.
"""

from __future__ import annotations

from collections.abc import Iterator

from gantrymq.format.queue_ext import is_address
from gantrymq.kernels import codes
from gantrymq.model.message import SCHEDULE_TOPIC
from gantrymq.tools.pending.rules import destination
from gantrymq.tools.pending.waiting import PendingKind, PendingMessage, WaitingTopics

_STEP = "Reading delayed messages"


def delayed_messages(topics: WaitingTopics) -> Iterator[PendingMessage]:
    """Yield the messages of each level that are not delivered yet.

    The messages of a level that is not in messageDelayLevel are never delivered. They are yielded too.
    """
    levels_ms, now_ms = topics.store_reader.config.delay_levels_ms, topics.now_ms
    for queue in topics.queues(SCHEDULE_TOPIC.__eq__):
        delay_ms = levels_ms[queue.queue_id] if queue.queue_id < len(levels_ms) else 0
        for waiting in topics.of_queue(queue, topics.committed("", queue), _STEP):
            due_ms = waiting.tags_code
            if is_address(due_ms):  # the extended unit, which had the deliver time, no longer exists
                due_ms = waiting.record.row[codes.STORE_TIMESTAMP] + delay_ms
            elif delay_ms and due_ms > now_ms + delay_ms:
                due_ms = now_ms  # a deliver time later than the level allows is invalid: it is delivered at once
            to = destination(waiting.record.properties)
            if to is None or topics.store_reader.is_deleted(to.topic, waiting.phy_offset):
                topics.pass_over()
                continue
            yield PendingMessage(PendingKind.DELAY, *to, due_ms, None, SCHEDULE_TOPIC, waiting.phy_offset)
