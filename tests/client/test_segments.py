"""A range pulled in segments: whatever a broker answers, each offset comes once, in order, or is said to be lost."""

import random
from dataclasses import dataclass

import pytest

from gantrymq.client.calls import PullResult, PullStatus
from gantrymq.client.segments import PulledRecords, Segment, SegmentedRange
from gantrymq.errors import RemotingCommandError


@dataclass
class Broker:
    """A queue from ``low`` to before ``high``, which gives at most ``most`` messages a pull."""

    low: int
    high: int
    most: int

    def pull(self, at: int, count: int) -> PullResult:
        if at < self.low:
            return self._result(PullStatus.OFFSET_ILLEGAL, self.low)
        if at > self.high:
            return self._result(PullStatus.OFFSET_ILLEGAL, self.high)
        if at == self.high:
            return self._result(PullStatus.NO_NEW_MSG, at)
        end = min(at + count, at + self.most, self.high)
        return self._result(PullStatus.FOUND, end, b"".join(b"%d," % offset for offset in range(at, end)))

    def _result(self, status: PullStatus, following: int, records: bytes = b"") -> PullResult:
        return PullResult(status, following, self.low, self.high, 0, records)


def read(broker: Broker, begin: int, end: int, depth: int, rng: random.Random) -> list[PulledRecords]:
    """Answer what is under way in any order, as several connections' worth of brokers might."""
    wanted, waiting, taken = SegmentedRange(begin, end, depth), list[Segment](), list[PulledRecords]()
    while not wanted.is_done:
        waiting += wanted.more()
        assert len(waiting) <= depth
        segment = waiting.pop(rng.randrange(len(waiting)))
        if wanted.came(segment, broker.pull(segment.at, segment.end - segment.at)):
            waiting.append(segment)
        taken += wanted.taken()
    return taken


def test_every_offset_once_in_order(rng: random.Random) -> None:
    for _ in range(300):
        low = rng.randint(0, 50)
        broker = Broker(low, low + rng.randint(0, 3000), rng.choice([1, 8, 32, 5000]))
        begin, end = rng.randint(0, 100), rng.randint(0, 3500)
        pieces = read(broker, begin, end, rng.randint(1, 20), rng)
        offsets = [int(one) for piece in pieces for one in piece.records.decode().split(",") if one]
        assert offsets == list(range(max(begin, low), min(end, broker.high)))
        lost = [number for piece in pieces if piece.lost for number in range(piece.begin_offset, piece.end_offset)]
        assert lost == list(range(begin, min(low, end)))


def test_the_broker_s_measure_is_learnt() -> None:
    wanted = SegmentedRange(0, 10_000, 8)
    [probe] = wanted.more()
    assert wanted.came(probe, Broker(0, 10_000, 32).pull(probe.at, probe.end - probe.at))
    later = list(wanted.more())
    assert len(later) == 7
    assert {one.end - one.at for one in later} == {32}


def test_an_answer_without_progress_is_an_error() -> None:
    wanted = SegmentedRange(5, 10, 1)
    [segment] = wanted.more()
    with pytest.raises(RemotingCommandError, match="goes on at 5"):
        wanted.came(segment, PullResult(PullStatus.NO_MATCHED_MSG, 5, 0, 10, 0, b""))


def test_nothing_wanted_is_done_at_once() -> None:
    assert SegmentedRange(7, 7, 4).is_done
    assert SegmentedRange(8, 7, 4).is_done
