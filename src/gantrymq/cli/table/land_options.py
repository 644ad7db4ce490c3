"""The options of ``gantrymq table land``."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gantrymq.cli.options import whole_number
from gantrymq.cli.table.options import span_or_none_s, span_s

if TYPE_CHECKING:
    from gantrymq.tables.partitions import PartitionBy


class LandFormat(StrEnum):
    """The format of the table."""

    DELTA = "delta"
    ICEBERG = "iceberg"
    PARQUET = "parquet"


class BodyKind(StrEnum):
    """What the body of a message becomes."""

    RAW = "raw"
    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE... TABLE",
        help="Store directories, a glob, or namesrv://HOST:PORT; then the table: a path, a URI, or namespace.name.",
        show_default=False,
    ),
]
Topic = Annotated[
    list[str] | None, typer.Option("--topic", metavar="TOPIC", help="This topic. May be given more than once.")
]
Topics = Annotated[
    str | None,
    typer.Option("--topics", metavar="REGEX", help="The topics whose whole name matches; no system topics."),
]
FormatOption = Annotated[
    LandFormat | None, typer.Option("--format", help="Of a new table. Default: delta, or iceberg in a catalog.")
]
Once = Annotated[bool, typer.Option("--once", help="Land what is there, then exit. The default.")]
Every = Annotated[
    float | None,
    typer.Option("--every", metavar="SPAN", parser=span_s, help="Land again after each SPAN, until SIGTERM."),
]
Body = Annotated[BodyKind | None, typer.Option("--body", help="What the body becomes. Default: raw.")]
SchemaFile = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="FILE",
        help="Of json, avro and protobuf: a file (DDL, JSON Schema, .avsc, .desc), a registry's URL, or infer.",
    ),
]
MessageName = Annotated[
    str | None, typer.Option("--message", metavar="NAME", help="With --body protobuf: the message of a .desc.")
]
Retries = Annotated[bool, typer.Option("--retries", help="Also the messages of these topics that wait for a retry.")]
DeadLetters = Annotated[bool, typer.Option("--dlq", help="Also the dead letters of these topics.")]


def _partition(text: str) -> PartitionBy:
    from gantrymq.tables.partitions import PartitionBy

    return PartitionBy.parse(text)


PartitionOption = Annotated[
    Any,  # PartitionBy | None
    typer.Option(
        "--partition-by",
        parser=_partition,
        metavar="COLUMN[,COLUMN...]",
        help="Of a new table: none, or day, hour (of store_timestamp) and columns with one value, such as topic,day.",
    ),
]
UpsertBy = Annotated[
    str | None,
    typer.Option(
        "--upsert-by",
        metavar="COLUMN",
        help="Of a new table: one row for each value of this column, such as keys, id or after.id.",
    ),
]
OpField = Annotated[
    str | None,
    typer.Option(
        "--op-field",
        metavar="COLUMN",
        help="With --upsert-by: the column that says whether a message inserts, updates or deletes the row.",
    ),
]
CommitGroup = Annotated[
    str | None,
    typer.Option(
        "--commit-group",
        metavar="GROUP",
        help="Of a cluster: show the positions as offsets of this consumer group, after each commit.",
    ),
]
CommitRows = Annotated[
    int | None,
    typer.Option("--commit-rows", metavar="N", parser=whole_number(1), help="At most N rows a commit."),
]
MetricsSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Export metrics: metricsExporterType=PROM and the other keys of exporters. May be given more than once.",
    ),
]
Compact = Annotated[
    bool, typer.Option("--compact", help="Then rewrite the small files of each partition into larger ones.")
]
Ttl = Annotated[
    float | None,
    typer.Option(
        "--ttl",
        metavar="SPAN",
        parser=span_or_none_s,
        help="Then remove rows stored longer ago than SPAN, and land none. Remembered; none ends it.",
    ),
]
Expire = Annotated[
    float | None,
    typer.Option(
        "--expire",
        metavar="SPAN",
        parser=span_or_none_s,
        help="Then delete versions and unused files older than SPAN. Default: 7d with --compact or --ttl.",
    ),
]
