"""The golden stores on the command line: what RocketMQ wrote is shown as RocketMQ reads it, and no byte changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_cases import Run, jsonl, tree

from golden_stores import NAMES

Golden = Callable[[str], Path]


def expected(folder: Path) -> list[dict[str, object]]:
    """What a recovery without commitLogRecoverMaxNum, which loses messages, must leave."""
    full = folder / "expected-all.jsonl"
    return jsonl(full if full.exists() else folder / "expected.jsonl")


@pytest.mark.parametrize("name", NAMES)
def test_dump_shows_what_java_recovers_before_any_recovery(gantrymq: Run, golden: Golden, name: str) -> None:
    folder = golden(name)
    before = tree(folder)
    outcome = gantrymq("store", "dump", folder / "store", "--json")
    assert outcome.lines == expected(folder)
    assert (outcome.code, outcome.err) == (0, "")
    assert tree(folder) == before


@pytest.mark.parametrize("name", NAMES)
def test_dump_after_recover_shows_messages_of_java(
    gantrymq: Run, golden: Golden, golden_copy: Golden, name: str
) -> None:
    store = golden_copy(name)
    plan = gantrymq("store", "recover", store, "--dry-run", "--json").lines[0]
    outcome = gantrymq("store", "recover", store, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    done = outcome.lines[0]
    assert (plan.pop("dryRun"), done.pop("dryRun")) == (True, False)
    for report in (plan, done):
        assert all(took_ms >= 0 for took_ms in report.pop("stepsMs").values())
        assert report.pop("totalMs") > 0
    assert plan == done
    assert gantrymq("store", "dump", store, "--json").lines == expected(golden(name))
    assert gantrymq("store", "info", store, "--json").lines[0]["abort"] is False


@pytest.mark.parametrize("command", ["dump", "recover"])
def test_recover_with_limit_of_java_has_its_result(
    gantrymq: Run, golden: Golden, golden_copy: Golden, command: str
) -> None:
    store = golden_copy("lost-queues-many-files")
    as_java = ("--set", "commitLogRecoverMaxNum=10", "--json")
    outcome = gantrymq("store", command, store, *as_java)
    assert outcome.code == 0
    shown = outcome if command == "dump" else gantrymq("store", "dump", store, "--json")
    assert shown.lines == jsonl(golden("lost-queues-many-files") / "expected.jsonl")


@pytest.mark.parametrize("name", NAMES)
def test_log_lists_records_in_physical_order(gantrymq: Run, golden: Golden, name: str) -> None:
    folder = golden(name)
    before = tree(folder)
    outcome = gantrymq("store", "log", folder / "store", "--json")
    assert outcome.lines == jsonl(folder / "commitlog.jsonl")
    assert (outcome.code, outcome.err) == (0, "")
    assert tree(folder) == before


@pytest.mark.parametrize("name", NAMES)
def test_java_query_answers_are_prefix_of_ours(gantrymq: Run, golden: Golden, name: str) -> None:
    folder = golden(name)
    before = tree(folder)
    records = {line["phyOffset"]: line for line in jsonl(folder / "commitlog.jsonl") if line["kind"] == "message"}
    end = expected(folder)[0]["maxPhyOffset"]
    for question, answers in json.loads((folder / "queries.json").read_text()).items():
        topic, _, key = question.partition("|")
        outcome = gantrymq("store", "query", folder / "store", topic, key, "--raw", "--json")
        assert outcome.code == 0
        assert [line["phyOffset"] for line in outcome.lines][: len(answers)] == answers
        for line in outcome.lines:
            record = records.get(line["phyOffset"]) if line["phyOffset"] < end else None
            if record is None:
                assert line == {"phyOffset": line["phyOffset"], "readable": False}
            else:
                line.pop("tagsCode", None)
                assert line == {name: value for name, value in record.items() if name not in ("version", "crcOk")}
    assert tree(folder) == before


@pytest.mark.parametrize("name", NAMES)
def test_info_agrees_with_dump(gantrymq: Run, golden: Golden, name: str) -> None:
    folder = golden(name)
    before = tree(folder)
    lines = expected(folder)
    queues = [line for line in lines if line["kind"] == "queue"]
    outcome = gantrymq("store", "info", folder / "store", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    info = outcome.lines[0]
    assert info["minPhyOffset"] == lines[0]["minPhyOffset"]
    assert info["maxPhyOffset"] == lines[0]["maxPhyOffset"]
    assert info["bytes"] == info["maxPhyOffset"] - info["minPhyOffset"]
    assert info["messages"] == sum(line["kind"] == "message" for line in lines)
    assert info["queues"] == len(queues)
    assert info["topics"] == len({queue["topic"] for queue in queues})
    assert info["abort"] is (folder / "store" / "abort").exists()
    about = json.loads((folder / "about.json").read_text())["config"]
    assert info["fileSizes"]["mappedFileSizeCommitLog"] == about["mappedFileSizeCommitLog"]
    assert tree(folder) == before


@pytest.mark.parametrize("name", NAMES)
def test_text_output_has_every_message(gantrymq: Run, golden: Golden, name: str) -> None:
    store = golden(name) / "store"
    lines = expected(golden(name))
    dump = gantrymq("store", "dump", store)
    assert dump.code == 0
    assert sum(line["kind"] == "message" for line in lines) == sum(
        line[:10].strip().isdigit() and line[10:26].strip().isdigit() for line in dump.text.splitlines()
    )
    for command in (["info", store], ["log", store], ["recover", store, "--dry-run"]):
        outcome = gantrymq("store", *command)
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.text.strip()
        assert not outcome.text.startswith("{")
