"""``gantrymq store rebuild``: rebuilds queues and index of a store, and prints the report."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from gantrymq.cli.opened import read_writing_options
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store
from gantrymq.cli.spark_engine import Engine, EngineOption, SparkConf
from gantrymq.cli.terminal import DONE, FINDINGS

if TYPE_CHECKING:
    from gantrymq.config.reading import Reading
    from gantrymq.tools.rebuild import RebuildReport

_SHOWN = 50
_WORTH_A_RATE = 64 << 20  # below, loading the kernels dominates


def rebuild(
    store: Store,
    queues: Annotated[bool, typer.Option("--queues", help="Rebuild the consume queues.")] = False,
    index: Annotated[bool, typer.Option("--index", help="Rebuild the index files.")] = False,
    engine: EngineOption = Engine.LOCAL,
    spark_conf: SparkConf = None,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Rebuild consume queues and index files from the commit log.

    Rebuilds both if neither --queues nor --index is given. The command takes
    the store's lock. The old files are replaced when all new ones are
    durable. The log is not changed. Damage in it is skipped, and the exit
    code is 1. With --engine spark executors write the same files, and this
    process swaps them in.

    Examples of use:

        gantrymq store rebuild /data/store
        gantrymq store rebuild /data/store --index --set maxHashSlotNum=5000000 --set maxIndexNum=20000000
        gantrymq store rebuild /data/store --engine spark --spark-conf spark.master=spark://host:7077
        gantrymq store rebuild /data/store --json
    """
    makes = make_here if engine is Engine.LOCAL else partial(_on_spark, spark_conf)
    raise typer.Exit(
        rebuild_store(store, config, set_, queues=queues, index=index, json=json, makes=makes, engine=engine.value)
    )


class Rebuilder(Protocol):
    """A function that rebuilds the store, in this process or on Spark."""

    def __call__(self, store: Path, reading: Reading, *, queues: bool, index: bool) -> RebuildReport:
        """Rebuild. Raises GantrymqError, OSError."""


def make_here(store: Path, reading: Reading, *, queues: bool, index: bool) -> RebuildReport:
    """Rebuild in this process, with a progress bar."""
    from gantrymq.cli.terminal import progress
    from gantrymq.tools.rebuild import rebuild_store

    with progress() as bar:
        return rebuild_store(store, reading.config, queues=queues, index=index, given=reading.given, progress=bar)


def _on_spark(
    spark_conf: list[str] | None, store: Path, reading: Reading, *, queues: bool, index: bool
) -> RebuildReport:
    from gantrymq.cli.spark_engine import on_spark

    with on_spark(spark_conf) as spark:
        from gantrymq.spark.pipelines import rebuild_on_spark

        return rebuild_on_spark(spark, store, reading.config, queues=queues, index=index, given=reading.given)


def rebuild_store(
    store: Path,
    config: Path | None = None,
    set_: list[str] | None = None,
    *,
    queues: bool = False,
    index: bool = False,
    json: bool = False,
    makes: Rebuilder = make_here,
    engine: str = "local",
) -> int:
    """Rebuild queues and index (both if none is named), print the report, and return the exit code.

    Raises GantrymqError, OSError.
    """
    everything = queues == index
    reading = read_writing_options(config, set_)
    report = makes(store, reading, queues=queues or everything, index=index or everything)
    if json:
        from gantrymq.cli.json_lines import JsonLines

        with JsonLines() as out:
            out.write(_fields(store, engine, report))
    else:
        _print(store, report)
    return DONE if report.account.is_empty and report.account.is_compared else FINDINGS


def _fields(path: Path, engine: str, report: RebuildReport) -> dict[str, object]:
    return {
        "store": str(path),
        "engine": engine,
        "lastExitOk": report.last_exit_ok,
        "queuesRebuilt": report.queues_rebuilt,
        "indexRebuilt": report.index_rebuilt,
        "minPhyOffset": report.min_phy_offset,
        "maxPhyOffset": report.max_phy_offset,
        "records": report.records,
        "queues": report.queues,
        "queueUnits": report.queue_units,
        "queueFiles": report.queue_files,
        "indexFiles": report.index_files,
        "indexEntries": report.index_entries,
        "removedFiles": report.removed_files,
        **report.account.as_json(path),
        "stepsMs": report.steps_ms,
        "totalMs": round(sum(report.steps_ms.values()), 3),
    }


def _print(path: Path, report: RebuildReport) -> None:
    from gantrymq.cli.terminal import print_pairs
    from gantrymq.model.size import size_text
    from gantrymq.model.texts import count_text, span_text

    read, read_ms = report.max_phy_offset - report.min_phy_offset, report.steps_ms["read"]
    rate = f", {size_text(read * 1000 / read_ms)}/s" if read > _WORTH_A_RATE else ""
    offsets = f"offsets {report.min_phy_offset} to {report.max_phy_offset}"
    pairs = [("read", f"{count_text(report.records, 'record')}, {offsets}{rate}")]
    if report.queues_rebuilt:
        units, files = count_text(report.queue_units, "entry"), count_text(report.queue_files, "file")
        pairs.append(("queues", f"{units} in {count_text(report.queues, 'queue')}, {files}"))
    if report.index_rebuilt:
        pairs.append(
            ("index", f"{count_text(report.index_entries, 'entry')} in {count_text(report.index_files, 'file')}")
        )
    if report.removed_files:
        pairs.append(("removed", count_text(report.removed_files, "old file")))
    pairs += report.account.lines(path, _SHOWN)
    if not (report.account.is_empty and report.account.is_compared):
        pairs.append(("", f"gantrymq store verify {path} shows what is wrong, salvage makes a valid store"))
    if not report.last_exit_ok:
        pairs.append(("state", "it was not closed, and still is not: the next open recovers it"))
    pairs.append(("took", span_text(sum(report.steps_ms.values()))))
    pairs += [("", f"{name} {span_text(took_ms)}") for name, took_ms in report.steps_ms.items()]
    print_pairs(f"{path}: rebuilt", pairs)
