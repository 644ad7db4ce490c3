"""``gantrymq archive``: what it makes of golden stores, what it refuses, and that a summary proves the files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_cases import Run, jsonl, tree

from golden_stores import NAMES

Golden = Callable[[str], Path]


def whole_log(store: Path) -> dict[str, bytes]:
    """The log files of a golden store that its records fill: all but the last one with records, and empty ones."""
    files = {path.name: path.read_bytes() for path in sorted((store / "commitlog").iterdir())}
    used = [name for name, content in files.items() if content.strip(b"\0")]
    return {name: files[name] for name in used[:-1]}


def messages(lines: list[dict[str, Any]], end: int) -> list[dict[str, Any]]:
    """The messages of a dump before the physical offset ``end``."""
    return [line for line in lines if line["kind"] == "message" and line["phyOffset"] < end]


QUICK = {"bad-crc", "broker-features", "lost-queues", "retention"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NAMES]
)
def test_archive_of_golden_store_is_clean_and_has_the_messages_of_java(
    gantrymq: Run, golden: Golden, tmp_path: Path, name: str
) -> None:
    folder, archive, copy = golden(name), tmp_path / "archive", tmp_path / "copy"
    before = tree(folder)
    small_index = ("--set", "maxHashSlotNum=100", "--set", "maxIndexNum=400") if "lost" in name else ()
    done = gantrymq("archive", folder / "store", archive, *small_index, "--json")
    assert (done.code, done.err) == (0, "")
    assert tree(folder) == before
    summary = done.lines[-1]
    whole = whole_log(folder / "store")
    archived = {path.name: path.read_bytes() for path in (archive / "commitlog").iterdir()}
    assert archived == whole
    assert (summary["kind"], summary["files"], summary["bytes"]) == (
        "summary",
        len(whole),
        sum(map(len, whole.values())),
    )
    assert (summary["minOffset"], summary["maxOffset"]) == (
        int(min(whole)),
        int(max(whole)) + len(whole[max(whole)]),
    )
    assert not (archive / "abort").exists()
    shutil.copytree(archive, copy)
    verified = gantrymq("store", "verify", copy, "--json").lines
    assert [line for line in verified if line.get("level")] == []
    full = folder / "expected-all.jsonl"
    expected = messages(jsonl(full if full.exists() else folder / "expected.jsonl"), summary["maxOffset"])
    assert messages(gantrymq("store", "dump", copy, "--json").lines, summary["maxOffset"]) == expected
    assert gantrymq("store", "info", copy, "--json").lines[0]["abort"] is False
    assert gantrymq("archive", "check", archive).code == 0


def test_archive_that_has_all_changes_nothing_and_answers_queries(
    gantrymq: Run, golden: Golden, tmp_path: Path
) -> None:
    folder, archive = golden("direct-mixed"), tmp_path / "archive"
    first = gantrymq("archive", folder / "store", archive, "--json").lines[-1]
    before = tree(archive)
    assert gantrymq("archive", folder / "store", archive, "--json").lines == [first]
    assert {name: at for name, at in tree(archive).items() if name != "lock"} == {
        name: at for name, at in before.items() if name != "lock"
    }
    records = {line["phyOffset"]: line for line in jsonl(folder / "commitlog.jsonl") if line["kind"] == "message"}
    asked = 0
    for question, answers in json.loads((folder / "queries.json").read_text()).items():
        topic, _, key = question.partition("|")
        kept = {at for at in answers if at < first["maxOffset"] and records[at]["topic"] == topic}
        if kept and asked < 5:
            found = gantrymq("store", "query", archive, topic, key, "--max", 100_000, "--raw", "--json").lines
            assert kept <= {line["phyOffset"] for line in found}
            asked += 1
    assert asked
    exported = gantrymq("store", "export", archive, tmp_path / "out", "--format", "jsonl", "--json")
    assert exported.code == 0


def test_restore_makes_a_store_and_refuses_what_differs(gantrymq: Run, golden: Golden, tmp_path: Path) -> None:
    archive, store, key = tmp_path / "archive", tmp_path / "store", tmp_path / "key"
    key.write_text("a secret of 25 characters\n")
    signed = ("--sign-key", key)
    gantrymq("archive", golden("retention") / "store", archive, *signed)
    assert gantrymq("archive", "restore", archive, store, *signed, "--json").lines[-1]["store"] == str(store)
    assert gantrymq("store", "verify", store).code == 0
    refused = gantrymq("archive", "restore", archive, store)
    assert (refused.code, refused.err) == (3, f"gantrymq: {store}: is not empty; restore to a new directory\n")
    victim = sorted((archive / "commitlog").iterdir())[1]
    raw = bytearray(victim.read_bytes())
    raw[len(raw) // 2] ^= 1
    victim.write_bytes(raw)
    found = gantrymq("archive", "check", archive, *signed, "--json")
    assert found.code == 1
    assert found.lines[0]["path"] == f"commitlog/{victim.name}"
    torn = gantrymq("archive", "restore", archive, tmp_path / "other")
    assert (torn.code, "does not have the size and checksum" in torn.err) == (3, True)
    assert not (tmp_path / "other").exists()
    assert not list(tmp_path.glob(".*"))
    summary = json.loads((archive / "archive.json").read_bytes())
    (archive / "archive.json").write_text(json.dumps({**summary, "stored_ms": 1}))
    forged = gantrymq("archive", "check", archive, *signed)
    assert (forged.code, "not signed with this key, or was changed" in forged.err) == (3, True)


def test_signed_archive_is_continued_only_with_its_key(gantrymq: Run, golden: Golden, tmp_path: Path) -> None:
    store, archive, key, other = (tmp_path / name for name in ("store", "archive", "key", "other"))
    shutil.copytree(golden("retention") / "store", store)
    key.write_text("k" * 16)
    other.write_text("o" * 16)
    assert gantrymq("archive", store, archive, "--sign-key", key).code == 0
    before = tree(archive)
    without = gantrymq("archive", store, archive)
    assert (without.code, without.err) == (3, f"gantrymq: {archive}: is signed: give the key, too (--sign-key)\n")
    wrong = gantrymq("archive", store, archive, "--sign-key", other)
    assert (wrong.code, wrong.err.count("\n")) == (3, 1)
    assert tree(archive) == before
    (tmp_path / "short").write_text("short")
    assert gantrymq("archive", store, archive, "--sign-key", tmp_path / "short").code == 2


def test_other_log_other_place_and_place_inside_are_refused_and_unchanged(
    gantrymq: Run, golden: Golden, tmp_path: Path
) -> None:
    archive, store = tmp_path / "archive", golden("direct-killed") / "store"
    gantrymq("archive", golden("retention") / "store", archive)
    before = tree(archive)
    other = gantrymq("archive", store, archive)
    assert (other.code, other.err.count("\n")) == (3, 1)
    assert "another log" in other.err or "ends before the archive" in other.err or "log files of" in other.err
    assert tree(archive) == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    full = gantrymq("archive", store, tmp_path / "full")
    assert (full.code, full.err) == (3, f"gantrymq: {tmp_path}/full: is not an archive, and not empty: it has mine\n")
    inside = gantrymq("archive", store, store / "archive")
    assert (inside.code, inside.err.count("\n")) == (3, 1)
    assert not (store / "archive").exists()
    none = gantrymq("archive", "check", tmp_path / "full")
    assert (none.code, none.err) == (3, f"gantrymq: {tmp_path}/full: is not an archive: it has no archive.json\n")
    assert gantrymq("archive", tmp_path / "none", archive).code == 3
    assert gantrymq("archive", store, "nofs://bucket/x").code == 2


def test_damage_is_reported_at_each_run_and_check(gantrymq: Run, golden: Golden, tmp_path: Path) -> None:
    store, place = tmp_path / "store", tmp_path / "archive"
    shutil.copytree(golden("retention") / "store", store)
    victim = sorted((store / "commitlog").iterdir())[3]
    records = jsonl(golden("retention") / "commitlog.jsonl")
    at = next(
        line["phyOffset"] + 150
        for line in records
        if line["kind"] == "message" and line["phyOffset"] >= int(victim.name) and line["bodyLength"] > 200
    )
    raw = bytearray(victim.read_bytes())
    raw[at - int(victim.name)] ^= 1
    victim.write_bytes(raw)
    for words in (("archive", store, place), ("archive", store, place), ("archive", "check", place)):
        done = gantrymq(*words, "--json")
        damage, summary = done.lines[-2:]
        assert (done.code, damage["kind"], damage["path"]) == (1, "damage", f"commitlog/{victim.name}")
        assert damage["phyOffset"] <= at < damage["phyOffset"] + damage["lengthBytes"]
        assert summary["damaged"] == 1
    assert gantrymq("store", "verify", place).code == 1
    assert "damage   commitlog/" in gantrymq("archive", store, place).text
