"""SIGINT and SIGTERM: finish what is being stored, or remove unfinished output, then end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

from gantrymq.cli.exit_codes import TERMINATED

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command as SIGINT does, so that unfinished output is removed. The exit code is 143."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # do not interrupt the removal
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Interrupted(Exception):
    """A signal arrived while the command waited for input."""


class StopSignals:
    """A context in which a signal is recorded in ``number``. Interrupted is raised only while ``waiting``.

    So a put that has begun is completed. A second signal ends the process as usual.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._waiting = False
        self._before: dict[int, object] = {}

    def waiting(self, waiting: bool) -> None:
        """Set whether the command waits for input. Raises Interrupted if a signal has arrived."""
        self._waiting = waiting
        if waiting and self.number is not None:
            raise Interrupted

    def waiting_ended(self) -> None:
        """Note that the command works again; a signal is only recorded from now on."""
        self._waiting = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.number is None:
            for other in _SIGNALS:
                signal.signal(other, signal.SIG_DFL)
        self.number = number
        if self._waiting:
            raise Interrupted

    def __enter__(self) -> StopSignals:
        """Install the signal handlers."""
        self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the earlier handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
