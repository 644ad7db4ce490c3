"""The result of a put.

Source: PutMessageResult, AppendMessageResult.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gantrymq.kernels.api import joined_message_ids
from gantrymq.kernels.arrays import int64s, read_only
from gantrymq.model.host import Host
from gantrymq.model.message import message_id
from gantrymq.model.status import PutMessageStatus

_OFFSET_DIGITS = 16

# An int64 array for a batch, which may have 180,000 messages.
PhyOffsets: TypeAlias = Sequence[int] | NDArray[np.int64]


@dataclass(slots=True)
class PutMessageResult:
    """The result of one put. If nothing was stored, the offsets and the size are -1 and the id is empty.

    A put of several messages that are stored together has their physical offsets in ``phy_offsets``. ``topic``,
    ``queue_id`` and the other offsets are then those of the first message; ``size_bytes`` and ``msg_id`` cover all of
    them.
    """

    status: PutMessageStatus
    topic: str = ""
    queue_id: int = -1
    phy_offset: int = -1
    queue_offset: int = -1
    size_bytes: int = -1
    store_timestamp_ms: int = -1
    store_host: Host | None = None
    phy_offsets: PhyOffsets = ()

    @property
    def is_stored(self) -> bool:
        """Whether the message is in the log. It may not be flushed yet."""
        return self.phy_offset >= 0

    @property
    def count(self) -> int:
        """The number of messages in the put."""
        return len(self.phy_offsets) or 1

    @property
    def msg_id(self) -> str:
        """The offset message id, or an empty string. The ids of several messages are joined by commas."""
        if self.store_host is None or self.phy_offset < 0:
            return ""
        if len(self.phy_offsets) > 1:
            return bytes(self.joined_ids(self.store_host)).decode()
        return message_id(self.store_host, self.phy_offset)

    def joined_ids(self, host: Host) -> memoryview:
        """Return the text of :attr:`msg_id` for several messages, without copying it: it may have 6 MB."""
        host_digits = message_id(host, 0)[:-_OFFSET_DIGITS].encode()
        out = np.empty(len(self.phy_offsets) * (len(host_digits) + _OFFSET_DIGITS + 1), np.uint8)
        size = joined_message_ids(read_only(host_digits), int64s(self.phy_offsets), out)
        return out[:size].data

    @property
    def end_offset(self) -> int:
        """The physical offset after the last record."""
        return self.phy_offset + self.size_bytes
