"""A store that was a slave's: what its former master has delivered is found in the log, and not delivered again."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import SCHEDULE_TOPIC, TIMER_TOPIC, Message, StoredMessage
from gantrymq.store.message_store import MessageStore
from gantrymq.store.role import Role, RoleFile

CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 20,
    max_hash_slot_num=1000,
    max_index_num=4000,
    timer_precision_ms=100,
    timer_flush_interval_ms=100,
    message_delay_level="1s 2s",
)
FILES = RealFileSystem()


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def timed(body: bytes, after_ms: int, now_ms: int, **properties: str) -> Message:
    due = str((now_ms + after_ms) // 100 * 100)
    of = {"TIMER_OUT_MS": due, "REAL_TOPIC": "T", "REAL_QID": "0", **properties}
    return Message(TIMER_TOPIC, body, properties=of, born_timestamp_ms=now_ms)


def bodies(store: MessageStore) -> list[bytes]:
    return [bytes(message.body) for message in messages(store)]


def messages(store: MessageStore) -> list[StoredMessage]:
    return store.get("T", 0, 0, max_msgs=1000, max_bytes=1 << 20).messages


def as_copied(path: Path, before: Path) -> None:
    """Make the store that of a slave whose progress is as old as that in ``before``."""
    shutil.rmtree(path / "config")
    shutil.copytree(before, path / "config")
    for name in ("timerwheel", "timerlog"):
        target = path / name
        shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
    RoleFile(FILES, path / "config").save(Role(was_slave=True))
    with MessageStore.open(path, replace(CONFIG, broker_role="SLAVE")):
        pass  # as a slave leaves it


def test_deliveries_after_saved_progress_are_found_and_the_others_are_made(tmp_path: Path) -> None:
    path, before = tmp_path / "store", tmp_path / "before"
    with MessageStore.open(path, CONFIG) as store:
        now_ms = int(time.time() * 1000)
        sent = [Message("T", b"alike", delay_level=1, born_timestamp_ms=now_ms) for _ in range(2)]
        sent += [Message("T", b"late", delay_level=2, born_timestamp_ms=now_ms + 1)]
        sent += [timed(b"timer", 300, now_ms), timed(b"alike timer", 300, now_ms), timed(b"alike timer", 300, now_ms)]
        sent += [timed(b"far", 4_000, now_ms), timed(b"recalled", 3_000, now_ms, UNIQ_KEY="U")]
        for message in sent:
            store.put(message)
        until(lambda: store.max_offset_in_queue(TIMER_TOPIC, 0) == 5)
        until(lambda: store.timers is not None and store.timers.checkpoint.timer_queue_offset == 5)
    shutil.copytree(path / "config", before)
    with MessageStore.open(path, CONFIG) as store:
        store.put(timed(b"", 3_000, now_ms, TIMER_DEL_UNIQKEY="U"))
        until(lambda: store.max_offset_in_queue("T", 0) >= 5)
        store.put(Message("T", b"late", born_timestamp_ms=now_ms + 1))  # no delivery of the delayed one
    as_copied(path, before)
    until(lambda: time.time() * 1000 > now_ms + 4_200)
    with MessageStore.open(path, CONFIG) as store:
        assert store.was_slave
        until(lambda: b"far" in bodies(store))
        until(lambda: store.delay_offsets.get(2) == 1)
    assert json.loads((path / "config" / "role.json").read_text())["copied"] is False
    with MessageStore.open(path, CONFIG) as store:
        assert not store.was_slave
        want = {b"alike": 2, b"late": 2, b"timer": 1, b"alike timer": 2, b"far": 1}
        assert Counter(bodies(store)) == want
        assert store.max_offset_in_queue(SCHEDULE_TOPIC, 0) == 2


def test_delivered_part_of_alike_messages_is_completed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, CONFIG, delivers=False) as store:
        now_ms = int(time.time() * 1000)
        for _ in range(3):
            store.put(timed(b"timer", -2_000, now_ms))
            store.put(Message("T", b"delay", delay_level=1, born_timestamp_ms=now_ms))
        until(lambda: time.time() * 1000 > now_ms + 1_100)
        of = {"REAL_TOPIC": "T", "REAL_QID": "0"}
        due = str((now_ms - 2_000) // 100 * 100)
        store.put(Message("T", b"delay", properties={**of, "DELAY": "1"}, born_timestamp_ms=now_ms))
        for _ in range(2):
            store.put(Message("T", b"timer", properties={**of, "TIMER_OUT_MS": due}, born_timestamp_ms=now_ms))
    RoleFile(FILES, path / "config").save(Role(was_slave=True))
    with MessageStore.open(path, CONFIG) as store:
        until(lambda: store.max_offset_in_queue("T", 0) == 6)
        until(lambda: store.delay_offsets.get(1) == 3)
        assert Counter(bodies(store)) == {b"timer": 3, b"delay": 3}


def test_message_that_had_rolled_is_delivered_once(tmp_path: Path) -> None:
    path = tmp_path / "store"
    rolling = replace(CONFIG, timer_roll_window_slots=10)  # a second
    with MessageStore.open(path, rolling) as store:
        now_ms = int(time.time() * 1000)
        store.put(timed(b"rolls", 3_000, now_ms))
        until(lambda: store.max_offset_in_queue(TIMER_TOPIC, 0) >= 2)
    before = tmp_path / "before"
    shutil.copytree(path / "config", before)
    as_copied(path, before)
    with MessageStore.open(path, rolling) as store:
        until(lambda: time.time() * 1000 > now_ms + 4_000)
        until(lambda: bodies(store))
    with MessageStore.open(path, CONFIG) as store:
        assert bodies(store) == [b"rolls"]
