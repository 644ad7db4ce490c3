"""Checks whether the newest files of the commit log are missing: the last one is full, and something points past it.

The usual cause: a writer continued in another directory of the log (a second path of storePathCommitLog, a new disk),
and a later start is given only the first. A recovery would treat the log as shorter than it is, cut the queues, and
assign their offsets again. RocketMQ 5.5.0 does that.

A kill or a power cut leaves a different state. The name of a new log file is durable before its first record. Before a
recovery removes log files, it makes durable that no queue points into them. So if the last file is full (its records
are whole up to a blank at its end), the next one is missing, and a queue's unit or the checkpoint points past it, then
the next one existed. If the last file is not full, a power cut may have interrupted a recovery. In a store that was
closed this is impossible: there it is enough that two things that point past the last file agree, so that it is not one
damaged number.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import DiskError, MissingLogEndError, NotAStoreError
from gantrymq.format.checkpoint import CHECKPOINT_SIZE, Checkpoint, decode_checkpoint
from gantrymq.format.names import offset_name
from gantrymq.format.queue_entry import UNIT_SIZE, QueueEntry, decode_entry
from gantrymq.format.queue_units import Units
from gantrymq.format.record import CheckCRC
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import File, FileSystem
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.log_scanner import LogScanner
from gantrymq.store.log.mapped_file_queue import ACCEPT
from gantrymq.store.log.record_batch import DigestScan, check_code, first_torn
from gantrymq.store.paths import OffsetFile, StorePaths, offset_files
from gantrymq.store.queue.queue_listing import ListedQueue

_BESIDE_BODY_BYTES = 128 << 10  # of a record: topic, properties, and the blank after it
_MAX_UNITS = 4096  # examined per queue, where units must agree
_BATCH_RECORDS = 4096


class _Behind(NamedTuple):
    """The units [begin, end) of one queue that point past the log. ``last`` is the last of them."""

    directory: Path
    begin: int
    end: int
    last: QueueEntry


def missing_end(
    fs: FileSystem,
    paths: StorePaths,
    files: Sequence[OffsetFile],
    queues: Iterable[ListedQueue],
    config: MessageStoreConfig,
) -> MissingLogEndError | None:
    """Return the error that describes missing files after the last of ``files``, or None without evidence for them.

    ``config`` has the sizes of files. Raises StorePermissionError.
    """
    is_closed, page = not fs.exists(paths.abort), read_checkpoint(fs, paths)
    empty = [file for file in files if not file.size_bytes]
    if empty and not is_closed:
        return None  # a power cut took the length of the file
    size = config.mapped_file_size_commit_log
    last = next((file for file in reversed(files) if file.size_bytes), None)
    if last is None or last.size_bytes != size:
        return None
    end = last.offset + size
    stated_end = max(page.logics_physical_offset, page.confirm_phy_offset if is_closed else 0)
    may_be_full = _has_end(fs, last, config)
    # In a store that RocketMQ has closed, the checkpoint does not say how far the log reached.
    if not may_be_full and (not is_closed or 0 < page.confirm_phy_offset <= end):
        return None
    behind = list(_units_behind(fs, queues, end, config.mapped_file_size_consume_queue))
    if not behind and stated_end <= end:
        return None
    is_full = may_be_full and _is_full(fs, paths, last, config)
    if not is_full and not (is_closed and _agree(fs, behind, page, end, config.mapped_file_size_consume_queue)):
        return None
    now = offset_files(fs, paths.commit_logs)
    if any(file.offset >= end and (file.size_bytes or not is_closed) for file in now):
        return None  # a running writer has created the next file
    return _error(paths, end, size, behind, stated_end, is_empty=bool(empty))


def read_checkpoint(fs: FileSystem, paths: StorePaths) -> Checkpoint:
    """Return the checkpoint on the disk, or zeros if it is missing or unreadable."""
    try:
        file = fs.open(paths.checkpoint)
    except (FileNotFoundError, DiskError, NotAStoreError):
        return Checkpoint()
    try:
        return decode_checkpoint(file.read_at(0, CHECKPOINT_SIZE))
    except DiskError:
        return Checkpoint()
    finally:
        file.close()


def _error(
    paths: StorePaths, end: int, size: int, behind: Sequence[_Behind], stated_end: int, *, is_empty: bool
) -> MissingLogEndError:
    path = paths.directory_for(end // size) / offset_name(end)
    reached = max(
        [stated_end, *(queue_behind.last.phy_offset + queue_behind.last.size_bytes for queue_behind in behind)]
    )
    if behind:
        count, example = sum(queue_behind.end - queue_behind.begin for queue_behind in behind), behind[0].directory
        queues = f"{len(behind)} consume queues" if len(behind) > 1 else f"consume queue {example.name}"
        evidence = f"{count} entries of {queues} ({example.parent.name}/{example.name}) point after it"
    else:
        evidence = "the checkpoint covers more"
    state = "is empty" if is_empty else "is missing"
    reason = f"{state}: the files of the commit log end at {end}, but {evidence}, up to {reached}; "
    reason += "give all directories of the log (storePathCommitLog in the broker.conf, -c), or mount its disk; "
    reason += "`gantrymq store recover` drops these entries, and lists the messages; "
    return MissingLogEndError(path, f"{reason}{ACCEPT} opens the store without them", reached)


# The last file


def _has_end(fs: FileSystem, last: OffsetFile, config: MessageStoreConfig) -> bool:
    """Whether there are bytes so close to the end of the file that it may be full."""
    length = min(last.size_bytes, config.max_message_size_bytes + _BESIDE_BODY_BYTES)
    try:
        file = fs.open(last.path)
        try:
            at = file.data_from(last.size_bytes - length)
            raw = file.read_at(at, last.size_bytes - at) if at < last.size_bytes else b""
            return raw.count(0) < len(raw)
        finally:
            file.close()
    except (DiskError, FileNotFoundError):
        return True


def _is_full(fs: FileSystem, paths: StorePaths, last: OffsetFile, config: MessageStoreConfig) -> bool:
    """Whether a recovery would read this file up to a blank at its end."""
    check = CheckCRC.WHOLE_RECORD if config.force_verify_prop_crc else CheckCRC.BODY
    log = CommitLog(fs, paths, config.mapped_file_size_commit_log)
    try:
        log.load(last.offset)
        if len(log.queue.files) != 1:
            return False
        scan = DigestScan(check_code(check), config.delay_levels_ms, _BATCH_RECORDS)
        scanner = LogScanner(log, last.offset, None, scan)
        is_whole = all(first_torn(batch) == batch.count for batch in scanner)
        return is_whole and scanner.stop is StopReason.BLANK
    except (DiskError, FileNotFoundError):
        return False
    finally:
        log.close()


# The queues


def _units_behind(fs: FileSystem, queues: Iterable[ListedQueue], end: int, file_size: int) -> Iterator[_Behind]:
    """Yield, for each queue whose last unit points past ``end``, its units that do."""
    for _, directory, files in queues:
        whole_files = [file for file in files if file.size_bytes == file_size]
        try:
            behind = _behind(fs, directory, whole_files, end)
        except (DiskError, FileNotFoundError):  # unreadable files are no evidence
            continue
        if behind is not None:
            yield behind


def _behind(fs: FileSystem, directory: Path, files: Sequence[OffsetFile], end: int) -> _Behind | None:
    units, last = 0, None
    begin: int | None = None
    for entry in reversed(files):
        file = fs.open(entry.path)
        try:
            first = entry.offset // UNIT_SIZE
            count = _first_where(file, entry.size_bytes // UNIT_SIZE, lambda unit: unit.size_bytes <= 0)
            if last is None and count:
                units, last = first + count, _unit(file, count - 1)
                if not _leads_behind(last, end):
                    return None
            if last is not None:
                at = _first_where(file, count, lambda unit: _leads_behind(unit, end))
                if at < count:
                    begin = first + at
                if at:
                    break
        finally:
            file.close()
    return _Behind(directory, begin, units, last) if last is not None and begin is not None else None


def _leads_behind(unit: QueueEntry, end: int) -> bool:
    return unit.is_message and unit.phy_offset >= end


def _first_where(file: File, count: int, is_so: Callable[[QueueEntry], bool]) -> int:
    """Return the first of ``count`` units for which ``is_so`` holds, or ``count`` if there is none.

    ``is_so`` must hold for all units after that one.
    """
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_so(_unit(file, middle)) else (middle + 1, high)
    return low


def _unit(file: File, number: int) -> QueueEntry:
    return decode_entry(file.read_at(number * UNIT_SIZE, UNIT_SIZE))


def _agree(fs: FileSystem, behind: Sequence[_Behind], page: Checkpoint, end: int, file_size: int) -> bool:
    """Whether a unit points exactly to the end of the log, joins another unit, or is the last one by the checkpoint."""
    ranges = []
    for queue_behind in behind:
        begin, stop = queue_behind.begin * UNIT_SIZE, min(queue_behind.end, queue_behind.begin + _MAX_UNITS) * UNIT_SIZE
        try:
            file = fs.open(queue_behind.directory / offset_name(begin - begin % file_size))
            try:
                raw = file.read_at(begin % file_size, stop - begin)
            finally:
                file.close()
        except (DiskError, FileNotFoundError):
            continue
        units = Units(raw)
        is_behind = units.is_message & (units.phy_offsets >= end)
        begins = units.phy_offsets[is_behind]
        ranges.append(np.stack([begins, begins + units.sizes[is_behind]]))
    begins, ends = np.concatenate(ranges, axis=1) if ranges else np.empty((2, 0), np.int64)
    expected = [end, page.logics_physical_offset]
    return bool(
        np.isin(begins, expected).any() or np.isin(ends, begins).any() or np.isin(ends, [page.confirm_phy_offset]).any()
    )
