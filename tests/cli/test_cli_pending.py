"""``gantrymq store pending``: its lines are those of docs/cli.md, it writes nothing, and it names what is damaged."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from cli_cases import Run, tree
from test_documented_commands import of_kind, section, shape_of

from gantrymq.format.pop_checkpoint import PopCheckpoint, PopKey, encode_pop_checkpoint
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.store.message_store import MessageStore
from store_cases import SMALL, await_dispatch
from timer_cases import TimerCase

CONFIG = replace(SMALL, mapped_file_size_commit_log=1 << 20)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of now with a delayed message that is due in an hour, and a timer message and a pop that are overdue."""
    case = TimerCase(RealFileSystem(), tmp_path / "store", config=CONFIG)
    point = PopCheckpoint(PopKey("orders", "G", 0, 7, case.clock.now_ms()), 60_000, [0])
    revive = "rmq_sys_REVIVE_LOG_C"
    case.send(encode_pop_checkpoint(point), topic=revive, deliver_ms=point.revive_time_ms - 1_000, TAGS="ck")
    case.send(deliver_ms=case.clock.now_ms() + 10_000)
    case.step()
    case.close()
    with MessageStore.open(case.path, CONFIG, housekeeping=False) as later:
        later.put(Message("payments", b"", delay_level=17))
        await_dispatch(later)
    return case.path


def test_json_lines_of_pending_match_documentation(gantrymq: Run, store: Path) -> None:
    before = tree(store)
    outcome = gantrymq("store", "pending", store, "--json", "--list")
    assert (outcome.code, outcome.err, tree(store)) == (0, "", before)
    text = section("docs/cli.md", "`store pending")
    for kind in ("store", "total", "message", "end"):
        assert of_kind(outcome.lines, kind) == shape_of(text, kind)
    totals = [line for line in outcome.lines if line["kind"] == "total"]
    assert [(one["pending"], one["topic"], one["group"], one["due"], one["withinHour"]) for one in totals] == [
        ("delay", "payments", None, 0, 1),
        ("pop", "orders", "G", 1, 0),
        ("timer", "orders", None, 1, 0),
    ]
    assert [line["pending"] for line in outcome.lines if line["kind"] == "message"] == ["timer", "pop", "delay"]
    assert outcome.lines[-1] == {"kind": "end", "messages": 3, "unreadable": 0, "passedOver": 0, "problems": []}


def test_pending_options_select_messages(gantrymq: Run, store: Path) -> None:
    def messages(*options: object) -> list[str]:
        lines = gantrymq("store", "pending", store, "--json", "--list", *options).lines
        return [line["pending"] for line in lines if line["kind"] == "message"]

    assert messages("--kind", "pop", "--kind", "delay") == ["pop", "delay"]
    assert messages("--topic", "orders") == ["timer", "pop"]
    assert messages("--due-before", int(time.time() * 1000)) == ["timer", "pop"]
    assert messages("-n", 1) == ["timer"]
    assert gantrymq("store", "pending", store, "--kind", "late").code == 2
    assert "nothing is pending" in gantrymq("store", "pending", store, "--topic", "none").text


def test_listed_pending_message_can_be_shown(gantrymq: Run, store: Path) -> None:
    lines = gantrymq("store", "pending", store, "--json", "--list", "--kind", "timer").lines
    offset = next(line["phyOffset"] for line in lines if line["kind"] == "message")
    (shown,) = gantrymq("store", "show", store, offset, "--json").lines
    assert (shown["topic"], shown["properties"]["REAL_TOPIC"]) == ("rmq_sys_wheel_timer", "orders")


def test_damaged_files_are_named(gantrymq: Run, store: Path) -> None:
    for file in (store / "timerlog").iterdir():
        file.write_bytes(b"x")
    (store / "config" / "delayOffset.json").write_text('{"offsetTable":{')
    outcome = gantrymq("store", "pending", store, "--json")
    assert outcome.code == 1
    assert f"{store}/timerlog" in outcome.err
    assert f"{store}/config/delayOffset.json" in outcome.err
    assert all(line.startswith("gantrymq: warning: ") for line in outcome.err.splitlines())
    problems = outcome.lines[-1]["problems"]
    assert len(problems) == 2
    assert outcome.lines[-1]["messages"] == 3


def test_store_without_pending_topics_has_no_pending_message(gantrymq: Run, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG, housekeeping=False) as store:
        store.put(Message("orders", b"now"))
    outcome = gantrymq("store", "pending", tmp_path / "store")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.text.strip() == f"{tmp_path / 'store'}: nothing is pending"
    (tmp_path / "lines.json").write_text(json.dumps({"topic": "orders", "body": "later", "delayLevel": 3}))
    assert gantrymq("store", "ingest", tmp_path / "store", tmp_path / "lines.json").code == 0
    assert "1 message pending" in gantrymq("store", "pending", tmp_path / "store").text
    assert gantrymq("store", "pending", tmp_path / "nothing").code == 3
