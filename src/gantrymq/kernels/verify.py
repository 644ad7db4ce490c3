"""Checks that ``verify`` makes of every byte: where records continue after damage, and whether an index file is right.

``find_record`` finds the next position after damage at which a record may begin. ``index_chains`` replays an index
file's entries and compares its chains and slots with the result. ``index_compare`` compares entries with the keys of
the records that they point to.

Source: CommitLog.checkMessageAndReturnSize, IndexFile.putKey.
"""

from gantrymq.format.index import ENTRY_SIZE, HEADER_SIZE, MAX_TIME_DIFF_S, SLOT_SIZE
from gantrymq.format.record import MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE, PHY_OFFSET_AT
from gantrymq.kernels.arrays import Bytes, Int64s
from gantrymq.kernels.codes import (
    CHAIN_BROKEN,
    CHAIN_LOOP,
    CHAIN_SLOT,
    ENTRY_HASH,
    ENTRY_STRAY,
    ENTRY_TIME,
    SURELY_BEHIND,
)
from gantrymq.kernels.intrinsics import load_i32, load_i64
from gantrymq.kernels.jit import helper, kernel

_MAGIC_V1, _MAGIC_V2 = MAGIC_V1 - 2**32, MAGIC_V2 - 2**32
_FIRST_MAGIC_BYTE = MAGIC_V1 >> 24
_HEAD_BYTES = PHY_OFFSET_AT + 8


@kernel
def find_record(buf: Bytes, start: int, stop: int, base: int) -> int:
    """Return the first position from ``start`` on at which a record may begin, or ``stop`` if there is none.

    ``base`` is the physical offset of the buffer's first byte. Checked are the magic code, the minimum size, and that
    the record has its own physical offset; the caller must check the rest. A position whose head of 36 bytes is not
    entirely within the buffer is not examined.
    """
    for position in range(start, min(stop, buf.size - _HEAD_BYTES + 1)):
        if buf[position + 4] != _FIRST_MAGIC_BYTE:
            continue
        if load_i32(buf, position + 4) not in (_MAGIC_V1, _MAGIC_V2):
            continue
        if load_i64(buf, position + PHY_OFFSET_AT) == base + position and load_i32(buf, position) >= MIN_RECORD_SIZE:
            return position
    return stop


@helper
def _note(findings: Int64s, count: int, number: int, code: int) -> int:
    if count < findings.shape[1]:
        findings[0, count] = number
        findings[1, count] = code
    return count + 1


@kernel
def index_chains(file: Bytes, slots: int, count: int, newest: Int64s, findings: Int64s) -> tuple[int, int]:
    """Compare the chains and slots of an index file with those that its entries 1 to ``count`` - 1 must have produced.

    ``file`` holds all of them; ``newest`` is working memory of ``slots`` zeros. Returns (number of errors, used slots).
    As far as there is room, ``found[0]`` gets the number of each wrong entry or slot and ``found[1]`` its CHAIN code.
    """
    first_entry = HEADER_SIZE + slots * SLOT_SIZE
    wrong, used = 0, 0
    for number in range(1, count):
        at = first_entry + number * ENTRY_SIZE
        code, previous = load_i32(file, at), load_i32(file, at + 16)
        if code < 0:
            wrong = _note(findings, wrong, number, CHAIN_BROKEN)
            continue
        slot = code % slots
        expected = newest[slot]
        used += 1 if expected == 0 else 0
        if previous != expected:
            wrong = _note(findings, wrong, number, CHAIN_LOOP if previous >= number else CHAIN_BROKEN)
        newest[slot] = number
    for slot in range(slots):
        if load_i32(file, HEADER_SIZE + slot * SLOT_SIZE) != newest[slot]:
            wrong = _note(findings, wrong, slot, CHAIN_SLOT)
    return wrong, used


@helper
def _lies_behind(entries: Bytes, at: int, stop: int, end_offset: int) -> bool:
    """Whether this entry and the next ones all point to or past ``end_offset``. A single one may be damaged."""
    for ahead in range(at, min(at + SURELY_BEHIND * ENTRY_SIZE, stop), ENTRY_SIZE):
        if load_i64(entries, ahead + 4) < end_offset:
            return False
    return True


@helper
def _first_of(phy_offsets: Int64s, n: int, guess: int, phy_offset: int) -> int:
    """Return the index of the first of the ascending ``phy_offsets[:n]`` that is not below ``phy_offset``."""
    if guess < n and phy_offsets[guess] == phy_offset and (guess == 0 or phy_offsets[guess - 1] < phy_offset):
        return guess
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if phy_offsets[middle] < phy_offset:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def index_compare(
    entries: Bytes,
    start: int,
    stop: int,
    hashes: Int64s,
    phy_offsets: Int64s,
    store_timestamps: Int64s,
    n: int,
    end_offset: int,
    begin_timestamp: int,
    seen: Bytes,
    findings: Int64s,
) -> tuple[int, int]:
    """Compare the entries in ``entries[start:stop]`` with the keys of records. Returns (bytes read, number of errors).

    ``hashes``, ``phy_offsets`` (ascending) and ``store_timestamps`` are the ``n`` expected entries of a part of the log
    that ends at ``end_offset``. Reading stops at entries that point past it. ``seen[k]`` (uint8) is set to 1 if
    expected entry k exists; duplicates are allowed. ``begin_timestamp`` is that of the file, or negative if times are
    not to be compared. ``found[0]`` gets the position of each wrong entry and ``found[1]`` its ENTRY code; it has room
    for all entries.
    """
    at, wrong, guess, group = start, 0, 0, -1
    while at + ENTRY_SIZE <= stop:
        phy_offset = load_i64(entries, at + 4)
        if phy_offset >= end_offset and _lies_behind(entries, at, stop, end_offset):
            break
        first = group if group >= 0 and phy_offsets[group] == phy_offset else -1
        if first < 0:
            first = _first_of(phy_offsets, n, guess, phy_offset)
        if first == n or phy_offsets[first] != phy_offset:
            wrong = _note(findings, wrong, at, ENTRY_STRAY)
        else:
            group, code, k = first, load_i32(entries, at), first
            match = -1
            while k < n and phy_offsets[k] == phy_offset:
                if hashes[k] == code and (match < 0 or not seen[k]):
                    match = k
                    if not seen[k]:
                        break
                k += 1
            if match < 0:
                wrong = _note(findings, wrong, at, ENTRY_HASH)
            else:
                seen[match] = 1
                guess = match + 1
                passed = max(store_timestamps[match] - begin_timestamp, 0) // 1000 if begin_timestamp > 0 else 0
                if begin_timestamp >= 0 and load_i32(entries, at + 12) != min(passed, MAX_TIME_DIFF_S):
                    wrong = _note(findings, wrong, at, ENTRY_TIME)
        at += ENTRY_SIZE
    return at - start, wrong
