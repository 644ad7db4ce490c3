"""The client end: one connection for each address, made on first use and again after it broke.

Source: NettyRemotingClient, NettyClientConfig.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable

from gantrymq.errors import RemotingConnectError, RemotingError, RemotingTimeoutError, system_reason
from gantrymq.remoting.acl import SessionCredentials
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel, ChannelHandler, close_all
from gantrymq.remoting.transport.dispatcher import RequestDispatcher

CONNECT_TIMEOUT_MS = 3000
_SILENT_SECONDS = 0.1  # MIN_CLOSE_TIMEOUT_MILLIS
_PORT_DIGITS = 5

# Changes a request before it is sent: signature, serialize type (RPCHook.doBeforeRequest).
SendHook = Callable[[str, RemotingCommand], None]


def signing(user: tuple[str, str] | None) -> tuple[SendHook, ...]:
    """The hook that signs each request with the name and the password of a user; no hook without one."""
    if user is None:
        return ()
    credentials = SessionCredentials(*user)
    return (lambda address, command: credentials.sign(command),)


class RemotingClient:
    """Sends requests to addresses.

    ``handler`` answers requests of the other end. Without one they are answered as not supported.

    Thread rule: the event loop's thread.
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
        """Send a request and return its response.

        ``timeout_ms`` covers connecting and waiting until the other end reads. A connection on which nothing arrived in
        that time is dropped, because a device between the ends may have forgotten it; the next request makes a new one.

        Raises RemotingConnectError, RemotingTimeoutError or RemotingTooMuchRequestError.
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
        """Send a one-way request.

        Raises RemotingConnectError, or RemotingTimeoutError if the other end reads nothing within the connect timeout.
        """
        began = asyncio.get_running_loop().time()
        channel = await self.channel(address, self._connect_timeout_ms)
        await _writable(channel, address, self._connect_timeout_ms, began)
        for hook in self._hooks:
            hook(address, command)
        channel.invoke_oneway(command)

    async def channel(self, address: str, timeout_ms: int = CONNECT_TIMEOUT_MS) -> Channel:
        """The connection to an address. Concurrent callers wait for the same connection attempt.

        A caller that stops waiting does not end the attempt, which has its own time limit.
        """
        if self._closed:
            raise RemotingConnectError(address, "the client is closed")
        task = self._channels.get(address)
        if task is not None and task.done() and not _is_useless(task):
            return task.result()  # as nearly always; a time limit would take longer than the rest of a request
        if task is None or task.done():
            task = self._channels[address] = asyncio.ensure_future(self._connect(address))
        try:
            # Not wait_for: before Python 3.12 it swallows a cancellation that coincides with the connection.
            async with asyncio.timeout(timeout_ms / 1000):
                return await asyncio.shield(task)
        except TimeoutError as error:
            raise RemotingConnectError(address, f"no connection within {timeout_ms} ms") from error
        except asyncio.CancelledError as error:
            if not task.cancelled() or _is_cancelled():
                raise
            raise RemotingConnectError(address, "the client was closed") from error

    async def close(self) -> None:
        """Close all connections after their data is written, and accept no more requests."""
        self._closed = True
        tasks = list(self._channels.values())
        self._channels.clear()
        for task in tasks:
            if not task.done():
                task.cancel()
        made = await asyncio.gather(*tasks, return_exceptions=True)
        await close_all([channel for channel in made if isinstance(channel, Channel)])

    async def _connect(self, address: str) -> Channel:
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_ms / 1000):
                _, channel = await loop.create_connection(
                    lambda: Channel(self._handler, client_tls=self._tls), host, port
                )
        except TimeoutError as error:  # before OSError, its base class
            raise RemotingConnectError(address, f"no connection within {self._connect_timeout_ms} ms") from error
        except OSError as error:
            raise RemotingConnectError(address, f"cannot connect: {system_reason(error)}") from error
        return channel


async def _writable(channel: Channel, address: str, timeout_ms: int, began: float) -> None:
    if channel.is_writable:
        return
    try:
        async with asyncio.timeout_at(began + timeout_ms / 1000):
            await channel.writable()
    except TimeoutError as error:
        raise RemotingTimeoutError(address, timeout_ms) from error


def split_address(address: str) -> tuple[str, int]:
    """Parse ``host:port`` or ``[ipv6]:port``. Raises RemotingError if it is neither, or the host name is invalid."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or len(port) > _PORT_DIGITS or int(port) > 0xFFFF:
        raise RemotingError(f"{address!r} is no address: host:port is needed")
    host = host.strip("[]")
    try:
        host.encode("idna")  # as connecting does, where callers do not expect a UnicodeError
    except UnicodeError as error:
        raise RemotingError(f"{address!r} is no address: {error}") from error
    return host, int(port)


def _is_cancelled() -> bool:
    """Whether the current task is being cancelled. If not, the task that it awaited was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _is_useless(task: asyncio.Task[Channel]) -> bool:
    return task.cancelled() or task.exception() is not None or task.result().is_closed
