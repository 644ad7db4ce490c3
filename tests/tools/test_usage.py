"""``store usage``: what topics take on each day, against a count of every record."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gantrymq.clock import ManualClock
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.store.reader import StoreReader
from gantrymq.tools import usage as usage_module
from gantrymq.tools.disk_outlook import disk_outlook, next_deletions
from gantrymq.tools.read import store_days
from gantrymq.tools.read.store_days import DAY_MS
from gantrymq.tools.usage import Usage, usage_of
from golden_stores import unpack
from store_cases import GEOMETRY_KEYS, NOON_MS, SMALL, await_dispatch, odd_message, open_reader, open_store

Rows = dict[tuple[str, int], tuple[int, int]]


def rows_by_reading(reader: StoreReader) -> Rows:
    """The same from the whole records, of which the message says its topic, its time and its size."""
    messages: Counter[tuple[str, int]] = Counter()
    size: Counter[tuple[str, int]] = Counter()
    for queue in reader.consume_queues:
        for _, _, message in reader.entries(queue):
            assert message is not None
            key = message.topic, message.store_timestamp_ms // DAY_MS
            messages[key] += 1
            size[key] += message.size_bytes
    return {key: (messages[key], size[key]) for key in messages}


@pytest.mark.parametrize("name", ["retention", "direct-killed", "broker-features"])
def test_usage_of_golden_store_equals_count_of_records(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path) / "store"
    with StoreReader.open(path, trusts_writer=True) as reader:
        usage = usage_of(reader, 0)
        expected = rows_by_reading(reader)
    assert expected
    assert (usage.rows, usage.problems) == (expected, [])


def store_of_days(path: Path, days: list[int], rng: random.Random, messages_a_day: int = 40) -> Path:
    """A store whose clock shows each of ``days`` in turn, with odd messages of several topics on each."""
    runs = [[days[0]]]
    for day in days[1:]:  # the store times of one run never go back
        if day < runs[-1][-1]:
            runs.append([day])
        else:
            runs[-1].append(day)
    for run in runs:
        clock = ManualClock(NOON_MS + run[0] * DAY_MS)
        with open_store(RealFileSystem(), path, clock=clock) as store:
            for day in run:
                clock.advance(NOON_MS + day * DAY_MS - clock.now_ms())
                for _ in range(messages_a_day):
                    store.put(odd_message(rng))
            await_dispatch(store)
    return path


@pytest.mark.parametrize(
    ("days", "spread"),
    [
        pytest.param([0, 1, 2, 5, 400], 1 << 15, id="every-head-is-read"),
        pytest.param([0, 1, 2, 5, 400], 8, id="borders-by-bisection"),
        pytest.param([3, 4, 3, 5, 1, 6], 1 << 15, id="clock-set-back"),
        pytest.param([3, 4, 3, 5, 1, 6], 64, id="clock-set-back-by-bisection"),
    ],
)
def test_days_of_usage_equal_those_of_records(
    days: list[int], spread: int, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_module, "SPREAD_RECORDS", spread)
    path = store_of_days(tmp_path / "store", days, rng)
    with open_reader(path) as reader:
        usage = usage_of(reader, 0)
        expected = rows_by_reading(reader)
    assert len({day for _, day in expected}) == len(set(days))
    assert usage.rows == expected
    assert bool(usage.notes) is (days != sorted(days))


def test_usage_of_long_log_reads_few_heads(tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_module, "SPREAD_RECORDS", 16)
    path = store_of_days(tmp_path / "store", [0, 1], rng, messages_a_day=700)
    places: list[int] = []
    read = store_days.StoreDays._read

    def counting(days: store_days.StoreDays, place: int) -> bytes:
        places.append(place)
        return read(days, place)

    monkeypatch.setattr(store_days.StoreDays, "_read", counting)
    with open_reader(path) as reader:
        files = len(reader.log.queue.files)
        usage = usage_of(reader, 0)
        assert usage.rows == rows_by_reading(reader)
    assert len(places) < files + 16 + 60
    assert len(set(places)) == len(places)


def damaged_usage(path: Path, slot: int, raw: bytes) -> Usage:
    file = min((path / "consumequeue" / "orders" / "0").iterdir())
    with file.open("r+b") as opened:
        opened.seek(slot * 20)
        opened.write(raw)
    with StoreReader.open(path, SMALL, given=GEOMETRY_KEYS, trusts_writer=True, skips_lost=True) as reader:
        return usage_of(reader, 0)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(bytes(20), id="unwritten"),
        pytest.param((1 << 40).to_bytes(8) + (100).to_bytes(4) + bytes(8), id="behind-the-log"),
        pytest.param(bytes(8) + (100).to_bytes(4) + bytes(8), id="place-of-an-earlier-message"),
        pytest.param((-1).to_bytes(8, signed=True) + (100).to_bytes(4) + bytes(8), id="negative"),
    ],
)
def test_damaged_unit_is_named_and_not_counted(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(RealFileSystem(), path) as store:
        store.put_batch([Message("orders", b"x" * 50, queue_id=0) for _ in range(200)])
        await_dispatch(store)
    usage = damaged_usage(path, 7, raw)  # in a file before the last three, which opening does not read
    assert usage.messages == 199
    (problem,) = usage.problems
    assert "1 unit of topic orders, queue 0, offsets 7 to 7" in problem


def test_topic_without_messages_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(RealFileSystem(), path) as store:
        store.put_batch([Message("orders", b"x") for _ in range(3)])
        await_dispatch(store)
    (path / "consumequeue" / "idle" / "0").mkdir(parents=True)
    with open_reader(path) as reader:
        usage = usage_of(reader, 0)
    assert usage.topics == ["idle", "orders"]
    assert {topic for topic, _ in usage.rows} == {"orders"}


def test_rate_and_full_disk_are_extrapolated_from_last_week(tmp_path: Path, rng: random.Random) -> None:
    path = store_of_days(tmp_path / "store", list(range(20)), rng, messages_a_day=20)
    now_ms = NOON_MS + 19 * DAY_MS
    with open_reader(path) as reader:
        growth = usage_of(reader, 0).growth
        assert growth is not None
        assert (growth.begin_ms, growth.end_ms) == (now_ms - 7 * DAY_MS, now_ms)
        week = [message for message in reader.messages() if message.store_timestamp_ms >= growth.begin_ms]
        begin = min(message.phy_offset for message in week)
        assert abs(reader.max_phy_offset - begin - growth.log_bytes) < 4000  # a record that is in no queue
        outlook = disk_outlook(reader, growth, now_ms, RealFileSystem())
    assert outlook is not None
    assert outlook.bytes_a_day == pytest.approx((growth.log_bytes + 20 * growth.messages) / 7, rel=0.01)
    if outlook.full_ms is not None:
        days = (outlook.full_ms - now_ms) / DAY_MS
        assert days == pytest.approx(outlook.free_bytes / outlook.bytes_a_day, rel=0.01)


def test_next_deletions_are_expired_files_at_deleteWhen_hour(tmp_path: Path, rng: random.Random) -> None:
    path = store_of_days(tmp_path / "store", [0, 1, 2], rng)
    config = replace(
        SMALL,
        delete_when="04;16",
        file_reserved_time_hours=48,
        disk_max_used_space_ratio=95,
        disk_space_clean_forcibly_ratio=99,
    )
    with open_reader(path) as reader:
        files = [file.path for file in reader.log.queue.files]
        now_ms = max(file.stat().st_mtime_ns for file in files) // 1_000_000
        deletions = list(next_deletions(RealFileSystem(), reader.paths, config, now_ms))
    assert [one.path for one in deletions] == files[:-1]
    for one in deletions:
        assert one.expires_ms == one.path.stat().st_mtime_ns // 1_000_000 + 48 * 3_600_000
        assert one.deleted_ms >= one.expires_ms
        assert datetime.fromtimestamp(one.deleted_ms / 1000).hour in (4, 16)
        assert one.deleted_ms - one.expires_ms <= 12 * 3_600_000
    assert datetime.fromtimestamp(NOON_MS / 1000, UTC).year == 2023
