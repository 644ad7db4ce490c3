"""The offsets of a stream in Spark's checkpoint, ``{"topic":{"broker":{"0":23}}}``, and how far a stream is behind.

``startingOffsets`` takes the same JSON. Checkpoints are long-lived, so this shape stays the same in all releases. Keys
are sorted, because Spark compares offsets as texts.

Beside the topics there is ``"#log":{"broker":{"4096":123}}``, which is not a valid topic name. It has the physical
offsets and fingerprints of one or two records of each store, by which a stream recognizes its log. It may be missing in
a checkpoint of an older release.

Spark's API for Python sources has no metrics. The figures that Kafka's connector reports are therefore computed from
the two offsets that Spark does report: the end of the last batch, and the end of the queues at that time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
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


def offsets_behind(source: Mapping[str, Any]) -> dict[str, float]:
    """The number of unread messages, over the queues of one of ``query.lastProgress["sources"]``.

    The names are those of Kafka's connector: ``minOffsetsBehindLatest``, ``maxOffsetsBehindLatest``,
    ``avgOffsetsBehindLatest``, and ``offsetsBehindLatest`` for all queues together. Empty before the first batch.
    """
    ends, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    behind = [max(offset - ends.get(key, 0), 0) for key, offset in latest.items()]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": min(behind),
        "maxOffsetsBehindLatest": max(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
        "offsetsBehindLatest": sum(behind),
    }


def _offsets(value: Any) -> Offsets:
    """Parse offsets, which Spark returns as texts or as objects."""
    found = json.loads(value) if isinstance(value, str) else value
    return from_json(found) if isinstance(found, dict) else {}
