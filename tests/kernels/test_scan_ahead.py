"""Scanning parts of a log ahead gives what one scan after the other gives, whatever is in the log."""

import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_cases import broken, random_record, seeds

from gantrymq.format.record import encode_blank
from gantrymq.fs.reads import data_end
from gantrymq.fs.real import RealFileSystem
from gantrymq.kernels import codes
from gantrymq.kernels.api import find_record
from gantrymq.kernels.arrays import read_only
from gantrymq.store.log import scan_ahead
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.log_reader import LogFile, LogFileReader
from gantrymq.store.log.log_scanner import LogScanner
from gantrymq.store.log.record_batch import DigestScan, RecordBatch
from gantrymq.store.log.scan_ahead import ScanAhead
from gantrymq.store.paths import StorePaths
from gantrymq.tools.read.log_places import log_files
from memory_file_system import MemoryFileSystem

FOLDER = Path("/store/commitlog")
FILE_BYTES = 1 << 18
RECORDS = 256
LEVELS = [1000, 5000]
PARTS = [1 << 11, 1 << 13, 1 << 16]


def write_log(rng: random.Random, *, is_broken: bool) -> MemoryFileSystem:
    """Three files, the last of which is not full."""
    fs = MemoryFileSystem()
    fs.make_directory(FOLDER)
    for number in range(3):
        base, raw = number * FILE_BYTES, bytearray()
        while True:
            record = random_record(rng, base + len(raw))
            if len(raw) + len(record) + 8 > FILE_BYTES * (1 if number < 2 else 0.6):
                break
            raw += record
        if number < 2:
            raw += encode_blank(FILE_BYTES - len(raw))
        data = broken(rng, bytes(raw)) if is_broken and rng.random() < 0.6 else bytes(raw)
        with_rest = data.ljust(FILE_BYTES, b"\0")
        file = fs.open(FOLDER / f"{base:020}", writable=True, create=True)
        file.write_at(0, with_rest)
        file.close()
    return fs


def facts(batch: RecordBatch) -> list[tuple[Any, ...]]:
    """All that is said of each record of a batch, wherever its buffer begins."""
    assert batch.digest is not None
    columns = batch.columns[:, : batch.count].copy()
    columns[codes.POS] += batch.base
    hashes: list[tuple[int, ...]] = [()] * batch.count
    for key_hash, number in zip(batch.digest.hashes.tolist(), batch.digest.hashed.tolist(), strict=True):
        hashes[number] += (key_hash,)
    names = [*batch.digest.queues.names, None]  # -1: it enters none
    records = zip(columns.T.tolist(), batch.digest.ordinals.tolist(), batch.digest.tags_codes.tolist(), strict=True)
    return [
        (*fields, names[queue], tags, hashes[i], i == batch.digest.whole)
        for i, (fields, queue, tags) in enumerate(records)
    ]


def late(batches: Iterable[Any]) -> Iterator[Any]:
    """Each when two more were asked for, which is how long a batch must live."""
    waiting: deque[Any] = deque()
    for batch in batches:
        waiting.append(batch)
        if len(waiting) == 3:
            yield waiting.popleft()
    yield from waiting


def scan_of(check: int) -> Callable[[], DigestScan]:
    return lambda: DigestScan(check, LEVELS, RECORDS, 1)


def read_log(fs: MemoryFileSystem, start: int, end: int | None, check: int, ahead: ScanAhead | None) -> tuple[Any, ...]:
    log = CommitLog(fs, StorePaths(FOLDER.parent), FILE_BYTES)
    log.load()
    scanner = LogScanner(log, start, end, DigestScan(check, LEVELS, RECORDS), ahead)
    found = [record for batch in late(scanner) for record in facts(batch)]
    log.close()
    return found, scanner.offset, scanner.stop


@pytest.fixture(params=PARTS)
def small_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    size: int = request.param
    for name in ("ALONE_BYTES", "FIRST_PART_BYTES", "MIN_PART_BYTES", "MAX_PART_BYTES"):
        monkeypatch.setattr(scan_ahead, name, size)
    return size


@seeds(4)
def test_scan_ahead_reads_log_like_single_reader(seed: int, rng: random.Random, small_parts: int) -> None:
    fs = write_log(rng, is_broken=rng.random() < 0.7)
    end = rng.choice([None, None, FILE_BYTES, 2 * FILE_BYTES])
    check = rng.choice([codes.CHECK_OFF, codes.CHECK_BODY])  # a random log has wrong CRCs
    alone = read_log(fs, 0, end, check, None)
    with ScanAhead(scan_of(check)) as ahead:
        assert read_log(fs, 0, end, check, ahead) == alone
        if alone[0]:  # one that has done a log does the next, from wherever
            start = rng.choice(alone[0])[codes.POS]
            assert read_log(fs, start, end, check, ahead) == read_log(fs, start, end, check, None)


def events(fs: MemoryFileSystem, file: LogFile, ahead: ScanAhead | None) -> list[Any]:
    found: list[Any] = []
    for event in late(LogFileReader(fs, file, DigestScan(codes.CHECK_MARK, LEVELS, RECORDS), ahead)):
        found += facts(event) if isinstance(event, RecordBatch) else [event]
    return found


@seeds(4)
def test_scan_ahead_of_arbitrary_files_equals_single_reader(seed: int, rng: random.Random, small_parts: int) -> None:
    fs = write_log(rng, is_broken=True)
    files, _ = log_files(fs, StorePaths(FOLDER.parent))
    with ScanAhead(scan_of(codes.CHECK_MARK)) as ahead:
        for file in files:
            assert events(fs, file, ahead) == events(fs, file, None)


def test_most_of_a_whole_log_is_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ALONE_BYTES", "FIRST_PART_BYTES", "MIN_PART_BYTES", "MAX_PART_BYTES"):
        monkeypatch.setattr(scan_ahead, name, 1 << 13)
    fs = write_log(random.Random(1), is_broken=False)
    taken: list[int] = []
    take = ScanAhead.take

    def counted(self: ScanAhead, position: int) -> RecordBatch | None:
        batch = take(self, position)
        taken.append(0 if batch is None else batch.count)
        return batch

    monkeypatch.setattr(ScanAhead, "take", counted)
    with ScanAhead(scan_of(codes.CHECK_OFF)) as ahead:
        records, _, _ = read_log(fs, 0, None, codes.CHECK_OFF, ahead)
    assert sum(taken) > 0.9 * len(records)
    assert taken.count(0) <= 7  # where a file begins or ends


def test_taken_part_stays_valid_while_later_parts_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ALONE_BYTES", "FIRST_PART_BYTES", "MIN_PART_BYTES", "MAX_PART_BYTES"):
        monkeypatch.setattr(scan_ahead, name, 1 << 12)
    raw = read_only(write_log(random.Random(2), is_broken=False).open(FOLDER / f"{0:020}").read_at(0, FILE_BYTES))
    with ScanAhead(scan_of(codes.CHECK_OFF)) as ahead:
        ahead.begin(lambda at, length: raw[at : at + length], 0, 0, FILE_BYTES)
        assert ahead.take(0) is None
        assert ahead.bound(0, FILE_BYTES) == 1 << 12
        begin = find_record(raw, 1 << 12, FILE_BYTES, 0)
        first = ahead.take(begin)
        assert first is not None
        before = facts(first)
        for position in range(1 << 14, FILE_BYTES, 1 << 13):
            ahead.take(position + 1)  # in the middle of a record
    assert facts(first) == before


def test_failed_view_leaves_read_to_caller() -> None:
    def view(position: int, length: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        raise OSError("Input/output error")

    with ScanAhead(scan_of(codes.CHECK_BODY)) as ahead:
        ahead.begin(view, 0, 0, 1 << 30)
        assert ahead.take(scan_ahead.ALONE_BYTES) is None
        assert scan_ahead.ALONE_BYTES < ahead.bound(scan_ahead.ALONE_BYTES, 1 << 30) < 1 << 30


class SomePages:
    """What data_from says of a file that has these pages."""

    def __init__(self, pages: list[bool]) -> None:
        self.pages = pages

    def data_from(self, position: int) -> int:
        page = position // 4096
        if page < len(self.pages) and self.pages[page]:
            return position
        return next((k for k in range(page, len(self.pages)) if self.pages[k]), len(self.pages)) * 4096


@seeds(4)
def test_hole_at_end_of_range_is_found(seed: int, rng: random.Random) -> None:
    for _ in range(500):
        share, count = rng.random(), rng.randrange(1, 12)
        pages = [rng.random() < share for _ in range(count)]
        begin, end = sorted(rng.randrange(count * 4096 + 1) for _ in range(2))
        held = [k for k in range(begin // 4096, -(-end // 4096)) if pages[k]]
        expected = min(max((held[-1] + 1) * 4096, begin), end) if held and begin < end else begin
        assert data_end(SomePages(pages), begin, end) == expected


def test_scan_ahead_does_not_read_holes(tmp_path: Path) -> None:
    """The system answers a look at one page of a hole with megabytes of zeros."""
    views: list[int] = []

    class Watched(ScanAhead):
        def begin(self, view: Any, base: int, start: int, size: int) -> None:
            views.extend(len(view(at, 1 << 20)) for at in (0, 32 << 20, size - (1 << 20)))
            super().begin(view, base, start, size)

    rng, size = random.Random(1), 64 << 20
    path = tmp_path / f"{0:020}"
    path.write_bytes(random_record(rng, 0))
    os.truncate(path, size)
    log = CommitLog(RealFileSystem(), StorePaths(tmp_path, (tmp_path,)), size)
    log.load()
    with Watched(lambda: DigestScan(codes.CHECK_BODY, LEVELS, RECORDS, 1)) as ahead:
        scanner = LogScanner(log, 0, None, DigestScan(codes.CHECK_BODY, LEVELS, RECORDS), ahead)
        assert sum(batch.count for batch in scanner) == 1
    log.close()
    assert views == [4096, 0, 0]
