"""Offsets of a stream as Spark keeps them in its checkpoint: ``{"topic":{"broker":{"0":23}}}``.

It is the JSON that ``startingOffsets`` takes. This shape is kept from release to release: checkpoints live long. Keys
are sorted, for Spark compares offsets as texts.
"""

from __future__ import annotations

from typing import Any

from gantrymq.spark.origin import Offsets
from gantrymq.spark.selection import QueueKey

Json = dict[str, dict[str, dict[str, int]]]


def to_json(offsets: Offsets) -> Json:
    """As an object for JSON."""
    found: Json = {}
    for key in sorted(offsets, key=lambda key: (key.topic, key.broker, key.queue_id)):
        found.setdefault(key.topic, {}).setdefault(key.broker, {})[str(key.queue_id)] = offsets[key]
    return found


def from_json(found: dict[str, Any]) -> Offsets:
    """Back from JSON."""
    return {
        QueueKey(broker, topic, int(queue_id)): int(offset)
        for topic, brokers in found.items()
        for broker, queues in brokers.items()
        for queue_id, offset in queues.items()
    }
