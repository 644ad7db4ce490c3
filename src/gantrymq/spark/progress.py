"""Derives from a query's progress how far a stream is behind its queues.

Spark's API for Python sources has no metrics. The figures that Kafka's connector reports are therefore computed from
the two offsets that Spark does report: the end of the last batch, and the end of the queues at that time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gantrymq.spark.plan.offsets_json import from_json
from gantrymq.spark.plan.origin import Offsets


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
