"""Each kind of damage, made on purpose, is one finding of its own kind in its place, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from damage_cases import PATHS, SmallStore, small_store

from gantrymq.format.checkpoint import Checkpoint, encode_checkpoint
from gantrymq.format.index import HEADER_SIZE, SLOT_SIZE
from gantrymq.format.names import offset_name
from gantrymq.format.queue_entry import PRE_BLANK, UNIT_SIZE, QueueEntry
from gantrymq.format.record import PHY_OFFSET_AT, QUEUE_OFFSET_AT
from gantrymq.model.message import Message
from gantrymq.tools.findings import Finding, FindingKind, Severity
from store_cases import NOON_MS, SMALL, await_dispatch, open_store

LOG_FILE = SMALL.mapped_file_size_commit_log
UNITS_A_FILE = SMALL.mapped_file_size_consume_queue // UNIT_SIZE


@pytest.fixture(scope="module")
def whole() -> SmallStore:
    return small_store()


@pytest.fixture
def store(whole: SmallStore) -> SmallStore:
    """A copy of the whole store, to be damaged."""
    return SmallStore(whole.fs.crash_clone(1.0, 0), whole.config)


def only(store: SmallStore, kind: FindingKind, level: Severity = Severity.DAMAGE, **fields: Any) -> Finding:
    """The one finding there is, which has these fields."""
    findings = store.findings()
    assert [(one.kind, one.level) for one in findings] == [(kind, level)], findings
    for name, value in fields.items():
        assert getattr(findings[0], name) == value, (name, findings[0])
    return findings[0]


def test_the_whole_store_has_no_finding(store: SmallStore) -> None:
    assert store.findings() == []
    assert len(store.fs.scan(PATHS.commit_log)) > 3
    assert len(store.fs.scan(PATHS.index)) > 2


# The log


def test_flipped_bit_of_body_is_reported_as_crc(store: SmallStore) -> None:
    unit = store.unit(30)
    store.flip_log(unit.phy_offset + store.layout(unit.phy_offset).body_at)
    place = {"topic": "orders", "queue_id": 0, "queue_offset": 30, "length_bytes": unit.size_bytes}
    only(
        store,
        FindingKind.RECORD_CRC,
        phy_offset=unit.phy_offset,
        path=store.log_path(unit.phy_offset).relative_to("/store"),
        **place,
    )


def test_flipped_bit_of_last_body_is_reported_as_log_tail(store: SmallStore) -> None:
    unit = store.unit(79, 0, "bills")
    store.flip_log(unit.phy_offset + store.layout(unit.phy_offset).body_at)
    only(store, FindingKind.RECORD_CRC, phy_offset=unit.phy_offset)
    store.make(PATHS.abort, b"")
    findings = store.findings()  # now it may be the torn end of a killed store
    assert {one.level for one in findings} == {Severity.NOTE}
    assert FindingKind.LOG_TAIL in {one.kind for one in findings}


def test_broken_length_is_reported(store: SmallStore) -> None:
    unit, following = store.unit(30), store.unit(30, 1)
    store.flip_log(unit.phy_offset + 2, 0x10)
    only(
        store, FindingKind.LENGTH_CHAIN, phy_offset=unit.phy_offset, length_bytes=following.phy_offset - unit.phy_offset
    )


def test_broken_magic_code_is_reported(store: SmallStore) -> None:
    unit = store.unit(30)
    store.flip_log(unit.phy_offset + 5)
    only(store, FindingKind.LENGTH_CHAIN, phy_offset=unit.phy_offset, length_bytes=unit.size_bytes)


def test_zeros_in_middle_are_reported_as_hole(store: SmallStore) -> None:
    first, last = store.unit(30), store.unit(33)
    store.write_log(first.phy_offset, bytes(last.phy_offset - first.phy_offset))
    only(store, FindingKind.LOG_HOLE, phy_offset=first.phy_offset, length_bytes=last.phy_offset - first.phy_offset)


def test_missing_log_file_is_reported(store: SmallStore) -> None:
    store.fs.remove(PATHS.commit_log / f"{LOG_FILE:020d}")
    only(store, FindingKind.LOG_FILE_MISSING, phy_offset=LOG_FILE, length_bytes=LOG_FILE, count=1)


def test_log_file_of_zeros_is_reported(store: SmallStore) -> None:
    store.write_log(LOG_FILE, bytes(LOG_FILE))
    only(store, FindingKind.LOG_HOLE, phy_offset=LOG_FILE, length_bytes=LOG_FILE)


def test_missing_blank_is_reported(store: SmallStore) -> None:
    blank = store.blanks()[1]
    store.write_log(blank, bytes(8))
    only(store, FindingKind.BLANK_MISSING, phy_offset=blank)


def test_blank_of_wrong_size_is_reported(store: SmallStore) -> None:
    blank = store.blanks()[0]
    store.write_log(blank, (LOG_FILE - blank - 1).to_bytes(4, "big"))
    only(store, FindingKind.BLANK_SIZE, phy_offset=blank)


def test_truncated_log_file_is_reported(store: SmallStore) -> None:
    path = PATHS.commit_log / f"{LOG_FILE:020d}"
    raw = store.read(path, 0, LOG_FILE)
    blank = store.blanks()[1] - LOG_FILE
    store.fs.remove(path)
    store.make(path, raw[: blank - 4])
    kinds = {one.kind for one in store.findings()}
    assert kinds == {FindingKind.FILE_SIZE, FindingKind.LENGTH_CHAIN}


@pytest.mark.parametrize("left", [b"", b"\0\0\0\7\0"])
def test_log_file_too_short_for_record_is_reported(store: SmallStore, left: bytes) -> None:
    path = PATHS.commit_log / f"{LOG_FILE:020d}"
    store.fs.remove(path)
    store.make(path, left)
    chain = next(one for one in store.findings() if one.kind is FindingKind.LENGTH_CHAIN)
    assert (chain.phy_offset, chain.path) == (LOG_FILE, path.relative_to("/store"))
    assert chain.text.startswith("the chain of records ends at the end of the file; `gantrymq store salvage`")


def test_record_with_wrong_phy_offset_is_reported(store: SmallStore) -> None:
    unit = store.unit(30)
    store.flip_log(unit.phy_offset + PHY_OFFSET_AT + 7)
    only(store, FindingKind.RECORD_PHY_OFFSET, phy_offset=unit.phy_offset, queue_offset=30)


def test_torn_properties_are_reported() -> None:
    store = small_store(messages=0)
    with open_store(store.fs) as opened:
        for number in range(3):
            opened.put(Message("orders", b"", properties={"name": "v" * 3000, "n": str(number)}))
        await_dispatch(opened)
    offset = store.unit(1).phy_offset
    sector = -(-(offset + 1000) // 512) * 512
    store.write_log(sector, bytes(512))
    only(store, FindingKind.RECORD_TORN, phy_offset=offset)


def test_garbage_after_end_of_log_is_reported(store: SmallStore) -> None:
    last = store.unit(79, 0, "bills")
    store.write_log(last.phy_offset + last.size_bytes, b"garbage" * 5)
    only(store, FindingKind.LOG_TAIL, Severity.NOTE, phy_offset=last.phy_offset + last.size_bytes, length_bytes=35)


def test_foreign_file_in_log_is_reported(store: SmallStore) -> None:
    store.make(PATHS.commit_log / "notes.txt", b"x")
    only(store, FindingKind.FOREIGN_FILE, Severity.NOTE, path=Path("commitlog/notes.txt"))


# The queues


def unit_damage(change: Callable[[SmallStore, QueueEntry], QueueEntry]) -> Callable[[SmallStore], None]:
    return lambda store: store.write_unit(change(store, store.unit(30)), 30)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (FindingKind.QUEUE_HOLE, lambda store, unit: QueueEntry(0, 0, 0)),
        (FindingKind.QUEUE_ENTRY_NOWHERE, lambda store, unit: unit._replace(phy_offset=unit.phy_offset + 1)),
        (FindingKind.QUEUE_ENTRY_NOWHERE, lambda store, unit: unit._replace(phy_offset=-5)),
        (FindingKind.QUEUE_ENTRY_NOWHERE, lambda store, unit: unit._replace(phy_offset=1 << 40)),
        (FindingKind.QUEUE_ENTRY_OTHER_QUEUE, lambda store, unit: store.unit(30, 1)),
        (FindingKind.QUEUE_ENTRY_OTHER_QUEUE, lambda store, unit: store.unit(30, 0, "bills")),
        (FindingKind.QUEUE_ENTRY_ORDER, lambda store, unit: store.unit(12)),
        (FindingKind.QUEUE_ENTRY_SIZE, lambda store, unit: unit._replace(size_bytes=unit.size_bytes + 1)),
        (FindingKind.QUEUE_ENTRY_TAGS_CODE, lambda store, unit: unit._replace(tags_code=unit.tags_code ^ 1)),
        (FindingKind.QUEUE_EXT_ENTRY, lambda store, unit: unit._replace(tags_code=-(1 << 63) + 40)),
    ],
)
def test_wrong_unit_is_reported(
    store: SmallStore, kind: FindingKind, change: Callable[[SmallStore, QueueEntry], QueueEntry]
) -> None:
    unit_damage(change)(store)
    place = {"path": store.unit_place(30)[0].relative_to("/store"), "queue_offset": 30, "count": 1}
    only(store, kind, topic="orders", queue_id=0, **place)


def test_filler_of_expired_message_is_note(store: SmallStore) -> None:
    store.flip_log(store.unit(30).phy_offset + 5)
    store.write_unit(PRE_BLANK, 30)
    findings = {(one.kind, one.level, one.queue_offset) for one in store.findings()}
    assert findings == {
        (FindingKind.LENGTH_CHAIN, Severity.DAMAGE, None),
        (FindingKind.QUEUE_FILLED, Severity.NOTE, 30),
    }


def test_filler_of_broken_record_is_note(store: SmallStore) -> None:
    place = store.unit(30).phy_offset
    store.flip_log(store.layout(place).body_at + place)
    store.write_unit(PRE_BLANK, 30)
    assert {one.kind for one in store.findings()} == {FindingKind.RECORD_CRC, FindingKind.QUEUE_FILLED}


@pytest.mark.parametrize("slots", [[30], [0, 1, 2]])
def test_filler_of_intact_message_is_reported_as_hiding(store: SmallStore, slots: list[int]) -> None:
    """RocketMQ fills what is in front of the part of a queue that it dispatches again, whatever the log has."""
    for slot in slots:
        store.write_unit(PRE_BLANK, slot)
    [finding] = [one for one in store.findings() if one.level is Severity.DAMAGE]
    assert (finding.kind, finding.queue_offset, finding.count) == (
        FindingKind.MESSAGE_WITHOUT_ENTRY,
        slots[0],
        len(slots),
    )


def test_filler_below_min_offset_is_not_reported(store: SmallStore) -> None:
    """As a kill leaves it, when retention took the messages before their units had reached the disk."""
    first = store.fs.scan(PATHS.commit_log)[1].name
    store.fs.remove(PATHS.commit_log / f"{0:020d}")
    before = store.findings()
    slot = next(slot for slot in range(80) if store.unit(slot).phy_offset >= int(first))
    store.write_unit(PRE_BLANK, slot - 1)
    assert store.findings() == before
    store.write_unit(PRE_BLANK, slot + 1)
    assert FindingKind.QUEUE_FILLED in {one.kind for one in store.findings() if one not in before}


def test_swapped_units_are_reported(store: SmallStore) -> None:
    one, other = store.unit(30), store.unit(31)
    store.write_unit(one, 31)
    store.write_unit(other, 30)
    only(store, FindingKind.QUEUE_ENTRY_ORDER, queue_offset=30, count=2)


def test_hole_of_several_slots_is_one_finding(store: SmallStore) -> None:
    for slot in range(30, 36):
        store.write_unit(QueueEntry(0, 0, 0), slot)
    only(store, FindingKind.QUEUE_HOLE, queue_offset=30, count=6)


def test_missing_queue_file_is_reported(store: SmallStore) -> None:
    store.fs.remove(store.unit_place(UNITS_A_FILE)[0])
    only(store, FindingKind.QUEUE_FILE_MISSING, topic="orders", queue_offset=UNITS_A_FILE, count=UNITS_A_FILE)


def test_queue_without_last_units_is_note(store: SmallStore) -> None:
    for slot in (78, 79):
        store.write_unit(QueueEntry(0, 0, 0), slot)
    only(store, FindingKind.MESSAGE_WITHOUT_ENTRY, topic="orders", queue_id=0, queue_offset=78, count=2)
    store.make(PATHS.abort, b"")
    assert FindingKind.QUEUE_BEHIND in {one.kind for one in store.findings()}
    assert {one.level for one in store.findings()} == {Severity.NOTE}


def test_missing_queue_is_reported(store: SmallStore) -> None:
    for entry in store.fs.scan(PATHS.consume_queue / "bills/0"):
        store.fs.remove(PATHS.consume_queue / "bills/0" / entry.name)
    only(store, FindingKind.MESSAGE_WITHOUT_ENTRY, topic="bills", queue_id=0, queue_offset=0, count=80)


def test_record_with_flipped_queue_id_is_reported(store: SmallStore) -> None:
    unit = store.unit(30)
    store.flip_log(unit.phy_offset + 15, 4)  # queue 4, which no message has
    only(store, FindingKind.RECORD_QUEUE, queue_offset=30, phy_offset=unit.phy_offset, length_bytes=unit.size_bytes)


def test_record_with_flipped_queue_offset_is_reported(store: SmallStore) -> None:
    unit = store.unit(30)
    store.flip_log(unit.phy_offset + QUEUE_OFFSET_AT + 6, 0x40)
    only(store, FindingKind.RECORD_QUEUE, queue_offset=30, phy_offset=unit.phy_offset, length_bytes=unit.size_bytes)


def test_expired_queue_files_are_reported(store: SmallStore) -> None:
    for base in range(0, 3 * LOG_FILE, LOG_FILE):
        store.fs.remove(PATHS.commit_log / f"{base:020d}")
    findings = store.findings()
    assert {(one.kind, one.topic, one.queue_id, one.count) for one in findings} == {
        (FindingKind.QUEUE_MIN_OFFSET_STALE, topic, queue_id, findings[0].count)
        for topic, queue_id in (("orders", 0), ("orders", 1), ("bills", 0))
    }
    assert all(one.queue_offset == 0 for one in findings)


def test_queue_file_ending_with_filler_is_not_reported_as_expired(store: SmallStore) -> None:
    store.write_unit(PRE_BLANK, 19)  # the last slot of the first file; its other units point into a log that is there
    store.fs.remove(store.log_path(0))
    live = store.unit(18).phy_offset
    assert live >= SMALL.mapped_file_size_commit_log
    assert FindingKind.QUEUE_MIN_OFFSET_STALE not in {finding.kind for finding in store.findings()}


def test_queue_file_of_wrong_size_is_reported(store: SmallStore) -> None:
    path, _ = store.unit_place(79)
    raw = store.read(path, 0, SMALL.mapped_file_size_consume_queue)
    store.fs.remove(path)
    store.make(path, raw + bytes(20))
    only(store, FindingKind.FILE_SIZE, path=path.relative_to("/store"), topic="orders")


def test_foreign_file_in_queue_is_note(store: SmallStore) -> None:
    store.make(PATHS.consume_queue / "orders/0/core", b"x")
    only(store, FindingKind.FOREIGN_FILE, Severity.NOTE, topic="orders", queue_id=0)


@pytest.mark.parametrize("name", ["2147483648", "99999999999999999999", "00"])
def test_directory_without_queue_id_as_name_is_reported(store: SmallStore, name: str) -> None:
    stray = PATHS.consume_queue / "orders" / name
    store.make(stray / offset_name(0), bytes(SMALL.mapped_file_size_consume_queue))
    only(store, FindingKind.FOREIGN_FILE, Severity.NOTE, path=stray.relative_to("/store"))
    with open_store(store.fs) as opened:
        assert [queue_id for topic, queue_id, _, _ in opened.queues() if topic == "orders"] == [0, 1]


def test_unreadable_extended_unit_is_reported() -> None:
    config = replace(SMALL, enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=1024)
    store = small_store(config, messages=90)
    assert store.findings() == []
    assert store.unit(10).tags_code < -(1 << 31)
    directory = PATHS.consume_queue_ext / "orders/0"
    store.flip(directory / store.fs.scan(directory)[0].name, 20 * 10 + 9)
    only(store, FindingKind.QUEUE_EXT_ENTRY, topic="orders", queue_id=0, queue_offset=10, count=1)


# The index


def test_circular_index_chain_is_reported(store: SmallStore) -> None:
    store.write(store.index_path(), store.entry_at(100) + 16, (100).to_bytes(4, "big"))
    only(store, FindingKind.INDEX_CHAIN_LOOP, entry=100, path=store.index_path().relative_to("/store"))


def test_cut_index_chain_is_reported(store: SmallStore) -> None:
    number = next(number for number in range(199, 0, -1) if store.index_entry(number).previous)
    store.write(store.index_path(), store.entry_at(number) + 16, bytes(4))
    only(store, FindingKind.INDEX_CHAIN_BROKEN, entry=number)


def test_index_slot_with_wrong_entry_is_reported(store: SmallStore) -> None:
    slot = store.index_entry(199).key_hash % SMALL.max_hash_slot_num
    store.write(store.index_path(), HEADER_SIZE + slot * SLOT_SIZE, (1).to_bytes(4, "big"))
    only(store, FindingKind.INDEX_SLOT, entry=slot)


@pytest.mark.parametrize("phy_offset", [17, 1 << 40])
def test_index_entry_without_record_is_reported(store: SmallStore, phy_offset: int) -> None:
    store.write(store.index_path(), store.entry_at(100) + 4, phy_offset.to_bytes(8, "big"))
    only(store, FindingKind.INDEX_ENTRY_NOWHERE, entry=100, phy_offset=phy_offset)


def test_index_entry_of_other_key_is_reported(store: SmallStore) -> None:
    entry = store.index_entry(100)
    # Another hash of the same slot, so that the chain stays whole.
    code = entry.key_hash + SMALL.max_hash_slot_num * (1 if entry.key_hash < 1 << 30 else -1)
    store.write(store.index_path(), store.entry_at(100), code.to_bytes(4, "big"))
    only(store, FindingKind.INDEX_ENTRY_HASH, entry=100, phy_offset=entry.phy_offset)


def test_index_entry_of_other_time_is_reported(store: SmallStore) -> None:
    store.flip(store.index_path(), store.entry_at(100) + 15, 0x40)
    only(store, FindingKind.INDEX_ENTRY_TIME, entry=100)


@pytest.mark.parametrize(("at", "mask"), [(7, 1), (15, 1), (23, 1), (31, 1), (35, 1), (38, 1)])
def test_wrong_index_header_is_reported(store: SmallStore, at: int, mask: int) -> None:
    store.flip(store.index_path(), at, mask)
    only(store, FindingKind.INDEX_HEADER, path=store.index_path().relative_to("/store"))


def test_missing_index_file_is_reported(store: SmallStore) -> None:
    store.fs.remove(store.index_path(1))
    only(store, FindingKind.INDEX_INCOMPLETE, Severity.NOTE)


def test_index_file_of_wrong_size_is_reported(store: SmallStore) -> None:
    path = store.index_path(0)
    raw = store.read(path, 0, 1 << 20)
    store.fs.remove(path)
    store.make(path, raw[:-20])
    findings = store.findings()
    assert [one.kind for one in findings if one.level is Severity.DAMAGE] == [FindingKind.FILE_SIZE]
    assert [one.kind for one in findings if one.level is Severity.NOTE] == [FindingKind.INDEX_INCOMPLETE]


# What is small


def test_broken_config_file_is_reported(store: SmallStore) -> None:
    store.make(PATHS.config / "topics.json", b'{"topicConfigTable":{')
    store.make(PATHS.config / "consumerOffset.json", b'{"offsetTable":{"t@g":{0:32,1:32}}}')
    only(store, FindingKind.CONFIG_JSON, path=Path("config/topics.json"))


@pytest.mark.parametrize(
    "page", [Checkpoint(physic_msg_timestamp_ms=NOON_MS + 120_000), Checkpoint(logics_physical_offset=1 << 40)]
)
def test_future_checkpoint_is_reported(store: SmallStore, page: Checkpoint) -> None:
    store.write(PATHS.checkpoint, 0, encode_checkpoint(page))
    findings = store.findings(now_ms=NOON_MS)
    assert [one.kind for one in findings] == [FindingKind.CHECKPOINT_FUTURE]


def test_corrupt_checkpoint_is_reported(store: SmallStore) -> None:
    store.write(PATHS.checkpoint, 100, b"x")
    only(store, FindingKind.CHECKPOINT_CORRUPT)


def test_short_checkpoint_is_reported(store: SmallStore) -> None:
    raw = store.read(PATHS.checkpoint, 0, 48)
    store.fs.remove(PATHS.checkpoint)
    only(store, FindingKind.CHECKPOINT_MISSING)
    store.make(PATHS.checkpoint, raw)
    only(store, FindingKind.FILE_SIZE, path=Path("checkpoint"))


def test_foreign_file_in_store_directory_is_note(store: SmallStore) -> None:
    store.make(PATHS.root / "core.4711", b"x")
    only(store, FindingKind.FOREIGN_FILE, Severity.NOTE, path=Path("core.4711"))
