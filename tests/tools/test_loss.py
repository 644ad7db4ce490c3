"""Whatever a damaged store said it had is in the result of salvage and rebuild, or is named in the report."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from loss_cases import (
    LOG_FILE,
    OLD_QUEUES,
    PHY_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUES,
    KnownStore,
    Put,
    Slot,
    assert_told,
    named,
    read_back,
)

from gantrymq.cli.main import exit_code
from gantrymq.clock import ManualClock
from gantrymq.format.record import MAGIC_BLANK, QUEUE_OFFSET_AT, encode_blank
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.flags import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from gantrymq.model.message import Message
from gantrymq.tools.audit.loss_account import BODY_CRC_AT
from gantrymq.tools.findings import FindingKind, Severity
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.reports import LossAccount
from gantrymq.tools.salvage import salvage_store
from gantrymq.tools.verify import verify_store
from store_cases import GEOMETRY_KEYS, NOON_MS, SMALL, SMALL_KEYS, await_dispatch, open_store


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> KnownStore:
    return KnownStore.make(tmp_path_factory.mktemp("whole") / "store")


@pytest.fixture
def store(whole: KnownStore, tmp_path: Path) -> KnownStore:
    return KnownStore(Path(shutil.copytree(whole.path, tmp_path / "store")), whole.puts)


def untouched(store: KnownStore) -> tuple[Path, LossAccount]:
    """The store as it is, for its next start to recover."""
    return store.path, LossAccount()


def rebuilt(store: KnownStore) -> tuple[Path, LossAccount]:
    return store.path, rebuild_store(store.path, SMALL, given=GEOMETRY_KEYS).account


def salvaged(store: KnownStore) -> tuple[Path, LossAccount]:
    """The new store, in which nothing is wrong."""
    out = store.path.with_name("salvaged")
    report = salvage_store(store.path, out, SMALL, given=GEOMETRY_KEYS)
    assert [one for one in verify_store(out, SMALL, given=GEOMETRY_KEYS) if one.level is Severity.DAMAGE] == []
    return out, report.account


Tool = Callable[[KnownStore], tuple[Path, LossAccount]]
both = pytest.mark.parametrize("tool", [rebuilt, salvaged])


def end_of(store: KnownStore) -> int:
    return max(put.phy_offset + put.size_bytes for put in store.puts.values())


@both
def test_repair_of_healthy_store_loses_nothing(tool: Tool, store: KnownStore) -> None:
    out, account = tool(store)
    assert account == LossAccount()
    assert assert_told(store, read_back(out), account) == set()


@both
def test_missing_last_log_file_is_accounted_by_queue(tool: Tool, store: KnownStore) -> None:
    was = {queue: 1 + max(slot.queue_offset for slot in store.puts if slot[:2] == queue) for queue in QUEUES}
    last = store.log_files[-1]
    last.unlink()
    out, account = tool(store)
    result = read_back(out)
    lost = assert_told(store, result, account)
    assert lost == store.victims(int(last.name), end_of(store))
    assert {(one.topic, one.queue_id): one.was_end for one in account.short_queues} == {
        queue: was[queue] for queue in {slot[:2] for slot in lost}
    }
    assert account.message_count == len(lost)


@both
@pytest.mark.parametrize("how", ["cut", "zeros"])
def test_truncated_last_log_file_names_lost_messages(tool: Tool, how: str, store: KnownStore) -> None:
    last = store.log_files[-1]
    length = (end_of(store) - int(last.name)) // 2
    raw = last.read_bytes()
    last.write_bytes(raw[:length] + (bytes(LOG_FILE - length) if how == "zeros" else b""))
    if tool is rebuilt and how == "cut":
        last.write_bytes(raw[:length].ljust(LOG_FILE, b"\0"))  # rebuild opens no file of a wrong size
    out, account = tool(store)
    assert assert_told(store, read_back(out), account) == store.victims(int(last.name) + length, end_of(store))


@both
@pytest.mark.parametrize("witness", ["checkpoint", "index"])
def test_checkpoint_or_index_alone_reveals_missing_end_of_log(tool: Tool, witness: str, store: KnownStore) -> None:
    store.log_files[-1].unlink()
    shutil.rmtree(store.path / "consumequeue")
    if witness == "index":
        (store.path / "checkpoint").unlink()
    else:
        shutil.rmtree(store.path / "index")
    out, account = tool(store)
    assert len(assert_told(store, read_back(out), account)) > 10
    assert witness in account.ranges[-1].reason


@both
def test_damaged_queues_over_a_whole_log_are_no_loss(tool: Tool, store: KnownStore) -> None:
    for number, path in enumerate(sorted(store.path.glob("consumequeue/*/*/*"))):
        raw = bytearray(path.read_bytes())
        raw[number * 7 % len(raw)] ^= 1 << number % 8
        raw[60:80] = (b"\x5a" * 20, bytes(20))[number % 2]
        path.write_bytes(raw)
    out, account = tool(store)
    assert account.is_compared
    assert account == LossAccount(not_compared=account.not_compared)
    assert assert_told(store, read_back(out), account) == set()


@both
@pytest.mark.parametrize(("copied", "over"), [(3, 2), (2, 3), (1, 0), (0, 1), (-1, -2), (0, -1)])
def test_log_file_copied_over_other_loses_only_overwritten_messages(
    tool: Tool, copied: int, over: int, store: KnownStore
) -> None:
    files = store.log_files
    shutil.copyfile(files[copied], files[over])
    base = int(files[over].name)
    out, account = tool(store)
    assert assert_told(store, read_back(out), account) == store.victims(base, base + LOG_FILE)


@both
def test_part_of_log_file_written_twice_loses_only_overwritten_messages(tool: Tool, store: KnownStore) -> None:
    source, target, length = store.at(0.2)[1].phy_offset, store.at(0.6)[1].phy_offset, LOG_FILE // 8
    assert max(source % LOG_FILE, target % LOG_FILE) + length < LOG_FILE
    store.write(target, store.read(source, length))
    out, account = tool(store)
    assert assert_told(store, read_back(out), account) == store.victims(target, target + length)


def test_salvage_puts_swapped_and_renamed_log_files_where_their_records_say(store: KnownStore) -> None:
    first, second, third = store.log_files[1:4]
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    third.rename(third.with_name(third.name[2:]))
    out, account = salvaged(store)
    assert account == LossAccount()
    assert assert_told(store, read_back(out), account) == set()


def test_rebuild_names_messages_of_swapped_log_files(store: KnownStore) -> None:
    first, second = store.log_files[1:3]
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    out, account = rebuilt(store)
    lost = assert_told(store, read_back(out), account)
    assert lost == store.victims(int(first.name), int(second.name) + LOG_FILE)


@both
def test_record_with_wrong_phy_offset_is_readable_or_named(tool: Tool, store: KnownStore) -> None:
    slot, put = store.at(0.4)
    store.flip(put.phy_offset + PHY_OFFSET_AT + 6, 0x10)
    out, account = tool(store)
    assert assert_told(store, read_back(out), account) == ({slot} if tool is rebuilt else set())


def test_rebuild_names_messages_truncated_by_next_start(store: KnownStore) -> None:
    slot, put = store.at(0.97)
    store.flip(put.phy_offset + 92, 0x10)
    out, account = rebuilt(store)
    lost = assert_told(store, read_back(out), account)
    assert lost == store.victims(put.phy_offset, end_of(store))
    behind = {one.reason for one in account.messages if one.begin > slot.queue_offset and one.topic == slot.topic}
    assert any("the next start truncates the log" in reason for reason in behind)
    assert all(one.end <= one.was_end for one in account.short_queues)


@both
@pytest.mark.parametrize("has_queues", [True, False])
@pytest.mark.parametrize("is_young", [False, True])
def test_missing_first_log_file_is_named_unless_expired(
    tool: Tool, is_young: bool, has_queues: bool, store: KnownStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old one was removed by retention, and is told; a young one was not, and the records behind it say so, too."""
    hours = 2 if is_young else 100
    monkeypatch.setattr("gantrymq.tools.rebuild.SystemClock", lambda: ManualClock(NOON_MS + hours * 3_600_000))
    first = store.log_files[0]
    first.unlink()
    if not has_queues:
        shutil.rmtree(store.path / "consumequeue")
    out, account = tool(store)
    gone = store.victims(0, LOG_FILE)
    if is_young:
        assert assert_told(store, read_back(out), account) == gone
        assert all("fileReservedTime" in one.reason for one in account.messages)
    else:
        assert account.is_empty
        assert sum(one.end - one.begin for one in account.expired) == (len(gone) if has_queues else 0)


@both
@pytest.mark.parametrize("harm", ["removed", "one blank"])
def test_offset_of_lost_only_message_is_not_reused(
    tool: Tool, harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantrymq.tools.rebuild.SystemClock", lambda: ManualClock(NOON_MS + 1_000))
    path, body = tmp_path / "store", b"x" * 100
    with open_store(RealFileSystem(), path, clock=ManualClock(NOON_MS)) as opened:
        lone = opened.put(Message("lone", body))
        while opened.max_phy_offset < 2 * LOG_FILE:
            opened.put(Message("orders", body))
        await_dispatch(opened)
    store = KnownStore(path, {Slot("lone", 0, 0): Put(lone.phy_offset, lone.size_bytes, body)})
    if harm == "removed":
        store.log_files[0].unlink()
    else:
        store.log_files[0].write_bytes(encode_blank(LOG_FILE).ljust(LOG_FILE, b"\0"))
    out, account = tool(store)
    assert ("lone", 0, 0) in [(one.topic, one.queue_id, one.begin) for one in account.messages]
    assert account.short_queues == []
    with open_store(RealFileSystem(), out) as opened:
        assert opened.put(Message("lone", body)).queue_offset == 1


def topic_at(store: KnownStore, put: Put) -> int:
    """Where the first letter of a record's topic lies."""
    raw = store.read(put.phy_offset, put.size_bytes)
    return put.phy_offset + raw.index(put.body) + len(put.body) + 1


@both
@pytest.mark.parametrize("has_queues", [True, False])
@pytest.mark.parametrize("share", [0.3, 0.55])
@pytest.mark.parametrize(
    ("field", "mask"), [("queueId", 8), ("queueId", 1), ("queueId", 4), ("topic", 1), ("topic", 128)]
)
def test_record_of_wrong_queue_is_quarantined_with_its_likely_home(
    tool: Tool, field: str, mask: int, share: float, has_queues: bool, store: KnownStore
) -> None:
    slot, put = store.at(share)
    store.flip(put.phy_offset + QUEUE_ID_AT + 3 if field == "queueId" else topic_at(store, put) + 2, mask)
    if not has_queues:
        shutil.rmtree(store.path / "consumequeue")
    out, account = tool(store)
    lost = assert_told(store, read_back(out), account)
    assert slot in lost
    if mask in (1, 4) and not has_queues:  # two records claim one offset, and either may be of the other queue
        assert len(lost) <= 2
        return
    assert [(one.phy_offset, one.likely) for one in account.quarantined] == [(put.phy_offset, slot)]
    assert (account.messages, account.ranges, account.repaired) == ([], [], [])
    assert len(list((out / "consumequeue").glob("*/*"))) == len(QUEUES)  # no phantom queue


@pytest.fixture(scope="module")
def with_old_queues(tmp_path_factory: pytest.TempPathFactory) -> KnownStore:
    return KnownStore.make(tmp_path_factory.mktemp("old") / "store", with_old_queues=True)


@both
def test_first_record_with_wrong_queue_does_not_restart_queue(
    tool: Tool, with_old_queues: KnownStore, tmp_path: Path
) -> None:
    store = KnownStore(Path(shutil.copytree(with_old_queues.path, tmp_path / "store")), with_old_queues.puts)
    slot = Slot("orders", 4, 0)
    store.flip(store.puts[slot].phy_offset + QUEUE_ID_AT + 3, 4 ^ 1)
    out, account = tool(store)
    assert assert_told(store, read_back(out), account) == {slot}
    assert [one.likely for one in account.quarantined] == [slot]


@both
@pytest.mark.parametrize("has_queues", [True, False])
def test_swapped_records_of_same_offset_are_not_confused(tool: Tool, has_queues: bool, store: KnownStore) -> None:
    one, other = next(
        (slot, twin)
        for slot, put in sorted(store.puts.items())
        if slot.queue_id == 0
        and (twin := slot._replace(queue_id=1)) in store.puts
        and store.puts[twin].size_bytes == put.size_bytes
        and slot.queue_offset > 3
    )
    at, there = store.puts[one], store.puts[other]
    raw = store.read(at.phy_offset, at.size_bytes)
    store.write(at.phy_offset, store.read(there.phy_offset, there.size_bytes))
    store.write(there.phy_offset, raw)
    if not has_queues:
        shutil.rmtree(store.path / "consumequeue")
    out, account = tool(store)
    assert assert_told(store, read_back(out), account) <= {one, other}


@both
def test_records_swapped_between_queues_lose_no_other(tool: Tool, store: KnownStore) -> None:
    """Without the old queues: the record that lies elsewhere than it says is the one in the way."""
    by_size: dict[int, list[tuple[Slot, Put]]] = {}
    for slot, put in sorted(store.puts.items(), key=lambda item: item[1].phy_offset):
        by_size.setdefault(put.size_bytes, []).append((slot, put))
    pairs = [
        (one, other)
        for some in by_size.values()
        for one, other in pairwise(some)
        if one[0][:2] != other[0][:2] and 10 < one[0].queue_offset < other[0].queue_offset - 3
    ]
    for (one, at), (other, there) in pairs[:1]:
        raw = store.read(at.phy_offset, at.size_bytes)
        store.write(at.phy_offset, store.read(there.phy_offset, there.size_bytes))
        store.write(there.phy_offset, raw)
        shutil.rmtree(store.path / "consumequeue")
        out, account = tool(store)
        assert assert_told(store, read_back(out), account) == {one, other}
    assert pairs


@both
@pytest.mark.parametrize("damage", ["bodyCRC", "body"])
def test_last_message_of_old_queue_is_unchanged_or_named(
    tool: Tool, damage: str, with_old_queues: KnownStore, tmp_path: Path
) -> None:
    """Its unit stays, so that its offset is not given out again, and a reader looks at no CRC."""
    store = KnownStore(Path(shutil.copytree(with_old_queues.path, tmp_path / "store")), with_old_queues.puts)
    slot, put = max(item for item in store.puts.items() if item[0][:2] == OLD_QUEUES[0])
    store.flip(put.phy_offset + (BODY_CRC_AT + 2 if damage == "bodyCRC" else 92), 0x10)
    out, account = tool(store)
    lost = assert_told(store, read_back(out), account)
    if tool is rebuilt and damage == "bodyCRC":
        assert lost == set()
        assert [(one.topic, one.queue_id, one.queue_offset) for one in account.repaired] == [slot]
    else:
        assert lost == {slot}
        assert [(one.topic, one.queue_id, one.begin) for one in account.messages] == [slot]


@both
@pytest.mark.parametrize("share", [0.3, 0.97, 1.0])
def test_record_of_wrong_queue_is_quarantined_after_kill_too(tool: Tool, share: float, store: KnownStore) -> None:
    """The next start of a killed store dispatches the newest part of the log again, by what the records say."""
    slot, put = store.at(share)
    store.flip(topic_at(store, put) + 2, 1)
    (store.path / "abort").touch()
    out, account = tool(store)
    assert assert_told(store, read_back(out), account) == {slot}
    assert [(one.phy_offset, one.likely) for one in account.quarantined] == [(put.phy_offset, slot)]
    is_last = all(other.queue_offset <= slot.queue_offset for other in store.puts if other[:2] == slot[:2])
    assert [one.end for one in account.short_queues] == ([slot.queue_offset] if is_last else [])


@both
def test_two_records_swapped_in_queue_are_lost_and_named(tool: Tool, store: KnownStore) -> None:
    """Each says its own place and its own offset: nothing of them is wrong but where they lie."""
    by_size: dict[tuple[str, int, int], list[tuple[Slot, Put]]] = {}
    for slot, put in sorted(store.puts.items()):
        by_size.setdefault((slot.topic, slot.queue_id, put.size_bytes), []).append((slot, put))
    (one, at), (other, there) = next(pair for pair in by_size.values() if len(pair) > 1)[:2]
    raw = store.read(at.phy_offset, at.size_bytes)
    store.write(at.phy_offset, store.read(there.phy_offset, there.size_bytes))
    store.write(there.phy_offset, raw)
    out, account = tool(store)
    assert assert_told(store, read_back(out), account) == {one, other}
    assert account.repaired == []


@both
def test_copy_of_lost_record_does_not_replace_overwritten_message(tool: Tool, store: KnownStore) -> None:
    slot, put = store.at(0.8)
    target = next(
        (other, there)
        for other, there in sorted(store.puts.items())
        if other[:2] == slot[:2] and there.size_bytes == put.size_bytes and other != slot
    )
    store.write(target[1].phy_offset, store.read(put.phy_offset, put.size_bytes))
    store.write(put.phy_offset, bytes(put.size_bytes))
    out, account = tool(store)
    assert assert_told(store, read_back(out), account) == {slot, target[0]}
    assert account.repaired == []


@both
@pytest.mark.parametrize("claimed", [1 << 40, 1 << 62, 0, 3, -1])
def test_wrong_queue_offset_is_repaired_without_loss(tool: Tool, claimed: int, store: KnownStore) -> None:
    slot, put = store.at(0.5)
    store.write(put.phy_offset + QUEUE_OFFSET_AT, claimed.to_bytes(8, "big", signed=True))
    out, account = tool(store)
    assert assert_told(store, read_back(out), account) == set()
    assert (account.ranges, account.messages, account.filled) == ([], [], [])
    if claimed:  # a 0 may be that of a topic made anew
        assert [(one.topic, one.queue_id, one.queue_offset) for one in account.repaired] == [slot]


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> KnownStore:
    """A killed store of two queues, one of which has far more messages than the other."""
    path, puts = tmp_path_factory.mktemp("uneven") / "store", {}
    with open_store(RealFileSystem(), path, clock=ManualClock(NOON_MS)) as opened:
        for number in range(240):
            body, queue_id = b"%06d" % number * 10, int(number % 6 == 5)
            put = opened.put(Message("orders", body, queue_id=queue_id))
            puts[Slot("orders", queue_id, put.queue_offset)] = Put(put.phy_offset, put.size_bytes, body)
        await_dispatch(opened)
    (path / "abort").touch()
    return KnownStore(path, puts)


@pytest.mark.parametrize("has_queues", [True, False])
@pytest.mark.parametrize("share", [0.5, 0.9, "behind the file's last one of the other queue"])
@pytest.mark.parametrize("way", [untouched, rebuilt, salvaged])
def test_record_with_wrong_shorter_queue_after_kill_displaces_no_message(
    way: Tool, share: float | str, uneven: KnownStore, tmp_path: Path, *, has_queues: bool
) -> None:
    """A start that dispatched it put the queue's next offset behind that of the record, and passed over all others."""
    store = KnownStore(Path(shutil.copytree(uneven.path, tmp_path / "store")), uneven.puts)
    ordered = sorted(store.puts.items(), key=lambda item: item[1].phy_offset)
    if isinstance(share, float):
        slot, put = next(item for item in ordered[int(share * len(ordered)) :] if item[0].queue_id == 0)
    else:
        slot, put = [item for item in ordered if item[1].phy_offset < LOG_FILE and item[0].queue_id == 0][-1]
    store.flip(put.phy_offset + QUEUE_ID_AT + 3, 1)
    if not has_queues:
        shutil.rmtree(store.path / "consumequeue")
        (store.path / "checkpoint").unlink()
    out, account = way(store)
    open_store(RealFileSystem(), out).close()
    result = read_back(out)
    lost = {one for one, put in store.puts.items() if result.get(one) != put.body}
    assert lost <= {slot}
    assert lost <= named(account, store) or way is untouched


SYS_FLAG_AT = 36


@pytest.fixture(scope="module")
def with_half_messages(tmp_path_factory: pytest.TempPathFactory) -> tuple[KnownStore, list[int]]:
    """A store with prepared and rollback records, which say queue offset 0, and where these lie."""
    path, puts, halves = tmp_path_factory.mktemp("halves") / "store", {}, []
    with open_store(RealFileSystem(), path, clock=ManualClock(NOON_MS)) as opened:
        for number in range(60):
            body = b"%06d" % number * 10
            flag = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)[number % 2] if number % 10 > 7 else 0
            put = opened.put(Message("orders", body, tags="paid", sys_flag=flag))
            if flag:
                halves.append(put.phy_offset)
            else:
                puts[Slot("orders", 0, put.queue_offset)] = Put(put.phy_offset, put.size_bytes, body)
        await_dispatch(opened)
    return KnownStore(path, puts), halves


@pytest.mark.parametrize("has_queues", [True, False])
@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("way", [untouched, rebuilt, salvaged])
def test_half_message_turned_into_message_by_bit_flip_loses_no_other(
    way: Tool,
    with_half_messages: tuple[KnownStore, list[int]],
    tmp_path: Path,
    *,
    is_closed: bool,
    has_queues: bool,
) -> None:
    whole, halves = with_half_messages
    store = KnownStore(Path(shutil.copytree(whole.path, tmp_path / "store")), whole.puts)
    store.flip(halves[5] + SYS_FLAG_AT + 3, TRANSACTION_PREPARED)
    if not is_closed:
        (store.path / "abort").touch()
    if not has_queues:
        shutil.rmtree(store.path / "consumequeue")
    out, _ = way(store)
    if way is rebuilt:  # which leaves such a record without an entry
        left = [one for one in verify_store(out, SMALL, given=GEOMETRY_KEYS) if one.level is Severity.DAMAGE]
        assert [(one.kind, "`gantrymq store salvage`" in one.text) for one in left] == [
            (FindingKind.RECORD_QUEUE, True)
        ]
    with open_store(RealFileSystem(), out):
        pass
    result = read_back(out)
    lost = {slot for slot, put in store.puts.items() if result.get(slot) != put.body}
    assert lost == set()


@both
@pytest.mark.parametrize("blank", [b"\0\0\1\1", b"\7\7\7\7\7\7\7\7", bytes(8)])
def test_broken_blank_is_not_reported_as_lost_message(tool: Tool, blank: bytes, store: KnownStore) -> None:
    _, last = max(
        (item for item in store.puts.items() if item[1].phy_offset < LOG_FILE), key=lambda item: item[1].phy_offset
    )
    store.write(last.phy_offset + last.size_bytes, blank)
    out, account = tool(store)
    assert account == LossAccount()
    assert assert_told(store, read_back(out), account) == set()


@both
def test_false_blank_of_wrong_size_loses_record_under_it(tool: Tool, store: KnownStore) -> None:
    slot, put = store.at(0.4)
    store.write(put.phy_offset + 4, MAGIC_BLANK.to_bytes(4, "big"))
    out, account = tool(store)
    assert assert_told(store, read_back(out), account) == {slot}


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> KnownStore:
    """A store of another broker that has queues of the same names, and others."""
    return KnownStore.make(tmp_path_factory.mktemp("other") / "store", with_old_queues=True)


@both
@pytest.mark.parametrize("has_same_queues", [True, False])
@pytest.mark.parametrize("number", [0, 2])
def test_log_file_of_other_store_loses_overwritten_messages_and_adds_none(
    tool: Tool, number: int, has_same_queues: bool, store: KnownStore, other: KnownStore, uneven: KnownStore
) -> None:
    victim = store.log_files[number]
    source = other if has_same_queues else uneven
    shutil.copyfile(source.log_path(int(victim.name)), victim)
    found = [
        one for one in verify_store(store.path, SMALL, given=GEOMETRY_KEYS) if one.kind is FindingKind.LOG_FILE_FOREIGN
    ]
    assert [(store.path / one.path, "gantrymq store salvage" in one.text) for one in found] == [(victim, True)]
    out, account = tool(store)
    result = read_back(out)
    assert assert_told(store, result, account) == store.victims(int(victim.name), int(victim.name) + LOG_FILE)
    assert result.keys() <= store.puts.keys()


@both
def test_queues_of_another_store_make_no_log_file_foreign(tool: Tool, store: KnownStore, other: KnownStore) -> None:
    shutil.rmtree(store.path / "consumequeue")
    shutil.copytree(other.path / "consumequeue", store.path / "consumequeue")
    out, account = tool(store)
    assert assert_told(store, read_back(out), account) == set()


@both
def test_queues_of_diverged_copy_make_no_log_file_foreign(tool: Tool, store: KnownStore, tmp_path: Path) -> None:
    copy, rng = KnownStore.make(tmp_path / "copy", 180), random.Random(5)
    with open_store(RealFileSystem(), copy.path, clock=ManualClock(NOON_MS)) as opened:
        for number in range(180, 420):
            topic, queue_id = rng.choice(QUEUES)
            opened.put(Message(topic, b"%06d" % number * (10 + number * 5 % 13), queue_id=queue_id, tags="paid"))
        await_dispatch(opened)
    shutil.rmtree(store.path / "consumequeue")
    shutil.copytree(copy.path / "consumequeue", store.path / "consumequeue")
    out, account = tool(store)
    assert {one.path.name for one in account.not_compared} & {path.name for path in store.log_files}
    result = read_back(out)
    assert {slot for slot, put in store.puts.items() if result.get(slot) != put.body} == set()


@pytest.mark.parametrize("is_salvage", [True, False])
def test_more_wrong_offsets_than_can_be_sorted_out_cost_no_other_queue(store: KnownStore, *, is_salvage: bool) -> None:
    """Making the queues once more ended with none at all."""
    for slot, put in store.puts.items():
        if slot[:2] == ("orders", 0) and LOG_FILE <= put.phy_offset < 4 * LOG_FILE:
            store.write(put.phy_offset + QUEUE_OFFSET_AT, (slot.queue_offset - 1).to_bytes(8, "big"))
    out = store.path.with_name("salvaged") if is_salvage else store.path
    if is_salvage:
        salvage_store(store.path, out, SMALL, given=GEOMETRY_KEYS)
    else:
        rebuild_store(out, SMALL, given=GEOMETRY_KEYS)
    others = {slot for slot in store.puts if slot[:2] != ("orders", 0)}
    with_units = {path.parent.parent.name for path in (out / "consumequeue").glob("*/*/*")}
    assert with_units == {"orders", "bills"}
    result = read_back(out)
    assert {slot for slot in others if result.get(slot) != store.puts[slot].body} == set()


STORE_TIMESTAMP_AT = 56  # of a record whose hosts are IPv4


@pytest.mark.parametrize("bit", [38, 45, 62, 63])
@pytest.mark.parametrize("tool", [rebuilt, salvaged, "recovered after a kill"])
def test_flipped_time_of_last_record_does_not_reach_checkpoint(
    tool: Tool | str, bit: int, store: KnownStore, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    _, put = store.at(1.0)
    store.flip(put.phy_offset + STORE_TIMESTAMP_AT + 7 - bit // 8, 1 << bit % 8)
    if isinstance(tool, str):
        (store.path / "abort").touch()
        (store.path / "checkpoint").unlink()
        shutil.rmtree(store.path / "consumequeue")
        assert recovered(store, capsysbinary, "--set=acceptMissingCommitLog=true")["lost"] == []
        out = store.path
    else:
        out, account = tool(store)
        assert assert_told(store, read_back(out), account) == set()
    found = [one for one in verify_store(out, SMALL, given=GEOMETRY_KEYS) if one.level is Severity.DAMAGE]
    assert [one for one in found if one.kind.value.startswith("checkpoint")] == []


# Recovery


@pytest.mark.parametrize(("copied", "over"), [(1, 2), (2, 1), (-2, -1), (-1, -2), (-3, -1)])
@pytest.mark.parametrize("how", ["copied", "swapped"])
def test_recovery_plan_equals_recovery_of_copied_and_swapped_log_files(
    how: str, copied: int, over: int, store: KnownStore, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    source, target = store.log_files[copied], store.log_files[over]
    raw, was = source.read_bytes(), target.read_bytes()
    target.write_bytes(raw)
    if how == "swapped":
        source.write_bytes(was)
    plan, done = recovered(store, capsysbinary, "--dry-run"), recovered(store, capsysbinary)
    assert {key for key in plan if plan[key] != done[key]} <= {"dryRun", "stepsMs", "totalMs"}


def recovered(
    store: KnownStore, capsysbinary: pytest.CaptureFixture[bytes], *options: str, code: int = 0
) -> dict[str, Any]:
    """What ``store recover --json`` prints."""
    sizes = [f"--set={key}={value}" for key, value in SMALL_KEYS.items()]
    assert exit_code(["store", "recover", str(store.path), "--json", *sizes, *options]) == code
    report: dict[str, Any] = json.loads(capsysbinary.readouterr().out)
    return report


@pytest.mark.parametrize("damage", ["body of a message", "last file gone", "queues and last file gone"])
def test_recover_names_truncated_messages(
    damage: str, store: KnownStore, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    if damage == "body of a message":
        store.flip(store.at(0.95)[1].phy_offset + 92, 0x10)
    else:
        store.log_files[-1].unlink()
    if damage.startswith("queues"):
        shutil.rmtree(store.path / "consumequeue")
    code = 1 if "file gone" in damage else 0
    plan = recovered(store, capsysbinary, "--dry-run", code=code)
    report = recovered(store, capsysbinary, code=code)
    for key in ("lost", "lostMessages", "shortQueues"):
        assert plan[key] == report[key]
    result = read_back(store.path)
    lost = {slot for slot, put in store.puts.items() if result.get(slot) != put.body}
    told = {
        Slot(one["topic"], one["queueId"], offset)
        for one in report["lostMessages"]
        for offset in range(one["from"], one["to"] + 1)
    }
    for place in report["lost"]:
        told |= store.victims(place["phyOffset"], place["phyOffset"] + place["bytes"])
    assert lost != set()
    assert lost <= told
    if not damage.startswith("queues"):
        assert lost == told
        assert {(one["topic"], one["queueId"]) for one in report["shortQueues"]} == {slot[:2] for slot in lost}


def test_recover_of_closed_store_redispatches_messages_after_damaged_units(
    store: KnownStore, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Units end at the first that is none; in front of it stands one that leads far on, as if all was in the queue."""
    path = sorted((store.path / "consumequeue/orders/5").iterdir())[-2]
    raw = bytearray(path.read_bytes())
    _, last = store.at(1.0)
    raw[100:140] = (last.phy_offset + 1).to_bytes(8, "big") + (200).to_bytes(4, "big") + bytes(8) + bytes(20)
    path.write_bytes(raw)
    plan, done = recovered(store, capsysbinary, "--dry-run"), recovered(store, capsysbinary)
    assert {key for key in plan if plan[key] != done[key]} <= {"dryRun", "stepsMs", "totalMs"}
    assert read_back(store.path) == {slot: put.body for slot, put in store.puts.items()}
    assert (done["lost"], done["lostMessages"]) == ([], [])
    assert [one for one in verify_store(store.path, SMALL, given=GEOMETRY_KEYS) if one.level is Severity.DAMAGE] == []


def test_damaged_units_do_not_hide_those_in_front_of_them(store: KnownStore) -> None:
    """A search by halves for a queue's first offset meets them, in a file in front of the last three."""
    slots = {slot.queue_offset for slot in store.puts if slot[:2] == ("orders", 5)}
    middle = len(slots) // 2 // 2
    path = store.path / "consumequeue/orders/5" / f"{middle // 20 * 400:020d}"
    raw = bytearray(path.read_bytes())
    raw[middle % 20 * 20 : middle % 20 * 20 + 20] = b"\x90" * 8 + (200).to_bytes(4, "big") + bytes(8)
    path.write_bytes(raw)
    assert {slot.queue_offset for slot in read_back(store.path) if slot[:2] == ("orders", 5)} >= slots - {middle}


def test_recover_of_healthy_store_names_no_loss(store: KnownStore, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    report = recovered(store, capsysbinary)
    assert [report[key] for key in LossAccount().as_json(store.path)] == [[]] * len(LossAccount().as_json(store.path))


STORE_TIMESTAMP_AT = 56


@pytest.mark.parametrize(("share", "mask", "is_killed"), [(0.0, 0x40, True), (1.0, 0x80, False), (1.0, 0x40, True)])
@pytest.mark.parametrize("tool", ["rebuild", "salvage", "recover"])
def test_flipped_store_time_loses_no_message_and_leaves_checkpoint_valid(
    tool: str, share: float, mask: int, is_killed: bool, store: KnownStore
) -> None:
    _, put = store.at(share)
    store.flip(put.phy_offset + STORE_TIMESTAMP_AT + 1, mask)
    if is_killed:
        (store.path / "abort").touch()
    out = store.path
    if tool == "recover":
        open_store(RealFileSystem(), out).close()
    else:
        out, account = {"rebuild": rebuilt, "salvage": salvaged}[tool](store)
        assert account == LossAccount()
    assert read_back(out) == {slot: put.body for slot, put in store.puts.items()}
    kinds = {one.kind for one in verify_store(out, SMALL, given=GEOMETRY_KEYS)}
    assert not kinds & {FindingKind.CHECKPOINT_CORRUPT, FindingKind.CHECKPOINT_FUTURE}
