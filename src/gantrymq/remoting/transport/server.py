"""The server end.

Source: NettyRemotingServer, NettyServerConfig.
"""

from __future__ import annotations

import asyncio
import resource
import socket

from gantrymq.errors import RemotingError, system_reason
from gantrymq.logs import get_logger
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.connection import FindRuns
from gantrymq.remoting.transport.channel import Channel, ChannelHandler, close_all
from gantrymq.remoting.transport.meter import RequestMeter
from gantrymq.remoting.transport.shared import MAX_CONNECTIONS_KEY, ServerLimits, ServerState
from gantrymq.remoting.transport.tls import TlsServer

BACKLOG = 1024  # serverSocketBacklog
_SWEEP_SECONDS = 1.0
_SPARE_DESCRIPTORS = 1024  # file descriptors reserved for the store; a quarter if the limit is low

log = get_logger("gantrymq.remoting")


class RemotingServer:
    """Accepts connections and passes their requests to ``handler``.

    A connection that is idle in both directions for ``idle_seconds`` (serverChannelMaxIdleTimeSeconds) is closed.
    ``limits`` bounds the resources of clients. At the limit of connections or file descriptors a new connection
    replaces the oldest one that has never sent a request; if there is none, the new one is closed.

    Changed files of ``tls`` are reloaded within a second, for new connections.
    """

    def __init__(
        self,
        handler: ChannelHandler,
        *,
        tls: TlsServer | None = None,
        find_runs: FindRuns | None = None,
        idle_seconds: float = 120,
        limits: ServerLimits | None = None,
        meter: RequestMeter | None = None,
    ) -> None:
        self._handler, self._tls, self._find_runs = handler, tls or TlsServer(), find_runs
        self._idle_seconds, self._limits, self._meter = idle_seconds, limits or ServerLimits(), meter
        self._servers: list[asyncio.Server] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._closing = False
        self._silent: dict[Channel, float] = {}  # connections without a request yet, by their start, oldest first
        self._descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.channels: set[Channel] = set()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen, and return the port; port 0 means a free one. Raises RemotingError if the port is taken."""
        loop = asyncio.get_running_loop()
        self._shared = ServerState(self._limits, self._meter)
        try:
            server = await loop.create_server(self._channel, host, port, backlog=BACKLOG)
        except (OSError, UnicodeError) as error:  # UnicodeError is asyncio's error for an invalid host name
            raise RemotingError(f"cannot listen on {host}:{port}: {system_reason(error)}") from error
        self._servers.append(server)
        self._sweep()
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    def _channel(self) -> Channel:
        return Channel(self, server=self._tls, shared=self._shared, find_runs=self._find_runs)

    async def listen_too(self, bound: socket.socket) -> None:
        """Accept connections on a second port too, through a copy of a socket that is bound to it.

        If another process already listens on it, log a warning and use only the first port.
        """
        loop = asyncio.get_running_loop()
        own = bound.dup()
        try:
            server = await loop.create_server(self._channel, sock=own, backlog=BACKLOG)
        except OSError as error:
            log.warning("cannot listen on a second port", port=own.getsockname()[1], error=str(error))
            own.close()
            return
        self._servers.append(server)

    async def close(self) -> None:
        """Stop listening, and close every connection after its data is written."""
        self._closing = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for server in self._servers:
            await self._accept_no_more(server)
            server.close()
        await close_all(list(self.channels))
        while self._servers:
            await self._servers.pop().wait_closed()

    @staticmethod
    async def _accept_no_more(server: asyncio.Server) -> None:
        """Let pending connections arrive: asyncio leaks sockets that are accepted while the server is closing."""
        loop = asyncio.get_running_loop()
        for listening in server.sockets:
            loop.remove_reader(listening.fileno())
        for _ in range(2):
            await asyncio.sleep(0)

    def connected(self, channel: Channel) -> None:
        """Register a new connection.

        One that arrives during the close is aborted, because nothing else would close it.
        """
        if self._closing:
            channel.abort()
            return
        if not self._has_room(channel) and not self._make_room():
            self._shared.log.warning(
                "connection refused: there are too many",
                address=channel.address,
                connections=len(self.channels),
                limit=self._limits.max_connections,
                key=MAX_CONNECTIONS_KEY,
                descriptors=self._descriptors,
            )
            channel.abort()
            return
        self.channels.add(channel)
        self._silent[channel] = asyncio.get_running_loop().time()
        self._handler.connected(channel)

    def _has_room(self, channel: Channel) -> bool:
        spare = min(_SPARE_DESCRIPTORS, self._descriptors // 4)
        return len(self.channels) < self._limits.max_connections and channel.descriptor < self._descriptors - spare

    def _make_room(self) -> bool:
        """Close the oldest connection that has never sent a request. Returns False if there is none."""
        for channel in self._silent:
            self._shared.log.warning(
                "connection closed: it never asked anything, and there are too many", address=channel.address
            )
            channel.abort()
            self.closed(channel, None)
            return True
        return False

    def requests(self, channel: Channel, requests: list[RemotingCommand]) -> None:
        """Pass requests to the handler."""
        if channel in self.channels:
            self._silent.pop(channel, None)
            self._handler.requests(channel, requests)

    def closed(self, channel: Channel, error: Exception | None) -> None:
        """Unregister a closed connection."""
        if channel in self.channels:
            self.channels.discard(channel)
            self._silent.pop(channel, None)
            self._handler.closed(channel, error)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._tls.reload()
        now = loop.time()
        for channel in list(self.channels):
            if channel.last_used < now - self._idle_seconds:
                log.info("channel closed: it was idle", address=channel.address)
                channel.abort()
        self._end_handshakes(now)
        self._sweeper = loop.call_later(min(_SWEEP_SECONDS, self._idle_seconds), self._sweep)

    def _end_handshakes(self, now: float) -> None:
        """Close connections whose TLS handshake takes too long, and the oldest ones if too many are under way."""
        handshakes = [(channel, since) for channel, since in self._silent.items() if channel.is_in_handshake]
        spare = len(handshakes) - self._limits.max_handshakes
        for number, (channel, since) in enumerate(handshakes):
            if number < spare or now - since > self._limits.handshake_seconds:
                self._shared.log.warning(
                    "connection closed: its TLS handshake is not done",
                    address=channel.address,
                    seconds=int(now - since),
                )
                channel.abort()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new event loop, for asyncio.Runner."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
