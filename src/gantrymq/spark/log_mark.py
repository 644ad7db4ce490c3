"""Fingerprints of a commit log, which show whether an executor sees the log that the driver planned on.

A partition is planned on the driver and read on an executor, which may have another directory under the same path: a
disk that is not mounted, a mount of another store, a copy that is behind. Each piece of a partition therefore carries
the CRC of the bytes at its beginning and at its end. These bytes hold times, offsets and CRCs of records and never
change. An executor compares them before it reads. A difference is an error regardless of failOnDataLoss.

A log may lie in several directories. If a directory has no log file although the query was planned on one in it, the
disk is not mounted, which is an error. Otherwise a missing file is explained by retention only if the log begins after
it and still has its planned end: retention deletes files from the front, and never the last one. Everything else (no
directory, an empty one, a hole) is an error.
"""

from __future__ import annotations

import socket
from typing import NamedTuple
from zlib import crc32

from gantrymq.errors import StoreError
from gantrymq.format.names import offset_name
from gantrymq.spark.locations import Location, log_files
from gantrymq.spark.log_file import LogFile, NotThereError

MARK_BYTES = 64  # bytes: the fixed part of a record, with sizes, CRC, offsets and times


class OtherLogError(StoreError):
    """The directory holds another log than the one that the query was planned on."""


class LogMark(NamedTuple):
    """The CRC of ``size`` bytes at position ``at`` of a log file; picklable."""

    at: int
    size: int
    crc: int

    @classmethod
    def read(cls, file: LogFile, at: int, size: int) -> LogMark:
        """The mark of the current bytes. Raises StoreError."""
        return cls(at, size, _crc(file, at, size))

    def require(self, file: LogFile) -> None:
        """Raise OtherLogError if the file has other bytes there, StoreError if it cannot be read."""
        if _crc(file, self.at, self.size) != self.crc:
            raise OtherLogError(
                file.path,
                f"on host {socket.gethostname()} is not the file that the query was planned on: its bytes at {self.at} "
                "differ; check that this host mounts the driver's store there, then run the query again",
            )


class LogEnd(NamedTuple):
    """The last bytes of the log when it was planned on."""

    base: int
    mark: LogMark


def _crc(file: LogFile, at: int, size: int) -> int:
    data = bytearray(size)
    file.read_into(memoryview(data), at)
    return crc32(data)


def require_retention(error: NotThereError, planned: Location, base: int, end: LogEnd | None) -> None:
    """Return if retention has deleted the file ``planned``, which begins at ``base``; otherwise raise StoreError.

    ``end`` is the end of the log when the query was planned. Without it, any log that begins after ``base`` is
    accepted.
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
