"""Reads of many messages at once: each is what a read of it alone returns, whatever the offsets and sizes are."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from gantrymq.model.message import Message
from gantrymq.store.log import commit_log, mapped_file
from memory_file_system import MemoryFile, MemoryFileSystem
from store_cases import SMALL, await_dispatch, odd_message, open_store

CONFIG = replace(SMALL, mapped_file_size_commit_log=65_536, message_index_enable=False)


def test_messages_read_together_equal_those_read_alone(tmp_path: Path, rng: random.Random) -> None:
    """Among the units are those of another size, of no record, of a damaged one, and of the next file."""
    with open_store(path=tmp_path, config=CONFIG) as store:
        log = store.lookup.log
        units = []
        for _ in range(300):
            offset = store.put(odd_message(rng)).phy_offset
            message = log.read(offset)
            assert message is not None
            units.append((offset, message.size_bytes))
        damaged = rng.sample(units, 20)
        for offset, size in damaged:
            file = log.queue.find(offset)
            assert file is not None
            file.write_array[offset - file.file_from_offset + rng.choice((0, 4, 30, size // 2))] ^= 0x55
        for _ in range(60):
            wanted = rng.sample(units, rng.randrange(1, 60)) if rng.random() < 0.5 else units[rng.randrange(250) :]
            for _ in range(rng.choice((0, 0, 1, 5))):
                offset, size = rng.choice(units)
                strange = (offset + rng.randrange(3), rng.choice((size, size + 1, 0, -1, 100, 2**31 - 1)))
                wanted.insert(rng.randrange(len(wanted) + 1), rng.choice((strange, (-5, 100), (2**62, 100))))
            offsets, sizes = map(list, zip(*wanted, strict=True))
            assert log.read_each(offsets, sizes) == list(map(log.read, offsets, sizes))
            assert log.read_at(offsets) == list(map(log.read, offsets))


def test_run_larger_than_one_copy_is_read_in_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "_RUN_BYTES", 5000)
    with open_store(path=tmp_path, config=CONFIG) as store:
        bodies = [bytes([number]) * (20_000 if number == 13 else 700) for number in range(40)]
        for body in bodies:
            store.put(Message("t", body))
        await_dispatch(store)
        assert [message.body for message in store.get("t", 0, 0, max_msgs=40).messages] == bodies


def test_lone_read_fetches_little_and_next_one_rest_of_window(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[tuple[int, int]] = []
    fetch = MemoryFile.fetch

    def seen(file: MemoryFile, position: int, length: int) -> None:
        fetched.append((position, position + length))
        fetch(file, position, length)

    monkeypatch.setattr(MemoryFile, "fetch", seen)
    monkeypatch.setattr(mapped_file, "_FETCHED_S", 60.0)
    window, fs = 256 << 10, MemoryFileSystem()
    size = 3 * window
    fs.make_directory(Path("/"))
    opened = fs.open(Path("/0"), writable=True, create=True)
    opened.resize(size)
    file = mapped_file.MappedFile(Path("/0"), 0, size, lambda: opened)
    file.set_positions(2 * window - 1000)
    for position, length in ((5000, 1000), (5500, 8), (20_000, 10), (window - 5, 3), (window + 7, 20_000), (100, 5)):
        file.fetch(position, length)
    assert fetched == [(5000, 5000 + 8192), (0, window), (window + 7, window + 20_007)]
    file.fetch(2 * window - 1100, 100)  # bytes from the end of what was read on would do, but there is a gap
    file.set_positions(2 * window - 500)
    file.fetch(2 * window - 1000, 400)
    assert fetched[3:] == [(window, 2 * window - 1000), (2 * window - 1000, 2 * window - 500)]
