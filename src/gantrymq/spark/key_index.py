"""What the index files of a store say about keys: a read that wants few of them need not read the log.

An index file answers for the records behind its first entry's up to its last one's; and for that first one too where
the file in front, which may have the first of its keys, answers up to there. What no file answers for (a log without
keys, its newest end) is still read. A damaged file costs time, never messages: it answers for nothing where its header,
or the chain of a wanted key, does not add up. Of a store that was not closed, and that nobody writes, files are
believed that the checkpoint says are on the disk.

Source: IndexService, IndexFile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

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
from gantrymq.spark.log_file import LogFile, RangedBytes
from gantrymq.spark.places import Place, entries_of, index_geometry
from gantrymq.spark.remote_store import RemoteStore
from gantrymq.store.geometry import find_index_geometry
from gantrymq.store.paths import StorePaths
from gantrymq.store.reader import StoreReader

# So many messages of one key lie everywhere in the log: to seek them one by one gains nothing.
MOST_STEPS = 200_000
MOST_REMOTE_STEPS = 500  # each may be a request to an object store, and waits for the one before it
_TRIES = 3
_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class Answer:
    """``begin`` to before ``end``: the records of which an index file knows the keys; ``places`` of wanted ones.

    Of the one at ``begin`` it knows all keys only if it ``is_joined`` to what the file in front answers.
    """

    begin: int
    end: int
    places: list[int]
    is_joined: bool = False


def answers(
    reader: StoreReader | RemoteStore, place: Place, topics: Iterable[str], keys: Iterable[str]
) -> Iterator[Answer]:
    """What the index of the store at ``place`` says about ``keys`` of messages of ``topics``, file by file.

    Places are physical offsets; of hashes, so that other keys may be among them.
    """
    hashes = {key_hash(topic, key) for topic in topics for key in keys}
    files = _local_files(reader, Path(place.path)) if isinstance(reader, StoreReader) else _remote_files(place)
    answered_to = reader.min_phy_offset  # by whatever had the keys of records that are gone
    try:
        for file in files:
            answer = file.answer(hashes)
            # One that goes on behind a closed log is of a log that was cut: RocketMQ indexes nothing in front of there.
            if answer is None or (reader.last_exit_ok and answer.end >= reader.max_phy_offset):
                answered_to = -1
                continue
            answer.is_joined = answer.begin == answered_to
            answered_to = answer.end if answer.is_joined or answer.begin < answer.end else -1
            yield answer
    except StoreError as error:
        _LOGGER.warning("keys are sought in the log: %s", error)


def _local_files(reader: StoreReader, root: Path) -> Iterator[_IndexFile]:
    """The files that can be believed; raises StoreError where it cannot be told how they are made."""
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
    """The bytes of a mapped file, each page of which is asked for before it is looked at."""

    def __init__(self, file: File) -> None:
        self._file, self._data = file, file.map().data
        self._is_there = bytearray(-(-len(self._data) // INDEX_PAGE_BYTES))

    def __getitem__(self, part: slice) -> memoryview:
        """The bytes from ``part.start`` to ``part.stop``. Raises DiskError."""
        start = part.start or 0
        for page in range(start // INDEX_PAGE_BYTES, -(-min(part.stop, len(self._data)) // INDEX_PAGE_BYTES)):
            if not self._is_there[page]:
                self._file.fetch(page * INDEX_PAGE_BYTES, INDEX_PAGE_BYTES)
                self._is_there[page] = 1
        return self._data[part]


def _remote_files(store: Place) -> Iterator[_IndexFile]:
    """The files of the geometry that the store's broker.conf says, or RocketMQ's own; :meth:`answer` proves it."""
    config = index_geometry(store)
    slots, entries = config.max_hash_slot_num, config.max_index_num
    for entry in entries_of(store / INDEX) or ():
        if is_index_name(entry.base_name) and entry.size == file_size(slots, entries):
            with LogFile(store / INDEX / entry.base_name) as opened:
                yield _IndexFile(RangedBytes(opened, entry.size), slots, entries, most_steps=MOST_REMOTE_STEPS)


class _IndexFile:
    """One file as it is in ``data``, which somebody may be writing."""

    def __init__(
        self, data: _MappedBytes | RangedBytes, slots: int, entries: int, *, most_steps: int = MOST_STEPS
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
        """Whether it is full and not newer than the checkpoint: such a file was made durable."""
        header = self._header()
        return header.index_count >= self._entries and header.end_timestamp_ms < flushed_ms

    def answer(self, hashes: Iterable[int]) -> Answer | None:
        """What it says; None where it is empty or cannot be believed."""
        for _ in range(_TRIES):  # a writer may put an entry between our look at the header and that at a slot
            header = self._header()
            if not 1 < header.index_count <= self._entries:
                return None
            # Where the log was cut the end was taken back in front of the last entry.
            first, last = self._entry(1), self._entry(header.index_count - 1)
            if header.begin_phy_offset != first.phy_offset or header.end_phy_offset > last.phy_offset:
                continue
            # With other numbers of slots and entries than the file has, its first entry is in no slot.
            if not 0 < self._slot(max(first.key_hash, 0) % self._slots) < header.index_count + 1:
                continue
            places: list[int] = []
            if all(self._follow(one, header.index_count, places) for one in hashes):
                return Answer(header.begin_phy_offset, header.end_phy_offset, places)
        return None

    def _follow(self, wanted: int, count: int, places: list[int]) -> bool:
        """Add the places of a hash; False where its chain is broken, or too long to be of use."""
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
                places.append(entry.phy_offset)
            number = entry.previous
        return False
