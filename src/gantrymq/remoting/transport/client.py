"""The calling end: one connection for each address, made when it is needed and made anew when it broke.

Source: NettyRemotingClient, NettyClientConfig.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable

from gantrymq.errors import RemotingConnectError, RemotingError, RemotingTimeoutError
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel, ChannelHandler, close_all
from gantrymq.remoting.transport.dispatcher import RequestDispatcher

CONNECT_TIMEOUT_MS = 3000
_SILENT_SECONDS = 0.1  # MIN_CLOSE_TIMEOUT_MILLIS
_PORT_DIGITS = 5

# Changes a request before it leaves: signatures, stream types (RPCHook.doBeforeRequest).
SendHook = Callable[[str, RemotingCommand], None]


class RemotingClient:
    """Sends requests to addresses. Thread rule: the event loop's thread.

    ``handler`` answers what the other end asks us; without one everything is answered as not supported.
    """

    def __init__(
        self,
        *,
        handler: ChannelHandler | None = None,
        tls: ssl.SSLContext | None = None,
        hooks: Iterable[SendHook] = (),
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
    ) -> None:
        self._handler: ChannelHandler = handler or RequestDispatcher()
        self._tls, self._hooks = tls, tuple(hooks)
        self._connect_timeout_ms = connect_timeout_ms
        self._channels: dict[str, asyncio.Task[Channel]] = {}
        self._closed = False

    async def invoke(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """The response to a request.

        Raises RemotingConnectError, RemotingTimeoutError (``timeout_ms`` covers connecting too, and waiting until the
        other end reads) or RemotingTooMuchRequestError. A connection that said nothing at all in that time is given up,
        for whatever lies between the ends may have forgotten it; the next request makes a new one.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        channel = await self.channel(address, timeout_ms)
        connected, reads = loop.time(), channel.reads
        try:
            await _writable(channel, address, timeout_ms, began)
            for hook in self._hooks:
                hook(address, command)
            return await channel.invoke(command, max(timeout_ms - int((loop.time() - began) * 1000), 1))
        except RemotingTimeoutError:
            if channel.reads == reads and loop.time() - connected > _SILENT_SECONDS:
                channel.abort()
            raise

    async def invoke_oneway(self, address: str, command: RemotingCommand) -> None:
        """Send a request that nobody answers.

        Raises RemotingConnectError, or RemotingTimeoutError where the other end reads nothing for as long as we would
        wait for a connection.
        """
        began = asyncio.get_running_loop().time()
        channel = await self.channel(address, self._connect_timeout_ms)
        await _writable(channel, address, self._connect_timeout_ms, began)
        for hook in self._hooks:
            hook(address, command)
        channel.invoke_oneway(command)

    async def channel(self, address: str, timeout_ms: int = CONNECT_TIMEOUT_MS) -> Channel:
        """The connection to an address; those who ask at the same time wait for the same one.

        Who waits no longer leaves it to the others: it ends by itself after the client's own time-out.
        """
        if self._closed:
            raise RemotingConnectError(address, "the client is closed")
        task = self._channels.get(address)
        if task is None or (task.done() and _is_useless(task)):
            task = self._channels[address] = asyncio.ensure_future(self._connect(address))
        try:
            # Not wait_for, which before Python 3.12 swallows a cancellation that meets the connection.
            async with asyncio.timeout(timeout_ms / 1000):
                return await asyncio.shield(task)
        except TimeoutError as error:
            raise RemotingConnectError(address, f"no connection within {timeout_ms} ms") from error
        except asyncio.CancelledError as error:
            if not task.cancelled() or _is_cancelled():
                raise
            raise RemotingConnectError(address, "the client was closed") from error

    async def close(self) -> None:
        """Close all connections once what was sent is written, and make no more."""
        self._closed = True
        tasks = list(self._channels.values())
        self._channels.clear()
        for task in tasks:
            if not task.done():
                task.cancel()
        made = await asyncio.gather(*tasks, return_exceptions=True)
        await close_all([one for one in made if isinstance(one, Channel)])

    async def _connect(self, address: str) -> Channel:
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_ms / 1000):
                _, channel = await loop.create_connection(
                    lambda: Channel(self._handler, client_tls=self._tls), host, port
                )
        except TimeoutError as error:  # before OSError, which it is too
            raise RemotingConnectError(address, f"no connection within {self._connect_timeout_ms} ms") from error
        except OSError as error:
            raise RemotingConnectError(address, f"cannot connect: {error.strerror or error}") from error
        return channel


async def _writable(channel: Channel, address: str, timeout_ms: int, began: float) -> None:
    try:
        async with asyncio.timeout_at(began + timeout_ms / 1000):
            await channel.writable()
    except TimeoutError as error:
        raise RemotingTimeoutError(address, timeout_ms) from error


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` or ``[ipv6]:port``; raises RemotingError where it is neither, or can be no host's name."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or len(port) > _PORT_DIGITS or int(port) > 0xFFFF:
        raise RemotingError(f"{address!r} is no address: host:port is needed")
    host = host.strip("[]")
    try:
        host.encode("idna")  # as whoever connects to it does, with a UnicodeError that nobody expects
    except UnicodeError as error:
        raise RemotingError(f"{address!r} is no address: {error}") from error
    return host, int(port)


def _is_cancelled() -> bool:
    """Whether somebody wants the task that asks to end; else it is what it waited for that was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _is_useless(task: asyncio.Task[Channel]) -> bool:
    return task.cancelled() or task.exception() is not None or task.result().is_closed
