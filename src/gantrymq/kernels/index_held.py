"""Compares the index file of a killed process with the log. Right entries are not written again.

The terms are those of :mod:`gantrymq.kernels.index`. An entry is right if its hash, offset and time are those of the
log. Whether the chains are right too is shown by one number, the *balance*: each entry adds the mark of (its slot, its
number), and each number in a slot or in an entry subtracts the mark of (that slot, that number). Numbers in an entry
are smaller than its own. So the balance is 0 exactly if each entry is referenced once, by its slot or by a newer entry
of its slot, which is the form of a chain. A mark is 64 bits that depend on a random seed, so a wrong file has a balance
of 0 with a probability of 2**-64.

A table of the heads of all slots would show the same, but it takes 20 MB, whose pages the system must allocate and
clear.
"""

from typing import Any

import numpy as np

from gantrymq.format.index import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE
from gantrymq.kernels.arrays import Bytes, Int32s, Int64s
from gantrymq.kernels.codes import INDEX_COUNT
from gantrymq.kernels.entries import same_bytes
from gantrymq.kernels.index import count_entry, room_for, slot_of, time_diff
from gantrymq.kernels.intrinsics import CACHE_LINE, copy, load_i32, load_i64, store_i32
from gantrymq.kernels.jit import helper, kernel

_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_HALF = np.uint64(32)


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
