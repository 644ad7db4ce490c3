"""A store as the driver sees it: its queues, where their messages lie, and where the log begins and ends.

A log or queues that are missing beside the rest of a store are an error, not an empty store.

The view is opened once, in the state that a recovery would leave (:class:`gantrymq.store.reader.StoreReader`). If the
store was closed, or a writer has it open, only the end of the log is read for that. Afterwards only appended records
are read (:class:`gantrymq.spark.plan.log_tail.LogTail`). If the log was changed otherwise (a recovery cut it, retention
deleted files), the store is opened again.

To find the first record at or after an offset, the consume queues give the nearest record before it, and the log is
scanned from there.

It takes no lock and writes nothing. Thread rule: one thread.
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
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.kernels import codes
from gantrymq.model.message import StoredMessage
from gantrymq.spark.log_file import (
    MARK_BYTES,
    BadSectorError,
    LogEnd,
    LogMark,
    NotThereError,
    OpenLogFile,
    message_at,
    require_retention,
)
from gantrymq.spark.plan.log_tail import LogChangedError, LogTail
from gantrymq.spark.plan.queue_view import QueueView
from gantrymq.spark.plan.remote_store import RemoteQueue, RemoteStore
from gantrymq.spark.plan.remote_units import PLANNED_BLOCK_UNITS, RemoteFile, RemoteUnits, files_in
from gantrymq.spark.runs import LogPiece
from gantrymq.store.log.log_scanner import LogScanner
from gantrymq.store.log.record_batch import RecordScan
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.queue.queue_listing import queue_id_of
from gantrymq.store.queue.unit_source import MappedUnits
from gantrymq.store.reader import StoreReader
from gantrymq.tools.locations import Location, NamedStore, content_of, entries_of, log_files


def require_log(location: Location) -> None:
    """Raise StoreError if a store has no log file although its checkpoint or its queues show that it had messages."""
    log = location / COMMIT_LOG
    if log_files(log):
        return
    checkpoint = decode_checkpoint(content_of(location / CHECKPOINT))
    if checkpoint.physic_msg_timestamp_ms > 0 or checkpoint.confirm_phy_offset > 0:
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


def _has_unit(file: RemoteFile) -> bool:
    if file.size_bytes < UNIT_SIZE:
        return False
    with OpenLogFile(file.location) as opened:
        return any(opened.read_readable(0, UNIT_SIZE))


def record_at_or_after(reader: StoreReader, guides: Iterable[ConsumeQueue], offset: int) -> int:
    """The physical offset of the first record at or after ``offset``; the end of its file if that is unknown.

    ``guides`` are queues that give a place near it.
    """
    file = reader.log.queue.find(offset)
    if file is None:
        return offset
    known = file.file_from_offset
    for queue in guides:
        unit = queue.entry(queue.find_first(offset) - 1)
        if unit is not None and known < unit.phy_offset < offset and is_record(reader, unit.phy_offset):
            known = unit.phy_offset
    record_offset = _scan_to(reader, known, offset)
    return reader.log.roll_next_file(offset) if record_offset is None else record_offset


def is_record(reader: StoreReader | RemoteStore, offset: int) -> bool:
    """Whether a readable record begins at ``offset``. A damaged unit may name a place without one."""
    return reader.message_at(offset) is not None


def _scan_to(reader: StoreReader, start: int, target: int) -> int | None:
    """The first record at or after ``target``, found by scanning from ``start``; None if the records break off.

    The scanner fetches pages before it reads them, so a bad sector or a truncated file does not kill the process.
    """
    scanner = LogScanner(reader.log, start, target, RecordScan(codes.CHECK_OFF))
    try:
        for _ in scanner:
            pass
    except DiskError:
        return None
    return None if scanner.stop else scanner.offset


_LOGGER = logging.getLogger(__name__)
_MAX_TAIL_RECORDS = 4_000_000
_OPEN_TRIES = 5
_OPEN_PAUSE_S = 0.02
_GUIDES = 8
_CLOSE_BEHIND_BYTES = 64 << 10  # an object store returns this as quickly as less
_NEXT_FILES = 16
_NEVER_MS = -(1 << 63)


class StoreView:
    """The store of one broker. Use it as a context manager, or close it."""

    def __init__(self, store: NamedStore, *, skips_lost: bool = False) -> None:
        self._skips_lost = skips_lost
        self.broker = store.broker
        self.location = store.location
        self.queues: dict[tuple[str, int], QueueView] = {}
        self.replaced: dict[tuple[str, int], int] = {}
        """Queues in which the last refresh found other messages than before: the offset up to which they differ."""
        self.is_new = True
        """True after an opening, until a caller sets it to False: queues may have been recreated."""
        self.has_lost_ends = True
        """True after an opening, until a caller sets it to False: ``lost_ends`` must be reported."""
        self._log = store.location / COMMIT_LOG
        self._file_marks: dict[int, LogMark] = {}
        self._logged_notes: set[str] = set()  # warnings about the log's begin that were logged
        self._files: list[int] = []
        self._open()

    @property
    def begin(self) -> int:
        """The physical offset at which the log begins."""
        return self._files[0] if self._files else max(self.reader.min_phy_offset, 0)

    @property
    def end(self) -> int:
        """The physical offset after the last record."""
        return self._tail.end

    @property
    def tail_begin(self) -> int:
        """The physical offset of the tail. From here on the places of all records are known."""
        return self._tail.begin

    def refresh(self) -> None:
        """Read what was appended, and forget what retention has deleted. Raises StoreError if the log is missing."""
        self.replaced = {}
        files = log_files(self._log)
        if self._files and not files:
            raise StoreError(
                str(self._log), "is missing or has no log file, but it was read before; mount the disk of the log"
            )
        try:
            if files[:1] != self._files[:1] or self._tail.records > _MAX_TAIL_RECORDS:
                raise LogChangedError(str(self._log), "begins at another offset now")
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
                for key, (offset, *end_of_last) in last.items()
                if key == error.queue or self._is_moved(key, offset, *end_of_last)
            }

    def _is_moved(self, key: tuple[str, int], queue_offset: int, phy_offset: int, end: int) -> bool:
        """Whether a queue's message, which was at ``phy_offset`` or ended at ``end``, is another one now; -1: unknown.

        A message that is gone does not count.
        """
        queue = self.queues.get(key)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return False
        message = self.message_at(queue.phy_offset(queue_offset))
        if message is None or (message.topic, message.queue_id, message.queue_offset) != (*key, queue_offset):
            return False  # a damaged unit proves nothing
        return phy_offset not in (-1, message.phy_offset) or end not in (-1, message.phy_offset + message.size_bytes)

    def _open(self) -> None:
        for tries_left in reversed(range(_OPEN_TRIES)):
            try:
                self._open_once()
                return
            except (FileNotFoundError, LogChangedError, WrongFileSizeError):
                # Retention deleted a file meanwhile, or a writer is creating one.
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
        self.queues = {(queue.topic, queue.queue_id): _view(queue) for queue in stored}
        self._guides = sorted(stored, key=lambda queue: queue.min_offset - queue.max_offset)[:_GUIDES]
        self._tail = LogTail(self._log, self.reader.log.file_size, max(self.reader.max_phy_offset, 0))

    def _require_begin(self) -> None:
        """Raise MissingLogBeginError if the disk of the log's begin is not mounted; log the notes of the reader."""
        if not isinstance(self.reader, StoreReader):
            return
        for problem in self.reader.problems:
            if isinstance(problem, MissingLogBeginError):
                self.reader.close()
                advice = "mount its disk, or leave it out of store.storePathCommitLog"
                raise MissingLogBeginError(problem.path, f"{problem.seen}; {advice}")
        for note in self.reader.notes:
            if str(note) not in self._logged_notes:
                _LOGGER.warning("%s", note)
                self._logged_notes.add(str(note))

    def _take_tail(self) -> None:
        for key, queue in self._tail.queues.items():
            view = self.queues.get(key) or self.queues.setdefault(key, QueueView(*key, None))
            if not view.take_tail(queue.first_offset, queue.phy_offsets):
                where = f"topic {key[0]}, queue {key[1]} does not continue where it ended"
                error = LogChangedError(str(self._log), where)
                if queue.first_offset < view.max_offset:
                    error.queue = key
                raise error

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The first queue offset stored at ``timestamp_ms`` or later; the max offset if there is none."""
        queue = self.queues[topic, queue_id]
        if queue.stored is not None:
            offset = self.reader.offset_at(topic, queue_id, timestamp_ms)
            if offset < queue.tail.start:
                return offset
        # The reader does not have the records that came since it was opened.
        return queue.tail.start + bisect_left(queue.tail, timestamp_ms, key=partial(self._stored_ms, queue))

    def message_at(self, phy_offset: int) -> StoredMessage | None:
        """The record that begins at ``phy_offset``; None if there is none, or it is unreadable."""
        try:
            return message_at(self._log, self.reader.log.file_size, phy_offset)
        except (NotThereError, BadSectorError):
            return None

    def _stored_ms(self, queue: QueueView, queue_offset: int) -> int:
        """The store timestamp of a message of the tail in ms."""
        message = message_at(self._log, self.reader.log.file_size, queue.phy_offset(queue_offset))
        return _NEVER_MS if message is None else message.store_timestamp_ms

    def record_at_or_after(self, phy_offset: int) -> int:
        """The physical offset of the first record at or after ``phy_offset``; if unknown, its file's end."""
        if phy_offset >= self._tail.begin:
            parts = self._tail.phy_offsets
            at = bisect_left(parts, phy_offset, key=lambda part: int(part[-1]))
            return int(parts[at][np.searchsorted(parts[at], phy_offset)]) if at < len(parts) else self.end
        if isinstance(self.reader, RemoteStore):
            return self.reader.record_at_or_after(phy_offset)
        return record_at_or_after(self.reader, self._guides, phy_offset)

    def tail_sizes(self, phy_offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """The distance in bytes from each of ``phy_offsets`` (in the tail) to the next record."""
        if not len(phy_offsets):
            return np.empty(0, np.int64)
        begins = np.concatenate([*self._tail.phy_offsets, [self.end]])
        return begins[np.searchsorted(begins, phy_offsets, side="right")] - phy_offsets

    def lost_ends(self) -> dict[tuple[str, int], range]:
        """The queue offsets whose units point past the end of the log, whose last files are missing or cut.

        A recovery cuts such units, so they are read from the files.
        """
        reader = self.reader
        if isinstance(reader, StoreReader) and not reader.recovery.queue_units_cut:
            return {}
        lost_ends = {}
        for key, queue in self.queues.items():
            raw = queue.stored
            if not isinstance(raw, RemoteUnits):
                raw = RemoteUnits(self._queue_directory(queue), PLANNED_BLOCK_UNITS)
            lost = range(raw.first_at(self.end), raw.end)
            if lost and self._has_reached(raw, lost.start):
                lost_ends[key] = lost
        return lost_ends

    def _has_reached(self, queue: RemoteUnits, queue_offset: int) -> bool:
        """Whether the log once reached the place of a unit that points past its end; otherwise the unit is damaged.

        The checkpoint shows it. A checkpoint of 4.x does not; then a place in one of the next files counts.
        """
        checkpoint = decode_checkpoint(content_of(self.location / CHECKPOINT))
        reached = max(checkpoint.confirm_phy_offset, checkpoint.logics_physical_offset)
        if reached > 0:
            return reached > self.end
        return queue.unit(queue_offset).phy_offset < self.end + _NEXT_FILES * self.reader.log.file_size

    def begins_late(self, queue: QueueView) -> bool:
        """Whether a queue's first file may be missing, because retention does not explain where the queue begins.

        Retention deletes a file of a queue only when its last message is before the log's begin. If the first unit of
        the first file points at or after that begin, the file before it was probably lost.
        """
        files = files_in(self._queue_directory(queue))
        if not files or not files[0].begin or queue.stored is None:
            return False
        return queue.stored.phy_offset_of(files[0].begin // UNIT_SIZE) >= self.begin

    def doubt_of(self, queue: QueueView) -> str | None:
        """The reason to suspect that the first or last file of a queue is missing, or None."""
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

    def may_continue(self, queue: QueueView) -> bool:
        """Whether units may follow the apparent end of a queue.

        Its last file reads as zeros from its end. Other bytes mean that a damaged unit was taken for the end, or that a
        writer goes on. If the queue ends with its last file, the next file may be missing.
        """
        files = files_in(self._queue_directory(queue))
        end = queue.tail.start * UNIT_SIZE
        if not files or end < files[-1].begin or end >= files[-1].begin + files[-1].size_bytes:
            return bool(files)
        last = files[-1]
        behind = bytearray(max(min(last.begin + last.size_bytes - end, _CLOSE_BEHIND_BYTES), 0))
        with OpenLogFile(last.location) as file:
            file.read_into(memoryview(behind), end - last.begin)
        return behind != bytes(len(behind))

    def pieces(self, start: int, stop: int, losses: list[str]) -> tuple[LogPiece, ...]:
        """The pieces of [start, stop), one for each file, with their marks.

        Adds a text to ``losses`` for each missing or short file. Raises StoreError if a file is missing that retention
        did not delete.
        """
        size = self.reader.log.file_size
        pieces = []
        for base in range(start - start % size, stop, size):
            piece = LogPiece(self._log / offset_name(base), base, max(start, base), min(stop, base + size))
            if piece.start < piece.stop:
                pieces += self._marked(piece, losses)
        return tuple(pieces)

    def _marked(self, piece: LogPiece, losses: list[str]) -> list[LogPiece]:
        """The piece with its marks, shortened to the length of its file."""
        try:
            with OpenLogFile(piece.location) as file:
                stop = min(piece.stop, piece.base + file.size_bytes())
                if stop < piece.stop:
                    loss = _unread(max(stop, piece.start), piece)
                    losses.append(f"{piece.location} ends at {stop - piece.base}: {loss}")
                if stop <= piece.start:
                    return []
                try:
                    return [replace(piece, stop=stop, marks=self._marks(file, piece, stop))]
                except StoreError:  # a bad sector, which the executor will report
                    return [replace(piece, stop=stop)]
        except NotThereError as error:
            if piece.base in self._files:
                require_retention(error, piece.location, piece.base, None)
            losses.append(f"{piece.location} is missing: {_unread(piece.start, piece)}")
            return []

    def _marks(self, file: OpenLogFile, piece: LogPiece, stop: int) -> tuple[LogMark, ...]:
        """The marks of both ends of a piece.

        On a remote file system, where each mark costs a request, it is one mark of the beginning of the file.
        """
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
        """The mark of the log's current end; None if the log is empty or its end is unreadable."""
        size = self.reader.log.file_size
        if not self._files or self.end <= self.begin:
            return None
        base = max(self.end - 1, 0) // size * size
        at = max(self.end - base - MARK_BYTES, 0)
        try:
            with OpenLogFile(self._log / offset_name(base)) as file:
                return LogEnd(base, LogMark.read(file, at, self.end - base - at))
        except StoreError:
            return None

    def close(self) -> None:
        """Close the files."""
        self.reader.close()

    def __enter__(self) -> StoreView:
        """Return this view."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files."""
        self.close()


def _view(queue: ConsumeQueue | RemoteQueue) -> QueueView:
    source = queue if isinstance(queue, RemoteQueue) else MappedUnits(queue)
    return QueueView(queue.topic, queue.queue_id, source, queue.min_offset)


def _unread(start: int, piece: LogPiece) -> str:
    return f"the records at physical offsets {start} to {piece.stop - 1} are missing"


def open_reader(location: Location, *, skips_lost: bool = False) -> StoreReader | RemoteStore:
    """A reader of a local or remote store. Raises NotAStoreError and other StoreErrors.

    With ``skips_lost``, unreadable parts of a local store are logged as warnings if planning can do without them.
    """
    if location.uri is not None:
        return RemoteStore(location)
    config = MessageStoreConfig(store_path_commit_log=PATH_SEPARATOR.join(location.logs))
    reader = StoreReader.open(Path(location.path), config, trusts_writer=True, skips_lost=skips_lost)
    for problem in reader.problems if skips_lost else ():
        if isinstance(problem, DiskError):
            _LOGGER.warning("%s; planned without it (failOnDataLoss=false)", problem)
    return reader
