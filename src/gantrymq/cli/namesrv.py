"""``gantrymq namesrv``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.options import AsJson, Settings
from gantrymq.cli.server_options import Verbose, read_server_options, warn_of_acceptances

if TYPE_CHECKING:
    from gantrymq.namesrv.server import NamesrvServer


def namesrv(
    listen_port: Annotated[
        int | None,
        typer.Option(
            "--listen-port", metavar="PORT", min=0, max=65535, help="0 takes a free one.", show_default="9876"
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("-c", "--config", metavar="FILE", exists=True, dir_okay=False, help="A namesrv.conf."),
    ] = None,
    set_: Settings = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> None:
    """Run a name server: brokers register here, clients ask for routes.

    It listens on loopback unless bindAddress is set, and keeps its files in
    ~/namesrv. With -c, settings that a tool changes are saved in that file.
    SIGTERM and Ctrl-C stop it.

    Examples of use:

        gantrymq namesrv
        gantrymq namesrv --listen-port 0 --json
        gantrymq namesrv -c namesrv.conf --set bindAddress=0.0.0.0
    """
    from gantrymq.cli.serving import serve_until_stopped
    from gantrymq.namesrv.server import NamesrvServer
    from gantrymq.namesrv.settings import is_known, without_effect

    settings = read_server_options(config, set_)
    read = settings.namesrv(listen_port, Path.home() / "namesrv", own_port=True)
    if config is not None and not read.config_store_path:
        read = replace(read, config_store_path=str(config))
    settings.warn_if_exposed(read.bind_address, acl=read.authentication_enabled or None)
    others = without_effect(settings.entries)
    server = NamesrvServer(read, others=others, tls=settings.tls(), client_tls=settings.client_tls())
    warn_of_acceptances((), read.accept_without_effect, is_known)  # the name server itself logs what it accepts
    serve_until_stopped(_Announced(server), json=json, verbose=verbose)


class _Announced:
    """The name server with the methods that serve_until_stopped needs."""

    def __init__(self, server: NamesrvServer) -> None:
        self._server = server
        self.start, self.shutdown = server.start, server.shutdown

    def announcement(self) -> Mapping[str, object]:
        return {"namesrv": self._server.address}
