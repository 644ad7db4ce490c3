"""The ends of log files where the blank is broken and no message can have been lost.

Behind its last record a file has a blank, for the next record did not fit. Where the blank is damaged, the rest of the
file is no whole record; but that is no loss where the first record of the next file would not have fitted into it, and
every queue has all its messages.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from gantrymq.errors import StoreError
from gantrymq.format.record import BLANK_SIZE
from gantrymq.fs.api import FileSystem
from gantrymq.tools.bad_pages import read_part
from gantrymq.tools.log_files import LogFile
from gantrymq.tools.loss import LossAccount


def forget_broken_blanks(fs: FileSystem, files: Sequence[LogFile], account: LossAccount) -> None:
    """Take the ranges of ``account`` that are broken blanks out of it; ``files`` are those of the log, in order."""
    if any(one.phy_offset < 0 for one in account.messages):
        return  # nothing says where these lay
    by_base = {file.base: file for file in files}
    ends = {file.end for file in files}
    account.ranges = [
        one
        for one in account.ranges
        if not (
            one.end in ends
            and not one.has_records
            and one.end - one.start < _first_size(fs, by_base.get(one.end)) + BLANK_SIZE
            and not any(lost.phy_offset < one.end and one.start < lost.phy_end for lost in account.messages)
        )
    ]


def _first_size(fs: FileSystem, file: LogFile | None) -> int:
    """How long the first record of a file says that it is; too little where there is none."""
    if file is None:
        return -BLANK_SIZE
    try:
        return int.from_bytes(read_part(fs, file.path, 0, 4), "big", signed=True)
    except (OSError, StoreError):
        return -BLANK_SIZE
