"""A range of a queue cut into segments, several of which are asked for at the same time; no I/O.

A broker gives as many messages a pull as it likes (32 unless it is set otherwise, 8 from the disk), so the size of a
segment follows what it gave last. A segment that came back short is asked for again from where it stopped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from gantrymq.client.calls import PullResult, PullStatus
from gantrymq.errors import RemotingCommandError
from gantrymq.format.record import MIN_RECORD_SIZE, QUEUE_OFFSET_AT

FIRST_ASKED = 1024
MOST_ASKED = 4096
_GROW_AFTER = 32  # so many segments in a row that came whole


@dataclass(frozen=True, slots=True)
class PulledRecords:
    """Messages of a queue in the order of their offsets, from ``begin_offset`` to before ``end_offset``.

    ``records`` are stored records one after the other. With ``lost`` the range is one the broker no longer has, and
    there are none.
    """

    begin_offset: int
    end_offset: int
    records: bytes
    lost: bool = False


@dataclass(slots=True)
class Segment:
    """A part of the range: ``at`` is where it goes on, ``end`` where it ends."""

    at: int
    end: int
    pulled: list[PulledRecords] = field(default_factory=list)


class SegmentedRange:
    """What is to be asked for next of ``begin`` to ``end``, and what came, in order."""

    def __init__(self, begin: int, end: int, depth: int) -> None:
        self._next, self._end, self._depth = begin, end, depth
        self._segments: deque[Segment] = deque()
        self._step = FIRST_ASKED
        self._probing = True
        self._whole = 0

    @property
    def is_done(self) -> bool:
        """Whether all that there is has been taken."""
        return not self._segments and self._next >= self._end

    def more(self) -> Iterator[Segment]:
        """New segments to ask for, as many as may be under way; one alone until the broker's measure is known."""
        while self._next < self._end and len(self._segments) < (1 if self._probing else self._depth):
            end = min(self._next + self._step, self._end)
            segment = Segment(self._next, end)
            self._segments.append(segment)
            self._next = end
            yield segment

    def pending(self) -> list[Segment]:
        """Those under way that have not come whole: what to ask for again on a new connection."""
        return [segment for segment in self._segments if segment.at < segment.end]

    def came(self, segment: Segment, result: PullResult) -> bool:
        """Note an answer; whether the segment must be asked for again, from where it stopped.

        Raises RemotingCommandError where the answer makes no progress.
        """
        asked, begin = segment.end - segment.at, segment.at
        if asked <= 0:
            return False  # the queue was found to end before it
        if result.status is PullStatus.NO_NEW_MSG or (
            result.status is PullStatus.OFFSET_ILLEGAL and result.next_begin_offset <= begin
        ):
            self._end_at(segment)
            return False
        reached = min(result.next_begin_offset, segment.end)
        if reached <= begin:
            raise RemotingCommandError(f"a pull at offset {begin} goes on at {result.next_begin_offset}")
        records, lost = result.records, result.status is PullStatus.OFFSET_ILLEGAL
        if result.next_begin_offset > reached:
            records = _in_front_of(reached, records)
        if records or lost:
            segment.pulled.append(PulledRecords(begin, reached, records, lost))
        segment.at = reached
        self._learn(asked, reached - begin)
        return segment.at < segment.end

    def taken(self) -> Iterator[PulledRecords]:
        """What has come whole at the front of the range, no longer held."""
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
        """The queue ends within this segment: nothing behind it is there either."""
        segment.end = segment.at
        self._next = self._end
        behind = False
        for one in self._segments:
            if behind:
                one.end = one.at
            behind = behind or one is segment


def _in_front_of(offset: int, records: bytes) -> bytes:
    """Without the records from ``offset`` on: a broker that filters looks further than it was asked to."""
    position = 0
    while position < len(records):
        at = position + QUEUE_OFFSET_AT
        if int.from_bytes(records[at : at + 8]) >= offset:
            break
        # At least a record's: what is none is left to who reads them.
        position += max(int.from_bytes(records[position : position + 4]), MIN_RECORD_SIZE)
    return records[:position]
