"""The sizes of a store's files, found from the files themselves unless the caller gives them.

Commit log and consume queue files show their size directly. The length of an index file allows many pairs of slots and
entries. The content proves the right pair: the first entry is the one that the header names, the last one is the head
of its chain, and a sample of entries is where the slots of their key hashes point. With few slots and few entries a
wrong pair can explain half of the sample, so a pair that explains clearly more rules out the others.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import AmbiguousGeometryError, ConfigError, NotAStoreError
from gantrymq.format.index import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, decode_header, entry_at, file_size
from gantrymq.format.names import LOCK, SALVAGE_MARK, is_index_name
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.fs.api import Bytes, Entry, File, FileSystem
from gantrymq.fs.reads import data_end
from gantrymq.store.entries import Use, names_for
from gantrymq.store.paths import StorePaths, offset_files
from gantrymq.store.queue.queue_listing import queue_directories

INDEX_KEYS = ("maxHashSlotNum", "maxIndexNum")
UNFINISHED_SALVAGE = "is the unfinished result of an interrupted salvage; run gantrymq store salvage into it again"
_WORDS_AN_ENTRY = ENTRY_SIZE // SLOT_SIZE
_SAMPLED_ENTRIES = 4096
_SAMPLED_FIRST = 64  # for the configured pair: each entry costs one or two pages of the file
_PROVED_SHARE = 0.5
_CLEARLY_MORE = 12  # entries
_SAMPLED_QUEUE_FILES = 16
MIN_LOG_FILE_BYTES = 1024  # the minimum of mappedFileSizeCommitLog
LOG_SIZE_KEY, QUEUE_SIZE_KEY = "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"


def require_store(fs: FileSystem, paths: StorePaths, *, creates: bool = False) -> None:
    """Raise NotAStoreError if the root of ``paths`` holds no store, or one that a salvage has not finished.

    With ``creates`` an empty directory, or one with only files that may precede a store, is accepted.
    """
    root = paths.root
    if not fs.exists(root):
        raise NotAStoreError(root, "does not exist")
    if fs.exists(root / SALVAGE_MARK):
        raise NotAStoreError(root, UNFINISHED_SALVAGE)
    present = {entry.name for entry in fs.scan(root)}
    if LOCK in present and present <= set(names_for(Use.MADE_FIRST)):
        return  # its writer was killed while it created the store
    if creates and present <= set(names_for(Use.MAY_PRECEDE)):
        return
    proofs = (*paths.commit_logs, *(root / name for name in names_for(Use.PROOF)))
    if not any(map(fs.exists, proofs)):
        raise NotAStoreError(root, "is not a RocketMQ store: it has no commitlog, consumequeue or checkpoint")


def find_file_sizes(
    fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, given: Collection[str]
) -> MessageStoreConfig:
    """Return ``config`` with the file sizes of commit log and consume queue that the files have.

    A size whose key is in ``given`` stays as it is.
    """
    queue_sizes = _some_queue_file_sizes(fs, paths.consume_queue)
    return replace(
        config,
        mapped_file_size_commit_log=log_file_size(fs, paths, config, given),
        mapped_file_size_consume_queue=settled_size(
            QUEUE_SIZE_KEY, config.mapped_file_size_consume_queue, queue_sizes, given
        ),
    )


def log_file_size(fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, given: Collection[str]) -> int:
    """Return the size of commit log files, like :func:`settled_size`, but correct even if all files were cut short.

    Files follow each other without a gap, so the distances between their names are multiples of the size. Files below
    the minimum size are ignored.
    """
    files = offset_files(fs, paths.commit_logs)
    sizes = [file.size_bytes for file in files if file.size_bytes >= MIN_LOG_FILE_BYTES]
    size = settled_size(LOG_SIZE_KEY, config.mapped_file_size_commit_log, sizes, given)
    step = math.gcd(*(file.offset for file in files))
    return step if LOG_SIZE_KEY not in given and step > max(sizes, default=0) > 0 and step % size else size


def settled_size(key: str, configured: int, sizes: list[int], given: Collection[str]) -> int:
    """Return the file size for ``key``: ``configured`` if the key is ``given``, else the most frequent of ``sizes``.

    Raises ConfigError if the key is given and all files have one other size. A single shorter file is accepted: it may
    have been cut short.
    """
    usual = usual_size(sizes)
    if key not in given:
        return usual or configured
    if usual and set(sizes) - {0} == {usual} and usual != configured and (usual > configured or sizes.count(usual) > 1):
        raise ConfigError(key, configured, f"the files are {usual} bytes long; leave it out, or give that")
    return configured


def usual_size(sizes: list[int]) -> int:
    """Return the most frequent size, the largest of equally frequent ones, or 0 if no file has a size."""
    counted = [size for size in sizes if size]
    return max(sorted(set(counted), reverse=True), key=counted.count) if counted else 0


def _some_queue_file_sizes(fs: FileSystem, directory: Path) -> list[int]:
    """Return the sizes of some files, so that one damaged file does not decide alone."""
    sizes: list[int] = []
    for topic, queue_id in queue_directories(fs, directory):
        file_sizes = [file.size_bytes for file in offset_files(fs, [directory / topic / str(queue_id)])]
        sizes += [size for size in file_sizes if size and size % UNIT_SIZE == 0]
        if len(sizes) >= _SAMPLED_QUEUE_FILES:
            break
    return sizes


def find_index_geometry(
    fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, given: Collection[str]
) -> MessageStoreConfig:
    """Return ``config`` with the index geometry that the files prove. Keys in ``given`` stay as they are.

    A store without index files keeps its settings. So does a store whose files prove nothing: a power cut may have
    taken the newest entry, and an invalid file is rebuilt.

    Raises AmbiguousGeometryError if more than one pair is left, and ConfigError if the given keys exclude the pair that
    the files prove.
    """
    pairs: list[tuple[int, int]] | None = None
    entries = [
        file for file in fs.scan(paths.index) if is_index_name(file.name) and file.size_bytes and not file.is_directory
    ]
    if all(key in given for key in INDEX_KEYS):
        usual = file_size(config.max_hash_slot_num, config.max_index_num)
        if not entries or any(entry.size_bytes == usual for entry in entries):
            return config
    for entry in entries:
        proved_pairs = _pairs_of(fs, paths.index / entry.name, pairs, config, given)
        if not proved_pairs:
            continue
        pairs = proved_pairs
        if len(pairs) == 1:
            break
    if not pairs:
        _require_no_other_pair(fs, paths, entries, config, given)
        return config
    if len(pairs) > 1:
        raise AmbiguousGeometryError(paths.index, pairs, INDEX_KEYS)
    return replace(config, max_hash_slot_num=pairs[0][0], max_index_num=pairs[0][1])


def _require_no_other_pair(
    fs: FileSystem, paths: StorePaths, entries: list[Entry], config: MessageStoreConfig, given: Collection[str]
) -> None:
    """Raise ConfigError if a geometry is given, no file has it, and a file proves another one."""
    keys = [key for key in INDEX_KEYS if key in given]
    for entry in entries if keys else ():
        proved_pairs = _pairs_of(fs, paths.index / entry.name, None, config, ())
        if len(proved_pairs) == 1:
            values = dict(zip(INDEX_KEYS, (config.max_hash_slot_num, config.max_index_num), strict=True))
            proved = " and ".join(f"{key}={value}" for key, value in zip(INDEX_KEYS, proved_pairs[0], strict=True))
            raise ConfigError(keys[0], values[keys[0]], f"the index files have {proved} ({paths.index / entry.name})")


def _pairs_of(
    fs: FileSystem,
    path: Path,
    pairs: list[tuple[int, int]] | None,
    config: MessageStoreConfig,
    given: Collection[str],
) -> list[tuple[int, int]]:
    """Return those of ``pairs`` (None: all possible pairs) that the file at ``path`` may have."""
    file = fs.open(path)
    try:
        array = file.map()
        if len(array) < HEADER_SIZE:
            return []
        file.fetch(0, HEADER_SIZE)
        if file.lost_in(0, HEADER_SIZE) is not None:  # the zeros of a lost header would fit every geometry
            return []
        usual = (config.max_hash_slot_num, config.max_index_num)
        if pairs is None:
            first = _sample(array, _SAMPLED_FIRST)
            _fetch_sample(file, array, usual, first)
            if _count_explained(array, usual, first) == first.size:
                # The configured pair fits, also in a file that a kill left empty. The search is for other geometries.
                return [usual]
            file.fetch(0, data_end(file, 0, len(array)))
            pairs = _keep_given(_candidate_pairs(array), config, given)
        file.fetch(0, data_end(file, 0, len(array)))
        sample = _sample(array, _SAMPLED_ENTRIES)
        explained = {pair: _count_explained(array, pair, sample) for pair in pairs}
        max_count = max(explained.values(), default=0)
        return [
            pair
            for pair, count in explained.items()
            if count >= max_count - _CLEARLY_MORE and (count > sample.size * _PROVED_SHARE or count == sample.size)
        ]
    finally:
        file.close()


def _keep_given(
    pairs: list[tuple[int, int]], config: MessageStoreConfig, given: Collection[str]
) -> list[tuple[int, int]]:
    if INDEX_KEYS[0] in given:
        pairs = [pair for pair in pairs if pair[0] == config.max_hash_slot_num]
    if INDEX_KEYS[1] in given:
        pairs = [pair for pair in pairs if pair[1] == config.max_index_num]
    return pairs


def _candidate_pairs(array: Bytes) -> list[tuple[int, int]]:
    """Return every (slots, entries) that fits the length and that the first and last entry do not exclude."""
    if len(array) < HEADER_SIZE or (len(array) - HEADER_SIZE) % SLOT_SIZE:
        return []
    header = decode_header(array[:HEADER_SIZE].data)
    words = array[HEADER_SIZE:].view(">i4")
    # slots + 5 × entries = words, with room for the entries that the header counts.
    most_slots = len(words) - _WORDS_AN_ENTRY * max(header.index_count, 2)
    slots = np.arange(len(words) % _WORDS_AN_ENTRY or _WORDS_AN_ENTRY, most_slots + 1, _WORDS_AN_ENTRY)
    newest = header.index_count - 1
    if newest >= 1:
        slots = slots[_phy_offsets(words, slots, 1) == header.begin_phy_offset]
        # If the first record is at offset 0, an entry that was never written must not be taken for its entry.
        is_written = words[slots + _WORDS_AN_ENTRY] != 0
        slots = slots[is_written] if is_written.any() else slots
        for word in range(_WORDS_AN_ENTRY):  # entry 0 is never written
            slots = slots[words[slots + word] == 0]
        hashes = words[slots + _WORDS_AN_ENTRY * newest]
        slots, hashes = slots[hashes >= 0], hashes[hashes >= 0]
        # After a kill the slot may be ahead of the header by the entry that was being written.
        slots = slots[words[hashes % slots] >= newest]
    return [(int(count), (len(words) - int(count)) // _WORDS_AN_ENTRY) for count in slots]


def _phy_offsets(words: NDArray[np.int32], slots: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    at = slots + _WORDS_AN_ENTRY * number + 1
    low = words[at + 1].astype(np.int64) & 0xFFFFFFFF
    return (words[at].astype(np.int64) << 32) | low


def _sample(array: Bytes, max_samples: int) -> NDArray[np.int64]:
    """Return up to ``max_samples`` distinct entry numbers, rising and spread over the file."""
    count = decode_header(array[:HEADER_SIZE].data).index_count
    numbers = np.linspace(1, count - 1, min(max(count - 1, 0), max_samples)).astype(np.int64)
    return numbers[np.diff(numbers, prepend=0) > 0]  # np.unique imports numpy.ma, which takes 14 ms


def _fetch_sample(file: File, array: Bytes, pair: tuple[int, int], numbers: NDArray[np.int64]) -> None:
    """Read the bytes that :func:`_count_explained` examines into memory. Raises DiskError."""
    if file_size(*pair) != len(array):
        return
    for number in numbers.tolist():
        at = entry_at(pair[0], number)
        file.fetch(at, ENTRY_SIZE)
        key_hash = int.from_bytes(array[at : at + SLOT_SIZE].tobytes(), "big", signed=True)
        file.fetch(HEADER_SIZE + max(key_hash, 0) % pair[0] * SLOT_SIZE, SLOT_SIZE)


def _count_explained(array: Bytes, pair: tuple[int, int], numbers: NDArray[np.int64]) -> int:
    """Return how many of these entries a geometry explains, or -1 if it does not fit the file at all.

    An entry is explained if the slot of its hash points to it or to a newer one, and its predecessor is older. The true
    geometry explains all of them, or nearly all if the broker was killed with an old header and the file was continued.
    """
    if file_size(*pair) != len(array) or decode_header(array[:HEADER_SIZE].data).index_count > pair[1]:
        return -1
    words = array[HEADER_SIZE:].view(">i4")
    at = pair[0] + _WORDS_AN_ENTRY * numbers
    hashes, previous = words[at].astype(np.int64), words[at + _WORDS_AN_ENTRY - 1].astype(np.int64)
    heads = words[np.maximum(hashes, 0) % pair[0]].astype(np.int64)
    explained = (hashes >= 0) & (heads >= numbers) & (heads < pair[1]) & (previous >= 0) & (previous < numbers)
    return int(explained.sum())
