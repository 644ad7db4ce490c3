"""A consumer group that is ahead of its queue would pass over the next messages: it is named, and set back."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gantrymq.cli.main import exit_code
from gantrymq.model import fastjson
from gantrymq.model.message import SCHEDULE_TOPIC, Message
from gantrymq.tools.findings import Finding, FindingKind, Severity
from gantrymq.tools.verify import verify_store
from store_cases import GEOMETRY_KEYS, SMALL, SMALL_KEYS, bodies, numbered, open_reader, open_store

SETTINGS = [f"--set={key}={value}" for key, value in SMALL_KEYS.items()]
COUNT = 300
HEALTHY = {"T@G": {0: COUNT}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "store"
    with open_store(path=path) as store:
        store.put_batch(numbered(COUNT, topic="T"))
        store.put_batch([Message("later", b"x", delay_level=2) for _ in range(3)])
    return path


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Path:
    path = Path(shutil.copytree(whole, tmp_path / "store"))
    (path / "config").mkdir(exist_ok=True)
    return path


def write_offsets(store: Path, table: Any, name: str = "consumerOffset.json", **more: Any) -> Path:
    path = store / "config" / name
    path.write_bytes(fastjson.dumps({"dataVersion": {"counter": 7}, "offsetTable": table} | more))
    return path


def offsets(store: Path, name: str = "consumerOffset.json") -> Any:
    return fastjson.loads((store / "config" / name).read_text())["offsetTable"]


def cut_log(store: Path) -> int:
    """The last files of the log go; returns how many messages of the queue are left."""
    for path in sorted((store / "commitlog").iterdir())[1:]:
        path.unlink()
    with open_reader(store) as reader:
        return len(bodies(reader, "T"))


def run(command: str, store: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, Path, dict[str, Any]]:
    """The exit code, the result, and the report."""
    out = [str(store.with_name("out"))] if command == "salvage" else []
    code = exit_code(["store", command, str(store), *out, *SETTINGS, "--json", *more])
    return code, Path(out[0]) if out else store, json.loads(capsys.readouterr().out)


def ahead_in(store: Path) -> list[Finding]:
    found = verify_store(store, SMALL, given=GEOMETRY_KEYS)
    return [one for one in found if one.kind is FindingKind.CONSUMER_AHEAD or one.level is Severity.DAMAGE]


def entry(offset: int, end: int, group: str | None = "G", topic: str = "T", queue_id: int = 0) -> dict[str, Any]:
    place = {"group": group, "topic": topic, "queueId": queue_id}
    return {**place, "committedOffset": offset, "maxOffset": end}


def test_group_after_salvage_skips_no_new_message(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_offsets(store, {"T@G": {0: COUNT}, "T@slow": {0: 3}}, groupTopicMap={"G": ["T"]})
    before, left = path.read_bytes(), cut_log(store)
    assert 3 < left < COUNT
    code, out, report = run("salvage", store, capsys)
    assert (code, report["consumersAhead"]) == (1, [entry(COUNT, left)])
    assert path.read_bytes() == before  # the source is only read
    expected = {"dataVersion": {"counter": 7}, "offsetTable": {"T@G": {0: left}, "T@slow": {0: 3}}}
    assert (out / "config/consumerOffset.json").read_bytes() == fastjson.dumps(
        {**expected, "groupTopicMap": {"G": ["T"]}}
    )
    assert ahead_in(out) == []
    with open_store(path=out) as opened:
        assert opened.put(*numbered(1, topic="T")).queue_offset == left


def test_group_at_end_of_queue_is_unchanged(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_offsets(store, HEALTHY)
    before = path.read_bytes()
    for command in ("rebuild", "recover", "salvage"):
        code, out, report = run(command, store, capsys)
        assert (code, report["consumersAhead"]) == (0, [])
        assert (out / "config/consumerOffset.json").read_bytes() == before
    assert ahead_in(store) == []


@pytest.mark.parametrize("command", ["recover", "rebuild", "salvage"])
def test_offset_table_ahead_of_queues_is_named_and_set_back(
    command: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_offsets(store, {"T@G": {0: COUNT + 50, 3: 9}}, resetOffsetTable={"T@G": {0: COUNT + 60}})
    write_offsets(store, {2: 11}, "delayOffset.json")
    found = ahead_in(store)
    assert [(one.level, one.topic, one.queue_offset, one.count) for one in found] == [
        (Severity.NOTE, SCHEDULE_TOPIC, 3, 8),
        (Severity.DAMAGE, "T", COUNT, 50),
        (Severity.DAMAGE, "T", COUNT, 60),
        (Severity.DAMAGE, "T", 0, 9),
    ]
    code, out, report = run(command, store, capsys)
    level = entry(11, 3, None, SCHEDULE_TOPIC, 1)
    groups = [entry(COUNT + 50, COUNT), entry(COUNT + 60, COUNT), entry(9, 0, queue_id=3)]
    assert (code, report["consumersAhead"]) == (0, [level, *groups])
    assert offsets(out) == {"T@G": {"0": COUNT, "3": 0}}
    assert offsets(out, "delayOffset.json") == {"2": 3}
    assert ahead_in(out) == []


def test_dry_run_names_groups_set_back_by_recovery(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_offsets(store, HEALTHY)
    before, left = path.read_bytes(), cut_log(store)
    (store / "checkpoint").unlink()
    _, _, planned = run("recover", store, capsys, "--dry-run")
    assert path.read_bytes() == before
    _, _, done = run("recover", store, capsys)
    assert planned["consumersAhead"] == done["consumersAhead"] == [entry(COUNT, left)]
    assert offsets(store) == {"T@G": {"0": left}}


def without_queues(store: Path) -> None:
    (store / "abort").touch()
    for path in store.glob("consumequeue/T/0/*"):
        path.write_bytes(bytes(SMALL.mapped_file_size_consume_queue))


def static_topic(store: Path) -> None:
    (store / "config/topicQueueMapping.json").write_text('{"topicQueueMappingInfoMap":{"T":{}}}')
    write_offsets(store, {"T@G": {0: COUNT + 1}})


def other_topics(store: Path) -> None:
    write_offsets(store, {"%LMQ%one@G": {0: 5}, "gone@G": {0: 5}, "T@G@H": {0: 999}, "T": {0: 999}, "T@G": {"x": 999}})


@pytest.mark.parametrize("change", [without_queues, static_topic, other_topics])
def test_groups_only_seemingly_ahead_are_unchanged(
    change: Callable[[Path], None], store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_offsets(store, HEALTHY)
    change(store)
    before = offsets(store)
    assert [one for one in ahead_in(store) if one.kind is FindingKind.CONSUMER_AHEAD] == []
    accepts = ("--set", "acceptWithoutEffect=config/topicQueueMapping.json")
    _, _, report = run("recover", store, capsys, *accepts)
    assert (report["consumersAhead"], offsets(store)) == ([], before)


@pytest.mark.parametrize("text", ['{"offsetTable":[]}', '{"offsetTable":{"T@G":{0:"many"}}}', "{", "", "[]"])
def test_empty_or_invalid_offset_table_is_unchanged(text: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_offsets(store, {"T@G": {0: COUNT + 1}})
    path.rename(path.with_name("consumerOffset.json.bak"))
    path.write_text(text)
    run("recover", store, capsys)
    assert path.read_text() == text or not text


def test_people_read_which_group_is_set_back(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_offsets(store, {"T@G": {0: COUNT + 50}})
    assert exit_code(["store", "verify", str(store), *SETTINGS]) == 1
    assert f"gantrymq store recover {store} sets consumer groups to the end" in capsys.readouterr().out
    assert exit_code(["store", "recover", str(store), *SETTINGS]) == 0
    text = f"group G, T/0: committed offset was {COUNT + 50}, is {COUNT}, the queue's end"
    assert text in capsys.readouterr().out


def test_offset_of_group_is_set_back_to_end_of_its_own_queue(store: Path) -> None:
    table = {"T@G": {"0": COUNT + 9, "+0": COUNT + 7, "1": 5}, "T@H": {"0": COUNT - 1}}
    write_offsets(store, table, resetOffsetTable={"T@G": {"0": COUNT + 3}, "T@H": {"1": 1}})
    with open_store(path=store) as opened:
        ahead = [(one.at.group, one.at.queue_id, one.at.offset, one.end) for one in opened.recovery.groups_ahead]
    expected = [("G", 0, COUNT + 3, COUNT), ("G", 0, COUNT + 7, COUNT), ("G", 0, COUNT + 9, COUNT), ("G", 1, 5, 0)]
    assert ahead == [*expected, ("H", 1, 1, 0)]
    text = (store / "config" / "consumerOffset.json").read_text()
    value = fastjson.loads(text)
    assert value["offsetTable"] == {"T@G": {"0": COUNT, "1": 0}, "T@H": {"0": COUNT - 1}}
    assert value["resetOffsetTable"] == {"T@G": {"0": COUNT}, "T@H": {"1": 0}}
    # RocketMQ could not skip a table that it does not know if the numbers in it had no quotes.
    assert re.search(rf'"offsetTable":\{{\s*"T@G":\{{\s*0:{COUNT},', text), text
    assert re.search(rf'"resetOffsetTable":\{{\s*"T@G":\{{\s*"0":{COUNT}\s', text), text
