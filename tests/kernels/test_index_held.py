"""An index file in doubt becomes what a fresh one would be, and stays as it is where it is that already."""

import random
import struct
from collections.abc import Callable

import numpy as np
import pytest
from kernel_cases import broken, seeds
from numpy.typing import NDArray
from test_index import PlainIndexFile, filled, numbers

from gantrymq.format.index import ENTRY_SIZE, HEADER_SIZE, decode_entry
from gantrymq.kernels.arrays import int64s
from gantrymq.kernels.index import index_balance
from gantrymq.store.index import index_file
from gantrymq.store.index.index_file import IndexRevalidator
from gantrymq.store.log.record_batch import IndexEntries

STORED_MS = 1_700_000_000_000
Entries = list[tuple[int, int]]  # hash and place


def held_in(plain: PlainIndexFile) -> Entries:
    count = plain.header.index_count
    entries = [decode_entry(bytes(plain.raw), plain.entry_at(number)) for number in range(1, count)]
    return [(entry.key_hash, entry.phy_offset) for entry in entries]


def made_of(slots: int, entries: int, said: Entries) -> PlainIndexFile:
    fresh = PlainIndexFile(slots, entries)
    for code, offset in said:
        fresh.put(code, offset, STORED_MS)
    return fresh


def confirmed(raw: bytes, held: int, fresh: PlainIndexFile, said: Entries, parts: int) -> tuple[bytes, int, list[int]]:
    """What ``raw`` becomes by a log that says ``said``: (its bytes, how many entries of those it had, the numbers)."""
    file = np.frombuffer(bytearray(raw), np.uint8)
    old = IndexRevalidator(file, fresh.slots, fresh.entries, held)
    header = int64s(numbers(PlainIndexFile(fresh.slots, fresh.entries).header))
    codes, offsets = int64s([code for code, _ in said]), int64s([offset for _, offset in said])
    hashes, *rest = IndexEntries.of_each(codes, offsets, int64s([STORED_MS] * len(said)))
    done = 0
    for stop in [*range(0, len(said), max(len(said) // parts, 1)), len(said)]:
        if done < stop:
            done += old.confirm(header, IndexEntries(hashes[:stop], *rest), done)
    old.end(header)
    return file.tobytes(), done, header.tolist()


@seeds(80)
def test_revalidated_index_file_equals_new_file(rng: random.Random) -> None:
    slots, entries = rng.choice([1, 3, 50]), rng.choice([2, 30, 100])
    plain, _, _, _ = filled(rng, slots, entries, rng.choice([0, 1, 20, 110]))
    said = held_in(plain)
    was = made_of(slots, entries, said)
    raw = rng.choice([bytes(was.raw), broken(rng, bytes(was.raw)).ljust(len(was.raw), b"\0")])
    said = said[: rng.randrange(len(said) + 1)] + [(i, i) for i in range(rng.randrange(3))]
    left, done, header = confirmed(raw, entries, was, said, rng.choice([1, 3]))
    fresh = made_of(slots, entries, said[:done])
    assert left[HEADER_SIZE : HEADER_SIZE + 4 * slots] == bytes(fresh.raw)[HEADER_SIZE : HEADER_SIZE + 4 * slots]
    first = HEADER_SIZE + 4 * slots + ENTRY_SIZE  # nobody writes entry 0
    assert left[first:] == bytes(fresh.raw)[first:]
    assert header == numbers(fresh.header)


@seeds(20)
def test_a_whole_file_is_never_repaired(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of all slots is what this is to spare, in the file that a kill leaves: the log goes on behind it."""
    monkeypatch.setattr(index_file, "index_repair", lambda *_: pytest.fail("repaired"))
    slots = rng.choice([1, 3, 50])
    plain, _, _, _ = filled(rng, slots, 100, rng.choice([0, 1, 20, 90]))
    said = held_in(plain)
    was = made_of(slots, 100, said)
    more = [(rng.randrange(99), 10**9 + i) for i in range(3)]
    left, done, _ = confirmed(bytes(was.raw), was.header.index_count, was, said + more, 2)
    assert done == len(said)
    assert left == bytes(was.raw)


def links(plain: PlainIndexFile) -> list[int]:
    """Where the numbers of entries stand: in slots and in entries."""
    slots = [HEADER_SIZE + 4 * slot for slot in range(plain.slots)]
    return slots + [plain.entry_at(number) + 16 for number in range(1, plain.header.index_count)]


def another_number(rng: random.Random, raw: bytearray, at: list[int]) -> None:
    place = rng.choice(at)
    wrong = struct.unpack_from(">i", raw, place)[0]
    while wrong == struct.unpack_from(">i", raw, place)[0]:
        wrong = rng.choice([0, -1, rng.randrange(1, 40), 2**31 - 1])
    struct.pack_into(">i", raw, place, wrong)


def swapped(rng: random.Random, raw: bytearray, at: list[int]) -> None:
    one, other = rng.sample(at, 2)
    raw[one : one + 4], raw[other : other + 4] = raw[other : other + 4], raw[one : one + 4]


def a_circle(rng: random.Random, raw: bytearray, at: list[int]) -> None:
    """The last two links name each other's entries, as if one could be in front of both."""
    count = len(at) - 3
    struct.pack_into(">i", raw, at[-1], count - 1)
    struct.pack_into(">i", raw, at[-2], count)


@pytest.mark.parametrize("damage", [another_number, swapped, a_circle])
@seeds(60)
def test_revalidation_removes_wrong_links(
    rng: random.Random, damage: Callable[[random.Random, bytearray, list[int]], None]
) -> None:
    said = [(rng.randrange(12), 100 * i) for i in range(30)]
    was = made_of(3, 40, said)
    raw = bytearray(was.raw)
    damage(rng, raw, links(was))
    left, done, header = confirmed(bytes(raw), was.header.index_count, was, said, 1)
    fresh = made_of(3, 40, said[:done])
    assert left[HEADER_SIZE:] == bytes(fresh.raw)[HEADER_SIZE:]
    assert header == numbers(fresh.header)


def test_checksum_depends_on_its_seed() -> None:
    """What one process takes for right by chance the next one does not."""
    was = made_of(3, 40, [(i, i) for i in range(20)])
    file: NDArray[np.uint8] = np.frombuffer(bytes(was.raw), np.uint8).copy()
    balances = {index_balance(file, 3, seed) for seed in range(50)}
    assert len(balances) == 50
