"""Dispatch kernels against a plain loop over format.queue_entry."""

import random

import numpy as np
import pytest
from kernel_cases import NAMES, broken, golden_logs, random_log, seeds, with_properties

from gantrymq.format.properties import decode_properties
from gantrymq.format.queue_entry import QueueEntry, encode_entry, tags_code
from gantrymq.format.record import CheckCRC, check_record, decode_record
from gantrymq.format.stop_reason import StopReason
from gantrymq.kernels import codes
from gantrymq.kernels.api import assign_queues, encode_units, missing_units, scan, tags_codes
from gantrymq.kernels.arrays import Bytes, Int64s, int64s, new_columns, read_only
from gantrymq.kernels.queue_table import grow, new_table, queue_count, queue_of
from gantrymq.model.flags import is_consumable
from gantrymq.model.java import decode_utf8
from gantrymq.model.message import SCHEDULE_TOPIC

LEVELS = [1000, 5000, 10_000]


def plain_records(raw: bytes):
    """(topic bytes, message, raw properties) of each record."""
    buffer, position, found = memoryview(raw), 0, []
    while not isinstance(layout := check_record(buffer, position, len(raw), CheckCRC.OFF), StopReason):
        topic = bytes(buffer[position + layout.topic_at :][: layout.topic_length])
        properties = bytes(buffer[position + layout.properties_at :][: layout.properties_length])
        found.append((topic, decode_record(buffer, position, layout), properties))
        position += layout.size
    return found


def scanned(raw: bytes) -> tuple[Bytes, Int64s, int]:
    buf, columns = read_only(raw), new_columns(10_000)
    count, _, _ = scan(buf, 0, len(raw), len(raw), codes.CHECK_OFF, columns)
    return buf, columns, count


def assign_all(buf, columns, n, table):
    ordinals, done = np.full(n, -9, np.int64), 0
    while done < n:
        done, code, position = assign_queues(buf, columns, done, n, table, ordinals)
        if code == codes.STOP_TABLE_FULL:
            assert position == columns[codes.POS, done]
            table = grow(table)
    return ordinals, table


def plain_tags_codes(records, levels) -> list[int]:
    return [
        tags_code(decode_utf8(topic), decode_properties(properties), message.store_timestamp_ms, levels)
        for topic, message, properties in records
    ]


def assert_dispatches(raw: bytes, levels: list[int]) -> None:
    records = plain_records(raw)
    buf, columns, n = scanned(raw)
    assert n == len(records)
    ordinals, table = assign_all(buf, columns, n, new_table(4))
    known: dict[tuple[bytes, int], int] = {}
    expected = [
        known.setdefault((topic, message.queue_id), len(known)) if is_consumable(message.sys_flag) else -1
        for topic, message, _ in records
    ]
    assert ordinals.tolist() == expected
    assert [queue_of(table, i) for i in range(queue_count(table))] == list(known)
    found = np.full(n, -9, np.int64)
    tags_codes(buf, columns, n, int64s(levels), found)
    assert found.tolist() == plain_tags_codes(records, levels)
    assert_units(records, columns, n, ordinals, found, len(known))


def assert_units(records, columns, n, ordinals, found, queues) -> None:
    units, fields = np.zeros(20 * n, np.uint8), np.zeros((4, n), np.int64)
    group_start = np.full(queues + 1, -9, np.int64)
    total = encode_units(columns, n, ordinals, found, queues, units, fields, group_start)
    assert (group_start[0], group_start[queues]) == (0, total)
    for queue in range(queues):
        mine = [i for i in range(n) if ordinals[i] == queue]
        start, stop = group_start[queue], group_start[queue + 1]
        messages = [records[i][1] for i in mine]
        assert fields[:, start:stop].T.tolist() == [
            [message.queue_offset, message.phy_offset, message.size_bytes, message.store_timestamp_ms]
            for message in messages
        ]
        assert units[20 * start : 20 * stop].tobytes() == b"".join(
            encode_entry(QueueEntry(message.phy_offset, message.size_bytes, int(found[i])))
            for i, message in zip(mine, messages, strict=True)
        )


@seeds(20)
def test_dispatch_lists_missing_units(rng: random.Random) -> None:
    buf, columns, n = scanned(random_log(rng, 60))
    ordinals, table = assign_all(buf, columns, n, new_table())
    numbers = int64s([rng.choice([-1, 0, 1, 2]) for _ in range(queue_count(table))])
    ends = int64s([rng.choice([-1, *(columns[codes.PHY_OFFSET] + columns[codes.SIZE])[:n].tolist()]) for _ in range(3)])
    wanted = np.full(n + 3, -9, np.int64)
    last = missing_units(columns, n, ordinals, numbers, ends, wanted)
    expected = []
    for ordinal, offset, size in zip(ordinals, columns[codes.PHY_OFFSET], columns[codes.SIZE], strict=False):
        number = int(numbers[ordinal]) if ordinal >= 0 else -1
        expected.append(number if number >= 0 and offset + size > ends[number] else -1)
    assert wanted.tolist() == [*expected, -9, -9, -9]
    assert last == max((i for i, number in enumerate(expected) if number >= 0), default=-1)


@pytest.mark.parametrize("name", NAMES)
def test_units_of_golden_stores_equal_reference(name: str) -> None:
    for raw in golden_logs(name):
        assert_dispatches(raw, LEVELS)


@seeds(60)
def test_units_of_random_logs_equal_reference(rng: random.Random) -> None:
    assert_dispatches(random_log(rng, 60), rng.choice([LEVELS, [], [7]]))


@seeds(40)
def test_units_of_broken_logs_equal_reference(rng: random.Random) -> None:
    whole = random_log(rng, 12)
    for _ in range(20):
        assert_dispatches(broken(rng, whole), LEVELS)


@pytest.mark.parametrize("levels", [LEVELS, []])
@pytest.mark.parametrize("level", [b"9" * 5000, b"0" * 5000, b"0" * 5000 + b"2"])
def test_delay_level_of_many_digits_is_read(rng: random.Random, level: bytes, levels: list[int]) -> None:
    assert_dispatches(with_properties(rng, SCHEDULE_TOPIC.encode(), b"TAGS\x01a\x02DELAY\x01" + level), levels)


@pytest.mark.parametrize("level", [b"+5", b"+", b"+0", b"++5", b"-5", b"+-5", b"5+", "\u0665".encode()])
def test_delay_level_with_sign_is_read(rng: random.Random, level: bytes) -> None:
    assert_dispatches(with_properties(rng, SCHEDULE_TOPIC.encode(), b"TAGS\x01a\x02DELAY\x01" + level), LEVELS)


def test_queue_table_serves_several_buffers() -> None:
    rng = random.Random(11)
    table, known = new_table(2), {}
    for _ in range(20):
        raw = random_log(rng, 10)
        buf, columns, n = scanned(raw)
        ordinals, table = assign_all(buf, columns, n, table)
        for ordinal, (topic, message, _) in zip(ordinals.tolist(), plain_records(raw), strict=True):
            if is_consumable(message.sys_flag):
                assert ordinal == known.setdefault((topic, message.queue_id), len(known))
    assert [queue_of(table, i) for i in range(queue_count(table))] == list(known)
