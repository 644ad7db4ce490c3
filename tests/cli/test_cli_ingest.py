"""``store ingest``: each line answered in order and as soon as it is stored, whatever comes in and however it ends."""

from __future__ import annotations

import json
import select
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_cases import Run, start

from gantrymq.model.status import PutMessageStatus
from gantrymq.store.flush_requests import FlushRequest

SMALL = ("--json", "--set", "mappedFileSizeCommitLog=65536", "--set", "maxHashSlotNum=100", "--set", "maxIndexNum=400")
PATIENCE_S = 60


def line(number: int, **more: Any) -> bytes:
    return json.dumps({"topic": "t", "body": f"body {number}", "keys": [f"k{number}"], **more}).encode() + b"\n"


def answer(child: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The next result line, which must come without more input."""
    assert child.stdout is not None
    ready, _, _ = select.select([child.stdout], [], [], PATIENCE_S)
    assert ready, "no answer"
    return json.loads(child.stdout.readline())


def give(child: subprocess.Popen[bytes], data: bytes) -> None:
    assert child.stdin is not None
    child.stdin.write(data)
    child.stdin.flush()


def dumped(gantrymq: Run, store: Path) -> list[dict[str, Any]]:
    outcome = gantrymq("store", "dump", store, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    return [one for one in outcome.lines if one["kind"] == "message"]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_each_line_is_answered_before_next_is_given(gantrymq: Run, tmp_path: Path, flush: str) -> None:
    store = tmp_path / "store"
    with start("store", "ingest", store, *SMALL, "--set", f"flushDiskType={flush}", bufsize=0) as child:
        for number in range(1, 4):
            give(child, line(number))
            result = answer(child)
            assert (result["line"], result["status"], result["queueOffset"]) == (number, "PUT_OK", number - 1)
        give(child, line(4)[:-10])
        give(child, line(4)[-10:])
        assert answer(child)["line"] == 4
        info = gantrymq("store", "info", store, "--json").lines[0]
        assert (info["abort"], info["lockedBy"], info["messages"]) == (True, child.pid, 4)
        out, err = child.communicate(line(5)[:-1], timeout=PATIENCE_S)
    assert (child.returncode, err, json.loads(out)["line"]) == (0, b"", 5)
    assert [one["queueOffset"] for one in dumped(gantrymq, store)] == [0, 1, 2, 3, 4]
    assert gantrymq("store", "info", store, "--json").lines[0]["abort"] is False


BAD_LINES = [
    b"no json",
    b"",
    b"   \r",
    b"[]",
    b'"text"',
    b'{"body":"no topic"}',
    b'{"topic":"t"}',
    b'{"topic":"t","body":null}',
    b'{"topic":7,"body":"x"}',
    b'{"topic":"t","body":7}',
    b'{"topic":"t","body":"x","bodyBase64":"eA=="}',
    b'{"topic":"t","bodyBase64":"no base64"}',
    b'{"topic":"t","body":"x","queueId":-1}',
    b'{"topic":"t","body":"x","queueId":2147483648}',
    b'{"topic":"t","body":"x","queueId":"1"}',
    b'{"topic":"t","body":"x","keys":"k"}',
    b'{"topic":"t","body":"x","keys":[1]}',
    b'{"topic":"t","body":"x","properties":{"a":1}}',
    b'{"topic":"t","body":"x","delayLevel":-1}',
    b'{"topic":"t","body":"x","tag":"unknown field"}',
    b'{"topic":"t","body":"\xff"}',
    b'{"topic":"t","body":"x"',
]
REFUSED: dict[str, list[dict[str, Any]]] = {
    "MESSAGE_ILLEGAL": [
        {"topic": ""},
        {"topic": "a/b"},
        {"topic": ".."},
        {"topic": "t" * 256},
        {"body": "x" * 1001},
        {"properties": {"a": "b\x02c"}},
        {"properties": {"a\x01b": "c"}},
    ],
    "PROPERTIES_SIZE_EXCEEDED": [{"properties": {"a": "b" * 33_000}}, {"keys": ["k" * 200] * 200}],
}


def test_rejected_line_is_reported_and_rest_is_stored(gantrymq: Run, tmp_path: Path) -> None:
    given = tmp_path / "in.jsonl"
    refused = [(status, change) for status, changes in REFUSED.items() for change in changes]
    lines = [
        line(0),
        *(bad + b"\n" for bad in BAD_LINES),
        *(line(1, **change) for _, change in refused),
        line(2, properties=None, tags=None, queueId=None, delayLevel=None),
    ]
    given.write_bytes(b"".join(lines))
    store = tmp_path / "store"
    outcome = gantrymq("store", "ingest", store, given, *SMALL, "--set", "maxMessageSize=1000")
    assert (outcome.code, outcome.err) == (1, "")
    results = outcome.lines
    assert [result["line"] for result in results] == list(range(1, len(lines) + 1))
    assert (results[0]["status"], results[-1]["status"]) == ("PUT_OK", "PUT_OK")
    for result in results[1 : len(BAD_LINES) + 1]:
        assert list(result) == ["line", "status", "error"]
        assert (result["status"], bool(result["error"])) == ("MESSAGE_ILLEGAL", True)
    for result, (status, change) in zip(results[len(BAD_LINES) + 1 : -1], refused, strict=True):
        assert list(result) == ["line", "status", "topic", "queueId", "error"]
        assert (result["status"], result["topic"]) == (status, change.get("topic", "t"))
    assert len(dumped(gantrymq, store)) == 2


def test_rejected_line_is_reported_on_stderr(gantrymq: Run, tmp_path: Path) -> None:
    given = tmp_path / "in.jsonl"
    given.write_bytes(line(1) + b"nonsense\n" + line(2))
    outcome = gantrymq("store", "ingest", tmp_path / "store", given)
    assert outcome.code == 1
    assert "2 messages stored" in outcome.text
    assert "1 line rejected" in outcome.text
    assert outcome.err.startswith("gantrymq: line 2: MESSAGE_ILLEGAL: ")


def test_input_without_line_end_uses_bounded_memory(process: Run, tmp_path: Path) -> None:
    endless = b'{"topic":"t","body":"' + b"x" * (12 << 20) + b'"}'
    store = tmp_path / "store"
    outcome = process("store", "ingest", store, *SMALL, "--set", "maxMessageSize=1000", input=endless + b"\n" + line(2))
    assert [result["status"] for result in outcome.lines] == ["MESSAGE_ILLEGAL", "PUT_OK"]
    assert "too long" in outcome.lines[0]["error"]


def test_ingest_stores_many_lines_over_many_files(gantrymq: Run, tmp_path: Path) -> None:
    given = tmp_path / "in.jsonl"
    count = 3_000
    given.write_bytes(b"".join(line(i, queueId=i % 3, properties={"n": "x" * (i % 50)}) for i in range(count)))
    store = tmp_path / "store"
    outcome = gantrymq("store", "ingest", store, given, *SMALL)
    assert (outcome.code, outcome.err) == (0, "")
    stored = {one["phyOffset"]: one for one in dumped(gantrymq, store)}
    assert len(stored) == count
    for number, result in enumerate(outcome.lines):
        assert result["line"] == number + 1
        one = stored[result["phyOffset"]]
        assert one["properties"]["KEYS"] == f"k{number}"
        assert {name: one[name] for name in result if name not in ("line", "status")} == {
            name: value for name, value in result.items() if name not in ("line", "status")
        }


def test_ingest_stores_delayed_and_plain_lines_read_together(gantrymq: Run, tmp_path: Path) -> None:
    given = tmp_path / "in.jsonl"
    given.write_bytes(line(0) + line(1, delayLevel=99) + line(2) + b"bad\n" + line(3, delayLevel=1))
    outcome = gantrymq("store", "ingest", tmp_path / "store", given, *SMALL)
    assert outcome.code == 1
    places = [(result.get("topic"), result.get("queueId"), result.get("queueOffset")) for result in outcome.lines]
    delayed = "SCHEDULE_TOPIC_XXXX"
    assert places == [("t", 0, 0), (delayed, 17, 0), ("t", 0, 1), (None, None, None), (delayed, 0, 0)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_closes_store(gantrymq: Run, tmp_path: Path, number: int, code: int) -> None:
    store = tmp_path / "store"
    with start("store", "ingest", store, *SMALL, bufsize=0) as child:
        give(child, line(1))
        assert answer(child)["status"] == "PUT_OK"
        child.send_signal(number)
        out, err = child.communicate(timeout=PATIENCE_S)
    assert (child.returncode, out) == (code, b"")
    assert err == b"gantrymq: interrupted after line 1; the store is closed\n"
    assert gantrymq("store", "info", store, "--json").lines[0]["abort"] is False
    assert len(dumped(gantrymq, store)) == 1


def test_killed_ingest_keeps_every_answered_line(gantrymq: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    given = tmp_path / "in.jsonl"
    given.write_bytes(b"".join(line(i, body="x" * 3_000) for i in range(20_000)))
    results = tmp_path / "out.jsonl"
    with results.open("wb") as out, start("store", "ingest", store, given, *SMALL, stdout=out) as child:
        while results.stat().st_size < 50_000:
            assert child.poll() is None
        child.kill()
        child.wait(PATIENCE_S)
    answered = results.read_bytes()
    answered_lines = [json.loads(one) for one in answered[: answered.rindex(b"\n")].splitlines()]
    assert (store / "abort").exists()
    for look in ("before", "recovered"):
        keys = [one["properties"]["KEYS"] for one in dumped(gantrymq, store)]
        assert keys == [f"k{i}" for i in range(len(keys))], look
        assert len(keys) >= len(answered_lines)
        if look == "before":
            assert gantrymq("store", "recover", store, "--json").code == 0


def test_ingest_with_closed_stdout_ends_cleanly(gantrymq: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with start("store", "ingest", store, *SMALL, bufsize=0) as child:
        assert child.stdout is not None
        child.stdout.close()
        give(child, line(1))
        assert child.stderr is not None
        assert (child.wait(PATIENCE_S), child.stderr.read()) == (141, b"")
    assert gantrymq("store", "info", store, "--json").lines[0]["abort"] is False


def test_ingest_of_missing_file_creates_no_store(gantrymq: Run, tmp_path: Path) -> None:
    for given in (tmp_path / "missing.jsonl", tmp_path):
        outcome = gantrymq("store", "ingest", tmp_path / "store", given)
        assert (outcome.code, outcome.err.count("\n")) == (2, 1)
        assert not (tmp_path / "store").exists()


def test_ingest_by_lines_and_in_bulk_writes_same_bytes(gantrymq: Run, process: Run, tmp_path: Path) -> None:
    """One line at a time goes through put, many through put_batch: what is stored is the same."""
    lines = [line(i, tags="A", queueId=i % 2, properties={"b": "2", "a": "1"}) for i in range(20)]
    at_once = tmp_path / "in.jsonl"
    at_once.write_bytes(b"".join(lines))
    assert gantrymq("store", "ingest", tmp_path / "batch", at_once, *SMALL).code == 0
    with start("store", "ingest", tmp_path / "single", *SMALL, bufsize=0) as child:
        for one in lines:
            give(child, one)
            answer(child)
        child.communicate(timeout=PATIENCE_S)
    batch, single = dumped(gantrymq, tmp_path / "batch"), dumped(gantrymq, tmp_path / "single")
    for stored in (*batch, *single):
        del stored["bornTimestamp"], stored["storeTimestamp"]
    assert batch == single
    assert len(batch) == 20


@pytest.mark.parametrize("json", [False, True])
def test_lines_with_flush_timeout_are_stored(
    gantrymq: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, json: bool
) -> None:
    monkeypatch.setattr(FlushRequest, "result", lambda *_: PutMessageStatus.FLUSH_DISK_TIMEOUT)
    given, store = tmp_path / "in.jsonl", tmp_path / "store"
    settings = [*(SMALL if json else SMALL[1:]), "--set", "flushDiskType=SYNC_FLUSH"]
    for lines in (1, 3):  # a message alone, and a batch
        given.write_bytes(b"".join(map(line, range(lines))))
        outcome = gantrymq("store", "ingest", store, given, *settings)
        assert outcome.code == 0
        if json:
            assert [one["status"] for one in outcome.lines] == ["FLUSH_DISK_TIMEOUT"] * lines
        else:
            assert outcome.text.startswith(f"{store}: {lines} message{'s' * (lines > 1)} stored from ")
            assert "rejected" not in outcome.text
            told = "gantrymq: line 1: FLUSH_DISK_TIMEOUT: stored, and perhaps not on the disk yet"
            assert outcome.err.splitlines()[0] == told
    assert len(dumped(gantrymq, store)) == 4
