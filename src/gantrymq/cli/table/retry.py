"""``gantrymq table retry``."""

from __future__ import annotations

from typing import Annotated

import typer

from gantrymq.cli.options import AsJson, whole_number
from gantrymq.cli.table.land_options import MessageName
from gantrymq.cli.table.options import CatalogName, CatalogSet, Table, Warehouse, target
from gantrymq.cli.terminal import FINDINGS, print_line


def retry(
    table: Table,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="FILE", help="A schema, which becomes the table's. Default: the table's."),
    ] = None,
    message: MessageName = None,
    max_body_bytes: Annotated[
        int | None,
        typer.Option(
            "--max-body-bytes",
            metavar="N",
            parser=whole_number(1),
            help="Decompress bodies up to this size. Default: 67108864.",
        ),
    ] = None,
    warehouse: Warehouse = None,
    catalog: CatalogName = None,
    catalog_set: CatalogSet = None,
    json: AsJson = False,
) -> None:
    """Move the dead rows that are readable now into the table, exactly once.

    A new schema, a repaired registry or a higher limit may make rows of
    TABLE__dead readable. They become rows as if they had just landed. The others
    stay with the new reason. The command may be killed at any time. The exit
    code is 1 while a row is left.

    Examples of use:

        gantrymq table retry /lake/orders --schema orders-v2.ddl
        gantrymq table retry sales.orders --warehouse /lake --json
    """
    meant = target(table, None, warehouse, catalog, catalog_set)
    from gantrymq.model.size import MAX_DECOMPRESSED_BODY_SIZE
    from gantrymq.tables.local.retry import retry as run
    from gantrymq.tables.options import LandOptions

    limit = max_body_bytes or MAX_DECOMPRESSED_BODY_SIZE
    retried = run(meant.open(), LandOptions(schema=schema, message=message), limit)
    if json:
        from gantrymq.cli.json_lines import JsonLines

        with JsonLines() as lines:
            lines.write({"kind": "summary", "moved": retried.moved, "left": retried.left})
    else:
        from gantrymq.model.texts import count_text

        print_line(f"{count_text(retried.moved, 'row')} moved; {count_text(retried.left, 'dead row')} left")
    if retried.left:
        raise typer.Exit(FINDINGS)
