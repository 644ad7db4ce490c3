"""The options that the commands of ``gantrymq table`` share."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.model.spans import parse_span_ms

if TYPE_CHECKING:
    from gantrymq.client.settings import ClientSettings
    from gantrymq.tables.local.target import TableTarget
    from gantrymq.tables.sources.group_offsets import GroupOffsets

Table = Annotated[str, typer.Argument(metavar="TABLE", help="The table: a path, a URI, or namespace.name.")]
_MAX_SPAN_S = 100 * 366 * 86_400  # a sleep of centuries overflows the platform's clock

Warehouse = Annotated[
    str | None,
    typer.Option(
        "--warehouse",
        metavar="DIR",
        help="Iceberg: TABLE is namespace.name in this directory, with a catalog in a SQLite file.",
    ),
]
CatalogName = Annotated[
    str | None,
    typer.Option("--catalog", metavar="NAME", help="Iceberg: TABLE is namespace.name in this catalog of PyIceberg."),
]
CatalogSet = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog-set",
        metavar="KEY=VALUE",
        help="A setting of the catalog, such as uri=http://host:8181. May be given more than once.",
    ),
]


def span_s(text: str) -> float:
    """A parser of spans of time: 500ms, 30s, 5m, 1h, 2d. Returns seconds."""
    seconds = (parse_span_ms(str(text)) or 0) / 1000
    if not 0 < seconds <= _MAX_SPAN_S:
        raise typer.BadParameter(f"{text!r} is not a span of time such as 500ms, 30s, 5m or 1h")
    return seconds


def span_or_none_s(text: str) -> float:
    """A parser of spans, and of ``none``. Returns seconds, 0 for none."""
    return 0.0 if str(text) == "none" else span_s(text)


def client_settings(sources: list[str]) -> ClientSettings:
    """The settings of the client of a cluster, from the profile and the environment. Raises ConfigError."""
    from gantrymq.cli.connection import ClusterConnection
    from gantrymq.tables.sources import name_servers_of

    name_servers = name_servers_of(sources[0])
    if name_servers is None:
        return {}
    settings = ClusterConnection.read({"namesrv": name_servers}).settings
    return {**settings, "namespace": ""}  # topics are named in full, as in a store


def shown_offsets(sources: list[str], group: str) -> AbstractContextManager[GroupOffsets]:
    """The offsets of a group that shows the positions of a landing. Raises ConfigError."""
    from gantrymq.cli.terminal import warn
    from gantrymq.tables.sources.group_offsets import group_offsets

    return group_offsets(sources, group, client_settings(sources), warn)


def target(
    table: str,
    format_: str | None = None,
    warehouse: str | None = None,
    catalog: str | None = None,
    catalog_set: list[str] | None = None,
) -> TableTarget:
    """The table that the options name. Raises BadParameter, ConfigError."""
    is_in_catalog = format_ == "iceberg" or warehouse is not None or catalog is not None
    # The library first: without it the line names the extra that has all that is needed.
    import_module("pyiceberg" if is_in_catalog else "pyarrow" if format_ == "parquet" else "deltalake")
    from gantrymq.tables.local.target import TableFormat, TableTarget

    if catalog_set and catalog is None:
        raise typer.BadParameter("--catalog-set is for --catalog")
    settings = {}
    for assignment in catalog_set or ():
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"--catalog-set {assignment!r} is not KEY=VALUE")
        settings[key] = value
    meant = TableTarget(table, TableFormat(format_) if format_ else None, warehouse, catalog, settings)
    meant.resolved_format  # noqa: B018  raises for options that contradict each other
    return meant
