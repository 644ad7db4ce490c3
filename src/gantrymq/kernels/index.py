"""Index files: the key hashes of records, the hash tables of the files, and their comparison with the log.

``file`` is a uint8 view of a whole index file; ``slots`` and ``entries`` are its geometry (maxHashSlotNum,
maxIndexNum). ``header`` is an int64 array of the six numbers of its header, which ``codes`` names.
``gantrymq.format.index`` describes the bytes.

The index file of a killed process is compared with the log, so that right entries are not written again. An entry is
right if its hash, offset and time are those of the log. Whether the chains are right too is shown by one number, the
*balance*: each entry adds the mark of (its slot, its number), and each number in a slot or in an entry subtracts the
mark of (that slot, that number). Numbers in an entry are smaller than its own. So the balance is 0 exactly if each
entry is referenced once, by its slot or by a newer entry of its slot, which is the form of a chain. A mark is 64 bits
that depend on a random seed, so a wrong file has a balance of 0 with a probability of 2**-64. A table of the heads of
all slots would show the same, but it takes 20 MB, whose pages the system must allocate and clear.

Source: IndexFile.putKey and selectPhyOffset, IndexService.buildIndex.
"""

from typing import Any, NamedTuple

import numpy as np

from gantrymq.format.index import ENTRY_SIZE, HEADER_SIZE, MAX_TIME_DIFF_S, SLOT_SIZE
from gantrymq.kernels.arrays import Bytes, Int32s, Int64s
from gantrymq.kernels.codes import (
    BEGIN_PHY_OFFSET,
    BEGIN_TIMESTAMP,
    END_PHY_OFFSET,
    END_TIMESTAMP,
    INDEX_COUNT,
    INDEX_PAGE_BYTES,
    PROPERTIES_AT,
    RECORDS_AHEAD,
    SLOT_COUNT,
    SYS_FLAG,
    TOPIC_AT,
    TOPIC_LENGTH,
)
from gantrymq.kernels.entries import Spans, dispatch_properties, find_byte, prefetch_entries, same_bytes
from gantrymq.kernels.intrinsics import CACHE_LINE, copy, load_i32, load_i64, prefetch, store_i32, store_i64
from gantrymq.kernels.jit import helper, kernel
from gantrymq.kernels.text import hash_ascii, hash_text, signed_hash
from gantrymq.model.flags import TRANSACTION_MASK, TRANSACTION_ROLLBACK

_KEY_SEPARATOR = np.frombuffer(b"#", np.uint8)
_TAG_PREFIX = np.frombuffer(b"T#", np.uint8)
_SPACE = 0x20
_AHEAD = 24  # how many entries ahead a slot is prefetched
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_HALF = np.uint64(32)


@helper
def _positive(code: Any) -> int:
    """IndexFile.indexKeyHashMethod: the absolute value of a hash, or 0 if that overflows."""
    number = abs(int(signed_hash(code)))
    return 0 if number == 1 << 31 else number


@helper
def hash_record(buf: Bytes, spans: Spans, prefix: Any, with_tags: bool, hashes: Int32s, count: int) -> int:
    """Write the key hashes of a record with these properties to ``hashes[count:]``. They continue from ``prefix``.

    Returns the new count, or -1 if they do not fit.
    """
    if spans.unique_end:
        if count == hashes.size:
            return -1
        hashes[count] = _positive(hash_text(prefix, buf, spans.unique, spans.unique_end))
        count += 1
    key = spans.keys
    while key < spans.keys_end:
        end = find_byte(buf, key, spans.keys_end, _SPACE)
        if end > key:
            if count == hashes.size:
                return -1
            hashes[count] = _positive(hash_text(prefix, buf, key, end))
            count += 1
        key = end + 1
    if spans.tags_end and with_tags:
        if count == hashes.size:
            return -1
        hashes[count] = _positive(hash_text(hash_ascii(prefix, _TAG_PREFIX, 0, 2), buf, spans.tags, spans.tags_end))
        count += 1
    return count


class HashedTopic(NamedTuple):
    """A topic in a buffer, and the hash of the topic and a number sign, from which the hashes of its keys continue."""

    at: int
    length: int
    prefix: Any


@helper
def no_topic() -> HashedTopic:
    """Return a value that equals no record's topic."""
    return HashedTopic(0, -1, np.uint64(0))


@helper
def hashed_topic(buf: Bytes, columns: Int64s, i: int, before: HashedTopic) -> HashedTopic:
    """Return the topic of record i. Usually it is that of the record before, whose hash is known."""
    at, length = columns[TOPIC_AT, i], columns[TOPIC_LENGTH, i]
    if length == before.length and same_bytes(buf, at, buf, before.at, length):
        return HashedTopic(at, length, before.prefix)
    return HashedTopic(at, length, hash_ascii(hash_text(np.uint64(0), buf, at, at + length), _KEY_SEPARATOR, 0, 1))


@kernel
def index_hashes(
    buf: Bytes, columns: Int64s, start: int, n: int, with_tags: int, hashes: Int32s, record_of: Int32s
) -> tuple[int, int]:
    """Compute the key hashes of records ``start`` to ``n``. Returns (count, done).

    ``hashes[:count]`` (int32) are the key hashes (0 .. 2**31 - 1) in RocketMQ's order: for each record UNIQ_KEY, every
    key, and with ``with_tags`` (0 or 1) T#tags; rollback records have none. ``record_of[:count]`` (int32) are the
    records they belong to. ``done`` is n, or the record to continue from if ``hashes`` was full; room for
    ``MAX_HASHES_OF_RECORD`` is always enough for one record. Malformed UTF-8 counts as its decoded text.
    """
    count, topic = 0, no_topic()
    for i in range(start, n):
        if i + RECORDS_AHEAD < n:
            prefetch_entries(buf, columns[PROPERTIES_AT, i + RECORDS_AHEAD])
        if columns[SYS_FLAG, i] & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            continue
        topic = hashed_topic(buf, columns, i, topic)
        spans = dispatch_properties(buf, columns, i)
        after = hash_record(buf, spans, topic.prefix, with_tags != 0, hashes, count)
        if after < 0:
            return count, i
        record_of[count:after] = i
        count = after
    return count, n


@helper
def time_diff(header: Int64s, store_timestamp: int) -> int:
    """Return an entry's time: the seconds that it is newer than the file's first entry."""
    begin_timestamp = header[BEGIN_TIMESTAMP]
    if begin_timestamp <= 0:
        return 0
    return int(min(max(store_timestamp - begin_timestamp, 0) // 1000, MAX_TIME_DIFF_S))


@helper
def slot_of(key_hash: int, slots: int) -> int:
    """Return ``key_hash % slots``. Both fit into 31 bits, and a 32-bit division takes half the time."""
    return int(np.uint32(key_hash) % np.uint32(slots))


@helper
def count_entry(header: Int64s, begins_slot: bool, phy_offset: int, store_timestamp: int) -> None:
    """Update ``header`` for one more entry."""
    count = header[INDEX_COUNT]
    header[SLOT_COUNT] += begins_slot
    if count <= 1:
        header[BEGIN_PHY_OFFSET] = phy_offset
        header[BEGIN_TIMESTAMP] = store_timestamp
    header[INDEX_COUNT] = count + 1
    header[END_PHY_OFFSET] = phy_offset
    header[END_TIMESTAMP] = store_timestamp


@helper
def room_for(header: Int64s, entries: int, start: int, stop: int) -> int:
    """Return the end of those entries from ``start`` to ``stop`` that fit into a file of ``entries`` entries."""
    return int(min(stop, start + max(entries - header[INDEX_COUNT], 0)))


@kernel
def index_put(
    file: Bytes,
    slots: int,
    body: Bytes,
    body_at: int,
    entries: int,
    header: Int64s,
    hashes: Int32s,
    records: Int32s,
    phy_offsets: Int64s,
    store_timestamps: Int64s,
    start: int,
    stop: int,
) -> int:
    """Put entries ``start`` to ``stop`` until the file is full. Returns how many were put.

    Entry i has the key hash ``hashes[i]`` and belongs to record ``records[i]`` (both int32), whose physical offset is
    ``phy_offsets[records[i]]`` and whose store time (ms) is ``store_timestamps[records[i]]`` (both int64). ``file`` is
    writable and contains at least the slots. Entries are written to ``body``, which is the same file or a part of it:
    entry 0 would begin at ``body_at`` there. ``header`` is updated; the caller must write its bytes to the file.
    """
    stop = room_for(header, entries, start, stop)
    for i in range(start, stop):
        if i + _AHEAD < stop:
            prefetch(file, HEADER_SIZE + slot_of(hashes[i + _AHEAD], slots) * SLOT_SIZE)
        count = header[INDEX_COUNT]
        slot_at = HEADER_SIZE + slot_of(hashes[i], slots) * SLOT_SIZE
        previous = load_i32(file, slot_at)
        if previous <= 0 or previous > count:
            previous = 0
        at, record = body_at + count * ENTRY_SIZE, records[i]
        store_i32(body, at, hashes[i])
        store_i64(body, at + 4, phy_offsets[record])
        store_i32(body, at + 12, time_diff(header, store_timestamps[record]))
        store_i32(body, at + 16, previous)
        store_i32(file, slot_at, count)
        count_entry(header, previous == 0, phy_offsets[record], store_timestamps[record])
    return int(max(stop - start, 0))


@kernel
def index_select(
    file: Bytes,
    slots: int,
    entries: int,
    header: Int64s,
    key_hash: int,
    begin_ms: int,
    end_ms: int,
    max_n: int,
    out: Int64s,
    pages: Bytes,
    state: Int64s,
) -> int:
    """Write the phyOffsets found under ``key_hash`` to ``out``, newest first, at most ``max_n``. Returns -1 when done.

    ``pages`` has a 1 for each page of the file that is in memory. If another page is needed, its number is returned;
    load it and call again with the same ``state``. ``state`` (int64, zeros at first) has the count found, the entry
    reached and the steps taken.

    The loop and its exits are those of selectPhyOffset. A number that points out of the file also ends it, and so do
    more steps than the file has entries, because the chains of a damaged file may be circular.
    """
    first_entry = HEADER_SIZE + slots * SLOT_SIZE
    count, begin_timestamp = header[INDEX_COUNT], header[BEGIN_TIMESTAMP]
    max_n = min(max_n, out.size)
    match_count, number, steps = state[0], state[1], state[2]
    if number == 0:
        at = HEADER_SIZE + key_hash % slots * SLOT_SIZE
        if pages[at // INDEX_PAGE_BYTES] == 0:
            return int(at // INDEX_PAGE_BYTES)
        number = load_i32(file, at)
        if number <= 0 or number > count or count <= 1:
            return -1
    while steps < entries:
        at = first_entry + number * ENTRY_SIZE
        if match_count >= max_n or at + ENTRY_SIZE > file.size:
            break
        page, last_page = at // INDEX_PAGE_BYTES, (at + ENTRY_SIZE - 1) // INDEX_PAGE_BYTES
        if pages[page] == 0 or pages[last_page] == 0:
            state[0], state[1], state[2] = match_count, number, steps
            return int(page if pages[page] == 0 else last_page)
        steps += 1
        time_diff = load_i32(file, at + 12)
        if time_diff < 0:
            break
        time = begin_timestamp + time_diff * 1000
        if load_i32(file, at) == key_hash and begin_ms <= time <= end_ms:
            out[match_count] = load_i64(file, at + 4)
            match_count += 1
        previous = load_i32(file, at + 16)
        if previous <= 0 or previous > count or previous == number or time < begin_ms:
            break
        number = previous
    state[0] = match_count
    return -1


@helper
def _mark(seed: int, slot: int, number: int) -> Any:
    """Return 64 bits that are unpredictable without ``seed`` (the last steps of SplitMix64)."""
    mixed = (np.uint64(slot) << _HALF | np.uint64(np.uint32(number))) + np.uint64(seed)
    mixed = (mixed ^ (mixed >> _SHIFTS[0])) * _FACTORS[0]
    mixed = (mixed ^ (mixed >> _SHIFTS[1])) * _FACTORS[1]
    return mixed ^ (mixed >> _SHIFTS[2])


@kernel
def index_balance(file: Bytes, slots: int, seed: int) -> int:
    """Return the balance of a file before any entry is confirmed: what its slots subtract."""
    balance = np.uint64(0)
    for slot in range(slots):
        number = load_i32(file, HEADER_SIZE + slot * SLOT_SIZE)
        if number:
            balance -= _mark(seed, slot, number)
    return int(np.int64(balance))


@kernel
def index_confirm(
    file: Bytes,
    slots: int,
    entries: int,
    header: Int64s,
    hashes: Int32s,
    records: Int32s,
    phy_offsets: Int64s,
    store_timestamps: Int64s,
    start: int,
    stop: int,
    seed: int,
    balance: int,
) -> tuple[int, int]:
    """Compare entries ``start`` to ``stop`` (see ``index_put``) with the next ones in the file, by ``header``.

    Returns how many are there, up to the first difference or the end of the file, and the new balance. ``header`` is
    updated as in ``index_put``.
    """
    first_entry = HEADER_SIZE + slots * SLOT_SIZE
    stop = room_for(header, entries, start, stop)
    left = np.uint64(balance)
    for i in range(start, stop):
        number = header[INDEX_COUNT]
        at, record = first_entry + number * ENTRY_SIZE, records[i]
        previous = load_i32(file, at + 16)
        if (
            load_i32(file, at) != hashes[i]
            or load_i64(file, at + 4) != phy_offsets[record]
            or load_i32(file, at + 12) != time_diff(header, store_timestamps[record])
            or not 0 <= previous < number
        ):
            return i - start, int(np.int64(left))
        slot = slot_of(hashes[i], slots)
        left += _mark(seed, slot, number)
        if previous:
            left -= _mark(seed, slot, previous)
        count_entry(header, previous == 0, phy_offsets[record], store_timestamps[record])
    return int(max(stop - start, 0)), int(np.int64(left))


@helper
def _settle(file: Bytes, table: Bytes, size: int) -> None:
    """Copy the slots of ``table`` to ``file`` where they differ, one cache line at a time. No line crosses a page.

    Word by word, LLVM would make masked stores. One with an empty mask costs the processor a hundred cycles and more:
    six times as long as all the rest.
    """
    for line in range(0, HEADER_SIZE + size, CACHE_LINE):
        at = max(line - HEADER_SIZE, 0)
        length = min(line + CACHE_LINE - HEADER_SIZE, size) - at
        if not same_bytes(file, HEADER_SIZE + at, table, at, length):
            copy(file, HEADER_SIZE + at, table, at, length)


@kernel
def index_repair(file: Bytes, table: Bytes, slots: int, count: int) -> int:
    """Rebuild the chains of the entries below ``count`` from their hashes. Returns how many slots they use.

    ``table`` is working memory of 4 zero bytes for each slot. Only differences are written.
    """
    used = 0
    for number in range(1, count):
        at = HEADER_SIZE + slots * SLOT_SIZE + number * ENTRY_SIZE
        slot_at = slot_of(load_i32(file, at), slots) * SLOT_SIZE
        previous = load_i32(table, slot_at)
        used += previous == 0
        if load_i32(file, at + 16) != previous:
            store_i32(file, at + 16, previous)
        store_i32(table, slot_at, number)
    _settle(file, table, slots * SLOT_SIZE)
    return used


@kernel
def index_clear(file: Bytes, slots: int, first: int, last: int) -> None:
    """Zero the entries ``first`` to ``last``. Zeros are not written again."""
    entries_at = HEADER_SIZE + slots * SLOT_SIZE
    for at in range(entries_at + first * ENTRY_SIZE, entries_at + last * ENTRY_SIZE, SLOT_SIZE):
        if load_i32(file, at) != 0:
            store_i32(file, at, 0)
