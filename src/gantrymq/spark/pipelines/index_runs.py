"""Staged index entries on shared files, in the order of the log, and their division into index files.

The entries of each log file are staged in a file of their own. Their counts determine which entries each index file
has, so its tasks are independent: a header needs only the end of the file before it.

Thread rule: a task's own; :func:`plan_runs` is the driver's.
"""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.index import IndexHeader, file_size
from gantrymq.format.names import following_index_name, index_name
from gantrymq.fs.descriptors import named_errors
from gantrymq.fs.real import RealFileSystem
from gantrymq.kernels.arrays import Int64s
from gantrymq.store.index.index_dispatch import index_entries
from gantrymq.store.index.index_file import IndexFile
from gantrymq.store.log.record_batch import IndexEntries, RecordBatch

_FIELDS = 3  # hash, physical offset, store time
_ENTRY_BYTES = _FIELDS * 8
_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class StagedEntries:
    """A file of ``count`` entries."""

    path: Path
    count: int


@dataclass(frozen=True, slots=True)
class IndexRun:
    """The entries of one index file, as (staged file, first entry, count).

    ``before`` has the last entry before the first one.
    """

    name: str
    pieces: tuple[tuple[Path, int, int], ...]
    before: IndexHeader


class EntryStage:
    """Stages the entries of one log file below ``directory``. Raises DiskFullError, DiskError, StorePermissionError.

    Entries are buffered, so flushing and closing the file may also find the disk full.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / uuid.uuid4().hex
        self._count = 0

    def __enter__(self) -> EntryStage:
        """Create the file."""
        with named_errors(self._path):
            self._file: BinaryIO = self._path.open("wb")
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        with named_errors(self._path, io.DEFAULT_BUFFER_SIZE):
            self._file.close()

    def add(self, batch: RecordBatch) -> None:
        """Add the entries of a batch, whose PHY_OFFSET column must be corrected already (``trust_positions``)."""
        entries = np.stack(index_entries(batch), axis=1)
        with named_errors(self._path, entries.nbytes):
            self._file.write(entries.tobytes())
        self._count += len(entries)

    def staged(self) -> StagedEntries:
        """The staged file, flushed."""
        with named_errors(self._path, io.DEFAULT_BUFFER_SIZE):
            self._file.flush()
        return StagedEntries(self._path, self._count)


def plan_runs(stages: Sequence[StagedEntries], entries_a_file: int) -> list[IndexRun]:
    """Divide the entries into index files of ``entries_a_file`` entries. Reads the first and last entry of each."""
    runs: list[IndexRun] = []
    before, name = IndexHeader(), ""
    for pieces in _cut(stages, entries_a_file):
        (_, _, first_ms), (_, last_offset, last_ms) = _entry(pieces[0], 0), _entry(pieces[-1], -1)
        wanted = index_name(first_ms)
        name = wanted if wanted > name else following_index_name(name)
        runs.append(IndexRun(name, tuple(pieces), before))
        before = IndexHeader(end_phy_offset=last_offset, end_timestamp_ms=last_ms)
    return runs


def _cut(stages: Sequence[StagedEntries], size: int) -> Iterator[list[tuple[Path, int, int]]]:
    pieces: list[tuple[Path, int, int]] = []
    room = size
    for stage in stages:
        at = 0
        while at < stage.count:
            count = min(stage.count - at, room)
            pieces.append((stage.path, at, count))
            at, room = at + count, room - count
            if not room:
                yield pieces
                pieces, room = [], size
    if pieces:
        yield pieces


def _entry(piece: tuple[Path, int, int], number: int) -> tuple[int, int, int]:
    path, first, count = piece
    with path.open("rb") as file:
        file.seek((first + number % count) * _ENTRY_BYTES)
        key_hash, phy_offset, stored_ms = np.frombuffer(file.read(_ENTRY_BYTES), np.int64).tolist()
    return key_hash, phy_offset, stored_ms


def write_index_file(run: IndexRun, directory: Path, config: MessageStoreConfig) -> tuple[Path, int]:
    """Write the file of a run durably, in a directory of its own below ``directory``.

    Returns its path and the store time of its last entry in ms. Raises DiskFullError.
    """
    fs, slots, entries = RealFileSystem(), config.max_hash_slot_num, config.max_index_num
    target = directory / f"index-{uuid.uuid4().hex}"
    fs.make_directory(target)
    opened = fs.open(target / run.name, writable=True, create=True)
    opened.resize(file_size(slots, entries))
    file = IndexFile(opened, slots, entries, is_new=True)
    try:
        file.reserve(np.empty(0, np.int32))
        file.stream()
        file.begin_after(run.before)
        for chunk in _chunks(run):
            found = IndexEntries.of_each(*chunk.T)
            file.reserve(found.hashes)
            file.put(found, 0)
        file.flush()
        return target / run.name, file.header.end_timestamp_ms
    finally:
        file.close()


def _chunks(run: IndexRun) -> Iterator[Int64s]:
    for path, first, count in run.pieces:
        with path.open("rb") as file:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), first * _ENTRY_BYTES, count * _ENTRY_BYTES, os.POSIX_FADV_SEQUENTIAL)
            file.seek(first * _ENTRY_BYTES)
            for done in range(0, count, _AT_ONCE):
                raw = file.read(min(count - done, _AT_ONCE) * _ENTRY_BYTES)
                yield np.frombuffer(raw, np.int64).reshape(-1, _FIELDS)
