"""``gantrymq sql``."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gantrymq.cli.options import AsJson, ConfigFile, Settings
from gantrymq.cli.terminal import DONE, FINDINGS, USAGE, print_error, warn

if TYPE_CHECKING:
    import pyarrow as pa

    from gantrymq.client.settings import ClientConfig
    from gantrymq.tables.query.engine import Query
    from gantrymq.tables.query.sources import Views

_MAX_ROWS = 1000
_CELL_CHARACTERS = 200
_LEAST_64, _GREATEST_64 = -(1 << 63), (1 << 64) - 1

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE... QUERY",
        help="Stores, globs, landed tables or namesrv://host:port, then the query.",
        show_default=False,
    ),
]


def sql(
    words: Words,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, with a line of names.")] = False,
    max_rows: Annotated[
        int, typer.Option("-n", "--max", metavar="N", min=1, help="At most N rows in the table for people.")
    ] = _MAX_ROWS,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    r"""Query topics with SQL (DuckDB).

    Each topic is a view of its name; quote a name that is no plain word. Its
    columns: broker, topic, queue_id, queue_offset, generation, msg_id, keys,
    tags, properties, born_timestamp, store_timestamp, body. A landed table
    (Delta, Iceberg, Parquet) is a view with the last part of its path as name.
    Only what a query needs is read: count(*) reads no message. The query reads
    no other file, and nothing is written. Options stand before SOURCE. The
    exit code is 1 if messages were skipped because of damage.

    Examples of use:

        gantrymq sql /data/store "select count(*) from orders"
        gantrymq sql --json /data/store "select tags, count(*) as n from orders group by tags order by n desc"
        gantrymq sql --csv /data/store "select queue_offset, body from orders where list_contains(keys, '4711')"
        gantrymq sql namesrv://127.0.0.1:9876 "select max(store_timestamp) from \"%RETRY%billing\""
    """
    from gantrymq.tables.query.engine import Query
    from gantrymq.tables.query.sources import Views
    from gantrymq.tables.query.statement import QueryError

    if len(words) < 2:
        raise typer.BadParameter("give a SOURCE and a QUERY")
    if json and csv:
        raise typer.BadParameter("--json and --csv exclude each other")
    *sources, text = words
    try:
        with Views(sources, partial(_open_reader, config, set_), _client_config) as views:
            with closing(Query(views, text)) as query:
                print_all = _print_json if json else _print_csv if csv else partial(_print_table, max_rows)
                print_all(query)
            _end(views)
    except QueryError as error:
        print_error(str(error))
        raise SystemExit(USAGE) from error


def _open_reader(config: Path | None, settings: list[str] | None, path: Path) -> Any:
    from gantrymq.cli.opened import open_reader, read_options

    return open_reader(path, read_options(config, settings), trusts_writer=True)


def _client_config(name_servers: str) -> ClientConfig:
    from gantrymq.cli.connection import ClusterConnection
    from gantrymq.client.settings import ClientConfig

    connection = ClusterConnection.read({"namesrv": name_servers})
    return ClientConfig(
        connection.name_servers,
        namespace=connection.namespace,
        access_key=connection.access_key,
        secret_key=connection.secret_key,
        security_token=connection.security_token,
        tls=dict(connection.tls),
    )


def _end(views: Views) -> None:
    from gantrymq.cli.opened import end_reading
    from gantrymq.model.texts import count_text

    sys.stdout.flush()
    skipped = views.skipped
    for text in skipped.texts:
        warn(f"skipped: {text}")
    if skipped.count:
        warn(f"{count_text(skipped.count, 'message')} skipped: `gantrymq store verify` says what is damaged")
    end_reading(views.problems, FINDINGS if skipped.count else DONE, views.notes)


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The rows as values of Python. Two columns of one name get numbers, because a row of JSON has one of each."""
    names: list[str] = []
    for name in batch.schema.names:
        names.append(name if name not in names else f"{name}_{len(names)}")
    return iter(batch.rename_columns(names).to_pylist(maps_as_pydicts="lossy"))


def _print_json(query: Query) -> None:
    import orjson

    from gantrymq.cli.json_lines import StdoutPieces

    with StdoutPieces() as out:
        for batch in query:
            for row in _rows(batch):
                out.write_piece(orjson.dumps(_plain_row(row), option=orjson.OPT_APPEND_NEWLINE))


def _plain_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row fit for JSON. Bytes are text if they are UTF-8; otherwise null, and NAME_base64 has them."""
    plain: dict[str, Any] = {}
    for name, value in row.items():
        plain[name] = _plain(value)
        if isinstance(value, bytes) and plain[name] is None:
            plain[f"{name}_base64"] = base64.b64encode(value).decode("ascii")
    return plain


def _plain(value: Any, *, inner: bool = False) -> Any:
    match value:
        case bytes():
            try:
                return value.decode("utf-8")
            except UnicodeDecodeError:
                return base64.b64encode(value).decode("ascii") if inner else None
        case dict():
            return {str(_plain(name, inner=True)): _plain(item, inner=True) for name, item in value.items()}
        case tuple() if hasattr(value, "nanoseconds"):  # Arrow's interval of months, days and nanoseconds
            months, days, nanoseconds = value
            return f"P{months}M{days}DT{nanoseconds / 1e9:.9g}S"
        case list() | tuple():
            return [_plain(item, inner=True) for item in value]
        case Decimal():
            return _plain(int(value)) if value == value.to_integral_value() else float(value)
        case bool() | float() | str() | None:
            return value
        case int():
            return value if _LEAST_64 <= value <= _GREATEST_64 else str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
    return str(value)


def _text(value: Any) -> str:
    """A value as text, for CSV and for people."""
    plain = next(iter(reversed(_plain_row({"": value}).values())))
    if plain is None:
        return ""
    if isinstance(plain, str):
        return plain
    import orjson

    return orjson.dumps(plain).decode()


def _print_csv(query: Query) -> None:
    import csv
    import io

    from gantrymq.cli.json_lines import StdoutPieces

    with StdoutPieces() as out:
        buffer = io.StringIO(newline="")
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(query.schema.names)
        for batch in query:
            writer.writerows([_text(value) for value in row.values()] for row in _rows(batch))
            out.write_piece(buffer.getvalue().encode())
            buffer.seek(0)
            buffer.truncate()
        out.write_piece(buffer.getvalue().encode())


def _print_table(max_rows: int, query: Query) -> None:
    import pyarrow as pa

    from gantrymq.cli.terminal import print_table
    from gantrymq.model.texts import cut_text

    rows: list[list[str]] = []
    has_more = False
    for batch in query:
        for row in _rows(batch.slice(0, max_rows - len(rows))):
            rows.append([cut_text(_text(value), _CELL_CHARACTERS) for value in row.values()])
        if has_more := batch.num_rows and len(rows) >= max_rows:
            has_more = True
            break
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    is_number = [any(is_kind(field.type) for is_kind in numbers) for field in query.schema]
    names = [f">{name}" if number else name for name, number in zip(query.schema.names, is_number, strict=True)]
    print_table(names, rows)
    if has_more:
        print(f"the first {max_rows:,} rows: -n N shows more, --json and --csv print all")
