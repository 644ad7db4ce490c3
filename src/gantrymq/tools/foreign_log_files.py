"""Files of the commit log that are of another store, by the queues of this one.

A file of another store under the name of one of this store's files is whole, and its records say that they lie where
they lie. Only the queues tell: their entries lead into the file, and no record begins there; and none of its records is
where the entry of its queue offset leads. Without them such records would take the places of the messages that they
overwrote, and none of these would be missed.

It may be the queues that are of another store, or of a copy of this one that went on by itself. So a file is left out
where most files are of this store by its queues, one behind it is, too; else its records count, and that is told.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.fs.api import FileSystem
from gantrymq.kernels import codes
from gantrymq.model.flags import is_consumable
from gantrymq.store.paths import StorePaths
from gantrymq.store.record_batch import RecordBatch
from gantrymq.tools.log_files import LogFile
from gantrymq.tools.log_reader import LogFileReader
from gantrymq.tools.loss import NotCompared
from gantrymq.tools.queue_files import place_of_unit
from gantrymq.tools.record_claims import RecordClaim, claim_of

OF_ANOTHER_STORE = "a file of another store: no entry of a queue leads to any of its records"
IN_DOUBT = "no entry of a queue leads to any of its records: it is of another store, or the queues are"

_LOOKED_AT = 16  # records of a file in which the first one is not where its queue says
_TELLING = 8  # entries that lead to where no record begins
_FIRST_LOOK_BYTES = 64 << 10

PlaceOf = Callable[[RecordClaim], int]


def mark_foreign(
    fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, files: Sequence[LogFile]
) -> list[LogFile]:
    """The ``files`` of a log, those of another store with the reason why they are left out, or are in doubt.

    A file of this store costs the reading of its first records and of one queue entry.
    """

    def place_of(claim: RecordClaim) -> int:
        slot = claim.topic, claim.queue_id, claim.queue_offset
        return place_of_unit(fs, paths.consume_queue, config.mapped_file_size_consume_queue, *slot)

    verdicts = [_is_own(fs, file, place_of) for file in files]
    own = [number for number, is_own in enumerate(verdicts) if is_own]
    foreign = [
        number for number, is_own in enumerate(verdicts) if is_own is False and _is_foreign(fs, files[number], place_of)
    ]
    marked = list(files)
    for number in foreign:
        is_sure = len(own) > len(foreign) and number < own[-1]
        marked[number] = (
            replace(files[number], left_out=OF_ANOTHER_STORE) if is_sure else replace(files[number], doubt=IN_DOUBT)
        )
    return marked


def not_compared(files: Sequence[LogFile]) -> list[NotCompared]:
    """What a report says of files in doubt."""
    return [NotCompared(file.path, file.doubt) for file in files if file.doubt]


def _is_own(fs: FileSystem, file: LogFile, place_of: PlaceOf) -> bool | None:
    """Whether an entry leads to one of the first records; None where too few entries say anything."""
    contradicted = 0
    first = replace(file, size_bytes=min(file.size_bytes, _FIRST_LOOK_BYTES))
    for number, claim in enumerate(_claims(fs, first)):
        place = place_of(claim)
        if place == claim.phy_offset:
            return True
        contradicted += place >= 0
        if number + 1 >= _LOOKED_AT:
            break
    return False if contradicted >= _TELLING else None


def _is_foreign(fs: FileSystem, file: LogFile, place_of: PlaceOf) -> bool:
    """Whether the entries lead into the file, but to none of its records."""
    claims = list(_claims(fs, file))
    begins = {claim.phy_offset for claim in claims}
    places = [place_of(claim) for claim in claims]
    if any(place == claim.phy_offset for place, claim in zip(places, claims, strict=True)):
        return False
    return sum(file.base <= place < file.end and place not in begins for place in places) >= _TELLING


def _claims(fs: FileSystem, file: LogFile) -> Iterator[RecordClaim]:
    """What the whole records of a file say that belong into a queue and lie where they say."""
    with suppress(FileNotFoundError):
        for event in LogFileReader(fs, file):
            if isinstance(event, RecordBatch):
                columns = event.columns[:, : event.count]
                is_at_home = columns[codes.PHY_OFFSET] == columns[codes.POS] + event.base
                for row in np.flatnonzero(is_at_home & (columns[codes.CRC_OK] == 1)).tolist():
                    if is_consumable(int(columns[codes.SYS_FLAG, row])):
                        yield claim_of(event, row, int(columns[codes.PHY_OFFSET, row]))
