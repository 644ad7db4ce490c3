"""Why records end at a position of the log, or why none can be read there.

Recovery, the tools, ``gantrymq store log`` and Spark use these reasons. Their texts are defined here.

Source: CommitLog.checkMessageAndReturnSize for the first few; the others are not RocketMQ's.
"""

from __future__ import annotations

from enum import StrEnum


class StopReason(StrEnum):
    """A reason. Its string value is what ``--json`` prints.

    ``there_is`` describes the bytes at the position, ``error`` is the reason of a
    :class:`~gantrymq.errors.CorruptRecordError`. ``NONE`` is false in a condition, every other reason is true.
    """

    there_is: str
    error: str

    NONE = "", "its last file"  # records continue to the given end, or to the end of the files
    BLANK = "blank", "a blank", "an impossible size"  # as an error: a blank that does not fill its file
    ZEROS = "zeros", "zeros"
    HALF = "half a record", "a record whose parts do not add up to its size", "half a record"
    MAGIC = "magic code", "neither a record nor a blank", "a wrong magic code"
    SIZE = "size", "a record or blank of an impossible size", "an impossible size"
    CRC = "crc", "a record with a wrong CRC", "its CRC is wrong"
    NO_BLANK = "end of file without a blank", "the end of the file"
    UNREADABLE = "unreadable", "bytes that the disk cannot read"
    MISSING_FILES = "missing files", "no file"
    # Copying the log leaves out a whole record that fits nowhere.
    NO_ROOM_BEFORE = "no room for filler before it", "a record without room before it"
    NO_ROOM_AFTER = "no room for a blank after it", "a record without room after it"

    def __new__(cls, value: str, there_is: str, error: str = "") -> StopReason:
        """A reason with its texts."""
        reason = str.__new__(cls, value)
        reason._value_ = value
        reason.there_is, reason.error = there_is, error or there_is
        return reason
