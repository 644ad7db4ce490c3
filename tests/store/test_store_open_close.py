"""Opening and closing a store: its files afterwards, the lock, and what a failure leaves behind."""

import gc
import itertools
import os
import random
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from faulty_file_system import FaultyFileSystem
from gantrymq.clock import ManualClock
from gantrymq.config.settings import FlushDiskType, MessageStoreConfig
from gantrymq.errors import (
    ConfigError,
    DiskFullError,
    GantrymqError,
    MissingFileError,
    NotAStoreError,
    StoreClosedError,
    StoreLockedError,
    StorePermissionError,
    SyncFailedError,
    WrongFileSizeError,
)
from gantrymq.format.checkpoint import decode_checkpoint
from gantrymq.format.names import offset_name
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.message_store import MessageStore
from gantrymq.store.reader import StoreReader
from memory_file_system import MemoryFileSystem
from store_cases import (
    BARE,
    NOON_MS,
    ROOT,
    SMALL,
    await_dispatch,
    bodies,
    files_of,
    fill,
    killed,
    memory_store,
    numbered,
    open_reader,
    open_store,
    to_disk,
    tree,
)


@pytest.fixture(autouse=True)
def no_service_is_left() -> Iterator[None]:
    before = service_threads()
    yield
    assert service_threads() <= before


def service_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.endswith("Service")}


# What is there


def test_clean_close_leaves_no_abort_and_checkpoint(tmp_path: Path) -> None:
    with open_store(path=tmp_path) as store:
        results = [store.put(message) for message in numbered(50)]
        assert (tmp_path / "abort").read_text().isdigit()
    assert not (tmp_path / "abort").exists()
    page = decode_checkpoint((tmp_path / "checkpoint").read_bytes())
    last = results[-1]
    assert page.physic_msg_timestamp_ms == page.logics_msg_timestamp_ms == last.store_timestamp_ms
    assert page.logics_physical_offset == last.phy_offset
    assert page.confirm_phy_offset == last.end_offset
    assert (tmp_path / "lock").read_bytes() == b"lock"


def test_no_service_outlives_its_store() -> None:
    _, store = memory_store()
    assert len(service_threads()) >= 3
    store.close()


def test_empty_store_opens_again() -> None:
    fs, store = memory_store()
    store.close()
    open_store(fs).close()
    with open_store(fs) as store:
        store.put(Message("orders", b"first"))
    with open_store(fs) as store:
        assert bodies(store) == [b"first"]


def test_store_killed_before_first_message_opens_again() -> None:
    fs, first = memory_store()
    with first, open_store(killed(fs)) as store:
        assert not store.recovery.last_exit_ok
        assert store.put(Message("orders", b"first")).phy_offset == 0


def test_second_close_is_ignored_and_put_after_close_is_refused() -> None:
    _, store = memory_store()
    store.close()
    store.close()
    with pytest.raises(StoreClosedError):
        store.put(Message("orders", b"late"))
    with pytest.raises(StoreClosedError):
        store.put_batch([Message("orders", b"late")])


def test_reopen_keeps_messages_and_continues_offsets() -> None:
    fs, store = memory_store()
    for message in numbered(300):
        store.put(message)
    store.close()
    with open_store(fs) as store:
        assert store.recovery.last_exit_ok
        assert bodies(store) == [message.body for message in numbered(300)]
        assert store.put(numbered(1)[0]).queue_offset == 300


@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
def test_store_time_does_not_follow_clock_set_back_during_close(is_killed: bool) -> None:
    clock = ManualClock(NOON_MS)
    fs, store = memory_store(clock=clock)
    with store:
        last_ms = store.put(numbered(1)[0]).store_timestamp_ms
        left = killed(fs)
    clock.advance(-50_000)
    with open_store(left if is_killed else fs, clock=clock) as store:
        assert store.put(numbered(1)[0]).store_timestamp_ms == last_ms


@pytest.mark.parametrize("ahead_ms", [3_600_000, 1 << 40])
def test_store_time_far_in_future_is_ignored(ahead_ms: int) -> None:
    """The clock was wrong, or a bit is flipped: as long as it is held, no delay holds."""
    clock = ManualClock(NOON_MS + ahead_ms)
    fs, store = memory_store(clock=clock)
    with store:
        store.put(numbered(1)[0])
    clock.advance(-ahead_ms)
    with open_store(fs, clock=clock) as store:
        assert store.put(numbered(1)[0]).store_timestamp_ms == NOON_MS


def test_open_keeps_foreign_files(tmp_path: Path) -> None:
    for name in ("config/topics.json", "timerwheel", "rocksdbstore/LOG", "index/notes.txt", "consumequeue/README"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("somebody else's")
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(100))
    others = {name for name, hashed in tree(tmp_path).items() if hashed[0] == len("somebody else's")}
    assert others == {
        "config/topics.json", "timerwheel", "rocksdbstore/LOG", "index/notes.txt", "consumequeue/README"
    }  # fmt: skip


# What is refused


def test_open_of_other_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear Sir or Madam")
    for attempt in (MessageStore.open, StoreReader.open):
        with pytest.raises(NotAStoreError):
            attempt(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_open_of_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError, match="does not exist"):
        StoreReader.open(tmp_path / "nowhere")
    with pytest.raises(NotAStoreError, match="does not exist"):
        MessageStore.open(tmp_path / "nowhere", create=False)
    assert list(tmp_path.iterdir()) == []


def test_open_of_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for attempt in (MessageStore.open, StoreReader.open):
        with pytest.raises(GantrymqError):
            attempt(tmp_path / "file")


def test_second_open_is_refused_without_affecting_first(tmp_path: Path) -> None:
    with open_store(path=tmp_path) as store:
        with pytest.raises(StoreLockedError):
            open_store(path=tmp_path)
        assert store.put(Message("orders", b"x")).status is PutMessageStatus.PUT_OK
    open_store(path=tmp_path).close()


def test_second_process_is_refused(tmp_path: Path) -> None:
    script = f"from gantrymq import MessageStore; MessageStore.open({str(tmp_path)!r})"
    with open_store(path=tmp_path):
        refused = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "StoreLockedError" in refused.stderr


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/orders/0"])
def test_file_of_wrong_size_refuses_load_and_is_named(tmp_path: Path, folder: str) -> None:
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(400))
    victim = sorted((tmp_path / folder).iterdir())[1]
    with victim.open("ab") as file:
        file.write(b"!")
    before = tree(tmp_path)
    with pytest.raises(WrongFileSizeError) as refused:
        open_store(path=tmp_path)
    assert refused.value.path == victim
    with open_reader(path=tmp_path) as reader:
        assert [one.path for one in reader.problems] == [victim]
        assert len(list(reader.messages())) == 400
    assert tree(tmp_path) == before


def test_file_sizes_are_taken_from_existing_files(tmp_path: Path) -> None:
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(400))
    with MessageStore.open(tmp_path, MessageStoreConfig()) as store:
        assert store.config.mapped_file_size_commit_log == SMALL.mapped_file_size_commit_log
        assert store.config.mapped_file_size_consume_queue == SMALL.mapped_file_size_consume_queue
        assert (store.config.max_hash_slot_num, store.config.max_index_num) == (50, 200)
        assert len(bodies(store)) == 400


def test_explicit_file_size_refuses_files_of_other_size(tmp_path: Path) -> None:
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(10))
    before = tree(tmp_path)
    with pytest.raises(ConfigError, match=r"mappedFileSizeCommitLog=8192 .* the files are 16384 bytes long"):
        open_store(path=tmp_path, config=replace(SMALL, mapped_file_size_commit_log=8_192))
    assert tree(tmp_path) == before


def test_file_name_not_multiple_of_file_size_is_named(tmp_path: Path) -> None:
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(10))
    copy = tmp_path / "commitlog" / "00000000000000016385"
    copy.write_bytes(bytes(SMALL.mapped_file_size_commit_log))
    with pytest.raises(WrongFileSizeError) as refused:
        open_store(path=tmp_path)
    assert refused.value.path == copy


@pytest.mark.parametrize("name", ["0000000000000001638", "00000000000000016384x", "lost+found.txt"])
def test_foreign_file_in_log_directory_is_ignored_and_kept(tmp_path: Path, name: str) -> None:
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(10))
    foreign = tmp_path / "commitlog" / name
    for content in (b"", b"x", bytes(SMALL.mapped_file_size_commit_log)):
        foreign.write_bytes(content)
        with open_store(path=tmp_path) as store:
            assert len(bodies(store)) == 10
        assert foreign.read_bytes() == content


def test_missing_file_in_middle_of_log_is_named(tmp_path: Path) -> None:
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(500))
    files = sorted((tmp_path / "commitlog").iterdir())
    files[1].unlink()
    before = tree(tmp_path)
    with pytest.raises(MissingFileError, match="salvage") as refused:
        open_store(path=tmp_path)
    assert refused.value.path == files[1]
    assert tree(tmp_path) == before


# What a failure leaves


def test_bad_address_raises_and_leaves_store_closed() -> None:
    fs, store = memory_store()
    store.close()
    for name in ("my.host.invalid", "", "a b"):
        with pytest.raises(ConfigError, match=r"brokerIP1=.* is not allowed: an IP address, or a host name that this"):
            open_store(fs, config=replace(SMALL, broker_ip1=name))
    with open_store(fs) as store:
        assert store.recovery.last_exit_ok


def test_host_name_in_broker_ip1_is_resolved_for_store_host() -> None:
    with open_store(MemoryFileSystem(), config=replace(SMALL, broker_ip1="localhost", listen_port=10_000)) as store:
        store.put(numbered(1)[0])
        await_dispatch(store)
        (message,) = store.get("orders", 0, 0).messages
        assert str(message.store_host) == str(store.store_host) == "127.0.0.1:10000"


def test_refused_load_changes_nothing_and_releases_lock(tmp_path: Path) -> None:
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(10))
    stray = tmp_path / "commitlog" / offset_name(SMALL.mapped_file_size_commit_log)
    stray.write_bytes(b"x")
    before = tree(tmp_path)
    with pytest.raises(WrongFileSizeError):
        open_store(path=tmp_path)
    assert tree(tmp_path) == before
    stray.unlink()
    with open_store(path=tmp_path) as store:
        assert store.recovery.last_exit_ok


def test_close_with_failed_flush_raises_and_keeps_abort() -> None:
    inner = MemoryFileSystem()
    fs = FaultyFileSystem(inner)
    before = service_threads()
    store = open_store(fs, config=BARE)
    for message in numbered(20):
        store.put(message)
    fs.fail_at, fs.keeps_failing = len(fs.operations) + 1, True
    with pytest.raises((DiskFullError, SyncFailedError)):
        store.close()
    assert inner.exists(ROOT / "abort")
    assert service_threads() <= before, "a service goes on after its store gave the lock back"
    store.close()
    with open_store(inner, config=BARE) as again:
        assert not again.recovery.last_exit_ok
        assert bodies(again) == [message.body for message in numbered(20)]


@pytest.mark.parametrize("count", [0, 300])
def test_open_failing_at_any_operation_can_be_repeated(count: int) -> None:
    """The disk fails at operation k of an open, for every k: the next open finds everything."""
    disk = MemoryFileSystem()
    if count:
        with open_store(disk) as store:
            for message in numbered(count):
                store.put(message)
            disk = killed(disk)
    for k in itertools.count(1):
        left = killed(disk)
        faulty = FaultyFileSystem(left, fail_at=k)
        with suppress(DiskFullError, SyncFailedError):
            open_store(faulty).close()
        if len(faulty.operations) < k:
            break
        with open_store(left) as again:
            found = bodies(again)
            again.put(Message("orders", b"more"))
        assert found == [message.body for message in numbered(count)], faulty.operations[k - 1]
    assert k > 20


def test_unreadable_directory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fs, store = memory_store()
    store.close()

    def denied(path: Path) -> Exception:
        return StorePermissionError(path, "Permission denied")

    faulty = FaultyFileSystem(fs, fail_at=3, error=denied)
    with pytest.raises(StorePermissionError):
        open_store(faulty)


# Readers


def test_reader_changes_no_byte(tmp_path: Path) -> None:
    fs, store = memory_store()
    with store:
        store.put_batch([*numbered(300), Message("orders", b"last", keys=["key"])])
        to_disk(killed(fs), tmp_path)
    before = tree(tmp_path)
    with open_reader(tmp_path) as reader:
        assert bodies(reader) == [*(message.body for message in numbered(300)), b"last"]
        assert not reader.last_exit_ok
        assert [message.body for message in reader.query("orders", "key")] == [b"last"]
    assert tree(tmp_path) == before


def test_query_returns_at_most_max_num() -> None:
    _, store = memory_store()
    with store:
        store.put_batch([Message("orders", b"%d" % number, keys=["key"]) for number in range(3)])
        await_dispatch(store)
        counts = {most: len(store.query("orders", "key", max_num=most)) for most in (-1, 0, 1, 2, 1 << 70, None)}
        assert counts == {-1: 0, 0: 0, 1: 1, 2: 2, 1 << 70: 3, None: 3}


def test_reader_of_live_store_sees_messages_present_at_open(tmp_path: Path) -> None:
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(150))
        with open_reader(tmp_path) as reader:
            store.put_batch(numbered(150, first=150))
            assert bodies(reader) == [message.body for message in numbered(150)]
        with open_reader(tmp_path) as reader:
            assert len(bodies(reader)) == 300
            assert reader.max_phy_offset == store.max_phy_offset


@pytest.mark.parametrize("config", [SMALL, BARE, replace(SMALL, flush_disk_type=FlushDiskType.SYNC_FLUSH)])
def test_memory_file_system_writes_bytes_of_real_one(tmp_path: Path, config: MessageStoreConfig) -> None:
    """The file system in memory is a fair stand-in for the real one."""
    fs = MemoryFileSystem()
    for options in ({"fs": fs}, {"path": tmp_path}):
        with open_store(config=config, clock=ManualClock(), **options) as store:
            store.put_batch(numbered(200))
    on_disk = {name: size for name, (size, _) in tree(tmp_path).items()}
    in_memory = files_of(fs)
    assert {str(path.relative_to(ROOT)): len(data) for path, data in in_memory.items()} == on_disk
    for path, data in in_memory.items():
        assert (tmp_path / path.relative_to(ROOT)).read_bytes() == data, path


@pytest.mark.parametrize(
    "name", ["checkpoint", "abort", "lock", "commitlog/00000000000000000000", "index/20200101000000000"]
)
def test_directory_in_place_of_file_is_named_or_skipped(tmp_path: Path, name: str) -> None:
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(10))
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).mkdir()
    for attempt in (open_reader, open_store):
        with suppress(GantrymqError):
            attempt(path=tmp_path).close()


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "consumequeue/orders", "consumequeue/orders/0", "index"])
def test_file_in_place_of_directory_is_named_or_skipped(tmp_path: Path, name: str) -> None:
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(10))
    shutil.rmtree(tmp_path / name, ignore_errors=True)
    (tmp_path / name).write_bytes(b"x")
    for attempt in (open_reader, open_store):
        with suppress(GantrymqError):
            attempt(path=tmp_path).close()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_closed_reader_keeps_no_file_open(tmp_path: Path, rng: random.Random) -> None:
    """Nor does one that was dropped: a driver that plans for days would run out of descriptors before Python looks."""
    with open_store(path=tmp_path) as store:
        fill(store, 200, rng)
    del store
    gc.collect()  # the writer's
    gc.disable()
    try:
        reader = open_reader(tmp_path)
        reader.plan()
        assert list(reader.messages())
        with reader.log.get_message(reader.min_phy_offset, 100) or pytest.fail("nothing is there") as held:
            viewed = held.array
        seen, file = viewed.tobytes(), str(reader.log.queue.files[0].path)
        assert len(open_files(tmp_path)) > 10
        reader.close()
        assert open_files(tmp_path) == [file]
        assert viewed.tobytes() == seen
        del viewed, held
        assert open_files(tmp_path) == []

        dropped = weakref.ref(open_reader(tmp_path))
        assert dropped() is None
        assert open_files(tmp_path) == []
    finally:
        gc.enable()


def open_files(folder: Path) -> list[str]:
    """Which files below a folder this process has a descriptor of."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return [file for file in found if file.startswith(str(folder))]
