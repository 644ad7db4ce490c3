"""The offsets of a stream in Spark's checkpoint: ``{"topic":{"broker":{"0":23}}}``.

``startingOffsets`` takes the same JSON. Checkpoints are long-lived, so this shape stays the same in all releases. Keys
are sorted, because Spark compares offsets as texts.

Beside the topics there is ``"#log":{"broker":{"4096":123}}``, which is not a valid topic name. It has the physical
offsets and fingerprints of one or two records of each store, by which a stream recognizes its log. It may be missing in
a checkpoint of an older release.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gantrymq.errors import ConfigError
from gantrymq.spark.option_texts import LOG
from gantrymq.spark.plan.origin import Marks, Offsets
from gantrymq.spark.selection import QueueKey

Json = dict[str, dict[str, dict[str, int]]]


def to_json(offsets: Offsets, marks: Marks | None = None) -> Json:
    """Offsets and marks as an object for JSON."""
    found: Json = {}
    for key in sorted(offsets, key=lambda key: (key.topic, key.broker, key.queue_id)):
        found.setdefault(key.topic, {}).setdefault(key.broker, {})[str(key.queue_id)] = offsets[key]
    if marks:
        found[LOG] = {
            broker: {str(at): one for at, one in sorted(records.items())} for broker, records in sorted(marks.items())
        }
    return found


def from_json(found: Any) -> Offsets:
    """The offsets in a JSON object. Raises ConfigError if a checkpoint holds something else."""
    with _checkpoint(found):
        return {
            QueueKey(broker, topic, int(queue_id)): int(offset)
            for topic, brokers in found.items()
            if topic != LOG
            for broker, queues in brokers.items()
            for queue_id, offset in queues.items()
        }


def marks_of(found: Any) -> Marks:
    """The fingerprints in a JSON object; empty in a checkpoint of an older release. Raises ConfigError."""
    with _checkpoint(found):
        return {
            broker: {int(at): int(one) for at, one in records.items()} for broker, records in found.get(LOG, {}).items()
        }


@contextmanager
def _checkpoint(found: Any) -> Iterator[None]:
    try:
        yield
    except (AttributeError, TypeError, ValueError) as error:
        allowed = 'offsets as {"topic":{"broker":{"0":23}}}: the checkpoint is of another source, or damaged'
        raise ConfigError("checkpointLocation", f"{found!r:.200}", allowed) from error
