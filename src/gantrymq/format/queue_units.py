"""A block of consume queue units as columns, with the three kinds of slots that a healthy queue has.

=============  ==================================================================================================
mask           slot
=============  ==================================================================================================
is_message     Points to a record, which a reader looks up.
is_filler      Points to no record. It was written so that later units keep their queue offsets (Java: pre-blank).
is_unwritten   20 zeros: the rest of the last file, a hole, or a unit that a power cut has taken.
=============  ==================================================================================================

No slot is of two kinds. A slot of no kind is damaged: its size or its physical offset is negative, or its size is 0
while other bytes are not.

Source: ConsumeQueue.fillPreBlank and ConsumeQueue.recover.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.queue_entry import PRE_BLANK, UNIT_SIZE, QueueEntry

UNIT_DTYPE = np.dtype([("phy_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
Bools = NDArray[np.bool_]


class Units:
    """Some consecutive units of a queue. ``raw`` is their bytes, or an array of them; a part of a unit is cut."""

    def __init__(self, raw: bytes | bytearray | memoryview | NDArray[Any]) -> None:
        size = raw.nbytes if isinstance(raw, np.ndarray | memoryview) else len(raw)
        self.rows: NDArray[np.void] = np.frombuffer(raw, UNIT_DTYPE, size // UNIT_SIZE)

    @classmethod
    def joined(cls, parts: Sequence[NDArray[np.void]]) -> Units:
        """The units of several arrays of UNIT_DTYPE. NumPy would join them in the byte order of the machine."""
        if len(parts) == 1:
            return cls(parts[0])
        return cls(np.concatenate([np.empty(0, np.uint8), *(part.view(np.uint8) for part in parts)]))

    def __len__(self) -> int:
        """The number of units."""
        return len(self.rows)

    def __getitem__(self, number: int) -> QueueEntry:
        """The unit at a position."""
        return QueueEntry(*self.rows[number].item())

    @property
    def raw(self) -> NDArray[np.uint8]:
        """The bytes of the units."""
        return self.rows.view(np.uint8)

    @cached_property
    def phy_offsets(self) -> NDArray[np.int64]:
        """The physical offsets (int64)."""
        return self.rows["phy_offset"].astype(np.int64)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The sizes of the records in bytes (int64)."""
        return self.rows["size"].astype(np.int64)

    @cached_property
    def tags_codes(self) -> NDArray[np.int64]:
        """The tags codes (int64)."""
        return self.rows["tags_code"].astype(np.int64)

    @cached_property
    def is_message(self) -> Bools:
        """Which slots point to a record."""
        return (self.sizes > 0) & (self.phy_offsets >= 0) & ~self.is_filler

    @cached_property
    def is_filler(self) -> Bools:
        """Which slots were filled because they have no message."""
        result: Bools = self.sizes == PRE_BLANK.size_bytes
        return result

    @cached_property
    def is_unwritten(self) -> Bools:
        """Which slots are 20 zeros."""
        result: Bools = (self.sizes == 0) & (self.phy_offsets == 0) & (self.tags_codes == 0)
        return result
