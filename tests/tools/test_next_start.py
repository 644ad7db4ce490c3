"""What a rebuild of a killed store says holds after the next start too: it hides and brings back nothing more."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from loss_cases import LOG_FILE, KnownStore, assert_told, read_back

from gantrymq.tools.rebuild import rebuild_store
from store_cases import GEOMETRY_KEYS, SMALL, open_store

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
def test_of_log_files_that_changed_places_the_next_start_hides_nothing_that_is_not_named(
    order: str, whole: KnownStore, tmp_path: Path
) -> None:
    store = copy_of(whole, tmp_path / "store")
    arrange(store, ORDERS[order])
    rebuilt_and_started(store)


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.4])
def test_messages_behind_lost_ones_stay_in_a_queue_that_gets_no_more(
    share: float, with_old_queues: KnownStore, tmp_path: Path
) -> None:
    store = copy_of(with_old_queues, tmp_path / "store")
    _, put = store.at(share)
    store.write(put.phy_offset - put.phy_offset % LOG_FILE, bytes(LOG_FILE))
    rebuilt_and_started(store)
