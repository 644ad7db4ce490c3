"""RocketMQ's proxy in CLUSTER mode: the gRPC protocol of RocketMQ 5 in front of the brokers of a cluster.

    proxy = Proxy(ProxyConfig(namesrv_addr="127.0.0.1:9876"))
    await proxy.start()
    print(proxy.address)
    await proxy.shutdown()

Source: ProxyStartup, ClusterServiceManager.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gantrymq.broker.acl.access_control import WATCH_INTERVAL_MS, AccessControl
from gantrymq.clock import SystemClock
from gantrymq.config.exporter_settings import DISABLE
from gantrymq.config.guards import accepted_names, require_honoured
from gantrymq.config.proxy_settings import ProxyConfig
from gantrymq.config.refused_keys import ServerKind, refused_keys
from gantrymq.embedded.grpc_front import load_grpc
from gantrymq.errors import ConfigError
from gantrymq.metrics.exporter import CLUSTER, NODE_ID, NODE_TYPE, MetricsExporter
from gantrymq.remoting.transport.tls import TlsServer

if TYPE_CHECKING:
    from gantrymq.grpc.brokers.cluster import ClusterBrokers
    from gantrymq.grpc.metrics import GrpcMetrics
    from gantrymq.grpc.server import GrpcServer


class Proxy:
    """A proxy. Construct it, ``start`` it, ``shutdown`` it, all on one event loop.

    ``client_tls`` is the context for connections to name servers and brokers, ``tls`` is how clients are answered that
    speak TLS; None: they are not. ``entries`` are the texts of all keys, those without effect included. ``accepted``
    has the refused reasons that acceptWithoutEffect names.

    Raises ConfigError without a name server, or without the extra ``grpc``, and NotHonouredError for a key that cannot
    be honoured.
    """

    def __init__(
        self,
        config: ProxyConfig,
        client_tls: ssl.SSLContext | None = None,
        tls: TlsServer | None = None,
        *,
        entries: Mapping[str, str] | None = None,
    ) -> None:
        refused = refused_keys(entries or {}, ServerKind.PROXY)
        self.accepted = require_honoured(refused, accepted_names(config.accept_without_effect))
        if not config.name_servers:
            raise ConfigError("namesrvAddr", "", "the address of a name server")
        if config.acl_enable and not config.acl_plain_file:
            raise ConfigError("aclPlainFile", "", "the plain_acl.yml of the brokers, with aclEnable=true")
        if config.authentication_enabled and config.acl_enable:
            raise ConfigError("aclEnable", True, "false with authenticationEnabled=true")
        if config.authorization_enabled and not config.authentication_enabled:
            raise ConfigError("authorizationEnabled", True, "false without authenticationEnabled=true")
        if config.authentication_enabled and config.inner_client is None:
            allowed = "the name and password of a super user of the brokers, with authenticationEnabled=true"
            raise ConfigError("innerClientAuthenticationCredentials", "", allowed)
        load_grpc()
        self._config, self._client_tls, self._tls = config, client_tls, tls
        self._server: GrpcServer | None = None
        self._brokers: ClusterBrokers | None = None
        self._watch: asyncio.Task[None] | None = None
        self._exporter: MetricsExporter | None = None

    @property
    def metrics_address(self) -> str:
        """``host:port`` of Prometheus' endpoint; empty without one."""
        return self._exporter.address if self._exporter is not None else ""

    @property
    def address(self) -> str:
        """``host:port`` for clients. Known after the start."""
        return f"{self._config.local_serve_addr}:{self._server.port if self._server is not None else 0}"

    async def start(self) -> None:
        """Listen. Raises RemotingError if a port is in use, ConfigError for an unreadable file of accounts."""
        from gantrymq.grpc.brokers.cluster import ClusterBrokers
        from gantrymq.grpc.protocol.signatures import SignatureGuard
        from gantrymq.grpc.server import GrpcServer

        config = self._config
        access = AccessControl(Path(config.acl_plain_file)) if config.acl_enable else None
        brokers = ClusterBrokers(config, self._client_tls)
        server = GrpcServer(
            config,
            brokers,
            SystemClock(),
            guard=brokers.users or SignatureGuard(access),
            advertised_host=config.local_serve_addr,
            tls=self._tls,
            metrics=self._bind_metrics(),
        )
        try:
            await server.start(config.bind_address, config.grpc_server_port)
        except BaseException:
            await self._close_metrics(is_last_exported=False)
            raise
        if self._exporter is not None:
            self._exporter.start()
        brokers.begin_heartbeats()
        self._server, self._brokers = server, brokers
        if access is not None:
            self._watch = asyncio.ensure_future(_reload(access))

    def _bind_metrics(self) -> GrpcMetrics | None:
        """Take the port of the metrics. Returns None if they are not exported."""
        from gantrymq.grpc.metrics import CLUSTER_MODE, GrpcMetrics, proxy_name

        config = self._config
        if config.metrics_exporter_type == DISABLE:
            return None
        name = proxy_name(config.proxy_name)
        metrics = GrpcMetrics(config.proxy_cluster_name, name, CLUSTER_MODE)
        node = {NODE_TYPE: "proxy", CLUSTER: config.proxy_cluster_name, NODE_ID: name}
        self._exporter = MetricsExporter(lambda: config, metrics.collect, node)
        self._exporter.bind(config.bind_address)
        return metrics

    async def _close_metrics(self, *, is_last_exported: bool) -> None:
        if self._exporter is not None:
            await self._exporter.close(is_last_exported=is_last_exported)

    async def shutdown(self) -> None:
        """End all calls, then the connections to brokers. A second call has no effect."""
        server, self._server = self._server, None
        if server is None or self._brokers is None:
            return
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch
        await self._close_metrics(is_last_exported=True)
        await server.close()
        await self._brokers.close()


async def _reload(access: AccessControl) -> None:
    while True:
        await asyncio.sleep(WATCH_INTERVAL_MS / 1000)
        access.reload()
