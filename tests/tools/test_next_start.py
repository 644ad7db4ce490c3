"""What a rebuild of a killed store says holds after the next start too: it hides and brings back nothing more."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from loss_cases import LOG_FILE, KnownStore, Put, Slot, assert_told, read_back

from gantrymq.format.record import SECTOR
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.tools.rebuild import rebuild_store
from store_cases import GEOMETRY_KEYS, SMALL, await_dispatch, open_store

Damage = Callable[[KnownStore], None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> KnownStore:
    return KnownStore.make(tmp_path_factory.mktemp("whole") / "store")


@pytest.fixture(scope="module")
def with_old_queues(tmp_path_factory: pytest.TempPathFactory) -> KnownStore:
    return KnownStore.make(tmp_path_factory.mktemp("old") / "store", with_old_queues=True)


def copy_of(store: KnownStore, path: Path) -> KnownStore:
    return KnownStore(Path(shutil.copytree(store.path, path)), store.puts)


def arrange(store: KnownStore, order: dict[int, int]) -> None:
    """Let the file of the log at each place from the end have the bytes of another one."""
    files = [path for path in store.log_files if any(path.read_bytes())]
    raw = {place: files[other].read_bytes() for place, other in order.items()}
    for place, data in raw.items():
        files[place].write_bytes(data)


ORDERS = {
    "the last two swapped": {-1: -2, -2: -1},
    "the last and the last but two swapped": {-1: -3, -3: -1},
    "the last and the last but three swapped": {-1: -4, -4: -1},
    "the two in front of the last swapped": {-2: -3, -3: -2},
    "the last three in a ring": {-1: -2, -2: -3, -3: -1},
    "the last three in the other ring": {-1: -3, -2: -1, -3: -2},
    "the last one copied over the one before": {-2: -1},
    "the one before copied over the last one": {-1: -2},
    "the last but two copied over the last one": {-1: -3},
}


def rebuilt_and_started(store: KnownStore) -> None:
    """Kill, rebuild, start twice: each time what is not there was named by the rebuild, and nothing else."""
    (store.path / "abort").touch()
    account = rebuild_store(store.path, SMALL, given=GEOMETRY_KEYS).account
    lost = assert_told(store, read_back(store.path), account)
    for _ in range(2):
        open_store(path=store.path).close()
        assert assert_told(store, read_back(store.path), account) == lost


@pytest.mark.parametrize("order", ORDERS)
def test_next_start_with_swapped_log_files_hides_only_named_messages(
    order: str, whole: KnownStore, tmp_path: Path
) -> None:
    store = copy_of(whole, tmp_path / "store")
    arrange(store, ORDERS[order])
    rebuilt_and_started(store)


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.4])
def test_messages_after_lost_ones_stay_in_idle_queue(share: float, with_old_queues: KnownStore, tmp_path: Path) -> None:
    store = copy_of(with_old_queues, tmp_path / "store")
    _, put = store.at(share)
    store.write(put.phy_offset - put.phy_offset % LOG_FILE, bytes(LOG_FILE))
    rebuilt_and_started(store)


def tear(store: KnownStore, slot: Slot) -> None:
    """Zero a sector within a message's properties."""
    put = store.puts[slot]
    at = -(-(put.phy_offset + put.size_bytes - 2 * SECTOR) // SECTOR) * SECTOR
    store.write(at, bytes(SECTOR))


@pytest.fixture(scope="module")
def of_long_properties(tmp_path_factory: pytest.TempPathFactory) -> KnownStore:
    """Twelve messages of one queue in two files, each with properties of several sectors."""
    path, puts = tmp_path_factory.mktemp("long") / "store", {}
    with open_store(path=path, fs=RealFileSystem()) as store:
        for number in range(12):
            body = b"%02d" % number
            put = store.put(Message("orders", body, keys=["k"], properties={"long": "x" * 4 * SECTOR}))
            puts[Slot("orders", 0, number)] = Put(put.phy_offset, put.size_bytes, body)
        await_dispatch(store, 12)
    return KnownStore(path, puts)


@pytest.mark.parametrize("numbers", [[9], [11], [8, 9], [10, 11], [8, 11]], ids=str)
def test_torn_record_of_closed_store_is_kept_and_named(
    numbers: list[int], of_long_properties: KnownStore, tmp_path: Path
) -> None:
    """A start of a closed store compares only the CRC of the body, as RocketMQ's does, so it takes such a record."""
    store = copy_of(of_long_properties, tmp_path / "store")
    slots = [Slot("orders", 0, number) for number in numbers]
    for slot in slots:
        tear(store, slot)
    report = rebuild_store(store.path, SMALL, given=GEOMETRY_KEYS)
    account = report.account
    assert (report.records, report.queue_units, account.messages, account.short_queues) == (12, 12, [], [])
    assert [gap.start for gap in account.ranges] == [store.puts[slot].phy_offset for slot in slots]
    for slot, gap in zip(slots, account.ranges, strict=True):
        assert f"{slot.topic}/{slot.queue_id} offset {slot.queue_offset}" in gap.reason
    assert assert_told(store, read_back(store.path), account) == set()
    for _ in range(2):
        assert read_back(store.path) == {slot: put.body for slot, put in store.puts.items()}
        open_store(path=store.path, fs=RealFileSystem()).close()


def test_torn_record_before_begin_of_next_start_is_lost_and_named(
    of_long_properties: KnownStore, tmp_path: Path
) -> None:
    store = copy_of(of_long_properties, tmp_path / "store")
    slot = Slot("orders", 0, 3)
    tear(store, slot)
    account = rebuild_store(store.path, SMALL, given=GEOMETRY_KEYS).account
    assert [(run.begin, run.end) for run in account.messages] == [(3, 4)]
    for _ in range(2):
        assert assert_told(store, read_back(store.path), account) == {slot}
        open_store(path=store.path, fs=RealFileSystem()).close()


def test_torn_record_behind_damage_is_cut_by_next_start_and_named_as_lost(
    of_long_properties: KnownStore, tmp_path: Path
) -> None:
    store = copy_of(of_long_properties, tmp_path / "store")
    broken, last = Slot("orders", 0, 9), Slot("orders", 0, 11)
    store.write(store.puts[broken].phy_offset, bytes(SECTOR))
    tear(store, last)
    account = rebuild_store(store.path, SMALL, given=GEOMETRY_KEYS).account
    lost = {slot for slot in store.puts if slot.queue_offset >= broken.queue_offset}
    assert {Slot("orders", 0, offset) for run in account.messages for offset in range(run.begin, run.end)} == lost
    open_store(path=store.path, fs=RealFileSystem()).close()
    assert read_back(store.path).keys() == store.puts.keys() - lost


def test_torn_record_of_killed_store_ends_log(of_long_properties: KnownStore, tmp_path: Path) -> None:
    store = copy_of(of_long_properties, tmp_path / "store")
    (store.path / "abort").touch()
    tear(store, Slot("orders", 0, 11))
    rebuilt_and_started(store)
    assert len(read_back(store.path)) == 11
