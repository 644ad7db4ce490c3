"""Finds the queues that were recreated since they were landed: their offsets began at 0 again.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gantrymq.tables.state import QueuePosition
from gantrymq.tools.audit.queue_runs import QueueChoice, QueueName, QueueRun, choose
from gantrymq.tools.export_plan import ExportPlan
from gantrymq.tools.read.log_fingerprint import LogState


class Restart(NamedTuple):
    """A queue begins a new generation with the queue offset ``first_offset``, at the physical offset."""

    generation: int
    first_offset: int
    phy_offset: int


def choices_with_restarts(
    known: Mapping[QueueName, QueuePosition],
    choices: Mapping[QueueName, QueueChoice],
    runs: Mapping[QueueName, Sequence[QueueRun]],
    reached: int | None,
    state: LogState,
    *,
    plan: ExportPlan,
) -> tuple[dict[QueueName, Restart], dict[QueueName, QueueChoice]]:
    """The recreated queues of ``known``, and the choices, in which only the new messages of those count.

    The log was landed up to the physical offset ``reached``; None if that is not known.
    """
    restarts, chosen = {}, dict(choices)
    for name, position in known.items():
        begin_offset = _restart(name, position, choices.get(name), runs.get(name, ()), reached, state, plan)
        new = [
            run
            for run in runs.get(name, ())
            if begin_offset is not None and run.phy_offset >= begin_offset and not run.moved
        ]
        if begin_offset is None or not new:
            continue
        if name not in choices or choices[name].begin < begin_offset:
            chosen[name] = choose(new, begin_offset, lambda _: -1)
        restarts[name] = Restart(position.generation + 1, new[0].begin, begin_offset)
    return restarts, chosen


def _restart(
    name: QueueName,
    position: QueuePosition,
    choice: QueueChoice | None,
    runs: Sequence[QueueRun],
    reached: int | None,
    state: LogState,
    plan: ExportPlan,
) -> int | None:
    """The physical offset at which the messages begin that are not those which were landed; None without such."""
    if state is LogState.OTHER:
        return choice.begin if choice is not None else 0
    if choice is None or position.next_offset == 0:
        return None
    if reached is None:  # landed from a cluster
        return choice.begin if choice.covered.upto < position.next_offset else None
    begin = max(choice.begin, plan.begin_of(name) or 0)
    if begin >= reached:
        return begin
    # After the place that was reached, offsets of a queue only grow, so a run of smaller ones is another queue's.
    # A single record with a smaller offset has a flipped bit, unless the log was cut: then offsets are given out again.
    min_length = 1 if state is LogState.CUT else 2
    low = [run for run in runs if run.phy_offset >= reached and run.begin < position.next_offset]
    return min((run.phy_offset for run in low if run.length >= min_length), default=None)
