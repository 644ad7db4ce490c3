"""The shapes that design.md's contract and docs/cli.md promise, on small stores made by ``ingest`` itself."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cli_cases import Run, tree

from gantrymq.clock import ManualClock
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from store_cases import open_store

MESSAGE_FIELDS = (
    "kind topic queueId queueOffset phyOffset size tagsCode flag sysFlag bornTimestamp bornHost storeTimestamp "
    "storeHost reconsumeTimes preparedTransactionOffset bodyCRC properties bodyLength bodySha256 msgId"
).split()
REPORT_FIELDS = (
    "store dryRun lastExitOk rule startOffset queuesMaxPhyOffset minPhyOffset maxPhyOffset stopReason cutBytes "
    "removedFiles queueUnitsCut queueUnitsAdded queuesDestroyed indexFilesDropped indexEntriesAdded "
    "scannedBytes problems lost lostMessages repaired quarantined shortQueues filledSlots expiredMessages "
    "notCompared consumersAhead misfiledQueues stepsMs totalMs"
).split()
SMALL = ("--set", "mappedFileSizeCommitLog=65536", "--set", "maxHashSlotNum=100", "--set", "maxIndexNum=400")


def ingest(gantrymq: Run, store: Path, messages: list[dict[str, Any]], *settings: str) -> list[dict[str, Any]]:
    given = store.with_suffix(".jsonl")
    given.write_text("".join(json.dumps(message) + "\n" for message in messages))
    outcome = gantrymq("store", "ingest", store, given, "--json", *SMALL, *settings)
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.lines


@pytest.fixture
def store(gantrymq: Run, tmp_path: Path) -> Path:
    """Two topics: orders with queues 0 (12 messages) and 1 (3), payments with queue 0 (5)."""
    path = tmp_path / "store"
    queues = [("orders", 0, 12), ("payments", 0, 5), ("orders", 1, 3)]
    messages = [
        {"topic": topic, "queueId": queue_id, "body": f"{topic}-{queue_id}-{i}", "keys": ["all", f"k{i}"], "tags": "A"}
        for topic, queue_id, count in queues
        for i in range(count)
    ]
    ingest(gantrymq, path, messages)
    return path


def test_message_line_has_exactly_given_fields(gantrymq: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    body = bytes(range(256))
    given = {
        "topic": "orders",
        "queueId": 3,
        "bodyBase64": base64.b64encode(body).decode(),
        "tags": "TagA",
        "keys": ["k1", "ключ"],
        "properties": {"region": "nord", "名": "值"},
    }
    results = ingest(gantrymq, store, [given, {"topic": "orders", "body": "später", "delayLevel": 3}])
    assert [list(result) for result in results] == [
        ["line", "status", "topic", "queueId", "phyOffset", "queueOffset", "msgId"]
    ] * 2
    assert [result["line"] for result in results] == [1, 2]
    lines = gantrymq("store", "dump", store, "--json").lines
    assert lines[0] == {"kind": "store", "minPhyOffset": 0, "maxPhyOffset": lines[0]["maxPhyOffset"], "loaded": True}
    assert lines[1:3] == [
        {"kind": "queue", "topic": "SCHEDULE_TOPIC_XXXX", "queueId": 2, "minOffset": 0, "maxOffset": 1},
        {"kind": "queue", "topic": "orders", "queueId": 3, "minOffset": 0, "maxOffset": 1},
    ]
    delayed, plain = lines[3:]
    assert list(plain) == MESSAGE_FIELDS
    assert plain["properties"] == {"region": "nord", "名": "值", "TAGS": "TagA", "KEYS": "k1 ключ"}
    assert (plain["bodyLength"], plain["bodySha256"]) == (256, sha256(body).hexdigest())
    assert (plain["bornHost"], plain["storeHost"]) == ("127.0.0.1:0", "127.0.0.1:10911")
    assert delayed["properties"] == {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "0"}
    assert delayed["tagsCode"] == delayed["storeTimestamp"] + 10_000
    for result, line in zip(results, (plain, delayed), strict=True):
        same = ("topic", "queueId", "phyOffset", "queueOffset", "msgId")
        assert {name: result[name] for name in same} == {name: line[name] for name in same}


@pytest.mark.parametrize(
    ("filters", "queues", "bodies"),
    [
        ([], 3, 20),
        (["--topic", "orders"], 2, 15),
        (["--topic", "orders", "--queue", "0"], 1, 12),
        (["--queue", "0"], 2, 17),
        (["--topic", "orders", "--queue", "0", "--from", "4", "--max", "5"], 1, 5),
        (["--topic", "orders", "--from", "2"], 2, 11),
        (["--max", "13"], 3, 13),
        (["--max", "0"], 3, 0),
        (["--from", "100"], 3, 0),
        (["--topic", "none"], 0, 0),
    ],
)
def test_dump_options_select_records(gantrymq: Run, store: Path, filters: list[str], queues: int, bodies: int) -> None:
    outcome = gantrymq("store", "dump", store, "--json", *filters)
    assert outcome.code == 0
    whole = gantrymq("store", "dump", store, "--json").lines
    kinds = [line["kind"] for line in outcome.lines]
    assert kinds == ["store"] + ["queue"] * queues + ["message"] * bodies
    assert all(line in whole for line in outcome.lines)
    if "--from" in filters:
        least = int(filters[filters.index("--from") + 1])
        assert all(line["queueOffset"] >= least for line in outcome.lines[1 + queues :])


def test_dump_names_unit_without_record(gantrymq: Run, store: Path) -> None:
    """Its queue is behind the log's start file, so that a recovery does not look at the record: it is told."""
    ingest(gantrymq, store, [{"topic": "later", "body": "x" * 40_000} for _ in range(4)])
    before = gantrymq("store", "dump", store, "--json").lines
    victim = next(line for line in before if line["kind"] == "message" and line["topic"] == "payments")
    first = store / "commitlog" / "00000000000000000000"
    data = bytearray(first.read_bytes())
    data[victim["phyOffset"] + 4] ^= 0xFF
    first.write_bytes(data)
    outcome = gantrymq("store", "dump", store, "--json")
    assert outcome.code == 1
    place = {name: victim[name] for name in ("topic", "queueId", "queueOffset", "phyOffset")}
    assert outcome.lines == [{"kind": "unreadable", **place} if line == victim else line for line in before]
    text = gantrymq("store", "dump", store)
    assert (text.code, text.text.count("unreadable")) == (1, 1)
    answers = gantrymq("store", "query", store, "payments", "k0", "--json").lines
    assert answers == [{"phyOffset": victim["phyOffset"], "readable": False}]


def test_query_returns_messages_of_key_newest_first(gantrymq: Run, store: Path) -> None:
    messages = [line for line in gantrymq("store", "dump", store, "--json").lines if line["kind"] == "message"]
    orders = sorted((line for line in messages if line["topic"] == "orders"), key=lambda line: -line["phyOffset"])
    assert gantrymq("store", "query", store, "orders", "all", "--json").lines == orders
    assert gantrymq("store", "query", store, "orders", "all", "--json", "--max", "4").lines == orders[:4]
    assert gantrymq("store", "query", store, "orders", "T#A", "--json").lines == orders
    nothing = gantrymq("store", "query", store, "orders", "nothing", "--json")
    assert (nothing.code, nothing.out) == (0, b"")
    past = orders[-1]["storeTimestamp"] - 10_000
    assert gantrymq("store", "query", store, "orders", "all", "--json", "--end", past).lines == []


def test_query_compares_store_time_of_index(gantrymq: Run, tmp_path: Path) -> None:
    clock = ManualClock(now_ms=1_700_000_000_123)
    with open_store(RealFileSystem(), tmp_path / "store", clock=clock) as made:
        made.put(Message("t", b"first", keys=["another"]))
        clock.advance(1_900)  # the second lies a second behind the begin of the file, says its entry
        stored_at = clock.now_ms()
        made.put(Message("t", b"second", keys=["k"]))

    def found(*window: object) -> bool:
        outcome = gantrymq("store", "query", tmp_path / "store", "t", "k", "--json", *window)
        assert outcome.code == 0
        return [line["storeTimestamp"] for line in outcome.lines] == [stored_at]

    assert [found("--begin", stored_at - early) for early in (999, 900, 899, 0)] == [True, True, False, False]
    assert [found("--end", stored_at - early) for early in (0, 900, 901, 1000)] == [True, True, False, False]


def test_query_returns_64_messages_by_default(gantrymq: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    ingest(gantrymq, store, [{"topic": "t", "body": str(i), "keys": ["same"]} for i in range(100)])
    assert len(gantrymq("store", "query", store, "t", "same", "--json").lines) == 64
    assert len(gantrymq("store", "query", store, "t", "same", "--json", "--max", "1000").lines) == 100
    assert len(gantrymq("store", "query", store, "t", "same", "--json", "--set", "maxMsgsNumBatch=7").lines) == 7


def test_at_returns_first_offset_of_time(gantrymq: Run, store: Path) -> None:
    messages = gantrymq("store", "dump", store, "--json", "--topic", "orders", "--queue", "0").lines[2:]
    for timestamp in (0, messages[0]["storeTimestamp"], messages[-1]["storeTimestamp"] + 1):
        after = [line["queueOffset"] for line in messages if line["storeTimestamp"] >= timestamp]
        expected = {"topic": "orders", "queueId": 0, "timestamp": timestamp, "queueOffset": after[0] if after else 12}
        outcome = gantrymq("store", "at", store, "orders", "0", timestamp, "--json")
        assert (outcome.code, outcome.lines, outcome.err) == (0, [expected], "")
    missing = gantrymq("store", "at", store, "orders", "9", "5", "--json")
    assert (missing.code, missing.lines[0]["queueOffset"]) == (0, 0)
    assert missing.err.startswith("gantrymq: warning: ")


def test_info_has_documented_fields(gantrymq: Run, store: Path) -> None:
    info = gantrymq("store", "info", store, "--json").lines[0]
    checkpoint = info.pop("checkpoint")
    assert list(checkpoint) == [
        *("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp"),
        *("masterFlushedOffset", "confirmPhyOffset", "logicsPhysicalOffset"),
    ]
    assert checkpoint["physicMsgTimestamp"] > 0
    end = info["maxPhyOffset"]
    assert info.pop("problems") == []
    assert info == {
        "store": str(store),
        "minPhyOffset": 0,
        "maxPhyOffset": end,
        "abort": False,
        "lockedBy": None,
        "fileSizes": {"mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 6_000_000, "index": 8440},
        "files": {"commitLog": 1, "consumeQueue": 3, "index": 1},
        "topics": 2,
        "queues": 3,
        "messages": 20,
        "bytes": end,
    }


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (b"", "zeros"),
        (b"\x00\x00\x01\x00\xda\xa3\x20\xa7", "half a record"),
        (b"\x00\x00\x00\x30\xda\xa3\x20\xa7", "half a record"),
        (b"\x00\x00\x01\x00\x0a\xa3\x20\xa8", "magic code aa320a8"),
        (b"\x00\x00\x01\x00\xff\xff\xff\xff", "magic code ffffffff"),
        (b"\x7f\xff\xff\xff\xda\xa3\x20\xa7", "size 2147483647"),
        (b"\x80\x00\x00\x00\xda\xa3\x20\xab", "size -2147483648"),
        (b"\x00\x00\x00\x00\xda\xa3\x20\xa7", "size 0"),
    ],
)
def test_log_names_reason_of_its_end(gantrymq: Run, store: Path, change: bytes, reason: str) -> None:
    end = gantrymq("store", "info", store, "--json").lines[0]["maxPhyOffset"]
    log = store / "commitlog" / "00000000000000000000"
    with log.open("r+b") as file:
        file.seek(end)
        file.write(change)
    before = tree(store)
    lines = gantrymq("store", "log", store, "--json").lines
    assert lines[-1] == {"kind": "end", "phyOffset": end, "reason": reason}
    assert [line["kind"] for line in lines[:-1]] == ["message"] * 20
    assert list(lines[0]) == [*MESSAGE_FIELDS[:6], "version", "crcOk", *MESSAGE_FIELDS[7:]]
    second = lines[1]["phyOffset"]
    assert gantrymq("store", "log", store, "--json", "--from", second).lines == lines[1:]
    assert gantrymq("store", "log", store, "--json", "--from", end).lines == lines[-1:]
    amid = gantrymq("store", "log", store, "--json", "--from", second + 1).lines
    assert [(line["kind"], line["phyOffset"]) for line in amid] == [("end", second + 1)]
    assert tree(store) == before


def test_log_names_end_of_each_file(gantrymq: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    ingest(gantrymq, store, [{"topic": "t", "body": "x" * 30_000} for _ in range(4)])
    lines = gantrymq("store", "log", store, "--json").lines
    assert [line["kind"] for line in lines] == ["message"] * 2 + ["blank"] + ["message"] * 2 + ["end"]
    assert lines[2]["size"] == 65536 - lines[2]["phyOffset"]
    (store / "commitlog" / "00000000000000065536").unlink()
    end = gantrymq("store", "log", store, "--json").lines[-1]
    assert end == {"kind": "end", "phyOffset": 65536, "reason": "end of log"}
    (store / "commitlog" / "00000000000000000000").unlink()
    assert gantrymq("store", "log", store, "--json").lines == [{"kind": "end", "phyOffset": 0, "reason": "end of log"}]


def test_record_filling_its_file_is_listed(gantrymq: Run, tmp_path: Path) -> None:
    """No store writes this; one that does has lost its blank."""
    store = tmp_path / "store"
    ingest(gantrymq, store, [{"topic": "t", "body": "x" * 30_000}, {"topic": "t", "body": "y" * 30_000}])
    log = store / "commitlog" / "00000000000000000000"
    end = gantrymq("store", "info", store, "--json").lines[0]["maxPhyOffset"]
    log.write_bytes(log.read_bytes()[:end])
    lines = gantrymq("store", "log", store, "--json").lines
    assert lines[-1] == {"kind": "end", "phyOffset": end, "reason": "end of file without a blank"}


def test_recover_reports_its_changes(gantrymq: Run, store: Path) -> None:
    outcome = gantrymq("store", "recover", store, "--json")
    assert (outcome.code, outcome.err, len(outcome.lines)) == (0, "", 1)
    report = outcome.lines[0]
    assert list(report) == REPORT_FIELDS
    assert report["lastExitOk"] is True
    assert (report["cutBytes"], report["queueUnitsCut"], report["stopReason"]) == (0, 0, "zeros")
    assert list(report["stepsMs"]) == [
        *("open", "recoverConsumeQueue", "recoverCommitLog", "truncateDirtyFiles", "recoverTopicQueueTable", "close")
    ]


def test_settings_are_read_from_file_and_set_options(gantrymq: Run, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\nmappedFileSizeCommitLog=131072\nmaxIndexNum = 500\nnoSuchKey=1\n")
    given = tmp_path / "in.jsonl"
    given.write_text('{"topic":"t","body":"b","tags":"a"}\n')
    outcome = gantrymq(
        "store", "ingest", tmp_path / "s", given, "--json", "-c", conf, "--set", "maxHashSlotNum=10",
        "--set", "maxIndexNum=20", "--set", "brokerIP1=10.1.2.3", "--set", "listenPort=80",
    )  # fmt: skip
    assert outcome.code == 0
    assert [line.split(" ")[2] for line in outcome.err.splitlines()] == ["noSuchKey"]  # brokerName acts in a broker
    assert all(line.startswith("gantrymq: warning: ") for line in outcome.err.splitlines())
    assert outcome.lines[0]["msgId"].startswith("0A01020300000050")
    info = gantrymq("store", "info", tmp_path / "s", "--json").lines[0]
    assert (info["fileSizes"]["mappedFileSizeCommitLog"], info["fileSizes"]["index"]) == (131072, 40 + 10 * 4 + 20 * 20)
