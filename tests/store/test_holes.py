"""Holes are found, and not read: a look at one page of a hole brings in as many zeros as Linux reads ahead."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
from pathlib import Path

import pytest

from gantrymq import Message, MessageStore, MessageStoreConfig
from gantrymq.format.names import offset_name
from gantrymq.fs.reads import read_data
from gantrymq.fs.real import RealFileSystem
from gantrymq.store.log.mapped_file import MEMORY_AHEAD
from gantrymq.store.reader import StoreReader
from store_cases import await_dispatch, open_store

PAGE = mmap.PAGESIZE


def test_recovery_result_is_equal_with_and_without_hole(rng: random.Random, tmp_path: Path) -> None:
    size = 64 * PAGE
    with (tmp_path / "file").open("w+b") as out:
        out.truncate(size)
        for _ in range(3):
            out.seek(rng.randrange(size - 100))
            out.write(rng.randbytes(100))
    whole = (tmp_path / "file").read_bytes()
    file = RealFileSystem().open(tmp_path / "file")
    for _ in range(200):
        begin = rng.randrange(size)
        length = rng.randrange(size - begin + 1)
        assert read_data(file, begin, length) == whole[begin : begin + length]
    file.close()


def pages_in_memory(path: Path, begin: int = 0) -> int:
    """How many pages of a file, from the byte ``begin`` on, are in the page cache."""
    size = path.stat().st_size
    held = (ctypes.c_ubyte * -(-size // PAGE))()
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as mapping:
        start = ctypes.c_char.from_buffer(mapping)
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mincore(ctypes.byref(start), ctypes.c_size_t(size), held) == 0, os.strerror(ctypes.get_errno())
        del start
    return sum(page & 1 for page in held[begin // PAGE :])


def test_recovery_does_not_read_holes(tmp_path: Path) -> None:
    """Neither of the file that was made ahead of the log, nor behind the units of a queue."""
    store, size = tmp_path / "store", 64 << 20
    with MessageStore.open(store, MessageStoreConfig(mapped_file_size_commit_log=size)) as opened:
        phy_offset = opened.put(Message("t", b"body")).phy_offset
    ahead = store / "commitlog" / f"{size:020}"
    with ahead.open("wb") as file:
        file.truncate(size)
    (store / "abort").touch()
    reader = StoreReader.open(store)
    plan = reader.plan()
    reader.close()
    assert (plan.max_phy_offset > phy_offset, plan.stop_reason) == (True, "zeros")
    assert pages_in_memory(ahead) == 0
    assert pages_in_memory(store / "consumequeue" / "t" / "0" / f"{0:020}") < 8


@pytest.mark.parametrize("short_of_boundary", [0, 1, 8, 40])
def test_read_of_newest_record_does_not_read_holes(tmp_path: Path, short_of_boundary: int) -> None:
    """Kernels look a few bytes beyond a record: without a page there Linux would read megabytes of zeros ahead."""
    log_bytes = 32 << 20
    config = MessageStoreConfig(mapped_file_size_commit_log=log_bytes)
    with open_store(path=tmp_path, config=config) as store:
        boundary = len(MEMORY_AHEAD)
        for end in range(boundary, 20 * boundary, boundary):
            around = store.put(Message("orders", b"", keys=["k"])).size_bytes
            room = end - short_of_boundary - store.max_phy_offset
            assert store.put(Message("orders", bytes(room - around), keys=["k"])).is_stored
            assert store.max_phy_offset == end - short_of_boundary
            await_dispatch(store)
        log = tmp_path / "commitlog" / offset_name(0)
        assert pages_in_memory(log)
        assert not pages_in_memory(log, store.max_phy_offset + 2 * boundary)
