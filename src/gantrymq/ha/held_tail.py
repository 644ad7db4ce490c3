"""The end of a copy of a master's log, which the master must have, too, before the copy goes on.

A copy that holds something asks for its last bytes again, as a rule from its last message on. If they differ, the log
is another one, or the master has lost its end and has written other messages since. RocketMQ's slave asks for what
follows its end, and appends it to whatever it has.

Thread rule: one thread.
"""

from __future__ import annotations

from typing import NamedTuple

from gantrymq.errors import LogCopyError, StoreError
from gantrymq.fs.api import Bytes
from gantrymq.ha.copy import Append, CopyState
from gantrymq.ha.frames import LogFrame
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.lookup import ReadingStore
from gantrymq.store.message_store import MessageStore

UNKNOWN = -1
ELSEWHERE = "copy into another directory"
_OVERLAP_BYTES, _MOST_OVERLAP_BYTES = 4096, 8 << 20  # a file may end with 4 MiB of zeros, which identify no log


class Master(NamedTuple):
    """A master: its HA address, the size of its log files, the extent of its log, and how long its puts wait for acks.

    ``min_offset`` is 0 and not -1 without a log. An extent that is not known is ``UNKNOWN`` to ``UNKNOWN``. A master
    that ``reads_each_report`` is one of ours; RocketMQ's takes the last of those that come together.
    """

    ha_address: tuple[str, int]
    file_size: int
    min_offset: int
    max_offset: int
    ack_timeout_s: float
    reads_each_report: bool = False


class HeldTail:
    """The last bytes of a log, which the master must have, too: from ``begin`` to ``end``.

    Without a log both are where the master's begins. The constructor raises LogCopyError if the master's log does not
    reach so far, or begins later. ``remedy`` is what its text advises.
    """

    def __init__(self, held: ReadingStore, master: Master, remedy: str = ELSEWHERE) -> None:
        log = held.lookup.log
        self._log: CommitLog = log
        self._remedy = remedy
        self.end = log.max_offset if log.min_offset >= 0 else max(master.min_offset, 0)
        if master.min_offset > self.end:
            raise behind(self.end, master.min_offset)
        if log.min_offset >= 0 and master.min_offset == self.end:
            raise LogCopyError(
                CopyState.BEHIND_RETENTION,
                f"the copy ends at offset {self.end}, where the master's log begins: nothing shows that it is the same "
                f"log; {ELSEWHERE}",
            )
        if UNKNOWN < master.max_offset < self.end:
            raise LogCopyError(
                CopyState.AHEAD,
                f"the copy ends at offset {self.end} and the master's log at {master.max_offset}: the master has lost "
                f"its end, or is another one; {remedy}",
            )
        last, wanted = held.lookup.queues.last_phy_offset, self.end - _OVERLAP_BYTES
        wanted = last if wanted - _MOST_OVERLAP_BYTES < last < wanted else wanted
        self.begin = min(max(wanted, log.min_offset, master.min_offset, int(self.end > 0)), self.end)
        self._at = self.begin

    @property
    def is_compared(self) -> bool:
        """Whether all of it was compared."""
        return self._at >= self.end

    def compare(self, frame: LogFrame) -> bytes:
        """Compare what a frame has of it, and return the rest of the frame's bytes. Raises LogCopyError."""
        if self.is_compared:
            return frame.body
        if frame.offset != self._at:
            raise LogCopyError(CopyState.WRONG_OFFSET, f"the master sent offset {frame.offset}, not {self._at}")
        known, at = frame.body[: self.end - self._at], 0
        while at < len(known):
            in_file = self._log.roll_next_file(self._at) - self._at
            part = known[at : at + in_file]
            held = self._log.get_message(self._at, len(part))
            if held is None:
                raise LogCopyError(CopyState.DIVERGED, f"the log at offset {self._at} was removed meanwhile")
            with held:
                if held.array.tobytes() != part:
                    raise LogCopyError(
                        CopyState.DIVERGED,
                        f"the master has other bytes between {self._at} and {self.end}: it is another broker, or it "
                        f"has lost its end and continued; {self._remedy}",
                    )
            self._at, at = self._at + len(part), at + len(part)
        return frame.body[len(known) :]


def append_into(store: MessageStore) -> Append:
    """The store's append, whose errors of the operating system are errors of the store, not of the connection."""

    def append(data: Bytes, phy_offset: int, store_timestamp_ms: int) -> None:
        try:
            store.append_copied(data, phy_offset, store_timestamp_ms)
        except OSError as error:
            raise StoreError(store.path, f"cannot append to the log: {error}") from error

    return append


def behind(end_offset: int, first: int) -> LogCopyError:
    """The error of a copy that ends at ``end_offset``, before the ``first`` offset that its master still has."""
    return LogCopyError(
        CopyState.BEHIND_RETENTION,
        f"the copy ends at offset {end_offset} and the master's log begins at {first}: it would have a gap; "
        + ELSEWHERE,
    )
