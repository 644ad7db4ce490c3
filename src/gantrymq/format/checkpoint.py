"""The checkpoint: one page that says up to which time log, queues and index are durable.

======  ====================  =====================================
bytes   field                 remark
======  ====================  =====================================
8       physicMsgTimestamp    of the newest flushed record
8       logicsMsgTimestamp    of the newest flushed queue unit
8       indexMsgTimestamp     of the newest flushed full index file
8       masterFlushedOffset   since 5.x
8       confirmPhyOffset      since 5.x
8       logicsPhysicalOffset  since 5.x: the last record in a flushed queue
4048    zeros
======  ====================  =====================================

Source: StoreCheckpoint.
"""

import struct
from dataclasses import astuple, dataclass

CHECKPOINT_SIZE = 4096
_CHECKPOINT = struct.Struct(">6q")


@dataclass(slots=True)
class Checkpoint:
    """The six numbers of the page, in its order."""

    physic_msg_timestamp_ms: int = 0
    logics_msg_timestamp_ms: int = 0
    index_msg_timestamp_ms: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The 4096 bytes of the page."""
    return _CHECKPOINT.pack(*astuple(checkpoint)).ljust(CHECKPOINT_SIZE, b"\0")


def decode_checkpoint(raw: bytes | memoryview) -> Checkpoint:
    """Read a page. Missing bytes of a short one (a torn write, a foreign file) count as zeros."""
    return Checkpoint(*_CHECKPOINT.unpack(bytes(raw[: _CHECKPOINT.size]).ljust(_CHECKPOINT.size, b"\0")))
