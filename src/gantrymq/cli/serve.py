"""``gantrymq serve``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from gantrymq.cli.options import AsJson, ConfigFile, Settings
from gantrymq.cli.server_options import (
    GrpcPort,
    ListenPort,
    ServerSettings,
    StoreDirectory,
    Verbose,
    read_server_options,
)
from gantrymq.cli.terminal import warn

if TYPE_CHECKING:
    from gantrymq.cli.terminal import Report
    from gantrymq.config.broker_settings import LiveConfig
    from gantrymq.embedded.standalone import Standalone
    from gantrymq.namesrv.settings import NamesrvConfig


def serve(
    store: StoreDirectory = None,
    namesrv_port: Annotated[
        int | None,
        typer.Option(
            "--namesrv-port", metavar="PORT", min=0, max=65535, help="0 takes a free one.", show_default="9876"
        ),
    ] = None,
    listen_port: ListenPort = None,
    grpc_port: GrpcPort = None,
    no_namesrv: Annotated[
        bool, typer.Option("--no-namesrv", help="Run only the broker; it registers at namesrvAddr.")
    ] = False,
    config: ConfigFile = None,
    set_: Settings = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> None:
    """Run a name server and a broker in one process.

    A line on stdout has both addresses when the name server has the broker's
    route (with --no-namesrv, when the broker listens; see broker).
    They listen on loopback unless bindAddress is set; brokerIP1 is the
    address for clients. SIGTERM and Ctrl-C shut down cleanly.

    Examples of use:

        gantrymq serve
        gantrymq serve --store /data/store --namesrv-port 0 --listen-port 0 --json
        gantrymq serve -c broker.conf --set flushDiskType=SYNC_FLUSH
        gantrymq serve --grpc-port 8081
        gantrymq serve --set bindAddress=0.0.0.0 --set brokerIP1=10.1.2.3
    """
    settings = read_server_options(config, set_)
    from gantrymq.embedded.standalone import NAMESRV_FOLDER

    path = settings.store(store)
    live = settings.broker(listen_port, path, grpc_port)
    namesrv = None if no_namesrv else settings.namesrv(namesrv_port, path / NAMESRV_FOLDER, own_port=False)
    if namesrv is not None and live.broker.name_servers:
        warn(f"namesrvAddr={live.broker.namesrv_addr} has no effect without --no-namesrv")
    if namesrv is None and not live.broker.name_servers:
        warn("namesrvAddr is not set: the broker registers nowhere")
    run(settings, path, live, namesrv, verbose=verbose, json=json)


def run(
    settings: ServerSettings,
    store: Path,
    live: LiveConfig,
    namesrv: NamesrvConfig | None,
    *,
    verbose: bool,
    json: bool,
) -> None:
    """Run the servers until a signal arrives."""
    from gantrymq.cli.serving import serve_until_stopped
    from gantrymq.embedded.standalone import Extras, Standalone
    from gantrymq.namesrv.settings import without_effect
    from gantrymq.remoting.transport.tls import TlsServer

    settings.warn_if_exposed(live.broker.bind_address, acl=live.broker.is_guarded)
    others = without_effect(settings.entries)
    tls, client_tls = settings.tls(), settings.client_tls()
    if live.broker.grpc_server_port >= 0:
        tls = tls or TlsServer()  # the default of the remoting servers

    def made(report: Report | None) -> Standalone:
        given = frozenset(settings.entries)
        extras = Extras(given=given, others=others, tls=tls, client_tls=client_tls, progress=report)
        return Standalone(store, live, namesrv, extras)

    server = _Announced(made)
    serve_until_stopped(server, json=json, verbose=verbose, failed=server.failed)


class _Announced:
    """Name server and broker for serve_until_stopped, with a progress bar while a large store recovers."""

    def __init__(self, made: Callable[[Report | None], Standalone]) -> None:
        self._made = made

    async def start(self) -> None:
        from gantrymq.cli.terminal import progress

        with progress() as report:
            self._pair = self._made(report)
            await self._pair.start()

    async def shutdown(self) -> None:
        await self._pair.shutdown()

    async def failed(self) -> NoReturn:
        await self._pair.failed()

    def announcement(self) -> Mapping[str, object]:
        pair = self._pair
        store = str(pair.store_path)
        ready = {"namesrv": pair.namesrv_address or None, "broker": pair.broker_address, "store": store}
        return ready if pair.grpc_address is None else ready | {"grpc": pair.grpc_address}
