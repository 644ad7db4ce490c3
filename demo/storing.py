"""Store every row exactly once although the writer is killed: write, kill, recover, audit, continue at the next row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from demo.audit import Audit, audit_store
from demo.failure import DemoError, DifferenceError
from demo.store_settings import open_store
from demo.writer_process import Kill, Life, Workplace, run_writer
from gantrymq.clock import Clock
from gantrymq.store.recovery.recovery import Progress, RecoveryReport


@dataclass(frozen=True, slots=True)
class Recovered:
    """One recovery: its time (seconds of the monotonic clock) and the report of the store."""

    started_s: float
    ended_s: float
    report: RecoveryReport

    @property
    def took_s(self) -> float:
        """Seconds from the call of open until the store is closed."""
        return self.ended_s - self.started_s


def recover_store(store: Path, conf: Path, clock: Clock, progress: Progress) -> Recovered:
    """Open the store, which recovers it, and close it. Raises DemoError if the store was closed cleanly."""
    started_s = clock.monotonic_s()
    with open_store(store, conf, create=False, clock=clock, progress=progress) as opened:
        report = opened.recovery
    if report.last_exit_ok:
        raise DemoError(f"{store} says that its writer closed it, but that writer was killed")
    return Recovered(started_s, clock.monotonic_s(), report)


class Display(Protocol):
    """Shows the progress of storing, and the result of each step."""

    def bar(self, what: str, total: int) -> AbstractContextManager[Callable[[float], None]]:
        """Show a bar for one step. Call the function with the part that is done."""
        ...

    def wrote(self, number: int, life: Life, kill: Kill | None) -> None:
        """Report the end of a writer."""
        ...

    def recovered(self, recovered: Recovered) -> None:
        """Report a recovery."""
        ...

    def audited(self, audit: Audit, rows: int) -> None:
        """Report an audit."""
        ...


@dataclass(frozen=True, slots=True)
class Episode:
    """One writer and what followed it. ``kill`` and ``recovered`` are None for the last writer, which is not killed."""

    life: Life
    kill: Kill | None
    recovered: Recovered | None
    audit: Audit
    audited_s: tuple[float, float]


def store_all(
    place: Workplace, messages: pa.Table, kills: Sequence[Kill], seed: int, clock: Clock, display: Display
) -> list[Episode]:
    """Store all ``messages``, killing the writer as planned. Returns what happened.

    Raises DifferenceError as soon as a required row is missing, duplicated or changed, and WriterFailedError.
    """
    episodes: list[Episode] = []
    first_row = 0
    for kill in [*kills, None]:
        number = len(episodes) + 1
        with display.bar(f"writer {number}", messages.num_rows) as show:
            life = run_writer(place, first_row, kill, clock, show)
        display.wrote(number, life, kill)
        recovered = _recover(place, clock, display) if kill is not None else None
        began_s = clock.monotonic_s()
        with display.bar("reading everything back", messages.num_rows) as show:
            audit = audit_store(place.store, place.conf, messages, life.acknowledged_row, seed, show)
        episodes.append(Episode(life, kill, recovered, audit, (began_s, clock.monotonic_s())))
        display.audited(audit, messages.num_rows)
        first_row = audit.stored
    if first_row != messages.num_rows:
        raise DifferenceError(f"{place.store} is not complete", [f"{first_row} of {messages.num_rows} rows are there"])
    return episodes


def _recover(place: Workplace, clock: Clock, display: Display) -> Recovered:
    with display.bar("recovering", 1) as show:
        recovered = recover_store(
            place.store, place.conf, clock, lambda _step, done, total: show(done / total if total else 1)
        )
    display.recovered(recovered)
    return recovered
