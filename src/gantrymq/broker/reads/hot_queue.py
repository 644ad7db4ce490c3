"""Whether a queue's first message is still in memory: then a group without an offset begins with it.

RocketMQ asks the operating system. Here the age of the message decides, in bytes of the log.

Source: DefaultMessageStore.checkInMemByConsumeOffset.
"""

from __future__ import annotations

import os
from functools import cache

from gantrymq.store.message_store import MessageStore


def begins_in_memory(store: MessageStore, topic: str, queue_id: int) -> bool:
    """Whether a queue has its first message, and it is new enough to be in memory."""
    if store.min_offset_in_queue(topic, queue_id) > 0:
        return False
    first = store.lookup.unit_at(topic, queue_id, 0)
    return first is not None and store.max_phy_offset - first[0] <= _hot_bytes()


@cache
def _hot_bytes() -> int:
    """The most bytes of the log that count as in memory: 40 % of the machine's memory.

    RocketMQ's setting is accessMessageInMemoryMaxRatio.
    """
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 2 // 5
