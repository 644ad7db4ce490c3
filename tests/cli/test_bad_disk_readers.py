"""What only reads shows all that the disk gives back, names the bad place, and ends with 1."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_cases import Outcome, Run

from bad_disk import BLOCK_BYTES, Break, bad_blocks, break_reads, image_of
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import DiskError, StorePermissionError
from gantrymq.fs import pages
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.message_store import MessageStore
from gantrymq.store.reader import StoreReader

MESSAGES = 900
CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=65_536,
    mapped_file_size_consume_queue=4_000,
    max_hash_slot_num=500,
    max_index_num=1_000,
)
Place = tuple[int, int]  # (begin, end) in the log


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[int, int], Place]]:
    """A closed store, and where the message of each (queue, queue offset) lies."""
    path, places = tmp_path_factory.mktemp("closed") / "store", {}
    with MessageStore.open(path, CONFIG, housekeeping=False) as store:
        for n in range(MESSAGES):
            result = store.put(Message("orders", b"%0150d" % n, queue_id=n % 2, keys=[f"key-{n % 300}"]))
            assert result.status is PutMessageStatus.PUT_OK
    with StoreReader.open(path) as reader:
        for message in reader.messages():
            end = message.phy_offset + message.size_bytes
            places[message.queue_id, message.queue_offset] = message.phy_offset, end
    return path, places


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Break:
    return break_reads(monkeypatch)


@pytest.fixture(params=[False, True], ids=["closed", "killed"])
def store(request: pytest.FixtureRequest, closed: tuple[Path, Any], tmp_path: Path) -> Path:
    path = Path(shutil.copytree(closed[0], tmp_path / "store"))
    if request.param:
        (path / "abort").touch()
    return path


def nth(store: Path, kind: str, number: int) -> Path:
    return sorted(path for path in (store / kind).rglob("*") if path.is_file())[number]


def contents(store: Path) -> dict[Path, bytes]:
    marks = ("lock", "abort")
    return {path: path.read_bytes() for path in store.rglob("*") if path.is_file() and path.name not in marks}


def shown(outcome: Outcome) -> set[tuple[int, int]]:
    messages = [line for line in outcome.lines if line["kind"] == "message"]
    assert all(line.get("crcOk", True) for line in messages)
    return {(line["queueId"], line["queueOffset"]) for line in messages}


def assert_names(outcome: Outcome, path: Path, position: int) -> None:
    """One line names the file, the byte and the next command."""
    assert outcome.code == 1, outcome
    [line] = outcome.err.splitlines()
    assert f"{path}: cannot be read at byte {position}" in line
    assert "`gantrymq store salvage` makes a new store of the rest" in line


@pytest.mark.parametrize(("number", "block"), [(0, 0), (-1, 0), (-1, 2), (-2, 15)])
def test_bad_page_of_log_loses_only_its_messages(
    gantrymq: Run, spoil: Break, store: Path, closed: tuple[Path, dict[tuple[int, int], Place]], number: int, block: int
) -> None:
    path = nth(store, "commitlog", number)
    begin = block * BLOCK_BYTES
    spoil(path, begin, begin + BLOCK_BYTES)
    bad = int(path.name) + begin
    rest = {key for key, (at, end) in closed[1].items() if not (at < bad + BLOCK_BYTES and bad < end)}
    assert 0 < len(closed[1]) - len(rest) < 20
    for command in ("dump", "log"):
        outcome = gantrymq("store", command, store, "--json")
        assert_names(outcome, path, begin)
        assert shown(outcome) == rest, command
    [lost] = [line for line in outcome.lines if line["kind"] == "unreadable"]
    assert (lost["path"], lost["position"]) == (str(path), begin)
    assert lost["phyOffset"] < bad + BLOCK_BYTES <= lost["phyOffset"] + lost["bytes"]
    for words in (("info",), ("at", "orders", "0", "1"), ("query", "orders", "key-7")):
        outcome = gantrymq("store", words[0], store, *words[1:], "--json")
        assert outcome.code in (0, 1), outcome  # which need not meet the page
        assert "fault" not in outcome.err


@pytest.mark.parametrize("number", [0, -1])
def test_units_of_bad_page_of_queue_are_read_from_log(
    gantrymq: Run, spoil: Break, store: Path, closed: tuple[Path, dict[tuple[int, int], Place]], number: int
) -> None:
    path = nth(store, "consumequeue", number)
    spoil(path, 0, BLOCK_BYTES)
    outcome = gantrymq("store", "dump", store, "--json")
    assert_names(outcome, path, 0)
    assert shown(outcome) == set(closed[1])
    outcome = gantrymq("store", "info", store, "--json")
    assert_names(outcome, path, 0)
    assert outcome.lines[0]["messages"] == MESSAGES
    assert outcome.lines[0]["problems"][0]["path"] == str(path)
    outcome = gantrymq("store", "at", store, "orders", "1", "1", "--json")
    assert_names(outcome, path, 0)
    assert outcome.lines[0]["queueOffset"] == 0


def test_unreadable_checkpoint_hides_no_message(
    gantrymq: Run, spoil: Break, store: Path, closed: tuple[Path, dict[tuple[int, int], Place]]
) -> None:
    spoil(store / "checkpoint", 0, BLOCK_BYTES)
    outcome = gantrymq("store", "dump", store, "--json")
    assert_names(outcome, store / "checkpoint", 0)
    assert shown(outcome) == set(closed[1])


@pytest.mark.parametrize("block", [0, 1, 4])
def test_query_with_bad_index_page_returns_readable_entries(
    gantrymq: Run, spoil: Break, store: Path, block: int
) -> None:
    path = nth(store, "index", 0)
    begin = block * BLOCK_BYTES
    spoil(path, begin, begin + BLOCK_BYTES)
    outcome = gantrymq("store", "query", store, "orders", "key-7", "--json")
    assert outcome.code in (0, 1)
    assert all(line["kind"] == "message" for line in outcome.lines)
    if outcome.code:
        assert_names(outcome, path, begin)


def test_show_names_bad_page_of_its_message(
    gantrymq: Run, spoil: Break, store: Path, closed: tuple[Path, dict[tuple[int, int], Place]]
) -> None:
    path = nth(store, "commitlog", 0)
    spoil(path, BLOCK_BYTES, 2 * BLOCK_BYTES)
    at = next(at for at, end in closed[1].values() if end > BLOCK_BYTES)
    outcome = gantrymq("store", "show", store, str(at))
    assert (outcome.code, outcome.out) == (1, b"")
    assert f"{path}: cannot be read at byte {BLOCK_BYTES}" in outcome.err


def test_log_whose_only_file_begins_with_bad_page_is_not_empty(gantrymq: Run, spoil: Break, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, CONFIG, housekeeping=False) as store:
        for n in range(100):
            store.put(Message("orders", b"%0150d" % n))
    spoil(nth(path, "commitlog", 0), 0, BLOCK_BYTES)
    outcome = gantrymq("store", "dump", path, "--json")
    assert_names(outcome, nth(path, "commitlog", 0), 0)
    assert 80 < len(shown(outcome)) < 100


def test_messages_outside_bad_sector_are_shown(
    gantrymq: Run, closed: tuple[Path, dict[tuple[int, int], Place]], tmp_path: Path
) -> None:
    name = nth(closed[0], "commitlog", -1).relative_to(closed[0])
    with bad_blocks(image_of(closed[0], tmp_path), tmp_path, (str(name), 1)) as store:
        outcome = gantrymq("store", "dump", store, "--json")
        assert_names(outcome, store / name, BLOCK_BYTES)
        bad = int(name.name) + BLOCK_BYTES
        expected = {key for key, (at, end) in closed[1].items() if not (at < bad + BLOCK_BYTES and bad < end)}
        assert shown(outcome) == expected
        assert shown(gantrymq("store", "log", store, "--json")) == expected


def test_dry_run_refuses_same_stores_as_recovery(gantrymq: Run, spoil: Break, store: Path) -> None:
    path = nth(store, "commitlog", -1)
    spoil(path, 0, BLOCK_BYTES)
    before = contents(store)
    planned = gantrymq("store", "recover", store, "--dry-run")
    applied = gantrymq("store", "recover", store)
    assert (planned.code, planned.err) == (applied.code, applied.err)
    assert applied.code == 3
    assert f"{path}: cannot be read at byte 0" in applied.err
    assert {
        one: one.read_bytes() for one in store.rglob("*") if one.is_file() and one.name not in ("lock", "abort")
    } == {one: data for one, data in before.items() if one.name not in ("lock", "abort")}


def test_store_reader_raises_unless_lost_data_is_skipped(spoil: Break, store: Path) -> None:
    path = nth(store, "commitlog", -1)
    spoil(path, 0, BLOCK_BYTES)
    with pytest.raises(DiskError, match="cannot be read at byte 0"):
        StoreReader.open(store)
    with StoreReader.open(store, skips_lost=True) as reader:
        assert 0 < MESSAGES - len(list(reader.messages())) < 20
        [problem] = reader.problems
    assert isinstance(problem, DiskError)
    assert (problem.path, problem.position) == (path, 0)


@pytest.mark.parametrize("part", ["index", "consumequeue/orders/1", "consumequeue", "config"])
@pytest.mark.parametrize("kind", [DiskError, StorePermissionError])
def test_unlistable_directory_is_named_and_rest_is_shown(
    gantrymq: Run,
    monkeypatch: pytest.MonkeyPatch,
    store: Path,
    closed: tuple[Path, dict[tuple[int, int], Place]],
    part: str,
    kind: type[DiskError] | type[StorePermissionError],
) -> None:
    scan = RealFileSystem.scan

    def refuse(fs: RealFileSystem, path: Path) -> Any:
        if path.is_relative_to(store / part):
            raise kind(path, "Input/output error")
        return scan(fs, path)

    monkeypatch.setattr(RealFileSystem, "scan", refuse)
    outcome = gantrymq("store", "dump", store, "--json")
    assert shown(outcome) == set(closed[1])
    assert shown(gantrymq("store", "log", store, "--json")) == set(closed[1])
    if part.startswith("consumequeue"):
        assert outcome.code == 1
        assert f"{store / part}: Input/output error" in outcome.err
    for words in (("info",), ("query", "orders", "key-7"), ("at", "orders", "0", "1")):
        outcome = gantrymq("store", words[0], store, *words[1:])
        assert outcome.code in (0, 1), outcome
    assert_tools_go_on_without(gantrymq, store, part)


def assert_tools_go_on_without(gantrymq: Run, store: Path, part: str) -> None:
    """verify has one line with path and reason; what export and salvage compare less is named; no message is lost."""
    outcome = gantrymq("store", "verify", store, "--json")
    assert outcome.code == 1, outcome
    found = [line for line in outcome.lines if line["kind"] == "file-unreadable"]
    assert [line["path"] for line in found] == [part]
    assert "Input/output error" in found[0]["text"]
    out = store.parent / "out"
    outcome = gantrymq("store", "export", store, out / "exported", "--json")
    assert (outcome.code, outcome.lines[0]["messages"]) == (part != "config", MESSAGES), outcome
    assert (part in [one["path"] for one in outcome.lines[0]["notCompared"]]) == (part != "config")
    outcome = gantrymq("store", "salvage", store, out / "saved", "--json")
    assert (outcome.code, outcome.lines[0]["records"]) == (1, MESSAGES), outcome
    assert part in outcome.lines[0]["skippedFiles"]


@pytest.mark.parametrize("part", ["index", "consumequeue", "consumequeue/orders/1"])
def test_directory_on_real_bad_sector_is_named_and_rest_is_read(
    gantrymq: Run, closed: tuple[Path, dict[tuple[int, int], Place]], tmp_path: Path, part: str
) -> None:
    (tmp_path / "out").mkdir()
    with bad_blocks(image_of(closed[0], tmp_path), tmp_path, (part, 0)) as store:
        outcome = gantrymq("store", "dump", store, "--json")
        assert shown(outcome) == set(closed[1])
        for command, *more in (("verify",), ("export", tmp_path / "exported"), ("salvage", tmp_path / "saved")):
            outcome = gantrymq("store", command, store, *more, "--json")
            assert outcome.code == 1, outcome
            assert part in outcome.text
            assert outcome.lines[0].get("messages", MESSAGES) == MESSAGES
        outcome = gantrymq("store", "recover", store)
        assert outcome.code == 3
        assert f"{store / part}" in outcome.err
        assert "`gantrymq store salvage`" in outcome.err


def test_json_line_of_unreadable_range_has_documented_fields(gantrymq: Run, spoil: Break, store: Path) -> None:
    spoil(nth(store, "commitlog", 0), 0, BLOCK_BYTES)
    line = json.loads(gantrymq("store", "log", store, "--json").out.splitlines()[0])
    assert list(line) == ["kind", "phyOffset", "bytes", "path", "position", "reason"]


def test_verify_names_lost_header_of_only_index_file(gantrymq: Run, spoil: Break, store: Path) -> None:
    path = nth(store, "index", 0)
    spoil(path, 0, BLOCK_BYTES)
    outcome = gantrymq("store", "verify", store, "--json")
    found = [line for line in outcome.lines if line["kind"] == "file-unreadable"]
    assert (outcome.code, [line["path"] for line in found]) == (1, [str(path.relative_to(store))])
    assert "`gantrymq store rebuild --index`" in found[0]["text"]


INDEX_BLOCKS = range(6)


@pytest.mark.parametrize("block", INDEX_BLOCKS)
def test_bad_index_page_is_reported_once_and_repaired_by_named_command(
    gantrymq: Run, spoil: Break, store: Path, block: int
) -> None:
    """Of a killed store too, whose last index file is in doubt: recovery reads all of it."""
    path = nth(store, "index", -1)
    spoil(path, block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES)
    outcome = gantrymq("store", "verify", store, "--json", "--no-outlook")
    found = [line for line in outcome.lines if line.get("level") == "damage"]
    assert [line["kind"] for line in found] == ["file-unreadable"]
    assert f"bytes {block * BLOCK_BYTES} to" in found[0]["text"]
    assert outcome.code == 1
    assert gantrymq("store", "rebuild", store, "--index").code in (0, 1)
    path.unlink(missing_ok=True)  # its name is taken again by a file whose pages are not those
    assert "`gantrymq store rebuild --index`" in found[0]["text"]


@pytest.mark.parametrize("block", INDEX_BLOCKS)
def test_plan_and_recovery_agree_on_bad_page_of_index(gantrymq: Run, spoil: Break, store: Path, block: int) -> None:
    path = nth(store, "index", -1)
    spoil(path, block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES)
    planned = gantrymq("store", "recover", store, "--dry-run", "--json")
    applied = gantrymq("store", "recover", store, "--json")
    assert (planned.code, planned.err) == (applied.code, applied.err)
    if applied.code < 3:
        apart = ("dryRun", "stepsMs", "totalMs")
        plan, result = (
            {key: one[key] for key in one if key not in apart} for one in (planned.lines[0], applied.lines[0])
        )
        assert plan == result
        assert [one["path"] for one in result["problems"]] == ([str(path)] if applied.code else [])
    if applied.code:
        assert f"{path}: cannot be read at byte {block * BLOCK_BYTES}" in applied.err


@pytest.mark.parametrize("block", [0, 2])
def test_rebuild_names_messages_lost_to_bad_page_of_last_log_file(
    gantrymq: Run, spoil: Break, store: Path, closed: tuple[Path, dict[tuple[int, int], Place]], block: int
) -> None:
    """The next start refuses the store, so what lies behind the page counts as lost; salvage keeps it."""
    path = nth(store, "commitlog", -1)
    begin = block * BLOCK_BYTES
    spoil(path, begin, begin + BLOCK_BYTES)
    outcome = gantrymq("store", "rebuild", store, "--json")
    assert outcome.code == 1, outcome
    report = outcome.lines[0]
    assert int(path.name) + begin in range(
        report["lost"][0]["phyOffset"], report["lost"][0]["phyOffset"] + report["lost"][0]["bytes"]
    )
    assert report["lost"][0]["reason"] == "unreadable"
    assert any("the next start refuses the store; store salvage keeps it" in one["reason"] for one in report["lost"])
    named = {(one["queueId"], n) for one in report["lostMessages"] for n in range(one["from"], one["to"] + 1)}
    assert named == {key for key, (_, end) in closed[1].items() if end > int(path.name) + begin}
    refused = gantrymq("store", "recover", store)
    assert refused.code == 3
    assert f"{path}: cannot be read at byte {begin}" in refused.err
    saved = gantrymq("store", "salvage", store, store.parent / "saved", "--json")
    kept = shown(gantrymq("store", "dump", store.parent / "saved", "--json"))
    assert kept == {
        key
        for key, (at, end) in closed[1].items()
        if not (at < int(path.name) + begin + BLOCK_BYTES and end > int(path.name) + begin)
    }
    assert saved.code == 1


def test_stale_file_handle_is_reported_like_bad_sector(
    gantrymq: Run, monkeypatch: pytest.MonkeyPatch, store: Path
) -> None:
    """As of a network file system whose server has lost a file (ESTALE): a seam below everything that reads."""
    path = nth(store, "consumequeue", 0)
    pread = os.pread

    def stale(fd: int, length: int, position: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{fd}") == str(path):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return pread(fd, length, position)

    monkeypatch.setattr(os, "pread", stale)
    monkeypatch.setattr(pages, "populate", lambda *_: errno.EINVAL)  # or the mapping has what pread does not give
    outcome = gantrymq("store", "verify", store, "--json", "--no-outlook")
    found = [line for line in outcome.lines if line["kind"] == "file-unreadable"]
    assert (outcome.code, [line["path"] for line in found]) == (1, [str(path.relative_to(store))])
    assert "Stale file handle" in found[0]["text"]
    outcome = gantrymq("store", "dump", store, "--json")
    assert outcome.code == 1
    assert f"{path}: cannot be read at byte 0: Stale file handle" in outcome.err
    outcome = gantrymq("store", "recover", store)
    assert (outcome.code, outcome.out) == (3, b"")
    assert f"{path}: cannot be read at byte" in outcome.err
    assert "Stale file handle" in outcome.err


def test_dump_reports_bad_queue_page_not_read_at_open(gantrymq: Run, spoil: Break, tmp_path: Path) -> None:
    """Opening reads the last three files of a queue."""
    path = tmp_path / "store"
    with MessageStore.open(path, replace(CONFIG, mapped_file_size_consume_queue=400), housekeeping=False) as store:
        for n in range(120):
            store.put(Message("orders", b"%0150d" % n))
    spoil(nth(path, "consumequeue", 1), 0, 400)
    outcome = gantrymq("store", "dump", path, "--json")
    assert_names(outcome, nth(path, "consumequeue", 1), 0)
    assert len(shown(outcome)) == 120
    outcome = gantrymq("store", "dump", path, "--tail", "5", "--json")
    assert len(shown(outcome)) == 5
