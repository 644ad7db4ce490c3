"""What turns the bodies of messages into columns of a table.

Thread rule: values. A format is pickled to Spark's executors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class DecodedBodies:
    """The columns of a run of bodies, one row a body.

    ``reasons`` says for a row why its body does not fit the schema, and names the field. It is None where the body
    fits. A row with a reason is null in each column.
    """

    columns: pa.RecordBatch
    reasons: Sequence[str | None]


class BodyFormat(Protocol):
    """The columns that a body becomes."""

    @property
    def schema(self) -> pa.Schema:
        """The columns in place of ``body``. All are nullable but ``body`` of raw and text."""
        ...

    @property
    def version(self) -> str:
        """The name of this state of the schema, for the column ``schema_version`` of the dead rows; "" for raw."""
        ...

    def decode(self, bodies: pa.BinaryArray) -> DecodedBodies:
        """Decode each body. A body that does not fit is a reason, never an exception."""
        ...

    def remembered(self) -> dict[str, str]:
        """What the properties of a table keep, so that a later landing makes this format again."""
        ...


@runtime_checkable
class GrowingFormat(BodyFormat, Protocol):
    """A format whose columns may follow the bodies: an inferred schema, or the schemas of a registry.

    ``grows`` is False for a format with the schema of a file. A landing calls :meth:`widened` with a run of bodies
    before it decodes them, and evolves the table to the new format's schema. On Spark each executor widens, and the
    driver joins the results.
    """

    @property
    def grows(self) -> bool:
        """Whether :meth:`widened` can return another format."""
        ...

    def widened(self, bodies: pa.BinaryArray) -> GrowingFormat:
        """A format with what bodies add to the schema, or this one if they add nothing."""
        ...

    def joined(self, other: GrowingFormat) -> GrowingFormat:
        """A format that also has what another one has, which was widened from this one."""
        ...
