"""``gantrymq table status``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantrymq.cli.options import AsJson
from gantrymq.cli.table.options import CatalogName, CatalogSet, Table, Warehouse, client_settings, target
from gantrymq.cli.terminal import print_line, print_pairs, print_table, warn

if TYPE_CHECKING:
    from gantrymq.tables.engine import Head
    from gantrymq.tables.state import CommitNote


def status(
    table: Table,
    warehouse: Warehouse = None,
    catalog: CatalogName = None,
    catalog_set: CatalogSet = None,
    json: AsJson = False,
) -> None:
    """Show what a table has of its topics, and how far it is behind its sources.

    Rows and dead rows are those that are in the tables, missing messages those
    of all landings, the last ten commits those of landings and retries. The lag
    is measured at the sources of the last landing, which the table remembers; it
    is null if they cannot be reached. Nothing is changed.

    Examples of use:

        gantrymq table status /lake/orders
        gantrymq table status sales.orders --warehouse /lake --json
    """
    from gantrymq.tables.columns import DEAD
    from gantrymq.tables.local.engine import LocalEngine

    meant = target(table, None, warehouse, catalog, catalog_set)
    meant.refuse_missing_catalog()
    engine = LocalEngine(meant.open())
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
    commits = [_commit(note) for note in head.state.commits]
    if json:
        from gantrymq.cli.json_lines import JsonLines

        with JsonLines() as lines:
            for commit in commits:
                lines.write(commit)
            lines.write(fields)
    else:
        _print(table, fields)
        _print_commits(head)


def _commit(note: CommitNote) -> dict[str, Any]:
    numbers = {"rows": note.rows, "dead": note.dead, "missing": note.missing}
    return {"kind": "commit", "landing": note.landing, "timestamp": note.time_ms, **numbers}


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


def _print_commits(head: Head) -> None:
    from gantrymq.model.texts import time_text

    if head.state.commits:
        print_line("")
        print_table(
            [">landing", "time", ">rows", ">dead", ">missing"],
            [
                [str(note.landing), time_text(note.time_ms), *(f"{number:,}" for number in note[2:])]
                for note in head.state.commits
            ],
        )
