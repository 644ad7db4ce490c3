"""The commands over whole stores: verify, rebuild, salvage, export; their JSON and their exit codes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_cases import Run

from gantrymq.format.record import QUEUE_OFFSET_AT
from golden_stores import unpack

DAY = "--begin=2026-01-01", "--end=2027-01-01T00:00:00+00:00"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return unpack("broker-features", tmp_path) / "store"


def damage(store: Path) -> None:
    """Break the fourth record of the log."""
    log = min((store / "commitlog").iterdir())
    with log.open("r+b") as file:
        at = 0
        for _ in range(3):
            file.seek(at)
            at += int.from_bytes(file.read(4), "big")
        file.seek(at + 4)
        file.write(b"\0\0\0\0")


def test_verify_reports_damage_with_exit_code(gantrymq: Run, store: Path) -> None:
    found = gantrymq("store", "verify", store, "--json")
    assert (found.code, found.lines[-1]["kind"], found.lines[-1]["findings"]) == (0, "summary", 0)
    damage(store)
    found = gantrymq("store", "verify", store, "--json")
    assert found.code == 1
    assert {line["kind"] for line in found.lines if line.get("level") == "damage"} == {"length-chain"}
    assert "length-chain" in gantrymq("store", "verify", store).text


def test_rebuild_and_salvage_report_their_results(gantrymq: Run, store: Path, tmp_path: Path) -> None:
    done = gantrymq("store", "rebuild", store, "--json")
    assert (done.code, done.lines[0]["engine"], done.lines[0]["lost"]) == (0, "local", [])
    damage(store)
    done = gantrymq("store", "rebuild", store, "--queues", "--json")
    assert (done.code, done.lines[0]["indexRebuilt"], len(done.lines[0]["lost"])) == (1, False, 1)
    saved = gantrymq("store", "salvage", store, tmp_path / "saved", "--json")
    [lost] = saved.lines[0]["lost"]
    # Which message it was the old queue said; the one that was rebuilt has a filled slot.
    [named] = done.lines[0]["lost"]
    assert (saved.code, lost) == (1, {name: named[name] for name in ("path", "phyOffset", "bytes", "reason")})
    assert {"topic", "queueId", "queueOffset"} < named.keys()
    assert gantrymq("store", "verify", tmp_path / "saved").code == 0


def test_text_of_salvage_names_reason_of_left_out_file(gantrymq: Run, store: Path, tmp_path: Path) -> None:
    first, second, *_ = sorted((store / "commitlog").iterdir())
    shutil.copy(second, first)
    saved = gantrymq("store", "salvage", store, tmp_path / "saved")
    assert saved.code == 1
    assert f"commitlog/{first.name}: it is a copy of another one, or its name is not an offset of the log" in saved.text


def test_repaired_queue_offset_is_not_reported_as_lost(gantrymq: Run, store: Path, tmp_path: Path) -> None:
    """A record whose queue offset alone is wrong is in its queue, and is saved."""
    with min((store / "commitlog").iterdir()).open("r+b") as file:
        at = queue_offset = 0
        while queue_offset < 2:
            file.seek(at)
            head = file.read(QUEUE_OFFSET_AT + 8)
            queue_offset = int.from_bytes(head[QUEUE_OFFSET_AT:], "big")
            place, at = at, at + int.from_bytes(head[:4], "big")
        file.seek(place + QUEUE_OFFSET_AT)
        file.write(b"\x40")
    rebuilt = gantrymq("store", "rebuild", store)
    assert (rebuilt.code, "passed over" in rebuilt.text) == (1, False)
    assert f"at offset {place} of the log, named another queue offset" in rebuilt.text
    assert "1 record that named another physical or " in gantrymq("store", "salvage", store, tmp_path / "saved").text


def test_export_writes_selected_messages(gantrymq: Run, store: Path, tmp_path: Path) -> None:
    done = gantrymq(
        "store", "export", store, tmp_path / "out", "--topic", "NormalVis", *DAY, "--format", "jsonl", "--json"
    )
    assert done.code == 0, done.err
    line = done.lines[0]
    assert list(line) == [
        *("store", "out", "engine", "format", "messages", "files", "fileBytes", "topics", "missingTopics"),
        *("lost", "undecodable", "lostMessages", "repaired", "quarantined", "notCompared", "misfiledQueues"),
    ]
    files = list((tmp_path / "out").rglob("*.jsonl"))
    assert sum(len(path.read_bytes().splitlines()) for path in files) == line["messages"] == line["topics"]["NormalVis"]
    assert len(files) == line["files"]
    again = gantrymq("store", "export", store, tmp_path / "out")
    assert (again.code, "not an empty directory" in again.err) == (3, True)
    assert "NormalVis" in gantrymq("store", "export", store, tmp_path / "people", "--format", "csv").text
    missing = gantrymq("store", "export", store, tmp_path / "none", "--topic", "nowhere")
    assert (missing.code, "no topic nowhere" in missing.err) == (0, True)


@pytest.mark.parametrize(
    "arguments", [("--begin", "yesterday"), ("--from", "3"), ("--format", "orc"), ("--begin", "5", "--end", "5")]
)
def test_export_names_wrong_option(gantrymq: Run, store: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    failed = gantrymq("store", "export", store, tmp_path / "out", *arguments)
    assert (failed.code, failed.err.count("\n")) == (2, 1)
    assert not (tmp_path / "out").exists()
