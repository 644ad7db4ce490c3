"""A salvaged store has every whole record of a damaged one at its old offsets, and nothing is wrong with it."""

from __future__ import annotations

import os
import random
import shutil
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from faulty_file_system import FaultyFileSystem, broken_disk
from gantrymq.cli.main import exit_code
from gantrymq.clock import ManualClock
from gantrymq.errors import GantrymqError, NotAStoreError, StoreError
from gantrymq.format.names import SALVAGE_MARK
from gantrymq.format.record import PHY_OFFSET_AT, QUEUE_OFFSET_AT
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message, StoredMessage
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.put_result import PutMessageResult
from gantrymq.tools.findings import FindingKind, Severity
from gantrymq.tools.salvage import SalvageReport, salvage_store
from gantrymq.tools.verify import verify_store
from golden_stores import NAMES, unpack
from store_cases import (
    GEOMETRY_KEYS,
    NOON_MS,
    SMALL,
    StoreReader,
    await_dispatch,
    content,
    dump,
    numbered,
    odd_message,
    open_reader,
    open_store,
    tree,
)

LOG_FILE = SMALL.mapped_file_size_commit_log
Content = dict[tuple[str, int], dict[int, StoredMessage]]


class Damaged:
    """A closed store of real files, what was put into it, and the means to damage its log."""

    def __init__(self, path: Path, rng: random.Random, messages: int | list[Message] = 300, **config: Any) -> None:
        self.path = path
        drawn = [odd_message(rng) for _ in range(messages)] if isinstance(messages, int) else messages
        with open_store(RealFileSystem(), path, clock=ManualClock(NOON_MS), **config) as store:
            self.results = [store.put(message) for message in drawn]
            assert {result.status for result in self.results} == {PutMessageStatus.PUT_OK}
            await_dispatch(store)
            self.content = content(store)

    def write(self, offset: int, data: bytes) -> None:
        with (self.path / "commitlog" / f"{offset - offset % LOG_FILE:020d}").open("r+b") as file:
            file.seek(offset % LOG_FILE)
            file.write(data)

    def place_of(self, record: PutMessageResult, part: bytes) -> int:
        """Where ``part`` of a record lies in the log."""
        raw = (self.path / "commitlog" / f"{record.phy_offset - record.phy_offset % LOG_FILE:020d}").read_bytes()
        start = record.phy_offset % LOG_FILE
        return record.phy_offset + raw[start : start + record.size_bytes].index(part)

    def bytes_of(self, *records: PutMessageResult) -> int:
        """How many bytes these have, none of them the last one, with the blank behind the last record of a file."""
        behind = {one.phy_offset: other.phy_offset for one, other in pairwise(self.results)}
        return sum(behind[one.phy_offset] - one.phy_offset for one in records)

    def without(self, *lost: PutMessageResult) -> Content:
        """What is left when these messages are lost."""
        gone = {result.phy_offset for result in lost}
        return {
            key: {offset: message for offset, message in queue.items() if message.phy_offset not in gone}
            for key, queue in self.content.items()
        }

    def in_range(self, start: int, end: int) -> list[PutMessageResult]:
        return [result for result in self.results if start <= result.phy_offset < end]


@pytest.fixture
def store(tmp_path: Path, rng: random.Random) -> Damaged:
    return Damaged(tmp_path / "store", rng)


def salvaged(
    store: Path, *, notes: tuple[FindingKind, ...] = (FindingKind.QUEUE_FILLED,), **options: Any
) -> tuple[Path, SalvageReport]:
    """The new store, in which nothing is wrong but for ``notes``, made without a change to the old one."""
    out = store.with_name("salvaged")
    before = tree(store)
    report = salvage_store(store, out, SMALL, given=options.pop("given", GEOMETRY_KEYS))
    assert tree(store) == before
    findings = [one for one in verify_store(out, SMALL, given=GEOMETRY_KEYS) if one.kind not in notes]
    assert findings == []
    return out, report


def read(path: Path) -> Content:
    with open_reader(path) as reader:
        return {key: queue for key, queue in content(reader).items() if queue}


def assert_holds(path: Path, expected: Content) -> None:
    assert read(path) == {key: queue for key, queue in expected.items() if queue}


@pytest.mark.parametrize("name", NAMES)
def test_salvage_of_golden_store_has_every_intact_message(name: str, tmp_path: Path) -> None:
    store, out = unpack(name, tmp_path) / "store", tmp_path / "out"
    report = salvage_store(store, out)
    assert [one for one in verify_store(out) if one.level is Severity.DAMAGE] == []
    with StoreReader.open(store) as before, StoreReader.open(out) as after:
        old = {line["phyOffset"]: line for line in dump(before) if line["kind"] == "message"}
        new = {line["phyOffset"]: line for line in dump(after) if line["kind"] == "message"}
    assert {offset: new.get(offset) for offset in old} == old
    assert (len(new) > len(old)) == (name == "bad-crc")  # what a recovery cuts behind damage is there
    assert (report.lost != []) == (name in ("bad-crc", "torn-tail"))  # of torn-tail a queue leads to the torn record
    assert report.account.message_count == {"bad-crc": 1, "torn-tail": 1}.get(name, 0)


def test_a_whole_store_is_copied_byte_by_byte(store: Damaged) -> None:
    out, report = salvaged(store.path)
    assert (report.records, report.lost, report.corrected) == (300, [], 0)
    for part in ("commitlog", "consumequeue"):
        assert tree(out / part) == tree(store.path / part)


def test_lost_records_leave_their_slots_filled(store: Damaged, rng: random.Random) -> None:
    lost = [store.results[20], *store.results[50:53], store.results[200]]
    for result in lost:
        store.write(result.phy_offset + rng.randrange(8), b"\xfe\xed")
    out, report = salvaged(store.path)
    assert report.lost_bytes == store.bytes_of(*lost)
    assert report.records == 300 - len(lost)
    assert_holds(out, store.without(*lost))


def test_salvage_without_second_record_of_queue_keeps_other_records(tmp_path: Path, rng: random.Random) -> None:
    store = Damaged(tmp_path / "store", rng, numbered(5))
    store.write(store.results[1].phy_offset, b"\xff")
    out, _ = salvaged(store.path)
    assert_holds(out, store.without(store.results[1]))


@pytest.mark.parametrize("topic", ["o", "of-21-characters-only", "of-22-characters-alone"])
@pytest.mark.parametrize("has_crc", [False, True])
def test_lost_records_shorter_than_filler_topic_are_bridged(
    topic: str, has_crc: bool, tmp_path: Path, rng: random.Random
) -> None:
    config = replace(SMALL, enabled_append_prop_crc=has_crc, force_verify_prop_crc=has_crc)
    store = Damaged(tmp_path / "store", rng, [Message(topic, b"") for _ in range(9)], config=config)
    lost = [store.results[0], *store.results[3:5], store.results[7]]
    for result in lost:
        store.write(result.phy_offset, b"\xff")
    out, report = salvaged(store.path)
    assert report.lost_bytes == store.bytes_of(*lost)
    (out / "abort").touch()
    with open_store(RealFileSystem(), out, config=config) as opened:
        assert opened.recovery.cut_bytes == 0
    assert_holds(out, store.without(*lost))


def test_record_with_wrong_crc_is_lost(store: Damaged) -> None:
    with open_reader(store.path) as reader:
        messages = [(result, reader.message_at(result.phy_offset)) for result in store.results[30:]]
    lost, body = next((result, one.body) for result, one in messages if one is not None and len(one.body) > 100)
    # The CRC covers nothing but the body.
    store.write(store.place_of(lost, body) + 50, b"\x5a" * 40)
    out, report = salvaged(store.path)
    assert [(one.start, one.end) for one in report.lost] == [(lost.phy_offset, lost.end_offset)]
    assert_holds(out, store.without(lost))


def test_salvage_with_zeroed_and_missing_files_has_other_messages(store: Damaged) -> None:
    store.write(2 * LOG_FILE, bytes(LOG_FILE))
    (store.path / "commitlog" / f"{4 * LOG_FILE:020d}").unlink()
    lost = store.in_range(2 * LOG_FILE, 3 * LOG_FILE) + store.in_range(4 * LOG_FILE, 5 * LOG_FILE)
    out, report = salvaged(store.path)
    assert report.lost_bytes >= sum(result.size_bytes for result in lost)
    assert_holds(out, store.without(*lost))


def test_salvage_of_log_files_of_wrong_sizes_has_intact_messages(store: Damaged) -> None:
    path = store.path / "commitlog" / f"{LOG_FILE:020d}"
    inside = store.in_range(LOG_FILE, 2 * LOG_FILE)
    cut = inside[-3]
    raw = path.read_bytes()
    path.write_bytes(raw[: cut.phy_offset - LOG_FILE + 50])
    longer = store.path / "commitlog" / f"{2 * LOG_FILE:020d}"
    longer.write_bytes(longer.read_bytes() + raw)
    out, _ = salvaged(store.path)
    assert_holds(out, store.without(*inside[-3:]))


@pytest.mark.parametrize("place", [0, 1000])
def test_copied_log_file_under_other_name_is_omitted(place: int, store: Damaged) -> None:
    log = store.path / "commitlog"
    lost = store.in_range(0, 3 * LOG_FILE) if place == 0 else []
    for number in range(3) if place == 0 else ():
        (log / f"{number * LOG_FILE:020d}").unlink()
    stray = shutil.copy(log / f"{3 * LOG_FILE:020d}", log / f"{place * LOG_FILE:020d}")
    out, report = salvaged(store.path)
    assert report.skipped_files == [stray]
    assert_holds(out, store.without(*lost))


@pytest.mark.parametrize("records", [1, 2])
def test_file_with_one_record_of_wrong_phy_offset_is_kept(records: int, tmp_path: Path, rng: random.Random) -> None:
    size = LOG_FILE * 3 // 4 // records
    store = Damaged(tmp_path / "store", rng, [Message("orders", rng.randbytes(size)) for _ in range(5 * records)])
    lost, [first, *others] = store.in_range(LOG_FILE, 2 * LOG_FILE), store.in_range(2 * LOG_FILE, 3 * LOG_FILE)
    (store.path / "commitlog" / f"{LOG_FILE:020d}").unlink()
    store.write(first.phy_offset + PHY_OFFSET_AT + 7, bytes([first.phy_offset & 0xFF ^ 1]))
    for other in others:  # nothing that would tell how far it is from the first
        store.write(other.phy_offset + PHY_OFFSET_AT + 7, bytes([other.phy_offset & 0xFF ^ 2]))
    out, report = salvaged(store.path)
    assert (len(lost), len(others), report.corrected, report.skipped_files) == (records, records - 1, records, [])
    assert_holds(out, store.without(*lost))


def test_queues_index_and_checkpoint_are_not_needed(store: Damaged) -> None:
    shutil.rmtree(store.path / "consumequeue")
    shutil.rmtree(store.path / "index")
    (store.path / "checkpoint").write_bytes(b"\xff" * 100)
    out, _ = salvaged(store.path)
    assert_holds(out, store.content)


def test_record_with_wrong_phy_offset_is_repaired(store: Damaged) -> None:
    result = store.results[100]
    store.write(result.phy_offset + 35, b"\x00" if result.phy_offset & 0xFF else b"\x01")
    out, report = salvaged(store.path)
    assert (report.corrected, report.lost) == (1, [])
    assert_holds(out, store.content)


@pytest.mark.parametrize("claimed", [1 << 62, 6, -1])
def test_record_with_wrong_queue_offset_is_repaired(tmp_path: Path, rng: random.Random, claimed: int) -> None:
    store = Damaged(tmp_path / "store", rng, numbered(40))
    store.write(store.results[20].phy_offset + QUEUE_OFFSET_AT, claimed.to_bytes(8, "big", signed=True))
    out, report = salvaged(store.path)
    assert (report.corrected, report.lost) == (1, [])
    assert_holds(out, store.content)


def test_record_with_crc_property_is_repaired(tmp_path: Path, rng: random.Random) -> None:
    config = replace(SMALL, enabled_append_prop_crc=True, force_verify_prop_crc=True)
    store = Damaged(tmp_path / "store", rng, 100, config=config)
    store.write(store.results[50].phy_offset + 35, bytes([(store.results[50].phy_offset & 0xFF) ^ 1]))
    store.write(store.results[60].phy_offset, b"\xff")
    out, report = salvaged(store.path)
    assert (report.corrected, len(report.lost)) == (1, 1)
    (out / "abort").touch()
    with open_store(RealFileSystem(), out, config=config) as opened:  # which verifies every record's own CRC
        assert opened.recovery.cut_bytes == 0
    assert_holds(out, store.without(store.results[60]))


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("force", [False, True])
def test_message_with_wrong_property_crc_is_lost(force: bool, moved: bool, tmp_path: Path, rng: random.Random) -> None:
    config = replace(SMALL, enabled_append_prop_crc=True, force_verify_prop_crc=force)
    messages = [Message("orders", b"%d" % number, properties={"amount": "1000"}) for number in range(20)]
    store = Damaged(tmp_path / "store", rng, messages, config=config)
    lost = store.results[5]
    store.write(store.place_of(lost, b"1000"), b"9")
    if moved:
        store.write(lost.phy_offset + 30, b"\x01")
    (finding,) = verify_store(store.path, SMALL, given=GEOMETRY_KEYS)
    assert (finding.kind, finding.queue_offset) == (FindingKind.RECORD_CRC, 5)
    out, report = salvaged(store.path)
    assert ([(one.start, one.end) for one in report.lost], report.corrected) == (
        [(lost.phy_offset, lost.end_offset)],
        0,
    )
    assert_holds(out, store.without(lost))


def test_record_moved_to_new_phy_offset_gets_new_crc(tmp_path: Path, rng: random.Random) -> None:
    config = replace(SMALL, enabled_append_prop_crc=True, force_verify_prop_crc=True)
    store = Damaged(tmp_path / "store", rng, [Message("orders", b"x" * 50) for _ in range(20)], config=config)
    one, other = store.results[5:7]
    raw = (store.path / "commitlog" / f"{0:020d}").read_bytes()
    store.write(other.phy_offset, raw[one.phy_offset : one.end_offset])
    store.write(one.phy_offset + 90, b"?")  # of its body
    out = tmp_path / "out"
    report = salvage_store(store.path, out, config, given=GEOMETRY_KEYS)
    assert report.corrected == 1  # of its place in the log
    assert [place.start for place in report.lost] == [one.phy_offset]
    assert [(lost.begin, lost.end) for lost in report.account.messages] == [(6, 7)]
    (out / "abort").touch()
    with open_store(RealFileSystem(), out, config=config) as opened:
        assert opened.recovery.cut_bytes == 0


def test_torn_tail_is_not_salvaged(store: Damaged) -> None:
    last = store.results[-1]
    store.write(last.phy_offset + 60, bytes(last.size_bytes))
    out, report = salvaged(store.path)
    assert report.max_phy_offset == store.results[-2].end_offset
    assert_holds(out, store.without(last))


def test_put_after_salvage_continues_queue_offsets(store: Damaged) -> None:
    store.write(store.results[20].phy_offset, b"\xff" * 8)
    out, _ = salvaged(store.path)
    with open_store(RealFileSystem(), out) as opened:
        for (topic, queue_id), queue in store.content.items():
            (message,) = numbered(1, topic=topic, queue_id=queue_id)
            if queue and topic != "SCHEDULE_TOPIC_XXXX":
                assert opened.put(message).queue_offset == max(queue) + 1


def test_queue_without_messages_keeps_its_next_offset(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(RealFileSystem(), path) as opened:
        for message in [*numbered(5, topic="old"), *numbered(300)]:
            opened.put(message)
        await_dispatch(opened)
    (path / "commitlog" / f"{0:020d}").unlink()
    for file in path.glob("consumequeue/orders/0/*"):
        file.write_bytes(bytes(400))
    out, report = salvaged(path, notes=(FindingKind.LOG_MISSING,))  # the kept queue has had messages in the lost file
    assert (report.kept_queues, report.lost_queues) == (1, [])
    with open_store(RealFileSystem(), out) as opened:
        assert opened.put(numbered(1, topic="old")[0]).queue_offset == 5


def test_salvage_copies_configuration(store: Damaged) -> None:
    (store.path / "config").mkdir(exist_ok=True)
    (store.path / "config/topics.json").write_text('{"topicConfigTable":{}}')
    (store.path / "config/consumerOffset.json").write_text('{"offsetTable":')
    out, report = salvaged(store.path)
    assert (out / "config/topics.json").read_text() == '{"topicConfigTable":{}}'
    assert report.broken_config_files == ["consumerOffset.json"]


def test_configuration_of_other_shape_is_not_copied(store: Damaged) -> None:
    """A start would not take it either, so verify would find fault with the new store."""
    (store.path / "config").mkdir(exist_ok=True)
    (store.path / "config/delayOffset.json").write_text('{"dataVersion":0,"offsetTable":{"3":1}}')
    (store.path / "config/delayOffset.json.bak").write_text('{"offsetTable":{"3":1}}')
    out, report = salvaged(store.path)
    assert report.broken_config_files == ["delayOffset.json"]
    assert (out / "config/delayOffset.json.bak").exists()


def test_pipe_in_place_of_file_does_not_block_salvage(store: Damaged) -> None:
    (store.path / "config").mkdir(exist_ok=True)
    os.mkfifo(store.path / "config/topics.json")
    (finding,) = verify_store(store.path, SMALL, given=GEOMETRY_KEYS)
    assert (finding.kind, finding.path) == (FindingKind.CONFIG_JSON, Path("config/topics.json"))
    report = salvage_store(store.path, store.path.with_name("out"), SMALL, given=GEOMETRY_KEYS)
    assert report.broken_config_files == ["topics.json"]


def test_salvage_refuses_unusable_target(store: Damaged, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(StoreError, match="not empty"):
        salvage_store(store.path, tmp_path / "full")
    with pytest.raises(StoreError, match="only read"):
        salvage_store(store.path, tmp_path / ".." / store.path.parent.name / store.path.name / "out")
    with pytest.raises(StoreError, match="does not exist"):
        salvage_store(tmp_path / "nowhere", tmp_path / "out")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(StoreError, match="no commit log"):
        salvage_store(tmp_path / "nothing", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("round_", range(3))
def test_salvage_of_random_damage_has_every_intact_message(round_: int, store: Damaged, rng: random.Random) -> None:
    lost = set()
    for _ in range(rng.randrange(1, 12)):
        at = rng.randrange(store.results[-1].end_offset)
        damage = rng.choice((bytes(rng.randrange(1, 3000)), rng.randbytes(rng.randrange(1, 300))))
        damage = damage[: LOG_FILE - at % LOG_FILE]
        store.write(at, damage)
        hit = [one for one in store.results if one.phy_offset < at + len(damage) and one.end_offset > at]
        lost |= {one.phy_offset for one in hit}
    out = store.path.with_name("salvaged")
    salvage_store(store.path, out, SMALL, given=GEOMETRY_KEYS)
    there = {message.phy_offset: message for queue in read(out).values() for message in queue.values()}
    whole = {message.phy_offset: message for queue in store.content.values() for message in queue.values()}
    for offset, message in whole.items():
        if offset not in lost:
            assert there.get(offset) == message, round_


# Interrupted


@pytest.mark.parametrize("share", [0.1, 0.4, 0.8, 0.99])
def test_interrupted_salvage_leaves_no_store_and_can_be_retried(
    share: float, store: Damaged, capfd: pytest.CaptureFixture[str]
) -> None:
    counted = FaultyFileSystem(RealFileSystem())
    salvage_store(store.path, store.path.with_name("counted"), SMALL, given=GEOMETRY_KEYS, fs=counted)
    out, moment = store.path.with_name("salvaged"), int(share * len(counted.operations))
    killed = FaultyFileSystem(RealFileSystem(), moment, broken_disk, keeps_failing=True)
    with pytest.raises(Exception, match="Input/output error"):
        salvage_store(store.path, out, SMALL, given=GEOMETRY_KEYS, fs=killed)
    for command in (["verify", out], ["info", out], ["recover", out], ["rebuild", out], ["dump", out], ["log", out]):
        assert exit_code(["store", *map(str, command)]) == 3
        assert "gantrymq store salvage into it again" in capfd.readouterr().err
    with pytest.raises(NotAStoreError, match="interrupted salvage"):
        open_store(RealFileSystem(), out)
    assert not (out / "commitlog").exists()  # RocketMQ, which does not know the mark, finds no store
    salvaged(store.path)
    assert tree(out / "commitlog") == tree(store.path / "commitlog")
    assert not (out / "salvage.tmp").exists()


def test_retry_of_salvage_clears_only_own_files(store: Damaged) -> None:
    out = store.path.with_name("salvaged")
    for operation in range(40, 200):
        disk = FaultyFileSystem(RealFileSystem(), operation, broken_disk, keeps_failing=True)
        with suppress(GantrymqError, OSError):
            salvage_store(store.path, out, SMALL, given=GEOMETRY_KEYS, fs=disk)
        if (out / SALVAGE_MARK).exists():
            break
        shutil.rmtree(out, ignore_errors=True)
    (out / "notes.txt").write_text("mine")
    before = tree(out)
    with pytest.raises(StoreError, match="was not made by the salvage"):
        salvage_store(store.path, out, SMALL, given=GEOMETRY_KEYS)
    assert tree(out) == before


def test_failed_salvage_leaves_its_directory_empty(store: Damaged) -> None:
    out = store.path.with_name("salvaged")
    with pytest.raises(KeyboardInterrupt):
        salvage_store(store.path, out, SMALL, given=GEOMETRY_KEYS, progress=interrupted)
    assert list(out.iterdir()) == []


def interrupted(step: str, done: int, total: int) -> None:
    if done > total // 2:
        raise KeyboardInterrupt
