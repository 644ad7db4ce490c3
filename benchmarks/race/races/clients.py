"""Our clients against Python's Kafka clients: the CPU time of a message in the client's process.

Ours read and send at our broker, theirs at a real Kafka. Both have the same messages in the same number of queues, in
requests of the size that each client asks for by itself. A figure begins before the client is made and ends with its
last message: imports do not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import clients, kafka_clients
from benchmarks.race import kafka
from benchmarks.race.process import Line, last_line, serving
from benchmarks.race.race import JAVA, OURS, Race, Row
from benchmarks.race.track import Track

_MESSAGES = 200_000
_SENT = 50_000
_SIZES_BYTES = (100, 1024)


@dataclass(frozen=True)
class _Pair:
    """One of our clients beside one of theirs. ``goal`` is the ratio to reach."""

    ours: str
    theirs: str
    goal: float
    count: int = _MESSAGES


_PAIRS = (
    _Pair("lite-pull", "getone", 1),
    _Pair("async-lite-pull", "getone", 1),
    _Pair("async-push 512", "getone", 1),
    _Pair("lite-pull", "getmany", 1),
    _Pair("pull-client", "poll", 1),
    _Pair("async-producer 64", "send_and_wait", 1, _SENT),
    _Pair("async-producer 64, auto-batch", "send_and_wait", 1, _SENT),
    _Pair("send_async", "send", 0.5, _SENT),
    _Pair("send_async, auto-batch", "send", 0.5, _SENT),
)


def races(track: Track) -> Iterator[Race]:
    """Each pair with small and with larger bodies; none without Maven, which fetches Kafka."""
    if track.java is None or kafka.missing():
        return
    for size_bytes in _SIZES_BYTES:
        brokers = _Brokers(track, size_bytes)
        for pair in _PAIRS:
            row = Row(
                f"Python {pair.ours} beside {pair.theirs}, {size_bytes} B",
                "us",
                "µs/message",
                pair.goal,
                less_is_better=True,
                note=f"theirs is {'confluent-kafka' if pair.theirs == 'poll' else 'aiokafka'} at a real Kafka",
            )
            yield _race(row, brokers, pair)


def _race(row: Row, brokers: _Brokers, pair: _Pair) -> Race:
    sides = {JAVA: lambda _: brokers.run_theirs(pair), OURS: lambda _: brokers.run_ours(pair)}
    return Race([row], sides, standing=brokers)


class _Brokers:
    """A Kafka broker and ours with the same messages. A call runs both in the folder of a race."""

    def __init__(self, track: Track, size_bytes: int) -> None:
        self._track, self._size_bytes = track, size_bytes
        self._python, self._servers, self._name_server = Path(), "", ""

    @contextmanager
    def __call__(self, folder: Path) -> Iterator[None]:
        """Start both, and fill them."""
        jars, self._python = kafka.fetch_broker(), kafka.fetch_clients()
        count = self._track.amount(_MESSAGES)
        with ExitStack() as stack:
            self._servers = stack.enter_context(kafka.KafkaBroker(jars, folder / "kafka")).address
            last_line(self._theirs("fill", count))
            served = stack.enter_context(serving(clients.serve_words(count, self._size_bytes)))
            self._name_server = served["namesrv"]
            yield

    def run_theirs(self, pair: _Pair) -> Line:
        """Run their client once."""
        return last_line(self._theirs(pair.theirs, self._track.amount(pair.count)))

    def run_ours(self, pair: _Pair) -> Line:
        """Run our client once."""
        words = clients.worker_words(pair.ours, self._name_server, self._track.amount(pair.count), self._size_bytes)
        return last_line(words)

    def _theirs(self, work: str, count: int) -> list[str]:
        return [str(self._python), kafka_clients.__file__, work, self._servers, str(count), str(self._size_bytes)]
