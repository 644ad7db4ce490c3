"""The stores of the real broker land as Java reads them: every message once, in every format."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest

from gantrymq.tables.local.target import TableFormat
from gantrymq.tables.options import LandOptions
from gantrymq.tables.selection import TopicChoice
from golden_stores import NAMES, unpack
from tables.landing_cases import FORMATS, Lake, Row, by_java, land

_CHOICE = TopicChoice(pattern=".*")


def wanted(folder: Path) -> dict[tuple[str, int, int], Row]:
    return {name: row for name, row in by_java(folder).items() if _CHOICE.chooses(name[0])}


@pytest.mark.parametrize("name", NAMES)
def test_golden_store_lands_each_message_of_java_once(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    lake = Lake(tmp_path, TableFormat.DELTA)
    _, summary = land(lake, folder / "store", commit_rows=700)
    messages = lake.messages()
    landed = {message[:3] for message in messages}
    assert len(landed) == len(messages) == summary.totals.rows
    named = set(lake.audited())
    assert not landed & named
    assert wanted(folder).keys() <= landed | named
    assert summary.totals.missing == len(named)
    assert land(lake, folder / "store")[1].commits == 0


@pytest.mark.parametrize("kind", FORMATS)
def test_columns_equal_fields_of_message(kind: TableFormat, tmp_path: Path) -> None:
    folder = unpack("broker-features", tmp_path)
    lake = Lake(tmp_path, kind)
    (commit,), _ = land(lake, folder / "store")
    java = wanted(folder)
    rows = {(row["topic"], row["queue_id"], row["queue_offset"]): row for row in lake.rows()}
    assert rows.keys() == java.keys()
    for name, row in rows.items():
        stated = java[name]
        properties = dict(stated["properties"])
        assert dict(row["properties"]) == properties
        assert row["msg_id"] == stated["msgId"]
        assert row["tags"] == properties.get("TAGS")
        assert row["keys"] == properties.get("KEYS", "").split()
        assert row["broker"] == "broker-features"
        assert row["generation"] == 0
        assert row["store_timestamp"].timestamp() * 1000 == pytest.approx(stated["storeTimestamp"], abs=0.01)
        assert row["born_timestamp"].timestamp() * 1000 == pytest.approx(stated["bornTimestamp"], abs=0.01)
        if not stated["sysFlag"] & 1:
            assert sha256(row["body"]).hexdigest() == stated["bodySha256"]
    ends = dict(commit.state.positions()["broker-features"].items())
    assert ends == {
        topic: {str(queue): 1 + max(name[2] for name in java if name[:2] == (topic, queue)) for _, queue in queues}
        for topic, queues in _queues(java).items()
    }


def _queues(java: dict[tuple[str, int, int], Row]) -> dict[str, set[tuple[str, int]]]:
    queues: dict[str, set[tuple[str, int]]] = {}
    for topic, queue, _ in java:
        queues.setdefault(topic, set()).add((topic, queue))
    return queues


def test_damaged_message_is_named_with_its_location(tmp_path: Path) -> None:
    folder = unpack("bad-crc", tmp_path)
    lake = Lake(tmp_path, TableFormat.PARQUET)
    _, summary = land(lake, folder / "store", commit_rows=500)
    assert not summary.is_clean
    (finding,) = lake.rows("__audit")
    assert (finding["topic"], finding["queue_id"], finding["from_offset"], finding["to_offset"]) == (
        "orders",
        3,
        194,
        194,
    )
    assert finding["phy_end"] > finding["phy_offset"] > 0
    assert finding["reason"] == "crc"
    assert land(lake, folder / "store")[1].is_clean
    assert len(lake.rows("__audit")) == 1


def test_dead_letters_land_with_original_topic(tmp_path: Path) -> None:
    folder = unpack("broker-features", tmp_path)
    lake = Lake(tmp_path, TableFormat.PARQUET)
    land(lake, folder / "store", LandOptions(topics=("ForDlqVis",), retries=True, dlq=True))
    landed = Counter((row["topic"], row["origin_topic"]) for row in lake.rows())
    assert landed == {("ForDlqVis", "ForDlqVis"): 3, ("%DLQ%cg-dlq-Vis", "ForDlqVis"): 3}


def test_pattern_takes_no_system_topic_and_name_takes_any(tmp_path: Path) -> None:
    folder = unpack("broker-features", tmp_path)
    everything, delayed = Lake(tmp_path / "a", TableFormat.PARQUET), Lake(tmp_path / "b", TableFormat.PARQUET)
    land(everything, folder / "store")
    assert {row["topic"] for row in everything.rows()} == {
        *("NormalVis", "OrderedVis", "BatchVis", "CompressedVis", "DelayVis", "TxVis", "TimerVis", "ForDlqVis")
    }
    land(delayed, folder / "store", LandOptions(topics=("SCHEDULE_TOPIC_XXXX",)))
    assert len(delayed.rows()) == 25
