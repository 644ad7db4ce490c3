"""A name server and a broker in one process, on one event loop.

    pair = Standalone("/data/store", LiveConfig(BrokerConfig(listen_port=0)), NamesrvConfig(listen_port=0))
    await pair.start()       # the broker's route answers
    print(pair.namesrv_address, pair.broker_address)
    await pair.shutdown()

Source: NamesrvStartup, BrokerStartup.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gantrymq.broker.server import BrokerServer
from gantrymq.clock import Clock, SystemClock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.embedded.grpc_front import OFF, grpc_front, require_grpc
from gantrymq.errors import RemotingError
from gantrymq.fs.api import FileSystem
from gantrymq.namesrv.server import NamesrvServer
from gantrymq.namesrv.settings import NamesrvConfig
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.namesrv import GetRouteInfoRequestHeader
from gantrymq.remoting.transport.client import RemotingClient
from gantrymq.remoting.transport.tls import TlsServer
from gantrymq.store.recovery.recovery import Progress

if TYPE_CHECKING:
    from gantrymq.grpc.server import GrpcServer

NAMESRV_FOLDER = "namesrv"
_READY_WITHIN_S = 10.0
_ASK_AGAIN_S = 0.005
_ANYWHERE = {"0.0.0.0", "::", ""}


@dataclass(frozen=True)
class Extras:
    """The arguments of both servers beside their settings.

    ``given`` are the keys of the store's settings that must hold, ``others`` settings of the name server without
    effect. ``clock`` and ``fs`` are the broker's. The name server uses the system clock, so that brokers do not expire
    when a test advances the time.
    """

    given: Collection[str] = ()
    others: Mapping[str, str] = field(default_factory=dict)
    clock: Clock | None = None
    fs: FileSystem | None = None
    tls: TlsServer | None = None
    client_tls: ssl.SSLContext | None = None
    progress: Progress | None = None


class Standalone:
    """A name server and a broker. Construct it, ``start`` it, ``shutdown`` it, all on one event loop.

    Without ``namesrv`` there is only the broker, which registers at its ``namesrv_addr``. The name server's files are
    in ``namesrv/`` of the store, unless its settings give other paths. With a ``grpc_server_port`` the broker speaks
    gRPC too; that needs the extra ``grpc`` (raises ConfigError).
    """

    def __init__(
        self, store: str | Path, config: LiveConfig, namesrv: NamesrvConfig | None, extras: Extras | None = None
    ) -> None:
        self._extras = extras = extras or Extras()
        self.store_path, self.config = Path(store), config
        home = self.store_path / NAMESRV_FOLDER
        self.namesrv: NamesrvServer | None = None
        self._front: GrpcServer | None = None
        if config.broker.grpc_server_port != OFF:
            require_grpc()
        if namesrv is not None:
            self.namesrv = NamesrvServer(
                namesrv, home=home, others=extras.others, tls=extras.tls, client_tls=extras.client_tls
            )
        self.broker = BrokerServer(
            self.store_path,
            config,
            given=extras.given,
            clock=extras.clock,
            fs=extras.fs,
            tls=extras.tls,
            client_tls=extras.client_tls,
            progress=extras.progress,
        )

    @property
    def namesrv_address(self) -> str:
        """The name server's address for clients. Known after the start.

        Without a name server in this process, it is the broker's setting.
        """
        if self.namesrv is None:
            return self.config.broker.namesrv_addr
        if self.namesrv.configuration.config.bind_address in _ANYWHERE:
            return f"{self.config.broker.broker_ip1}:{self.namesrv.port}"
        return self.namesrv.address

    @property
    def broker_address(self) -> str:
        """The broker's address. Known after the start."""
        return self.broker.address

    @property
    def grpc_address(self) -> str | None:
        """The address for clients of gRPC; None without gRPC. Known after the start."""
        return None if self._front is None else f"{self.config.broker.broker_ip1}:{self._front.port}"

    async def start(self) -> None:
        """Start the servers. Returns when the broker has a route. After an error, what was started is stopped.

        Raises what BrokerServer.start and NamesrvServer.start raise.
        """
        await self._start_both()
        if self.config.broker.grpc_server_port == OFF:
            return
        try:
            await self._start_front()
        except BaseException:
            await self.shutdown()
            raise
        self.broker.before_reopening, self.broker.after_reopening = self._close_front, self._start_front

    async def _start_front(self) -> None:
        """Start gRPC, on the port that it had if it is started again."""
        port = self.config.broker.grpc_server_port if self._front is None else self._front.port
        front = grpc_front(self.broker, self._extras.clock or SystemClock(), self._extras.tls)
        await front.start(self.config.broker.bind_address, port)
        self._front = front

    async def _close_front(self) -> None:
        if self._front is not None:
            await self._front.close()

    async def failed(self) -> NoReturn:
        """Wait until the broker could not start again in place (see BrokerServer.failed)."""
        await self.broker.failed()

    async def _start_both(self) -> None:
        if self.namesrv is None:
            await self.broker.start()
            return
        await self.namesrv.start()
        try:
            self.config.broker = replace(self.config.broker, namesrv_addr=self.namesrv_address)
            await self.broker.start()
        except BaseException:
            await self.namesrv.shutdown()
            raise
        try:
            await self._route_answers()
        except BaseException:
            await self.shutdown()
            raise

    async def renew(self) -> int | None:
        """Renew the messages in work of gRPC's push consumers. Returns what GrpcServer.renew returns."""
        return None if self._front is None else await self._front.renew()

    async def shutdown(self) -> None:
        """Stop gRPC, the broker, which unregisters, then the name server. A second call has no effect."""
        await self._close_front()
        await self.broker.shutdown()
        if self.namesrv is not None:
            await self.namesrv.shutdown()

    async def abandon(self) -> None:
        """End as a killed process ends. The broker's ``fs`` must refuse further writes."""
        if self._front is not None:
            await self._front.abandon()
        await self.broker.abandon()
        if self.namesrv is not None:
            await self.namesrv.shutdown()

    async def _route_answers(self) -> None:
        """Ask for the broker's route over a socket, as a client does, until there is one."""
        client, name = RemotingClient(tls=self._extras.client_tls), self.config.broker.broker_name
        try:
            async with asyncio.timeout(_READY_WITHIN_S):
                while not await self._has_route(client, name):
                    await asyncio.sleep(_ASK_AGAIN_S)
        except TimeoutError as error:
            raise RemotingError(f"{self.namesrv_address}: the broker {name} has no route") from error
        finally:
            await client.close()

    async def _has_route(self, client: RemotingClient, topic: str) -> bool:
        request = RemotingCommand.request(GetRouteInfoRequestHeader(topic=topic))
        answer = await client.invoke(self.namesrv_address, request, int(_READY_WITHIN_S * 1000))
        return answer.code == ResponseCode.SUCCESS
