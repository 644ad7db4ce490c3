"""The cut of what a master does not have: what is kept, what a crash leaves, and when it is refused."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import StoreError, StoreLockedError
from gantrymq.fs.real import RealFileSystem
from gantrymq.ha import log_cut
from gantrymq.ha.divergence import Divergence, DivergenceFile
from gantrymq.ha.log_cut import cut, finish_cut
from gantrymq.model.message import Message
from gantrymq.store.message_store import MessageStore
from gantrymq.tools.verify import verify_store

CONFIG = MessageStoreConfig(mapped_file_size_commit_log=1 << 16, max_hash_slot_num=50, max_index_num=200)
FS = RealFileSystem()


@pytest.fixture
def store(tmp_path: Path) -> tuple[Path, Divergence]:
    """A store of five files, and a divergence in the second."""
    path = tmp_path / "store"
    with MessageStore.open(path, CONFIG) as opened:
        results = [opened.put(Message("T", bytes(3_000), keys=[f"k{number}"])) for number in range(90)]
        divergence = Divergence(results[30].phy_offset, opened.max_phy_offset, "127.0.0.1:1")
    DivergenceFile(FS, path / "config").save(divergence)
    return path, divergence


def assert_cut(path: Path, divergence: Divergence) -> None:
    assert DivergenceFile(FS, path / "config").load() is None
    with MessageStore.open(path, CONFIG) as opened:
        assert opened.max_phy_offset == divergence.cut_offset
        assert opened.max_offset_in_queue("T", 0) == 30
        assert opened.query("T", "k29")
        assert not opened.query_offsets("T", "k30")
        assert opened.put(Message("T", b"next")).queue_offset == 30
    assert not list(verify_store(path, CONFIG))


def kept(path: Path, divergence: Divergence) -> bytes:
    files = path / "diverged" / f"{divergence.cut_offset}-{divergence.end_offset}" / "commitlog"
    raw = b"".join(file.read_bytes() for file in sorted(files.iterdir()))
    begin = divergence.cut_offset % (1 << 16)
    return raw[begin : begin + divergence.end_offset - divergence.cut_offset]


def bytes_of(path: Path, divergence: Divergence) -> bytes:
    raw = b"".join(file.read_bytes() for file in sorted((path / "commitlog").iterdir()))
    return raw[divergence.cut_offset : divergence.end_offset]


def test_cut_keeps_the_bytes_and_leaves_a_clean_store(store: tuple[Path, Divergence]) -> None:
    path, divergence = store
    before = bytes_of(path, divergence)
    done = cut(path, CONFIG, FS)
    assert done is not None
    assert done.size_bytes == len(before)
    assert kept(path, divergence) == before
    assert_cut(path, divergence)
    assert cut(path, CONFIG, FS) is None


def test_second_cut_at_the_same_offsets_keeps_its_own_bytes(store: tuple[Path, Divergence]) -> None:
    path, divergence = store
    first = bytes_of(path, divergence)
    assert cut(path, CONFIG, FS) is not None
    with MessageStore.open(path, CONFIG) as opened:
        while opened.max_phy_offset < divergence.end_offset:
            opened.put(Message("T", b"\1" * 3_000, keys=["k30"]))
        assert opened.max_phy_offset == divergence.end_offset
    DivergenceFile(FS, path / "config").save(divergence)
    second = bytes_of(path, divergence)
    done = cut(path, CONFIG, FS)
    assert done is not None
    assert done.directory.name == f"{divergence.cut_offset}-{divergence.end_offset}-2"
    assert kept(path, divergence) == first != second
    raw = b"".join(file.read_bytes() for file in sorted((done.directory / "commitlog").iterdir()))
    begin = divergence.cut_offset % (1 << 16)
    assert raw[begin : begin + len(second)] == second


@pytest.mark.parametrize("step", ["truncate", "recover"])
def test_cut_that_a_crash_ended_is_finished_by_the_next_start(
    store: tuple[Path, Divergence], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path, divergence = store
    before = bytes_of(path, divergence)

    recovered_end, calls = log_cut._recovered_end, count(1)

    def crash(*of: object) -> None:
        raise KeyboardInterrupt

    def crash_the_second_time(*of: Any) -> int:
        return recovered_end(*of) if next(calls) == 1 else crash()  # type: ignore[return-value]

    with monkeypatch.context() as crashing:
        if step == "truncate":
            crashing.setattr(log_cut, "write_abort", crash)
        else:
            crashing.setattr(log_cut, "_recovered_end", crash_the_second_time)
        with pytest.raises(KeyboardInterrupt):
            cut(path, CONFIG, FS)
    assert kept(path, divergence) == before
    finish_cut(path, CONFIG, FS)
    assert_cut(path, divergence)


def test_crash_before_the_note_leaves_the_whole_log(
    store: tuple[Path, Divergence], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, divergence = store

    def crash(*of: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as crashing:
        crashing.setattr(log_cut, "_keep", crash)
        with pytest.raises(KeyboardInterrupt):
            cut(path, CONFIG, FS)
    finish_cut(path, CONFIG, FS)
    with MessageStore.open(path, CONFIG) as opened:
        assert opened.max_phy_offset == divergence.end_offset


def test_log_that_has_grown_since_is_not_cut(store: tuple[Path, Divergence]) -> None:
    path, divergence = store
    with MessageStore.open(path, CONFIG) as opened:
        opened.put(Message("T", b"as a master"))
    with pytest.raises(StoreError, match="has grown since"):
        cut(path, CONFIG, FS)
    with MessageStore.open(path, CONFIG) as opened:
        assert opened.max_phy_offset > divergence.end_offset


def test_open_store_and_offset_outside_are_refused(store: tuple[Path, Divergence]) -> None:
    path, divergence = store
    with MessageStore.open(path, CONFIG), pytest.raises(StoreLockedError):
        cut(path, CONFIG, FS)
    # Also the first one: a store without a record does not open beside the units of its queues.
    for outside in (1 << 30, 0):
        DivergenceFile(FS, path / "config").save(divergence._replace(cut_offset=outside, end_offset=1 << 31))
        with pytest.raises(StoreError, match="does not have the offset"):
            cut(path, CONFIG, FS)
    with MessageStore.open(path, CONFIG) as opened:
        assert opened.max_phy_offset == divergence.end_offset
