"""``gantrymq console``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.advice import advice
from gantrymq.cli.client_keys import ClientKeys, read_client_keys
from gantrymq.cli.connection import ClusterConnection, client_warnings, connects
from gantrymq.cli.opened import read_options
from gantrymq.cli.options import AsJson, ConfigFile, Settings
from gantrymq.cli.table.options import CatalogName, CatalogSet, Warehouse, client_settings, target

if TYPE_CHECKING:
    from gantrymq.console.page_request import Site

_DEFAULT_PORT = 8580

ShownTables = Annotated[
    list[str] | None,
    typer.Option("--table", metavar="TABLE", help="Also show this table of topics; may be repeated."),
]
HttpsCertificate = Annotated[
    Path | None,
    typer.Option("--https-cert", metavar="FILE", help="Speak HTTPS: the certificate chain, PEM.", show_default=False),
]
HttpsKey = Annotated[
    Path | None, typer.Option("--https-key", metavar="FILE", help="Its private key.", show_default=False)
]


def console(
    store: Annotated[
        Path | None,
        typer.Argument(metavar="[STORE]", help="A store directory instead of a cluster.", show_default=False),
    ] = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="ADDRESS", help="The IP address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="0 takes a free one.")
    ] = _DEFAULT_PORT,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Allow changes of the cluster; without it the console only reads.")
    ] = False,
    host_name: Annotated[
        list[str] | None,
        typer.Option("--host-name", metavar="NAME", help="Also answer under this name; may be repeated."),
    ] = None,
    token: Annotated[
        bool, typer.Option("--token", help="Require a token on loopback too, where other users have accounts.")
    ] = False,
    https_cert: HttpsCertificate = None,
    https_key: HttpsKey = None,
    client_keys: ClientKeys = None,
    table: ShownTables = None,
    warehouse: Warehouse = None,
    catalog: CatalogName = None,
    catalog_set: CatalogSet = None,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
    *,
    connection: ClusterConnection | None,
) -> None:
    """Serve web pages about a cluster, or about a store directory, until Ctrl-C.

    A line on stdout has the address. On other addresses than loopback it has a
    token, which is printed only there. Changes need --allow-changes.

    Examples of use:

        gantrymq console -n 127.0.0.1:9876
        gantrymq console -n 127.0.0.1:9876 --allow-changes --port 0
        gantrymq console --listen 0.0.0.0 --host-name mq.example.com
        gantrymq console /data/store
        gantrymq console /data/store --table /lake/orders --table /lake/bills
    """
    from gantrymq.cli.serving import serve_until_stopped
    from gantrymq.console.security import new_token
    from gantrymq.console.server import ConsoleServer, access_rules

    if connection is not None and (config is not None or set_):
        raise typer.BadParameter("-c and --set are for a STORE; a cluster has its own settings")
    if (https_cert is None) != (https_key is None):
        raise typer.BadParameter("--https-cert and --https-key go together")
    site = _store_site(store, config, set_) if connection is None else _cluster_site(connection, client_keys)
    if table:
        from gantrymq.console.tables.pages import with_tables

        targets = [target(name, None, warehouse, catalog, catalog_set) for name in table]
        site = with_tables(site, targets, client_settings)
    access = access_rules(
        listen, allow_changes=allow_changes, token=new_token() if token else None, host_names=tuple(host_name or ())
    )
    with client_warnings(), advice():
        certificate = None if https_cert is None or https_key is None else (https_cert, https_key)
        server = ConsoleServer(site, access, address=listen, port=port, certificate=certificate)
        serve_until_stopped(server, json=json, verbose=False)


console = connects(console, unless="store")


def _cluster_site(connection: ClusterConnection, client_keys: list[str] | None) -> Site:
    from gantrymq.client.settings import ClientConfig
    from gantrymq.console.cluster.site import cluster_site

    settings = {**connection.settings, **read_client_keys(ClientConfig, client_keys)}
    return cluster_site(ClientConfig(connection.name_servers, **settings))


def _store_site(store: Path | None, config: Path | None, assignments: list[str] | None) -> Site:
    from gantrymq.console.store.site import store_site
    from gantrymq.fs.real import RealFileSystem
    from gantrymq.store.geometry import require_store
    from gantrymq.store.paths import StorePaths

    assert store is not None
    reading = read_options(config, assignments)
    require_store(RealFileSystem(), StorePaths.of(store, reading.config))
    return store_site(store, reading)
