"""SIGINT and SIGTERM while a store is open for writing: finish what is being stored, close, then end."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
