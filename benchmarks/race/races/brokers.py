"""Brokers under the real Java client: sends, transactions, push and pop, latency, and how late delayed messages are.

Each side is what a user starts: a process with broker and name server, which runs from the first round to the last. The
client is the same program in a new process for each turn. The other side is idle meanwhile. Both flush asynchronously.
Both are warmed up alike: by one unmeasured turn, and by the first seconds of each turn (for push, by a first consumer
that reads the whole topic). Races of transactions and pops also have the CPU time of the broker's process, name server
included: on a busy machine it says more than the rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.race.process import Line, SideError, serve_ours, serving
from benchmarks.race.race import JAVA, OURS, Race, Row
from benchmarks.race.track import Track

SETTINGS = {
    "flushDiskType": "ASYNC_FLUSH",
    "waitTimeMillsInSendQueue": 10_000,
    "timerWheelEnable": True,  # the default of both, which interop's cluster turns off
}
BODY_SIZE = 1024
_SECONDS, _WARM_UP_SECONDS = 10, 5
_PUSHED = 1_000_000
_PUSH_WITHIN_SECONDS = 300
_POPPED = 600_000
_POP_CLIENTS = 8
_POP_SIZES = (1, 32)
_RATES = (1_000, 5_000)
_PERCENTS = (50, 99)
_DELAYED_RATE, _DELAYED_SECONDS = 1_000, 30
_LATENESS = ("Min", "P50", "P99", "Max")
_GOAL, _GOAL_OF_FEATURES = 1.3, 1.0
_TOPIC = "bench"
_TOLERATED = 0.001


def races(track: Track) -> Iterator[Race]:
    """Sends of each kind, push, and latency at fixed rates."""
    if track.java is None:
        return  # the client is Java's
    yield _send(track, "sync", f"broker sync send {BODY_SIZE} B, 16 threads", threads=16)
    yield _send(track, "async", f"broker async send {BODY_SIZE} B")
    yield _send(track, "oneway", f"broker one-way send {BODY_SIZE} B", goal=None)
    yield _send(track, "batch", f"broker batch of 100, {BODY_SIZE} B")
    yield _transactions(track)
    yield _push(track)
    for size in _POP_SIZES:
        yield _pop(track, size)
    for rate in _RATES:
        yield _latency(track, rate)
    yield _delayed(track)


class Brokers:
    """The real broker and ours. A call with the folder of a race runs both there until the ``with`` block ends."""

    def __init__(self, track: Track) -> None:
        self._track = track
        self._served: dict[str, Line] = {}

    @contextmanager
    def __call__(self, folder: Path, **first: Any) -> Iterator[None]:
        """Start both and let the client do ``first`` with each (options of interop's ``load``), unmeasured."""
        commands = {
            JAVA: self._track.other.cluster(folder / "theirs", SETTINGS),
            OURS: serve_ours(folder / "ours", SETTINGS),
        }
        with ExitStack() as stack:
            for side, words in commands.items():
                self._served[side] = stack.enter_context(serving(words))
            for side in commands:
                self.load(side, **first)
            yield

    def load(self, side: str, *, topic: str = _TOPIC, **options: Any) -> Line:
        """Run the client against the broker of a side.

        Raises SideError if more than one message in a thousand failed. One-way messages may be lost and do not count.
        """
        served = self._served[side]
        line = self._track.other.load(
            served["namesrv"], topic=topic, size=BODY_SIZE, broker_pid=served["pid"], **options
        )
        if line["mode"] != "oneway" and line["failed"] > _TOLERATED * line["messages"]:
            raise SideError(f"{line['failed']} messages failed at {side}, the first by {line.get('failure')}")
        return line


def _race(track: Track, rows: Sequence[Row], first: dict[str, Any], turn: Callable[[Brokers, str], Line]) -> Race:
    brokers = Brokers(track)
    sides = track.sides(lambda _: turn(brokers, JAVA), lambda _: turn(brokers, OURS))
    return Race(rows, sides, standing=lambda folder: brokers(folder, **first))


def _send(track: Track, mode: str, name: str, *, threads: int = 4, goal: float | None = _GOAL) -> Race:
    work: dict[str, Any] = {"mode": mode, "threads": threads, **times(track)}

    def turn(brokers: Brokers, side: str) -> Line:
        return brokers.load(side, **work)

    note = {"oneway": "stored"}.get(mode, "acknowledged")
    return _race(track, [Row(name, "rate", "messages/s", goal, note=note)], work, turn)


def _transactions(track: Track) -> Race:
    work: dict[str, Any] = {"mode": "transaction", "threads": 16, **times(track)}

    def turn(brokers: Brokers, side: str) -> Line:
        return brokers.load(side, **work)

    return _race(track, _with_cpu_time(f"broker transactions {BODY_SIZE} B, 16 threads", "committed"), work, turn)


def _with_cpu_time(name: str, note: str) -> list[Row]:
    """The rate of a race, and the CPU time of the broker's process a message."""
    return [
        Row(name, "rate", "messages/s", _GOAL_OF_FEATURES, note=note),
        Row(f"{name}: CPU", "cpuMicros", "µs/message", less_is_better=True, note="user and system, of the broker"),
    ]


def _push(track: Track) -> Race:
    amount = track.amount(_PUSHED)
    filling = {"mode": "batch", "count": amount, "seconds": _PUSH_WITHIN_SECONDS}

    def turn(brokers: Brokers, side: str) -> Line:
        line = brokers.load(side, mode="push", count=amount, warm_up=1, seconds=_PUSH_WITHIN_SECONDS)
        if line["messages"] < amount:
            raise SideError(f"{line['messages']} of {amount} messages came from {side}")
        return line

    note = "a topic filled before, from its beginning"
    return _race(
        track, [Row(f"broker push consume {BODY_SIZE} B", "rate", "messages/s", _GOAL, note=note)], filling, turn
    )


def _pop(track: Track, size: int) -> Race:
    filling = {"mode": "batch", "count": track.amount(_POPPED), "seconds": _PUSH_WITHIN_SECONDS}
    work: dict[str, Any] = {"mode": "pop", "threads": _POP_CLIENTS, "batch": size, **times(track)}

    def turn(brokers: Brokers, side: str) -> Line:
        return brokers.load(side, **work)

    note = "popped, and acknowledged one by one"
    name = f"broker pop of {size}, {BODY_SIZE} B, {_POP_CLIENTS} clients"
    return _race(track, _with_cpu_time(name, note), filling, turn)


def _delayed(track: Track) -> Race:
    work: dict[str, Any] = {"mode": "delayed", "rate": _DELAYED_RATE, "seconds": track.seconds(_DELAYED_SECONDS)}
    topics = (f"{_TOPIC}-{number}" for number in count())

    def turn(brokers: Brokers, side: str) -> Line:
        line = brokers.load(side, **{**work, "topic": next(topics)})
        early = min(line["levelMin"], line["timerMin"])
        if side == OURS and early < 0:
            raise SideError(f"a delayed message came {-early} ms early from {side}")
        return line

    note = f"lateness to the listener, beside {_DELAYED_RATE:,} plain messages a second"
    rows = [
        Row(f"broker {what}: {figure.lower()}", f"{kind}{figure}", "ms", less_is_better=True, note=note)
        for kind, what in (("level", "delay levels"), ("timer", "timers"))
        for figure in _LATENESS
    ]
    return _race(track, rows, {**work, "seconds": 1}, turn)


def _latency(track: Track, rate: int) -> Race:
    work: dict[str, Any] = {"mode": "latency", "rate": rate, **times(track)}
    topics = (f"{_TOPIC}-{number}" for number in count())

    def turn(brokers: Brokers, side: str) -> Line:
        return brokers.load(side, **{**work, "topic": next(topics)})

    note = "from the moment a message is due to the consumer's listener"
    rows = [
        Row(f"broker latency p{percent} at {rate:,}/s", f"p{percent}Micros", "µs", less_is_better=True, note=note)
        for percent in _PERCENTS
    ]
    return _race(track, rows, work, turn)


def times(track: Track) -> dict[str, int]:
    """The seconds of a turn and of its warm-up, as options of interop's ``load``."""
    return {"seconds": track.seconds(_SECONDS), "warm_up": track.seconds(_WARM_UP_SECONDS)}
