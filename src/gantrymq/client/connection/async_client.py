"""Requests to brokers and name servers over asyncio. Producers and consumers are built on it.

Source: MQClientAPIImpl, NettyRemotingClient (getAndCreateNameserverChannel).
"""

from __future__ import annotations

from typing import TypeVar

from gantrymq.client.requests.calls import Call
from gantrymq.client.runtime.own_process import OwnLoop
from gantrymq.client.settings import ClientConfig
from gantrymq.errors import RemotingConnectError, RemotingError
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import ChannelHandler
from gantrymq.remoting.transport.client import RemotingClient
from gantrymq.remoting.transport.tls import tls_client

T = TypeVar("T")


class AsyncClient:
    """Sends requests to addresses, over one connection each, and to the name servers in turn until one answers.

    ``handler`` answers the requests of brokers. The client belongs to the event loop on which it is first used: on
    another loop, and in a forked process, every call raises MQClientError.

    Thread rule: the event loop's thread.
    """

    def __init__(self, config: ClientConfig, handler: ChannelHandler | None = None) -> None:
        self.config, self.loop = config, OwnLoop("client")
        self._credentials = config.credentials
        self._name_servers = config.name_server_list
        self._remoting = RemotingClient(
            handler=handler,
            tls=tls_client(config.tls),
            hooks=(self._complete_header,),
            connect_timeout_ms=config.connect_timeout_ms,
        )

    async def close(self) -> None:
        """Write what is still to be sent, then close all connections."""
        await self._remoting.close()

    async def call(self, address: str, call: Call[T], timeout_ms: int | None = None) -> T:
        """Send a request to an address and return its answer.

        Raises RemotingError, or MQBrokerError if the broker refuses the request.
        """
        self.loop.check()
        wait_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        response = await self._remoting.invoke(address, call.request(), wait_ms)
        return call.read(response, address)

    async def invoke_oneway(self, address: str, command: RemotingCommand) -> None:
        """Send a one-way request. Raises RemotingError if the address cannot be reached or does not read."""
        self.loop.check()
        await self._remoting.invoke_oneway(address, command)

    async def ask_name_server(self, call: Call[T]) -> T:
        """Ask the name servers in turn and return the first answer. The next call begins with the same name server.

        Raises RemotingConnectError, which names all of them, if none answers.
        """
        failures = []
        for address in list(self._name_servers):
            try:
                return await self.call(address, call)
            except RemotingError as error:
                failures.append(str(error))
                if self._name_servers[0] == address:
                    self._name_servers.append(self._name_servers.pop(0))
        raise RemotingConnectError("no name server answers", "; ".join(failures))

    def _complete_header(self, address: str, command: RemotingCommand) -> None:
        command.serialize_type = self.config.serialize_type
        if self._credentials is not None:
            self._credentials.sign(command)
