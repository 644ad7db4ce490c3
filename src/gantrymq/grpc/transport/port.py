"""One port for TLS and for plain text, by the first byte of a connection.

The certificate and its reload are those of the remoting servers.

Thread rule: the event loop's thread.

Source: ProxyAndTlsProtocolNegotiator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from gantrymq.errors import RemotingError, system_reason
from gantrymq.grpc.transport.connection import GrpcConnection, GrpcService
from gantrymq.remoting.transport.limited_log import LimitedLog
from gantrymq.remoting.transport.tls import HANDSHAKE_BYTE, TlsMode, TlsServer, TlsSession

_ALPN = ["h2"]  # gRPC's clients refuse a server that does not choose it
_MAX_CONNECTIONS = 100_000
_BACKLOG = 1_024
_LOOK_AGAIN_S = 0.01


class GrpcPort:
    """Listens for the clients of ``service``. With the mode DISABLED it answers plain text only."""

    def __init__(self, service: GrpcService, tls: TlsServer) -> None:
        self._service, self._tls = service, tls
        self._loop = asyncio.get_running_loop()
        self._connections: set[GrpcConnection] = set()
        self._server: asyncio.Server | None = None
        self._log = LimitedLog(self._loop.time)

    async def start(self, host: str, port: int) -> int:
        """Listen; port 0 takes a free one. Returns the port. Raises RemotingError if it is in use."""
        try:
            self._server = await self._loop.create_server(
                lambda: GrpcConnection(self._service, self._connections, self._session, self._log),
                host,
                port,
                backlog=_BACKLOG,
                reuse_address=True,
            )
        except OSError as error:
            shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            raise RemotingError(f"cannot listen on {shown}: {system_reason(error)}") from error
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def check(self) -> None:
        """End connections that are silent, idle or not read. Call it every few seconds."""
        now_s = self._loop.time()
        for connection in list(self._connections):
            connection.check(now_s)

    async def close(self, grace_s: float) -> None:
        """Accept no more connections and calls. Calls under way end, within ``grace_s`` or with UNAVAILABLE."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.begin_close()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while self._connections:
                    await asyncio.sleep(_LOOK_AGAIN_S)
        await self._end(GrpcConnection.end)

    async def abandon(self) -> None:
        """Break all connections."""
        if self._server is not None:
            self._server.close()
        await self._end(GrpcConnection.abort)

    async def _end(self, how: Callable[[GrpcConnection], None]) -> None:
        connections = list(self._connections)
        tasks = [task for connection in connections for task in connection.tasks]
        for connection in connections:
            how(connection)
        await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _session(self, first_byte: int) -> TlsSession | None:
        """The TLS session of a connection that begins with this byte, None for plain text.

        Raises RemotingError for what is not answered here.
        """
        if len(self._connections) > _MAX_CONNECTIONS:
            raise RemotingError(f"there are {_MAX_CONNECTIONS} connections")
        if first_byte != HANDSHAKE_BYTE:
            if self._tls.mode is TlsMode.ENFORCING:
                raise RemotingError("plain text was spoken; only TLS is answered here (tls.server.mode=enforcing)")
            return None
        context = self._tls.answering()
        if context is None:
            raise RemotingError("TLS was spoken, which is not answered here")
        context.set_alpn_protocols(_ALPN)
        return TlsSession(context, server_side=True)
