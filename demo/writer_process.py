"""The parent's side of the writer: starts it, reads its pipe, kills it or lets it close, waits for its end.

The kills are random, and the same for the same seed.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from demo.failure import WriterFailedError
from demo.pipe import Acknowledged, Closed, Finished, Ready, Word, decode
from gantrymq.clock import Clock

MAX_DELAY_MS = 12.0
_PATIENCE_S = 60.0
_LOG_TAIL = 1500


@dataclass(frozen=True, slots=True)
class Kill:
    """A SIGKILL ``delay_ms`` after the acknowledgement of row ``after_row`` was read.

    The delay places the kill anywhere within the writing of a batch: in a body, between two records, in a queue.
    """

    after_row: int
    delay_ms: float


def plan_kills(rows: int, kills: int, seed: int) -> list[Kill]:
    """Spread ``kills`` kills over the rows, one in each equal share; the last share has none. Sorted by row."""
    rng = random.Random(seed)
    share = rows / (kills + 1)
    return [
        Kill(round(share * (number + rng.uniform(0.2, 0.95))), round(rng.uniform(0, MAX_DELAY_MS), 2))
        for number in range(kills)
    ]


@dataclass(frozen=True, slots=True)
class Workplace:
    """The files of the writer, and the number of messages in a batch."""

    store: Path
    messages: Path
    conf: Path
    log: Path
    batch: int


@dataclass(slots=True)
class Life:
    """One writer from its start to its end. Times are seconds of the monotonic clock.

    ``heard`` has (time, end row) of every acknowledgement, in order. ``killed_s`` is None if the writer closed its
    store itself; ``closing_s`` is when it was told to.
    """

    pid: int
    first_row: int
    started_s: float
    ready_s: float = 0.0
    closing_s: float = 0.0
    ended_s: float = 0.0
    killed_s: float | None = None
    heard: list[tuple[float, int]] = field(default_factory=list)

    @property
    def acknowledged_row(self) -> int:
        """The row up to which all rows were acknowledged, by this writer or by earlier ones."""
        return self.heard[-1][1] if self.heard else self.first_row

    @property
    def acknowledged(self) -> int:
        """The number of rows that this writer acknowledged."""
        return self.acknowledged_row - self.first_row

    @property
    def rows_per_s(self) -> float:
        """Rows for each second between the first and the last acknowledgement."""
        if len(self.heard) < 2:
            return 0.0
        (first_s, first_end), (last_s, last_end) = self.heard[0], self.heard[-1]
        return (last_end - first_end) / (last_s - first_s)


class WriterProcess:
    """A running writer. It is a context manager, so that an error in the parent leaves no process behind."""

    def __init__(self, place: Workplace, first_row: int) -> None:
        paths = [str(place.store), str(place.messages), str(place.conf)]
        # -P: a file in the working directory must not replace a module.
        command = [sys.executable, "-P", "-m", "demo.writer", *paths, str(first_row), str(place.batch)]
        self._place = place
        with place.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        self.pid = self._process.pid

    def words(self) -> Iterator[Word]:
        """Read the pipe until the writer's end is closed. After a kill this returns what was still in the pipe."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield decode(line)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(_PATIENCE_S)

    def let_close(self) -> None:
        """Tell the writer to close its store and end."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"close\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Wait until the writer ends by itself. Raises WriterFailedError if it failed."""
        code = self._process.wait(_PATIENCE_S)
        if code:
            tail = self._place.log.read_text("utf-8", "replace")[-_LOG_TAIL:].strip()
            raise WriterFailedError(f"the writer (pid {self.pid}) ended with exit code {code}:\n{tail}")

    def __enter__(self) -> WriterProcess:
        """Return this object."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill the process if it still runs, and close its pipes."""
        if self._process.poll() is None:
            self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def run_writer(
    place: Workplace, first_row: int, kill: Kill | None, clock: Clock, on_acknowledged: Callable[[int], None]
) -> Life:
    """Run one writer that stores from ``first_row`` on, up to ``kill``, or to a clean end if that is None.

    Raises WriterFailedError if it ends in any other way.
    """
    started_s = clock.monotonic_s()
    with WriterProcess(place, first_row) as process:
        life = Life(process.pid, first_row, started_s)
        is_closed = False
        for word in process.words():
            match word:
                case Ready():
                    life.ready_s = word.at_s
                case Acknowledged():
                    life.heard.append((word.at_s, word.end_row))
                    on_acknowledged(word.end_row)
                case Finished() if kill is None:
                    life.closing_s = clock.monotonic_s()
                    process.let_close()
                case Closed():
                    is_closed = True
            if kill is not None and life.killed_s is None and life.acknowledged_row >= kill.after_row:
                time.sleep(kill.delay_ms / 1000)
                life.killed_s = clock.monotonic_s()
                process.kill()
        if life.killed_s is None:
            process.end()
            if not is_closed:
                raise WriterFailedError(f"the writer (pid {process.pid}) ended without closing its store")
        life.ended_s = clock.monotonic_s()
    return life
