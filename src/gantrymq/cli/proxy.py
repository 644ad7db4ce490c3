"""``gantrymq proxy``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.options import AsJson, Settings
from gantrymq.cli.server_options import Verbose, read_server_options, warn_of_acceptances
from gantrymq.cli.terminal import warn

if TYPE_CHECKING:
    from gantrymq.embedded.proxy import Proxy


def proxy(
    namesrv: Annotated[
        str | None,
        typer.Option("-n", "--namesrv", metavar="ADDRESSES", help="host:port;host:port; wins over namesrvAddr."),
    ] = None,
    grpc_port: Annotated[
        int | None,
        typer.Option("--grpc-port", metavar="PORT", min=0, max=65535, help="0 takes a free one.", show_default="8081"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            *("-c", "-pc", "--config"),
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="RocketMQ's rmq-proxy.json, or its keys as properties.",
        ),
    ] = None,
    set_: Settings = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> None:
    """Serve the clients of RocketMQ 5 (gRPC) for a cluster of brokers.

    The brokers are gantrymq's or RocketMQ's, at the name servers given. One
    broker needs no proxy: see serve --grpc-port. SIGTERM and Ctrl-C stop it.

    Examples of use:

        gantrymq proxy -n 127.0.0.1:9876
        gantrymq proxy -n 127.0.0.1:9876 -pc conf/rmq-proxy.json
        gantrymq proxy -n 'ns1:9876;ns2:9876' --set bindAddress=0.0.0.0 --set localServeAddr=10.1.2.3
    """
    from gantrymq.cli.serving import serve_until_stopped
    from gantrymq.config.proxy_settings import is_known, proxy_warnings, read_proxy_config
    from gantrymq.embedded.proxy import Proxy
    from gantrymq.remoting.transport.tls import TlsServer

    settings = read_server_options(config, set_, is_known)
    for warning in proxy_warnings(settings.entries):
        warn(warning)
    read = read_proxy_config(settings.entries)
    read = read if namesrv is None else replace(read, namesrv_addr=namesrv)
    read = read if grpc_port is None else replace(read, grpc_server_port=grpc_port)
    settings.warn_if_exposed(read.bind_address, acl=read.acl_enable or read.authentication_enabled)
    server = Proxy(read, settings.client_tls(), settings.tls() or TlsServer(), entries=settings.entries)
    warn_of_acceptances(server.accepted, read.accept_without_effect, is_known)
    serve_until_stopped(_Announced(server), json=json, verbose=verbose)


class _Announced:
    """The proxy with the methods that serve_until_stopped needs."""

    def __init__(self, server: Proxy) -> None:
        self._server = server
        self.start, self.shutdown = server.start, server.shutdown

    def announcement(self) -> Mapping[str, object]:
        return {"grpc": self._server.address}
