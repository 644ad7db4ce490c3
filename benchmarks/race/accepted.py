"""Compare ratios with accepted ones, for ``make bench-smoke``.

The file is a JSON object from the name of a race to its ratio. Ratios of small races on a busy machine vary,
so only a collapse counts, twice in a row: half of the accepted ratio or less, or what the race's row says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.table import Table

from benchmarks.race.race import Outcome
from gantrymq.errors import GantrymqError


class AcceptedError(GantrymqError):
    """The file of accepted ratios cannot be read."""


@dataclass(frozen=True)
class Change:
    """The accepted and the present ratio of a race; ``now`` is None if the race failed.

    ``least_share`` of the accepted ratio has to be left.
    """

    name: str
    accepted: float
    now: float | None
    least_share: float = 0.5

    @property
    def share(self) -> float:
        """The present ratio divided by the accepted one."""
        return (self.now or 0.0) / self.accepted

    @property
    def is_collapse(self) -> bool:
        """Whether the share is ``least_share`` or less."""
        return self.share <= self.least_share


def load(path: Path) -> dict[str, float]:
    """The accepted ratios; raises AcceptedError."""
    try:
        ratios = msgspec.json.decode(path.read_bytes(), type=dict[str, float])
    except OSError as error:
        raise AcceptedError(f"{path}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise AcceptedError(f"{path}: {error}") from error
    if bad := [name for name, ratio in ratios.items() if not ratio > 0]:
        raise AcceptedError(f"{path}: {bad[0]}: a ratio is more than 0")
    return ratios


def save(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write the present ratios as accepted ones, without the failed races."""
    ratios = {one.name: round(one.ratio, 2) for one in outcomes if one.ratio}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(ratios)) + b"\n")


def changes(accepted: Mapping[str, float], outcomes: Sequence[Outcome]) -> list[Change]:
    """The change of each race that ran and has an accepted ratio."""
    return [
        Change(one.name, accepted[one.name], one.ratio, one.row.least_share) for one in outcomes if one.name in accepted
    ]


def table(found: Sequence[Change]) -> Table:
    """A row for each race."""
    rows = Table(title="Ratios beside those accepted")
    rows.add_column("race")
    for name in ("accepted", "now", "change"):
        rows.add_column(name, justify="right")
    for one in found:
        now = "–" if one.now is None else f"{one.now:.2f}"
        change = f"{one.share - 1:+.0%}" + (" collapsed" if one.is_collapse else "")
        rows.add_row(one.name, f"{one.accepted:.2f}", now, change, style="red" if one.is_collapse else None)
    return rows
