"""What an engine does for a landing: keep the state of a table, and write a step with the state after it.

The plan, the rows and the account are the same for every engine; :mod:`gantrymq.tables.landing` drives it.

Thread rule: an engine belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from gantrymq.tables.bodies.body_format import BodyFormat
from gantrymq.tables.maintenance.options import Maintained, MaintenanceOptions
from gantrymq.tables.partitions import PartitionBy
from gantrymq.tables.rows import Conversion
from gantrymq.tables.sources.steps import Step
from gantrymq.tables.state import LandedCounts, TableState


@dataclass(frozen=True, slots=True)
class Head:
    """A table after its last landing. ``version`` is that of the table's format, which foreign commits change too."""

    state: TableState
    version: int


@dataclass(frozen=True, slots=True)
class Landed:
    """What a commit wrote: the table after it, the numbers of its messages, and whether there was a fault.

    ``bodies`` is the format after it, which may have grown.
    """

    head: Head
    totals: LandedCounts
    has_faults: bool
    bodies: BodyFormat


class LandingEngine(Protocol):
    """Writes the rows of a table."""

    @property
    def table(self) -> str:
        """The name of the table, for messages."""
        ...

    def open(self) -> Head | None:
        """The table, after it was brought to a whole state if the last commit was interrupted; None without a table.

        Raises ForeignTableError, TableError.
        """
        ...

    def create(self, schema: pa.Schema, partition_by: PartitionBy, state: TableState) -> Head:
        """Make the table, without rows. Raises AnotherLanderError if it exists by now."""
        ...

    def land(self, head: Head, step: Step, state: TableState, conversion: Conversion) -> Landed:
        """Write the rows of ``step``, and commit them together with ``state``, completed by their numbers.

        ``state`` is that of the step, whose ``totals`` are still those of ``head``. :func:`complete` adds what the
        reading has shown. Raises AnotherLanderError if the table is not at ``head`` any more, and then leaves nothing.
        """
        ...

    def maintain(
        self, head: Head, options: MaintenanceOptions, remembered: Mapping[str, Any], stopped: Callable[[], bool]
    ) -> tuple[Head, Maintained]:
        """What :meth:`gantrymq.tables.maintenance.maintainer.Maintainer.run` does."""
        ...

    def count_files(self) -> int:
        """The number of data files of the table."""
        ...
