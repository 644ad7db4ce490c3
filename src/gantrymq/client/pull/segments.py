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

FIRST_ASKED = 1024
MOST_ASKED = 4096
_GROW_AFTER = 32  # consecutive segments that came whole


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
    """A part of the range: ``at`` is the next offset to request, ``end`` is the offset after its last one."""

    at: int
    end: int
    pulled: list[PulledRecords] = field(default_factory=list)


class SegmentedRange:
    """What to request next of ``begin`` to ``end``, and the answers in order."""

    def __init__(self, begin: int, end: int, depth: int) -> None:
        self._next, self._end, self._depth = begin, end, depth
        self._segments: deque[Segment] = deque()
        self._step = FIRST_ASKED
        self._probing = True
        self._whole = 0

    @property
    def is_done(self) -> bool:
        """Whether the whole range has been taken, or the queue has ended."""
        return not self._segments and self._next >= self._end

    def more(self) -> Iterator[Segment]:
        """New segments to request, up to ``depth`` under way. Only one until the broker's limit is known."""
        while self._next < self._end and len(self._segments) < (1 if self._probing else self._depth):
            end = min(self._next + self._step, self._end)
            segment = Segment(self._next, end)
            self._segments.append(segment)
            self._next = end
            yield segment

    def pending(self) -> list[Segment]:
        """The segments that are not complete: request them again on a new connection."""
        return [segment for segment in self._segments if segment.at < segment.end]

    def came(self, segment: Segment, result: PullResult) -> bool:
        """Add an answer. Returns whether the rest of the segment must be requested again.

        Raises RemotingCommandError if the answer makes no progress.
        """
        asked, begin = segment.end - segment.at, segment.at
        if asked <= 0:
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
            records = _in_front_of(reached, records)
        if records or lost:
            segment.pulled.append(PulledRecords(begin, reached, records, lost))
        segment.at = reached
        self._learn(asked, reached - begin)
        return segment.at < segment.end

    def taken(self) -> Iterator[PulledRecords]:
        """The complete segments at the front of the range; they are removed."""
        while self._segments and self._segments[0].at >= self._segments[0].end:
            yield from self._segments.popleft().pulled

    def _learn(self, asked: int, got: int) -> None:
        self._probing = False
        if got < asked:
            self._step, self._whole = got, 0
            return
        self._whole += 1
        if self._whole >= _GROW_AFTER:
            self._step, self._whole = min(self._step * 2, MOST_ASKED), 0

    def _end_at(self, segment: Segment) -> None:
        """The queue ends within this segment, so the later segments are empty."""
        segment.end = segment.at
        self._next = self._end
        behind = False
        for one in self._segments:
            if behind:
                one.end = one.at
            behind = behind or one is segment


def _in_front_of(offset: int, records: bytes) -> bytes:
    """The records before ``offset``: a broker that filters looks further than requested."""
    position = 0
    while position < len(records):
        at = position + QUEUE_OFFSET_AT
        if int.from_bytes(records[at : at + 8]) >= offset:
            break
        # Advance by at least the smallest record. Readers report bytes that are not records.
        position += max(int.from_bytes(records[position : position + 4]), MIN_RECORD_SIZE)
    return records[:position]
