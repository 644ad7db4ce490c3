"""A chain of records and the search behind damage find the same in windows of any size."""

from __future__ import annotations

import random

import numpy as np
import pytest
from kernel_cases import broken, random_record, seeds

from gantrymq.format.record import PHY_OFFSET_AT, CheckCRC, Layout, check_record, encode_blank
from gantrymq.format.stop_reason import StopReason
from gantrymq.kernels import codes
from gantrymq.kernels.arrays import read_only
from gantrymq.store.log import record_chain
from gantrymq.store.log.record_batch import RecordScan
from gantrymq.store.log.record_chain import RecordChain, Window, next_record

BASE = 1 << 20
SECTOR = 512


class BytesSource:
    """Bytes with holes: the pages of zeros."""

    def __init__(self, raw: bytes, window_bytes: int) -> None:
        self.base, self.size, self.window_bytes = BASE, len(raw), window_bytes
        self.raw = raw
        self.read_bytes = 0

    def data_from(self, position: int) -> int:
        while position < self.size:
            page_end = min(position - position % 4096 + 4096, self.size)
            if any(self.raw[position - position % 4096 : page_end]):
                return position
            position = page_end
        return self.size

    def read(self, position: int, end: int, *, is_search: bool = False) -> Window:
        assert 0 <= position < end <= self.size
        origin = position - position % SECTOR
        self.read_bytes += end - position
        return Window(read_only(self.raw[origin:end]), origin, end)


def log_of(rng: random.Random) -> bytes:
    """Records with damage, pages of zeros and copies of records in between."""
    raw = bytearray()
    while len(raw) < 60_000:
        record = random_record(rng, BASE + len(raw))
        kind = rng.random()
        if kind < 0.1:
            record = bytes(rng.choice((1, 3, 4096, 9000)))
        elif kind < 0.2:
            record = record[: rng.randrange(len(record))]
        elif kind < 0.3:
            record = random_record(rng, BASE)  # it names another physical offset
        raw += broken(rng, record) if rng.random() < 0.1 else record
    return bytes(raw) + (encode_blank(500).ljust(500, b"\0") if rng.random() < 0.5 else bytes(20_000))


def whole_at(raw: bytes, position: int) -> bool:
    layout = check_record(memoryview(raw), position, len(raw), CheckCRC.BODY)
    said = raw[position + PHY_OFFSET_AT : position + PHY_OFFSET_AT + 8]
    return isinstance(layout, Layout) and said == (BASE + position).to_bytes(8, "big")


@seeds(3)
@pytest.mark.parametrize("search_bytes", [1 << 13, 1 << 14, 1 << 22])
def test_search_finds_next_intact_record(
    seed: int, rng: random.Random, search_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_chain, "_SEARCH_BYTES", search_bytes)
    raw = log_of(rng)
    source = BytesSource(raw, 1 << 20)
    wholes = [at for at in range(len(raw) - PHY_OFFSET_AT) if raw[at + 4 : at + 6] == b"\xda\xa3" and whole_at(raw, at)]
    assert len(wholes) > 7
    for begin in sorted(rng.sample(range(len(raw)), 60)):
        found, written_end = next_record(source, begin)
        expected = next((at for at in wholes if at >= begin), None)
        assert found == expected
        assert written_end == (begin + len(raw[begin:].rstrip(b"\0")) if expected is None else expected)
    refused = wholes[5]
    assert next_record(source, refused, lambda at, size: at != refused).position == wholes[6]


@pytest.mark.parametrize("before", [b"\1", b"\0"])
def test_search_finds_record_with_head_across_windows(before: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_chain, "_SEARCH_BYTES", 1 << 13)
    for lead in range(40):
        begin = (1 << 13) - lead
        raw = before * begin + random_record(random.Random(2), BASE + begin)
        assert next_record(BytesSource(raw, 1 << 20), 0).position == begin


@seeds(3)
def test_record_chain_is_same_for_any_window_size(seed: int, rng: random.Random) -> None:
    raw = log_of(rng)

    def read(window_bytes: int, batch_records: int, *, cuts_holes: bool) -> list[object]:
        source = BytesSource(raw, window_bytes)
        chain = RecordChain(source, RecordScan(codes.CHECK_BODY, batch_records), 0, len(raw), cuts_holes=cuts_holes)
        seen: list[object] = []
        while True:
            for batch in chain:
                seen += (batch.columns[codes.POS, : batch.count] + batch.base).tolist()
                assert np.all(batch.columns[codes.SIZE, : batch.count] > 0)
            seen.append((chain.position, chain.stop, chain.head))
            following = next_record(source, chain.position + 1).position
            if following is None:
                return seen
            chain.continue_at(following)

    whole = read(1 << 20, 1 << 14, cuts_holes=False)
    assert len(whole) > 10
    for window_bytes in (1, 40, 700, 5000):
        assert read(window_bytes, rng.choice((1, 7, 1000)), cuts_holes=rng.random() < 0.5) == whole


def test_blank_is_recognised_without_following_bytes() -> None:
    record = random_record(random.Random(1), BASE)
    raw = record + encode_blank(1 << 20).ljust(1 << 20, b"\0")
    source = BytesSource(raw, 4096)
    chain = RecordChain(source, RecordScan(codes.CHECK_OFF), 0, len(raw), cuts_holes=False)
    assert sum(batch.count for batch in chain) == 1
    assert (chain.stop, chain.position, chain.head[0]) == (StopReason.BLANK, len(record), 1 << 20)
    assert source.read_bytes < 1 << 14
