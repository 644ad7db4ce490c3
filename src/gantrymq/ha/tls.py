"""TLS on the HA port, between two of ours. RocketMQ's port has none, so its slaves cannot connect then.

A connection to a slave sends mapped files to a socket by system calls, which TLS cannot do. So the master's end of such
a connection is one of a pair of sockets, and a relay encrypts between the other one and the slave.

Who may connect is a matter of certificates: tls.server.need.client.auth=require at the master lets only those in whose
certificate tls.server.trustCertPath has signed, and tls.client.authServer=true at the slave does the same for it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from gantrymq.ha.master_link import Connect

_HANDSHAKE_S = 10.0
_PIECE_BYTES = 256 << 10


def tls_connect(context: ssl.SSLContext) -> Connect:
    """A way to connect with TLS, for a slave or a mirror. It raises OSError, also for a certificate that is refused."""

    def connect(address: tuple[str, int], timeout_s: float) -> socket.socket:
        connected = socket.create_connection(address, timeout_s)
        try:
            return context.wrap_socket(connected)
        except BaseException:
            connected.close()
            raise

    return connect


class TlsRelays:
    """The master's end of TLS. ``context`` is asked for each connection, because certificates are reloaded.

    Thread rule: the event loop's thread.
    """

    def __init__(self, context: Callable[[], ssl.SSLContext | None]) -> None:
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()

    async def plain(self, connected: socket.socket) -> socket.socket:
        """Shake hands with a slave; return a socket on which the bytes are plain. ``connected`` belongs to the relay.

        Raises OSError if the peer speaks no TLS, has no valid certificate, or is silent for ten seconds.
        """
        loop = asyncio.get_running_loop()
        context = self._context()
        if context is None:
            connected.close()
            raise ConnectionError("TLS is switched off by tls.server.mode=disabled")
        reader = asyncio.StreamReader(_PIECE_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, connected, ssl=context, ssl_handshake_timeout=_HANDSHAKE_S
            )
        except BaseException:
            connected.close()
            raise
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        ours, other = socket.socketpair()
        task = loop.create_task(_relay((reader, writer), other))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return ours

    async def close(self) -> None:
        """End all relays."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _relay(encrypted: tuple[asyncio.StreamReader, asyncio.StreamWriter], other: socket.socket) -> None:
    """Pass bytes on in both directions until one end is closed; then close both."""
    reader, writer = await asyncio.open_connection(sock=other, limit=_PIECE_BYTES)
    pumps = [
        asyncio.ensure_future(_pump(encrypted[0], writer)),
        asyncio.ensure_future(_pump(reader, encrypted[1])),
    ]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        encrypted[1].transport.abort()
        writer.transport.abort()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while piece := await source.read(_PIECE_BYTES):
        target.write(piece)
        await target.drain()
