"""One port for TLS and for plain text, in front of the gRPC server.

gRPC's own server speaks one of the two on a port. So this one accepts the connections, looks at the first byte, ends
TLS where it is spoken, and passes the bytes on to the gRPC server. The certificate and its reload are those of the
remoting servers.

The obvious address for the gRPC server behind this port is one of loopback. Each user of the machine could connect to
it, and go around TLS. So it listens on a Unix socket, in a directory that only this user may enter. A connection to it
is bound to a number, which gRPC returns as its peer; :meth:`TlsPort.client_of` has the client of each.

Thread rule: the event loop's thread.

Source: ProxyAndTlsProtocolNegotiator.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import cast
from urllib.parse import quote

from gantrymq.errors import RemotingError, system_reason
from gantrymq.logs import get_logger
from gantrymq.remoting.transport.limited_log import LimitedLog
from gantrymq.remoting.transport.tls import HANDSHAKE_BYTE, TlsMode, TlsServer, TlsSession

_ALPN = ["h2"]  # gRPC's clients refuse a server that does not choose it
_HANDSHAKE_S = 10.0
_MAX_CONNECTIONS = 100_000
_HIGH_WATER_BYTES = 256 << 10
_LINGER_S = 5.0  # after the end: for the client to read what it was sent, and for calls to ask for its address
_CONNECT_AGAIN_S = 0.01
_MAX_PATH_BYTES = 70  # of the directory for temporary files: a socket's whole path has at most 107

log = get_logger("gantrymq.grpc")


class _Outer(asyncio.Protocol):
    """The connection of a client. ``inner`` is its other half, to the gRPC server."""

    def __init__(self, port: TlsPort) -> None:
        self._port, self.inner = port, _Inner(self)
        self.transport: asyncio.Transport | None = None
        self.address = "unknown"
        self._tls: TlsSession | None = None
        self._has_spoken = self.is_over = False
        self._early = bytearray()
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        host, peer_port = transport.get_extra_info("peername")[:2]
        self.address = f"[{host}]:{peer_port}" if ":" in host else f"{host}:{peer_port}"
        self._deadline = asyncio.get_running_loop().call_later(_HANDSHAKE_S, self.end)
        self._port.opened(self)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio with bytes of the client."""
        try:
            if not self._has_spoken:
                self._tls = self._port.session(data[0])
                self._has_spoken = True
            if self._tls is not None:
                plain = self._tls.receive(data)
                self._write_raw(self._tls.take())
                if self._tls.error is not None or self._tls.is_over:
                    self.end()
                    return
                data = plain
        except (RemotingError, ssl.SSLError) as error:
            self._port.refused(self.address, str(error))
            self.end()
            return
        if not data:
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self.inner.transport is not None:
            self.inner.transport.write(data)
            return
        if not self._early and self.transport is not None:
            self.transport.pause_reading()  # until the other half is connected
            self._port.connect(self)
        self._early += data

    def connected(self) -> None:
        """Pass on what came before the other half was connected."""
        if self.inner.transport is not None and self.transport is not None:
            self.inner.transport.write(bytes(self._early))
            self._early.clear()
            self.transport.resume_reading()

    def send(self, data: bytes) -> None:
        """Send bytes of the gRPC server."""
        if self._tls is None:
            self._write_raw(data)
        else:
            self._tls.send(data)
            self._write_raw(self._tls.take())

    def _write_raw(self, data: bytes) -> None:
        if data and self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def pause_writing(self) -> None:
        """Called by asyncio when the client reads too slowly."""
        if self.inner.transport is not None:
            self.inner.transport.pause_reading()

    def resume_writing(self) -> None:
        """Called by asyncio when the client has caught up."""
        if self.inner.transport is not None and not self.inner.transport.is_closing():
            self.inner.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio when the client's connection is closed."""
        self.end()

    def end(self) -> None:
        """Close both halves."""
        if self.is_over:
            return
        self.is_over = True
        if self._deadline is not None:
            self._deadline.cancel()
        for transport in (self.transport, self.inner.transport):
            if transport is not None:
                transport.close()
        if self.transport is not None and self.transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(_LINGER_S, self.transport.abort)
        self._port.closed(self)


class _Inner(asyncio.Protocol):
    """The connection to the gRPC server for one client."""

    def __init__(self, outer: _Outer) -> None:
        self._outer = outer
        self.transport: asyncio.Transport | None = None
        self.number = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio with bytes of the gRPC server."""
        self._outer.send(data)

    def pause_writing(self) -> None:
        """Called by asyncio when the gRPC server reads too slowly."""
        if self._outer.transport is not None:
            self._outer.transport.pause_reading()

    def resume_writing(self) -> None:
        """Called by asyncio when the gRPC server has caught up."""
        if self._outer.transport is not None and not self._outer.transport.is_closing():
            self._outer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio when the gRPC server has closed the connection."""
        self._outer.end()


class _InnerSocket:
    """The Unix socket of the gRPC server. A killed process leaves its directory, which has no effect."""

    def __init__(self) -> None:
        """Make the directory. Raises OSError if there is none for temporary files."""
        is_short = len(gettempdir().encode()) <= _MAX_PATH_BYTES
        self._directory = Path(mkdtemp(prefix="gantrymq-grpc-", dir=None if is_short else "/tmp"))  # mode 0700
        self._path = self._directory / "server"
        self.address = f"unix:{quote(str(self._path))}"
        self._numbers = count()

    async def connect(self) -> tuple[socket.socket, int]:
        """A connection, and its number. Raises OSError if the server does not accept it."""
        number = next(self._numbers)
        own_path = self._directory / str(number)
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.setblocking(False)
            connection.bind(str(own_path))
            own_path.unlink()  # the name stays with the connection
            async with asyncio.timeout(_HANDSHAKE_S):
                # Not the loop's sock_connect: it takes a Unix socket for connected whose server has too many to accept.
                while True:
                    with suppress(BlockingIOError):
                        connection.connect(str(self._path))
                        return connection, number
                    await asyncio.sleep(_CONNECT_AGAIN_S)
        except BaseException:
            connection.close()
            raise

    def remove(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self._directory, ignore_errors=True)


class TlsPort:
    """Listens for the clients of a gRPC server, which itself listens at the address that ``open_inner`` returns."""

    def __init__(self, tls: TlsServer) -> None:
        self._tls = tls
        self._connections: set[_Outer] = set()
        self._clients: dict[int, str] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._log = LimitedLog(asyncio.get_running_loop().time)
        self._inner: _InnerSocket | None = None

    def open_inner(self) -> str:
        """Make the directory of the inner socket. Returns the address at which the gRPC server has to listen.

        Raises RemotingError if there is no directory for temporary files.
        """
        try:
            self._inner = _InnerSocket()
        except OSError as error:
            raise RemotingError(f"no directory for the socket behind TLS (set TMPDIR): {error}") from error
        return self._inner.address

    async def start(self, host: str, port: int) -> int:
        """Listen; port 0 takes a free one. Returns the port. Raises RemotingError if it is in use."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Outer(self), host, port, reuse_address=True)
        except OSError as error:
            raise RemotingError(f"cannot listen on {host}:{port}: {system_reason(error)}") from error
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def client_of(self, number: int) -> str | None:
        """The address of the client that is behind a connection to the gRPC server."""
        return self._clients.get(number)

    def stop_listening(self) -> None:
        """Accept no more connections."""
        if self._server is not None:
            self._server.close()

    async def close(self, grace_s: float) -> None:
        """Close all connections, and remove the inner socket.

        What the gRPC server sent before it was stopped is passed on, for ``grace_s`` at most.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while any(connection.inner.transport is not None for connection in self._connections):
                    await asyncio.sleep(_CONNECT_AGAIN_S)
        for connection in list(self._connections):
            connection.end()
        for task in self._connecting:
            task.cancel()
        await asyncio.sleep(0)
        if self._inner is not None:
            self._inner.remove()

    # For connections

    def session(self, first_byte: int) -> TlsSession | None:
        """The TLS session of a connection that begins with this byte, None for plain text.

        Raises RemotingError for what is not answered here.
        """
        if first_byte != HANDSHAKE_BYTE:
            if self._tls.mode is TlsMode.ENFORCING:
                raise RemotingError("plain text was spoken; only TLS is answered here (tls.server.mode=enforcing)")
            return None
        context = self._tls.answering()
        if context is None:
            raise RemotingError("TLS was spoken, which is not answered here")
        context.set_alpn_protocols(_ALPN)
        return TlsSession(context, server_side=True)

    def opened(self, connection: _Outer) -> None:
        """Note a connection. Above the limit it is closed."""
        self._connections.add(connection)
        if len(self._connections) > _MAX_CONNECTIONS:
            connection.end()

    def closed(self, connection: _Outer) -> None:
        """Forget a connection."""
        self._connections.discard(connection)
        # Later, because calls that have arrived may still ask for it.
        asyncio.get_running_loop().call_later(_LINGER_S, self._clients.pop, connection.inner.number, None)

    def refused(self, address: str, reason: str) -> None:
        """Log why a connection is closed."""
        self._log.warning("gRPC connection closed", address=address, reason=reason)

    def connect(self, connection: _Outer) -> None:
        """Connect the other half of a connection."""
        task = asyncio.ensure_future(self._connect(connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, connection: _Outer) -> None:
        assert self._inner is not None, "the port listens"
        try:
            inner, number = await self._inner.connect()
            await asyncio.get_running_loop().create_unix_connection(lambda: connection.inner, sock=inner)
        except OSError as error:  # TimeoutError, too
            self.refused(connection.address, f"the gRPC server cannot be reached: {error}")
            connection.end()
            return
        if connection.is_over:
            if connection.inner.transport is not None:
                connection.inner.transport.close()
            return
        connection.inner.number = number
        self._clients[number] = connection.address
        connection.connected()
