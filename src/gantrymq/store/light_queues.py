"""Light queues: their units point to records of other topics, which name them in a property.

RocketMQ writes them with enableLmq, at the side of a record's own queue; nothing here puts a unit into one.

Source: ConsumeQueue.multiDispatchLmqQueue, MixAll.isLmq.
"""

from __future__ import annotations

from collections.abc import Mapping

from gantrymq.model.java import LONG_MAX, parse_number
from gantrymq.model.message import PROPERTY_INNER_MULTI_DISPATCH, PROPERTY_INNER_MULTI_QUEUE_OFFSET

_PREFIX = "%LMQ%"
_SEPARATOR = ","


def is_light(topic: str) -> bool:
    """Whether the queue of this topic is a light one; it has the queue id 0."""
    return topic.startswith(_PREFIX)


def light_offset(properties: Mapping[str, str], topic: str) -> int | None:
    """The offset of a record with these properties in the light queue ``topic``; None where it does not name it."""
    names, offsets = (
        properties.get(name, "").split(_SEPARATOR)
        for name in (PROPERTY_INNER_MULTI_DISPATCH, PROPERTY_INNER_MULTI_QUEUE_OFFSET)
    )
    try:
        return parse_number(dict(zip(names, offsets, strict=True))[topic], LONG_MAX)
    except (KeyError, ValueError):
        return None
