"""One connection, at either end: an asyncio protocol around :class:`gantrymq.remoting.connection.Connection`.

All frames that are sent within one iteration of the event loop leave in one write.

Back-pressure: if the other end does not read, a server stops reading its requests, a client waits
(:meth:`Channel.writable`), and a connection with more than ``MAX_UNREAD_BYTES`` of unread data is closed. A server
takes the requests of a read in slices (:mod:`gantrymq.remoting.transport.turns`), and reads no more until it has taken
all.

Thread rule: the event loop's thread.

Source: NettyRemotingAbstract, NettyConnectManageHandler.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Collection, Sequence
from typing import Any, Protocol, cast

from gantrymq.errors import (
    RemotingCommandError,
    RemotingConnectError,
    RemotingError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from gantrymq.logs import get_logger
from gantrymq.remoting.command import (
    MAX_FRAME_BYTES,
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    RemotingCommand,
    encode_command,
    encode_head,
)
from gantrymq.remoting.connection import Connection, FindRuns, PendingRequests, other_protocol
from gantrymq.remoting.transport.shared import ServerState
from gantrymq.remoting.transport.tls import HANDSHAKE_BYTE, TlsMode, TlsServer, TlsSession
from gantrymq.remoting.transport.turns import SLICE_S, TURN_S

WRITE_HIGH_WATER_BYTES = 1024 * 1024
MAX_UNREAD_BYTES = 64 * 1024 * 1024
MAX_PENDING_REQUESTS = 65_535  # clientAsyncSemaphoreValue
MAX_ANSWERS_UNDER_WAY = 256  # per connection; further requests of it wait
MAX_UNDER_WAY_BYTES = 8 * 1024 * 1024  # of the requests that are being answered
_LARGE_REQUEST_BYTES = 16 * 1024  # a longer request may take long, so it waits for its turn
_LARGE_READ_BYTES = 32 * 1024  # so do shorter requests that are larger in total
_COMMANDS_A_LOOK = 1  # commands taken between two checks of the clock and of the output
_CLOSE_SECONDS = 1.0
_JOIN_BYTES = 128 * 1024  # up to here one copy is cheaper than a list of buffers

log = get_logger("gantrymq.remoting")


class ChannelHandler(Protocol):
    """The callbacks for events of channels. They must not block."""

    def connected(self, channel: Channel) -> None:
        """A connection is established."""
        ...

    def requests(self, channel: Channel, requests: list[RemotingCommand]) -> None:
        """All requests that one read completed, in order. Answers go to :meth:`Channel.respond`.

        With ``find_runs`` there may be runs among them (:class:`gantrymq.remoting.command.CommandRun`).
        """
        ...

    def closed(self, channel: Channel, error: Exception | None) -> None:
        """The connection is closed. No more requests of it follow."""
        ...


class _Waiter:
    __slots__ = ("future", "timeout_ms")

    def __init__(self, future: asyncio.Future[RemotingCommand], timeout_ms: int) -> None:
        self.future, self.timeout_ms = future, timeout_ms


class Channel(asyncio.Protocol):
    """A connection that sends and receives commands.

    ``address`` is the other end, ``ip:port``. ``last_used`` is the loop's time of the last read or write, ``reads`` the
    number of reads.
    """

    def __init__(
        self,
        handler: ChannelHandler,
        *,
        server: TlsServer | None = None,
        shared: ServerState | None = None,
        client_tls: ssl.SSLContext | None = None,
        find_runs: FindRuns | None = None,
    ) -> None:
        self._handler, self._server, self._client_tls = handler, server, client_tls
        self._tls: TlsSession | None = None
        self._has_received = server is None
        self._shared = ServerState() if server is not None and shared is None else shared
        self._meter = self._shared.meter if self._shared is not None else None
        if self._shared is None:
            self._connection = Connection(find_runs=find_runs)
        else:
            limits = self._shared.limits
            self._connection = Connection(
                find_runs=find_runs, max_header_bytes=limits.max_header_bytes, max_body_bytes=limits.max_body_bytes
            )
        self._is_greedy = self._is_queued = self._is_paused = self._has_noted = False
        self._answers_under_way = self._under_way_bytes = 0
        self._pending: PendingRequests[_Waiter] = PendingRequests()
        self._timer: asyncio.TimerHandle | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flushing = self._ending = False
        self._writable: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self.address = "unknown"
        self.last_used = self._loop.time()
        self.reads = 0
        self.is_closed = False

    @property
    def buffered_bytes(self) -> int:
        """The size of buffered requests in bytes.

        These are frames that are incomplete, not taken or not answered yet, and an incomplete TLS record.
        """
        connection = self._connection
        held = connection.buffered_bytes + connection.left_bytes + self._under_way_bytes
        return held + (self._tls.buffered_bytes if self._tls is not None else 0)

    @property
    def descriptor(self) -> int:
        """The socket's file descriptor, or -1."""
        own = self._transport.get_extra_info("socket") if self._transport is not None else None
        return own.fileno() if own is not None else -1

    @property
    def is_in_handshake(self) -> bool:
        """Whether a TLS handshake is under way."""
        return self._tls is not None and not self._tls.is_established

    @property
    def unread_bytes(self) -> int:
        """The size of data that the other end has not read, or that waits for the TLS handshake, in bytes."""
        written = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return written + (self._tls.waiting_bytes if self._tls is not None else 0)

    # Callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio when the socket is connected."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        self.address = _text(transport.get_extra_info("peername"))
        if self._client_tls is not None:
            self._tls = TlsSession(self._client_tls, server_side=False)
            self._transport.write(self._tls.take())
        self._handler.connected(self)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio with received bytes."""
        self.last_used = self._loop.time()
        self.reads += 1
        size_bytes = len(data)
        try:
            if not self._has_received:
                self._first_byte(data)
            if self._tls is not None:
                data = self._decrypt(self._tls, data)
        except (RemotingError, ssl.SSLError) as error:
            self._refuse(str(error))
            return
        if self._shared is None:
            self._take(data)
            return
        held_bytes = self._connection.buffered_bytes + size_bytes
        if self._is_greedy or held_bytes > _LARGE_REQUEST_BYTES:
            self._take(data, 0)
            if self._is_greedy or held_bytes > _LARGE_READ_BYTES or not self._has_short_request():
                self._go_on()
            elif self._slice(longest_bytes=_LARGE_REQUEST_BYTES):
                self._wait_for_turn()
        elif self._slice(data):
            self._wait_for_turn()
        self._note_buffered(size_bytes)

    def eof_received(self) -> bool:
        """Called by asyncio at the end of the stream. Returns False, so that asyncio closes the socket."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio when the socket is closed."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for waiter in self._pending.take_all():
            if not waiter.future.done():
                waiter.future.set_exception(RemotingConnectError(self.address, "the connection was closed"))
        self.resume_writing()
        self._drop_buffers()
        self._handler.closed(self, exc)

    def pause_writing(self) -> None:
        """Called by asyncio when the other end reads too slowly."""
        if self._writable is None:
            self._writable = self._loop.create_future()
        self._update_reading()

    def resume_writing(self) -> None:
        """Called by asyncio when the other end has caught up."""
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None
        self._go_on()

    # Methods for callers

    def send(self, command: RemotingCommand) -> None:
        """Send a command with the next write. On a closed channel this has no effect.

        Raises RemotingCommandError if the frame is too large.
        """
        if len(command.body) > _JOIN_BYTES:
            self.send_bytes((encode_head(command), command.body))
        else:
            self.send_bytes((encode_command(command),))

    def send_bytes(self, frames: Sequence[bytes]) -> None:
        """Send whole encoded frames, in any number of pieces."""
        if self.is_closed:
            return
        self._out += frames
        self._out_bytes += sum(map(len, frames))
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def respond(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """Send the response to a request, which is measured. A one-way request gets none. Raises as :meth:`send`."""
        if not request.flag & ONEWAY_FLAG:
            self.send(response)
        if self._meter is not None:
            self._meter.answered(request, response.code, is_sent=not self.is_closed)

    def respond_bytes(self, request: RemotingCommand, code: int, frames: Sequence[bytes]) -> None:
        """Send the encoded response to a request, or to a run, which is measured. ``code`` is its response code.

        There are no ``frames`` for a one-way request.
        """
        if frames:
            self.send_bytes(frames)
        if self._meter is not None:
            self._meter.answered(request, code, is_sent=not self.is_closed)

    def invoke(self, command: RemotingCommand, timeout_ms: int) -> asyncio.Future[RemotingCommand]:
        """Send a request. The future gets its response, or RemotingTimeoutError or RemotingConnectError.

        Raises RemotingTooMuchRequestError if ``MAX_PENDING_REQUESTS`` requests are pending.
        """
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        if self.is_closed:
            future.set_exception(RemotingConnectError(self.address, "the connection is closed"))
            return future
        if len(self._pending) >= MAX_PENDING_REQUESTS:
            raise RemotingTooMuchRequestError(f"{self.address}: {len(self._pending)} requests wait for an answer")
        deadline = self._loop.time() + timeout_ms / 1000
        command.opaque = self._pending.add(_Waiter(future, timeout_ms), deadline)
        try:
            self.send(command)
        except BaseException:  # whatever the error is, no answer will come
            self._pending.take(command.opaque)
            raise
        if self._timer is None or deadline < self._timer.when():
            self._wake_at(deadline)
        return future

    def invoke_oneway(self, command: RemotingCommand) -> None:
        """Send a one-way request."""
        command.opaque = self._pending.new_opaque()
        command.flag |= ONEWAY_FLAG
        self.send(command)

    @property
    def is_writable(self) -> bool:
        """Whether :meth:`writable` would return at once."""
        return self._writable is None and self._out_bytes <= WRITE_HIGH_WATER_BYTES

    async def writable(self) -> None:
        """Wait until the other end has read enough, or finished the TLS handshake.

        Send without awaiting anything after that.
        """
        while True:
            if self._out_bytes > WRITE_HIGH_WATER_BYTES:
                self._flush()  # other coroutines may have sent since; the flush updates _writable
            if self._writable is None:
                return
            await asyncio.shield(self._writable)

    def close(self) -> None:
        """Close after the sent data is written. Data that waits for a TLS handshake is written after it."""
        if self._transport is not None and not self._transport.is_closing():
            self._flush()
            self._ending = self._tls is not None and self._tls.waiting_bytes > 0
            if self._ending:
                return
            if self._tls is not None:
                self._tls.send_close_notify()
                self._transport.write(self._tls.take())
            self._transport.close()

    def abort(self) -> None:
        """Close now. Data that is not written yet is lost."""
        if self._transport is not None and not self.is_closed:
            self.is_closed = True  # at once, because asyncio calls connection_lost only in its next iteration
            self._transport.abort()
            self._drop_buffers()

    def begin_answer(self, request_bytes: int) -> None:
        """Count an answer that is sent later, and the memory of its request.

        At ``MAX_ANSWERS_UNDER_WAY`` or ``MAX_UNDER_WAY_BYTES`` no further requests are taken.
        """
        self._answers_under_way += 1
        self._under_way_bytes += request_bytes

    def end_answer(self, request_bytes: int) -> None:
        """Count such an answer as sent."""
        was_blocked = self._is_blocked
        self._answers_under_way -= 1
        self._under_way_bytes -= request_bytes
        if was_blocked and not self._is_blocked:
            self._go_on()

    # Implementation

    def _take(self, data: bytes, max_commands: int | None = None) -> None:
        """Take the commands that ``data`` completes, at most ``max_commands``."""
        try:
            commands = (
                self._connection.receive(data) if max_commands is None else self._connection.receive(data, max_commands)
            )
        except RemotingCommandError as error:
            self._refuse(str(error))
            return
        requests = [command for command in commands if not command.flag & RESPONSE_FLAG]
        if len(requests) != len(commands):
            for command in commands:
                if command.is_response:
                    self._answered(command)
        if requests:
            if self._meter is not None:
                self._meter.received(requests)
            self._handler.requests(self, requests)
        if self._connection.has_more:
            return
        broken = self._connection.error or (self._tls.error if self._tls is not None else None)
        if broken is not None:
            self._refuse(str(broken))
        elif self._tls is not None and self._tls.is_over:
            self.close()  # answers that are already there still leave

    def _has_short_request(self) -> bool:
        return self._connection.has_more and self._connection.next_bytes <= _LARGE_REQUEST_BYTES

    def _slice(self, data: bytes = b"", longest_bytes: int = MAX_FRAME_BYTES) -> bool:
        """Take requests of up to ``longest_bytes`` for one slice of time. Returns whether more can be taken now.

        A connection whose requests take longer than a turn is greedy: its next requests wait for their turn.
        """
        began, began_s, until = time.thread_time(), time.monotonic(), self._loop.time() + SLICE_S
        while True:
            self._take(data, _COMMANDS_A_LOOK)
            data = b""
            # CPU time, so that other threads and processes do not count. Reading it takes 2 µs, the other clock 0.1 µs.
            self._is_greedy = time.monotonic() - began_s >= TURN_S and time.thread_time() - began >= TURN_S
            if self.is_closed or not self._connection.has_more:
                return False
            if self._out_bytes > WRITE_HIGH_WATER_BYTES:
                self._flush()
            if self._is_blocked:
                self._update_reading()
                return False
            if self._loop.time() >= until or self._connection.next_bytes > longest_bytes:
                return True

    @property
    def _is_blocked(self) -> bool:
        """Whether no more requests are taken until answers have left."""
        return (
            self._writable is not None
            or self._answers_under_way >= MAX_ANSWERS_UNDER_WAY
            or self._under_way_bytes >= MAX_UNDER_WAY_BYTES
        )

    def _turn(self) -> bool:
        """Take another slice of the queued requests. Returns whether there are more."""
        if not self.is_closed and not self._is_blocked:
            if self._slice():
                return True
            self._note_buffered()
        self._is_queued = False
        self._update_reading()
        return False

    def _wait_for_turn(self) -> None:
        if not self._is_queued and not self.is_closed and self._shared is not None:
            self._is_queued = True
            self._shared.turns.add(self._turn)
        self._update_reading()

    def _note_buffered(self, added_bytes: int = 0) -> None:
        size_bytes = self.buffered_bytes
        if self._shared is not None and (size_bytes or self._has_noted):
            self._has_noted = size_bytes > 0
            self._shared.partial.note(self, size_bytes, added_bytes)

    def _go_on(self) -> None:
        """Take further requests once nothing blocks them."""
        if self._connection.has_more and not self._is_blocked:
            self._wait_for_turn()
        self._update_reading()

    def _update_reading(self) -> None:
        """Pause or resume reading: a server reads only if it has taken all it has read and its answers leave."""
        if self._server is None or self._transport is None or self.is_closed or self._transport.is_closing():
            return
        pause = self._connection.has_more or self._is_blocked
        if pause != self._is_paused:
            self._is_paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _drop_buffers(self) -> None:
        """Free the buffers of a closed connection, even if other objects still refer to the channel."""
        self._connection = Connection()
        self._out, self._out_bytes = [], 0
        self._tls = None
        if self._shared is not None:
            self._shared.forget(self)

    def _flush(self) -> None:
        self._flushing = False
        out, out_bytes = self._out, self._out_bytes
        self._out, self._out_bytes = [], 0
        if not out or self._transport is None or self._transport.is_closing():
            return
        self.last_used = self._loop.time()
        if self._tls is not None:
            for piece in (b"".join(out),) if out_bytes <= _JOIN_BYTES else out:
                self._tls.send(piece)
            self._transport.writelines(self._tls.take_pieces())
            if self._server is None and self._tls.waiting_bytes > WRITE_HIGH_WATER_BYTES:
                self.pause_writing()
        elif len(out) == 1 or out_bytes <= _JOIN_BYTES:
            self._transport.write(b"".join(out) if len(out) > 1 else out[0])
        else:
            self._transport.writelines(out)
        unread_bytes = self.unread_bytes
        if unread_bytes > MAX_UNREAD_BYTES:
            logger = self._shared.log if self._shared is not None else log
            logger.warning("channel closed: the peer does not read", address=self.address, unread_bytes=unread_bytes)
            self.abort()
        elif self._shared is not None:
            self._shared.unread.note(self, unread_bytes, out_bytes)

    def _first_byte(self, data: bytes) -> None:
        self._has_received = True
        server = cast(TlsServer, self._server)
        if data[0] != HANDSHAKE_BYTE:
            if server.mode is TlsMode.ENFORCING:
                spoken = other_protocol(data) or "plain text was spoken"
                raise RemotingCommandError(f"{spoken}; only TLS is answered here (tls.server.mode=enforcing)")
        else:
            context = server.answering()
            if context is None:
                raise RemotingCommandError(
                    f"TLS was spoken, which is not answered here (tls.server.mode={server.mode.value}, "
                    f"tls.test.mode.enable, tls.server.certPath)"
                )
            self._tls = TlsSession(context, server_side=True)

    def _decrypt(self, tls: TlsSession, data: bytes) -> bytes:
        waiting_bytes = tls.waiting_bytes
        try:
            return tls.receive(data)
        finally:
            if (answer := tls.take()) and self._transport is not None:
                self._transport.write(answer)
            if tls.waiting_bytes < waiting_bytes and self.unread_bytes <= WRITE_HIGH_WATER_BYTES:
                self.resume_writing()  # otherwise asyncio calls it
            if self._ending:
                self.close()

    def _refuse(self, reason: str) -> None:
        logger = self._shared.log if self._shared is not None else log
        logger.warning("channel closed: the received bytes are not a command", address=self.address, reason=reason)
        self.abort()

    def _answered(self, command: RemotingCommand) -> None:
        waiter = self._pending.take(command.opaque)
        if waiter is not None and not waiter.future.done():
            waiter.future.set_result(command)

    def _wake_at(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        for waiter in self._pending.expired(self._loop.time()):
            if not waiter.future.done():
                waiter.future.set_exception(RemotingTimeoutError(self.address, waiter.timeout_ms))
        deadline = self._pending.next_deadline()
        if deadline is not None:
            self._wake_at(deadline)


async def close_all(channels: Collection[Channel]) -> None:
    """Close channels and wait until their data is written. Connections that take longer than a second are aborted."""
    for channel in channels:
        channel.close()
    deadline = asyncio.get_running_loop().time() + _CLOSE_SECONDS
    while not all(channel.is_closed for channel in channels) and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.001)
    for channel in channels:
        channel.abort()
    await asyncio.sleep(0)


def _text(address: Any) -> str:
    if not isinstance(address, tuple):
        return "unknown"
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
