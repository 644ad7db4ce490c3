"""Offsets of a stream as Spark keeps them in its checkpoint: ``{"topic":{"broker":{"0":23}}}``.

It is the JSON that ``startingOffsets`` takes. This shape is kept from release to release: checkpoints live long. Keys
are sorted, for Spark compares offsets as texts.

Beside the topics stands ``"#log":{"broker":{"4096":123}}``, which no topic can be called: for each store the physical
offsets of one or two records and their fingerprints, by which a stream knows its log again. A checkpoint without it is
as good as before.
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
    """As an object for JSON."""
    found: Json = {}
    for key in sorted(offsets, key=lambda key: (key.topic, key.broker, key.queue_id)):
        found.setdefault(key.topic, {}).setdefault(key.broker, {})[str(key.queue_id)] = offsets[key]
    if marks:
        found[LOG] = {
            broker: {str(at): one for at, one in sorted(records.items())} for broker, records in sorted(marks.items())
        }
    return found


def from_json(found: Any) -> Offsets:
    """Back from JSON; raises ConfigError where a checkpoint holds something else."""
    with _checkpoint(found):
        return {
            QueueKey(broker, topic, int(queue_id)): int(offset)
            for topic, brokers in found.items()
            if topic != LOG
            for broker, queues in brokers.items()
            for queue_id, offset in queues.items()
        }


def marks_of(found: Any) -> Marks:
    """The fingerprints in an offset; none in a checkpoint of an older release. Raises ConfigError as above."""
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
