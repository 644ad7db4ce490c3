"""How far a stream is behind its queues, out of a query's progress.

Spark's API for Python sources has no metrics of a source's own, so what Kafka's connector reports as such is worked out
of the two offsets that Spark does report: where the last batch ended, and where the queues ended then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gantrymq.spark.plan.offsets_json import from_json
from gantrymq.spark.plan.origin import Offsets


def offsets_behind(source: Mapping[str, Any]) -> dict[str, float]:
    """Messages that wait, over the queues of one of ``query.lastProgress["sources"]``.

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
    """Spark gives offsets as texts or as objects, by the way one asks."""
    found = json.loads(value) if isinstance(value, str) else value
    return from_json(found) if isinstance(found, dict) else {}
