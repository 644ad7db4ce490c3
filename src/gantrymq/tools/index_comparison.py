"""What came of holding index entries against records: kept up to a bound, counted beyond it.

Thread rule: belongs to one thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gantrymq.tools.findings import Finding

KEPT = 262_144
SHOWN = 4096


@dataclass(slots=True)
class Strays:
    """(file, entry number) of entries that did not fit where they stood; the first ones are kept, all are counted."""

    places: list[tuple[int, int]] = field(default_factory=list)
    count: int = 0

    def add(self, file: int, numbers: list[int]) -> None:
        """Entries ``numbers`` of a file."""
        room = KEPT - len(self.places)
        self.places += [(file, number) for number in numbers[:room]]
        self.count += len(numbers)


@dataclass(slots=True)
class IndexComparison:
    """What came of holding entries against a part of the log; the first of everything are kept, all are counted."""

    strays: Strays = field(default_factory=Strays)
    wrong: list[Finding] = field(default_factory=list)
    excused_places: set[int] = field(default_factory=set)
    unseen: list[tuple[int, int]] = field(default_factory=list)
    unseen_count: int = 0

    def append(self, following: IndexComparison) -> None:
        """Go on with what came of the part of the log behind."""
        for file, number in following.strays.places:
            self.strays.add(file, [number])
        self.strays.count += following.strays.count - len(following.strays.places)
        self.wrong += following.wrong[: max(KEPT - len(self.wrong), 0)]
        self.excused_places |= following.excused_places
        self.unseen += following.unseen[: max(SHOWN - len(self.unseen), 0)]
        self.unseen_count += following.unseen_count
