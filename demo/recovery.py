"""Bringing the store back after a kill, timed, with the progress of the recovery shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from demo.failure import DemoError
from demo.store_settings import open_store
from gantrymq.clock import Clock
from gantrymq.store.recovery import Progress, RecoveryReport


@dataclass(frozen=True, slots=True)
class Recovered:
    """One recovery: when, and what it found and did (``report`` is the store's own)."""

    started_s: float
    ended_s: float
    report: RecoveryReport

    @property
    def took_s(self) -> float:
        """From the call of open to the closed store."""
        return self.ended_s - self.started_s


def recover_store(store: Path, conf: Path, clock: Clock, progress: Progress) -> Recovered:
    """Open the store, which recovers it, and close it. Raises DemoError where there was nothing to recover from."""
    started_s = clock.monotonic_s()
    with open_store(store, conf, create=False, clock=clock, progress=progress) as opened:
        report = opened.recovery
    if report.last_exit_ok:
        raise DemoError(f"{store} says that its writer closed it, but that writer was killed")
    return Recovered(started_s, clock.monotonic_s(), report)
