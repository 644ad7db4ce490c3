"""Finds files in the directory of another queue, by the records that their units point to.

A queue directory that was swapped, renamed or copied, or a file that was moved into another queue's directory, is found
by examining a few units of each file: one of a sound file, about sixty of a doubtful one. Damage within a file, and
files of another store, are not found this way.

Every file is examined, also in the middle of a queue: nothing else in an open compares its units with the log. The
records are read in one pass, in the order of the log: ten thousand reads in the order of the queues would seek as
often, and keep every log file open.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import DiskError, MisfiledQueueError
from gantrymq.format.names import offset_name
from gantrymq.format.queue_entry import UNIT_SIZE, decode_entry
from gantrymq.format.queue_units import Units
from gantrymq.format.record import MIN_RECORD_SIZE
from gantrymq.fs.api import FileSystem
from gantrymq.fs.reads import read_data
from gantrymq.store.paths import OffsetFile
from gantrymq.store.queue.consume_queue import REBUILD
from gantrymq.store.queue.consume_queues import is_light
from gantrymq.store.queue.queue_listing import QueueName

RecordLocation = tuple[int, int]
"""The physical offset of a record, and its size in bytes."""
Slot = tuple[str, int, int]
"""Topic, queue id, queue offset."""
SlotsAt = Callable[[Sequence[RecordLocation]], Sequence[Slot | None]]
"""Returns the slot of the record at each place, or None if there is no record. Rising places are read fastest."""
_LOOKED_AT = 64
_NO_LOCATION: RecordLocation = (-1, 0)


class Owner(NamedTuple):
    """The queue that the units of a file belong to.

    ``distance`` is how many slots later they belong than the file says.
    """

    topic: str
    queue_id: int
    distance: int


@dataclass(frozen=True, slots=True)
class JudgedFile:
    """A file in the directory of queue ``name``. ``owner`` is None if it seems to belong to that queue.

    ``nowhere`` are those of the ``looked_at`` examined physical offsets at which no record begins.
    """

    name: QueueName
    file: OffsetFile
    owner: Owner | None
    nowhere: list[int] = field(default_factory=list)
    looked_at: int = 0


def judge_queue_files(
    fs: FileSystem,
    queues: Iterable[tuple[QueueName, Sequence[OffsetFile]]],
    slots_at: SlotsAt,
    log_begin: int,
    log_end: int,
) -> Iterator[JudgedFile]:
    """Judge every file of ``queues`` by the records in [log_begin, log_end) of the log.

    Light queues are left out: their units point to records of other queues.
    """
    files = [(name, file) for name, listed in queues if not is_light(name[0]) for file in listed]
    locations = [_first_location(fs, file) for _, file in files]
    slots = _slots(slots_at, {location for location in locations if location is not None and location != _NO_LOCATION})
    for (name, file), location in zip(files, locations, strict=True):
        if location is None or slots.get(location) == (*name, file.offset // UNIT_SIZE):
            yield JudgedFile(name, file, None)
        else:
            yield _judge_closely(fs, name, file, slots_at, log_begin, log_end)


def misfiled_queues(judged_files: Iterable[JudgedFile]) -> Iterator[tuple[JudgedFile, MisfiledQueueError]]:
    """Yield the first file of each queue that belongs to another one, with the error that describes it."""
    seen: set[QueueName] = set()
    for judged in judged_files:
        owner = judged.owner
        if owner is None or judged.name in seen:
            continue
        seen.add(judged.name)
        begin = offset_name(judged.file.offset + owner.distance * UNIT_SIZE) if owner.distance else ""
        whose = "another place of the queue" if owner[:2] == judged.name else f"queue {owner.queue_id} of {owner.topic}"
        reason = f"holds the entries of {whose}{f' ({begin})' * bool(begin)}; {REBUILD}"
        yield judged, MisfiledQueueError(judged.file.path, reason)


def _first_location(fs: FileSystem, file: OffsetFile) -> RecordLocation | None:
    """Return where the first unit points, _NO_LOCATION if it points nowhere, or None if the file cannot be read."""
    try:
        opened = fs.open(file.path)
        try:
            raw = opened.read_at(0, UNIT_SIZE)
        finally:
            opened.close()
    except (FileNotFoundError, DiskError):  # reported when the file is needed
        return None
    phy_offset, size, _ = decode_entry(raw) if len(raw) == UNIT_SIZE else (*_NO_LOCATION, 0)
    return (phy_offset, size) if phy_offset >= 0 and size >= MIN_RECORD_SIZE else _NO_LOCATION


def _slots(slots_at: SlotsAt, locations: Iterable[RecordLocation]) -> dict[RecordLocation, Slot | None]:
    ordered = sorted(locations)
    return dict(zip(ordered, slots_at(ordered), strict=True))


def _judge_closely(
    fs: FileSystem, name: QueueName, file: OffsetFile, slots_at: SlotsAt, log_begin: int, log_end: int
) -> JudgedFile:
    """Judge a file by its last unit, and if that does not fit the queue either, by units from the whole file."""
    first = file.offset // UNIT_SIZE
    try:
        opened = fs.open(file.path)
        try:
            units = Units(read_data(opened, 0, file.size_bytes))
        finally:
            opened.close()
    except (FileNotFoundError, DiskError):
        return JudgedFile(name, file, None)
    rows = _rows_in_log(units, log_begin, log_end)
    if not len(rows):
        return JudgedFile(name, file, None)
    last = units[int(rows[-1])][:2]
    if slots_at([last])[0] == (*name, first + int(rows[-1])):
        return JudgedFile(name, file, None)
    looked_at = np.unique(rows[np.linspace(0, len(rows) - 1, _LOOKED_AT).astype(np.int64)])
    locations = list(zip(units.phy_offsets[looked_at].tolist(), units.sizes[looked_at].tolist(), strict=True))
    slots, owners = _slots(slots_at, set(locations)), Counter[Owner]()
    for row, location in zip(looked_at.tolist(), locations, strict=True):
        if (slot := slots[location]) is not None:
            owners[Owner(slot[0], slot[1], slot[2] - first - row)] += 1
    nowhere = [location[0] for location in locations if slots[location] is None]
    return JudgedFile(name, file, _owner(name, file, owners), nowhere, len(locations))


def _rows_in_log(units: Units, log_begin: int, log_end: int) -> NDArray[np.int64]:
    phy_offsets, is_record = units.phy_offsets, units.is_message & (units.sizes >= MIN_RECORD_SIZE)
    return np.flatnonzero(is_record & (phy_offsets >= log_begin) & (phy_offsets < log_end))


def _owner(name: QueueName, file: OffsetFile, slots: Counter[Owner]) -> Owner | None:
    """Return the queue that most of these units belong to, or None if that is ``name`` or the result is not certain."""
    if not slots:
        return None
    queues = Counter[QueueName]()
    for slot, count in slots.items():
        queues[slot[:2]] += count
    queue, count = queues.most_common(1)[0]
    if count * 2 <= queues.total():
        return None
    owner, _ = max(((slot, count) for slot, count in slots.items() if slot[:2] == queue), key=lambda item: item[1])
    if queue == name:
        # A distance of whole files shows a file in a wrong place. A distance of a few slots is a queue that RocketMQ
        # continued with a gap.
        is_other_file = owner.distance != 0 and owner.distance * UNIT_SIZE % file.size_bytes == 0
        return owner if is_other_file and slots[owner] * 2 > queues.total() > 1 else None
    # A single record may have a damaged topic or queue id.
    return owner if count > 1 or not is_near(queue, name) else None


def is_near(queue: QueueName, other: QueueName) -> bool:
    """Whether two different queues are of one topic, or have one queue id: damage of one field leads between them."""
    return queue != other and (queue[0] == other[0] or queue[1] == other[1])
