"""``gantrymq table status``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gantrymq.cli.options import AsJson
from gantrymq.cli.table.options import CatalogName, CatalogSet, Warehouse, client_settings, target
from gantrymq.cli.terminal import print_pairs, warn

if TYPE_CHECKING:
    from gantrymq.tables.engine import Head


def status(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table: a path, a URI, or namespace.name.")],
    warehouse: Warehouse = None,
    catalog: CatalogName = None,
    catalog_set: CatalogSet = None,
    json: AsJson = False,
) -> None:
    """Show what a table has of its topics, and how far it is behind its sources.

    Rows and dead rows are those that are in the tables, missing messages those
    of all landings. The lag is measured at the sources of the last landing, which the table remembers; it
    is null if they cannot be reached. Nothing is changed.

    Examples of use:

        gantrymq table status /lake/orders
        gantrymq table status sales.orders --warehouse /lake --json
    """
    from gantrymq.tables.columns import DEAD
    from gantrymq.tables.local.engine import LocalEngine

    engine = LocalEngine(target(table, None, warehouse, catalog, catalog_set).open())
    head = engine.look()
    fields = {
        "kind": "summary",
        "rows": engine.count_rows(),
        "dead": engine.count_rows(DEAD),
        "missing": head.state.totals.missing,
        "version": head.version,
        "positions": head.state.positions(),
        "lag": _lag(head),
        "files": engine.count_files(),
    }
    if json:
        from gantrymq.cli.json_lines import JsonLines

        with JsonLines() as lines:
            lines.write(fields)
    else:
        _print(table, fields)


def _lag(head: Head) -> dict[str, float] | None:
    from gantrymq.errors import GantrymqError
    from gantrymq.tables.landing import lag_json
    from gantrymq.tables.options import LandOptions
    from gantrymq.tables.sources import open_source

    options = LandOptions().merged(head.state.options)
    sources = list(options.sources)
    if not sources:
        return None
    try:
        return lag_json(open_source(sources, options.choice(), client_settings(sources)).lag(head.state))
    except (GantrymqError, OSError) as error:
        warn(f"the lag is unknown: {error}")
        return None


def _print(table: str, fields: dict[str, Any]) -> None:
    from gantrymq.model.size import size_text

    lag = fields["lag"]
    text = "unknown"
    if lag is not None:
        text = f"{lag['messages']:,} messages, {size_text(lag['bytes'])}, {lag['seconds']:g} s"
    queues = sum(len(queues) for topics in fields["positions"].values() for queues in topics.values())
    pairs = [(name, f"{fields[name]:,}") for name in ("rows", "dead", "missing", "version", "files")]
    print_pairs(table, [*pairs, ("queues", f"{queues:,}"), ("lag", text)])
