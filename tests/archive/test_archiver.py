"""Archives of small stores: they grow with the log, survive a kill before any change, and refuse what is not theirs."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from archive_cases import (
    Killed,
    KilledTarget,
    archive,
    archiver,
    copy_of,
    damage,
    findings,
    target_at,
    wrong_files,
)
from gantrymq.archive.copies import restore_archive
from gantrymq.archive.source import ArchiveSource
from gantrymq.archive.work_directory import WorkDirectory
from gantrymq.clock import ManualClock
from gantrymq.errors import ArchiveError, StoreError, StoreLockedError
from gantrymq.format.record import encode_blank
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import SCHEDULE_TOPIC, Message
from gantrymq.store.message_store import MessageStore
from gantrymq.store.timer.timer_files import TimerCheckpointFile
from gantrymq.tools.read.store_source import StoreSource
from gantrymq.tools.rebuild import rebuild_store
from store_cases import (
    GEOMETRY_KEYS,
    NOON_MS,
    SMALL,
    await_dispatch,
    bodies,
    content,
    fill,
    numbered,
    odd_message,
    open_reader,
    open_store,
)

FILE = SMALL.mapped_file_size_commit_log
SETTINGS = {"config": SMALL, "given": GEOMETRY_KEYS}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """An open store on the disk, as beside a broker."""
    with open_store(RealFileSystem(), tmp_path / "store") as opened:
        yield opened


def files(root: Path, part: str) -> dict[str, bytes]:
    paths = sorted(path for path in (root / part).rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def archived_content(root: Path, end: int) -> dict[tuple[str, int], dict[int, object]]:
    """Every message before ``end`` by queue and queue offset; queues without one are left out."""
    with open_reader(root) as reader:
        queues = content(reader)
    before = {
        key: {offset: message for offset, message in queue.items() if message.phy_offset < end}
        for key, queue in queues.items()
    }
    return {key: queue for key, queue in before.items() if queue}


def test_archive_beside_open_store_grows_and_is_what_one_archive_is(
    tmp_path: Path, store: MessageStore, rng: random.Random
) -> None:
    place, at_once = tmp_path / "archive", tmp_path / "at-once"
    ends = []
    with archiver(tmp_path / "store", target_at(place)) as work:
        for _ in range(4):
            fill(store, 60, rng)
            await_dispatch(store)
            while not work.run_round().is_last:
                pass
            ends.append(work.summary.max_offset)
            assert findings(copy_of(place, tmp_path / "copy")) == []
    assert ends == sorted(set(ends))
    assert 0 <= store.max_phy_offset - ends[-1] < FILE
    archive(tmp_path / "store", at_once)
    for part in ("commitlog", "consumequeue", "index"):
        assert files(place, part) == files(at_once, part)
    assert archived_content(place, ends[-1]) == archived_content(tmp_path / "store", ends[-1])
    rebuilt = copy_of(place, tmp_path / "rebuilt")
    rebuild_store(rebuilt, **SETTINGS)
    for part in ("consumequeue", "index"):
        assert files(rebuilt, part) == files(place, part)
    assert wrong_files(place) == []


@pytest.mark.parametrize("share", [0.1, pytest.param(1.0, marks=pytest.mark.slow)])
def test_kill_before_any_change_leaves_a_store_with_all_that_was_archived(
    tmp_path: Path, store: MessageStore, rng: random.Random, share: float
) -> None:
    place, base = tmp_path / "archive", tmp_path / "base"
    fill(store, 40, rng)
    before = archive(tmp_path / "store", base)
    fill(store, 40, rng)
    expected = archived_content(base, before.max_offset)
    counted = KilledTarget(target_at(copy_of(base, place)), 10_000)
    archive(tmp_path / "store", counted)
    changes = 10_000 - counted.left
    assert changes > 15
    for killed_at in [0, changes - 1, *(number for number in range(1, changes - 1) if rng.random() < share)]:
        with pytest.raises(Killed):
            archive(tmp_path / "store", KilledTarget(target_at(copy_of(base, place)), killed_at))
        copy = copy_of(place, tmp_path / "copy")
        assert damage(copy) == [], killed_at
        with open_store(RealFileSystem(), copy) as opened:
            assert archived(opened, before.max_offset) == expected
        assert damage(copy) == []
        done = archive(tmp_path / "store", place)
        assert (findings(place), wrong_files(place)) == ([], [])
        shutil.rmtree(tmp_path / "restored", ignore_errors=True)
        restore_archive(target_at(place), tmp_path / "restored", RealFileSystem(), None, None)
        assert files(tmp_path / "restored", ".").keys() == files(place, ".").keys() - {"lock", "archive.json"}
        assert done.max_offset > before.max_offset


def archived(opened: MessageStore, end: int) -> dict[tuple[str, int], dict[int, object]]:
    queues = content(opened)
    before = {
        key: {offset: message for offset, message in queue.items() if message.phy_offset < end}
        for key, queue in queues.items()
    }
    return {key: queue for key, queue in before.items() if queue}


def test_broker_goes_on_with_a_copy(tmp_path: Path, store: MessageStore) -> None:
    for message in numbered(300):
        store.put(message)
    summary = archive(tmp_path / "store", tmp_path / "archive")
    copy = copy_of(tmp_path / "archive", tmp_path / "copy")
    with open_store(RealFileSystem(), copy) as opened:
        before = bodies(opened)
        assert before == [b"%08d" % number for number in range(len(before))]
        assert opened.put(Message("orders", b"next")).queue_offset == len(before)
        await_dispatch(opened)
        assert bodies(opened)[-1] == b"next"
    assert summary.max_offset - opened.max_phy_offset < FILE
    assert findings(copy) == []


def test_files_of_retention_stay_and_a_gap_is_refused(tmp_path: Path, store: MessageStore, rng: random.Random) -> None:
    place, log = tmp_path / "archive", tmp_path / "store" / "commitlog"
    fill(store, 120, rng)
    first = archive(tmp_path / "store", place)
    store.close()
    names = sorted(log.iterdir())
    names[0].unlink()
    assert archive(tmp_path / "store", place) == first
    assert (place / "commitlog" / names[0].name).exists()
    with open_store(RealFileSystem(), tmp_path / "store") as opened:
        fill(opened, 120, rng)
    for path in log.iterdir():
        if int(path.name) <= first.max_offset:
            path.unlink()
    with pytest.raises(ArchiveError, match="retention was faster; archive to another place"):
        archive(tmp_path / "store", place)
    late = archive(tmp_path / "store", tmp_path / "late")
    assert late.min_offset == first.max_offset + FILE
    assert damage(tmp_path / "late") == []


def test_recreated_store_is_refused_and_changes_nothing(
    tmp_path: Path, store: MessageStore, rng: random.Random
) -> None:
    place = tmp_path / "archive"
    fill(store, 60, rng)
    store.close()
    archive(tmp_path / "store", place)
    before = files(place, ".")
    for count in (0, 1, 200):
        other = tmp_path / f"other-{count}"
        with open_store(RealFileSystem(), other) as opened:
            for _ in range(count):
                opened.put(odd_message(rng))
        with pytest.raises(ArchiveError, match=r"another log|ends before the archive"):
            archive(other, place)
        assert files(place, ".") == before


def test_second_archiver_is_refused(tmp_path: Path, store: MessageStore, rng: random.Random) -> None:
    fill(store, 60, rng)
    with archiver(tmp_path / "store", target_at(tmp_path / "archive")) as work:
        work.run_round()
        with pytest.raises(StoreLockedError):
            archive(tmp_path / "store", tmp_path / "archive")
    archive(tmp_path / "store", tmp_path / "archive")


def test_lost_and_changed_log_files_are_archived_again(tmp_path: Path, store: MessageStore, rng: random.Random) -> None:
    place = tmp_path / "archive"
    fill(store, 120, rng)
    archive(tmp_path / "store", place)
    whole = files(place, "commitlog")
    names = sorted((place / "commitlog").iterdir())
    names[0].unlink()
    names[1].write_bytes(names[1].read_bytes()[:-1])
    names[2].write_bytes(b"\1" + names[2].read_bytes()[1:])
    assert len(wrong_files(place)) == 3
    archive(tmp_path / "store", place)
    assert (files(place, "commitlog"), wrong_files(place)) == (whole, [])
    queue = next(iter(sorted(place.glob("consumequeue/*/*/*"))))
    queue.write_bytes(bytes(400))
    with pytest.raises(ArchiveError, match="archive check"):
        archive(tmp_path / "store", place)


def test_full_disk_leaves_the_archive_before_and_nothing_half(
    tmp_path: Path, store: MessageStore, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "archive"
    fill(store, 60, rng)
    archive(tmp_path / "store", place)
    fill(store, 60, rng)
    chunks = "gantrymq.archive.target._write"

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(chunks, full)
        with pytest.raises(ArchiveError, match="No space left on device"):
            archive(tmp_path / "store", place)
    assert not list(place.glob("archive.tmp/*"))
    assert damage(place) == []
    archive(tmp_path / "store", place)
    assert (findings(place), wrong_files(place)) == ([], [])


def test_damaged_record_is_archived_and_named(tmp_path: Path, store: MessageStore) -> None:
    for message in numbered(300):
        store.put(message)
    await_dispatch(store)
    victim = tmp_path / "store" / "commitlog" / f"{FILE:020d}"
    raw = bytearray(victim.read_bytes())
    at = raw.index(b"00000")
    raw[at] ^= 1
    victim.write_bytes(raw)
    summary = archive(tmp_path / "store", tmp_path / "archive")
    assert [part.name for part in summary.damage] == [f"commitlog/{FILE:020d}"]
    assert summary.damage[0].begin <= FILE + at < summary.damage[0].end
    assert (tmp_path / "archive" / "commitlog" / victim.name).read_bytes() == bytes(raw)
    assert [finding.kind.value for finding in damage(tmp_path / "archive")] == ["record-crc"]
    assert archive(tmp_path / "store", tmp_path / "archive").damage == summary.damage


def test_file_is_whole_when_a_blank_closes_it_or_a_later_one_has_a_record(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(RealFileSystem(), root) as opened:
        for message in numbered(250):
            opened.put(message)
        end = opened.max_phy_offset

    def whole() -> int:
        source = ArchiveSource(StoreSource(RealFileSystem(), root, SMALL, GEOMETRY_KEYS))
        return len(source.whole_files(source.files()))

    number, used = divmod(end, FILE)
    last = root / "commitlog" / f"{number * FILE:020d}"
    for path in (root / "commitlog").iterdir():
        if int(path.name) > number * FILE:
            path.unlink()
    assert whole() == number
    (root / "commitlog" / f"{(number + 1) * FILE:020d}").write_bytes(bytes(FILE))  # made in advance
    assert whole() == number
    raw = bytearray(last.read_bytes())
    raw[used : used + 8] = encode_blank(FILE - used)
    last.write_bytes(raw)
    assert whole() == number + 1
    raw[used : used + 8] = encode_blank(FILE - used - 1)
    last.write_bytes(raw)
    assert whole() == number


def test_deleted_and_recreated_topic_begins_again(tmp_path: Path, store: MessageStore) -> None:
    place = tmp_path / "archive"
    for message in numbered(200, topic="mine"):
        store.put(message)
    await_dispatch(store)
    archive(tmp_path / "store", place)
    store.delete_topic("mine")
    for message in [*numbered(3, first=7000, topic="mine"), *numbered(300)]:
        store.put(message)
    await_dispatch(store)
    summary = archive(tmp_path / "store", place)
    assert (damage(place), wrong_files(place)) == ([], [])
    assert archived_content(place, summary.max_offset) == archived_content(tmp_path / "store", summary.max_offset)
    with open_store(RealFileSystem(), copy_of(place, tmp_path / "copy")) as opened:
        assert bodies(opened, "mine") == [b"%08d" % number for number in range(7000, 7003)]


def test_offsets_of_groups_end_with_their_queues(tmp_path: Path, store: MessageStore) -> None:
    for message in numbered(300):
        store.put(message)
    await_dispatch(store)
    config = tmp_path / "store" / "config"
    config.mkdir(exist_ok=True)
    table = {"offsetTable": {"orders@billing": {"0": 300}, "orders@slow": {"0": 5}}}
    (config / "consumerOffset.json").write_text(json.dumps(table))
    (config / "topics.json").write_text("no table")
    with archiver(tmp_path / "store", target_at(tmp_path / "archive")) as work:
        assert work.run_round().unusable == ["topics.json"]
    with open_reader(tmp_path / "archive") as reader:
        end = len(bodies(reader))
    assert 0 < end < 300
    saved = (tmp_path / "archive" / "config" / "consumerOffset.json").read_text()
    assert f"0:{end}" in saved
    assert "0:5" in saved
    assert damage(tmp_path / "archive") == []


def test_restore_refuses_a_directory_with_files_and_leaves_nothing_after_a_failure(
    tmp_path: Path, store: MessageStore, rng: random.Random
) -> None:
    fill(store, 60, rng)
    place, fs = tmp_path / "archive", RealFileSystem()
    archive(tmp_path / "store", place, b"k" * 16)
    with pytest.raises(StoreError, match="is not empty"):
        restore_archive(target_at(place), place, fs, None, None)
    with pytest.raises(ArchiveError, match="not signed with this key"):
        restore_archive(target_at(place), tmp_path / "new", fs, b"o" * 16, None)
    restore_archive(target_at(place), tmp_path / "new", fs, b"k" * 16, None)
    assert findings(tmp_path / "new") == []
    shutil.rmtree(place / "index")
    with pytest.raises(ArchiveError):
        restore_archive(target_at(place), tmp_path / "other", fs, None, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "new", "store"]


def test_progress_of_the_broker_is_that_of_ten_minutes_before_the_end(tmp_path: Path) -> None:
    root, clock = tmp_path / "store", ManualClock(NOON_MS)
    half, group = "RMQ_SYS_TRANS_HALF_TOPIC", "CID_RMQ_SYS_TRANS"
    with open_store(RealFileSystem(), root, clock=clock, delivers=False) as opened:
        for number in range(1000):
            opened.put(Message(SCHEDULE_TOPIC, b"", queue_id=1, properties={"DELAY": "2", "REAL_TOPIC": "orders"}))
            opened.put(Message(half, b"%d" % number))
            clock.advance(1000)
        await_dispatch(opened)
    config = root / "config"
    config.mkdir(exist_ok=True)
    (config / "delayOffset.json").write_text('{"offsetTable":{2:1000}}')
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": {f"{half}@{group}": {"0": 1000}}}))
    TimerCheckpointFile(RealFileSystem(), config / "timercheck").save(NOON_MS + 999_000, 5, 7, 7, NOON_MS)
    summary = archive(root, tmp_path / "archive")
    end_s = (summary.stored_ms - NOON_MS) // 1000
    saved = tmp_path / "archive" / "config"
    assert f"2:{end_s - 600 - 5}" in (saved / "delayOffset.json").read_text()  # the level waits 5 s
    halves = int((saved / "consumerOffset.json").read_text().rpartition("0:")[2].partition("}")[0])
    assert end_s - 700 < halves <= end_s - 600
    timers = TimerCheckpointFile(RealFileSystem(), saved / "timercheck")
    timers.load()
    assert (timers.page.last_read_time_ms, timers.page.timer_log_flush_pos) == (summary.stored_ms - 600_000, 0)
    assert damage(tmp_path / "archive") == []


def test_work_directory_of_a_killed_archiver_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed, living = WorkDirectory(), WorkDirectory()
    os.close(killed._lock)  # as the end of a process does
    last = WorkDirectory()
    assert (killed.path.exists(), living.path.exists(), last.path.exists()) == (False, True, True)
    living.remove()
    last.remove()
    assert not list(tmp_path.iterdir())
