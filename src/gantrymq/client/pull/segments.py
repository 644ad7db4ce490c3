"""A range of a queue, cut into segments that are requested at the same time; no I/O.

A broker limits the messages of a pull (by default 32, or 8 if they are read from the disk), so the size of a segment
follows what the broker last returned. The missing end of a segment is requested again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from gantrymq.client.requests.calls import PullResult, PullStatus
from gantrymq.errors import RemotingCommandError
from gantrymq.format.record import MIN_RECORD_SIZE, QUEUE_OFFSET_AT

FIRST_SEGMENT_MESSAGES = 1024
MAX_SEGMENT_MESSAGES = 4096
_GROW_AFTER_SEGMENTS = 32  # consecutive segments that came whole


@dataclass(frozen=True, slots=True)
class PulledRecords:
    """Messages of a queue in the order of their offsets, from ``begin_offset`` to before ``end_offset``.

    ``records`` has stored records, one after the other. With ``lost`` the broker has deleted the range, and ``records``
    is empty.
    """

    begin_offset: int
    end_offset: int
    records: bytes
    lost: bool = False


@dataclass(slots=True)
class Segment:
    """A part of the range: ``next_offset`` is the next offset to request, ``end`` is the offset after its last one."""

    next_offset: int
    end: int
    pulled: list[PulledRecords] = field(default_factory=list)


class SegmentedRange:
    """What to request next of ``begin`` to ``end``, and the answers in order."""

    def __init__(self, begin: int, end: int, depth: int) -> None:
        self._next, self._end, self._depth = begin, end, depth
        self._segments: deque[Segment] = deque()
        self._step = FIRST_SEGMENT_MESSAGES
        self._is_probing = True
        self._complete_in_row = 0

    @property
    def is_done(self) -> bool:
        """Whether the whole range has been taken, or the queue has ended."""
        return not self._segments and self._next >= self._end

    def next_segments(self) -> Iterator[Segment]:
        """New segments to request, up to ``depth`` under way. Only one until the broker's limit is known."""
        while self._next < self._end and len(self._segments) < (1 if self._is_probing else self._depth):
            end = min(self._next + self._step, self._end)
            segment = Segment(self._next, end)
            self._segments.append(segment)
            self._next = end
            yield segment

    def incomplete(self) -> list[Segment]:
        """The segments that are not complete: request them again on a new connection."""
        return [segment for segment in self._segments if segment.next_offset < segment.end]

    def add(self, segment: Segment, result: PullResult) -> bool:
        """Add an answer. Returns whether the rest of the segment must be requested again.

        Raises RemotingCommandError if the answer makes no progress.
        """
        requested, begin = segment.end - segment.next_offset, segment.next_offset
        if requested <= 0:
            return False  # another answer showed that the queue ends before this segment
        if result.status is PullStatus.NO_NEW_MSG or (
            result.status is PullStatus.OFFSET_ILLEGAL and result.next_begin_offset <= begin
        ):
            self._end_at(segment)
            return False
        reached = min(result.next_begin_offset, segment.end)
        if reached <= begin:
            raise RemotingCommandError(f"a pull at offset {begin} continues at {result.next_begin_offset}")
        records, lost = result.records, result.status is PullStatus.OFFSET_ILLEGAL
        if result.next_begin_offset > reached:
            records = _records_before(reached, records)
        if records or lost:
            segment.pulled.append(PulledRecords(begin, reached, records, lost))
        segment.next_offset = reached
        self._adapt_step(requested, reached - begin)
        return segment.next_offset < segment.end

    def take_complete(self) -> Iterator[PulledRecords]:
        """The complete segments at the front of the range; they are removed."""
        while self._segments and self._segments[0].next_offset >= self._segments[0].end:
            yield from self._segments.popleft().pulled

    def _adapt_step(self, requested: int, received: int) -> None:
        self._is_probing = False
        if received < requested:
            self._step, self._complete_in_row = received, 0
            return
        self._complete_in_row += 1
        if self._complete_in_row >= _GROW_AFTER_SEGMENTS:
            self._step, self._complete_in_row = min(self._step * 2, MAX_SEGMENT_MESSAGES), 0

    def _end_at(self, segment: Segment) -> None:
        """The queue ends within this segment, so the later segments are empty."""
        segment.end = segment.next_offset
        self._next = self._end
        is_after = False
        for other in self._segments:
            if is_after:
                other.end = other.next_offset
            is_after = is_after or other is segment


def _records_before(offset: int, records: bytes) -> bytes:
    """The records before ``offset``: a broker that filters looks further than requested."""
    position = 0
    while position < len(records):
        at = position + QUEUE_OFFSET_AT
        if int.from_bytes(records[at : at + 8]) >= offset:
            break
        # Advance by at least the smallest record. Readers report bytes that are not records.
        position += max(int.from_bytes(records[position : position + 4]), MIN_RECORD_SIZE)
    return records[:position]
