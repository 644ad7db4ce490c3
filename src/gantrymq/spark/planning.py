"""Cutting a store's commit log into partitions, on the driver.

The end of the log is where a recovery would put it (:class:`gantrymq.store.reader.StoreReader`), so executors read
what is there to be read and need no recovery themselves. Of a store that is being written that is what was there when
the query was planned.

A cut must stand where a record begins. The consume queues know such places: the nearest one in front of a cut is
taken from them, and only from there to the cut the log itself is read. Planning does not read the log as a whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from gantrymq.format.queue_entry import QueueEntry
from gantrymq.kernels import codes
from gantrymq.kernels.api import scan
from gantrymq.kernels.arrays import new_columns, read_only
from gantrymq.spark.log_run import LogPiece, LogRun
from gantrymq.spark.options import ReadOptions
from gantrymq.store.consume_queue import ConsumeQueue
from gantrymq.store.mapped_file import MappedFile
from gantrymq.store.reader import StoreReader

# A task costs Spark some 75 ms whatever it does, in which a core reads some 100 MB.
LARGEST_RUN_BYTES = 512 << 20
SMALLEST_RUN_BYTES = 16 << 20
_QUEUES_ASKED = 8
_NOWHERE = QueueEntry(1 << 62, 0, 0)


def plan_runs(options: ReadOptions) -> list[LogRun]:
    """The partitions of a read; empty where there is nothing to read.

    Raises NotAStoreError, WrongFileSizeError, StorePermissionError.
    """
    with StoreReader.open(options.path) as reader:
        queues = list(reader.consume_queues)
        topics = _topics(options, queues)
        begin, end = _bounds(reader, queues, topics)
        if begin >= end:
            return []
        cuts = [begin]
        guides = sorted(queues, key=lambda queue: queue.min_offset - queue.max_offset)[:_QUEUES_ASKED]
        for wanted in _even_cuts(begin, end, options.min_partitions):
            cut = _record_at_or_after(reader, guides, wanted)
            if cuts[-1] < cut < end:
                cuts.append(cut)
        files = reader.log.queue.files
        return [LogRun(_pieces(files, start, stop), topics) for start, stop in pairwise([*cuts, end])]


def _topics(options: ReadOptions, queues: Iterable[ConsumeQueue]) -> frozenset[str] | None:
    if options.subscribe_pattern is None:
        return options.subscribe
    pattern = re.compile(options.subscribe_pattern)
    return frozenset(queue.topic for queue in queues if pattern.fullmatch(queue.topic))


def _bounds(reader: StoreReader, queues: Iterable[ConsumeQueue], topics: frozenset[str] | None) -> tuple[int, int]:
    """From where to where the log is to be read: all of it, or what the first and last units of ``topics`` span."""
    begin, end = max(reader.min_phy_offset, 0), reader.max_phy_offset
    if topics is None:
        return begin, end
    wanted = [queue for queue in queues if queue.topic in topics and queue.min_offset < queue.max_offset]
    first = min((queue.entry(queue.min_offset) or _NOWHERE for queue in wanted), default=_NOWHERE).phy_offset
    # A place that a damaged unit names is not believed.
    begin = first if _is_record(reader, first) else begin
    return begin, min(end, max((queue.max_physic_offset for queue in wanted), default=begin))


def _even_cuts(begin: int, end: int, min_partitions: int) -> list[int]:
    total = end - begin
    cores = len(os.sched_getaffinity(0))
    count = max(min_partitions, -(-total // LARGEST_RUN_BYTES), min(cores, -(-total // SMALLEST_RUN_BYTES)), 1)
    return [begin + total * part // count for part in range(1, count)]


def _record_at_or_after(reader: StoreReader, guides: Iterable[ConsumeQueue], offset: int) -> int:
    """Where the first record at or behind ``offset`` begins in its file; the file's end where it cannot be told.

    ``guides`` are queues to ask for a place near it.
    """
    file = reader.log.queue.find(offset)
    if file is None:
        return offset
    known = file.file_from_offset
    for queue in guides:
        unit = queue.entry(queue.find_first(offset) - 1)
        if unit is not None and known < unit.phy_offset < offset and _is_record(reader, unit.phy_offset):
            known = unit.phy_offset
    found = _scan_to(file, known, offset)
    return reader.log.roll_next_file(offset) if found is None else found


def _is_record(reader: StoreReader, offset: int) -> bool:
    return reader.message_at(offset) is not None


def _scan_to(file: MappedFile, start: int, target: int) -> int | None:
    base = file.file_from_offset
    buffer, columns = read_only(file.array.data), new_columns(4096)
    position, code = start - base, codes.STOP_FULL
    while code == codes.STOP_FULL:
        _, code, position = scan(buffer, position, target - base, file.wrote_position, codes.CHECK_OFF, columns)
    return base + position if code == codes.STOP_RANGE else None


def _pieces(files: Sequence[MappedFile], start: int, stop: int) -> tuple[LogPiece, ...]:
    """The parts of [start, stop) file by file."""
    return tuple(
        LogPiece(str(file.path), file.file_from_offset, max(start, file.file_from_offset), min(stop, file.end_offset))
        for file in files
        if max(start, file.file_from_offset) < min(stop, file.end_offset)
    )
