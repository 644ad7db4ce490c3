"""SIGINT and SIGTERM: finish what is being stored, or remove what is half done, then end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_TERMINATED = 128 + signal.SIGTERM


@contextmanager
def sigterm_unwinds() -> Iterator[None]:
    """Let SIGTERM end the command as SIGINT does, so that what is half done is removed; the exit code is 143."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: the removal is not to be interrupted
        raise SystemExit(_TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Interrupted(Exception):
    """A signal came while the command waited for input."""


class StopSignals:
    """Within this context a signal is noted in ``number``; it is raised as Interrupted only while ``waiting``.

    So nothing is torn: a put that has begun ends. A second signal ends the process as it would without this.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._waiting = False
        self._before: dict[int, object] = {}

    def waiting(self, waiting: bool) -> None:
        """Say whether the command waits for input; raises Interrupted where a signal came before."""
        self._waiting = waiting
        if waiting and self.number is not None:
            raise Interrupted

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.number is None:
            for other in _SIGNALS:
                signal.signal(other, signal.SIG_DFL)
        self.number = number
        if self._waiting:
            raise Interrupted

    def __enter__(self) -> StopSignals:
        """Take the signals over."""
        self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
