"""A range pulled in segments: whatever a broker answers, each offset comes once, in order, or is said to be lost."""

import random
from dataclasses import dataclass

import pytest

from gantrymq.client.pull.segments import PulledRecords, Segment, SegmentedRange
from gantrymq.client.requests.calls import PullResult, PullStatus
from gantrymq.errors import RemotingCommandError
from gantrymq.format.record import MIN_RECORD_SIZE, QUEUE_OFFSET_AT


def record(offset: int) -> bytes:
    """The size of a record and its offset, and nothing in the rest."""
    front = MIN_RECORD_SIZE.to_bytes(4) + bytes(QUEUE_OFFSET_AT - 4) + offset.to_bytes(8)
    return front.ljust(MIN_RECORD_SIZE, b"\0")


def offsets(pieces: list[PulledRecords]) -> list[int]:
    """Of all records; each lies within its piece."""
    found = []
    for piece in pieces:
        records = [piece.records[at : at + MIN_RECORD_SIZE] for at in range(0, len(piece.records), MIN_RECORD_SIZE)]
        inside = [int.from_bytes(one[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + 8]) for one in records]
        assert all(piece.begin_offset <= offset < piece.end_offset for offset in inside)
        found += inside
    return found


@dataclass
class Broker:
    """A queue from ``low`` to before ``high``, which gives at most ``most`` messages a pull.

    It gives every ``nth`` by its filter, for which it looks at ``looks`` offsets, however few were asked for.
    """

    low: int
    high: int
    most: int
    nth: int = 1
    looks: int = 0

    def pull(self, at: int, count: int) -> PullResult:
        if at < self.low:
            return self._result(PullStatus.OFFSET_ILLEGAL, self.low)
        if at > self.high:
            return self._result(PullStatus.OFFSET_ILLEGAL, self.high)
        if at == self.high:
            return self._result(PullStatus.NO_NEW_MSG, at)
        end = min(at + max(count, self.looks), self.high)
        matching = [offset for offset in range(at, end) if offset % self.nth == 0]
        most = min(self.most, count)
        if len(matching) > most:
            end = matching[most]
        if not matching:
            return self._result(PullStatus.NO_MATCHED_MSG, end)
        return self._result(PullStatus.FOUND, end, b"".join(map(record, matching[:most])))

    def _result(self, status: PullStatus, following: int, records: bytes = b"") -> PullResult:
        return PullResult(status, following, self.low, self.high, 0, records)


def read(broker: Broker, begin: int, end: int, depth: int, rng: random.Random) -> list[PulledRecords]:
    """Answer what is under way in any order, as several connections' worth of brokers might."""
    wanted, waiting, taken = SegmentedRange(begin, end, depth), list[Segment](), list[PulledRecords]()
    while not wanted.is_done:
        waiting += wanted.next_segments()
        assert len(waiting) <= depth
        segment = waiting.pop(rng.randrange(len(waiting)))
        if wanted.add(segment, broker.pull(segment.next_offset, segment.end - segment.next_offset)):
            waiting.append(segment)
        taken += wanted.take_complete()
    return taken


def test_segments_return_each_offset_once_in_order(rng: random.Random) -> None:
    for _ in range(300):
        low = rng.randint(0, 50)
        nth, looks = rng.choice([(1, 0), (1, 0), (3, 800), (50, 800), (5000, 800)])
        broker = Broker(low, low + rng.randint(0, 3000), rng.choice([1, 8, 32, 5000]), nth, looks)
        begin, end = rng.randint(0, 100), rng.randint(0, 3500)
        pieces = read(broker, begin, end, rng.randint(1, 20), rng)
        there = range(max(begin, low), min(end, broker.high))
        assert offsets(pieces) == [offset for offset in there if offset % nth == 0]
        lost = [number for piece in pieces if piece.lost for number in range(piece.begin_offset, piece.end_offset)]
        assert lost == list(range(begin, min(low, end)))


def test_segment_size_follows_answers_of_broker() -> None:
    wanted = SegmentedRange(0, 10_000, 8)
    [probe] = wanted.next_segments()
    assert wanted.add(probe, Broker(0, 10_000, 32).pull(probe.next_offset, probe.end - probe.next_offset))
    later = list(wanted.next_segments())
    assert len(later) == 7
    assert {one.end - one.next_offset for one in later} == {32}


def test_pull_answer_without_progress_raises() -> None:
    wanted = SegmentedRange(5, 10, 1)
    [segment] = wanted.next_segments()
    with pytest.raises(RemotingCommandError, match="continues at 5"):
        wanted.add(segment, PullResult(PullStatus.NO_MATCHED_MSG, 5, 0, 10, 0, b""))


def test_empty_range_is_done_at_once() -> None:
    assert SegmentedRange(7, 7, 4).is_done
    assert SegmentedRange(8, 7, 4).is_done
