"""``gantrymq table status``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gantrymq.cli.options import AsJson
from gantrymq.cli.table.options import CatalogName, CatalogSet, Table, Warehouse, client_settings, target
from gantrymq.cli.terminal import print_line, print_pairs, print_table, warn

if TYPE_CHECKING:
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
    from gantrymq.tables.landing import lag_json
    from gantrymq.tables.status import read_status

    table_status = read_status(target(table, None, warehouse, catalog, catalog_set), client_settings)
    if table_status.lag_problem:
        warn(f"the lag is unknown: {table_status.lag_problem}")
    fields = {
        "kind": "summary",
        "rows": table_status.rows,
        "dead": table_status.dead,
        "missing": table_status.missing,
        "version": table_status.version,
        "positions": table_status.positions,
        "lag": lag_json(table_status.lag) if table_status.lag is not None else None,
        "files": table_status.files,
    }
    if json:
        from gantrymq.cli.json_lines import JsonLines

        with JsonLines() as lines:
            for commit in table_status.commits:
                lines.write(_commit(commit))
            lines.write(fields)
    else:
        _print(table, fields)
        _print_commits(table_status.commits)


def _commit(note: CommitNote) -> dict[str, Any]:
    numbers = {"rows": note.rows, "dead": note.dead, "missing": note.missing}
    return {"kind": "commit", "landing": note.landing, "timestamp": note.time_ms, **numbers}


def _print(table: str, fields: dict[str, Any]) -> None:
    from gantrymq.model.size import size_text

    lag = fields["lag"]
    text = "unknown"
    if lag is not None:
        text = f"{lag['messages']:,} messages, {size_text(lag['bytes'])}, {lag['seconds']:g} s"
    queues = sum(len(queues) for topics in fields["positions"].values() for queues in topics.values())
    pairs = [(name, f"{fields[name]:,}") for name in ("rows", "dead", "missing", "version", "files")]
    print_pairs(table, [*pairs, ("queues", f"{queues:,}"), ("lag", text)])


def _print_commits(commits: Sequence[CommitNote]) -> None:
    from gantrymq.model.texts import time_text

    if commits:
        print_line("")
        print_table(
            [">landing", "time", ">rows", ">dead", ">missing"],
            [[str(note.landing), time_text(note.time_ms), *(f"{number:,}" for number in note[2:])] for note in commits],
        )
