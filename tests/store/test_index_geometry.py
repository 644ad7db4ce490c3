"""How the geometry of index files is found."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import AmbiguousGeometryError
from gantrymq.format.index import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, decode_header, file_size
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.store.geometry import find_index_geometry
from gantrymq.store.paths import StorePaths
from memory_file_system import MemoryFileSystem
from store_cases import ROOT, SMALL, await_dispatch, fill, open_store

SMALL_INDEX = replace(
    MessageStoreConfig(), max_hash_slot_num=SMALL.max_hash_slot_num, max_index_num=SMALL.max_index_num
)


def empty_index_file(root: Path, config: MessageStoreConfig) -> StorePaths:
    paths = StorePaths(root)
    paths.index.mkdir(parents=True)
    with (paths.index / "20261121070346782").open("wb") as file:
        file.truncate(file_size(config.max_hash_slot_num, config.max_index_num))
    return paths


@pytest.mark.parametrize("config", [MessageStoreConfig(), SMALL])
def test_index_file_left_empty_by_kill_has_configured_geometry(tmp_path: Path, config: MessageStoreConfig) -> None:
    paths = empty_index_file(tmp_path, config)
    assert find_index_geometry(RealFileSystem(), paths, config, ()) == config


def test_empty_file_of_another_length_is_ambiguous(tmp_path: Path) -> None:
    paths = empty_index_file(tmp_path, SMALL)
    with pytest.raises(AmbiguousGeometryError, match="--set maxHashSlotNum=… --set maxIndexNum=…"):
        find_index_geometry(RealFileSystem(), paths, MessageStoreConfig(), ())


@pytest.mark.parametrize("size_bytes", [1, 13, 39])
def test_index_file_without_whole_header_is_no_evidence(tmp_path: Path, size_bytes: int) -> None:
    paths = empty_index_file(tmp_path, SMALL)
    (paths.index / "20261121070346782").write_bytes(bytes(size_bytes))
    assert find_index_geometry(RealFileSystem(), paths, MessageStoreConfig(), ()) == MessageStoreConfig()


@pytest.mark.parametrize("lost", ["the newest entry", "every entry", "every slot"])
def test_index_file_without_proof_after_power_cut_has_configured_geometry(lost: str) -> None:
    """The header came to the disk and other pages did not: recovery makes such a file anew, if only the store opens."""
    fs = MemoryFileSystem()
    with open_store(fs) as store:
        fill(store, 60, random.Random(7))
        await_dispatch(store)
    slots_at, slots = HEADER_SIZE, SMALL.max_hash_slot_num
    entries_at = slots_at + slots * SLOT_SIZE
    for entry in fs.scan(StorePaths(ROOT).index):
        file = fs.open(StorePaths(ROOT).index / entry.name, writable=True)
        count = decode_header(file.read_at(0, HEADER_SIZE)).index_count
        begin, end = {
            "the newest entry": (entries_at + (count - 1) * ENTRY_SIZE, entries_at + count * ENTRY_SIZE),
            "every entry": (entries_at, entry.size_bytes),
            "every slot": (slots_at, entries_at),
        }[lost]
        file.write_at(begin, bytes(end - begin))
    assert find_index_geometry(fs, StorePaths(ROOT), SMALL_INDEX, ()) == SMALL_INDEX


# The first key hashes to slot 0, so that entries that were never written look like the end of its chain.
@pytest.mark.parametrize("keys", [["k9"], ["k9", "a", "b"]])
def test_one_message_at_offset_0_proves_geometry(keys: list[str]) -> None:
    fs = MemoryFileSystem()
    with open_store(fs) as store:
        store.put(Message("orders", b"", keys=keys))
        await_dispatch(store)
    assert find_index_geometry(fs, StorePaths(ROOT), MessageStoreConfig(), ()) == SMALL_INDEX


@pytest.mark.parametrize("number", [33, 60, 111, 115, 118, 139, 188])
def test_geometry_matching_half_of_entries_by_chance_is_rejected(number: int) -> None:
    fs = MemoryFileSystem()
    with open_store(fs) as store:
        fill(store, 60, random.Random(number))
        await_dispatch(store)
    assert find_index_geometry(fs, StorePaths(ROOT), MessageStoreConfig(), ()) == SMALL_INDEX
