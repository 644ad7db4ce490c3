"""A reader that takes the writer at its word: the same view, without reading again what was dispatched long ago."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gantrymq.format.checkpoint import decode_checkpoint, encode_checkpoint
from gantrymq.format.names import offset_name
from gantrymq.format.queue_entry import decode_entry
from gantrymq.fs.real import RealFileSystem
from gantrymq.store.message_store import MessageStore
from gantrymq.store.reader import StoreReader
from store_cases import (
    GEOMETRY_KEYS,
    SMALL,
    await_dispatch,
    dump,
    fill,
    numbered,
    open_reader,
    open_store,
)

FLUSHING_SOON = replace(SMALL, flush_interval_consume_queue_ms=1, flush_consume_queue_thorough_interval_ms=1)


def trusting(path: Path) -> StoreReader:
    return StoreReader.open(path, SMALL, given=GEOMETRY_KEYS, trusts_writer=True)


def closed_store(path: Path, count: int, rng: random.Random) -> Path:
    with open_store(path=path) as store:
        if count:
            fill(store, count, rng)
        await_dispatch(store)
    return path


def covered_for(path: Path) -> int:
    """Which record the checkpoint says the queues know."""
    checkpoint = path / "checkpoint"
    return decode_checkpoint(checkpoint.read_bytes()).logics_physical_offset if checkpoint.exists() else 0


@contextmanager
def writer_stopped(path: Path, covered: int) -> Iterator[None]:
    """A closed store as a writer that is stopped for a while would leave it, this process being the writer."""
    (path / "abort").touch()
    checkpoint = path / "checkpoint"
    page = decode_checkpoint(checkpoint.read_bytes())
    checkpoint.write_bytes(encode_checkpoint(replace(page, logics_physical_offset=covered)))
    lock = RealFileSystem().lock(path / "lock", b"lock")
    yield
    lock.release()


def flip(path: Path, phy_offset: int) -> None:
    """Damage the byte at a physical offset."""
    at = phy_offset % SMALL.mapped_file_size_commit_log
    file = path / "commitlog" / offset_name(phy_offset - at)
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("count", [0, 1, 3, 200])
def test_reader_of_closed_store_checks_only_last_record(tmp_path, rng, count):
    path = closed_store(tmp_path, count, rng)
    with open_reader(path) as whole, trusting(path) as quick:
        lines = dump(whole)
        assert dump(quick) == lines
        places = [line["phyOffset"] for line in lines if line["kind"] == "message"]
        # Where no queue knows a record (a log of nothing but prepared ones), it begins as one that trusts nobody does.
        begin = max(places, default=whole.recovery.start_offset)
        assert quick.recovery.start_offset == begin
        assert whole.recovery.scanned_bytes - quick.recovery.scanned_bytes == begin - whole.recovery.start_offset


@pytest.mark.parametrize("after", [0, 1, 150])
def test_trusting_reader_of_live_store_reads_same_records(tmp_path, rng, after):
    with MessageStore.open(tmp_path, FLUSHING_SOON, given=GEOMETRY_KEYS, housekeeping=False) as store:
        known = fill(store, 200, rng)[-1].phy_offset
        deadline = time.monotonic() + 20
        while covered_for(tmp_path) < known:
            fill(store, 1, rng)
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if after:
            fill(store, after, rng)
        await_dispatch(store)
        with open_reader(tmp_path) as whole, trusting(tmp_path) as quick:
            assert dump(quick) == dump(whole)
            assert not quick.last_exit_ok
            assert quick.recovery.start_offset >= known


def test_records_without_queue_units_are_found_in_log(tmp_path, rng):
    path = closed_store(tmp_path, 200, rng)
    with open_reader(path) as whole:
        expected = dump(whole)
        places = sorted(line["phyOffset"] for line in expected if line["kind"] == "message")
    behind, covered = places[-20], places[-50]
    for file in sorted((path / "consumequeue").glob("*/*/*")):
        units = [file.read_bytes()[at : at + 20] for at in range(0, file.stat().st_size, 20)]
        known = [unit for unit in units if decode_entry(unit).phy_offset < behind]
        file.write_bytes(b"".join(known).ljust(len(units) * 20, b"\0"))
    with trusting(path) as quick:
        assert dump(quick) == expected
        assert places[-22] <= quick.recovery.start_offset < behind
    with writer_stopped(path, covered), trusting(path) as quick:
        assert dump(quick) == expected
        assert quick.recovery.start_offset == covered


def test_damage_before_last_record_does_not_end_log(tmp_path):
    with open_store(path=tmp_path) as store:
        places = [store.put(message).phy_offset for message in numbered(150)]
        await_dispatch(store)
        end = store.max_phy_offset
    flip(tmp_path, places[-5] + 90)
    with open_reader(tmp_path) as whole, trusting(tmp_path) as quick:
        assert whole.max_phy_offset == places[-5]
        assert quick.max_phy_offset == end
        assert quick.message_at(places[-1]) is not None


def test_damaged_last_record_starts_full_recovery(tmp_path):
    with open_store(path=tmp_path) as store:
        last = [store.put(message).phy_offset for message in numbered(150)][-1]
        await_dispatch(store)
    flip(tmp_path, last + 90)
    with open_reader(tmp_path) as whole, trusting(tmp_path) as quick:
        assert dump(quick) == dump(whole)
        assert quick.max_phy_offset == last
        assert quick.recovery.start_offset == whole.recovery.start_offset


def test_reader_after_crash_checks_every_record(tmp_path, rng):
    path = closed_store(tmp_path, 200, rng)
    (path / "abort").touch()
    with open_reader(path) as whole, trusting(path) as quick:
        assert quick.recovery.start_offset == whole.recovery.start_offset
        assert dump(quick) == dump(whole)


def test_impossible_checkpoint_is_not_trusted(tmp_path, rng):
    """Such as RocketMQ has for a moment after it has cut a log whose end its checkpoint knew."""
    path = closed_store(tmp_path, 200, rng)
    with open_reader(path) as whole:
        expected, end = dump(whole), whole.max_phy_offset
    for wrong in (end, end + 1, end - 1, 1 << 40, rng.randrange(1, end)):
        with writer_stopped(path, wrong), open_reader(path) as whole, trusting(path) as quick:
            assert dump(quick) == expected
            assert quick.recovery.start_offset in (whole.recovery.start_offset, wrong)
            assert wrong < end - 1 or quick.recovery.start_offset != wrong
