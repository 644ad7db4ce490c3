"""Rebuilding gives the bytes that dispatching gave; a kill at any moment leaves a store that opens with everything."""

from __future__ import annotations

import json
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faulty_file_system import FaultyFileSystem, broken_disk
from gantrymq.clock import ManualClock
from gantrymq.errors import DiskFullError, MissingFileError, StoreError, StoreLockedError
from gantrymq.format import names
from gantrymq.format.record import QUEUE_OFFSET_AT
from gantrymq.fs.real import RealFileSystem
from gantrymq.store.message_store import MessageStore
from gantrymq.store.recovery.swap_journal import ReadySwap
from gantrymq.tools.findings import FindingKind, Severity
from gantrymq.tools.rebuild import RebuildReport, rebuild_store
from gantrymq.tools.verify import verify_store
from golden_stores import NAMES, unpack
from memory_file_system import MemoryFileSystem
from store_cases import (
    BARE,
    GEOMETRY_KEYS,
    NOON_MS,
    ROOT,
    SMALL,
    await_dispatch,
    bodies,
    content,
    fill,
    numbered,
    open_reader,
    open_store,
    store_of_strays,
    tree,
)

# Units whose records retention has deleted from the log cannot be made again.
WITH_EXPIRED_UNITS = ("retention",)
# After a kill an index has more than a rebuilt one: entries of what was cut, or of the last record once more. That of
# 4.9.8 has less: no tags.
WITH_ANOTHER_INDEX = ("bad-crc", "broker-4.9.8", "direct-killed", "torn-tail")


EVERY_MOMENT = "GANTRYMQ_EVERY_MOMENT"  # set, a kill is tried at each operation of a rebuild, not at some of them


def queue_files(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in sorted(store.glob("consumequeue/*/*/*"))}


def index_files(store: Path) -> list[bytes]:
    """Their bytes in the order of their names, which tell when they were made."""
    return [path.read_bytes() for path in sorted(store.glob("index/*"))]


def filled(path: Path, rng: random.Random, messages: int = 300) -> Path:
    with open_store(RealFileSystem(), path, clock=ManualClock(NOON_MS)) as store:
        fill(store, messages, rng)
        await_dispatch(store)
    return path


def rebuild(path: Path, **options: Any) -> RebuildReport:
    return rebuild_store(path, SMALL, given=GEOMETRY_KEYS, **options)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITH_EXPIRED_UNITS])
def test_rebuild_of_golden_store_writes_bytes_of_rocketmq(name: str, tmp_path: Path) -> None:
    store = unpack(name, tmp_path) / "store"
    MessageStore.open(store, housekeeping=False).close()
    queues, index = queue_files(store), index_files(store)
    report = rebuild_store(store)
    assert queue_files(store) == queues
    assert (index_files(store) == index) == (name not in WITH_ANOTHER_INDEX)
    assert report.lost == []
    assert not (store / "rebuild.tmp").exists()
    assert [one for one in verify_store(store) if one.level is Severity.DAMAGE] == []


def test_rebuild_writes_missing_queues_and_index(tmp_path: Path, rng: random.Random) -> None:
    store = filled(tmp_path / "store", rng)
    queues, index, log = queue_files(store), index_files(store), tree(store / "commitlog")
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    report = rebuild(store)
    assert queue_files(store) == queues
    assert index_files(store) == index
    assert tree(store / "commitlog") == log
    assert (report.records, report.queues) == (300, len({Path(name).parent for name in queues}))
    assert list(verify_store(store, SMALL, given=GEOMETRY_KEYS)) == []


def full_at(which: int) -> FaultyFileSystem:
    """A disk without room for one file, the number ``which`` from 0; counted apart from what other threads do."""
    left = iter(range(which, -1, -1))

    def see(number: int) -> None:
        if fs.operations[-1][0] == "reserve" and next(left, None) == 0:
            fs.fail_at = number

    fs = FaultyFileSystem(RealFileSystem(), see=see)
    return fs


def test_rebuild_on_full_disk_keeps_old_files(tmp_path: Path, rng: random.Random) -> None:
    store = filled(tmp_path / "store", rng, 80)
    before = tree(store)
    counted = FaultyFileSystem(RealFileSystem())
    rebuild(Path(shutil.copytree(store, tmp_path / "copy")), fs=counted)
    takes = [path for name, path in counted.operations if name == "reserve"]
    assert any("index" in path.parts for path in takes)
    for which in range(0, len(takes), max(len(takes) // 8, 1)):
        with pytest.raises(DiskFullError):
            rebuild(store, fs=full_at(which))
        assert tree(store) == before


@pytest.mark.parametrize("part", ["queues", "index"])
def test_rebuild_of_one_part_leaves_other_part_unchanged(tmp_path: Path, rng: random.Random, part: str) -> None:
    store = filled(tmp_path / "store", rng, 60)
    queues, index = queue_files(store), index_files(store)
    for path in [*store.glob("consumequeue/*/*/*"), *store.glob("index/*")]:
        path.write_bytes(bytes(path.stat().st_size))
    rebuild(store, queues=part == "queues", index=part == "index")
    assert (queue_files(store) == queues) == (part == "queues")
    assert (index_files(store) == index) == (part == "index")


def test_rebuild_killed_at_any_moment_loses_nothing(tmp_path: Path, rng: random.Random) -> None:
    store = filled(tmp_path / "store", rng, 80)
    with open_reader(store) as reader:
        expected = content(reader)
    counted = FaultyFileSystem(RealFileSystem())
    copy = shutil.copytree(store, tmp_path / "counted")
    rebuild(copy, fs=counted)
    swap = next(number for number, (name, _) in enumerate(counted.operations) if name == "rename")
    # A table of offsets that cannot be read is left as it is: the next start sets its groups back, or refuses.
    tables = (number for number, (_, path) in enumerate(counted.operations) if path.parent.name == "config")
    total = next(number for number in tables if number > swap)
    moments = [*rng.sample(range(1, swap), 3), *rng.sample(range(swap, total + 1), 9)]
    moments = list(range(1, total + 1)) if os.environ.get(EVERY_MOMENT) else moments
    for moment in moments:
        shutil.rmtree(copy)
        shutil.copytree(store, copy)
        with pytest.raises(Exception, match="Input/output error"):
            rebuild(copy, fs=FaultyFileSystem(RealFileSystem(), moment, broken_disk, keeps_failing=True))
        with open_store(RealFileSystem(), copy) as opened:
            assert content(opened) == expected, moment
    rebuild(copy)
    assert list(verify_store(copy, SMALL, given=GEOMETRY_KEYS)) == []


def killed_at_rename(store: Path, number: int) -> None:
    """Rebuild, and let the disk fail from the rename of this number on."""
    counted = FaultyFileSystem(RealFileSystem())
    rebuild(Path(shutil.copytree(store, store.with_name("counted"))), fs=counted)
    renames = [place for place, (name, _) in enumerate(counted.operations, 1) if name == "rename"]
    with pytest.raises(Exception, match="Input/output error"):
        rebuild(store, fs=FaultyFileSystem(RealFileSystem(), renames[number], broken_disk, keeps_failing=True))


def test_reader_after_kill_during_swap_sees_finished_swap(tmp_path: Path, rng: random.Random) -> None:
    store = filled(tmp_path / "store", rng, 80)
    with open_reader(store) as reader:
        expected = content(reader)
    shutil.rmtree(store / "consumequeue")
    killed_at_rename(store, 4)
    before = tree(store)
    with open_reader(store) as reader:
        assert content(reader) == expected
    assert tree(store) == before


@pytest.mark.parametrize("mark", ["of a log that went on", "broken"])
def test_rebuild_overtaken_by_new_messages_moves_no_file(
    mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    with open_store(RealFileSystem(), store) as opened:
        for message in numbered(100):
            opened.put(message)
        await_dispatch(opened)
    killed_at_rename(store, -1)
    with monkeypatch.context() as rocketmq:
        rocketmq.setattr(ReadySwap, "finish", lambda self: None)
        with open_store(RealFileSystem(), store) as opened:
            for message in numbered(20, first=100):
                opened.put(message)
            await_dispatch(opened)
    if mark == "broken":
        (store / "rebuild.tmp/ready.json").write_bytes(b"{")
    with open_store(RealFileSystem(), store) as opened:
        assert len(bodies(opened)) == 120
    assert not (store / "rebuild.tmp").exists()
    assert [one for one in verify_store(store, SMALL, given=GEOMETRY_KEYS) if one.level is Severity.DAMAGE] == []
    rebuild(store)


@pytest.mark.parametrize("part", ["consumequeue", "index"])
def test_dangling_link_is_refused_before_work(tmp_path: Path, rng: random.Random, part: str) -> None:
    store = filled(tmp_path / "store", rng, 20)
    shutil.rmtree(store / part)
    (store / part).symlink_to(tmp_path / "unmounted" / part)
    before = sorted(store.rglob("*"))
    with pytest.raises(StoreError, match=f"{part}: is a broken link"):
        rebuild(store)
    assert sorted(store.rglob("*")) == before


def test_damage_in_log_is_skipped_and_reported(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with open_store(RealFileSystem(), store) as opened:
        results = [opened.put(message) for message in numbered(300)]
        await_dispatch(opened)
    broken = results[40]
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(broken.phy_offset)
        file.write(b"\xff" * 8)
    shutil.rmtree(store / "consumequeue")
    report = rebuild(store)
    assert [(one.start, one.end) for one in report.lost] == [(broken.phy_offset, broken.end_offset)]
    findings = {(one.kind, one.level, one.queue_offset) for one in verify_store(store, SMALL, given=GEOMETRY_KEYS)}
    assert findings == {
        (FindingKind.LENGTH_CHAIN, Severity.DAMAGE, None),
        (FindingKind.QUEUE_FILLED, Severity.NOTE, 40),
    }


def test_record_with_wrong_queue_offset_gets_its_unit_and_is_reported(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with open_store(RealFileSystem(), store) as opened:
        results = [opened.put(message) for message in numbered(300)]
        await_dispatch(opened)
    wrong, before = results[140], queue_files(store)
    file_size = SMALL.mapped_file_size_commit_log
    path = store / "commitlog" / f"{wrong.phy_offset - wrong.phy_offset % file_size:020d}"
    with path.open("r+b") as file:
        file.seek(wrong.phy_offset % file_size + QUEUE_OFFSET_AT)
        file.write(b"\x40")
    report = rebuild(store)
    assert (report.lost, report.account.messages) == ([], [])
    assert [(one.queue_offset, one.phy_offset) for one in report.account.repaired] == [(140, wrong.phy_offset)]
    assert queue_files(store) == before


@pytest.mark.parametrize("is_verified", [False, True])
def test_record_with_wrong_crc_over_whole_record_is_kept_as_next_start_does(
    tmp_path: Path, *, is_verified: bool
) -> None:
    """Only with forceVerifyPropCRC does a start compare that CRC, and end the log there."""
    store, config = tmp_path / "store", replace(SMALL, enabled_append_prop_crc=True, force_verify_prop_crc=is_verified)
    with open_store(RealFileSystem(), store, config=config) as opened:
        results = [opened.put(message) for message in numbered(30)]
        await_dispatch(opened)
    broken = results[10]
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(broken.phy_offset + 20)  # its queue offset, of which the body's CRC knows nothing
        file.write(b"\x01")
    report = rebuild_store(store, config, given=GEOMETRY_KEYS)
    assert (report.lost[0].start, report.lost[0].end) == (broken.phy_offset, broken.end_offset)
    lost = [(run.begin, run.end) for run in report.account.messages]
    assert lost == ([(10, 11), (11, 30)] if is_verified else [])
    assert [record.queue_offset for record in report.account.repaired] == ([] if is_verified else [10])
    with open_store(RealFileSystem(), store, config=config) as opened:
        put = opened.put(numbered(1)[0])
        assert put.phy_offset == (broken.phy_offset if is_verified else results[-1].end_offset)
        assert is_verified or put.queue_offset == 30


@pytest.mark.parametrize("has_ext", [False, True])
def test_offsets_of_lost_messages_are_not_given_out_again(tmp_path: Path, has_ext: bool) -> None:
    config = replace(SMALL, enable_consume_queue_ext=has_ext, mapped_file_size_consume_queue_ext=1024)
    store = tmp_path / "store"
    with open_store(RealFileSystem(), store, config=config) as opened:
        results = [opened.put(message) for message in numbered(25, topic="bills")]
        for message in numbered(200):
            opened.put(message)
        await_dispatch(opened)
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        for lost in results[17:]:
            file.seek(lost.phy_offset + 4)
            file.write(b"\xff")
    for _ in range(2):
        rebuild_store(store, config, given=GEOMETRY_KEYS)
    findings = verify_store(store, config, given=GEOMETRY_KEYS)
    assert {one.kind for one in findings if one.level is Severity.DAMAGE} == {FindingKind.LENGTH_CHAIN}
    killed = shutil.copytree(store, tmp_path / "killed")
    (killed / "abort").touch()
    for path in (store, killed):
        with open_store(RealFileSystem(), path, config=config) as opened:
            assert opened.put(numbered(1, topic="bills")[0]).queue_offset == 25
            await_dispatch(opened)
            assert [one.queue_offset for one in opened.get("bills", 0, 25).messages] == [25]
            assert len(bodies(opened, "bills")) == 17 + 1


def test_queue_without_records_keeps_its_next_offset(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with open_store(RealFileSystem(), store) as opened:
        for message in [*numbered(5, topic="old"), *numbered(300)]:
            opened.put(message)
        await_dispatch(opened)
    (store / "commitlog" / f"{0:020d}").unlink()
    before = queue_files(store)
    rebuild(store)
    assert queue_files(store)[f"consumequeue/old/0/{0:020d}"] == before[f"consumequeue/old/0/{0:020d}"]
    with open_store(RealFileSystem(), store) as opened:
        assert opened.put(numbered(1, topic="old")[0]).queue_offset == 5


def test_rebuild_keeps_abort_file_of_unclosed_store(tmp_path: Path, rng: random.Random) -> None:
    store = filled(tmp_path / "store", rng, 60)
    (store / "abort").write_bytes(b"4711")
    rebuild(store)
    assert (store / "abort").exists()


def test_power_cut_after_rebuild_loses_nothing_covered_by_checkpoint(seed: int) -> None:
    lazy = replace(BARE, mapped_file_size_commit_log=4096, flush_interval_commit_log_ms=60_000)
    disk = MemoryFileSystem()
    store = open_store(disk, config=lazy)
    for message in numbered(200):
        store.put(message)
    await_dispatch(store)
    disk = disk.kill_clone()
    rebuild_store(ROOT, lazy, given=GEOMETRY_KEYS, fs=disk)
    for number in range(10):
        with open_store(disk.crash_clone(0.9, seed + number), config=lazy) as opened:
            assert len(bodies(opened)) == 200  # rebuild vouches for all of them


def test_power_cut_after_rebuild_loses_no_queue_with_unsynced_directory() -> None:
    """The directory is there and its name is not on the disk: files that are moved into it would go with it."""
    lazy = replace(BARE, mapped_file_size_commit_log=4096, flush_interval_consume_queue_ms=60_000)
    disk = MemoryFileSystem()
    with open_store(disk, config=lazy) as store:
        store.put_batch(numbered(200))
    store = open_store(disk, config=lazy)
    store.put_batch([*numbered(1, queue_id=1), *numbered(1, topic="bills"), *numbered(200, first=200)])
    await_dispatch(store)
    disk = disk.kill_clone()
    rebuild_store(ROOT, lazy, given=GEOMETRY_KEYS, fs=disk)
    with open_store(disk.crash_clone(0.0, 0), config=lazy) as opened:
        assert [queue[:2] for queue in opened.queues()] == [("bills", 0), ("orders", 0), ("orders", 1)]


@pytest.mark.parametrize("part", ["consumequeue", "consumequeue/orders", "index"])
def test_rebuild_across_disks_is_refused_and_changes_nothing(part: str, tmp_path: Path, rng: random.Random) -> None:
    class TwoDisks(RealFileSystem):
        def can_rename(self, source: Path, target: Path) -> bool:
            return source.is_relative_to(store / part) == target.is_relative_to(store / part)

    store = filled(tmp_path / "store", rng, 60)
    before = tree(store)
    with pytest.raises(StoreError, match=f"{part}.* lies on another disk"):
        rebuild(store, fs=TwoDisks())
    assert tree(store) == before


def test_rebuild_refuses_unusable_store(tmp_path: Path, rng: random.Random) -> None:
    store = filled(tmp_path / "store", rng)
    with open_store(RealFileSystem(), store):
        before = queue_files(store)
        with pytest.raises(StoreLockedError):
            rebuild(store)
        assert queue_files(store) == before
    (store / "commitlog" / f"{SMALL.mapped_file_size_commit_log:020d}").unlink()
    before_all = tree(store)
    missing = store / "commitlog" / f"{SMALL.mapped_file_size_commit_log:020d}"
    with pytest.raises(MissingFileError, match=rf"^{missing}: is missing.*`gantrymq store salvage`") as refused:
        rebuild(store)
    assert "--set acceptMissingCommitLog=true" in str(refused.value)
    assert tree(store) == before_all


def test_quarantined_records_are_listed_in_log_order(tmp_path: Path) -> None:
    """The queues are compared in the order of their names, so the records are found in another order."""
    strays = store_of_strays(tmp_path / "store")
    report = rebuild(tmp_path / "store")
    listed = json.loads((tmp_path / "store" / names.LOST_FOUND / "quarantine.json").read_text())
    assert [record["phyOffset"] for record in listed] == strays == sorted(strays)
    assert [record.phy_offset for record in report.account.quarantined] == strays
