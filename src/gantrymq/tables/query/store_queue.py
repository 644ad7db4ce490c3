"""The queues of a topic in a store, read through their units: only the topic's records, whatever lies between them.

The queues of a topic are written in turns, so reading them one after the other would read the log as often as there are
queues. Their units are merged in the order of the log. The records of a chunk are copied one after the other into a
buffer, where the kernels read them as if they were a stretch of the log. A record must be the one that its unit names:
of that size, at that place, of that topic and queue.

Thread rule: a group belongs to one thread; the reader and its files may have several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import StoreError
from gantrymq.format.record import HEAD_SIZE, MIN_RECORD_SIZE, read_head
from gantrymq.kernels import codes
from gantrymq.kernels.api import gather, scan
from gantrymq.kernels.arrays import Int64s, new_columns, read_only
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.queue.consume_queues import is_light
from gantrymq.store.queue.unit_source import MappedUnits
from gantrymq.store.reader import StoreReader
from gantrymq.tables.query.topic_scan import BLOCK_MESSAGES, QueueGroup, QueuePart, QueueSource, SkippedMessages
from gantrymq.tools.arrow import LogBatch, byte_buffer, texts_array
from gantrymq.tools.read.store_days import StoreDays

_CHUNK_BYTES = 4 << 20
_READ_BYTES = 8 << 20
_NEAR_BYTES = 16 << 10  # records closer than this are read in one go
_LEAST_UNITS = 256


class _Messages(NamedTuple):
    """Messages of a topic, by their units (int64 each). ``slots`` are queue offsets."""

    queue_ids: Int64s
    slots: Int64s
    phy_offsets: Int64s
    sizes: Int64s

    def take(self, rows: NDArray[np.bool_] | Int64s | slice) -> _Messages:
        return _Messages(*(column[rows] for column in self))

    @classmethod
    def joined(cls, parts: Sequence[_Messages]) -> _Messages:
        """The messages of several queues in the order of the log."""
        joined = cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        return joined.take(np.argsort(joined.phy_offsets, kind="stable"))


class QueriedStore(NamedTuple):
    """A store that ``reader`` has open. No record is in ``empty_ranges`` of the log, whose files are missing."""

    reader: StoreReader
    empty_ranges: Sequence[tuple[int, int]]
    broker: str

    @classmethod
    def of(cls, reader: StoreReader, broker: str) -> QueriedStore:
        """The store; only one with problems may have empty ranges."""
        days = StoreDays(reader.log)
        if reader.problems:
            days.read_files()
        return cls(reader, days.empty, broker)


class StoreQueue(QueueSource):
    """A queue of an open store."""

    def __init__(self, store: QueriedStore, queue: ConsumeQueue, skipped: SkippedMessages) -> None:
        self._reader, self._empty_ranges, broker = store
        self._queue, self._skipped = queue, skipped
        self.broker = broker
        self.queue_id = queue.queue_id
        self.low, self.high = queue.min_offset, queue.max_offset
        self._units = MappedUnits(queue)

    def offsets(self, low: int, high: int) -> Int64s:
        """The queue offsets of the units that point into the log. Names the damaged ones."""
        return self.messages(low, high).slots

    def times_ms(self, offsets: Sequence[int]) -> list[int | None]:
        """The store times in the heads of the records."""
        return [self._time_ms(offset) for offset in offsets]

    def messages(self, low: int, high: int) -> _Messages:
        """The messages from ``low`` to before ``high`` whose units point into the log. Names the damaged ones."""
        units, log = self._units.units(low, high), self._reader
        begins, ends = units.phy_offsets, units.phy_offsets + units.sizes
        is_right = units.is_message & (begins >= log.min_phy_offset) & (ends <= log.max_phy_offset)
        for begin, end in self._empty_ranges:
            is_right &= (begins < begin) | (begins >= end)
        wrong = np.flatnonzero(~is_right & ~units.is_filler)
        if len(wrong):
            self._skipped.add_slots(self, self._queue.topic, low + wrong, "the units point to no place in the log")
        slots = np.arange(low, high)
        return _Messages(np.full(high - low, self.queue_id), slots, units.phy_offsets, units.sizes).take(is_right)

    def _time_ms(self, offset: int) -> int | None:
        unit = self._queue.entry(offset)
        if unit is None or not unit.is_message:
            return None
        file = self._reader.log.queue.find(unit.phy_offset)
        try:
            if file is None or not file.hold_to_read():
                return None
        except StoreError:
            return None
        try:
            head = read_head(file.file.read_at(unit.phy_offset - file.file_from_offset, HEAD_SIZE))
        except (OSError, StoreError):
            return None
        finally:
            file.release()
        return head.store_timestamp_ms if head is not None and head.phy_offset == unit.phy_offset else None


class StoreGroup(QueueGroup):
    """The queues of ``topic`` in a store."""

    def __init__(self, store: QueriedStore, topic: str, skipped: SkippedMessages) -> None:
        self._reader, self._skipped = store.reader, skipped
        self.broker = store.broker
        queues = [queue for queue in store.reader.consume_queues if queue.topic == topic]
        self._sources = {queue.queue_id: StoreQueue(store, queue, skipped) for queue in queues}
        self.queues: list[QueueSource] = list(self._sources.values())
        self._name, self._topic = topic, topic.encode()
        self._topics = texts_array([topic])
        self._columns = new_columns(BLOCK_MESSAGES)

    def records(self, parts: Sequence[QueuePart], *, checks_bodies: bool) -> Iterator[LogBatch]:
        """Yield the records of the units in the order of the log."""
        check = codes.CHECK_MARK if checks_bodies else codes.CHECK_OFF
        for messages in self._merged(parts):
            files = messages.phy_offsets // self._reader.log.file_size
            chunks = np.cumsum(messages.sizes) // _CHUNK_BYTES
            cuts = np.flatnonzero((np.diff(files) != 0) | (np.diff(chunks) != 0)) + 1
            for first, last in pairwise([0, *cuts.tolist(), len(files)]):
                yield from self._chunk(messages.take(slice(first, last)), check)

    def _merged(self, parts: Sequence[QueuePart]) -> Iterator[_Messages]:
        """Yield the messages of all parts, some thousands at a time, about in the order of the log."""
        by_queue: dict[int, list[QueuePart]] = {}
        for part in reversed(parts):
            by_queue.setdefault(part.queue.queue_id, []).append(part)
        units_a_block = max(BLOCK_MESSAGES // max(len(by_queue), 1), _LEAST_UNITS)
        waiting: dict[int, _Messages] = {}
        while by_queue or waiting:
            for queue_id in by_queue.keys() - waiting.keys():
                messages = self._next_block(queue_id, by_queue, units_a_block)
                if messages is not None:
                    waiting[queue_id] = messages
            if not waiting:
                return
            frontier = min(int(messages.phy_offsets[-1]) for messages in waiting.values())
            ready = []
            for queue_id, messages in list(waiting.items()):
                count = int(np.searchsorted(messages.phy_offsets, frontier, side="right"))
                ready.append(messages.take(slice(count)))
                waiting[queue_id] = messages.take(slice(count, None))
                if count == len(messages.slots):
                    del waiting[queue_id]
            yield _Messages.joined(ready)

    def _next_block(self, queue_id: int, by_queue: dict[int, list[QueuePart]], units: int) -> _Messages | None:
        """The next messages of a queue, by their place; None at its end, and then the queue leaves ``by_queue``."""
        parts = by_queue[queue_id]
        while parts:
            _, low, high = parts.pop()
            end = min(low + units, high)
            if end < high:
                parts.append(QueuePart(self._sources[queue_id], end, high))
            messages = self._sources[queue_id].messages(low, end)
            if len(messages.slots):
                return _Messages.joined([messages])
        del by_queue[queue_id]
        return None

    def _lose(self, messages: _Messages, reason: str) -> None:
        for queue_id in np.unique(messages.queue_ids).tolist():
            slots = messages.slots[messages.queue_ids == queue_id]
            self._skipped.add_slots(self._sources[queue_id], self._name, slots, reason)

    def _chunk(self, messages: _Messages, check: int) -> Iterator[LogBatch]:
        """Yield the records of some units, all in one file."""
        if not len(messages.slots):
            return
        file = self._reader.log.queue.find(int(messages.phy_offsets[0]))
        if file is None:
            self._lose(messages, "the file of the log is missing")
            return
        fits = (messages.sizes >= MIN_RECORD_SIZE) & (messages.phy_offsets + messages.sizes <= file.end_offset)
        if not fits.all():
            self._lose(messages.take(~fits), "the unit names a record of an impossible size")
            messages = messages.take(fits)
        try:
            is_held = file.hold_to_read()
        except StoreError as error:
            self._lose(messages, str(error))
            return
        if not is_held:
            self._lose(messages, "retention deleted the file of the log while it was read")
            return
        try:
            buffer = byte_buffer(int(messages.sizes.sum())).array
            messages = messages.take(self._copied(file, messages, buffer))
        finally:
            file.release()
        yield from self._scanned(str(file.path), read_only(buffer.data), messages, check)

    def _copied(self, file: MappedFile, messages: _Messages, buffer: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Copy the records one after the other into ``buffer``. Returns which are there; names the others.

        The file is read, not mapped, so that the pages of a large log do not count as memory of this process.
        """
        at, sizes = messages.phy_offsets - file.file_from_offset, messages.sizes
        is_there = np.zeros(len(at), np.bool_)
        far = at[1:] > at[:-1] + sizes[:-1] + _NEAR_BYTES
        cuts = np.flatnonzero(far | (np.diff(at // _READ_BYTES) != 0)) + 1
        waiting = np.split(np.arange(len(at)), cuts)[::-1] if len(at) else []
        used = 0
        while waiting:
            rows = waiting.pop()
            begin = int(at[rows[0]])
            raw, error = _read(file, begin, int((at[rows] + sizes[rows]).max()))
            if error is not None and len(rows) > 1:  # each is tried alone
                waiting += list(rows.reshape(-1, 1))[::-1]
            elif error is not None:
                self._lose(messages.take(rows), str(error))
            else:
                own = _stored_sizes(raw, at[rows] - begin) == sizes[rows]
                if not own.all():
                    self._lose(messages.take(rows[~own]), "the unit points to no record")
                rows = rows[own]
                offsets = np.empty(len(rows) + 1, np.int32)
                gather(raw, at[rows] - begin, sizes[rows], 0, len(rows), buffer[used:], offsets)
                used += int(offsets[len(rows)])
                is_there[rows] = True
        return is_there

    def _scanned(self, path: str, chunk: NDArray[np.uint8], messages: _Messages, check: int) -> Iterator[LogBatch]:
        """Yield the records of a buffer, which has those of ``messages`` one after the other."""
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(messages.sizes)])
        row, total = 0, int(starts[-1])
        while row < len(messages.slots):
            count, code, _ = scan(chunk, int(starts[row]), total, total, check, self._columns)
            if count:
                queues = np.zeros(count, np.int64)
                batch = LogBatch(path, 0, chunk, self._columns, count, queues, self._topics)
                rows = slice(row, row + count)
                right = self._right(batch, messages.take(rows), starts[rows], check)
                if right.count:
                    yield right
            row += count
            if row < len(messages.slots) and (not count or code not in (codes.STOP_RANGE, codes.STOP_FULL)):
                self._lose(messages.take(slice(row, row + 1)), "its record is damaged")
                row += 1

    def _right(self, batch: LogBatch, messages: _Messages, starts: Int64s, check: int) -> LogBatch:
        """The records that are those of their units, with the queues and offsets of the units."""
        is_whole = batch.row(codes.CRC_OK) != 0 if check == codes.CHECK_MARK else np.ones(batch.count, np.bool_)
        if not is_whole.all():
            self._lose(messages.take(~is_whole), "the CRC of the record is wrong")
        is_own = self._is_own(batch, messages, starts)
        if not is_own.all():
            self._lose(messages.take(~is_own), "the unit points to a record of another queue")
        batch.columns[codes.QUEUE_OFFSET, : batch.count] = messages.slots
        batch.columns[codes.QUEUE_ID, : batch.count] = messages.queue_ids
        return batch.take(is_whole & is_own)

    def _is_own(self, batch: LogBatch, messages: _Messages, starts: Int64s) -> NDArray[np.bool_]:
        is_own: NDArray[np.bool_] = batch.row(codes.POS) == starts
        is_own &= batch.row(codes.PHY_OFFSET) == messages.phy_offsets
        if is_light(self._name):  # its records are those of other topics
            return is_own
        length = len(self._topic)
        is_own &= (batch.row(codes.QUEUE_ID) == messages.queue_ids) & (batch.row(codes.TOPIC_LENGTH) == length)
        at = np.minimum(batch.row(codes.TOPIC_AT), len(batch.buffer) - length)
        for number, byte in enumerate(self._topic):
            is_own &= batch.buffer[at + number] == byte
        return is_own


def _read(file: MappedFile, begin: int, end: int) -> tuple[NDArray[np.uint8], Exception | None]:
    """Read bytes of a file. Returns them, and the error if some cannot be read."""
    try:
        raw = read_only(file.file.read_at(begin, end - begin))
        return raw, file.file.lost_in(begin, end - begin)
    except (OSError, StoreError) as error:
        return np.empty(0, np.uint8), error


def _stored_sizes(raw: NDArray[np.uint8], at: Int64s) -> Int64s:
    """The sizes with which the records at some positions begin."""
    stored = np.zeros(len(at), np.int64)
    for byte in range(4):
        stored = stored << 8 | raw[at + byte]
    return stored
