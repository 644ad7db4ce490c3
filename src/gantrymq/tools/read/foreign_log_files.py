"""Finds commit log files that belong to another store, by the consume queues of this one.

A file of another store under the name of one of this store's files is whole, and its records carry the physical offsets
at which they lie. Only the queues show the difference: their entries point into the file where no record begins, and
none of its records lies where the entry of its queue offset points. Unnoticed, such records would take the places of
the messages that they overwrote, and no loss would be reported.

The queues may also be the ones of another store, or of a copy of this store that went on separately. A file is
therefore left out only if more files of the log match the queues than are foreign by them, and a matching file lies
after it. Otherwise its records count, and the doubt is reported.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

import numpy as np

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.record import MIN_RECORD_SIZE
from gantrymq.fs.api import FileSystem
from gantrymq.kernels import codes
from gantrymq.kernels.arrays import Int64s
from gantrymq.model.flags import is_consumable
from gantrymq.store.log.log_reader import LogFile, LogFileReader
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.store.paths import StorePaths
from gantrymq.tools.read.queue_files import loaded_queues, place_of_unit
from gantrymq.tools.read.record_lookup import RecordClaim, claim_of
from gantrymq.tools.reports import NotCompared

OF_ANOTHER_STORE = "a file of another store: no entry of a queue points to any of its records"
IN_DOUBT = "no entry of a queue points to any of its records: it is of another store, or the queues are"

_LOOKED_AT = 16  # records of a file; in a file of this store an entry points to one of them
_MIN_RECORDS = 8  # least number of records of a file, and of entries that point to no record in it
_CHANCE_ONE_IN = 20  # one entry in 20 may by chance point to a record of its offset
_UNITS_AT_ONCE = 1 << 18
_FIRST_LOOK_BYTES = 64 << 10

PlaceOf = Callable[[RecordClaim], int]


def mark_foreign(
    fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, files: Sequence[LogFile]
) -> list[LogFile]:
    """Return ``files`` of a log, with the reason set in those that are left out or in doubt.

    For a file of this store this reads its first records and one queue entry.
    """

    def place_of(claim: RecordClaim) -> int:
        slot = claim.topic, claim.queue_id, claim.queue_offset
        return place_of_unit(fs, paths.consume_queue, config.mapped_file_size_consume_queue, *slot)

    is_own = [_is_own(fs, file, place_of) for file in files]
    own = [number for number, verdict in enumerate(is_own) if verdict]
    doubted = [number for number, verdict in enumerate(is_own) if not verdict] if own else []
    foreign = _foreign(fs, paths, config, files, doubted)
    marked = list(files)
    for number in foreign:
        is_certain = len(own) > len(foreign) and number < own[-1]
        marked[number] = (
            replace(files[number], left_out=OF_ANOTHER_STORE) if is_certain else replace(files[number], doubt=IN_DOUBT)
        )
    return marked


def not_compared(files: Sequence[LogFile]) -> list[NotCompared]:
    """The entries of a report for the files in doubt."""
    return [NotCompared(file.path, file.doubt) for file in files if file.doubt]


def _is_own(fs: FileSystem, file: LogFile, place_of: PlaceOf) -> bool:
    """Whether an entry points to one of the first records of the file."""
    first = replace(file, size_bytes=min(file.size_bytes, _FIRST_LOOK_BYTES))
    claims = (
        claim_of(batch, row, phy_offset) for batch in _batches(fs, first) for row, phy_offset in _rows_in_place(batch)
    )
    return any(place_of(claim) == claim.phy_offset for claim in islice(claims, _LOOKED_AT))


def _foreign(
    fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, files: Sequence[LogFile], doubted: Sequence[int]
) -> list[int]:
    """The numbers of the ``doubted`` files into which entries point, but almost never to the record of their offset."""
    slots = {number: _slots(fs, files[number]) for number in doubted}
    slots = {number: slots_of_file for number, slots_of_file in slots.items() if len(slots_of_file) >= _MIN_RECORDS}
    nowhere, right = Counter[int](), Counter[int]()
    for queue, offsets, phy_offsets in _units(fs, paths, config) if slots else ():
        for number, slots_of_file in slots.items():
            rows = np.flatnonzero((phy_offsets >= files[number].base) & (phy_offsets < files[number].end))
            for offset, phy_offset in zip(offsets[rows].tolist(), phy_offsets[rows].tolist(), strict=True):
                slot = slots_of_file.get(phy_offset)
                nowhere[number] += slot is None
                right[number] += slot == (*queue, offset)
    return [
        number
        for number in slots
        if nowhere[number] >= _MIN_RECORDS and right[number] * _CHANCE_ONE_IN <= nowhere[number] + right[number]
    ]


def _units(
    fs: FileSystem, paths: StorePaths, config: MessageStoreConfig
) -> Iterator[tuple[tuple[str, int], Int64s, Int64s]]:
    """Yield each queue, the queue offsets of some of its entries, and the physical offsets in these."""
    for queue in loaded_queues(fs, paths.consume_queue, config.mapped_file_size_consume_queue):
        for begin in range(queue.first, queue.end, _UNITS_AT_ONCE):
            units = queue.units(begin, min(begin + _UNITS_AT_ONCE, queue.end))
            real = np.flatnonzero(units.is_message & (units.sizes >= MIN_RECORD_SIZE))
            yield (queue.topic, queue.queue_id), real + begin, units.phy_offsets[real]


def _slots(fs: FileSystem, file: LogFile) -> dict[int, tuple[str, int, int]]:
    """The (topic, queue id, queue offset) of each whole record of a file, by the record's physical offset."""
    claims = (
        claim_of(batch, row, phy_offset) for batch in _batches(fs, file) for row, phy_offset in _rows_in_place(batch)
    )
    return {claim.phy_offset: claim[:3] for claim in claims}


def _batches(fs: FileSystem, file: LogFile) -> Iterator[RecordBatch]:
    with suppress(FileNotFoundError):
        for event in LogFileReader(fs, file):
            if isinstance(event, RecordBatch):
                yield event


def _rows_in_place(batch: RecordBatch) -> Iterator[tuple[int, int]]:
    """Yield (row, physical offset) of each whole record of a queue that carries its own physical offset."""
    columns = batch.columns[:, : batch.count]
    is_in_place = columns[codes.PHY_OFFSET] == columns[codes.POS] + batch.base
    for row in np.flatnonzero(is_in_place & (columns[codes.CRC_OK] == 1)).tolist():
        if is_consumable(int(columns[codes.SYS_FLAG, row])):
            yield row, int(columns[codes.PHY_OFFSET, row])
