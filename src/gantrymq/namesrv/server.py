"""The name server: constructs all its parts, and starts and stops them in order.

    server = NamesrvServer(NamesrvConfig(listen_port=0), home=Path("/data/namesrv"))
    await server.start()     # listening
    print(server.address)
    await server.shutdown()

Source: NamesrvController.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from gantrymq.clock import Clock, SystemClock, monotonic_ms
from gantrymq.config.refused_keys import ServerKind, warned_keys
from gantrymq.errors import RemotingError
from gantrymq.fs.api import FileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.logs import get_logger
from gantrymq.namesrv.access import RELOAD_S, NamesrvAccess
from gantrymq.namesrv.configuration import NamesrvConfiguration
from gantrymq.namesrv.kv_config import WIPED_BROKERS, KVConfigManager
from gantrymq.namesrv.processors.brokers import BrokerProcessor
from gantrymq.namesrv.processors.config import ConfigProcessor
from gantrymq.namesrv.processors.topics import TopicProcessor
from gantrymq.namesrv.routes import Leaving, MinBrokerIdNotice, RouteInfoManager
from gantrymq.namesrv.settings import NamesrvConfig, require_honoured
from gantrymq.namesrv.unregistration import BatchUnregistration
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import MAX_FRAME_BYTES, RemotingCommand
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.client import RemotingClient, signing
from gantrymq.remoting.transport.dispatcher import BodyLimits, RequestDispatcher
from gantrymq.remoting.transport.server import RemotingServer
from gantrymq.remoting.transport.shared import ServerLimits
from gantrymq.remoting.transport.tls import TlsServer

_SETTINGS_PART = 16  # see maxRequestBodyBytes

log = get_logger("gantrymq.namesrv")


class NamesrvServer:
    """A name server. Construct it, ``start`` it, ``shutdown`` it, all on one event loop.

    ``home`` has its files unless the settings give other paths: ``kvConfig.json`` and, after a tool changed a setting,
    ``namesrv.properties``. Files are created when there is something to store. ``others`` are settings without effect,
    which are shown. ``client_tls`` is for requests to brokers.

    Raises ConfigError and StoreError if authenticationEnabled has no users to read, and
    NotHonouredError for a key that cannot be honoured, unless acceptWithoutEffect names it. ``accepted`` has the
    reasons that were accepted.
    """

    def __init__(
        self,
        config: NamesrvConfig | None = None,
        *,
        home: Path | None = None,
        others: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        fs: FileSystem | None = None,
        tls: TlsServer | None = None,
        client_tls: ssl.SSLContext | None = None,
    ) -> None:
        self._clock, fs = clock or SystemClock(), fs or RealFileSystem()
        self._others = dict(others or {})
        given = (config or NamesrvConfig()).with_home(home or Path.home() / "namesrv")
        self.accepted = require_honoured(given, self._others)
        self.configuration = NamesrvConfiguration(fs, given, others)
        self.kv = KVConfigManager(fs, Path(given.kv_config_path), lambda: self.configuration.config.max_kv_config_bytes)
        self.routes = RouteInfoManager(lambda: monotonic_ms(self._clock), lambda: self.configuration.config)
        self._access = NamesrvAccess(given, fs, self._clock) if given.authentication_enabled else None
        self._client = RemotingClient(tls=client_tls, hooks=signing(given.inner_client))
        self._dispatcher = RequestDispatcher(
            hooks=() if self._access is None else (self._access.refusal,),
            when_closed=self._channel_closed,
            body_limits=BodyLimits(
                given.max_request_body_bytes,
                {
                    RequestCode.REGISTER_BROKER: MAX_FRAME_BYTES,
                    RequestCode.UPDATE_NAMESRV_CONFIG: given.max_request_body_bytes // _SETTINGS_PART,
                },
            ),
        )
        self._server = RemotingServer(
            self._dispatcher,
            tls=tls,
            idle_seconds=given.server_channel_max_idle_time_seconds,
            limits=ServerLimits(
                given.max_connections,
                given.max_request_header_bytes,
                given.max_partial_request_bytes,
                given.max_unread_response_bytes,
                max_body_bytes=self._dispatcher.max_body_bytes,
            ),
        )
        self._leaving: BatchUnregistration[Leaving] = BatchUnregistration(
            self._unregister, lambda: self.configuration.config.un_register_broker_queue_capacity
        )
        self._notifications: set[asyncio.Task[None]] = set()
        self._scanning: asyncio.TimerHandle | None = None
        self._reloading: asyncio.TimerHandle | None = None
        self._stopping = False
        self.port = 0

    @property
    def address(self) -> str:
        """``host:port`` for clients and brokers. Known after the start."""
        host = self.configuration.config.bind_address
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    async def start(self) -> None:
        """Read the stored values, and listen.

        Raises RemotingError if the port is in use, StoreError if kvConfig.json has another format.
        """
        config = self.configuration.config
        for reason in warned_keys(self._others, ServerKind.NAMESRV):
            log.warning(reason.text)
        for reason in self.accepted:
            log.warning(f"accepted without effect: {reason.text}")
        self.kv.load()
        self.routes.wiped = self.kv.keys(WIPED_BROKERS)
        for processor in (
            BrokerProcessor(self.routes, self.kv, self.configuration, self._leaving.submit, self._notify),
            TopicProcessor(self.routes, self.kv, self.configuration, lambda: monotonic_ms(self._clock)),
            ConfigProcessor(self.kv, self.configuration),
        ):
            for code, answer in processor.by_code().items():
                self._dispatcher.register(answer, code)
        self.port = await self._server.start(config.bind_address, config.listen_port)
        self.configuration.config = replace(config, listen_port=self.port)
        self._scan_later()
        self._reload_later()

    async def shutdown(self) -> None:
        """Stop listening and close every connection. A second call, and a call after a failed start, has no effect."""
        if self._stopping:
            return
        self._stopping = True
        if self._scanning is not None:
            self._scanning.cancel()
        if self._reloading is not None:
            self._reloading.cancel()
        await self._server.close()
        await self._dispatcher.drain()
        if self._notifications:
            await asyncio.wait(self._notifications)
        await self._client.close()

    # Brokers that expire

    def scan_not_active_broker(self) -> None:
        """Close the connections of brokers without a recent heartbeat, and remove the brokers."""
        for leaving in self.routes.leaving(self.routes.expired()):
            broker_key = leaving.broker_key
            log.warning(
                "a broker was silent for too long", cluster=broker_key.cluster_name, address=broker_key.broker_addr
            )
            channel = self.routes.channel_of(broker_key)
            self._leaving.submit(leaving)
            if isinstance(channel, Channel):
                channel.abort()

    def _scan_later(self) -> None:
        interval_ms = self.configuration.config.scan_not_active_broker_interval_ms
        self._scanning = asyncio.get_running_loop().call_later(interval_ms / 1000, self._scan)

    def _scan(self) -> None:
        self._scan_later()  # first, so that an error does not end the scans
        self.scan_not_active_broker()

    def _reload_later(self) -> None:
        if self._access is not None:
            self._reloading = asyncio.get_running_loop().call_later(RELOAD_S, self._reload, self._access)

    def _reload(self, access: NamesrvAccess) -> None:
        self._reload_later()
        access.reload()

    def _channel_closed(self, channel: Channel) -> None:
        if not self._stopping:
            for leaving in self.routes.leaving(self.routes.of_channel(channel)):
                self._leaving.submit(leaving)

    def _unregister(self, leaving: list[Leaving]) -> None:
        self._notify(self.routes.unregister(leaving))

    # Notices

    def _notify(self, notices: Iterable[MinBrokerIdNotice]) -> None:
        for notice in notices:
            task = asyncio.ensure_future(self._send_notice(notice))
            self._notifications.add(task)
            task.add_done_callback(self._notifications.discard)

    async def _send_notice(self, notice: MinBrokerIdNotice) -> None:
        for address in notice.addresses:
            try:
                await self._client.invoke_oneway(address, RemotingCommand.request(notice.header))
            except RemotingError as error:
                log.warning("a broker did not get the new lowest id", address=address, reason=str(error))
