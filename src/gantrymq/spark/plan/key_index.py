"""Uses the index files to skip parts of the log when only a few keys are read.

An index file covers the records after its first entry, up to its last entry. It also covers the record of its first
entry if the file before it, which may have the first of that record's keys, covers up to there. The log outside of all
covered ranges (records without keys, the newest end) is read in full.

A damaged index file costs time and loses no message: a file whose header, or the chain of a wanted key, is inconsistent
covers nothing. In a store that was not closed and has no writer, only files that the checkpoint covers are used.
Executors compare the keys of what they read, so hash collisions do no harm.

Source: IndexService, IndexFile.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from gantrymq.errors import StoreError
from gantrymq.format.index import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexEntry,
    IndexHeader,
    decode_entry,
    decode_header,
    entry_at,
    file_size,
    key_hash,
)
from gantrymq.format.names import INDEX, is_index_name
from gantrymq.fs.api import File
from gantrymq.fs.lock_holder import lock_holder
from gantrymq.fs.overlay import OverlayFileSystem
from gantrymq.kernels.codes import INDEX_PAGE_BYTES
from gantrymq.spark.log_file import OpenLogFile, RangedBytes
from gantrymq.spark.plan.remote_store import RemoteStore
from gantrymq.spark.plan.store_view import StoreView
from gantrymq.store.geometry import find_index_geometry
from gantrymq.store.paths import StorePaths
from gantrymq.store.reader import StoreReader
from gantrymq.tools.locations import Location, entries_of, index_geometry

# With more messages of a key than this they are everywhere in the log, so looking them up one by one gains nothing.
MAX_STEPS = 200_000
MAX_REMOTE_STEPS = 500  # each may be a request to an object store, one after the other
_TRIES = 3
_LOGGER = logging.getLogger(__name__)
NEAR_BYTES = 64 << 10
"""Records closer than this are read in one go, because a disk returns that as quickly as less."""


@dataclass(slots=True)
class Answer:
    """The range [begin, end) of records whose keys an index file covers, and the ``phy_offsets`` of the wanted ones.

    The keys of the record at ``begin`` are complete only if the file before it covers up to it (``is_joined``).
    """

    begin: int
    end: int
    phy_offsets: list[int]
    is_joined: bool = False


def answers(
    reader: StoreReader | RemoteStore, location: Location, topics: Iterable[str], keys: Iterable[str]
) -> Iterator[Answer]:
    """The answers of the index files of the store at ``location`` for ``keys`` of messages of ``topics``.

    Places are physical offsets. They are found by hash, so some may be of other keys.
    """
    hashes = {key_hash(topic, key) for topic in topics for key in keys}
    files = _local_files(reader, Path(location.path)) if isinstance(reader, StoreReader) else _remote_files(location)
    answered_to = reader.min_phy_offset  # indexed by files that are gone with their records
    try:
        for file in files:
            answer = file.answer(hashes)
            # A file that reaches past the end of a closed log is of a log that was cut. RocketMQ indexes nothing
            # below it then.
            if answer is None or (reader.last_exit_ok and answer.end >= reader.max_phy_offset):
                answered_to = -1
                continue
            answer.is_joined = answer.begin == answered_to
            answered_to = answer.end if answer.is_joined or answer.begin < answer.end else -1
            yield answer
    except StoreError as error:
        _LOGGER.warning("keys are searched in the log: %s", error)


def _local_files(reader: StoreReader, root: Path) -> Iterator[_IndexFile]:
    """The files that can be trusted. Raises StoreError if their geometry is unknown."""
    paths, fs = StorePaths(root), OverlayFileSystem()
    config = find_index_geometry(fs, paths, reader.config, ())
    slots, entries = config.max_hash_slot_num, config.max_index_num
    is_whole = reader.last_exit_ok or lock_holder(paths.lock) is not None
    flushed_ms = reader.checkpoint.index_msg_timestamp_ms
    for entry in fs.scan(paths.index):
        if not is_index_name(entry.name) or entry.size_bytes != file_size(slots, entries):
            continue
        file = _IndexFile(_MappedBytes(fs.open(paths.index / entry.name)), slots, entries)
        if not is_whole and not file.is_flushed(flushed_ms):
            return
        yield file


class _MappedBytes:
    """The bytes of a mapped file, each page of which is fetched before its first use."""

    def __init__(self, file: File) -> None:
        self._file, self._data = file, file.map().data
        self._is_there = bytearray(-(-len(self._data) // INDEX_PAGE_BYTES))

    def __getitem__(self, part: slice) -> memoryview:
        """The bytes from ``part.start`` to before ``part.stop``. Raises DiskError."""
        start = part.start or 0
        for page in range(start // INDEX_PAGE_BYTES, -(-min(part.stop, len(self._data)) // INDEX_PAGE_BYTES)):
            if not self._is_there[page]:
                self._file.fetch(page * INDEX_PAGE_BYTES, INDEX_PAGE_BYTES)
                self._is_there[page] = 1
        return self._data[part]


def _remote_files(store: Location) -> Iterator[_IndexFile]:
    """The files of the geometry in the store's broker.conf, or of RocketMQ's defaults. :meth:`answer` validates it."""
    config = index_geometry(store)
    slots, entries = config.max_hash_slot_num, config.max_index_num
    for entry in entries_of(store / INDEX) or ():
        if is_index_name(entry.base_name) and entry.size == file_size(slots, entries):
            with OpenLogFile(store / INDEX / entry.base_name) as opened:
                yield _IndexFile(RangedBytes(opened, entry.size), slots, entries, most_steps=MAX_REMOTE_STEPS)


class _IndexFile:
    """One index file in ``data``, which a writer may be changing."""

    def __init__(
        self, data: _MappedBytes | RangedBytes, slots: int, entries: int, *, most_steps: int = MAX_STEPS
    ) -> None:
        self._data, self._slots, self._entries, self._most_steps = data, slots, entries, most_steps

    def _header(self) -> IndexHeader:
        return decode_header(self._data[:HEADER_SIZE])

    def _entry(self, number: int) -> IndexEntry:
        at = entry_at(self._slots, number)
        return decode_entry(self._data[at : at + ENTRY_SIZE], 0)

    def _slot(self, slot: int) -> int:
        at = HEADER_SIZE + slot * SLOT_SIZE
        return int.from_bytes(self._data[at : at + SLOT_SIZE], "big", signed=True)

    def is_flushed(self, flushed_ms: int) -> bool:
        """Whether the file is full and not newer than the checkpoint, so that it is durable."""
        header = self._header()
        return header.index_count >= self._entries and header.end_timestamp_ms < flushed_ms

    def answer(self, hashes: Iterable[int]) -> Answer | None:
        """The answer for the key hashes; None if the file is empty or inconsistent."""
        for _ in range(_TRIES):  # a writer may add an entry between the reads of header and slot
            header = self._header()
            if not 1 < header.index_count <= self._entries:
                return None
            # After a cut of the log the header's end lies before the last entry.
            first, last = self._entry(1), self._entry(header.index_count - 1)
            if header.begin_phy_offset != first.phy_offset or header.end_phy_offset > last.phy_offset:
                continue
            # With a wrong geometry the slot of the first entry does not point to an entry.
            if not 0 < self._slot(max(first.key_hash, 0) % self._slots) < header.index_count + 1:
                continue
            phy_offsets: list[int] = []
            if all(self._follow(hash_, header.index_count, phy_offsets) for hash_ in hashes):
                return Answer(header.begin_phy_offset, header.end_phy_offset, phy_offsets)
        return None

    def _follow(self, wanted: int, count: int, phy_offsets: list[int]) -> bool:
        """Add the physical offsets of a hash to ``phy_offsets``; returns False if its chain is broken or too long."""
        slot = wanted % self._slots
        number = self._slot(slot)
        for _ in range(self._most_steps):
            if number == 0:
                return True
            if not 0 < number < min(count + 1, self._entries):
                return False
            entry = self._entry(number)
            if entry.key_hash < 0 or entry.key_hash % self._slots != slot or not 0 <= entry.previous < number:
                return False
            if entry.key_hash == wanted:
                phy_offsets.append(entry.phy_offset)
            number = entry.previous
        return False


class Span(NamedTuple):
    """A part of the log between two record boundaries, or to the end."""

    begin: int
    end: int


def key_spans(view: StoreView, topics: Collection[str], keys: frozenset[str], whole: Span) -> list[Span]:
    """The parts of ``whole`` to read for messages of ``topics`` (with namespace) that have one of ``keys``."""
    end = min(whole.end, view.tail_begin)
    if whole.begin >= end:
        return [whole]
    answered: list[Span] = []
    phy_offsets: set[int] = set()
    for answer in answers(view.reader, view.location, topics, keys):
        span = _known(view, answer, Span(whole.begin, end))
        if span.begin < span.end:
            answered.append(span)
        phy_offsets.update(answer.phy_offsets)
    unknown = _between(whole, answered)
    known = sorted(offset for offset in phy_offsets if any(span.begin <= offset < span.end for span in answered))
    return _joined([*unknown, *_around(view, known, whole)])


def _known(view: StoreView, answer: Answer, within: Span) -> Span:
    """The part of ``within`` that an index file covers; empty if a bound of it is not at a record.

    A damaged header must not decide where the log is cut.
    """
    begin, end = max(answer.begin, within.begin), min(answer.end, within.end)
    if begin < end and begin == answer.begin:
        first = view.message_at(begin)
        begin = end if first is None else begin if answer.is_joined else begin + first.size_bytes
    if begin < end < within.end and view.message_at(end) is None:
        begin = end
    return Span(begin, end)


def _between(whole: Span, answered: Iterable[Span]) -> list[Span]:
    """The parts of ``whole`` that are in no span of ``answered``."""
    left, at = [], whole.begin
    for span in sorted(answered):
        if at < span.begin:
            left.append(Span(at, span.begin))
        at = max(at, span.end)
    return [*left, Span(at, whole.end)] if at < whole.end else left


def _around(view: StoreView, phy_offsets: list[int], whole: Span) -> list[Span]:
    """The records at ``phy_offsets`` (rising), nearby ones in one span.

    If no record can be read at a place, either the record or the index is damaged. The log file is then read from a
    record boundary on, so that an executor detects the damage, if there is any.
    """
    cuts = [at + 1 for at, (phy_offset, other) in enumerate(pairwise(phy_offsets)) if other - phy_offset > NEAR_BYTES]
    size, spans = view.reader.log.file_size, []
    for low, high in pairwise([0, *cuts, len(phy_offsets)] if phy_offsets else []):
        begin, last = phy_offsets[low], phy_offsets[high - 1]
        if view.message_at(begin) is None:
            begin = max(begin - begin % size, whole.begin)
        message = view.message_at(last)
        end = min(last - last % size + size, whole.end) if message is None else last + message.size_bytes
        spans.append(Span(begin, end))
    return spans


def _joined(spans: list[Span]) -> list[Span]:
    """The spans sorted, without overlap, nearby ones merged."""
    joined: list[Span] = []
    for span in sorted(spans):
        if joined and span.begin <= joined[-1].end + NEAR_BYTES:
            joined[-1] = Span(joined[-1].begin, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined
