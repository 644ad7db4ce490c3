"""A topic that was deleted and recreated: its queues restart at 0, and the log has two messages of each offset.

What the queues last had is what counts, after a kill, after a power cut that took them, for who checks them and for
who makes them anew.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gantrymq.clock import ManualClock
from gantrymq.format.queue_entry import PRE_BLANK, encode_entry
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.store.delay import ScheduleMessageService
from gantrymq.store.deleted_topics import DeletedTopics
from gantrymq.store.delivery import Delivery
from gantrymq.store.message_store import MessageStore
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.reader import StoreReader
from gantrymq.store.recovery import log_passes
from gantrymq.tools import rebuild
from gantrymq.tools.export import export_store
from gantrymq.tools.export_plan import ExportSelection
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.salvage import salvage_store
from gantrymq.tools.verify import verify_store
from memory_file_system import MemoryFileSystem
from store_cases import GEOMETRY_KEYS, ROOT, SMALL, await_dispatch, bodies, killed, open_store, to_disk

OLD, NEW = 20, 5
ONE_FILE = replace(SMALL, mapped_file_size_commit_log=1 << 20)


def made_anew(fs: MemoryFileSystem, old: int = OLD, new: int = NEW, *, config: object = SMALL) -> MessageStore:
    """A store whose topic ``orders`` had ``old`` messages, was deleted, and has ``new`` ones; ``paid`` goes on."""
    store = MessageStore.open(ROOT, config, given=GEOMETRY_KEYS, fs=fs, housekeeping=False)  # type: ignore[arg-type]
    for number in range(old):
        store.put(Message("orders", b"old %d" % number, tags="A"))
        store.put(Message("paid", b"%d" % number))
    store.delete_topic("orders")
    for number in range(new):
        assert store.put(Message("orders", b"new %d" % number, tags="A")).queue_offset == number
        store.put(Message("paid", b"%d" % (old + number)))
    await_dispatch(store)
    return store


def new_ones(count: int = NEW) -> list[bytes]:
    return [b"new %d" % number for number in range(count)]


@pytest.mark.parametrize("config", [SMALL, ONE_FILE], ids=["many files", "one file"])
@pytest.mark.parametrize("new", [1, 2, NEW, 40])
def test_killed_store_keeps_queue_of_recreated_topic(new: int, config: object) -> None:
    fs = MemoryFileSystem()
    with made_anew(fs, new=new, config=config):
        fs = killed(fs)
    for _ in range(2):
        with open_store(fs, config=config) as store:  # type: ignore[arg-type]
            assert bodies(store) == new_ones(new)
            assert bodies(store, "paid") == [b"%d" % number for number in range(OLD + new)]
        fs = killed(fs)


def test_killed_store_continues_offsets_of_recreated_topic() -> None:
    fs = MemoryFileSystem()
    with made_anew(fs):
        fs = killed(fs)
    with open_store(fs) as store:
        assert store.put(Message("orders", b"next")).queue_offset == NEW
        await_dispatch(store)
        assert bodies(store) == [*new_ones(), b"next"]


@pytest.mark.parametrize("old", [1, OLD, 300])
@pytest.mark.parametrize("new", [2, NEW, 40])
@pytest.mark.parametrize("batch_records", [1, 1000])
def test_rebuilt_queues_are_those_of_recreated_topic(
    old: int, new: int, batch_records: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log tells, wherever its pieces end: offsets 0 and 1 behind others of their queue begin it anew."""
    monkeypatch.setattr(log_passes, "LARGE_BATCH_RECORDS", batch_records)
    fs = MemoryFileSystem()
    with made_anew(fs, old=old, new=new):
        path = to_disk(killed(fs), tmp_path / "store")
    lose_queues(path)
    with open_store(RealFileSystem(), path) as store:
        assert bodies(store) == new_ones(new)


def test_single_message_of_recreated_topic_without_queue_is_appended_to_old_ones(tmp_path: Path) -> None:
    """Its offset 0 may be that of any message, with a flipped bit: it comes behind the others, and nothing is lost."""
    fs = MemoryFileSystem()
    with made_anew(fs, new=1):
        path = to_disk(killed(fs), tmp_path / "store")
    lose_queues(path)
    with open_store(RealFileSystem(), path) as store:
        assert bodies(store) == [*(b"old %d" % number for number in range(OLD)), b"new 0"]
    for _ in range(2):
        found = list(verify_store(path, SMALL, given=GEOMETRY_KEYS))
        assert [(one.kind.value, one.level.value, one.queue_offset) for one in found] == [
            ("queue-entry-anew", "note", OLD)
        ]
        assert rebuild_store(path, SMALL, given=GEOMETRY_KEYS).lost == []


def test_salvage_keeps_plausible_offset_0(tmp_path: Path) -> None:
    path, out = closed_store(tmp_path, new=1), tmp_path / "out"
    lose_queues(path)
    report = salvage_store(path, out, SMALL, given=GEOMETRY_KEYS)
    assert (report.corrected, report.lost) == (0, [])
    assert logs(out) == logs(path)
    with open_store(RealFileSystem(), out) as store:
        assert bodies(store) == [*(b"old %d" % number for number in range(OLD)), b"new 0"]


def test_salvage_of_healthy_store_keeps_only_messages_of_recreated_topic(tmp_path: Path) -> None:
    path, out = closed_store(tmp_path, new=1), tmp_path / "out"
    assert salvage_store(path, out, SMALL, given=GEOMETRY_KEYS).corrected == 0
    assert logs(out) == logs(path)
    assert [str(one) for one in verify_store(out, SMALL, given=GEOMETRY_KEYS)] == []
    with open_store(RealFileSystem(), out) as store:
        assert bodies(store) == new_ones(1)


@pytest.mark.parametrize("offset", [1, 16, 19])
@pytest.mark.parametrize("has_queues", [True, False])
def test_message_with_offset_flipped_to_0_loses_at_most_itself(tmp_path: Path, offset: int, has_queues: bool) -> None:
    fs = MemoryFileSystem()
    with open_store(fs) as store:
        for number in range(offset + 1):
            store.put(Message("orders", b"%02d" % number * 200))  # a file of the log holds some forty of them
        await_dispatch(store)
        path = to_disk(killed(fs), tmp_path / "store")
        place = store.get("orders", 0, offset).messages[0].phy_offset
    log = path / "commitlog" / f"{place // 16384 * 16384:020d}"
    raw = bytearray(log.read_bytes())
    raw[place % 16384 + 20 : place % 16384 + 28] = bytes(8)
    log.write_bytes(raw)
    if not has_queues:
        lose_queues(path)
    with open_store(RealFileSystem(), path) as store:
        assert bodies(store)[:offset] == [b"%02d" % number * 200 for number in range(offset)]


def lose_queues(path: Path) -> None:
    """Lose the queues, and what says that a topic was deleted: of that RocketMQ has nothing."""
    forget_deletions(path)
    for file in sorted((path / "consumequeue").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()


def forget_deletions(path: Path) -> None:
    shutil.rmtree(path / "config", ignore_errors=True)  # nothing else is in it here


def logs(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (path / "commitlog").iterdir()}


def closed_store(tmp_path: Path, old: int = OLD, new: int = NEW) -> Path:
    fs = MemoryFileSystem()
    made_anew(fs, old, new).close()
    return to_disk(fs, tmp_path / "store")


def test_verify_of_closed_store_with_recreated_topic_has_no_finding(tmp_path: Path) -> None:
    path = closed_store(tmp_path)
    assert [str(one) for one in verify_store(path, SMALL, given=GEOMETRY_KEYS)] == []


def test_verify_reports_message_without_unit_in_recreated_topic(tmp_path: Path) -> None:
    path = closed_store(tmp_path)
    forget_deletions(path)
    file = path / "consumequeue" / "orders" / "0" / f"{0:020d}"
    # Where the first unit is gone nobody knows where the queue begins; the two holes are findings of their own.
    for slot, missed in ((3, 0), (0, OLD - 2)):
        raw = bytearray(file.read_bytes())
        raw[slot * 20 : slot * 20 + 20] = bytes(20)
        file.write_bytes(raw)
        found = list(verify_store(path, SMALL, given=GEOMETRY_KEYS))
        assert {one.kind.value for one in found} >= {"queue-hole"}
        assert sum(one.count for one in found if one.kind.value == "message-without-entry") == missed


@pytest.mark.parametrize("old", [1, OLD, 300])
@pytest.mark.parametrize("new", [1, 2, NEW, 40])
@pytest.mark.parametrize("batch_records", [1, 1000])
def test_rebuild_of_recreated_topic_changes_nothing(
    old: int, new: int, batch_records: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one new message the log does not say that it began the queue anew; the old queue's first unit does."""
    monkeypatch.setattr(rebuild, "LARGE_BATCH_RECORDS", batch_records)
    path = closed_store(tmp_path, old, new)
    before = {file: file.read_bytes() for file in path.glob("consumequeue/*/*/*")}
    rebuild_store(path, SMALL, given=GEOMETRY_KEYS)
    assert {file: file.read_bytes() for file in path.glob("consumequeue/*/*/*")} == before


def test_damaged_second_message_leaves_queue_start_to_first_unit(tmp_path: Path) -> None:
    path = closed_store(tmp_path)
    file = path / "consumequeue" / "orders" / "0" / f"{0:020d}"
    before = file.read_bytes()
    damage(path / "commitlog" / f"{0:020d}", int.from_bytes(before[20:28]) + 88, b"damaged")
    rebuild_store(path, SMALL, given=GEOMETRY_KEYS)
    assert file.read_bytes() == before[:20] + encode_entry(PRE_BLANK) + before[40:]


@pytest.mark.parametrize("unit", [None, bytes(20), b"\xff" * 20, b"short"])
def test_first_unit_without_record_does_not_prove_queue_start(tmp_path: Path, unit: bytes | None) -> None:
    path = closed_store(tmp_path, new=1)
    forget_deletions(path)
    file = path / "consumequeue" / "orders" / "0" / f"{0:020d}"
    if unit is None:
        lose_queues(path)
    elif len(unit) == 20:
        damage(file, 0, unit)
    else:
        file.unlink()
        file.write_bytes(unit)
    rebuild_store(path, SMALL, given=GEOMETRY_KEYS)
    with open_store(RealFileSystem(), path) as store:
        assert bodies(store) == [*(b"old %d" % number for number in range(OLD)), b"new 0"]


def damage(file: Path, at: int, data: bytes) -> None:
    raw = bytearray(file.read_bytes())
    raw[at : at + len(data)] = data
    file.write_bytes(raw)


@pytest.mark.parametrize("topics", [None, {"orders"}, {"orders", "paid"}], ids=["all", "one", "both"])
def test_export_omits_deleted_topic(tmp_path: Path, topics: set[str] | None) -> None:
    path = closed_store(tmp_path)
    selection = ExportSelection(topics=frozenset(topics) if topics else None)
    export_store(path, tmp_path / "out", selection=selection, config=SMALL, given=GEOMETRY_KEYS)
    written = pq.read_table(tmp_path / "out" / "topic_dir=orders", partitioning=None)
    assert written.column("body").to_pylist() == new_ones()


def deleted(fs: MemoryFileSystem, *, old: int = 12, others: int = 2) -> MessageStore:
    """A store whose topic ``orders`` had messages in four queues, was deleted, and has none since."""
    store = MessageStore.open(ROOT, SMALL, given=GEOMETRY_KEYS, fs=fs, housekeeping=False)
    for number in range(others):
        store.put(Message("paid", b"%d" % number))
    for number in range(old):
        store.put(Message("orders", b"old %d" % number, number % 4, tags="A"))
    assert store.delete_topic("orders").queues == 4
    return store


def ends(store: MessageStore | StoreReader) -> list[int]:
    return [store.get("orders", number, 0).max_offset for number in range(4)]


@pytest.mark.parametrize("old", [12, 400])
@pytest.mark.parametrize("how", ["closed", "killed"])
def test_deleted_topic_stays_empty_over_restarts(old: int, how: str) -> None:
    fs = MemoryFileSystem()
    with deleted(fs, old=old):
        if how == "killed":
            fs = killed(fs)
    for _ in range(3):
        with open_store(fs) as store:
            assert ends(store) == [0] * 4
            assert bodies(store, "paid") == [b"0", b"1"]
            if how == "killed":
                fs = killed(fs)
    with open_store(fs) as store:
        assert store.put(Message("orders", b"new")).queue_offset == 0
        await_dispatch(store)
        assert bodies(store) == [b"new"]
    with open_store(fs) as store:
        assert bodies(store) == [b"new"]
        assert ends(store) == [1, 0, 0, 0]


def test_deleted_topic_stays_empty_for_reader_rebuild_and_salvage(tmp_path: Path) -> None:
    fs = MemoryFileSystem()
    deleted(fs).close()
    path, out = to_disk(fs, tmp_path / "store"), tmp_path / "out"
    assert [str(one) for one in verify_store(path, SMALL, given=GEOMETRY_KEYS)] == []
    with StoreReader.open(path, SMALL, given=GEOMETRY_KEYS) as reader:
        assert ends(reader) == [0] * 4
    assert rebuild_store(path, SMALL, given=GEOMETRY_KEYS).lost == []
    salvage_store(path, out, SMALL, given=GEOMETRY_KEYS)
    for made in (path, out):
        with open_store(RealFileSystem(), made) as store:
            assert ends(store) == [0] * 4
            assert bodies(store, "paid") == [b"0", b"1"]
        assert [str(one) for one in verify_store(made, SMALL, given=GEOMETRY_KEYS)] == []


def test_start_removes_queues_of_deleted_topic_left_by_kill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs = MemoryFileSystem()
    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueue, "destroy", lambda queue: None)
        with deleted(fs):
            fs = killed(fs)
    with open_store(fs) as store:
        assert ends(store) == [0] * 4


@pytest.mark.parametrize("seed", range(12))
def test_deleted_topic_stays_empty_after_power_cut(seed: int) -> None:
    """ASYNC_FLUSH: the deletion is durable, so all that it names is, too; else it counts for nothing."""
    fs, late = MemoryFileSystem(), 3_600_000
    config = replace(SMALL, flush_interval_commit_log_ms=late, flush_commit_log_thorough_interval_ms=late)
    store = MessageStore.open(ROOT, config, given=GEOMETRY_KEYS, fs=fs, housekeeping=False)
    with store:
        store.put(Message("paid", b"x"))
        for number in range(60):
            store.put(Message("orders", b"old %d" % number * 60, number % 4, wait_store_msg_ok=False))
        assert store.delete_topic("orders").queues == 4
        fs = fs.crash_clone(0.5, seed)
    with open_store(fs) as after:
        assert ends(after) == [0] * 4
        assert bodies(after, "paid") == [b"x"]


def test_deletion_beyond_end_of_log_deletes_no_later_message(tmp_path: Path) -> None:
    """The log was cut in front of it, by RocketMQ say, and other messages of the topic lie there now."""
    fs = MemoryFileSystem()
    deleted(fs).close()
    path = to_disk(fs, tmp_path / "store")
    kept = (path / "config" / "deletedTopics.json").read_bytes()
    fs = MemoryFileSystem()
    with open_store(fs) as store:
        for number in range(30):
            store.put(Message("orders", b"%03d" % number, number % 4))
        await_dispatch(store)
    path = to_disk(fs, tmp_path / "other")
    lose_queues(path)
    (path / "config").mkdir(exist_ok=True)
    (path / "config" / "deletedTopics.json").write_bytes(kept)
    with open_store(RealFileSystem(), path) as store:
        assert sum(ends(store)) == 30


def test_deletion_is_forgotten_when_log_has_no_message_of_topic() -> None:
    fs, paths = MemoryFileSystem(), StorePaths(ROOT)
    fs.make_directory(paths.config)
    messages = {100: ("orders", 200), 300: ("bills", 400)}
    deletions = DeletedTopics(fs, paths, messages.get, 0)
    deletions.add("orders", 100, 200, 250, 0)
    assert DeletedTopics(fs, paths, messages.get, 0).delayed_ends == {"orders": 250}
    assert DeletedTopics(fs, paths, messages.get, 0).ends == {"orders": 200}
    assert DeletedTopics(fs, paths, messages.get, 200).ends == {}
    deletions.add("bills", 300, 400, 400, 250)
    assert deletions.ends == DeletedTopics(fs, paths, messages.get, 250).ends == {"bills": 400}
    assert DeletedTopics(fs, paths, {300: ("orders", 400)}.get, 250).ends == {}


def deliver(store: MessageStore, fs: MemoryFileSystem, clock: ManualClock) -> None:
    """Deliver all that is delayed and due in a minute."""
    clock.advance(60_000)
    delivery = Delivery(put=store.put, append=store.append, is_durable=lambda offset: True)
    service = ScheduleMessageService(store._parts, store.config, delivery)
    while service.step(clock.now_ms()):
        pass
    service.drain()
    await_dispatch(store)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("plain", [0, 1])
def test_delayed_message_does_not_recreate_deleted_topic(plain: int, restart: bool) -> None:
    """Neither the old topic nor a new one of its name gets it; a topic without messages is known until a restart."""
    fs, clock = MemoryFileSystem(), ManualClock(1_700_000_000_000)
    options = {"given": GEOMETRY_KEYS, "fs": fs, "clock": clock, "housekeeping": False}
    store = MessageStore.open(ROOT, SMALL, **options)  # type: ignore[arg-type]
    for number in range(plain):
        store.put(Message("orders", b"%d" % number))
    store.put(Message("orders", b"old", delay_level=1))
    store.put(Message("paid", b"later", delay_level=1))
    await_dispatch(store)
    store.delete_topic("orders")
    if restart:
        store.close()
        reopened = MessageStore.open(ROOT, SMALL, **options)  # type: ignore[arg-type]
        store = reopened
    store.put(Message("orders", b"new", delay_level=1))
    await_dispatch(store)
    deliver(store, fs, clock)
    assert bodies(store) == ([b"old", b"new"] if restart and not plain else [b"new"])
    assert bodies(store, "paid") == [b"later"]
    store.close()


def test_deletion_of_empty_topic_does_not_flush() -> None:
    fs = MemoryFileSystem()
    store = MessageStore.open(
        ROOT, replace(SMALL, flush_interval_commit_log_ms=1 << 30), given=GEOMETRY_KEYS, fs=fs, housekeeping=False
    )
    store.put(Message("orders", b"x"))
    await_dispatch(store)
    flushed = store.flushed_offset
    assert store.delete_topic("unknown").queues == 0
    assert store.flushed_offset == flushed < store.max_phy_offset
    assert store.delete_topic("orders").queues == 1
    assert store.flushed_offset == store.max_phy_offset
    store.close()


def test_deletion_drops_waiting_records_after_last_message_of_topic_expired() -> None:
    fs, paths = MemoryFileSystem(), StorePaths(ROOT)
    fs.make_directory(paths.config)
    DeletedTopics(fs, paths, {}.get, 0).add("orders", 100, 200, 250, 0)
    assert DeletedTopics(fs, paths, {}.get, 150).delayed_ends == {"orders": 250}
    later = DeletedTopics(fs, paths, {}.get, 210)
    assert (later.ends, later.is_deleted("orders", 249, b""), later.is_deleted("orders", 250, b"")) == ({}, True, False)
    assert DeletedTopics(fs, paths, {}.get, 250).delayed_ends == {}


def test_start_removes_expired_deletions_from_file() -> None:
    """Otherwise it would count again once retention has removed the place of its last message."""
    fs, paths = MemoryFileSystem(), StorePaths(ROOT)
    fs.make_directory(paths.config)
    deletions = DeletedTopics(fs, paths, {}.get, 0)
    deletions.add("orders", 100, 200, 250, 0)
    deletions.add("bills", 300, 400, 450, 0)
    messages = {300: ("bills", 400)}
    DeletedTopics(fs, paths, messages.get, 0).confirm(420)  # the log was cut
    after = DeletedTopics(fs, paths, messages.get, 250)
    assert (after.ends, after.delayed_ends) == ({"bills": 400}, {"bills": 420})
