"""Which queue the files of a queue directory are of: the records say it that their units lead to.

A directory of a queue that was swapped with another one, renamed or copied, or a file that got into another queue's
directory, is found by looking at a few units of each file: one of a sound file, about sixty of one in doubt. What is
damaged within a file, and what is of another store, is not found so.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import DiskError, MisfiledQueueError
from gantrymq.format.names import offset_name
from gantrymq.format.queue_entry import BLANK_UNIT_SIZE, UNIT_SIZE
from gantrymq.format.record import MIN_RECORD_SIZE
from gantrymq.fs.api import FileSystem
from gantrymq.store.consume_queue import REBUILD, UNIT_DTYPE
from gantrymq.store.light_queues import is_light
from gantrymq.store.offset_files import OffsetFile, offset_files
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue_names import queue_directories

QueueName = tuple[str, int]
SlotAt = Callable[[int, int], tuple[str, int, int] | None]
"""(topic, queue id, queue offset) of the record of ``size`` bytes at a place of the log; None where there is none."""
_LOOKED_AT = 64


class Owner(NamedTuple):
    """The units of a file are of this queue, and of its slots that are ``distance`` further on than the file says."""

    topic: str
    queue_id: int
    distance: int


@dataclass(frozen=True, slots=True)
class JudgedFile:
    """A file of the directory of queue ``name``. ``owner`` is None where it is of that queue, as far as one can see.

    ``nowhere`` are the places, of those that were ``looked_at``, at which no record begins.
    """

    name: QueueName
    file: OffsetFile
    owner: Owner | None
    nowhere: list[int] = field(default_factory=list)
    looked_at: int = 0


def judge_queue_files(
    fs: FileSystem, paths: StorePaths, slot_at: SlotAt, log_begin: int, log_end: int
) -> Iterator[JudgedFile]:
    """Every file of every queue, by the records in [log_begin, log_end) of the log.

    Light queues are left out: their units lead to records of other queues. Raises StorePermissionError.
    """
    for topic, queue_id in queue_directories(fs, paths.consume_queue):
        if not is_light(topic):
            for file in offset_files(fs, [paths.consume_queue / topic / str(queue_id)]):
                yield _judge(fs, (topic, queue_id), file, slot_at, log_begin, log_end)


def misfiled_queues(
    fs: FileSystem, paths: StorePaths, slot_at: SlotAt, log_begin: int, log_end: int
) -> Iterator[tuple[JudgedFile, MisfiledQueueError]]:
    """The first file of each queue that is of another one, and the error that says so."""
    seen: set[QueueName] = set()
    for judged in judge_queue_files(fs, paths, slot_at, log_begin, log_end):
        owner = judged.owner
        if owner is None or judged.name in seen:
            continue
        seen.add(judged.name)
        begin = offset_name(judged.file.offset + owner.distance * UNIT_SIZE) if owner.distance else ""
        whose = "another place of the queue" if owner[:2] == judged.name else f"queue {owner.queue_id} of {owner.topic}"
        reason = f"holds the entries of {whose}{f' ({begin})' * bool(begin)}; {REBUILD}"
        yield judged, MisfiledQueueError(judged.file.path, reason)


def _judge(
    fs: FileSystem, name: QueueName, file: OffsetFile, slot_at: SlotAt, log_begin: int, log_end: int
) -> JudgedFile:
    first = file.offset // UNIT_SIZE
    try:
        opened = fs.open(file.path)
        try:
            head = np.frombuffer(opened.read_at(0, UNIT_SIZE), np.uint8)
            if len(head) == UNIT_SIZE and _is_own(head.view(UNIT_DTYPE)[0], name, first, slot_at):
                return JudgedFile(name, file, None)
            raw = np.frombuffer(opened.read_at(0, file.size_bytes), np.uint8)
        finally:
            opened.close()
    except (FileNotFoundError, DiskError):  # it is told of where the file is needed
        return JudgedFile(name, file, None)
    units = raw[: len(raw) - len(raw) % UNIT_SIZE].view(UNIT_DTYPE)
    rows = _rows_in_log(units, log_begin, log_end)
    if not len(rows) or _is_own(units[rows[-1]], name, first + int(rows[-1]), slot_at):
        return JudgedFile(name, file, None)
    slots, nowhere, looked_at = Counter[Owner](), [], 0
    for row in np.unique(rows[np.linspace(0, len(rows) - 1, _LOOKED_AT).astype(np.int64)]).tolist():
        place, size, _ = units[row].item()
        said, looked_at = slot_at(place, size), looked_at + 1
        if said is None:
            nowhere.append(place)
        else:
            slots[Owner(said[0], said[1], said[2] - first - row)] += 1
    return JudgedFile(name, file, _owner(name, file, slots), nowhere, looked_at)


def _rows_in_log(units: NDArray[np.void], log_begin: int, log_end: int) -> NDArray[np.int64]:
    places, sizes = units["phy_offset"], units["size"]
    is_size = (sizes >= MIN_RECORD_SIZE) & (sizes != BLANK_UNIT_SIZE)
    return np.flatnonzero(is_size & (places >= log_begin) & (places < log_end))


def _is_own(unit: np.void, name: QueueName, slot: int, slot_at: SlotAt) -> bool:
    place, size, _ = unit.item()
    return place >= 0 and size >= MIN_RECORD_SIZE and slot_at(place, size) == (*name, slot)


def _owner(name: QueueName, file: OffsetFile, slots: Counter[Owner]) -> Owner | None:
    """Whose units these are, by most of them; None where that is ``name``, or nothing is certain."""
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
        # Whole files that lie in another's place; a few slots off are a queue that RocketMQ went on in with a gap.
        is_other_file = owner.distance != 0 and owner.distance * UNIT_SIZE % file.size_bytes == 0
        return owner if is_other_file and slots[owner] * 2 > queues.total() > 1 else None
    # One record with a wrong bit in its topic or queue id is no queue.
    return owner if count > 1 or not is_one_damage(queue, name) else None


def is_one_damage(said: QueueName, name: QueueName) -> bool:
    """Whether two queues differ in one bit of the queue id, or in one character of the topic."""
    if said[0] == name[0]:
        return (said[1] ^ name[1]).bit_count() == 1
    is_alike = said[1] == name[1] and len(said[0]) == len(name[0])
    return is_alike and sum(a != b for a, b in zip(said[0], name[0], strict=True)) == 1
