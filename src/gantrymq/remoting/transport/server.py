"""The listening end.

Source: NettyRemotingServer, NettyServerConfig.
"""

from __future__ import annotations

import asyncio
import socket

from gantrymq.errors import RemotingError
from gantrymq.logs import get_logger
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.connection import FindRun
from gantrymq.remoting.transport.channel import Channel, ChannelHandler, close_all
from gantrymq.remoting.transport.tls import TlsServer

MAX_CONNECTIONS = 100_000
MAX_BUFFERED_BYTES = 256 * 1024 * 1024
BACKLOG = 1024  # serverSocketBacklog
_SWEEP_SECONDS = 1.0

log = get_logger()


class RemotingServer:
    """Accepts connections and hands their requests to ``handler``.

    A connection that is silent in both directions for ``idle_seconds`` (serverChannelMaxIdleTimeSeconds) is closed.
    Strangers bound what they cost: beyond ``max_connections`` a connection is closed at once, and where all frames that
    are not complete hold more than ``max_buffered_bytes`` together, the largest of them go first.

    Files of ``tls`` that changed are taken over within a second, for connections to come.
    """

    def __init__(
        self,
        handler: ChannelHandler,
        *,
        tls: TlsServer | None = None,
        find_run: FindRun | None = None,
        idle_seconds: float = 120,
        max_connections: int = MAX_CONNECTIONS,
        max_buffered_bytes: int = MAX_BUFFERED_BYTES,
    ) -> None:
        self._handler, self._tls, self._find_run = handler, tls or TlsServer(), find_run
        self._idle_seconds, self._max_connections = idle_seconds, max_connections
        self._max_buffered_bytes = max_buffered_bytes
        self._servers: list[asyncio.Server] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._closing = False
        self.channels: set[Channel] = set()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen; the port, which is a free one where 0 was asked for. Raises RemotingError where it is taken."""
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(self._channel, host, port, backlog=BACKLOG)
        except OSError as error:
            raise RemotingError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        except UnicodeError as error:  # what asyncio says of a host that can be no name
            raise RemotingError(f"cannot listen on {host}:{port}: {error}") from error
        self._servers.append(server)
        self._sweep()
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    def _channel(self) -> Channel:
        return Channel(self, server=self._tls, find_run=self._find_run)

    async def listen_too(self, bound: socket.socket) -> None:
        """Accept connections on a second port as well, by a copy of a socket that is bound to it.

        Where another listens on it by now, there is a warning and the first port alone.
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
        """Stop listening and close every connection once what was sent is written."""
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
        """Let those come in that are on the threshold: asyncio forgets them, open, where the door is shut meanwhile."""
        loop = asyncio.get_running_loop()
        for listening in server.sockets:
            loop.remove_reader(listening.fileno())
        for _ in range(2):
            await asyncio.sleep(0)

    def connected(self, channel: Channel) -> None:
        """A channel says that it stands; one that was accepted while we closed would stay open for ever."""
        if self._closing:
            channel.abort()
            return
        if len(self.channels) >= self._max_connections:
            log.warning("connection refused: there are too many", address=channel.address, limit=self._max_connections)
            channel.abort()
            return
        self.channels.add(channel)
        self._handler.connected(channel)

    def requests(self, channel: Channel, requests: list[RemotingCommand]) -> None:
        """A channel hands over requests."""
        if channel in self.channels:
            self._handler.requests(channel, requests)

    def closed(self, channel: Channel, error: Exception | None) -> None:
        """A channel says that it is gone."""
        if channel in self.channels:
            self.channels.discard(channel)
            self._handler.closed(channel, error)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._tls.reload()
        oldest = loop.time() - self._idle_seconds
        held = 0
        for channel in self.channels:
            held += channel.buffered_bytes
            if channel.last_used < oldest:
                log.info("channel closed: it was idle", address=channel.address)
                channel.abort()
        if held > self._max_buffered_bytes:
            self._cut_off(held)
        self._sweeper = loop.call_later(min(_SWEEP_SECONDS, self._idle_seconds), self._sweep)

    def _cut_off(self, held_bytes: int) -> None:
        for channel in sorted(self.channels, key=lambda one: one.buffered_bytes, reverse=True):
            if held_bytes <= self._max_buffered_bytes:
                return
            held_bytes -= channel.buffered_bytes
            log.warning("channel cut off: half frames hold too much memory", address=channel.address)
            channel.abort()
