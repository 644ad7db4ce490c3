"""Damage, a finding, the command that its text names: then nothing is left to find."""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from damage_cases import PATHS, SmallStore, small_store
from layout_cases import findings, make_store, parts

from bad_disk import break_reads
from gantrymq.format.checkpoint import CHECKPOINT_SIZE, Checkpoint, encode_checkpoint
from gantrymq.format.index import HEADER_SIZE, SLOT_SIZE
from gantrymq.format.names import offset_name
from gantrymq.format.queue_entry import PRE_BLANK, QueueEntry, encode_entry
from gantrymq.format.record import PHY_OFFSET_AT, QUEUE_OFFSET_AT, encode_blank
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.tools.findings import Finding, FindingKind, Severity
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.salvage import salvage_store
from gantrymq.tools.verify import verify_store
from store_cases import GEOMETRY_KEYS, SMALL, await_dispatch, open_store

MESSAGES = 600
_NOW_ISH_MS = 1_795_000_000_000
_FUTURE_MS = 4_000_000_000_000
_COMMAND = re.compile(r"`gantrymq store (\w+)( --index)?`|(move it away)")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("remedies") / "store", MESSAGES)


@pytest.fixture
def store(healthy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(healthy, tmp_path / "store"))


def first(store: Path, part: str, number: int = 0) -> Path:
    return parts(store, part)[number]


def page(**fields: int) -> Callable[[Path], None]:
    return lambda store: _write_page(store, encode_checkpoint(replace(Checkpoint(_NOW_ISH_MS, _NOW_ISH_MS), **fields)))


def _write_page(store: Path, raw: bytes) -> None:
    (store / "checkpoint").write_bytes(raw)


def write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def killed_behind(store: Path) -> None:
    """As a kill leaves it: the last queue file is older than the log."""
    (store / "abort").touch()
    queue = first(store, "consumequeue/orders/0", -1)
    queue.write_bytes(bytes(SMALL.mapped_file_size_consume_queue))


def torn(store: Path) -> None:
    """Half a record stands behind the last one."""
    (store / "abort").touch()
    with open_store(RealFileSystem(), store) as opened:
        end = opened.max_phy_offset
    (store / "abort").touch()
    log = first(store, "commitlog", -1)
    write(log, end % SMALL.mapped_file_size_commit_log, (200).to_bytes(4, "big") + bytes.fromhex("daa320a7") + b"torn")


def stray_log_file(store: Path) -> None:
    (store / "commitlog" / offset_name(SMALL.mapped_file_size_commit_log * 90 + 1)).write_bytes(
        bytes(SMALL.mapped_file_size_commit_log)
    )


def bad_config(text: str, name: str = "topics.json") -> Callable[[Path], None]:
    def damage(store: Path) -> None:
        (store / "config").mkdir()
        (store / "config" / name).write_text(text)

    return damage


def groups_ahead(store: Path) -> None:
    (store / "config").mkdir()
    (store / "config/consumerOffset.json").write_text(f'{{"offsetTable":{{"orders@G":{{0:{MESSAGES},1:5}}}}}}')


def ahead_of_log(store: Path) -> None:
    """As a power cut leaves it: the queue reached the disk, the end of the log did not."""
    (store / "abort").touch()
    queue = first(store, "consumequeue/orders/0", -1)
    queue.write_bytes(
        b"".join(encode_entry(QueueEntry((1 << 30) + number * 100, 100, 0)) for number in range(2)).ljust(
            SMALL.mapped_file_size_consume_queue, b"\0"
        )
    )


DAMAGE: dict[str, tuple[Callable[[Path], None], FindingKind]] = {
    "checkpoint missing": (lambda store: (store / "checkpoint").unlink(), FindingKind.CHECKPOINT_MISSING),
    "checkpoint short": (lambda store: os.truncate(store / "checkpoint", 100), FindingKind.FILE_SIZE),
    "checkpoint empty": (lambda store: os.truncate(store / "checkpoint", 0), FindingKind.FILE_SIZE),
    "checkpoint long": (lambda store: os.truncate(store / "checkpoint", 5_000), FindingKind.FILE_SIZE),
    "checkpoint garbage": (lambda store: _write_page(store, b"\xa5" * CHECKPOINT_SIZE), FindingKind.CHECKPOINT_CORRUPT),
    "checkpoint text": (lambda store: _write_page(store, b"G" * CHECKPOINT_SIZE), FindingKind.CHECKPOINT_FUTURE),
    "checkpoint noise": (lambda store: write(store / "checkpoint", 2_000, b"noise"), FindingKind.CHECKPOINT_CORRUPT),
    "physicMsgTimestamp": (page(physic_msg_timestamp_ms=_FUTURE_MS), FindingKind.CHECKPOINT_FUTURE),
    "logicsMsgTimestamp": (page(logics_msg_timestamp_ms=_FUTURE_MS), FindingKind.CHECKPOINT_FUTURE),
    "indexMsgTimestamp": (page(index_msg_timestamp_ms=_FUTURE_MS), FindingKind.CHECKPOINT_FUTURE),
    "logicsPhysicalOffset": (page(logics_physical_offset=1 << 40), FindingKind.CHECKPOINT_FUTURE),
    "confirmPhyOffset": (page(confirm_phy_offset=1 << 40), FindingKind.CHECKPOINT_FUTURE),
    "negative": (page(confirm_phy_offset=-5), FindingKind.CHECKPOINT_CORRUPT),
    "queue behind": (killed_behind, FindingKind.QUEUE_BEHIND),
    "log torn": (torn, FindingKind.LOG_TAIL),
    "log file under a wrong offset": (stray_log_file, FindingKind.FOREIGN_FILE),
    "log file missing": (lambda store: first(store, "commitlog", 1).unlink(), FindingKind.LOG_FILE_MISSING),
    "log file short": (lambda store: os.truncate(first(store, "commitlog", 1), 4_000), FindingKind.FILE_SIZE),
    "queue ahead": (ahead_of_log, FindingKind.QUEUE_AHEAD),
    "queue file missing": (
        lambda store: first(store, "consumequeue/orders/0", 1).unlink(),
        FindingKind.QUEUE_FILE_MISSING,
    ),
    "queue file short": (
        lambda store: os.truncate(first(store, "consumequeue/orders/0", 1), 99),
        FindingKind.FILE_SIZE,
    ),
    "queue file empty": (
        lambda store: os.truncate(first(store, "consumequeue/orders/0", -1), 0),
        FindingKind.FILE_SIZE,
    ),
    "index removed": (lambda store: shutil.rmtree(store / "index"), FindingKind.INDEX_INCOMPLETE),
    "index file short": (lambda store: os.truncate(first(store, "index", -1), 1_000), FindingKind.FILE_SIZE),
    "index after a kill": (lambda store: (store / "abort").touch(), FindingKind.INDEX_WILL_BE_REBUILT),
    "group ahead": (groups_ahead, FindingKind.CONSUMER_AHEAD),
    "config": (bad_config("{"), FindingKind.CONFIG_JSON),
    "config list": (bad_config("[]", "consumerFilter.json.bak"), FindingKind.CONFIG_JSON),
}


def carry_out(found: Finding, store: Path) -> Path:
    """Do what the text of a finding says; returns the store that is to be clean then."""
    remedy = _COMMAND.search(found.text)
    assert remedy, f"the finding says nothing that helps: {found.text}"
    if remedy[3]:
        (store / found.path).rename(store.with_name("moved"))
    command = remedy[1] or ("recover" if "`gantrymq store recover`" in found.text else None)
    if command == "recover":
        open_store(RealFileSystem(), store).close()
    elif command == "rebuild":
        rebuild_store(store, SMALL, given=GEOMETRY_KEYS, queues=not remedy[2])
    elif command == "salvage":
        salvage_store(store, store.with_name("out"), SMALL, given=GEOMETRY_KEYS)
        return store.with_name("out")
    return store


def assert_clean(store: Path, kind: FindingKind) -> None:
    assert [one for one in findings(store) if one.level is Severity.DAMAGE or one.kind is kind] == []


@pytest.mark.parametrize("damage", DAMAGE)
def test_remedy_of_finding_clears_it(store: Path, damage: str) -> None:
    harm, kind = DAMAGE[damage]
    harm(store)
    found = [finding for finding in findings(store) if finding.kind is kind]
    assert found
    assert_clean(carry_out(found[0], store), kind)


@pytest.mark.parametrize("part", ["checkpoint", "commitlog", "consumequeue/orders/0", "index"])
def test_remedy_of_unreadable_file_clears_finding(store: Path, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store / part if part == "checkpoint" else first(store, part)
    break_reads(monkeypatch)(path, 0, 64)
    found = [finding for finding in findings(store) if finding.kind is FindingKind.FILE_UNREADABLE]
    assert found
    assert_clean(carry_out(found[0], store), FindingKind.FILE_UNREADABLE)


def log_of_zeros(store: Path) -> None:
    for path in (store / "commitlog").iterdir():
        path.write_bytes(bytes(SMALL.mapped_file_size_commit_log))


LOG_MISSING: dict[str, Callable[[Path], None]] = {
    "removed": lambda store: shutil.rmtree(store / "commitlog"),
    "without files": lambda store: [path.unlink() for path in (store / "commitlog").iterdir()] and None,
    "zeros": log_of_zeros,
}


@pytest.mark.parametrize("damage", LOG_MISSING)
def test_setting_named_by_finding_accepts_lost_log(store: Path, damage: str) -> None:
    LOG_MISSING[damage](store)
    told = findings(store)
    [found] = [finding for finding in told if finding.kind is FindingKind.LOG_MISSING]
    assert "--set acceptMissingCommitLog=true" in found.text
    assert damage == "zeros" or not any("store rebuild" in finding.text for finding in told)  # it would refuse
    accepting = replace(SMALL, accept_missing_commit_log=True)
    open_store(RealFileSystem(), store, accepting).close()
    assert_clean(store, FindingKind.LOG_MISSING)


def test_remedy_of_renamed_log_file_renames_it_back(store: Path) -> None:
    last = max(path for path in (store / "commitlog").iterdir() if any(path.read_bytes()))
    for later in (path for path in (store / "commitlog").iterdir() if path.name > last.name):
        later.unlink()
    last.rename(last.with_name("moved-by-hand"))
    [found] = [finding for finding in findings(store) if finding.kind is FindingKind.LOG_MISSING]
    name = re.search(r"rename it to (\d+)", found.text)
    assert name
    (store / found.path).rename(store / "commitlog" / name[1])
    assert_clean(store, FindingKind.LOG_MISSING)


def test_remedy_of_lost_topic_table_copies_backup(store: Path) -> None:
    (store / "config").mkdir()
    [found] = [finding for finding in findings(store) if finding.kind is FindingKind.TOPICS_WITHOUT_ROUTE]
    assert "copy the file back" in found.text
    (store / "config" / "topics.json").write_text('{"topicConfigTable":{"orders":{"topicName":"orders"}}}')
    assert_clean(store, FindingKind.TOPICS_WITHOUT_ROUTE)


def log_record(change: Callable[[SmallStore, QueueEntry], None]) -> Callable[[SmallStore], None]:
    """Damage to the record of queue offset 30."""
    return lambda store: change(store, store.unit(30))


def unit(change: Callable[[SmallStore, QueueEntry], QueueEntry]) -> Callable[[SmallStore], None]:
    """Damage to the entry of queue offset 30."""
    return lambda store: store.write_unit(change(store, store.unit(30)), 30)


def index_entry(at: int, data: bytes) -> Callable[[SmallStore], None]:
    """Damage to entry 100 of the first index file."""
    return lambda store: store.write(store.index_path(), store.entry_at(100) + at, data)


def remove_last_units(store: SmallStore) -> None:
    for slot in (78, 79):
        store.write_unit(QueueEntry(0, 0, 0), slot)


def remove_queue(store: SmallStore) -> None:
    for entry in store.fs.scan(PATHS.consume_queue / "bills/0"):
        store.fs.remove(PATHS.consume_queue / "bills/0" / entry.name)


def remove_first_log_files(store: SmallStore) -> None:
    for entry in store.fs.scan(PATHS.commit_log)[:3]:
        store.fs.remove(PATHS.commit_log / entry.name)


def cut_index_chain(store: SmallStore) -> None:
    number = next(number for number in range(199, 0, -1) if store.index_entry(number).previous)
    store.write(store.index_path(), store.entry_at(number) + 16, bytes(4))


def change_index_hash(store: SmallStore) -> None:
    code = store.index_entry(100).key_hash
    code += SMALL.max_hash_slot_num * (1 if code < 1 << 30 else -1)  # of the same slot, so that the chain stays whole
    store.write(store.index_path(), store.entry_at(100), code.to_bytes(4, "big"))


def change_index_slot(store: SmallStore) -> None:
    slot = store.index_entry(199).key_hash % SMALL.max_hash_slot_num
    store.write(store.index_path(), HEADER_SIZE + slot * SLOT_SIZE, (1).to_bytes(4, "big"))


def tear(store: SmallStore) -> None:
    """A sector of zeros within the properties of a record, and a whole record behind it."""
    with open_store(store.fs) as opened:
        for number in range(3):
            opened.put(Message("torn", b"", properties={"name": "v" * 3000, "n": str(number)}))
        await_dispatch(opened)
    place = store.unit(1, 0, "torn").phy_offset
    store.write_log(-(-(place + 1000) // 512) * 512, bytes(512))


def shorten_blank(store: SmallStore) -> None:
    blank = store.blanks()[0]
    store.write_log(blank, (SMALL.mapped_file_size_commit_log - blank - 1).to_bytes(4, "big"))


def drop_queue_file(number: int) -> Callable[[SmallStore], None]:
    return lambda store: store.fs.remove(store.unit_place(number * 20)[0])


SMALL_DAMAGE: dict[str, tuple[Callable[[SmallStore], None], FindingKind]] = {
    "body": (
        log_record(lambda store, one: store.flip_log(one.phy_offset + store.layout(one.phy_offset).body_at)),
        FindingKind.RECORD_CRC,
    ),
    "torn record": (tear, FindingKind.RECORD_TORN),
    "record of another place": (
        log_record(lambda store, one: store.flip_log(one.phy_offset + PHY_OFFSET_AT + 7)),
        FindingKind.RECORD_PHY_OFFSET,
    ),
    "record of another queue": (
        log_record(lambda store, one: store.flip_log(one.phy_offset + 15, 4)),
        FindingKind.RECORD_QUEUE,
    ),
    "record of another topic": (
        log_record(lambda store, one: store.flip_log(one.phy_offset + store.layout(one.phy_offset).topic_at, 1)),
        FindingKind.RECORD_QUEUE,
    ),
    "record of another queue offset": (
        log_record(lambda store, one: store.flip_log(one.phy_offset + QUEUE_OFFSET_AT + 7, 4)),
        FindingKind.RECORD_QUEUE,
    ),
    "first record of a queue": (
        lambda store: store.flip_log(store.unit(0).phy_offset + QUEUE_OFFSET_AT + 6, 1),
        FindingKind.RECORD_QUEUE,
    ),
    "last record of a queue": (
        lambda store: store.flip_log(store.unit(79).phy_offset + QUEUE_OFFSET_AT + 6, 1),
        FindingKind.RECORD_QUEUE,
    ),
    "two records of a queue": (
        lambda store: [store.flip_log(store.unit(at).phy_offset + 15, 4) for at in (30, 31)] and None,
        FindingKind.RECORD_QUEUE,
    ),
    "length": (log_record(lambda store, one: store.flip_log(one.phy_offset + 2, 0x10)), FindingKind.LENGTH_CHAIN),
    "magic code": (log_record(lambda store, one: store.flip_log(one.phy_offset + 5)), FindingKind.LENGTH_CHAIN),
    "zeros in the log": (
        log_record(lambda store, one: store.write_log(one.phy_offset, bytes(one.size_bytes))),
        FindingKind.LOG_HOLE,
    ),
    "no blank": (lambda store: store.write_log(store.blanks()[1], bytes(8)), FindingKind.BLANK_MISSING),
    "blank of a wrong size": (shorten_blank, FindingKind.BLANK_SIZE),
    "empty slot": (unit(lambda store, one: QueueEntry(0, 0, 0)), FindingKind.QUEUE_HOLE),
    "entry of no record": (
        unit(lambda store, one: one._replace(phy_offset=one.phy_offset + 1)),
        FindingKind.QUEUE_ENTRY_NOWHERE,
    ),
    "entry behind the log": (
        unit(lambda store, one: one._replace(phy_offset=1 << 40)),
        FindingKind.QUEUE_ENTRY_NOWHERE,
    ),
    "entry of another queue": (unit(lambda store, one: store.unit(30, 1)), FindingKind.QUEUE_ENTRY_OTHER_QUEUE),
    "entry of another offset": (unit(lambda store, one: store.unit(12)), FindingKind.QUEUE_ENTRY_ORDER),
    "entry of another size": (
        unit(lambda store, one: one._replace(size_bytes=one.size_bytes + 1)),
        FindingKind.QUEUE_ENTRY_SIZE,
    ),
    "entry of other tags": (
        unit(lambda store, one: one._replace(tags_code=one.tags_code ^ 1)),
        FindingKind.QUEUE_ENTRY_TAGS_CODE,
    ),
    "entry of no extended unit": (
        unit(lambda store, one: one._replace(tags_code=-(1 << 63) + 40)),
        FindingKind.QUEUE_EXT_ENTRY,
    ),
    "first queue file": (drop_queue_file(0), FindingKind.MESSAGE_WITHOUT_ENTRY),
    "middle queue file": (drop_queue_file(1), FindingKind.QUEUE_FILE_MISSING),
    "last units": (remove_last_units, FindingKind.MESSAGE_WITHOUT_ENTRY),
    "queue removed": (remove_queue, FindingKind.MESSAGE_WITHOUT_ENTRY),
    "queue files that retention forgot": (remove_first_log_files, FindingKind.QUEUE_MIN_OFFSET_STALE),
    "index chain loop": (index_entry(16, (100).to_bytes(4, "big")), FindingKind.INDEX_CHAIN_LOOP),
    "index chain": (cut_index_chain, FindingKind.INDEX_CHAIN_BROKEN),
    "index slot": (change_index_slot, FindingKind.INDEX_SLOT),
    "index entry of no record": (index_entry(4, (17).to_bytes(8, "big")), FindingKind.INDEX_ENTRY_NOWHERE),
    "index entry of another key": (change_index_hash, FindingKind.INDEX_ENTRY_HASH),
    "index entry of another time": (
        lambda store: store.flip(store.index_path(), store.entry_at(100) + 15, 0x40),
        FindingKind.INDEX_ENTRY_TIME,
    ),
    "index header": (lambda store: store.flip(store.index_path(), 7), FindingKind.INDEX_HEADER),
}


@pytest.fixture(scope="module")
def whole() -> SmallStore:
    return small_store()


@pytest.mark.parametrize("damage", SMALL_DAMAGE)
def test_command_named_by_finding_repairs_store(whole: SmallStore, damage: str) -> None:
    harm, kind = SMALL_DAMAGE[damage]
    store = SmallStore(whole.fs.crash_clone(1.0, 0), whole.config)
    harm(store)
    found = [finding for finding in store.findings() if finding.kind is kind and finding.level is Severity.DAMAGE]
    assert found
    remedy = _COMMAND.search(found[0].text)
    assert remedy, f"the finding names no command: {found[0].text}"
    target = PATHS.root
    if remedy[1] == "salvage":
        target = PATHS.root.with_name("out")
        salvage_store(PATHS.root, target, SMALL, given=GEOMETRY_KEYS, fs=store.fs)
    else:
        assert remedy[1] == "rebuild"
        rebuild_store(PATHS.root, SMALL, given=GEOMETRY_KEYS, fs=store.fs, queues=not remedy[2])
    left = [
        one for one in verify_store(target, SMALL, given=GEOMETRY_KEYS, fs=store.fs) if one.level is Severity.DAMAGE
    ]
    assert left == []


def fill_slot_of_a_lost_message(store: SmallStore) -> None:
    store.flip_log(store.unit(30).phy_offset + 5)
    store.write_unit(PRE_BLANK, 30)


def restart_at_zero(store: SmallStore) -> None:
    """A topic was deleted and made anew, and its one new message stands behind the deleted ones."""
    store.write_log(store.unit(79).phy_offset + QUEUE_OFFSET_AT, bytes(8))


def test_last_unit_without_message_needs_salvage(tmp_path: Path) -> None:
    """A rebuild leaves it, so that its offset is not given out again, and verify found it again and again."""
    store, size = tmp_path / "store", SMALL.mapped_file_size_commit_log
    with open_store(RealFileSystem(), store) as opened:
        opened.put(Message("lone", b"x"))
        while opened.max_phy_offset < 2 * size:
            opened.put(Message("orders", b"x" * 100))
        await_dispatch(opened)
    first(store, "commitlog").write_bytes(encode_blank(size).ljust(size, b"\0"))
    rebuild_store(store, SMALL, given=GEOMETRY_KEYS)
    damage = [one for one in findings(store) if one.level is Severity.DAMAGE]
    assert [(one.kind, one.topic) for one in damage] == [(FindingKind.QUEUE_ENTRY_NOWHERE, "lone")]
    assert [match[0] for match in _COMMAND.findall(damage[0].text)] == ["salvage"]
    salvage_store(store, tmp_path / "out", SMALL, given=GEOMETRY_KEYS)
    assert [one for one in findings(tmp_path / "out") if one.level is Severity.DAMAGE] == []


NOTHING_TO_DO: dict[str, tuple[Callable[[SmallStore], None], FindingKind]] = {
    "filled slot": (fill_slot_of_a_lost_message, FindingKind.QUEUE_FILLED),
    "recreated queue": (restart_at_zero, FindingKind.QUEUE_ENTRY_RESTART),
}


@pytest.mark.parametrize("damage", NOTHING_TO_DO)
def test_note_without_remedy_promises_nothing(whole: SmallStore, damage: str) -> None:
    harm, kind = NOTHING_TO_DO[damage]
    store = SmallStore(whole.fs.crash_clone(1.0, 0), whole.config)
    harm(store)
    found = [finding for finding in store.findings() if finding.kind is kind]
    assert [finding.level for finding in found] == [Severity.NOTE]
    assert "`" not in found[0].text


def test_every_finding_kind_has_remedy_test() -> None:
    tables = (*DAMAGE.values(), *SMALL_DAMAGE.values(), *NOTHING_TO_DO.values())
    own_tests = {
        FindingKind.FILE_UNREADABLE,
        FindingKind.LOG_FILE_FOREIGN,
        FindingKind.LOG_MISSING,
        FindingKind.TOPICS_WITHOUT_ROUTE,
    }
    own_tests |= {
        FindingKind.TIMER_LOG,
        FindingKind.TIMER_WHEEL,
        FindingKind.TIMER_CHECKPOINT,
    }  # test_timers_and_tools.py
    own_tests.add(FindingKind.NOT_HONOURED)  # tests/cli/test_contents.py, tests/interop/test_contents.py
    assert {kind for _, kind in tables} | own_tests == set(FindingKind)
