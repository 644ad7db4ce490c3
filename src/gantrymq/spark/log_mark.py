"""Is it still the log that was planned on? Fingerprints of a commit log, and what a file that is missing means.

A partition is planned on the driver and read on an executor, which may have another directory under the same path: a
disk that is not mounted, a mount of another store, a copy that is behind. Each piece of a partition therefore carries
the CRC of the bytes at its beginning and at its end, which hold times, offsets and CRCs of records and never change.
An executor compares them before it reads. A difference is an error whatever failOnDataLoss says.

A log may lie in several directories. One that has no file here, though the query was planned on a file in it, is an
error: its disk is not mounted here. Else a missing file is retention only where the log begins behind it and still ends
as it was planned: retention deletes files from the front, and never the last one. Everything else (no directory, an
empty one, a hole) is an error.
"""

from __future__ import annotations

import socket
from typing import NamedTuple
from zlib import crc32

from gantrymq.errors import StoreError
from gantrymq.format.names import offset_name
from gantrymq.spark.locations import Location, log_files
from gantrymq.spark.log_file import LogFile, NotThereError

MARK_BYTES = 64  # the fixed part of a record: sizes, CRC, offsets and times


class OtherLogError(StoreError):
    """What lies under the path is not the log that the query was planned on."""


class LogMark(NamedTuple):
    """``size`` bytes of a log file, from ``at`` in the file on, have the CRC ``crc``; picklable."""

    at: int
    size: int
    crc: int

    @classmethod
    def read(cls, file: LogFile, at: int, size: int) -> LogMark:
        """The mark of what is there now; raises StoreError."""
        return cls(at, size, _crc(file, at, size))

    def require(self, file: LogFile) -> None:
        """Raise OtherLogError where the file holds other bytes; StoreError where it cannot be read."""
        if _crc(file, self.at, self.size) != self.crc:
            raise OtherLogError(
                file.path,
                f"on host {socket.gethostname()} is not the file that the query was planned on: its bytes at {self.at} "
                "differ; check that this host mounts the driver's store there, then run the query again",
            )


class LogEnd(NamedTuple):
    """The last bytes of a log as it was planned on."""

    base: int
    mark: LogMark


def _crc(file: LogFile, at: int, size: int) -> int:
    data = bytearray(size)
    file.read_into(memoryview(data), at)
    return crc32(data)


def require_retention(error: NotThereError, planned: Location, base: int, end: LogEnd | None) -> None:
    """Return where retention has deleted the file ``planned``, which begins at ``base``; else raise StoreError.

    ``end`` is where the log ended when the query was planned; without it any later first file counts.
    """
    log, host = planned.parent, socket.gethostname()
    directory = Location(planned.path.rpartition("/")[0])
    if len(log.logs) > 1 and not log_files(directory):  # one of several disks, whatever the others hold
        raise StoreError(
            str(directory),
            f"on host {host} is missing or has no log file, but the query was planned on {offset_name(base)} in it; "
            "mount that disk of the log there, then run the query again",
        ) from error
    files = log_files(log)
    if not files:
        raise StoreError(
            str(log),
            f"on host {host} is missing or has no log file, but the query was planned on {offset_name(base)}; "
            "mount the store there, then run the query again",
        ) from error
    if files[0] <= base:
        raise StoreError(
            str(log / offset_name(base)),
            f"is missing on host {host} though {offset_name(files[0])} in front of it is there, so that retention did "
            "not delete it; compare this directory with the driver's, then run the query again",
        ) from error
    if end is not None:
        try:
            with LogFile(log / offset_name(end.base)) as file:
                end.mark.require(file)
        except NotThereError:
            raise OtherLogError(
                str(log),
                f"on host {host} has neither {offset_name(base)} nor {offset_name(end.base)}, the last file of the log "
                "that the query was planned on; mount that store there, then run the query again",
            ) from error
