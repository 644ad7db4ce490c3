"""A store as the driver sees it: its queues, where their messages lie, and where the log begins and ends.

A log or queues that are missing beside the rest of a store are an error, not an empty store.

The view is opened once, as a recovery would leave the store (:class:`gantrymq.store.reader.StoreReader`). Of a store
that was closed, or that a writer has open, only the very end is read for that. Afterwards only appended records are
read (:class:`gantrymq.spark.plan.log_tail.LogTail`). When the log was changed otherwise (a recovery cut it, retention
removed files) the store is opened again.

To find the first record at or behind an offset, the consume queues give the nearest record before it, and the log is
scanned from there.

No lock is taken and nothing is written. Thread rule: one thread.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantrymq.config.settings import PATH_SEPARATOR, MessageStoreConfig
from gantrymq.errors import DiskError, MissingLogBeginError, StoreError, WrongFileSizeError
from gantrymq.format.checkpoint import decode_checkpoint
from gantrymq.format.names import CHECKPOINT, COMMIT_LOG, CONSUME_QUEUE, offset_name
from gantrymq.format.queue_entry import BLANK_UNIT_SIZE, UNIT_SIZE
from gantrymq.kernels import codes
from gantrymq.model.message import StoredMessage
from gantrymq.spark.locations import Location, NamedStore, content_of, entries_of, log_files
from gantrymq.spark.log_file import BadSectorError, LogFile, NotThereError, message_at
from gantrymq.spark.log_mark import MARK_BYTES, LogEnd, LogMark, require_retention
from gantrymq.spark.plan.log_tail import LogChangedError, LogTail
from gantrymq.spark.plan.queue_view import QueueView
from gantrymq.spark.plan.remote_store import OffsetFile, RemoteQueue, RemoteStore, files_in
from gantrymq.spark.runs import LogPiece
from gantrymq.store.log.log_scanner import LogScanner
from gantrymq.store.log.record_batch import RecordScan
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.queue.queue_listing import queue_id_of
from gantrymq.store.reader import StoreReader


def require_log(location: Location) -> None:
    """Raise StoreError where a store has no log file though its checkpoint or its queues know of messages."""
    log = location / COMMIT_LOG
    if log_files(log):
        return
    told = decode_checkpoint(content_of(location / CHECKPOINT))
    if told.physic_msg_timestamp_ms > 0 or told.confirm_phy_offset > 0:
        witness = "the checkpoint says that there are messages"
    elif (queue := next(_queues_with_units(location), None)) is not None:
        witness = f"{queue} holds units"
    else:
        return
    advice = "mount the disk of the log, or give store.storePathCommitLog"
    reason = f"is missing or has no log file, but {witness}; {advice}"
    raise StoreError(str(log), reason)


def _queues_with_units(location: Location) -> Iterator[Location]:
    root = location / CONSUME_QUEUE
    for topic in entries_of(root) or ():
        for queue in entries_of(root / topic.base_name) or ():
            directory = root / topic.base_name / queue.base_name
            if queue_id_of(queue.base_name) is not None and any(map(_has_unit, files_in(directory)[:1])):
                yield directory


def _has_unit(file: OffsetFile) -> bool:
    if file.size_bytes < UNIT_SIZE:
        return False
    with LogFile(file.location) as opened:
        return any(opened.read_readable(0, UNIT_SIZE))


def record_at_or_after(reader: StoreReader, guides: Iterable[ConsumeQueue], offset: int) -> int:
    """Where the first record at or behind ``offset`` begins in its file; the file's end where it cannot be told.

    ``guides`` are queues to ask for a place near it.
    """
    file = reader.log.queue.find(offset)
    if file is None:
        return offset
    known = file.file_from_offset
    for queue in guides:
        unit = queue.entry(queue.find_first(offset) - 1)
        if unit is not None and known < unit.phy_offset < offset and is_record(reader, unit.phy_offset):
            known = unit.phy_offset
    found = _scan_to(reader, known, offset)
    return reader.log.roll_next_file(offset) if found is None else found


def is_record(reader: StoreReader | RemoteStore, offset: int) -> bool:
    """Whether a readable record begins at ``offset``: a place that a damaged unit names is not believed."""
    return reader.message_at(offset) is not None


def _scan_to(reader: StoreReader, start: int, target: int) -> int | None:
    """The first record at or behind ``target``, by the records from ``start`` on; None where they break off before.

    The scanner asks for pages before it looks at them: a bad sector, or a file that was cut, ends no process.
    """
    scanner = LogScanner(reader.log, start, target, RecordScan(codes.CHECK_OFF))
    try:
        for _ in scanner:
            pass
    except DiskError:
        return None
    return None if scanner.stop else scanner.offset


_LOGGER = logging.getLogger(__name__)
_MOST_TAIL_RECORDS = 4_000_000
_OPEN_TRIES = 5
_OPEN_PAUSE_S = 0.02
_GUIDES = 8
_CLOSE_BEHIND_BYTES = 64 << 10  # what an object store gives as quickly as less
_NEXT_FILES = 16
_NEVER_MS = -(1 << 63)
_LOGGER = logging.getLogger(__name__)


class StoreView:
    """The store of one broker. Use it as a context manager, or close it."""

    def __init__(self, store: NamedStore, *, skips_lost: bool = False) -> None:
        self._skips_lost = skips_lost
        self.broker = store.broker
        self.location = store.location
        self.queues: dict[tuple[str, int], QueueView] = {}
        self.replaced: dict[tuple[str, int], int] = {}
        """Up to which offset the last refresh found other messages in a queue than were there: recreated, or cut."""
        self.is_new = True
        """Whether the store was opened since somebody set it to False, so that queues may have been recreated."""
        self.has_lost_ends = True
        """The same for ``lost_ends``, which need be told once."""
        self._log = store.location / COMMIT_LOG
        self._file_marks: dict[int, LogMark] = {}
        self._told: set[str] = set()  # of what may be missing in front of the log
        self._files: list[int] = []
        self._open()

    @property
    def begin(self) -> int:
        """Where the log begins."""
        return self._files[0] if self._files else max(self.reader.min_phy_offset, 0)

    @property
    def end(self) -> int:
        """Behind the last record."""
        return self._tail.end

    @property
    def tail_begin(self) -> int:
        """Where the tail begins: from here on records and their places are known exactly."""
        return self._tail.begin

    def refresh(self) -> None:
        """Take note of what was appended, and of what retention has deleted."""
        self.replaced = {}
        files = log_files(self._log)
        if self._files and not files:
            raise StoreError(
                str(self._log), "is missing or has no log file, but it was read before; mount the disk of the log"
            )
        try:
            if files[:1] != self._files[:1] or self._tail.records > _MOST_TAIL_RECORDS:
                raise LogChangedError(str(self._log), "begins elsewhere now")
            self._tail.refresh()
            self._files = files
            self._take_tail()
        except LogChangedError as error:
            last = {
                key: (queue.max_offset - 1, *queue.last_message)
                for key, queue in self.queues.items()
                if queue.min_offset < queue.max_offset
            }
            self.reader.close()
            self._open()
            self.replaced = {
                key: offset + 1
                for key, (offset, *place) in last.items()
                if key == error.queue or self._is_moved(key, offset, *place)
            }

    def _is_moved(self, key: tuple[str, int], queue_offset: int, place: int, end: int) -> bool:
        """Whether a queue's message, which was at ``place`` or ended at ``end``, is another now; -1 is not known.

        What is gone has not moved.
        """
        queue = self.queues.get(key)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return False
        message = self.message_at(queue.phy_offset(queue_offset))
        if message is None or (message.topic, message.queue_id, message.queue_offset) != (*key, queue_offset):
            return False  # a damaged unit says nothing
        return place not in (-1, message.phy_offset) or end not in (-1, message.phy_offset + message.size_bytes)

    def _open(self) -> None:
        for tries_left in reversed(range(_OPEN_TRIES)):
            try:
                self._open_once()
                return
            except (FileNotFoundError, LogChangedError, WrongFileSizeError):
                # Retention was quicker, or a writer is just making a file.
                if not tries_left:
                    raise
                time.sleep(_OPEN_PAUSE_S)

    def _open_once(self) -> None:
        self._files = log_files(self._log)
        if not self._files:
            require_log(self.location)
        self._file_marks.clear()
        self.is_new = self.has_lost_ends = True
        self.reader = open_reader(self.location, skips_lost=self._skips_lost)
        self._require_begin()
        stored: list[Any] = list(self.reader.consume_queues)
        self.queues = {(queue.topic, queue.queue_id): QueueView(queue.topic, queue.queue_id, queue) for queue in stored}
        self._guides = sorted(stored, key=lambda queue: queue.min_offset - queue.max_offset)[:_GUIDES]
        self._tail = LogTail(self._log, self.reader.log.file_size, max(self.reader.max_phy_offset, 0))

    def _require_begin(self) -> None:
        """Raise where the disk with the log's begin is not mounted, and tell where it may be another one."""
        if not isinstance(self.reader, StoreReader):
            return
        for problem in self.reader.problems:
            if isinstance(problem, MissingLogBeginError):
                self.reader.close()
                advice = "mount its disk, or leave it out of store.storePathCommitLog"
                raise MissingLogBeginError(problem.path, f"{problem.seen}; {advice}")
        for note in self.reader.notes:
            if str(note) not in self._told:
                _LOGGER.warning("%s", note)
                self._told.add(str(note))

    def _take_tail(self) -> None:
        for key, queue in self._tail.queues.items():
            view = self.queues.get(key) or self.queues.setdefault(key, QueueView(*key, None))
            if not view.take_tail(queue.first_offset, queue.phy_offsets):
                where = f"topic {key[0]}, queue {key[1]} does not go on where it ended"
                error = LogChangedError(str(self._log), where)
                if queue.first_offset < view.max_offset:
                    error.queue = key
                raise error

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The first queue offset stored at ``timestamp_ms`` or later; the max offset where there is none."""
        queue = self.queues[topic, queue_id]
        if queue.stored is not None:
            found = self.reader.offset_at(topic, queue_id, timestamp_ms)
            if found < queue.tail.start:
                return found
        # The reader knows nothing of what came since it was opened.
        return queue.tail.start + bisect_left(queue.tail, timestamp_ms, key=partial(self._stored_ms, queue))

    def message_at(self, phy_offset: int) -> StoredMessage | None:
        """The record that begins at ``phy_offset``; None where none does, or none can be read."""
        try:
            return message_at(self._log, self.reader.log.file_size, phy_offset)
        except (NotThereError, BadSectorError):
            return None

    def _stored_ms(self, queue: QueueView, queue_offset: int) -> int:
        """When a message of the tail was stored."""
        message = message_at(self._log, self.reader.log.file_size, queue.phy_offset(queue_offset))
        return _NEVER_MS if message is None else message.store_timestamp_ms

    def record_at_or_after(self, phy_offset: int) -> int:
        """Where the first record at or behind ``phy_offset`` begins; the end of its file where that cannot be told."""
        if phy_offset >= self._tail.begin:
            parts = self._tail.phy_offsets
            at = bisect_left(parts, phy_offset, key=lambda part: int(part[-1]))
            return int(parts[at][np.searchsorted(parts[at], phy_offset)]) if at < len(parts) else self.end
        if isinstance(self.reader, RemoteStore):
            return self.reader.record_at_or_after(phy_offset)
        return record_at_or_after(self.reader, self._guides, phy_offset)

    def tail_sizes(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many bytes lie between each of ``places`` of the tail and the record behind it."""
        if not len(places):
            return np.empty(0, np.int64)
        begins = np.concatenate([*self._tail.phy_offsets, [self.end]])
        return begins[np.searchsorted(begins, places, side="right")] - places

    def lost_ends(self) -> dict[tuple[str, int], range]:
        """The queue offsets whose units name places behind the end of the log: its last files are not there, or cut.

        A recovery cuts such units, so they are taken from the files.
        """
        reader = self.reader
        if isinstance(reader, StoreReader) and not reader.recovery.queue_units_cut:
            return {}
        found = {}
        for key, queue in self.queues.items():
            raw = queue.stored
            if not isinstance(raw, RemoteQueue):
                raw = RemoteQueue(*key, self._queue_directory(queue), 0)
            lost = range(raw.find_first(self.end), raw.max_offset)
            if lost and self._has_reached(raw, lost.start):
                found[key] = lost
        return found

    def _has_reached(self, queue: RemoteQueue, queue_offset: int) -> bool:
        """Whether the log had the place that a unit names behind its end; else the unit is damaged.

        The checkpoint tells. That of 4.x does not: there a place counts that lies in one of the next files.
        """
        told = decode_checkpoint(content_of(self.location / CHECKPOINT))
        reached = max(told.confirm_phy_offset, told.logics_physical_offset)
        if reached > 0:
            return reached > self.end
        unit = queue.entry(queue_offset)
        return unit is not None and unit.phy_offset < self.end + _NEXT_FILES * self.reader.log.file_size

    def begins_late(self, queue: QueueView) -> bool:
        """Whether a queue's first file may be missing: that retention deleted the one in front of it does not show.

        Retention leaves a file of a queue until its last message is gone, so the first unit of the next one is, too.
        """
        files = files_in(self._queue_directory(queue))
        if not files or not files[0].begin or queue.stored is None:
            return False
        first = queue.stored.entry(files[0].begin // UNIT_SIZE)
        return first is not None and first.size_bytes != BLANK_UNIT_SIZE and first.phy_offset >= self.begin

    def doubt_of(self, queue: QueueView) -> str | None:
        """Why a first or last file of a queue may be missing, so that it seems to begin late or to end early."""
        if self.begins_late(queue):
            return (
                f"its first file may be missing: it begins at offset {queue.min_offset}, which is no end of retention"
            )
        files = files_in(self._queue_directory(queue))
        end = queue.tail.start * UNIT_SIZE
        is_full = bool(files) and end == files[-1].begin + files[-1].size_bytes and self.reader.last_exit_ok
        return (
            f"its next file may be missing: it ends at offset {queue.tail.start}, as its last file does"
            if is_full
            else None
        )

    def _queue_directory(self, queue: QueueView) -> Location:
        return self.location / CONSUME_QUEUE / queue.topic / str(queue.queue_id)

    def goes_on(self, queue: QueueView) -> bool:
        """Whether something is written behind what was taken for a queue's last unit, or close behind it.

        Its last file reads as zeros from where it ends; else a damaged unit was taken for the end, or a writer goes on.
        Where it ends with its last file, the next one may be missing.
        """
        files = files_in(self._queue_directory(queue))
        end = queue.tail.start * UNIT_SIZE
        if not files or end < files[-1].begin or end >= files[-1].begin + files[-1].size_bytes:
            return bool(files)
        last = files[-1]
        behind = bytearray(max(min(last.begin + last.size_bytes - end, _CLOSE_BEHIND_BYTES), 0))
        with LogFile(last.location) as file:
            file.read_into(memoryview(behind), end - last.begin)
        return behind != bytes(len(behind))

    def pieces(self, start: int, stop: int, losses: list[str]) -> tuple[LogPiece, ...]:
        """The parts of [start, stop) file by file, each with its marks.

        What a missing or short file does not give goes to ``losses``, in words. Raises StoreError where a file went
        away that retention did not delete.
        """
        size = self.reader.log.file_size
        found = []
        for base in range(start - start % size, stop, size):
            piece = LogPiece(self._log / offset_name(base), base, max(start, base), min(stop, base + size))
            if piece.start < piece.stop:
                found += self._marked(piece, losses)
        return tuple(found)

    def _marked(self, piece: LogPiece, losses: list[str]) -> list[LogPiece]:
        """The piece with its marks, cut to what its file has."""
        try:
            with LogFile(piece.location) as file:
                stop = min(piece.stop, piece.base + file.size_bytes())
                if stop < piece.stop:
                    gone = _unread(max(stop, piece.start), piece)
                    losses.append(f"{piece.location} ends at {stop - piece.base}: {gone}")
                if stop <= piece.start:
                    return []
                try:
                    return [replace(piece, stop=stop, marks=self._marks(file, piece, stop))]
                except StoreError:  # a bad sector, which the executor will come upon
                    return [replace(piece, stop=stop)]
        except NotThereError as error:
            if piece.base in self._files:
                require_retention(error, piece.location, piece.base, None)
            losses.append(f"{piece.location} is missing: {_unread(piece.start, piece)}")
            return []

    def _marks(self, file: LogFile, piece: LogPiece, stop: int) -> tuple[LogMark, ...]:
        """Both ends of a piece; on another file system, where each costs a request, the beginning of its file."""
        if piece.location.uri is not None:
            if piece.base not in self._file_marks:
                self._file_marks[piece.base] = LogMark.read(file, 0, min(MARK_BYTES, stop - piece.base))
            return (self._file_marks[piece.base],)
        size = min(MARK_BYTES, stop - piece.start)
        return (
            LogMark.read(file, piece.start - piece.base, size),
            LogMark.read(file, stop - size - piece.base, size),
        )

    def log_end(self) -> LogEnd | None:
        """How the log ends now; None for an empty one, or one whose end cannot be read."""
        size = self.reader.log.file_size
        if not self._files or self.end <= self.begin:
            return None
        base = max(self.end - 1, 0) // size * size
        at = max(self.end - base - MARK_BYTES, 0)
        try:
            with LogFile(self._log / offset_name(base)) as file:
                return LogEnd(base, LogMark.read(file, at, self.end - base - at))
        except StoreError:
            return None

    def close(self) -> None:
        """Close the files."""
        self.reader.close()

    def __enter__(self) -> StoreView:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def _unread(start: int, piece: LogPiece) -> str:
    return f"the records at physical offsets {start} to {piece.stop - 1} are gone"


def open_reader(location: Location, *, skips_lost: bool = False) -> StoreReader | RemoteStore:
    """A reader of the store, wherever it lies; raises NotAStoreError and other StoreErrors.

    With ``skips_lost`` what the disk does not give back of a local store is a warning, where the plan can do without.
    """
    if location.uri is not None:
        return RemoteStore(location)
    config = MessageStoreConfig(store_path_commit_log=PATH_SEPARATOR.join(location.logs))
    reader = StoreReader.open(Path(location.path), config, trusts_writer=True, skips_lost=skips_lost)
    for problem in reader.problems if skips_lost else ():
        if isinstance(problem, DiskError):
            _LOGGER.warning("%s; planned without it (failOnDataLoss=false)", problem)
    return reader
