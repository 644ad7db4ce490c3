"""The analysis of a store counts what a plain loop counts, and its page stands alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gantrymq.clock import ManualClock
from gantrymq.errors import ConfigError, NotAStoreError
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message, StoredMessage
from gantrymq.spark.pipelines import write_analysis
from gantrymq.spark.pipelines.analysis import COLUMNS, StoreAnalysis, of_messages, read_messages
from gantrymq.spark.pipelines.page_rows import page_rows
from gantrymq.spark.pipelines.report import render
from store_cases import NOON_MS, await_dispatch, open_reader, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS = 3_600_000
ODD_TOPIC = "<b>x"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three topics, five hours; one key of ten is everywhere."""
    path, clock = tmp_path_factory.mktemp("analysis") / "broker-a", ManualClock(NOON_MS)
    with open_store(RealFileSystem(), path, clock=clock) as opened:
        for number in range(300):
            topic = ("orders", "orders", "bills", ODD_TOPIC)[number % 4]
            tags, keys = ("paid", "open", "")[number % 3], ["all"] if number % 10 else [f"key-{number}", "all"]
            body = b"x" * (number * 7 % 500)
            opened.put(Message(topic, body, queue_id=number % 3 // 2, tags=tags, keys=keys))
            clock.advance(HOUR_MS // 60)
        await_dispatch(opened)
    return path


@pytest.fixture(scope="module")
def messages(store: Path) -> list[StoredMessage]:
    with open_reader(store) as reader:
        return list(reader.messages())


@pytest.fixture(scope="module")
def analysis(spark: SparkSession, store: Path) -> StoreAnalysis:
    return of_messages(read_messages(spark, str(store)).persist())


@pytest.fixture(scope="module")
def found(analysis: StoreAnalysis) -> dict[str, list[dict[str, Any]]]:
    """The rows of every frame."""
    return {name: frame.toArrow().to_pylist() for name, frame in analysis.frames().items()}


def test_every_frame_counts_right(found: dict[str, list[dict[str, Any]]], messages: list[StoredMessage]) -> None:
    topics = {row["topic"]: row for row in found["topics"]}
    for topic, row in topics.items():
        own = [one for one in messages if one.topic == topic]
        assert (row["messages"], row["bytes"]) == (len(own), sum(one.size_bytes for one in own))
        assert row["largest_bytes"] == max(one.size_bytes for one in own)
        assert row["queues"] == len({one.queue_id for one in own})
        assert row["last"] == datetime.fromtimestamp(max(one.store_timestamp_ms for one in own) / 1000, UTC)
    assert topics.keys() == {"orders", "bills", ODD_TOPIC}
    hours = Counter((one.topic, one.store_timestamp_ms // HOUR_MS) for one in messages)
    assert {
        (row["topic"], row["hour"].timestamp() * 1000 // HOUR_MS): row["messages"] for row in found["hours"]
    } == hours
    tags = Counter((one.topic, one.tags or None) for one in messages)
    assert {(row["topic"], row["tags"]): row["messages"] for row in found["tags"]} == tags
    queues = Counter((one.topic, one.queue_id) for one in messages)
    assert {(row["topic"], row["queue_id"]): row["messages"] for row in found["queues"]} == queues
    keys = Counter((one.topic, key) for one in messages for key in one.keys)
    assert {(row["topic"], row["key"]): row["messages"] for row in found["keys"]}.items() <= keys.items()
    assert found["keys"][0]["key"] == "all"
    largest = sorted(messages, key=lambda one: (-one.size_bytes, one.phy_offset))[:50]
    assert [row["phy_offset"] for row in found["largest"]] == [one.phy_offset for one in largest]
    assert found["disorder"] == []


def test_messages_out_of_order_are_named(spark: SparkSession) -> None:
    moment = datetime(2026, 11, 1, tzinfo=UTC)
    # (queue, its offset, seconds), in the order of the log.
    log = [(0, 0, 0), (0, 1, 1), (1, 5, 1), (0, 1, 2), (0, 5, 3), (0, 4, 4), (1, 6, 0), (1, 7, 0)]
    given = [
        ("orders", "b", queue, offset, None, [], "", moment + timedelta(seconds=seconds), 0, place * 100, 100)
        for place, (queue, offset, seconds) in enumerate(log)
    ]
    disorder = of_messages(spark.createDataFrame(given, COLUMNS)).disorder.collect()
    assert {(row.queue_id, row.kind): (row.times, row.first_phy_offset) for row in disorder} == {
        (0, "offset-repeated"): (1, 300),
        (0, "offset-missing"): (1, 400),
        (0, "offset-back"): (1, 500),
        (1, "time-back"): (1, 600),
    }


def test_analysis_page_loads_nothing_from_network(analysis: StoreAnalysis) -> None:
    page = render("/data/store", page_rows(analysis), "4.3.0")
    assert "300 messages of 3 topics" in page
    assert page.count("<figure") == 4
    assert ODD_TOPIC not in page
    assert "&lt;b&gt;x" in page
    assert re.search(r"(?:^|[ ,])td\b[^{}]*\{ overflow-wrap: anywhere", page, re.MULTILINE), (
        "a long topic is wider than the page"
    )
    assert re.findall(r'(?:src|href)="', re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)) == []


def test_rows_above_page_limit_are_counted(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    # (topic, offset, hour), in the order of the log.
    log = [("a", 0, 0), ("b", 0, 0), ("c", 0, 0), ("a", 1, 1), ("b", 2, 1), ("c", 1, 2), ("a", 5, 3), ("a", 4, 3)]
    hours = [datetime(2026, 11, 1, hour, tzinfo=UTC) for hour in range(4)]
    given = [
        (topic, "b", 0, offset, None, [f"k{place}"], "", hours[hour], 0, place * 100, 100)
        for place, (topic, offset, hour) in enumerate(log)
    ]
    for name, few in (("TOPICS_BY_HOUR", 1), ("_SHOWN", 2), ("_HOURS_SHOWN", 4)):
        monkeypatch.setattr(f"{page_rows.__module__}.{name}", few)
    rows = page_rows(of_messages(spark.createDataFrame(given, COLUMNS).persist()))
    assert [len(rows[name]) for name in ("topics", "keys", "largest", "disorder")] == [2, 2, 2, 2]
    page = render("/data/store", rows, "4.3.0")
    assert "8 messages of 3 topics" in page
    assert page.count("… and 1 more.") == 2  # topics, and queues that are out of order
    assert "offset-missing 2, offset-back 1" in page
    # The fourth row might be the first half of its hour.
    assert [(one["hour"], one["topic"], one["messages"]) for one in rows["hours"]] == [
        (hours[3], "a", 2), (hours[2], None, 1),
    ]  # fmt: skip
    assert "The newest 2 hours with messages; older ones are not shown." in page


def test_store_without_messages_has_page() -> None:
    names = ("topics", "messages", "bytes", "largest_bytes", "compressed", "queues")
    totals: dict[str, Any] = {**dict.fromkeys(names, 0), "first": None, "last": None}
    frames = ("topics", "hours", "tags", "skew", "keys", "largest", "kinds", "disorder")
    page = render("/data/store", {**{name: [] for name in frames}, "totals": [totals]}, "4.3.0")
    assert "0 messages of 0 topics" in page


def test_directory_without_store_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        write_analysis(spark, str(tmp_path), tmp_path / "report.html")


def test_missing_module_is_named_in_error() -> None:
    program = """if True:
        import sys
        sys.modules["vl_convert"] = None
        from gantrymq.spark.pipelines.__main__ import main
        sys.exit(main(["broker-a", "store.html"]))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "gantrymq: the page needs the module vl_convert: pip install 'gantrymq[report]'\n"


def test_failed_start_of_spark_is_named_in_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gantrymq.spark.pipelines", "broker-a", "store.html"]
    environment = os.environ | {"JAVA_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(r"gantrymq: Spark does not start: .*; it needs Java 17 or newer, see JAVA_HOME", last)


def test_option_names_know_no_case(spark: SparkSession, store: Path) -> None:
    """Those that stand for what an analysis has of its own, too; what is given counts."""
    options = {"failondataloss": "true", "VERIFYCRC": "false"}
    assert read_messages(spark, str(store), options).count() == 300
    with pytest.raises(ConfigError, match=r"failOnDataLoss.*perhaps"):
        read_messages(spark, str(store), {"failondataloss": "perhaps"})
