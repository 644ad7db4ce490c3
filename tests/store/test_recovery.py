"""What a recovery leaves of a store whose writer was killed, or whose files were harmed."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from faulty_file_system import FaultyFileSystem
from gantrymq.clock import ManualClock
from gantrymq.config.settings import FlushDiskType, MessageStoreConfig, RecoverRule
from gantrymq.errors import MissingLogError, StoreError, StoreLockedError, WrongFileSizeError
from gantrymq.format.record import SECTOR
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.model.status import GetMessageStatus, PutMessageStatus
from gantrymq.store.message_store import MessageStore
from gantrymq.tools.rebuild import rebuild_store
from memory_file_system import MemoryFileSystem
from store_cases import (
    GEOMETRY_KEYS,
    NOON_MS,
    ROOT,
    SMALL,
    await_dispatch,
    open_reader,
    open_store,
    queue_messages,
    tree,
)

MESSAGES = 400


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A store of several files, as a kill leaves it: closed, but with ``abort`` put back."""
    path = tmp_path / "store"
    with open_store(RealFileSystem(), path) as store:
        store.put_batch(
            [Message("orders", b"%05d" % i * 20, queue_id=i % 2, keys=[f"k{i}"], tags="A") for i in range(MESSAGES)]
        )
    (path / "abort").touch()
    return path


def bodies(path: Path, config: MessageStoreConfig = SMALL) -> list[bytes]:
    with open_reader(path, config) as reader:
        return sorted(message.body for message in reader.messages())


ALL = [b"%05d" % i * 20 for i in range(MESSAGES)]


def test_lost_queue_below_checkpoint_is_refilled(killed: Path) -> None:
    shutil.rmtree(killed / "consumequeue" / "orders" / "1")
    assert bodies(killed) == ALL
    with open_store(RealFileSystem(), killed) as store:
        assert store.recovery.queue_units_added == MESSAGES // 2
    assert bodies(killed) == ALL


def test_queue_without_last_units_is_refilled(killed: Path) -> None:
    for file in sorted((killed / "consumequeue" / "orders" / "0").iterdir())[2:]:
        file.unlink()
    assert bodies(killed) == ALL


def test_queue_without_units_has_no_file(killed: Path) -> None:
    """RocketMQ would take the first unit of zeros for one that was written."""
    (killed / "consumequeue" / "paid" / "3").mkdir(parents=True)
    (killed / "consumequeue" / "paid" / "3" / f"{0:020d}").write_bytes(bytes(400))
    unused = killed / "consumequeue" / "orders" / "0" / f"{4000:020d}"
    unused.write_bytes(bytes(400))
    with open_store(RealFileSystem(), killed) as store:
        assert ("paid", 3, 0, 0) in store.queues()
        assert not unused.exists()
        assert not list((killed / "consumequeue" / "paid" / "3").iterdir())
        assert store.put(Message("paid", b"x", queue_id=3)).queue_offset == 0
    with open_reader(killed) as reader:
        assert [one.body for one in reader.get("paid", 3, 0).messages] == [b"x"]


def test_second_recovery_changes_nothing(killed: Path) -> None:
    shutil.rmtree(killed / "consumequeue")
    open_store(RealFileSystem(), killed).close()
    (killed / "abort").touch()
    with open_store(RealFileSystem(), killed) as store:
        assert (store.recovery.queue_units_added, store.recovery.queue_units_cut) == (0, 0)
    assert bodies(killed) == ALL


def test_truncated_records_never_return(killed: Path) -> None:
    """A record goes bad; a new one of the same length takes its place; then the writer is killed."""
    with open_reader(killed) as reader:
        bad = reader.get("orders", 0, 190).messages[0]
    log = sorted((killed / "commitlog").iterdir())[bad.phy_offset // SMALL.mapped_file_size_commit_log]
    with log.open("r+b") as file:
        file.seek(bad.phy_offset % SMALL.mapped_file_size_commit_log + 100)
        file.write(b"\xff\xff")
    with open_store(RealFileSystem(), killed) as store:
        assert store.max_phy_offset == bad.phy_offset
        store.put(Message("orders", b"fresh" * 20, queue_id=0, keys=["k380"], tags="A"))
    (killed / "abort").touch()
    left = bodies(killed)
    assert len(left) == 381
    assert b"fresh" * 20 in left


def test_only_confirmed_records_are_dispatched_with_duplication(killed: Path) -> None:
    with open_reader(killed) as reader:
        confirmed = reader.get("orders", 1, 100).messages[0].phy_offset
    checkpoint = killed / "checkpoint"
    page = bytearray(checkpoint.read_bytes())
    page[32:40] = confirmed.to_bytes(8, "big")
    page[40:48] = bytes(8)
    page[8:16] = bytes(8)
    checkpoint.write_bytes(page)
    shutil.rmtree(killed / "consumequeue")
    config = replace(SMALL, duplication_enable=True)
    assert len(bodies(killed, config)) == 201


@pytest.mark.parametrize("was_closed", [True, False])
@pytest.mark.parametrize("lost_files", [1, 3, 99])
def test_units_pointing_after_last_file_are_dropped(killed: Path, lost_files: int, *, was_closed: bool) -> None:
    if was_closed:
        (killed / "abort").unlink()
    for log_file in sorted((killed / "commitlog").iterdir())[-lost_files:]:
        log_file.unlink()
    config = replace(SMALL, accept_missing_commit_log=lost_files == 99)
    with open_reader(killed, config) as reader:
        planned = reader.recovery.queue_units_cut
    with open_store(RealFileSystem(), killed, config, accepts_missing_end=True) as store:
        assert store.recovery.queue_units_cut == planned == MESSAGES - len(bodies(killed)) > 0
        assert store.recovery.queue_units_added == 0


def test_empty_log_drops_queues_only_if_accepted(killed: Path) -> None:
    shutil.rmtree(killed / "commitlog")
    before = tree(killed)
    with pytest.raises(MissingLogError, match="acceptMissingCommitLog=true"):
        open_store(RealFileSystem(), killed)
    with open_reader(killed) as reader:
        assert [type(one) for one in reader.problems] == [MissingLogError]
        assert sum(queue.max_offset for queue in reader.consume_queues) == MESSAGES
        with pytest.raises(MissingLogError):
            reader.plan()
    assert tree(killed) == before
    accepted = replace(SMALL, accept_missing_commit_log=True)
    with open_reader(killed, accepted) as reader:
        assert reader.recovery.queues_destroyed == 2
    assert (killed / "consumequeue" / "orders" / "0").exists()
    with open_store(RealFileSystem(), killed, accepted) as store:
        assert store.queues() == []
        assert store.query_offsets("orders", "k1") == []
    assert list((killed / "index").iterdir()) == []


@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index"])
def test_unmounted_directory_is_not_taken_for_empty(killed: Path, part: str) -> None:
    (killed / part).rename(killed.parent / "disk")
    (killed / part).symlink_to(killed.parent / "mount" / part)
    before = sorted(killed.rglob("*"))
    with pytest.raises(StoreError, match="broken link"), open_reader(killed) as reader:
        reader.plan()
    with pytest.raises(StoreError, match="broken link"):
        open_store(RealFileSystem(), killed)
    assert sorted(killed.rglob("*")) == before
    (killed / part).unlink()
    (killed / part).symlink_to(killed.parent / "disk")
    assert bodies(killed) == ALL


def test_reader_of_empty_log_finds_no_key(tmp_path: Path) -> None:
    with open_store(RealFileSystem(), tmp_path) as store:
        store.put(Message("orders", b"x", keys=["k1"]))
        await_dispatch(store)
    shutil.rmtree(tmp_path / "commitlog")
    with open_reader(tmp_path, replace(SMALL, accept_missing_commit_log=True)) as reader:
        assert reader.query_offsets("orders", "k1") == []
    with open_reader(tmp_path) as reader:
        assert reader.query_offsets("orders", "k1") == [0], "the index is shown as it is"
        assert reader.message_at(0) is None
    assert len(list((tmp_path / "index").iterdir())) == 1, "it was a view"


def test_new_log_after_missing_log_is_indexed_from_start(killed: Path) -> None:
    shutil.rmtree(killed / "commitlog")
    with open_store(RealFileSystem(), killed, replace(SMALL, accept_missing_commit_log=True)) as store:
        store.put(Message("orders", b"x", keys=["k1"]))
        await_dispatch(store)
        assert store.query_offsets("orders", "k1") == [0], "the index had been ahead"


def test_index_restored_by_power_cut_is_not_used_for_new_log() -> None:
    config, clock, fs = (
        replace(SMALL, flush_disk_type=FlushDiskType.SYNC_FLUSH, accept_missing_commit_log=True),
        ManualClock(NOON_MS),
        MemoryFileSystem(),
    )
    with open_store(fs, config=config, clock=clock) as store:
        for i in range(300):
            store.put(Message("orders", b"x", keys=[f"old-{i}"]))
    fs.open(ROOT / "abort", writable=True, create=True)
    for file in fs.scan(ROOT / "commitlog"):
        fs.remove(ROOT / "commitlog" / file.name)
    fs.sync_directory(ROOT / "commitlog")
    cuts: list[MemoryFileSystem] = []
    seen = FaultyFileSystem(fs, see=lambda number: cuts.append(fs.crash_clone(0.0, number)))
    with open_store(seen, config=config, clock=clock) as store:
        for i in range(3):
            store.put(Message("orders", b"x", keys=[f"new-{i}"]))
    for number, disk in enumerate(cuts):
        with open_store(disk, config=config, clock=clock) as store:
            there = [message.keys[0] for message in queue_messages(store, "orders", 0)]
            assert all(len(store.query_offsets("orders", key)) == 1 for key in there), f"cut {number} of {len(cuts)}"


def test_keys_of_missing_index_files_are_indexed_again() -> None:
    clock, fs, messages = ManualClock(NOON_MS), MemoryFileSystem(), range(300)
    with open_store(fs, clock=clock) as store:
        for i in messages:
            store.put(Message("orders", b"%05d" % i * 20, keys=[f"{i}-{j}" for j in range(3)]))
            clock.advance(1000)
    fs.open(ROOT / "abort", writable=True, create=True)
    for file in fs.scan(ROOT / "index")[-3:]:
        fs.remove(ROOT / "index" / file.name)  # as a power cut may, of those whose names were not durable
    with open_store(fs, clock=clock) as store:
        assert all(store.query_offsets("orders", f"{i}-{j}") for i in messages for j in range(3))


@pytest.mark.parametrize("rule", list(RecoverRule))
@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_first_record_does_not_cover_others_of_same_millisecond(rule: RecoverRule, is_rebuilt: bool) -> None:
    config = replace(SMALL, flush_disk_type=FlushDiskType.SYNC_FLUSH, recover_rule=rule)
    clock, fs = ManualClock(NOON_MS), MemoryFileSystem()
    with open_store(fs, config=config, clock=clock) as store:
        store.put(Message("first", b"x"))
    if is_rebuilt:
        rebuild_store(ROOT, config, given=GEOMETRY_KEYS, fs=fs)
    with open_store(fs, config=config, clock=clock) as store:
        store.put_batch([Message("early", b"x" * 150) for _ in range(100)])
        store.put_batch([Message("late", b"x" * 150) for _ in range(100)])
        await_dispatch(store)
        late = store._queues.get("late", 0)
        assert late is not None
        late.flush()
        disk = fs.crash_clone(0.0, 0)
    with open_store(disk, config=config, clock=clock) as store:
        assert [(topic, count) for topic, _, _, count in store.queues()] == [
            ("early", 100),
            ("first", 1),
            ("late", 100),
        ]


def test_checkpoint_does_not_cover_rewritten_units() -> None:
    config = replace(SMALL, message_index_safe=True)  # one index file, not full: recovery begins with the first file
    clock, fs = ManualClock(NOON_MS), MemoryFileSystem()
    with open_store(fs, config=config, clock=clock) as store:
        for topic, count in (("early", 100), ("late", 200)):
            store.put_batch([Message(topic, b"x" * 150) for _ in range(count)])
    fs.open(ROOT / "abort", writable=True, create=True)
    cuts: list[MemoryFileSystem] = []
    with open_store(
        FaultyFileSystem(fs, see=lambda number: cuts.append(fs.crash_clone(0.5, number))), config=config, clock=clock
    ) as store:
        assert store.recovery.start_offset == 0
    for number, disk in enumerate(cuts):
        with open_store(disk, clock=clock) as store:
            assert [count for _, _, _, count in store.queues()] == [100, 200], f"power cut {number} of {len(cuts)}"


def test_load_with_file_of_other_size_is_refused_with_its_name(killed: Path) -> None:
    odd = sorted((killed / "commitlog").iterdir())[1]
    with odd.open("ab") as file:
        file.write(b"x")
    with pytest.raises(WrongFileSizeError, match=odd.name):
        open_store(RealFileSystem(), killed)


def test_second_writer_is_refused(killed: Path) -> None:
    with open_store(RealFileSystem(), killed), pytest.raises(StoreLockedError):
        open_store(RealFileSystem(), killed)


@pytest.mark.parametrize(
    ("topic", "offset", "status", "following"),
    [
        ("orders", 0, GetMessageStatus.FOUND, 32),
        ("orders", 199, GetMessageStatus.FOUND, 200),
        ("orders", 200, GetMessageStatus.OFFSET_OVERFLOW_ONE, 200),
        ("orders", 500, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 200),
        ("orders", -1, GetMessageStatus.OFFSET_TOO_SMALL, 0),
        ("nothing", 0, GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0),
    ],
)
def test_get_has_status_of_rocketmq(
    killed: Path, topic: str, offset: int, status: GetMessageStatus, following: int
) -> None:
    with open_reader(killed) as reader:
        result = reader.get(topic, 0, offset)
        assert (result.status, result.next_begin_offset) == (status, following)


def test_get_with_unused_tag_has_status_no_matched_message(killed: Path) -> None:
    with open_reader(killed) as reader:
        assert reader.get("orders", 0, 0, tags="B || C").status is GetMessageStatus.NO_MATCHED_MESSAGE
        assert len(reader.get("orders", 0, 0, tags="B || A", max_msgs=5).messages) == 5


@pytest.mark.parametrize("zeros", [1, 300, SECTOR - 1])
def test_zeros_in_property_do_not_end_log(tmp_path: Path, zeros: int) -> None:
    """Wherever they lie; what was acknowledged is there."""
    with open_store(RealFileSystem(), tmp_path) as store:
        for length in range(SECTOR):
            message = Message("orders", b"b" * length, properties={"p": "v" + "\0" * zeros})
            assert store.put(message).status is PutMessageStatus.PUT_OK
    (tmp_path / "abort").touch()
    with open_store(RealFileSystem(), tmp_path) as store:
        assert store.queues() == [("orders", 0, 0, SECTOR)]


def test_property_resembling_unwritten_sector_is_refused(tmp_path: Path) -> None:
    """Where it begins with a sector nobody could tell it from one that a power cut has torn, and the log would end."""
    zeros = Message("orders", b"x", properties={"p": "\0" * SECTOR})
    right = Message("orders", b"x")
    with open_store(RealFileSystem(), tmp_path) as store:
        assert store.put(zeros).status is PutMessageStatus.MESSAGE_ILLEGAL
        for others in (1, 300):
            result = store.put_batch([right, zeros, *[right] * others])
            assert result.rejected == {1: PutMessageStatus.MESSAGE_ILLEGAL}
        await_dispatch(store)
        assert store.queues() == [("orders", 0, 0, 303)]


@pytest.mark.parametrize("queue_id", [-5, 1 << 40])
def test_delayed_message_for_impossible_queue_is_refused_at_once(tmp_path: Path, queue_id: int) -> None:
    with open_store(RealFileSystem(), tmp_path / "store") as store:
        message = Message("orders", b"x", queue_id=queue_id, delay_level=1)
        assert store.put(message).status is PutMessageStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize("killed_at", ["index_put", "index_clear", "index_repair"])
def test_recovery_killed_during_index_file_can_be_repeated(killed_at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log begins later than the index file, so that nothing of that one stands where it should."""
    fs = MemoryFileSystem()
    config = replace(SMALL, max_hash_slot_num=1000, max_index_num=4000)
    with open_store(fs, config=config) as store:
        stored = [store.put(Message("orders", b"x" * 40, keys=[f"k{number}"])).phy_offset for number in range(1500)]
        await_dispatch(store)
        store._log.queue.flush_all()
        while len(store._log.queue.files) > 2:
            store._log.queue.remove_first(0, 0)  # refused while another thread still holds the file
        killed = fs.kill_clone()

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"gantrymq.store.index.index_file.{killed_at}", kill)
        with pytest.raises(KeyboardInterrupt):
            MessageStore.open(ROOT, config, fs=killed, housekeeping=False)
    with MessageStore.open(ROOT, config, fs=killed.kill_clone(), housekeeping=False) as again:
        for number, place in enumerate(stored):
            assert again.query_offsets("orders", f"k{number}") == [place] * (place >= again.min_phy_offset)
