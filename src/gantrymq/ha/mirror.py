"""A mirror: a copy of a broker's log that is no slave. It follows the master, and acknowledges nothing.

History. A Java master that is asked for offset 0 sends its last file only, and for any other offset exactly that one. A
mirror of a log that begins at 0 therefore asks for offset 1. The byte before is the first one of a record's size, which
is 0 in every record below 16 MiB; the record's parts must add up to its size, so a wrong guess fails the check.

Identity. A mirror that holds something asks for its last bytes again (``ha/held_tail.py``).

No vote. A Java master counts a connection as a slave that has everything up to its last report, and the request is a
report. A put waits for an acknowledgement no longer than slaveTimeout. The mirror asks for the end of its log only when
the master has had a log of that length for so long, and after the master has begun to send, it reports offset 0.

Source: DefaultHAConnection, GroupTransferService.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from gantrymq.clock import Clock
from gantrymq.errors import GantrymqError, HAFrameError, LogCopyError, StoreError
from gantrymq.ha.copy import CheckedLogCopy, CopyState
from gantrymq.ha.frames import LogFrame
from gantrymq.ha.held_tail import HeldTail, Master, append_into, behind
from gantrymq.ha.master_link import RECEIVE_BYTES, RECONNECT_S, Connect, MasterLink
from gantrymq.store.lookup import ReadingStore
from gantrymq.store.message_store import MessageStore

_POLL_S = 0.25
_ASK_COPYING_S, _ASK_IN_SYNC_S = 2.0, 10.0  # how often the master is asked for its end
_VOTE_MARGIN_S = 0.5
_EMPTY_S = 1.0  # between looks at a master that has no log yet
_LEAST_RECEIVED_BYTES = 4096
_NOTHING = 0  # what a mirror acknowledges
_TRIED_AGAIN = (CopyState.BAD_FRAME, CopyState.WRONG_OFFSET, CopyState.BAD_RECORD)


class MasterSource(Protocol):
    """Finds the master. Both methods raise GantrymqError or OSError if it does not answer."""

    def find(self) -> Master:
        """Return the master as it is now."""
        ...

    def extent(self) -> tuple[int, int]:
        """Return the first offset of its log and the offset after its last byte."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a mirror is. ``reason`` explains a state that is not ``copying`` or ``in sync``; "" without one.

    ``records`` and ``copied_bytes`` count what this run has copied. ``newest_ms`` is the store time of its newest
    record, 0 before the first.
    """

    state: CopyState
    reason: str
    min_offset: int
    max_offset: int
    master_min_offset: int
    master_max_offset: int
    records: int
    copied_bytes: int
    newest_ms: int

    @property
    def lag_bytes(self) -> int:
        """The bytes of the master's log that are not here."""
        return max(self.master_max_offset - self.max_offset, 0)

    @property
    def is_whole(self) -> bool:
        """Whether everything that the master still has from before is here."""
        return self.min_offset <= self.master_min_offset


class Mirror:
    """Copies from the master that ``source`` finds, until ``stopped()``.

    ``tell`` gets the progress after each change of the state, and at least each 0.25 s. ``rate`` limits the received
    bytes a second; 0 does not.

    Thread rule: one thread.
    """

    def __init__(
        self,
        source: MasterSource,
        *,
        clock: Clock,
        stopped: Callable[[], bool],
        tell: Callable[[Progress], None],
        sleep: Callable[[float], None],
        rate: int = 0,
        connect: Connect = socket.create_connection,
    ) -> None:
        self._source, self._clock, self._stopped, self._tell, self._sleep = source, clock, stopped, tell, sleep
        self._rate, self._connect = rate, connect
        self._state, self._reason = CopyState.CONNECTING, ""
        self._copied_bytes = self._records = self._newest_ms = 0
        self._master: Master | None = None
        self._asked_s = 0.0
        self._last_fault: tuple[CopyState, int] | None = None

    def check(self, held: ReadingStore | None, file_size: int) -> None:
        """Raise LogCopyError if ``held``, what the directory has, is not the begin of the master's log.

        Changes nothing. ``file_size`` is that of the log files of ``held``.
        """
        master = self._find()
        if held is None or held.min_phy_offset < 0:
            return
        if file_size != master.file_size:
            raise LogCopyError(
                CopyState.OTHER_FILE_SIZE,
                f"the log has files of {file_size} bytes, the master's of {master.file_size}; use another directory",
            )
        tail = HeldTail(held, master)
        if tail.begin == tail.end or not self._wait_for_votes(master):
            return
        with self._link(master, tail.begin) as link:
            while not tail.is_compared and not self._stopped():
                for frame in link.receive(_POLL_S):
                    tail.compare(frame)

    def run(self, store: MessageStore, *, once: bool) -> Progress:
        """Copy into ``store``; with ``once`` up to the end that the master has at the start. Returns the last progress.

        A lost connection, and a master that does not answer, are tried again for ever, with ``once`` a single time
        without progress. Raises LogCopyError when another try is of no use, and the errors of the store.
        """
        goal = self._find().max_offset if once else None
        while not self._stopped():
            try:
                if self._copy(store, goal):
                    break
            except StoreError:
                raise
            except (GantrymqError, OSError) as error:
                self._fail(store, error, is_once=once)
        return self._progress(store)

    def _fail(self, store: MessageStore, error: GantrymqError | OSError, *, is_once: bool) -> None:
        """Raise an error that a new connection has brought again, or cannot cure; else wait before that connection."""
        state = CopyState.BAD_FRAME if isinstance(error, HAFrameError) else CopyState.DISCONNECTED
        state = CopyState(error.state) if isinstance(error, LogCopyError) else state
        fault, is_lost = (state, store.max_phy_offset), state is CopyState.DISCONNECTED
        if not is_lost and state not in _TRIED_AGAIN:
            raise error
        if fault == self._last_fault and (is_once or not is_lost):
            raise error
        self._last_fault = fault
        self._set(store, state, str(error))
        self._rest(RECONNECT_S)

    # One connection

    def _copy(self, store: MessageStore, goal: int | None) -> bool:
        """Copy over one connection. Returns True when ``goal`` is reached, or on a stop."""
        master = self._find()
        tail = HeldTail(store, master)
        if not master.max_offset:
            self._set(store, CopyState.MASTER_EMPTY)
            self._rest(_EMPTY_S)
            return goal is not None
        copy = CheckedLogCopy(append_into(store), master.file_size, tail.end, b"" if tail.end else b"\0")
        if goal is not None and copy.end_offset >= goal:
            self._set(store, CopyState.IN_SYNC)
            return True
        if tail.begin < tail.end and not self._wait_for_votes(master):
            return True
        with self._link(master, max(tail.begin, 1)) as link:
            return self._follow(store, link, copy, tail, goal)

    def _follow(
        self, store: MessageStore, link: MasterLink, copy: CheckedLogCopy, tail: HeldTail, goal: int | None
    ) -> bool:
        most_bytes = min(max(self._rate // 4, _LEAST_RECEIVED_BYTES), RECEIVE_BYTES) if self._rate else RECEIVE_BYTES
        has_begun = False
        while not self._stopped():
            received_bytes = link.received_bytes
            frames = link.receive(_POLL_S, most_bytes)
            received_bytes = link.received_bytes - received_bytes
            self._take(frames, copy, tail)
            if frames and not has_begun:  # the master has read the request; a later report is no request
                has_begun = True
                link.report(_NOTHING)
            link.report_again(_NOTHING if has_begun else max(tail.begin, 1))
            for name, error in store.failures:
                raise error if isinstance(error, StoreError) else StoreError(store.path, f"{name}: {error}")
            self._look_at_master(store, copy, is_idle=not any(frame.body for frame in frames))
            if goal is not None and copy.end_offset >= goal:
                return True
            if self._rate and received_bytes:
                self._sleep(received_bytes / self._rate)
        return True

    def _take(self, frames: list[LogFrame], copy: CheckedLogCopy, tail: HeldTail) -> None:
        records = copy.records
        try:
            for frame in frames:
                body = tail.compare(frame)
                if tail.is_compared:
                    copy.receive(frame.end_offset - len(body), body)
                    self._copied_bytes += len(body)
        finally:
            self._records += copy.records - records
            self._newest_ms = copy.newest_ms or self._newest_ms

    def _look_at_master(self, store: MessageStore, copy: CheckedLogCopy, *, is_idle: bool) -> None:
        """Ask for the master's end now and then, and name a copy that retention has left behind."""
        master = self._master
        assert master is not None, "a connection has one"
        every_s = _ASK_IN_SYNC_S if self._state is CopyState.IN_SYNC and is_idle else _ASK_COPYING_S
        if self._clock.monotonic_s() - self._asked_s >= every_s:
            self._asked_s = self._clock.monotonic_s()
            with suppress(GantrymqError, OSError):  # a master that is gone closes the connection, too
                first, end = self._source.extent()
                self._master = master = master._replace(min_offset=first, max_offset=end)
            if is_idle and master.min_offset > copy.received_offset:
                raise behind(copy.received_offset, master.min_offset)
        if copy.received_offset < master.max_offset:
            self._set(store, CopyState.COPYING)
        else:
            self._last_fault = None
            self._set(store, CopyState.IN_SYNC)

    def _link(self, master: Master, offset: int) -> MasterLink:
        try:
            return MasterLink(master.ha_address, offset, clock=self._clock, connect=self._connect)
        except OSError as error:
            host, port = master.ha_address
            raise ConnectionError(f"cannot connect to the master's HA port {host}:{port}: {error}") from error

    def _wait_for_votes(self, master: Master) -> bool:
        """Wait until no put waits at the master that was there when it was found. Returns False on a stop."""
        if master.ack_timeout_s:
            self._rest(self._asked_s + master.ack_timeout_s + _VOTE_MARGIN_S - self._clock.monotonic_s())
        return not self._stopped()

    # State

    def _find(self) -> Master:
        self._master = self._source.find()
        self._asked_s = self._clock.monotonic_s()
        return self._master

    def _rest(self, seconds: float) -> None:
        until_s = self._clock.monotonic_s() + seconds
        while not self._stopped() and (left_s := until_s - self._clock.monotonic_s()) > 0:
            self._sleep(min(left_s, _POLL_S))

    def _set(self, store: MessageStore, state: CopyState, reason: str = "") -> None:
        self._state, self._reason = state, reason
        self._tell(self._progress(store))

    def _progress(self, store: MessageStore) -> Progress:
        master = self._master
        return Progress(
            self._state,
            self._reason,
            store.min_phy_offset,
            store.max_phy_offset,
            master.min_offset if master else 0,
            max(master.max_offset if master else 0, store.max_phy_offset),
            self._records,
            self._copied_bytes,
            self._newest_ms,
        )
