"""A slave's copy of its master's log: connect, compare the ends, append what is checked, acknowledge it.

The slave asks for the end of its log, or a bit before, and compares that part first (``ha/held_tail.py``). A fresh one
asks as a mirror does, so that it gets the whole history from RocketMQ's master, too; a master without a log is asked
for offset 0.

A request counts as an acknowledgement at the master. The slave therefore follows its request by a report of offset 0,
until the ends are compared; a SYNC_MASTER of RocketMQ, which would take that for the request, is asked when no put
that it had before can wait any more.

What is acknowledged is appended, or with haAckDurable on the disk. If an append fails, nothing more is acknowledged
and nothing more is read from the master; the same bytes are tried again each second. The reports go on with the last
acknowledged offset, so that the master keeps the connection.

======================  ===========================================================================================
state                   what the slave does
======================  ===========================================================================================
no master               waits for the name server to know one
connecting              asks the master how its log begins and ends
copying, in sync        copies; in sync has everything that the master had when it was asked last
disconnected            connects again
bad frame, …            the other states of a fault: connects again after 5 s
disk full, append …     tries the append again
behind retention        shows it; the store must be copied again
ahead, diverged         shows it; what the master does not have must be cut (``ha/divergence.py``)
other file size         shows it; the store must be made again with the master's mappedFileSizeCommitLog
======================  ===========================================================================================

Source: DefaultHAClient.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gantrymq.clock import Clock
from gantrymq.errors import DiskFullError, GantrymqError, HAFrameError, LogCopyError, StoreError
from gantrymq.ha.copy import CheckedLogCopy, CopyState
from gantrymq.ha.frames import LogFrame
from gantrymq.ha.held_tail import HeldTail, Master, append_into
from gantrymq.ha.master_link import RECONNECT_S, Connect, MasterLink
from gantrymq.logs import get_logger
from gantrymq.store.message_store import MessageStore

REMEDY = "see `gantrymq store diverged`"
_RECEIVE_S, _FLUSH_LOOK_S = 0.25, 0.005
_AGAIN_S = 1.0  # after a lost connection, and between tries of a failed append
_ASK_S = 5.0  # how often the master is asked for its extent
_SECOND_S = 1.0

log = get_logger("gantrymq.ha")


class MasterLookup(Protocol):
    """Finds the master for a slave. ``find`` and ``extent`` raise GantrymqError or OSError if it does not answer."""

    def find(self) -> Master | None:
        """Return the master as it is now; None if no name server knows one."""
        ...

    def extent(self) -> tuple[int, int] | None:
        """Return the first offset of its log and the offset after its last byte; None if they are not known."""
        ...

    def has_moved(self, master: Master) -> bool:
        """Whether another HA address is the master's now."""
        ...


@dataclass(frozen=True, slots=True)
class SlaveCopyView:
    """A slave's copy at one moment.

    ``master`` is ``host:port`` of the HA port, empty before the first one. ``reason`` explains a state that is no
    progress. ``master_max_offset`` is what the master said last, also when it is gone. ``record_bytes`` is the average
    size of a record, 0 if it is not known. Times are those of the wall clock in ms, 0 before the first.
    """

    state: CopyState
    reason: str
    master: str
    max_offset: int
    acked_offset: int
    master_max_offset: int
    read_ms: int
    reported_ms: int
    bytes_per_second: int
    record_bytes: int

    @property
    def lag_bytes(self) -> int:
        """The bytes of the master's log that are not here, as far as it is known."""
        return max(self.master_max_offset - self.max_offset, 0)


class LogSlave:
    """Copies a master's log into ``store``. A service: each step waits for the master a moment, or does nothing.

    ``on_divergence(master)`` is called each time that the log is found ahead or diverged.

    Thread rule: one runner steps. Any thread may call ``view``.
    """

    name = "HAClient"
    interval_ms = 100

    def __init__(
        self,
        store: MessageStore,
        lookup: MasterLookup,
        clock: Clock,
        connect: Connect = socket.create_connection,
        on_divergence: Callable[[Master], None] = lambda master: None,
    ) -> None:
        self._store, self._lookup, self._clock, self._connect = store, lookup, clock, connect
        self._on_divergence = on_divergence
        self._state, self._reason = CopyState.CONNECTING, ""
        self._link: MasterLink | None = None
        self._copy: CheckedLogCopy | None = None
        self._tail: HeldTail | None = None
        self._master: Master | None = None
        self._is_prepared = False
        self._frames: deque[LogFrame] = deque()
        self._is_stalled = False
        self._request = self._acked = self._received = 0
        self._next_s = self._asked_s = self._measured_s = 0.0
        self._read_ms = self._reported_ms = self._bytes_per_second = 0
        self._master_end = self._record_bytes = 0
        self._told: tuple[CopyState, str] | None = None

    def view(self) -> SlaveCopyView:
        """The copy now. Thread rule: any thread."""
        master, end = self._master, self._store.max_phy_offset
        return SlaveCopyView(
            self._state,
            self._reason,
            _text(master.ha_address) if master is not None else "",
            end,
            self._acked,
            self._master_end,
            self._read_ms,
            self._reported_ms,
            self._bytes_per_second,
            self._record_bytes,
        )

    # The service

    def step(self, now_ms: int) -> bool:
        """Connect, or receive what comes within a moment. Returns False if the next try is later."""
        if self._clock.monotonic_s() < self._next_s:
            return False
        try:
            if self._link is None and not self._is_prepared:
                self._prepare()
            if self._link is None:
                self._open()
            elif self._is_stalled:
                self._try_again(self._link)
            else:
                self._receive(self._link)
        except LogCopyError as error:
            self._leave(CopyState(error.state), error.reason, RECONNECT_S)
        except HAFrameError as error:
            self._leave(CopyState.BAD_FRAME, str(error), RECONNECT_S)
        except (GantrymqError, OSError) as error:
            self._leave(CopyState.DISCONNECTED, str(error) or type(error).__name__, _AGAIN_S)
        return self._link is not None and not self._is_stalled and self._clock.monotonic_s() >= self._next_s

    def drain(self) -> None:
        """Close the connection."""
        if self._link is not None:
            self._link.close()
            self._link = None

    # A connection

    def _prepare(self) -> None:
        """Find the master, and decide what to ask it for."""
        store = self._store
        self._master = master = self._lookup.find()
        self._asked_s = self._clock.monotonic_s()
        if master is None:
            self._leave(CopyState.NO_MASTER, "no name server knows a master of this broker", _AGAIN_S)
            return
        self._note_end(master)
        size = store.commit_log.file_size
        if master.file_size != size:
            raise LogCopyError(
                CopyState.OTHER_FILE_SIZE,
                f"the log has files of {size} bytes, the master's of {master.file_size}: set mappedFileSizeCommitLog="
                f"{master.file_size}, and begin with an empty directory",
            )
        try:
            self._tail = tail = HeldTail(store, master, REMEDY)
        except LogCopyError as error:
            self._note_divergence(error, master)
            raise
        is_fresh = store.commit_log.min_offset < 0
        self._request = 0 if is_fresh and master.max_offset <= 0 else max(tail.begin, 1)
        self._copy = None
        if self._request:
            self._copy = CheckedLogCopy(append_into(store), size, tail.end, b"" if tail.end else b"\0")
        self._is_stalled, self._is_prepared = False, True
        if tail.begin < tail.end and master.ack_timeout_s:
            self._next_s = self._asked_s + master.ack_timeout_s
        if self._state not in (CopyState.COPYING, CopyState.IN_SYNC):
            self._set(CopyState.CONNECTING)

    def _open(self) -> None:
        master, tail = self._master, self._tail
        if not self._is_prepared or master is None or tail is None or self._clock.monotonic_s() < self._next_s:
            return
        self._is_prepared = False
        is_silent = master.reads_each_report and tail.begin < tail.end
        self._acked = 0 if is_silent else self._request
        self._frames.clear()
        self._link = MasterLink(
            master.ha_address, self._request, clock=self._clock, is_silent=is_silent, connect=self._connect
        )
        self._reported_ms = self._clock.now_ms()

    def _receive(self, link: MasterLink) -> None:
        received_bytes = link.received_bytes
        frames = link.receive(_FLUSH_LOOK_S if self._is_flush_awaited else _RECEIVE_S)
        self._received += link.received_bytes - received_bytes
        self._measure()
        if frames:
            self._read_ms = self._clock.now_ms()
        self._frames += frames
        self._take()
        if self._copy is not None and self._copy.records:
            self._master_end = max(self._master_end, self._copy.end_offset)
            self._record_bytes = self._copy.record_bytes
        self._report(link)
        self._look_at_master(is_idle=not any(frame.body for frame in frames))

    def _take(self) -> None:
        """Append what has come. A failed append keeps the rest for the next try."""
        tail, master = self._tail, self._master
        assert tail is not None, "a connection has one"
        assert master is not None, "a connection has one"
        try:
            while self._frames:
                frame = self._frames.popleft()
                body = tail.compare(frame)
                if not tail.is_compared:
                    continue
                if self._copy is None and frame.body:
                    self._copy = self._copy_from(frame.offset)
                if self._copy is not None:
                    self._copy.receive(frame.end_offset - len(body), body)
        except StoreError as error:
            self._stall(error)
        except LogCopyError as error:
            self._note_divergence(error, master)
            raise

    def _copy_from(self, offset: int) -> CheckedLogCopy:
        """The copy of an empty store, from where the master begins."""
        size = self._store.commit_log.file_size
        if offset % size:
            raise LogCopyError(CopyState.WRONG_OFFSET, f"the master began at offset {offset}, within a file")
        if offset:
            log.warning("the history is not whole: the master did not send what is before", offset=offset)
        return CheckedLogCopy(append_into(self._store), size, offset)

    def _try_again(self, link: MasterLink) -> None:
        copy = self._copy
        assert copy is not None, "what was appended was copied"
        self._is_stalled = False
        try:
            copy.receive(copy.received_offset, b"")
        except StoreError as error:
            self._stall(error)
        else:
            self._set(CopyState.COPYING)
            self._take()
        self._report(link)

    def _stall(self, error: StoreError) -> None:
        is_full = isinstance(error, DiskFullError)
        self._is_stalled = True
        self._next_s = self._clock.monotonic_s() + _AGAIN_S
        self._set(CopyState.DISK_FULL if is_full else CopyState.APPEND_FAILED, str(error))

    # Reports

    @property
    def _is_flush_awaited(self) -> bool:
        return self._store.config.ha_ack_durable and self._copy is not None and self._acked < self._copy.end_offset

    def _report(self, link: MasterLink) -> None:
        copy, tail = self._copy, self._tail
        reached = self._acked
        if copy is not None and tail is not None and tail.is_compared:
            reached = copy.end_offset
            if self._store.config.ha_ack_durable:
                self._store.flush_soon(reached)
                reached = min(reached, self._store.flushed_offset)
        if reached > self._acked:
            self._acked = reached
            link.report(reached)
            self._reported_ms = self._clock.now_ms()
        else:
            link.report_again(self._acked)

    def _look_at_master(self, *, is_idle: bool) -> None:
        """Ask for the master's extent now and then, and name a copy that retention has left behind."""
        master, copy = self._master, self._copy
        assert master is not None, "a connection has one"
        if self._clock.monotonic_s() - self._asked_s >= _ASK_S:
            self._asked_s = self._clock.monotonic_s()
            if self._lookup.has_moved(master):
                raise ConnectionError("the name server knows another master now")
            try:
                extent = self._lookup.extent()
            except (GantrymqError, OSError):  # a master that is gone closes the connection, too
                extent = None
            if extent is not None:
                self._master = master = master._replace(min_offset=extent[0], max_offset=extent[1])
                self._note_end(master)
            if is_idle and self._tail is not None and not self._tail.is_compared:
                raise ConnectionError("the master does not send the end of this log: it may have deleted that part")
            if is_idle and copy is not None and master.min_offset > copy.received_offset:
                raise LogCopyError(
                    CopyState.BEHIND_RETENTION,
                    f"the copy ends at offset {copy.received_offset}, and the master's log begins at "
                    f"{master.min_offset}: begin with an empty directory",
                )
        if self._is_stalled or self._tail is None or not self._tail.is_compared:
            return
        end = copy.received_offset if copy is not None else 0
        self._set(CopyState.IN_SYNC if end >= master.max_offset else CopyState.COPYING)

    # State

    def _note_end(self, master: Master) -> None:
        if master.max_offset >= 0:
            self._master_end = master.max_offset

    def _note_divergence(self, error: LogCopyError, master: Master) -> None:
        if error.state in (CopyState.AHEAD, CopyState.DIVERGED):
            self._on_divergence(master)

    def _measure(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._measured_s >= _SECOND_S:
            self._bytes_per_second = round(self._received / (now_s - self._measured_s))
            self._received, self._measured_s = 0, now_s

    def _leave(self, state: CopyState, reason: str, wait_s: float) -> None:
        """End the connection; the next one is later."""
        self.drain()
        self._is_prepared = False
        self._is_stalled, self._bytes_per_second = False, 0
        self._next_s = self._clock.monotonic_s() + wait_s
        self._set(state, reason)

    def _set(self, state: CopyState, reason: str = "") -> None:
        """Set the state. One line is logged for each fault, and one for its end."""
        self._state, self._reason = state, reason
        if reason and self._told != (state, reason):
            log.warning("the copy of the master's log stands still", state=str(state), reason=reason)
            self._told = state, reason
        elif self._told is not None and state in (CopyState.COPYING, CopyState.IN_SYNC):
            log.warning("the copy of the master's log goes on", offset=self._store.max_phy_offset)
            self._told = None


def _text(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
