"""How far a stream is behind, out of what Spark reports."""

from __future__ import annotations

import json

from gantrymq.spark import offsets_behind


def test_progress_reports_offsets_behind() -> None:
    latest = {"orders": {"a": {"0": 10, "1": 7}, "b": {"0": 5}}}
    end = {"orders": {"a": {"0": 10, "1": 3}}}
    wanted = {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 5,
        "avgOffsetsBehindLatest": 3.0,
        "offsetsBehindLatest": 9,
    }
    assert offsets_behind({"endOffset": end, "latestOffset": latest}) == wanted
    assert offsets_behind({"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)}) == wanted
    assert offsets_behind({"endOffset": latest, "latestOffset": latest})["offsetsBehindLatest"] == 0
    assert offsets_behind({"endOffset": None, "latestOffset": None}) == {}
