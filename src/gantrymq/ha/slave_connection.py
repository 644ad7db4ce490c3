"""The master's end of the connection to one slave: sends the log, and reads what the slave has.

Bytes go from the mapped files to the socket by one call for several frames, without a copy. The kernel may have to
read them from the disk first, which would block all other slaves and clients; what is far from the log's end is
therefore read in another thread first. A file is held only while its bytes are read or sent.

Source: DefaultHAConnection.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import DiskError, HAFrameError
from gantrymq.ha.frames import ReportReader, encode_header
from gantrymq.ha.login import Credentials
from gantrymq.ha.slave_state import SlaveState, SlaveView
from gantrymq.logs import get_logger
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.mapped_file import MappedFile

_A_CALL_BYTES = 512 << 10
_A_CALL_FRAMES = 128  # two buffers each; the kernel takes 1,024
_HOT_BYTES = 64 << 20  # this far from the end the log is still in memory
_READ_BYTES = 4096
_LARGEST_OFFSET = 1 << 56  # a larger one is text or a TLS handshake
_POLL_S = 0.002  # for a write buffer that is not committed yet
_UNREADABLE = (errno.EFAULT, errno.EIO)  # of mapped bytes whose disk fails, or whose file was cut

log = get_logger("gantrymq.ha")


class _Part(NamedTuple):
    """A frame, or the rest of one, in a call: its header, how much of the body is left, and how much is in the call."""

    header: bytes
    left: int
    attached: int


class SlaveConnection:
    """One slave. ``log`` is the master's; ``changed`` is called after each report, ``ended`` when it is closed.

    Thread rule: the event loop's thread. Any thread may read ``address``, ``needed_from`` and ``retention_waits``.
    """

    def __init__(
        self,
        connected: socket.socket,
        address: tuple[str, int],
        log: CommitLog,
        config: Callable[[], MessageStoreConfig],
        now_s: Callable[[], float],
        *,
        changed: Callable[[SlaveConnection], None],
        ended: Callable[[SlaveConnection], None],
    ) -> None:
        self.host, self.address = address[0], f"{address[0]}:{address[1]}"
        self.state, self.reason = SlaveState.CONNECTED, ""  # the error that made the log unreadable
        self._socket, self._log, self._config, self._now_s = connected, log, config, now_s
        self._changed, self._ended = changed, ended
        self._loop = asyncio.get_running_loop()
        self._reports = ReportReader()
        self._request_offset = self._reported = self._begin = self._position = -1
        self._header, self._left = b"", 0  # of the frame that is being sent
        self._read_s = self._wrote_s = self._asked_s = now_s()
        self._sent_bytes, self._measured_s, self.bytes_per_second = 0, now_s(), 0
        self._wake: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self.user: Credentials | None = None  # with which it has logged in

    def start(self, received: bytes = b"") -> None:
        """Read reports, and send once the first one has come. ``received`` is what was read of it already."""
        self._socket.setblocking(False)
        with suppress(OSError):  # the socket of a relay has no TCP
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop.add_reader(self._socket, self._readable)
        self._task = self._loop.create_task(self._send_all())
        if received:
            self._take(received)

    # State

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""
        return self._socket.fileno() >= 0

    @property
    def is_copying(self) -> bool:
        """Whether the slave has asked for the log and gets it."""
        return self._position >= 0 and self.is_open

    @property
    def acknowledges(self) -> bool:
        """Whether it copies, and reports what it has. A mirror does not: it reports less than it has asked for."""
        return self.is_copying and self._reported >= self._request_offset

    @property
    def retention_waits(self) -> bool:
        """Whether files that it needs are kept: it acknowledges, or asked a short time ago and may be about to.

        A slave that connects again compares the end of its log first, and reports nothing meanwhile.
        """
        if self.acknowledges or not self.is_copying:
            return self.is_copying
        return (self._now_s() - self._asked_s) * 1000 <= self._config().ha_housekeeping_interval_ms

    @property
    def acked_offset(self) -> int:
        """What the slave has: its last report, but no more than was sent to it; -1 before its request."""
        return min(self._reported, self._position)

    @property
    def needed_from(self) -> int:
        """The first offset that the slave still needs."""
        return max(self.acked_offset, self._begin)

    def view(self, *, is_voter: bool) -> SlaveView:
        """The slave now."""
        return SlaveView(
            self.address, self._state_now(), self._reported, self._position, self.bytes_per_second, is_voter
        )

    def _state_now(self) -> SlaveState:
        if not self.is_copying:
            return self.state
        behind = self._log.max_offset - self.acked_offset
        is_near = behind < self._config().ha_max_gap_not_in_sync_bytes
        return SlaveState.IN_SYNC if is_near else SlaveState.CATCHING_UP

    # Events

    def wake(self) -> None:
        """Look again for something to send."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def tick(self, now_s: float) -> None:
        """Close a silent slave, and let an idle one get a heartbeat."""
        config = self._config()
        if (now_s - self._read_s) * 1000 > config.ha_housekeeping_interval_ms:
            self.close(SlaveState.SILENT)
            return
        if now_s - self._measured_s >= 1:
            self.bytes_per_second = round(self._sent_bytes / (now_s - self._measured_s))
            self._sent_bytes, self._measured_s = 0, now_s
        is_idle = self.is_copying and not self._header and not self._left
        if is_idle and (now_s - self._wrote_s) * 1000 > config.ha_send_heartbeat_interval_ms:
            self._header = encode_header(self._position, 0)
            self.wake()

    def close(self, state: SlaveState) -> None:
        """Close the connection, and keep the reason as the state. Further calls do nothing."""
        if not self.is_open:
            return
        self.state = state
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self.wake()
        self._ended(self)

    async def closed(self) -> None:
        """Wait for the end of the task of a closed connection."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    # Reports

    def _readable(self) -> None:
        try:
            received = self._socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            received = b""
        if not received:
            self.close(SlaveState.LEFT)
            return
        self._take(received)

    def _take(self, received: bytes) -> None:
        self._read_s = self._now_s()
        try:
            for offset in self._reports.feed(received):
                self._report(offset)
                if not self.is_open:
                    return
        except HAFrameError:
            self.close(SlaveState.GARBAGE)
            return
        self._changed(self)

    def _report(self, offset: int) -> None:
        end = self._log.max_offset
        if offset > _LARGEST_OFFSET:
            self.close(SlaveState.GARBAGE)
        elif self._position < 0:
            self._begin_at(offset, end)
        elif offset > end:
            self.close(SlaveState.ACK_BEYOND_END)
        else:
            self._reported = offset

    def _begin_at(self, offset: int, end: int) -> None:
        first = max(self._log.min_offset, 0)
        self._request_offset = self._reported = offset
        if offset > end:
            self.close(SlaveState.AHEAD)
        elif 0 < offset < first:
            self.close(SlaveState.BEHIND_RETENTION)
        else:
            last_file = max(end - end % self._log.file_size, first)
            begin = last_file if self._config().ha_last_file_only else first
            self._begin, self._asked_s = offset or begin, self._now_s()
            self._position = self._begin
            self.wake()

    # Sending

    async def _send_all(self) -> None:
        while self.is_open:
            if not self._has_something():
                await self._woken()
                continue
            try:
                if not await self._send_some() and self.is_open:  # it may be closed while that waits
                    self._loop.add_writer(self._socket, self.wake)
                    await self._woken()
                    if self.is_open:
                        self._loop.remove_writer(self._socket)
            except (DiskError, OSError) as error:  # of a file; an error of the socket closes the connection
                self._unreadable(error)
            except Exception:  # the slave would wait for ever
                log.exception("the log could not be sent to a slave", slave=self.address)
                self.close(SlaveState.UNREADABLE)

    def _unreadable(self, error: Exception) -> None:
        self.reason = str(error)
        self.close(SlaveState.UNREADABLE)

    def _has_something(self) -> bool:
        return bool(self._header or self._left) or 0 <= self._position < self._log.max_offset

    async def _woken(self) -> None:
        self._wake = self._loop.create_future()
        await self._wake
        self._wake = None

    async def _send_some(self) -> bool:
        """Send what the socket takes in one call. Returns False if it takes nothing."""
        if self._header and not self._left and self._position >= self._log.max_offset:
            return self._send([self._header], [_Part(self._header, 0, 0)])  # a heartbeat needs no file
        file = self._log.queue.find(self._position)
        if file is None or not file.hold_to_read():
            self.close(SlaveState.CUT_OFF)
            return True
        try:
            begin = self._position - file.file_from_offset
            end = min(begin + _A_CALL_BYTES, file.committed_position)
            if self._log.max_offset - self._position > _HOT_BYTES:
                await self._loop.run_in_executor(None, file.fetch, begin, end - begin)
                if not self.is_open:
                    return True
            buffers, parts = self._frames(file, begin, end)
            is_taken = not buffers or self._send(buffers, parts)
        finally:
            file.release()
        await asyncio.sleep(0 if buffers else _POLL_S)
        return is_taken

    def _frames(self, file: MappedFile, begin: int, end: int) -> tuple[list[bytes | memoryview], list[_Part]]:
        """The buffers of a call: the rest of the frame that is being sent, and the next frames of the file."""
        buffers: list[bytes | memoryview] = []
        parts: list[_Part] = []
        view, at, committed = file.array.data, begin, file.committed_position
        header, left = self._header, self._left
        largest = self._config().ha_transfer_batch_size_bytes
        while len(parts) < _A_CALL_FRAMES:
            if not header and not left:
                if at >= end:
                    break
                left = min(largest, committed - at)
                header = encode_header(file.file_from_offset + at, left)
            attached = min(left, end - at)
            parts.append(_Part(header, left, attached))
            if header:
                buffers.append(header)
            if attached:
                buffers.append(view[at : at + attached])
            at += attached
            if attached < left:
                break
            header, left = b"", 0
        return buffers, parts

    def _send(self, buffers: list[bytes | memoryview], parts: list[_Part]) -> bool:
        try:
            sent = self._socket.sendmsg(buffers)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            if error.errno in _UNREADABLE:
                raise
            self.close(SlaveState.LEFT)
            return True
        self._sent_bytes += sent
        self._wrote_s = self._now_s()
        for header, left, attached in parts:
            of_header = min(sent, len(header))
            of_body = min(sent - of_header, attached)
            sent -= of_header + of_body
            self._position += of_body
            self._header, self._left = header[of_header:], left - of_body
            if self._header or self._left:
                break
        return True
