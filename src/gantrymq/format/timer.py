"""The files of timer messages: wheel, timer log and timer checkpoint.

A timer message waits as a record of ``rmq_sys_wheel_timer``, queue 0, in the commit log. The timer log has one unit for
each, in the order in which they were read from that queue. The wheel has one slot for each due time: two rounds of
604,800 slots, slot number = due time / precision modulo 1,209,600. A slot points to its newest unit, each unit to the
previous one of the same slot.

Slot of ``timerwheel``, 32 bytes:

=====  =========  ==========================================================================
bytes  field      remark
=====  =========  ==========================================================================
8      time       due time in milliseconds / timerPrecisionMs; 0 in a slot that was never used
8      firstPos   timer log position of the slot's oldest unit
8      lastPos    of its newest one
4      num        messages minus deletions; may be wrong after a crash; only flow control uses it
4      magic      0
=====  =========  ==========================================================================

Unit of ``timerlog/``, 52 bytes:

=====  ============  ===========================================================================
bytes  field         remark
=====  ============  ===========================================================================
4      size          52
8      prevPos       position of the previous unit of the same slot, -1 for the first
4      magic         1, with 2 the message rolls (its slot is not its due time yet), with 4 it deletes
8      enqueueTime   write time of the wheel in milliseconds
4      delay         slot time minus enqueueTime in milliseconds
8      offset        physical offset of the record
4      messageSize   its size
4      topicHash     String.hashCode of the topic the message is for
8      reserved      0
=====  ============  ===========================================================================

A file of the timer log that has less than 68 bytes left ends with a blank of 16 bytes: the bytes that are left (4), 0
(8), 0xCBD43194 (4).

``config/timercheck``, 56 bytes in a page of 4096:

=====  ======================  ====================================================
bytes  field                   remark
=====  ======================  ====================================================
8      lastReadTimeMs          slots before it are delivered
8      lastTimerLogFlushPos    the timer log is durable up to here
8      lastTimerQueueOffset    messages of the timer topic before it are in the log
8      masterTimerQueueOffset  the same of the master; equal here
8      stateVersion            of the data version, as are the next two
8      timestamp
8      counter
=====  ======================  ====================================================

Source: Slot, TimerWheel, TimerLog, TimerCheckpoint.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import NamedTuple

import numpy as np

SLOT_SIZE = 32
SLOTS = 7 * 24 * 3600  # slots of one round, for any precision
WHEEL_SIZE = 2 * SLOTS * SLOT_SIZE
BLANK_SLOTS = 60
TIMER_UNIT_SIZE = 52
TIMER_BLANK_SIZE = 16
NO_POSITION = -1
MAGIC_DEFAULT, MAGIC_ROLL, MAGIC_DELETE = 1, 2, 4
_ALL_MAGIC = 0xF
_MAGIC_BLANK = 0xCBD43194
MIN_TIMER_FILE_BYTES = TIMER_UNIT_SIZE + TIMER_BLANK_SIZE
TIMER_CHECKPOINT_SIZE = 4096
TIMER_CHECKPOINT_BYTES = 56

_SLOT = struct.Struct(">qqqii")
_UNIT = struct.Struct(">iqiqiqiiq")
_BLANK = struct.Struct(">iqI")
_CHECKPOINT = struct.Struct(">7q")

SLOT_DTYPE = np.dtype([("time", ">i8"), ("first", ">i8"), ("last", ">i8"), ("num", ">i4"), ("magic", ">i4")])
TIMER_UNIT_DTYPE = np.dtype(
    [
        *(("size", ">i4"), ("prev", ">i8"), ("magic", ">i4"), ("enqueue_ms", ">i8"), ("delay_ms", ">i4")),
        *(("phy_offset", ">i8"), ("message_size", ">i4"), ("topic_hash", ">i4"), ("reserved", ">i8")),
    ]
)


class Slot(NamedTuple):
    """One slot; ``time`` is in units of timerPrecisionMs."""

    time: int
    first: int
    last: int
    num: int = 0
    magic: int = 0


class TimerUnit(NamedTuple):
    """One unit of the timer log."""

    prev: int
    magic: int
    enqueue_ms: int
    delay_ms: int
    phy_offset: int
    message_size: int
    topic_hash: int

    @property
    def slot_ms(self) -> int:
        """The time of the unit's slot in milliseconds."""
        return self.enqueue_ms + self.delay_ms

    @property
    def rolls(self) -> bool:
        """Whether the message is put into the timer topic again at the time of its slot."""
        return self.magic & MAGIC_ROLL != 0

    @property
    def deletes(self) -> bool:
        """Whether it recalls another message instead of being delivered."""
        return self.magic & MAGIC_DELETE != 0


@dataclass(slots=True)
class TimerCheckpoint:
    """The numbers of ``config/timercheck``, in the order of the file."""

    last_read_time_ms: int = 0
    timer_log_flush_pos: int = 0
    timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    state_version: int = 0
    timestamp_ms: int = 0
    counter: int = 0


def slot_number(time: int, slots: int = SLOTS) -> int:
    """The number of the slot for ``time`` (in units of timerPrecisionMs) in a wheel of two rounds of ``slots``."""
    return time % (2 * slots)


def encode_slot(slot: Slot) -> bytes:
    """The 32 bytes of a slot."""
    return _SLOT.pack(*slot)


def decode_slot(raw: bytes | memoryview) -> Slot:
    """Read a slot. Missing bytes count as zeros."""
    return Slot(*_SLOT.unpack(bytes(raw[:SLOT_SIZE]).ljust(SLOT_SIZE, b"\0")))


def encode_unit(unit: TimerUnit) -> bytes:
    """The 52 bytes of a unit. Raises struct.error if a number does not fit its field."""
    return _UNIT.pack(TIMER_UNIT_SIZE, *unit, 0)


def decode_unit(raw: bytes | memoryview, position: int) -> TimerUnit | None:
    """The unit whose bytes begin at ``raw[0]``, at ``position`` of the timer log.

    None if no writer can have left these bytes there: another size, an unknown magic, a previous unit at a later
    position, a negative number.
    """
    if len(raw) < TIMER_UNIT_SIZE:
        return None
    size, *numbers, _ = _UNIT.unpack_from(raw)
    unit = TimerUnit(*numbers)
    is_unit = size == TIMER_UNIT_SIZE and 0 < unit.magic <= _ALL_MAGIC and NO_POSITION <= unit.prev < position
    return unit if is_unit and min(unit.enqueue_ms, unit.phy_offset, unit.message_size, unit.slot_ms) >= 0 else None


def encode_timer_blank(rest: int) -> bytes:
    """The 16 bytes of a blank, for a file of the timer log that has ``rest`` bytes left."""
    return _BLANK.pack(rest, 0, _MAGIC_BLANK)


def is_timer_blank(raw: bytes | memoryview) -> bool:
    """Whether ``raw`` begins with a blank."""
    return len(raw) >= TIMER_BLANK_SIZE and _BLANK.unpack_from(raw)[2] == _MAGIC_BLANK


def encode_timer_checkpoint(checkpoint: TimerCheckpoint) -> bytes:
    """The 56 bytes of the checkpoint. In the file zeros follow, up to 4096 bytes."""
    return _CHECKPOINT.pack(*astuple(checkpoint))


def decode_timer_checkpoint(raw: bytes | memoryview) -> TimerCheckpoint:
    """Read the numbers. Missing bytes count as zeros, as in a page of 4.x, which had no data version."""
    return TimerCheckpoint(
        *_CHECKPOINT.unpack(bytes(raw[:TIMER_CHECKPOINT_BYTES]).ljust(TIMER_CHECKPOINT_BYTES, b"\0"))
    )
