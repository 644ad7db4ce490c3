"""Dispatch to consume queues: which queue each record of a column matrix enters, and the units to append.

``buf`` (uint8, read-only) and ``columns`` (see ``gantrymq.kernels.codes``) are the input and output of ``scan``. A
queue is a pair of topic (its bytes) and queue id. A :class:`QueueTable` numbers the queues in order of first appearance
and keeps their names, so that it serves any number of buffers.

Two kernels check runs of units (``gantrymq.format.queue_entry``) that a queue has: ``valid_units``, ``rising_units``.
Their ``start`` is the position of a unit, and a partial unit at the end of the range is not read.

Source: CommitLog.checkMessageAndReturnSize, ConsumeQueue.putMessagePositionInfo, recover and truncateDirtyLogicFiles,
MessageExtBrokerInner.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.queue_entry import BLANK_UNIT_SIZE, UNIT_SIZE, UNKNOWN_LEVEL_DELAY_MS
from gantrymq.kernels.arrays import Bytes, Int64s
from gantrymq.kernels.codes import (
    PHY_OFFSET,
    POS,
    PROPERTIES_AT,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECORDS_AHEAD,
    SIZE,
    STOP_DONE,
    STOP_TABLE_FULL,
    STORE_TIMESTAMP,
    SYS_FLAG,
    TOPIC_AT,
    TOPIC_LENGTH,
)
from gantrymq.kernels.entries import Spans, dispatch_properties, prefetch_entries, same_bytes
from gantrymq.kernels.intrinsics import copy, load_i32, load_i64, load_word, prefetch, store_i32, store_i64
from gantrymq.kernels.jit import helper, kernel, rare_helper
from gantrymq.kernels.queue_table import COUNT, POOLED, QueueTable
from gantrymq.kernels.text import hash_text, signed_hash
from gantrymq.model.flags import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE
from gantrymq.model.message import SCHEDULE_TOPIC

NO_QUEUE, NO_ROOM = -1, -2
_SCHEDULE_TOPIC = np.frombuffer(SCHEDULE_TOPIC.encode(), np.uint8)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(32)
_MANY = 1 << 40
_PLUS = ord("+")


@helper
def _hash_queue(buf: Bytes, at: int, length: int, queue_id: int) -> Any:
    code = (np.uint64(queue_id) << _FOLD ^ np.uint64(length)) * _MIX
    for i in range(0, length - 8, 8):
        code = (code ^ load_word(buf, at + i)) * _MIX
        code ^= code >> _FOLD
    # The last eight bytes, which may overlap. A record's head precedes each topic, so the load stays within the buffer.
    last = load_word(buf, at + length - 8)
    if length < 8:
        last = last >> np.uint64(64 - 8 * length) if length else np.uint64(0)
    code = (code ^ last) * _MIX
    return code ^ code >> _FOLD


@helper
def _find_queue(
    slots: Int64s,
    hashes: NDArray[np.uint64],
    queue_ids: Int64s,
    topic_at: Int64s,
    topic_length: Int64s,
    pool: Bytes,
    code: Any,
    buf: Bytes,
    at: int,
    length: int,
    queue_id: int,
) -> tuple[int, int]:
    """Return a queue's (ordinal, slot), or -1 and the slot for it if the table lacks it."""
    mask = slots.size - 1
    slot = np.int64(code) & mask
    while slots[slot]:
        ordinal = slots[slot] - 1
        if (
            hashes[ordinal] == code
            and queue_ids[ordinal] == queue_id
            and topic_length[ordinal] == length
            and same_bytes(pool, topic_at[ordinal], buf, at, length)
        ):
            return int(ordinal), int(slot)
        slot = slot + 1 & mask
    return -1, int(slot)


@rare_helper
def _add_queue(table: QueueTable, slot: int, code: Any, buf: Bytes, at: int, length: int, queue_id: int) -> int:
    """Give the next ordinal to a queue. Returns -1 if the table has no room."""
    ordinal, pooled = table.counts[COUNT], table.counts[POOLED]
    if ordinal == table.queue_ids.size or pooled + length > table.pool.size:
        return -1
    copy(table.pool, pooled, buf, at, length)
    table.slots[slot] = ordinal + 1
    table.hashes[ordinal] = code
    table.queue_ids[ordinal] = queue_id
    table.topic_at[ordinal] = pooled
    table.topic_length[ordinal] = length
    table.counts[COUNT] = ordinal + 1
    table.counts[POOLED] = pooled + length
    return int(ordinal)


@helper
def queue_of_record(buf: Bytes, columns: Int64s, i: int, table: QueueTable) -> int:
    """Return the ordinal of record i's queue, which may be a new one.

    Returns NO_QUEUE if it enters none (prepared, rollback), and NO_ROOM if the table must grow first.
    """
    transaction = columns[SYS_FLAG, i] & TRANSACTION_MASK
    if transaction not in (TRANSACTION_NONE, TRANSACTION_COMMIT):
        return NO_QUEUE
    slots, hashes, queue_ids, topic_at, topic_length, pool, _ = table
    at, length, queue_id = columns[TOPIC_AT, i], columns[TOPIC_LENGTH, i], columns[QUEUE_ID, i]
    code = _hash_queue(buf, at, length, queue_id)
    ordinal, slot = _find_queue(slots, hashes, queue_ids, topic_at, topic_length, pool, code, buf, at, length, queue_id)
    if ordinal < 0:
        ordinal = _add_queue(table, slot, code, buf, at, length, queue_id)
    return int(ordinal) if ordinal >= 0 else NO_ROOM


@kernel
def assign_queues(
    buf: Bytes, columns: Int64s, start: int, n: int, table: QueueTable, ordinals: Int64s
) -> tuple[int, int, int]:
    """Find the queue of records ``start`` to ``n``. Returns (done, stop code, stop position).

    ``ordinals[i]`` is the ordinal of record i's queue, or -1 if it enters none (prepared, rollback). ``done`` is n, or
    with STOP_TABLE_FULL the record to continue from with a larger table; the stop position is that record's.
    """
    for i in range(start, n):
        if i + RECORDS_AHEAD < n:
            prefetch(buf, columns[TOPIC_AT, i + RECORDS_AHEAD])
        ordinal = queue_of_record(buf, columns, i, table)
        if ordinal == NO_ROOM:
            return i, STOP_TABLE_FULL, columns[POS, i]
        ordinals[i] = ordinal
    return n, STOP_DONE, 0


@helper
def _level(buf: Bytes, start: int, stop: int) -> int:
    """Return the delay level in ``buf[start:stop]``: 0 if it has other characters than digits after an optional plus.

    The result is at most ``_MANY``.
    """
    level = 0
    for i in range(start + (start < stop and buf[start] == _PLUS), stop):
        digit = int(buf[i]) - 48
        if digit < 0 or digit > 9:
            return 0
        level = min(level * 10 + digit, _MANY)
    return level


@helper
def _deliver_time(level: int, store_timestamp: int, delay_levels_ms: Int64s) -> int:
    if delay_levels_ms.size == 0:
        return store_timestamp + UNKNOWN_LEVEL_DELAY_MS
    return int(store_timestamp + delay_levels_ms[min(level, delay_levels_ms.size) - 1])


@helper
def tags_code_of(buf: Bytes, columns: Int64s, i: int, spans: Spans, delay_levels_ms: Int64s) -> int:
    """Return ``format.queue_entry.tags_code`` of record i, whose properties are at ``spans``."""
    if spans.delay_end and columns[TOPIC_LENGTH, i] == _SCHEDULE_TOPIC.size:
        level = _level(buf, spans.delay, spans.delay_end)
        if level > 0 and same_bytes(buf, columns[TOPIC_AT, i], _SCHEDULE_TOPIC, 0, _SCHEDULE_TOPIC.size):
            return int(_deliver_time(level, columns[STORE_TIMESTAMP, i], delay_levels_ms))
    return int(signed_hash(hash_text(np.uint64(0), buf, spans.tags, spans.tags_end)))


@kernel
def tags_codes(buf: Bytes, columns: Int64s, n: int, delay_levels_ms: Int64s, codes: Int64s) -> None:
    """Set ``codes[i]``, for i below n, to ``format.queue_entry.tags_code`` of record i.

    ``delay_levels_ms[i]`` is the delay of level i + 1. Malformed UTF-8 counts as its decoded text.
    """
    for i in range(n):
        if i + RECORDS_AHEAD < n:
            prefetch_entries(buf, columns[PROPERTIES_AT, i + RECORDS_AHEAD])
        codes[i] = tags_code_of(buf, columns, i, dispatch_properties(buf, columns, i), delay_levels_ms)


@kernel
def missing_units(columns: Int64s, n: int, ordinals: Int64s, numbers: Int64s, ends: Int64s, wanted: Int64s) -> int:
    """Find which of n records have no unit yet. Returns the last of them, or -1.

    The queue of record i has the number ``numbers[ordinals[i]]``, or none if either is -1. It has the units of all
    records that end at or before ``ends[number]``. ``wanted[:n]`` gets the numbers, and -1 for a record that enters no
    queue or has its unit.
    """
    last = -1
    for i in range(n):
        number = numbers[ordinals[i]] if ordinals[i] >= 0 else NO_QUEUE
        if number >= 0 and columns[PHY_OFFSET, i] + columns[SIZE, i] <= ends[number]:
            number = NO_QUEUE
        wanted[i] = number
        if number >= 0:
            last = i
    return last


@kernel
def encode_units(
    columns: Int64s,
    n: int,
    ordinals: Int64s,
    codes: Int64s,
    queues: int,
    units: Bytes,
    fields: Int64s,
    group_start: Int64s,
) -> int:
    """Encode the units of n records, grouped by queue and, within a queue, in the order of the records.

    ``units`` (uint8, writable, 20 bytes each) gets the units. The rows of ``fields`` get their queue offsets, physical
    offsets, sizes and store timestamps. The units of queue q are ``group_start[q]`` to ``group_start[q + 1]``.
    ``queues`` is above every ordinal, and ``group_start`` has ``queues`` + 1 elements. Returns the number of units:
    records of ordinal -1 have none.
    """
    group_start[:] = 0
    for i in range(n):
        if ordinals[i] >= 0:
            group_start[ordinals[i] + 1] += 1
    for queue in range(queues):
        group_start[queue + 1] += group_start[queue]
    for i in range(n):
        if ordinals[i] < 0:
            continue
        slot = group_start[ordinals[i]]
        group_start[ordinals[i]] = slot + 1  # each start moves on to the start of the next queue
        store_i64(units, slot * UNIT_SIZE, columns[PHY_OFFSET, i])
        store_i32(units, slot * UNIT_SIZE + 8, columns[SIZE, i])
        store_i64(units, slot * UNIT_SIZE + 12, codes[i])
        fields[0, slot] = columns[QUEUE_OFFSET, i]
        fields[1, slot] = columns[PHY_OFFSET, i]
        fields[2, slot] = columns[SIZE, i]
        fields[3, slot] = columns[STORE_TIMESTAMP, i]
    for queue in range(queues, 0, -1):
        group_start[queue] = group_start[queue - 1]
    group_start[0] = 0
    return int(group_start[queues])


@kernel
def valid_units(buf: Bytes, start: int, stop: int, phy_offset: int) -> int:
    """Return how many bytes from ``start`` hold valid units that point below ``phy_offset``.

    A unit is valid if its phyOffset is not negative and its size is positive.
    """
    at = start
    while at + UNIT_SIZE <= stop:
        offset, size = load_i64(buf, at), load_i32(buf, at + 8)
        if offset < 0 or size <= 0 or offset >= phy_offset:
            break
        at += UNIT_SIZE
    return at - start


@kernel
def rising_units(buf: Bytes, start: int, stop: int, highest: int, limit: int) -> tuple[int, int]:
    """Return how many bytes hold units that point to rising offsets below ``limit``, and the last such offset.

    Pre-blanks count whatever their offset. The first offset must be above ``highest``. The next run continues from the
    result.
    """
    at = start
    while at + UNIT_SIZE <= stop:
        offset, size = load_i64(buf, at), load_i32(buf, at + 8)
        if size != BLANK_UNIT_SIZE:
            if size <= 0 or offset <= highest or offset >= limit:
                break
            highest = offset
        at += UNIT_SIZE
    return at - start, highest
