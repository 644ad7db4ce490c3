"""One connection, at either end: an asyncio protocol around :class:`gantrymq.remoting.connection.Connection`.

All that is sent within one turn of the event loop leaves in one write. Where the other end does not read, a server
stops reading its requests, a client waits (:meth:`Channel.writable`), and whoever lets more than ``MAX_UNREAD_BYTES``
wait is cut off. Thread rule: the event loop's thread.

Source: NettyRemotingAbstract, NettyConnectManageHandler.
"""

from __future__ import annotations

import asyncio
import ssl
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
from gantrymq.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand, encode_command
from gantrymq.remoting.connection import Connection, FindRun, PendingRequests
from gantrymq.remoting.transport.tls import HANDSHAKE_BYTE, TlsMode, TlsServer, TlsSession

WRITE_HIGH_WATER_BYTES = 1024 * 1024
MAX_UNREAD_BYTES = 64 * 1024 * 1024
MAX_PENDING_REQUESTS = 65_535  # clientAsyncSemaphoreValue
_CLOSE_SECONDS = 1.0
_JOIN_BYTES = 128 * 1024  # up to here one copy is cheaper than a list of buffers

log = get_logger()


class ChannelHandler(Protocol):
    """Who is told what happens on channels. Nothing here may block."""

    def connected(self, channel: Channel) -> None:
        """A connection stands."""
        ...

    def requests(self, channel: Channel, requests: list[RemotingCommand]) -> None:
        """All requests that one read completed, in order; answers go to :meth:`Channel.send`.

        With ``find_run`` there are runs among them (:class:`gantrymq.remoting.command_run.CommandRun`).
        """
        ...

    def closed(self, channel: Channel, error: Exception | None) -> None:
        """The connection is gone; no more of it will come."""
        ...


class _Waiter:
    __slots__ = ("future", "timeout_ms")

    def __init__(self, future: asyncio.Future[RemotingCommand], timeout_ms: int) -> None:
        self.future, self.timeout_ms = future, timeout_ms


class Channel(asyncio.Protocol):
    """A connection that speaks commands.

    ``address`` is the other end, ``ip:port``; ``last_used`` the loop's time at the last read or write,
    ``reads`` how often something came.
    """

    def __init__(
        self,
        handler: ChannelHandler,
        *,
        server: TlsServer | None = None,
        client_tls: ssl.SSLContext | None = None,
        find_run: FindRun | None = None,
    ) -> None:
        self._handler, self._server, self._client_tls = handler, server, client_tls
        self._tls: TlsSession | None = None
        self._spoke = server is None
        self._connection = Connection(find_run=find_run)
        self._pending: PendingRequests[_Waiter] = PendingRequests()
        self._timer: asyncio.TimerHandle | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flushing = self._ending = False
        self._writable: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self.address = self.local_address = "unknown"
        self.last_used = self._loop.time()
        self.reads = 0
        self.is_closed = False

    @property
    def buffered_bytes(self) -> int:
        """How much of a frame that is not complete this connection holds, and of a TLS record."""
        return self._connection.buffered_bytes + (self._tls.buffered_bytes if self._tls is not None else 0)

    @property
    def unread_bytes(self) -> int:
        """How much waits for the other end to read it, or for its part of a TLS handshake."""
        written = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return written + (self._tls.waiting_bytes if self._tls is not None else 0)

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio: the socket is connected."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        self.address = _text(transport.get_extra_info("peername"))
        self.local_address = _text(transport.get_extra_info("sockname"))
        if self._client_tls is not None:
            self._tls = TlsSession(self._client_tls, server_side=False)
            self._transport.write(self._tls.take())
        self._handler.connected(self)

    def data_received(self, data: bytes) -> None:
        """Asyncio: bytes came."""
        self.last_used = self._loop.time()
        self.reads += 1
        try:
            if not self._spoke:
                self._first_byte(data[0])
            commands = self._connection.receive(data if self._tls is None else self._decrypt(self._tls, data))
        except (RemotingError, ssl.SSLError) as error:
            self._refuse(error)
            return
        requests = [command for command in commands if not command.flag & RESPONSE_FLAG]
        if len(requests) != len(commands):
            for command in commands:
                if command.is_response:
                    self._answered(command)
        if requests:
            self._handler.requests(self, requests)
        broken = self._connection.error or (self._tls.error if self._tls is not None else None)
        if broken is not None:
            self._refuse(broken)
        elif self._tls is not None and self._tls.is_over:
            self.close()  # what was answered at once still leaves

    def eof_received(self) -> bool:
        """Asyncio: the other end will say no more; nothing is left to answer."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio: the socket is closed."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for waiter in self._pending.take_all():
            if not waiter.future.done():
                waiter.future.set_exception(RemotingConnectError(self.address, "the connection was closed"))
        self.resume_writing()
        self._handler.closed(self, exc)

    def pause_writing(self) -> None:
        """Asyncio: the other end reads too slowly."""
        if self._writable is None:
            self._writable = self._loop.create_future()
        if self._server is not None and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Asyncio: the other end caught up."""
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None
        if self._server is not None and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # What we call

    def send(self, command: RemotingCommand) -> None:
        """Send a command with this turn's write; on a closed channel nothing happens.

        Raises RemotingCommandError where the command makes too large a frame.
        """
        self.send_bytes((encode_command(command),))

    def send_bytes(self, frames: Sequence[bytes]) -> None:
        """Send whole frames that are encoded already, in as many pieces as they have."""
        if self.is_closed:
            return
        self._out += frames
        self._out_bytes += sum(map(len, frames))
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def invoke(self, command: RemotingCommand, timeout_ms: int) -> asyncio.Future[RemotingCommand]:
        """Send a request; the future brings its response, RemotingTimeoutError or RemotingConnectError."""
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
        except BaseException:  # whatever it is, nobody will ever answer
            self._pending.take(command.opaque)
            raise
        if self._timer is None or deadline < self._timer.when():
            self._wake_at(deadline)
        return future

    def invoke_oneway(self, command: RemotingCommand) -> None:
        """Send a request that nobody answers."""
        command.opaque = self._pending.new_opaque()
        command.flag |= ONEWAY_FLAG
        self.send(command)

    async def writable(self) -> None:
        """Wait until the other end has read enough, or shaken hands, for more to be sent. Send without waiting then."""
        while True:
            if self._out_bytes > WRITE_HIGH_WATER_BYTES:
                self._flush()  # what others who waited have sent a moment ago tells whether there is room
            if self._writable is None:
                return
            await asyncio.shield(self._writable)

    def close(self) -> None:
        """Close when what was sent is written; where it waits for a TLS handshake, that goes on until then."""
        if self._transport is not None and not self._transport.is_closing():
            self._flush()
            self._ending = self._tls is not None and self._tls.waiting_bytes > 0
            if self._ending:
                return
            if self._tls is not None:
                self._tls.goodbye()
                self._transport.write(self._tls.take())
            self._transport.close()

    def abort(self) -> None:
        """Close now; what was not written is lost."""
        if self._transport is not None and not self.is_closed:
            self.is_closed = True  # not only when asyncio says so in its next turn: nobody is to use it until then
            self._transport.abort()

    # Within

    def _flush(self) -> None:
        self._flushing = False
        out, out_bytes = self._out, self._out_bytes
        self._out, self._out_bytes = [], 0
        if not out or self._transport is None or self._transport.is_closing():
            return
        self.last_used = self._loop.time()
        if self._tls is not None:
            self._tls.send(b"".join(out))
            self._transport.write(self._tls.take())
            if self._server is None and self._tls.waiting_bytes > WRITE_HIGH_WATER_BYTES:
                self.pause_writing()
        elif len(out) == 1 or out_bytes <= _JOIN_BYTES:
            self._transport.write(b"".join(out) if len(out) > 1 else out[0])
        else:
            self._transport.writelines(out)
        if self.unread_bytes > MAX_UNREAD_BYTES:
            log.warning("channel cut off: it does not read", address=self.address, unread_bytes=self.unread_bytes)
            self.abort()

    def _first_byte(self, byte: int) -> None:
        self._spoke = True
        server = cast(TlsServer, self._server)
        if byte != HANDSHAKE_BYTE:
            if server.mode is TlsMode.ENFORCING:
                raise RemotingCommandError("plain text, but tls.server.mode=enforcing")
        else:
            context = server.answering()
            if context is None:
                raise RemotingCommandError("TLS, which is not answered here")
            self._tls = TlsSession(context, server_side=True)

    def _decrypt(self, tls: TlsSession, data: bytes) -> bytes:
        waiting_bytes = tls.waiting_bytes
        try:
            return tls.receive(data)
        finally:
            if (answer := tls.take()) and self._transport is not None:
                self._transport.write(answer)
            if tls.waiting_bytes < waiting_bytes and self.unread_bytes <= WRITE_HIGH_WATER_BYTES:
                self.resume_writing()  # else asyncio does
            if self._ending:
                self.close()

    def _refuse(self, error: Exception) -> None:
        log.warning("channel closed: what came is no command", address=self.address, reason=str(error))
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
    """Close channels and wait until what was sent is written; who has not read it within a second is cut off."""
    for channel in channels:
        channel.close()
    deadline = asyncio.get_running_loop().time() + _CLOSE_SECONDS
    while not all(one.is_closed for one in channels) and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.001)
    for channel in channels:
        channel.abort()
    await asyncio.sleep(0)


def _text(address: Any) -> str:
    if not isinstance(address, tuple):
        return "unknown"
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
