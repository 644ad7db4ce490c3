"""Whether messages are still in memory. A group without an offset begins with a queue's first message if it is there;
a pull of messages that are not is told to ask a slave.

RocketMQ asks the operating system for the first. Here the age of the message decides, in bytes of the log.

Source: DefaultMessageStore.checkInMemByConsumeOffset, DefaultMessageStore.getMessage.
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
    return first is not None and is_in_memory(store, first[0])


def is_in_memory(store: MessageStore, phy_offset: int) -> bool:
    """Whether the message at a physical offset is within accessMessageInMemoryMaxRatio of the machine's memory."""
    hot_bytes = _memory_bytes() * store.config.access_message_in_memory_max_ratio // 100
    return store.max_phy_offset - phy_offset <= hot_bytes


@cache
def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
