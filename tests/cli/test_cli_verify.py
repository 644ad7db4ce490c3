"""The end of ``verify``: which command helps, and what it would cost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_cases import Run

from gantrymq.clock import ManualClock
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from store_cases import NOON_MS, SMALL_KEYS, await_dispatch, open_store

SETS = [word for key, value in SMALL_KEYS.items() for word in ("--set", f"{key}={value}")]
MESSAGES = 200


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A closed store of several files, and where its messages lie."""
    path = tmp_path_factory.mktemp("whole") / "store"
    with open_store(RealFileSystem(), path, clock=ManualClock(NOON_MS)) as store:
        places = [store.put(Message("orders", b"%06d" % number * 30)).phy_offset for number in range(MESSAGES)]
        await_dispatch(store)
    return path, places


@pytest.fixture
def store(whole: tuple[Path, list[int]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole[0], tmp_path / "store"))


def flip_body(store: Path, place: int) -> None:
    path = max(path for path in (store / "commitlog").iterdir() if int(path.name) <= place)
    with path.open("r+b") as file:
        file.seek(place - int(path.name) + 88)
        file.write(b"\xff")


def outlook(gantrymq: Run, store: Path) -> dict[str, object]:
    summary = gantrymq("store", "verify", store, *SETS, "--json").lines[-1]
    shown: dict[str, object] = summary["outlook"]
    return shown


def test_verify_predicts_results_of_salvage_and_recover(
    gantrymq: Run, whole: tuple[Path, list[int]], store: Path, tmp_path: Path
) -> None:
    flip_body(store, whole[1][-8])
    text = gantrymq("store", "verify", store, *SETS).text
    assert f"next        gantrymq store salvage {store} OUT keeps 199 messages; 1 message known to be lost" in text
    assert f"gantrymq store recover {store} would cut 8 messages, among them 7 whole ones" in text
    expected = {"salvageKeeps": 199, "lostMessages": 1, "recoverCuts": 8, "recoverCutsWhole": 7, "recoverRefuses": None}
    shown = outlook(gantrymq, store)
    assert isinstance(needed := shown.pop("salvageBytes"), int)
    assert shown == expected
    saved = gantrymq("store", "salvage", store, tmp_path / "out", *SETS, "--json").lines[0]
    assert saved["records"] == 199
    assert needed > saved["recordBytes"]
    recovered = gantrymq("store", "recover", store, *SETS, "--json").lines[0]
    assert recovered["queueUnitsCut"] == 8


def test_verify_of_damage_far_from_end_predicts_no_cut(
    gantrymq: Run, whole: tuple[Path, list[int]], store: Path
) -> None:
    flip_body(store, whole[1][3])
    assert outlook(gantrymq, store)["recoverCuts"] == 0
    text = gantrymq("store", "verify", store, *SETS).text
    assert "would cut no message, and leave the damage" in text


def test_verify_without_whole_record_advises_recover(gantrymq: Run, tmp_path: Path) -> None:
    store = tmp_path / "one"
    with open_store(RealFileSystem(), store) as opened:
        opened.put(Message("orders", b"x" * 100))
        await_dispatch(opened)
    flip_body(store, 0)
    text = gantrymq("store", "verify", store, *SETS).text
    assert f"next        gantrymq store recover {store} would cut 1 message, among them 0 whole ones" in text
    assert f"gantrymq store salvage {store} OUT refuses: the log has no valid record" in text
    refused = gantrymq("store", "salvage", store, tmp_path / "out", *SETS)
    assert (refused.code, "there is no whole record" in refused.err) == (3, True)
    gantrymq("store", "recover", store, *SETS)
    assert gantrymq("store", "verify", store, *SETS).code == 0


def test_queues_are_rebuilt_from_a_whole_log(gantrymq: Run, store: Path) -> None:
    shutil.rmtree(store / "consumequeue/orders")
    text = gantrymq("store", "verify", store, *SETS).text
    assert f"gantrymq store rebuild {store} rebuilds queues and index from the log, which has all 200 messages" in text
    assert gantrymq("store", "rebuild", store, *SETS).code == 0
    done = gantrymq("store", "verify", store, *SETS)
    assert (done.code, "next " in done.text) == (0, False)


def test_verify_shows_why_recover_refuses(gantrymq: Run, store: Path) -> None:
    sorted((store / "commitlog").iterdir())[1].unlink()
    shown = outlook(gantrymq, store)
    assert shown["recoverCuts"] is None
    assert "is missing" in str(shown["recoverRefuses"])
    assert f"gantrymq store recover {store} refuses: " in gantrymq("store", "verify", store, *SETS).text


def test_verify_with_no_outlook_option_prints_none(gantrymq: Run, whole: tuple[Path, list[int]], store: Path) -> None:
    flip_body(store, whole[1][-8])
    done = gantrymq("store", "verify", store, *SETS, "--no-outlook", "--json")
    assert (done.code, done.lines[-1]["outlook"]) == (1, None)
    assert "keeps the valid records" in gantrymq("store", "verify", store, *SETS, "--no-outlook").text


def test_findings_are_grouped_by_file_and_kind(gantrymq: Run, whole: tuple[Path, list[int]], store: Path) -> None:
    for place in whole[1][1:11]:
        flip_body(store, place)
    lines = gantrymq("store", "verify", store, *SETS, "--no-outlook").text.splitlines()
    groups = [line for line in lines if "findings, the first of them:" in line]
    assert groups
    assert all("record-crc" in line for line in groups)
    assert len([line for line in lines if line.startswith("damage")]) < 10
    assert (
        len(
            [line for line in gantrymq("store", "verify", store, *SETS, "--json").lines if line["kind"] == "record-crc"]
        )
        == 10
    )


@pytest.mark.parametrize("left", ["", "topics.json", "subscriptionGroup.json"])
def test_lost_topic_table_is_note_in_verify_and_info(gantrymq: Run, store: Path, left: str) -> None:
    (store / "config").mkdir()
    if left:
        (store / "config" / left).write_text("" if left == "topics.json" else "{}")
    done = gantrymq("store", "verify", store, *SETS, "--json")
    notes = [line for line in done.lines if line["kind"] == "topics-without-route"]
    assert (done.code, [(one["level"], one["path"]) for one in notes]) == (0, [("note", "config")])
    assert "1 topic has messages but no route (orders)" in notes[0]["text"]
    info = gantrymq("store", "info", store, *SETS, "--json")
    assert (info.code, info.lines[0]["problems"]) == (
        0,
        [{"path": str(store / "config"), "text": notes[0]["text"]}],
    )
    assert "no route" in gantrymq("store", "info", store, *SETS).text


@pytest.mark.parametrize("name", ["topics.json", "topics.json.bak", "delayOffset.json"])
def test_intact_topic_table_or_new_store_has_no_note(gantrymq: Run, store: Path, name: str) -> None:
    (store / "config").mkdir()
    (store / "config" / name).write_text('{"topicConfigTable":{"orders":{"topicName":"orders"}}}')
    assert "no route" not in gantrymq("store", "verify", store, *SETS).text
    assert gantrymq("store", "info", store, *SETS, "--json").lines[0]["problems"] == []
