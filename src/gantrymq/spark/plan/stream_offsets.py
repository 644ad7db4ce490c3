"""The offsets of a stream in Spark's checkpoint, ``{"topic":{"broker":{"0":23}}}``, and how far a stream is behind.

``startingOffsets`` takes the same JSON. Checkpoints are long-lived, so this shape stays the same in all releases. Keys
are sorted, because Spark compares offsets as texts.

Beside the topics there is ``"#log":{"broker":{"4096":123}}``, which is not a valid topic name. It has the physical
offsets and fingerprints of one or two records of each store, by which a stream recognizes its log. It may be missing in
a checkpoint of an older release.

Spark asks for the first offset of a query more than once, and again at a restart inside the first batch, when no
checkpoint has it. The first answer is valid for the life of the query, so the end of the first batch has it as
``"#start"``, with its own ``"#log"``. An answer to initialOffset has ``"#start": null``, which no checkpoint has: it is
a start that the end of its batch may correct.

Spark's API for Python sources has no metrics. The figures that Kafka's connector reports are therefore computed from
the two offsets that Spark does report: the end of the last batch, and the end of the queues at that time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from gantrymq.errors import ConfigError
from gantrymq.spark.option_texts import LOG, START
from gantrymq.spark.plan.origin import Marks, Offsets
from gantrymq.tools.queue_key import QueueKey

Json = dict[str, dict[str, dict[str, int]]]


def to_json(offsets: Offsets, marks: Marks | None = None) -> Json:
    """Offsets and marks as an object for JSON."""
    document: Json = {}
    for key in sorted(offsets, key=lambda key: (key.topic, key.broker, key.queue_id)):
        document.setdefault(key.topic, {}).setdefault(key.broker, {})[str(key.queue_id)] = offsets[key]
    if marks:
        document[LOG] = {
            broker: {str(at): mark for at, mark in sorted(records.items())} for broker, records in sorted(marks.items())
        }
    return document


def from_json(document: Any) -> Offsets:
    """The offsets in a JSON object. Raises ConfigError if a checkpoint holds something else."""
    with _checkpoint(document):
        return {
            QueueKey(broker, topic, int(queue_id)): int(offset)
            for topic, brokers in document.items()
            if topic not in (LOG, START)
            for broker, queues in brokers.items()
            for queue_id, offset in queues.items()
        }


def marks_of(document: Any) -> Marks:
    """The fingerprints in a JSON object; empty in a checkpoint of an older release. Raises ConfigError."""
    with _checkpoint(document):
        return {
            broker: {int(at): int(mark) for at, mark in records.items()}
            for broker, records in document.get(LOG, {}).items()
        }


def first(document: Json) -> dict[str, Any]:
    """Mark offsets as an answer to initialOffset."""
    return {**document, START: None}


def is_first(document: Mapping[str, Any]) -> bool:
    """Whether these offsets are an answer to initialOffset, not from a checkpoint."""
    return document.get(START, False) is None


def end_of_first(start: Mapping[str, Any], end: Mapping[str, Any]) -> dict[str, Any]:
    """The end of a first batch, with the batch's start; without it if nothing lies between them."""
    bare = {key: value for key, value in end.items() if key != START}
    if from_json(start) == from_json(end):
        return bare
    return {**bare, START: {key: value for key, value in start.items() if key != START}}


def start_of_batch(start: dict[str, Any], end: Mapping[str, Any]) -> dict[str, Any]:
    """The start of a batch: the first answer if ``end`` has it and ``start`` is a later one."""
    first = end.get(START) if is_first(start) else None
    return start if first is None else cast("dict[str, Any]", first)


@contextmanager
def _checkpoint(document: Any) -> Iterator[None]:
    try:
        yield
    except (AttributeError, TypeError, ValueError) as error:
        allowed = 'offsets as {"topic":{"broker":{"0":23}}}: the checkpoint is of another source, or damaged'
        raise ConfigError("checkpointLocation", f"{document!r:.200}", allowed) from error


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
    document = json.loads(value) if isinstance(value, str) else value
    return from_json(document) if isinstance(document, dict) else {}
