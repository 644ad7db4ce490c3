"""Every message of a damaged store is in its export, or the export names it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from loss_cases import LOG_FILE, QUEUE_ID_AT, KnownStore, Put, Slot, assert_told, named

from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.format.record import PHY_OFFSET_AT, QUEUE_OFFSET_AT
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.store.message_store import MessageStore
from gantrymq.tools.export import export_store
from gantrymq.tools.export_files import ExportFormat, ExportReport
from gantrymq.tools.export_plan import ExportSelection
from store_cases import GEOMETRY_KEYS, NOON_MS, SMALL, await_dispatch, open_store

BODY_AT = 100  # somewhere in the body of a record of these stores


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> KnownStore:
    return KnownStore.make(tmp_path_factory.mktemp("whole") / "store")


@pytest.fixture
def store(whole: KnownStore, tmp_path: Path) -> KnownStore:
    return KnownStore(Path(shutil.copytree(whole.path, tmp_path / "store")), whole.puts)


def exported(store: KnownStore, **selected: object) -> tuple[dict[Slot, bytes], ExportReport]:
    """Every row of an export, by topic, queue and queue offset; and the report."""
    out = store.path.with_name("out")
    shutil.rmtree(out, ignore_errors=True)
    selection = ExportSelection(**selected)  # type: ignore[arg-type]
    report = export_store(store.path, out, ExportFormat.JSONL, selection, SMALL, given=GEOMETRY_KEYS)
    rows = [json.loads(line) for path in out.glob("*/*/*.jsonl") for line in path.read_bytes().splitlines()]
    assert len(rows) == report.rows
    result = {Slot(row["topic"], row["queue_id"], row["queue_offset"]): row["body"].encode() for row in rows}
    return result, report


def flip_body(share: float) -> Callable[[KnownStore], None]:
    return lambda store: store.flip(store.at(share)[1].phy_offset + BODY_AT, 1)


def flip_head(at: int, mask: int, share: float = 0.5) -> Callable[[KnownStore], None]:
    return lambda store: store.flip(store.at(share)[1].phy_offset + at, mask)


def flip_topic(store: KnownStore) -> None:
    _, put = store.at(0.5)
    store.flip(put.phy_offset + 88 + len(put.body) + 1, 1)


def several_bodies(store: KnownStore) -> None:
    for share in (0.0, 0.1, 0.2, 0.5, 0.95, 1.0):
        flip_body(share)(store)


def zeros(store: KnownStore) -> None:
    start = store.at(0.4)[1].phy_offset + 50
    store.write(start, bytes(min(1500, LOG_FILE - start % LOG_FILE)))


def no_file(number: int) -> Callable[[KnownStore], None]:
    return lambda store: store.log_files[number].unlink()


def short_file(number: int) -> Callable[[KnownStore], None]:
    return lambda store: os.truncate(store.log_files[number], LOG_FILE // 2)


def zero_file(number: int) -> Callable[[KnownStore], None]:
    def damage(store: KnownStore) -> None:
        store.log_files[number].write_bytes(bytes(LOG_FILE))

    return damage


def no_queues(store: KnownStore) -> None:
    shutil.rmtree(store.path / "consumequeue")


def no_queues_and_bodies(store: KnownStore) -> None:
    no_queues(store)
    several_bodies(store)


def zero_units(store: KnownStore) -> None:
    """The last units of one queue, the first ones of another, and some in the middle of a third."""
    for queue, (begin, end) in zip(("orders/0", "orders/1", "bills/0"), ((30, 1000), (0, 5), (10, 20)), strict=True):
        for path in sorted((store.path / "consumequeue" / queue).iterdir()):
            first = int(path.name) // UNIT_SIZE
            raw = bytearray(path.read_bytes())
            low, high = (max(min(at - first, len(raw) // UNIT_SIZE), 0) * UNIT_SIZE for at in (begin, end))
            raw[low:high] = bytes(high - low)
            path.write_bytes(raw)


def rename_last_message_and_swap_it(store: KnownStore) -> None:
    """The last record of a queue names another topic, and lies where one of a third queue was."""
    pairs = (
        (last, other)
        for last in store.puts
        if last._replace(queue_offset=last.queue_offset + 1) not in store.puts
        for other in store.puts
        if store.puts[other].size_bytes == store.puts[last].size_bytes
        and other[:2] != last[:2]
        and other.queue_offset > 0
        and other._replace(queue_offset=other.queue_offset + 1) in store.puts
    )
    at, there = (store.puts[slot] for slot in next(pairs))
    store.flip(at.phy_offset + 88 + len(at.body) + 1, 1)
    raw = store.read(at.phy_offset, at.size_bytes)
    store.write(at.phy_offset, store.read(there.phy_offset, there.size_bytes))
    store.write(there.phy_offset, raw)


def zero_units_and_bodies(store: KnownStore) -> None:
    zero_units(store)
    several_bodies(store)


def no_checkpoint(store: KnownStore) -> None:
    (store.path / "checkpoint").unlink()
    several_bodies(store)


def killed(store: KnownStore) -> None:
    (store.path / "abort").touch()
    several_bodies(store)


def copy_over(store: KnownStore) -> None:
    files = store.log_files
    shutil.copyfile(files[3], files[2])


def copy_over_and_lose(store: KnownStore) -> None:
    copy_over(store)
    store.log_files[3].unlink()


DAMAGES: dict[str, Callable[[KnownStore], None]] = {
    "a body in the last file": flip_body(0.99),
    "the last body": flip_body(1.0),
    "the first body": flip_body(0.0),
    "a body in the middle": flip_body(0.5),
    "several bodies": several_bodies,
    "a length": flip_head(2, 1),
    "the last length": flip_head(2, 1, 1.0),
    "a magic code": flip_head(6, 8),
    "a queue id": flip_head(QUEUE_ID_AT + 3, 8),
    "a queue id to one that is there": flip_head(QUEUE_ID_AT + 3, 1, 0.52),
    "a topic": flip_topic,
    "a queue offset": flip_head(QUEUE_OFFSET_AT + 7, 4),
    "a queue offset, far": flip_head(QUEUE_OFFSET_AT + 5, 4),
    "a queue offset, negative": flip_head(QUEUE_OFFSET_AT, 128),
    "the first queue offset": flip_head(QUEUE_OFFSET_AT + 7, 4, 0.0),
    "the last queue offset": flip_head(QUEUE_OFFSET_AT + 7, 4, 1.0),
    "the last queue offset, far": flip_head(QUEUE_OFFSET_AT + 5, 4, 1.0),
    "a phyOffset": flip_head(PHY_OFFSET_AT + 6, 2),
    "zeros in the middle": zeros,
    "no first file": no_file(0),
    "no file in the middle": no_file(2),
    "no last file": no_file(-1),
    "a short first file": short_file(0),
    "a short file in the middle": short_file(2),
    "a short last file": short_file(-1),
    "zeros for the first file": zero_file(0),
    "zeros for a file in the middle": zero_file(2),
    "zeros for the last file": zero_file(-1),
    "no queues": no_queues,
    "no queues, and bodies": no_queues_and_bodies,
    "units": zero_units,
    "units and bodies": zero_units_and_bodies,
    "a last message renamed and swapped": rename_last_message_and_swap_it,
    "no checkpoint, and bodies": no_checkpoint,
    "killed, and bodies": killed,
    "a file copied over the one before": copy_over,
    "a file copied over the one before, and then lost": copy_over_and_lose,
}


@pytest.mark.parametrize("name", DAMAGES)
def test_every_message_is_exported_or_named(name: str, store: KnownStore) -> None:
    DAMAGES[name](store)
    result, report = exported(store)
    if name == "no first file":  # as after retention
        first = min(int(path.name) for path in store.log_files)
        store.puts = {slot: put for slot, put in store.puts.items() if put.phy_offset >= first}
    lost = {slot for slot, put in store.puts.items() if result.get(slot) != put.body}
    assert lost - named(report.account, store) == set()
    assert bool(lost) == (not report.is_whole)
    by_slot = {
        Slot(one.topic, one.queue_id, offset) for one in report.account.messages for offset in range(one.begin, one.end)
    }
    assert by_slot - lost == set(), "named as lost, but it is there"
    if "queues" not in name:
        assert lost == by_slot, "each is named by its queue offset"
    assert not (store.path.parent / ".out.unfinished").exists()


def test_export_of_healthy_store_lacks_nothing(store: KnownStore) -> None:
    result, report = exported(store)
    assert result == {slot: put.body for slot, put in store.puts.items()}
    assert report.is_whole
    assert report.account.repaired == []


def test_damaged_body_in_last_file_loses_one_message_and_is_named(store: KnownStore) -> None:
    slot, put = store.at(0.99)
    flip_body(0.99)(store)
    result, report = exported(store)
    assert store.puts.keys() - result.keys() == {slot}
    [row] = report.account.as_json(store.path)["lost"]
    assert row == {
        "path": f"commitlog/{store.log_path(put.phy_offset).name}",
        "phyOffset": put.phy_offset,
        "bytes": put.size_bytes,
        "reason": "crc",
        "topic": slot.topic,
        "queueId": slot.queue_id,
        "queueOffset": slot.queue_offset,
    }
    [message] = report.account.messages
    assert (message.topic, message.queue_id, message.begin, message.end) == (*slot, slot.queue_offset + 1)


def test_flipped_queue_offset_is_exported_with_original_value(store: KnownStore) -> None:
    slot, put = store.at(0.5)
    flip_head(QUEUE_OFFSET_AT + 5, 4)(store)
    result, report = exported(store)
    assert result == {slot: put.body for slot, put in store.puts.items()}
    assert report.is_whole
    [repaired] = report.account.repaired
    assert (repaired.topic, repaired.queue_id, repaired.queue_offset, repaired.phy_offset) == (*slot, put.phy_offset)


@pytest.mark.parametrize("name", ["a topic", "a queue id", "a queue id to one that is there"])
def test_record_with_wrong_queue_is_exported_by_its_unit(name: str, store: KnownStore) -> None:
    DAMAGES[name](store)
    result, report = exported(store)
    assert result == {slot: put.body for slot, put in store.puts.items()}
    assert report.is_whole
    [repaired] = report.account.repaired
    assert store.puts[Slot(repaired.topic, repaired.queue_id, repaired.queue_offset)].phy_offset == repaired.phy_offset
    result, _ = exported(store, topics=frozenset({repaired.topic}))
    assert result == {slot: put.body for slot, put in store.puts.items() if slot.topic == repaired.topic}
    shutil.rmtree(store.path / "consumequeue")
    result, report = exported(store)
    if name == "a queue id to one that is there":
        assert not report.is_whole
        assert Slot(repaired.topic, repaired.queue_id, repaired.queue_offset) in named(report.account, store)
    else:  # the only record of a queue that exactly one other queue lacks
        home = Slot(repaired.topic, repaired.queue_id, repaired.queue_offset)
        assert result == {slot: put.body for slot, put in store.puts.items() if slot != home}
        assert [(one.phy_offset, one.likely) for one in report.account.quarantined] == [(repaired.phy_offset, home)]
        assert (report.is_whole, report.account.messages, report.account.repaired) == (False, [], [])


def test_records_of_same_slot_are_not_exported_without_queues(store: KnownStore) -> None:
    """Each stands between others of the queue: nothing says which of them is of another one, and both are named."""
    places = {slot: put.phy_offset for slot, put in store.puts.items()}
    slot = next(
        Slot("bills", 0, number)
        for number in range(10, 60)
        if places[Slot("bills", 1, number - 1)] < places[Slot("bills", 0, number)] < places[Slot("bills", 1, number)]
    )
    put = store.puts[slot]
    store.flip(put.phy_offset + QUEUE_ID_AT + 3, 1)
    result, report = exported(store)
    assert result == {slot: put.body for slot, put in store.puts.items()}, "the queues say it"
    shutil.rmtree(store.path / "consumequeue")
    result, report = exported(store)
    lost = {slot for slot in store.puts if result.get(slot) != store.puts[slot].body}
    assert lost == {slot, Slot("bills", 1, slot.queue_offset)}
    assert lost <= named(report.account, store)


def test_last_record_with_wrong_topic_is_quarantined_without_queues(
    store: KnownStore,
) -> None:
    slot, put = max(store.puts.items(), key=lambda item: item[1].phy_offset)
    store.flip(put.phy_offset + 88 + len(put.body) + 1, 1)
    shutil.rmtree(store.path / "consumequeue")
    result, report = exported(store)
    assert result == {one: put.body for one, put in store.puts.items() if one != slot}
    assert [(one.phy_offset, one.likely) for one in report.account.quarantined] == [(put.phy_offset, slot)]


def test_damage_of_other_topic_is_not_reported_for_selected_topic(store: KnownStore) -> None:
    shares = [share / 100 for share in range(30, 70)]
    share = next(share for share in shares if store.at(share)[0].topic == "bills")
    flip_body(share)(store)
    result, report = exported(store, topics=frozenset({"orders"}))
    assert result.keys() == {slot for slot in store.puts if slot.topic == "orders"}
    assert report.is_whole
    _, report = exported(store, topics=frozenset({"bills"}))
    assert [(one.topic, one.begin) for one in report.account.messages] == [("bills", store.at(share)[0].queue_offset)]


@pytest.mark.parametrize("name", ["several bodies", "no file in the middle", "no last file", "units", "no queues"])
@pytest.mark.parametrize("wanted", [(10, 20), (0, 40), (35, 1000)])
def test_selected_offsets_are_exported_or_named(name: str, wanted: tuple[int, int], store: KnownStore) -> None:
    DAMAGES[name](store)
    low, high = wanted
    selected = {"topics": frozenset({"orders"}), "queue_id": 0, "from_offset": low, "to_offset": high}
    result, report = exported(store, **selected)
    asked = {slot for slot in store.puts if slot[:2] == ("orders", 0) and low <= slot.queue_offset < high}
    assert result.keys() <= asked
    assert asked - result.keys() - named(report.account, store) == set()
    assert all(low <= one.begin and one.end <= high for one in report.account.messages)


def test_selected_time_range_is_exported_or_named(store: KnownStore) -> None:
    """All are of one millisecond, so that everything is asked for, or nothing."""
    several_bodies(store)
    result, report = exported(store, begin_ms=NOON_MS)
    assert store.puts.keys() - result.keys() <= named(report.account, store)
    result, _ = exported(store, end_ms=NOON_MS)
    assert result == {}


def recreated(path: Path, new: int) -> None:
    """A store whose topic had 30 messages, was deleted and has ``new`` ones."""
    with MessageStore.open(path, SMALL, given=GEOMETRY_KEYS, housekeeping=False) as opened:
        for number in range(30):
            opened.put(Message("orders", b"0-%d" % number))
        opened.delete_topic("orders")
        for number in range(new):
            opened.put(Message("orders", b"1-%d" % number))
        await_dispatch(opened)


def test_single_message_of_recreated_topic_with_lost_queue_is_exported(tmp_path: Path) -> None:
    recreated(tmp_path / "store", 1)
    store = KnownStore(tmp_path / "store", {})
    result, report = exported(store)
    assert (result, report.rows) == ({Slot("orders", 0, 0): b"1-0"}, 1)
    shutil.rmtree(tmp_path / "store/consumequeue")
    assert exported(store)[0] == {Slot("orders", 0, 0): b"1-0"}, "the store remembers that the others were deleted"
    shutil.rmtree(tmp_path / "store/config")  # as RocketMQ leaves it
    _, report = exported(store)
    assert (report.rows, report.is_whole) == (31, True)


def test_messages_of_deleted_topic_with_lost_first_unit_are_not_exported(tmp_path: Path) -> None:
    path = tmp_path / "store"
    recreated(path, 20)
    puts = {Slot("orders", 0, number): Put(0, 0, b"1-%d" % number) for number in range(20)}
    store = KnownStore(path, puts)
    expected = {slot: put.body for slot, put in puts.items()}
    assert exported(store)[0] == expected
    [unit_file] = (path / "consumequeue/orders/0").iterdir()
    raw = unit_file.read_bytes()
    unit_file.write_bytes(bytes(UNIT_SIZE) + raw[UNIT_SIZE:])
    result, report = exported(store)
    assert result == expected
    assert report.is_whole
    shutil.rmtree(path / "consumequeue")
    assert exported(store)[0] == expected


def test_undecompressible_body_is_named_with_its_queue(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(RealFileSystem(), path) as opened:
        opened.put(Message("orders", b"plain"))
        opened.put(Message("orders", b"no zlib", sys_flag=1))
    _, report = exported(KnownStore(path, {}))
    [message] = report.account.messages
    assert (message.topic, message.queue_id, message.begin) == ("orders", 0, 1)
    assert "cannot be decompressed" in message.reason
    assert not report.is_whole


@pytest.mark.parametrize("said", [1, 8, 1000])
def test_only_message_of_queue_is_exported_at_offset_of_its_unit(tmp_path: Path, said: int) -> None:
    path = tmp_path / "store"
    with open_store(RealFileSystem(), path) as opened:
        puts = {}
        for topic in ("lone", "orders", "orders"):
            put = opened.put(Message(topic, b"%d" % len(puts)))
            puts[Slot(topic, 0, put.queue_offset)] = Put(put.phy_offset, put.size_bytes, b"%d" % len(puts))
        await_dispatch(opened)
    store = KnownStore(path, puts)
    store.write(puts[Slot("lone", 0, 0)].phy_offset + QUEUE_OFFSET_AT, said.to_bytes(8, "big"))
    rows, report = exported(store)
    assert assert_told(store, rows, report.account) == set()
    assert [(one.topic, one.queue_offset) for one in report.account.repaired] == [("lone", 0)]


def test_log_file_of_other_store_is_omitted_and_its_messages_are_named(store: KnownStore, tmp_path: Path) -> None:
    other = KnownStore.make(tmp_path / "other", with_old_queues=True)
    victim = store.log_files[2]
    shutil.copyfile(other.log_path(int(victim.name)), victim)
    rows, report = exported(store)
    gone = store.victims(int(victim.name), int(victim.name) + LOG_FILE)
    assert assert_told(store, rows, report.account) == gone
    assert rows.keys() <= store.puts.keys()


@pytest.mark.parametrize("has_queues", [True, False])
def test_first_file_not_removed_by_retention_is_named(store: KnownStore, *, has_queues: bool) -> None:
    no_file(0)(store)
    if not has_queues:
        shutil.rmtree(store.path / "consumequeue")
    out, kept_for = store.path.with_name("out"), replace(SMALL, file_reserved_time_hours=1_000_000)
    report = export_store(store.path, out, config=kept_for, given=GEOMETRY_KEYS)
    gone = {slot for slot, put in store.puts.items() if put.phy_offset < LOG_FILE}
    assert gone
    assert report.account.message_count == len(gone)
    assert gone <= named(report.account, store)
    assert not report.is_whole


def test_renamed_log_file_is_exported_from_offsets_of_its_records(store: KnownStore) -> None:
    moved = store.log_files[2]
    moved.rename(moved.with_name(moved.name[2:]))
    result, report = exported(store)
    assert result == {slot: put.body for slot, put in store.puts.items()}
    assert report.is_whole
