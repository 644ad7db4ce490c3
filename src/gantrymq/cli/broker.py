"""``gantrymq broker``."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from gantrymq.cli.options import AsJson, ConfigFile, Settings
from gantrymq.cli.serve import run
from gantrymq.cli.server_options import GrpcPort, ListenPort, StoreDirectory, Verbose, read_server_options
from gantrymq.cli.terminal import warn


def broker(
    store: StoreDirectory = None,
    namesrv: Annotated[
        str | None,
        typer.Option("-n", "--namesrv", metavar="ADDRESSES", help="host:port;host:port; wins over namesrvAddr."),
    ] = None,
    listen_port: ListenPort = None,
    grpc_port: GrpcPort = None,
    config: ConfigFile = None,
    set_: Settings = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> None:
    """Run a broker that registers at external name servers, gantrymq's or RocketMQ's.

    A line on stdout has its address when it listens and has tried to register
    at each name server once. A name server that does not answer is named on
    stderr, and retried. SIGTERM and Ctrl-C shut down cleanly. The command
    serve runs a name server in the same process.

    Examples of use:

        gantrymq broker -n 127.0.0.1:9876
        gantrymq broker -c broker.conf --store /data/store
        gantrymq broker -n 'ns1:9876;ns2:9876' --set brokerName=broker-b --listen-port 0
    """
    settings = read_server_options(config, set_)
    path = settings.store(store)
    live = settings.broker(listen_port, path, grpc_port)
    if namesrv is not None:
        live.broker = replace(live.broker, namesrv_addr=namesrv)
    if not live.broker.name_servers:
        warn("neither --namesrv nor namesrvAddr is set: the broker registers nowhere")
    run(settings, path, live, None, verbose=verbose, json=json)
