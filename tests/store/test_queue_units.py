"""The three kinds of slots of a queue, and the sources of units that readers outside of the store share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gantrymq.format.names import offset_name
from gantrymq.format.queue_entry import PRE_BLANK, UNIT_SIZE, QueueEntry, encode_entry
from gantrymq.format.queue_units import Units
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.store.queue.unit_source import MappedUnits
from gantrymq.tools.read.queue_files import QueueFiles
from store_cases import GEOMETRY_KEYS, SMALL, StoreReader, await_dispatch, open_store

NOTHING = bytes(UNIT_SIZE)
DAMAGED = [QueueEntry(-1, 100, 0), QueueEntry(5, -1, 0), QueueEntry(5, 0, 0), QueueEntry(0, 0, 7)]


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (encode_entry(QueueEntry(0, 100, 7)), "is_message"),
        (encode_entry(QueueEntry(1 << 40, 1, -7)), "is_message"),
        (encode_entry(PRE_BLANK), "is_filler"),
        (NOTHING, "is_unwritten"),
        *((encode_entry(unit), "") for unit in DAMAGED),
    ],
)
def test_slot_is_of_one_kind_at_most(raw: bytes, kind: str) -> None:
    units = Units(raw * 2)
    kinds = {name for name in ("is_message", "is_filler", "is_unwritten") if getattr(units, name).all()}
    assert kinds == ({kind} if kind else set())
    assert not any(getattr(units, name).any() for name in {"is_message", "is_filler", "is_unwritten"} - kinds)


def test_units_joined_from_parts_keep_their_bytes() -> None:
    raw = b"".join(encode_entry(QueueEntry(number, 100, number)) for number in range(5))
    parts = [Units(raw).rows[:2], Units(raw).rows[2:]]
    assert Units.joined(parts).raw.tobytes() == raw
    assert Units.joined(parts)[3] == QueueEntry(3, 100, 3)
    assert len(Units.joined([])) == len(Units(b"")) == 0


def queue_files(directory: Path, units: list[bytes]) -> QueueFiles:
    """A queue of these units, in files of a store."""
    size, raw = SMALL.mapped_file_size_consume_queue, b"".join(units)
    for base in range(0, len(raw), size):
        (directory / offset_name(base)).write_bytes(raw[base : base + size].ljust(size, b"\0"))
    files = QueueFiles(RealFileSystem(), directory, "orders", 0, size)
    files.load()
    return files


def test_first_slot_of_phy_offset_is_found_across_fillers_and_damage(tmp_path: Path) -> None:
    slots = [encode_entry(QueueEntry(number * 100, 100, 0)) for number in range(60)]
    for number in (7, 8, 9, 30, 59):
        slots[number] = encode_entry(PRE_BLANK)
    slots[20:24] = [NOTHING] * 4
    slots[40] = encode_entry(DAMAGED[0])
    files = queue_files(tmp_path, slots)
    assert (files.first, files.end) == (0, 60)
    for place in range(0, 6_100, 50):
        expected = next((at for at in range(60) if at not in range(20, 24) and files.phy_offset_of(at) >= place), 60)
        assert files.first_at(place) == expected
    assert [files.message_at_or_before(slot) for slot in (9, 23, 40)] == [
        QueueEntry(place, 100, 0) for place in (600, 1900, 3900)
    ]
    assert files.message_at_or_before(60) is None
    assert files.phy_offset_of(9) == -1


def test_mapped_units_beyond_end_read_as_unwritten(tmp_path: Path) -> None:
    with open_store(RealFileSystem(), tmp_path / "store") as store:
        for _ in range(50):
            store.put(Message("orders", b"x" * 50))
        await_dispatch(store, 60)
    with StoreReader.open(tmp_path / "store", SMALL, given=GEOMETRY_KEYS) as reader:
        source = MappedUnits(next(iter(reader.consume_queues)))
        units = source.units(source.first, source.end + 3)
        assert (source.first, source.end) == (0, 50)
        assert np.flatnonzero(units.is_message).tolist() == list(range(50))
        assert np.flatnonzero(units.is_unwritten).tolist() == [50, 51, 52]
