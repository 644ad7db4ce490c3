"""gRPC under the Java SDK of RocketMQ 5: sends, and receives with their acknowledgements.

Theirs is RocketMQ's proxy in LOCAL mode (proxy and broker in one process), ours is ``gantrymq serve --grpc-port``.
Both run from the first round to the last. The first 30,000 messages at each, which Java's compiler needs, are not
measured, nor are the first seconds of each turn. The CPU time is that of the process that has the broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.race import grpc_java
from benchmarks.race.process import Line, SideError, run_command, serve_ours, serving
from benchmarks.race.race import JAVA, OURS, Race, Row
from benchmarks.race.track import Track

_SETTINGS = {"flushDiskType": "ASYNC_FLUSH", "waitTimeMillsInSendQueue": 10_000, "timerWheelEnable": True}
_BODY_SIZE = 1024
_SECONDS, _WARM_UP_SECONDS = 10, 3
_FIRST, _FIRST_WITHIN_SECONDS = 30_000, 300
_STORED = 600_000
_FILL_WITHIN_SECONDS = 300
_SENDERS, _CONSUMERS = 16, 8
_BATCHES = (1, 32)
_TOPIC, _GROUP, _QUEUES = "bench", "load", 8
_GOAL = 1.0
_TOLERATED = 0.001


def races(track: Track) -> Iterator[Race]:
    """The races; none without Java and Maven."""
    if track.java is None or grpc_java.missing():
        return
    sending = {"mode": "send", "threads": _SENDERS}
    yield _race(track, f"gRPC send {_BODY_SIZE} B, {_SENDERS} threads", "acknowledged", sending)
    for batch in _BATCHES:
        name = f"gRPC receive of {batch}, {_BODY_SIZE} B, {_CONSUMERS} clients"
        receiving = {"mode": "receive", "threads": _CONSUMERS, "batch": batch}
        yield _race(track, name, "received, and acknowledged one by one", receiving, is_filled=True)


class Proxies:
    """The real proxy and our server, for some ``work`` of the SDK.

    A call runs both in the folder of a race until the ``with`` block ends.
    """

    def __init__(self, track: Track, work: dict[str, Any]) -> None:
        self._track, self._work, self._home = track, work, Path()
        self._served: dict[str, Line] = {}

    @contextmanager
    def __call__(self, folder: Path, *, is_filled: bool) -> Iterator[None]:
        """Start both, with a topic, and let the SDK do the work unmeasured.

        If the topic is to be filled, the group joins before that, so that it begins with the first message.
        """
        self._home = folder / "sdk"
        ours = [*serve_ours(folder / "ours", _SETTINGS), "--grpc-port", "0"]
        with ExitStack() as stack:
            java = grpc_java.serving_proxy(self._track.other, folder / "theirs", _SETTINGS)
            self._served = {JAVA: stack.enter_context(java), OURS: stack.enter_context(serving(ours))}
            for side, served in self._served.items():
                run_command("admin", "topic", "create", _TOPIC, "--queues", str(_QUEUES), "-n", served["namesrv"])
                if is_filled:
                    run_command("admin", "group", "create", _GROUP, "-n", served["namesrv"])  # the real proxy wants it
                    self.load(side, mode="join")
                    self._fill(served)
                first = {"count": self._track.amount(_FIRST), "seconds": _FIRST_WITHIN_SECONDS, "warm_up": 0}
                self.load(side, **self._work, **first)
            yield

    def load(self, side: str, **options: Any) -> Line:
        """Run the SDK at a side. Raises SideError if more than one message in a thousand failed."""
        served = self._served[side]
        options |= {"topic": _TOPIC, "group": _GROUP, "size": _BODY_SIZE, "server_pid": served["pid"]}
        line = grpc_java.load(served["grpc"], self._home, **options)
        if line["failed"] > _TOLERATED * line["messages"]:
            raise SideError(f"{line['failed']} calls failed at {side}, the first by {line.get('failure')}")
        return line

    def _fill(self, served: Line) -> None:
        amount = self._track.amount(_STORED)
        filling = {"mode": "batch", "count": amount, "seconds": _FILL_WITHIN_SECONDS, "size": _BODY_SIZE}
        self._track.other.load(served["namesrv"], topic=_TOPIC, **filling)


def _race(track: Track, name: str, note: str, work: dict[str, Any], *, is_filled: bool = False) -> Race:
    proxies = Proxies(track, work)
    times = {"seconds": track.seconds(_SECONDS), "warm_up": track.seconds(_WARM_UP_SECONDS)}
    sides = track.sides(lambda _: proxies.load(JAVA, **work, **times), lambda _: proxies.load(OURS, **work, **times))
    rows = [
        Row(name, "rate", "messages/s", _GOAL, note=note),
        Row(f"{name}: CPU", "cpuMicros", "µs/message", _GOAL, less_is_better=True, note="of proxy and broker"),
    ]
    return Race(rows, sides, standing=lambda folder: proxies(folder, is_filled=is_filled))
