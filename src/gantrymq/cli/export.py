"""``gantrymq store export``."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.opened import read_options, warn_of_contents
from gantrymq.cli.options import AsJson, Begin, ConfigFile, End, Settings, Store, count, queue_number
from gantrymq.cli.spark_engine import Engine, EngineOption, SparkConf
from gantrymq.cli.stop_signals import interrupt_on_sigterm
from gantrymq.cli.terminal import FINDINGS, print_error, warn

if TYPE_CHECKING:
    from gantrymq.config.reading import Reading
    from gantrymq.tools.export_files import ExportFormat, ExportReport
    from gantrymq.tools.export_plan import ExportSelection

_SHOWN = 50
_STDOUT = "-"


class Format(StrEnum):
    """The format of the exported files."""

    PARQUET = "parquet"
    JSONL = "jsonl"
    CSV = "csv"


Out = Annotated[
    Path,
    typer.Argument(
        metavar="OUT",
        help="Directory of the files: missing, or empty. - is stdout.",
        readable=False,
        allow_dash=True,
    ),
]


def export(
    store: Store,
    out: Out,
    format_: Annotated[Format, typer.Option("--format", help="What the files are.")] = Format.PARQUET,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic. May be given more than once.")
    ] = None,
    queue: Annotated[
        int | None, typer.Option("--queue", metavar="QUEUE", parser=queue_number, help="Only queues of this number.")
    ] = None,
    begin: Begin = None,
    end: End = None,
    from_: Annotated[
        int | None, typer.Option("--from", metavar="N", parser=count, help="From this offset of the queue on.")
    ] = None,
    to: Annotated[
        int | None, typer.Option("--to", metavar="N", parser=count, help="Up to this offset, without it.")
    ] = None,
    compressed: Annotated[
        bool, typer.Option("--compressed", help="Leave bodies as their producer compressed them.")
    ] = False,
    engine: EngineOption = Engine.LOCAL,
    spark_conf: SparkConf = None,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Write messages to Parquet, JSON lines or CSV files.

    Files are in OUT/topic_dir=NAME/day=YYYY-MM-DD/, by the UTC day of storing,
    and have the columns of spark.read.format("rocketmq"). A NAME that is too
    long for a directory is cut and ends with ~HASH; the column topic has the
    full name. Every intact message is exported, also after damage. OUT stays
    empty until all files are complete. The command takes no lock and writes
    nothing to STORE. The exit code is 1 if messages are missing; all of them
    are reported. With - JSON lines or CSV go to stdout, and the report to
    stderr.

    Examples of use:

        gantrymq store export /data/store /data/parquet
        gantrymq store export /data/store /data/orders --topic orders --begin 2026-11-01 --end 2026-12-01
        gantrymq store export /data/store /data/some --format jsonl --topic orders --queue 0 --from 100 --to 200
        gantrymq store export /data/store - --format jsonl --topic orders | jq .body
    """
    from gantrymq.tools.export_files import ExportFormat
    from gantrymq.tools.export_plan import ExportSelection

    selection = ExportSelection(frozenset(topic) if topic else None, queue, begin, end, from_, to)
    what = (store, out, ExportFormat(format_.value), selection)
    if str(out) == _STDOUT:
        _check_stdout(engine, format_)
    with interrupt_on_sigterm():
        reading = read_options(config, set_)
        report = _export(what, engine, spark_conf, reading, decompress=not compressed)
    warn_of_contents(store, reading)
    for name in report.missing_topics:
        warn(f"there is no topic {name}")
    if str(out) == _STDOUT:
        _report_beside(store, engine, format_, report, json=json)
    elif json:
        from gantrymq.cli.json_lines import JsonLines

        with JsonLines() as lines:
            lines.write(_fields(store, out, engine, format_, report))
    else:
        _print(store, out, report)
    if not report.is_whole:
        raise typer.Exit(FINDINGS)


def _export(
    what: tuple[Path, Path, ExportFormat, ExportSelection],
    engine: Engine,
    spark_conf: list[str] | None,
    reading: Reading,
    *,
    decompress: bool,
) -> ExportReport:
    if engine is Engine.LOCAL:
        from gantrymq.cli.terminal import progress
        from gantrymq.tools.export import export_store, export_stream

        store, out, kind, selection = what
        if str(out) == _STDOUT:
            where = store, sys.stdout.buffer, kind, selection, reading.config
            with progress(shown=not sys.stdout.isatty()) as bar:
                return export_stream(*where, given=reading.given, decompress=decompress, progress=bar)
        with progress() as bar:
            return export_store(*what, reading.config, given=reading.given, decompress=decompress, progress=bar)
    from gantrymq.cli.spark_engine import on_spark

    with on_spark(spark_conf) as spark:
        from gantrymq.spark.pipelines import export_on_spark

        return export_on_spark(spark, *what, reading.config, given=reading.given, decompress=decompress)


def _check_stdout(engine: Engine, format_: Format) -> None:
    if format_ is Format.PARQUET:
        raise typer.BadParameter("stdout takes JSON lines or CSV: give --format jsonl or --format csv")
    if engine is not Engine.LOCAL:
        raise typer.BadParameter("--engine spark writes files; stdout is for --engine local")


def _report_beside(store: Path, engine: Engine, format_: Format, report: ExportReport, *, json: bool) -> None:
    """Print the report on stderr, because stdout has the messages."""
    sys.stdout.buffer.flush()
    if json:
        from gantrymq.cli.json_lines import json_line

        line = json_line(_fields(store, Path(_STDOUT), engine, format_, report))
        print(line.decode().rstrip(), file=sys.stderr)
        return
    from gantrymq.model.texts import count_text

    for label, text in report.account.lines(store, _SHOWN):
        print_error(f"{label}: {text}" if label else text)
    if not report.is_whole:
        lost = count_text(report.account.message_count, "message")
        print_error(f"{count_text(report.rows, 'message')} written, {lost} known to be lost")


def _fields(store: Path, out: Path, engine: Engine, format_: Format, report: ExportReport) -> dict[str, object]:
    account = report.account.as_json(store)
    return {
        "store": str(store),
        "out": str(out),
        "engine": engine.value,
        "format": format_.value,
        "messages": report.rows,
        "files": report.files,
        "fileBytes": report.file_bytes,
        "topics": dict(sorted(report.topics.items())),
        "missingTopics": report.missing_topics,
        "lost": account["lost"],
        "undecodable": report.undecodable,
        "lostMessages": account["lostMessages"],
        "repaired": account["repaired"],
        "quarantined": account["quarantined"],
        "notCompared": account["notCompared"],
        "misfiledQueues": account["misfiledQueues"],
    }


def _print(store: Path, out: Path, report: ExportReport) -> None:
    from gantrymq.cli.terminal import print_pairs, print_table
    from gantrymq.model.size import size_text
    from gantrymq.model.texts import count_text

    files = f"{count_text(report.files, 'file')}, {size_text(report.file_bytes)}"
    pairs = [("written", f"{count_text(report.rows, 'message')} in {files}")]
    pairs += report.account.lines(store, _SHOWN)
    if not report.is_whole:
        lost = count_text(report.account.message_count, "message")
        pairs.append(("", f"{lost} known to be lost; gantrymq store verify {store} shows what is wrong"))
    print_pairs(f"{out}: exported from {store}", pairs)
    if report.topics:
        print_table(["topic", ">messages"], [(name, f"{count:,}") for name, count in sorted(report.topics.items())])
